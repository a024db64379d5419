//! What the model promises, shown over a small path of its own.

mod path;
mod recovery;
mod timing;
