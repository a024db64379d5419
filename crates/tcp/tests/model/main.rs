//! The claims of the model, tested over a small path.

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
