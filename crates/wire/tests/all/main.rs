//! The claims about what is on the wire, in one program: what they share is compiled once.

mod feedback;
mod gstreamer;
mod parity;
mod payload;
mod rtcp;
mod rtp;
mod rtx;
