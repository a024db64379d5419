//! The session's claims, in one program: what they share is compiled once.

mod around;
mod asking;
mod embed;
mod feedback;
mod group;
mod latecomers;
mod members;
mod nack;
mod only;
mod pacing;
mod parity;
mod probe;
mod simulcast;
mod spoofed;
mod standard;
mod worlds;
