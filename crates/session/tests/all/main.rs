//! The session's tests in one program, so that shared code is compiled once. `tests/spoofed.rs` is separate, because it
//! measures the memory of its process.

mod agreed;
mod around;
mod asking;
mod audio;
mod browser;
mod compounds;
mod embed;
mod feedback;
mod group;
mod kit;
mod latecomers;
mod members;
mod nack;
mod only;
mod outages;
mod pacing;
mod parity;
mod probe;
mod recorder;
mod simulcast;
mod standard;
mod trust;
mod worlds;
