//! The claims about RTCP in one program, so that shared code is compiled once.

mod interval;
mod members;
mod reception;
