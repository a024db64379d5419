//! What the model promises, shown over a small path of its own.

mod linux;
mod modern;
mod path;
mod recovery;
mod robust;
mod settings;
mod table;
mod throughput;
mod timing;
mod window;
