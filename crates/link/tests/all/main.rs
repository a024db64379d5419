//! The claims of links in one test program, so that shared code is compiled once.

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
