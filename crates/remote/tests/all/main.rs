//! The claims about controllers at the sender, in one program: what they share is compiled once. `tests/memory.rs` is
//! another, since it counts what its process allocates.

mod gap;
mod history;
mod hostile;
mod matrix;
mod model;
mod native;
mod sender_reports;
mod unknown;
