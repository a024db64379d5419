//! Reads recordings of calls, and estimates the network path from them.
//!
//! [`read`] reads an event log of libwebrtc or a capture, and returns a [`Call`]. [`Path::of`] estimates the path of
//! this call. Addresses and payloads are not kept.

mod batches;
mod call;
mod capture;
mod capture_file;
mod clock;
mod datagrams;
mod decapsulation;
mod decide;
mod delay_steps;
mod flow;
mod missing;
mod numbering;
mod path;
mod pictures;
mod reported;
mod rtclog;
mod send_time;
mod sender_clock;

pub use call::{Call, Exchange, Fate, Flight, Frame, PacketReport, Side, Unknown};
pub use datagrams::{CapturedDatagram, Datagrams, datagrams};
pub use decide::{Decided, decisions};
pub use path::{Band, Bin, Losses, Path, Queue, Verdict};

/// Maximum size of a file that is read, in bytes.
pub const MOST_BYTES: u64 = 1 << 30;

/// Why a file can't be read: where the problem is, what it is, and what the user can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Offset of the problem in the file, in bytes.
    pub at: u64,
    /// Description of the problem.
    pub what: String,
    /// Advice on how to solve the problem.
    pub remedy: String,
}

impl Problem {
    pub(crate) fn at(at: u64, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { at, what: what.into(), remedy: remedy.into() }
    }
}

/// Decrypts the SRTCP of a capture. Returns `None` if the datagram is encrypted with another key.
pub type Opener<'a> = &'a mut dyn FnMut(&[u8]) -> Option<Vec<u8>>;

/// The user's choices for reading a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The SSRC of the call to read, if a capture has several calls.
    pub stream: Option<u32>,
    /// For a log, the direction to read. For a capture, the side of the call at which it was made.
    pub side: Option<Side>,
    /// The id of the header extension abs-send-time, as in the `a=extmap` line of the session description.
    pub send_time_id: Option<u8>,
}

/// Reads a call from the bytes of a file. `opener` decrypts the SRTCP of a capture.
///
/// # Errors
/// The file is neither a log nor a capture, contradicts itself, or does not show departures and arrivals.
pub fn read(bytes: &[u8], options: Options, opener: Option<Opener<'_>>) -> Result<Call, Problem> {
    record(bytes, options, opener)?.alone()
}

/// Reads a call from the files of both ends. Departures are read from the sender's file, and arrivals from the
/// receiver's file. `opener` decrypts the SRTCP in the sender's file, which shows the round trip.
///
/// # Errors
/// One of the files is neither a log nor a capture, or contradicts itself, or the files do not show departures and
/// arrivals of the same call.
pub fn read_ends(
    sender: &[u8],
    receiver: &[u8],
    options: Options,
    opener: Option<Opener<'_>>,
) -> Result<Call, Problem> {
    let at = |side: Side| Options { side: Some(side), ..options };
    record(sender, at(Side::Sender), opener)?.with(record(receiver, at(Side::Receiver), None)?)
}

const CONVERT: &str = "give a capture as .pcap or .pcapng (Wireshark's editcap converts others)";
/// File formats that are not supported: first bytes, name for messages, and remedy.
const FOREIGN: [(&[u8], &str, &str); 9] = [
    (b"\x34\xcd\xb2\xa1", "a capture in the modified format of old Linux versions", CONVERT),
    (b"\xa1\xb2\xcd\x34", "a capture in the modified format of old Linux versions", CONVERT),
    (b"snoop\0\0\0", "a Solaris snoop capture", CONVERT),
    (b"btsnoop\0", "a Bluetooth capture", CONVERT),
    (b"GMBU", "a Microsoft Network Monitor capture", CONVERT),
    (b"RTSS", "a Microsoft Network Monitor capture", CONVERT),
    (b"XCP\0", "a Network Instruments or Sniffer capture", CONVERT),
    (
        b"RTCStatsDump",
        "an rtcstats dump",
        "give a dump of chrome://webrtc-internals, a series of getStats, or an event log",
    ),
    (
        b"#!rtpplay1.0",
        "an rtpdump, which has neither RTCP nor times finer than 1 ms",
        "give the capture that it was made from, as .pcap or .pcapng",
    ),
];

fn record(bytes: &[u8], options: Options, opener: Option<Opener<'_>>) -> Result<call::Recording, Problem> {
    if bytes.len() as u64 > MOST_BYTES {
        return Err(Problem::at(MOST_BYTES, "it has more than 1 GiB", "cut it into parts"));
    }
    if bytes.is_empty() {
        return Err(Problem::at(0, "it is empty", "record the call again, or give another file"));
    }
    if capture_file::is(bytes) {
        capture::read(bytes, options, opener)
    } else if let Some((_, name, remedy)) = FOREIGN.iter().find(|(magic, ..)| bytes.starts_with(magic)) {
        Err(Problem::at(0, format!("this is {name}, which is not read"), *remedy))
    } else if rtclog::is(bytes) {
        let mut record = rtclog::read(bytes, options)?;
        record.notes.extend(opener.map(|_| "nothing in a log is encrypted, and --key-file left out".to_owned()));
        Ok(record)
    } else {
        let remedy = "give an RTC event log or a dump (chrome://webrtc-internals), or a capture (.pcap, .pcapng)";
        Err(Problem::at(0, "this is neither an event log of version 2 nor a capture", remedy))
    }
}
