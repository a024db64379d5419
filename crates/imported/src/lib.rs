//! What a call left behind, and the path that it shows.
//!
//! [`read`] takes an event log of libwebrtc's or a capture, and makes a [`Call`] of it: each packet with its departure
//! and its fate. [`Path::of`] says what the network was, where the call shows it, and else why it can't be known.
//! Neither addresses nor payloads are kept.

mod call;
mod capture;
mod path;
mod rtclog;

pub use call::{Call, Fate, Flight, Frame};
pub use path::{Band, Bin, Losses, Path, Queue, Verdict};
pub use rtclog::{Counts, counts};

/// The largest file that is read, in bytes.
pub const MOST_BYTES: u64 = 1 << 30;

/// Why a file can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The byte at which it shows.
    pub at: u64,
    /// What is wrong.
    pub what: String,
    /// What mends it.
    pub remedy: String,
}

impl Problem {
    pub(crate) fn at(at: u64, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { at, what: what.into(), remedy: remedy.into() }
    }
}

/// Reads a file's bytes. Of the calls in a capture, `stream` names one by one of its sources.
///
/// # Errors
/// It is neither a log nor a capture, contradicts itself, or does not say how packets arrived.
pub fn read(bytes: &[u8], stream: Option<u32>) -> Result<Call, Problem> {
    if bytes.len() as u64 > MOST_BYTES {
        return Err(Problem::at(MOST_BYTES, "it has more than 1 GiB", "cut it into parts"));
    }
    if capture::is(bytes) {
        capture::read(bytes, stream)
    } else if rtclog::is(bytes) {
        rtclog::read(bytes)
    } else {
        let remedy = "give an RTC event log (chrome://webrtc-internals) or a capture (.pcap, .pcapng)";
        Err(Problem::at(0, "this is neither an event log of version 2 nor a capture", remedy))
    }
}
