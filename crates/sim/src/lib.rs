//! The simulated world: a scenario goes in, a record comes out, in virtual time.
//!
//! A [`Simulation`] is built from a scenario and what it needs ([`Inputs`]), run, and then asked for its summary and
//! tables. Everything in it is determined by the scenario and its seed.

mod batch;
mod build;
mod port;
mod world;

pub use steadycast_ends::{BuildError, Inputs, Record, Table, Values};
pub use world::Simulation;
