//! The tests of agents' records in one program, so that shared code is compiled once.

mod repaired;
mod rows;
