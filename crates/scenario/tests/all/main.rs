//! The format's tests as one program, so that shared code is compiled once.

mod bad;
mod claims;
mod directions;
mod expect;
mod experiment;
mod families;
mod misplaced;
mod mutations;
mod named;
mod scenarios;
mod simulcast;
mod trace;
