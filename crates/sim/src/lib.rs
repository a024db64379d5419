//! The simulated world: a scenario goes in, a record comes out, in virtual time.
//!
//! A [`Simulation`] is built from a scenario and what it needs ([`Inputs`]), run, and then asked for its summary and tables.
//! Everything in it is determined by the scenario and its seed.

mod agenda;
mod agent;
mod build;
mod capture;
mod intake;
mod net;
mod packet;
mod share;
mod summary;
mod tables;
mod tree;
mod world;

pub use build::{BuildError, Inputs};
pub use tables::{Column, Table};
pub use world::Simulation;
