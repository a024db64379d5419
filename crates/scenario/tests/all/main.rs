//! The format's claims, in one program: what they share is compiled once.

mod bad;
mod claims;
mod expect;
mod families;
mod misplaced;
mod mutations;
mod named;
mod scenarios;
mod simulcast;
mod trace;
