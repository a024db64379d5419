//! The claims about records of ends, in one program: what they share is compiled once.

mod repaired;
mod rows;
