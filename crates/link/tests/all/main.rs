//! A link's claims, in one program: what they share is compiled once.

mod codel;
mod dualpi2;
mod ecn;
mod link;
mod overtaken;
mod pie;
mod policer;
mod settings;
mod shaper;
mod steps;
