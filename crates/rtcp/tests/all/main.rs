//! The claims about RTCP, in one program: what they share is compiled once.

mod interval;
mod members;
mod reception;
