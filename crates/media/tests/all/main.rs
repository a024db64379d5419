//! The claims about frames in one test program, so that shared code is compiled once.

mod assembly;
mod encoder;
mod rfc8593;
