//! Tests of the adapter for laws, and of programs as laws: their messages, their answers and their end.

mod half;
#[cfg(unix)]
mod program;
#[cfg(unix)]
mod switching;
