//! Offers of browsers, and their connections through a tunnel in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

mod answers;
mod client;
mod demultiplexers;
mod generated;
mod tunnels;
mod world;
