//! Tests of the packet formats, in one program so that shared code is compiled once.

mod feedback;
mod gstreamer;
mod parity;
mod payload;
mod rtcp;
mod rtp;
mod rtx;
