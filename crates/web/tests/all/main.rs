//! Offers of browsers, answers of servers, and their connections through a tunnel in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

mod answers;
mod client;
mod demultiplexers;
mod generated;
mod offers;
mod tunnels;
mod world;
