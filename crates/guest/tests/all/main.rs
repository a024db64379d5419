//! The adapter around a law, and programs as laws: what they are told, what they may answer, how they end.

mod half;
#[cfg(unix)]
mod program;
