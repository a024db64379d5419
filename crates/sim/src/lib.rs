//! The simulator: it runs a scenario in virtual time and produces a record.
//!
//! Build a [`Simulation`] from a scenario and its [`Inputs`], run it, then read its record. The scenario and its seed
//! determine the result completely.

mod batch;
mod build;
mod port;
mod world;

pub use steadycast_endpoints::{BuildError, Inputs, Record, Table, Values};
pub use world::Simulation;
