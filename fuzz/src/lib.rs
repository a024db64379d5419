//! What is fuzzed.

pub mod targets;
