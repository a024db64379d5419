//! The tests of controllers at the sender in one program, so that shared code is compiled once. `tests/memory.rs` is
//! separate, because it counts the allocations of its process.

mod clocks;
mod gap;
mod history;
mod hostile;
mod matrix;
mod model;
mod native;
mod offers;
mod sender_reports;
mod silence;
mod unknown;
