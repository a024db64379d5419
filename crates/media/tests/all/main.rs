//! The claims about frames, in one program: what they share is compiled once.

mod assembly;
mod encoder;
mod rfc8593;
