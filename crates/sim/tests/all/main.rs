//! The claims of the simulator in one test program, so that shared code is compiled once.

mod audio;
mod batch;
mod breaker;
mod claims;
mod codel;
mod determinism;
mod ecn;
mod faults;
mod feedback;
mod groups;
mod handover;
mod hardship;
mod lab;
mod outages;
mod own;
mod padding;
mod pauses;
mod record;
mod repair;
mod rungs;
mod shares;
mod simulcast;
mod steady;
mod summary;
mod tcp;
