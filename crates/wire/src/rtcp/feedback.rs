//! Feedback messages that receivers send: generic NACKs (RFC 4585, section 6.2.1), key-frame requests (RFC 4585,
//! section 6.3.1; RFC 5104, section 4.3.1) and bandwidth estimates (REMB; draft-alvestrand-rmcat-remb-03, section 2).

use super::{FeedbackKind, Packet};
use crate::ParseError;
use crate::bytes::Reader;
use steadycast_units::{Rate, Span};

const NACK: u8 = 1;
const PLI: u8 = 1;
const FIR: u8 = 4;
/// FMT of "application layer feedback" (RFC 4585, section 6.4).
const ALFB: u8 = 15;

/// Maximum number of entries that are written into a generic NACK. The datagram then has 296 bytes, including IP and
/// RTCP headers.
const MAX_WRITTEN: usize = 64;
/// Maximum number of entries that are read from a generic NACK.
const MAX_READ: usize = 512;

/// A request for retransmissions: the generic NACK (RFC 4585, section 6.2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    /// The SSRC of the requesting participant.
    pub sender: u32,
    /// The SSRC of the media source.
    pub media: u32,
    /// The missing sequence numbers. The message is smallest if they are in ascending order (modulo 2¹⁶). At most 64
    /// entries are written, see [`Nack::fitting`].
    pub missing: Vec<u16>,
}

impl Nack {
    /// Returns how many sequence numbers fit into one message. They are counted from the first number on.
    pub fn fitting(missing: &[u16]) -> usize {
        pack(missing).1
    }

    /// Converts the message to a packet of a compound. Each entry is a sequence number and a mask of 16 bits. Bit i of
    /// the mask (0 is the lowest) stands for the sequence number + i + 1.
    pub fn to_packet(&self) -> Packet {
        let entries = pack(&self.missing).0;
        let fci = entries.iter().flat_map(|(pid, blp)| (u32::from(*pid) << 16 | u32::from(*blp)).to_be_bytes());
        let (sender, media) = (self.sender, self.media);
        Packet::Feedback { kind: FeedbackKind::Transport, fmt: NACK, sender, media, fci: fci.collect() }
    }

    /// Parses a packet of a compound. Returns `Ok(None)` if the packet has another type. The order and duplicates are
    /// kept.
    ///
    /// # Errors
    /// Returns an error if the message contains no sequence number, ends inside an entry, or has more than 512 entries.
    pub fn from_packet(packet: &Packet) -> Result<Option<Self>, ParseError> {
        let Packet::Feedback { kind: FeedbackKind::Transport, fmt: NACK, sender, media, fci } = packet else {
            return Ok(None);
        };
        if fci.len() > MAX_READ * 4 {
            return Err(ParseError::TooMany { what: "entries in a NACK", limit: MAX_READ });
        }
        let (mut reader, mut missing) = (Reader::new(fci), Vec::new());
        loop {
            let pid = reader.u16("NACK")?;
            let blp = reader.u16("NACK")?;
            missing.push(pid);
            missing.extend((0..16).filter(|bit| blp >> bit & 1 == 1).map(|bit| pid.wrapping_add(bit + 1)));
            if reader.rest.is_empty() {
                return Ok(Some(Self { sender: *sender, media: *media, missing }));
            }
        }
    }
}

/// Packs sequence numbers into entries. Returns the entries and how many of the numbers they contain.
fn pack(missing: &[u16]) -> (Vec<(u16, u16)>, usize) {
    let mut entries: Vec<(u16, u16)> = Vec::new();
    for (n, number) in missing.iter().enumerate() {
        let full = entries.len() == MAX_WRITTEN;
        // The mask of an entry contains the 16 numbers after the entry's first number. Duplicates change nothing.
        match entries.last_mut().map(|(pid, blp)| (number.wrapping_sub(*pid), blp)) {
            Some((0, _)) => {}
            Some((ahead @ 1..=16, blp)) => *blp |= 1 << (ahead - 1),
            _ if full => return (entries, n),
            _ => entries.push((*number, 0)),
        }
    }
    (entries, missing.len())
}

/// A request for a key frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFrameRequest {
    /// Picture loss indication (PLI). It reports that packets were lost.
    PictureLoss {
        /// The SSRC of the requesting participant.
        sender: u32,
        /// The SSRC of the media source.
        media: u32,
    },
    /// Full intra request (FIR). It reports that a decoder has to start. A repeated request has the same number.
    FullIntra {
        /// The SSRC of the requesting participant.
        sender: u32,
        /// The SSRC of the media source.
        media: u32,
        /// The number of the request, modulo 256.
        number: u8,
    },
}

impl KeyFrameRequest {
    /// Converts the message to a packet of a compound.
    pub fn to_packet(self) -> Packet {
        let (fmt, sender, media, fci) = match self {
            Self::PictureLoss { sender, media } => (PLI, sender, media, Vec::new()),
            Self::FullIntra { sender, media, number } => {
                // In a FIR, the SSRC of the media is in the entry and not in the common header.
                let [a, b, c, d] = media.to_be_bytes();
                (FIR, sender, 0, vec![a, b, c, d, number, 0, 0, 0])
            }
        };
        Packet::Feedback { kind: FeedbackKind::Payload, fmt, sender, media, fci }
    }
    /// Returns all key-frame requests in a packet. There are none if the packet has another type.
    pub fn all(packet: &Packet) -> impl Iterator<Item = Self> {
        let (pli, entries): (_, &[u8]) = match packet {
            Packet::Feedback { kind: FeedbackKind::Payload, fmt: PLI, sender, media, .. } => {
                (Some(Self::PictureLoss { sender: *sender, media: *media }), &[])
            }
            Packet::Feedback { kind: FeedbackKind::Payload, fmt: FIR, fci, .. } => (None, fci),
            _ => (None, &[]),
        };
        let by = match packet {
            Packet::Feedback { sender, .. } => *sender,
            _ => 0,
        };
        let entries = entries.chunks_exact(8).map(move |entry| Self::FullIntra {
            sender: by,
            media: u32::from_be_bytes([entry[0], entry[1], entry[2], entry[3]]),
            number: entry[4],
        });
        pli.into_iter().chain(entries)
    }
}

/// A bandwidth estimate of a receiver (REMB). This crate only parses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverEstimate {
    /// The SSRC of the participant that sends the estimate.
    pub sender: u32,
    /// The maximum total rate of all sources in `ssrcs`.
    pub rate: Rate,
    /// The SSRCs of the sources that share `rate`.
    pub ssrcs: Vec<u32>,
}

impl ReceiverEstimate {
    /// Parses a packet of a compound. Returns `Ok(None)` if the packet has another type.
    ///
    /// # Errors
    /// Returns an error if the packet contains fewer sources than it announces.
    pub fn from_packet(packet: &Packet) -> Result<Option<Self>, ParseError> {
        let Packet::Feedback { kind: FeedbackKind::Payload, fmt: ALFB, sender, fci, .. } = packet else {
            return Ok(None);
        };
        let mut reader = Reader::new(fci);
        if reader.array("REMB").ok() != Some(*b"REMB") {
            return Ok(None);
        }
        // The word consists of the number of sources (8 bits), an exponent (6 bits) and a mantissa (18 bits).
        let word = reader.u32("REMB")?;
        // Use 128 bits, because the exponent is up to 63 and the rate can exceed 64 bits.
        let rate = u128::from(word & 0x3_ffff) << (word >> 18 & 0x3f);
        let ssrcs = (0..word >> 24).map(|_| reader.u32("sources of REMB")).collect::<Result<_, _>>()?;
        Ok(Some(Self { sender: *sender, rate: Rate::bps(u64::try_from(rate).unwrap_or(u64::MAX)), ssrcs }))
    }
}

/// A request for more parity packets of some blocks ([`crate::parity`]). It is an APP packet with a private name.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// |V=2|P| subtype |    PT=204     |            length             |
/// |                     SSRC of the requester                      |
/// |                         name "PRTY"                           |
/// |                     SSRC of the media source                  |
/// |             base              |    packets    |    parities   |   once for each block
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParityRequest {
    /// The SSRC of the requesting participant.
    pub sender: u32,
    /// The SSRC of the media source.
    pub media: u32,
    /// The blocks that need more parity packets. At most [`ParityRequest::MOST`] blocks are written.
    pub blocks: Vec<BlockRequest>,
}

/// How many parity packets a receiver needs of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// Sequence number of the first packet in the block.
    pub base: u16,
    /// Number of packets in the block.
    pub packets: u8,
    /// Total number of the block's parity packets that the receiver needs. It includes parity packets that were already
    /// sent.
    pub parities: u8,
}

/// The name of APP packets that concern parity.
const PARITY: [u8; 4] = *b"PRTY";

impl ParityRequest {
    /// Maximum number of blocks in one request.
    pub const MOST: usize = 16;

    /// Converts the message to a packet of a compound.
    pub fn to_packet(&self) -> Packet {
        let mut data = self.media.to_be_bytes().to_vec();
        for block in self.blocks.iter().take(Self::MOST) {
            data.extend_from_slice(&block.base.to_be_bytes());
            data.extend_from_slice(&[block.packets, block.parities]);
        }
        Packet::App { ssrc: self.sender, subtype: 0, name: PARITY, data }
    }

    /// Parses a packet of a compound. Returns `Ok(None)` if the packet has another type.
    ///
    /// # Errors
    /// Returns an error if the request ends inside a block, or has more than [`ParityRequest::MOST`] blocks.
    pub fn from_packet(packet: &Packet) -> Result<Option<Self>, ParseError> {
        let Packet::App { ssrc, subtype: 0, name: PARITY, data } = packet else { return Ok(None) };
        let mut reader = Reader::new(data);
        let media = reader.u32("parity request")?;
        let mut blocks = Vec::new();
        while !reader.rest.is_empty() {
            if blocks.len() == Self::MOST {
                return Err(ParseError::TooMany { what: "blocks in a parity request", limit: Self::MOST });
            }
            let base = reader.u16("parity request")?;
            let [packets, parities] = reader.array("parity request")?;
            blocks.push(BlockRequest { base, packets, parities });
        }
        Ok(Some(Self { sender: *ssrc, media, blocks }))
    }
}

/// Announces to the sender that a receiver uses parity packets ([`crate::parity`]), and how long the receiver's
/// play-out delay is. The announcement is an APP packet with a private name.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// |V=2|P|subtype 1|    PT=204     |            length             |
/// |                      SSRC of the receiver                     |
/// |                         name "PRTY"                           |
/// |                     SSRC of the media source                  |
/// |                  play-out delay, milliseconds                 |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParityUse {
    /// The SSRC of the receiver.
    pub sender: u32,
    /// The SSRC of the media source.
    pub media: u32,
    /// Time from the completion of a frame at the sender to its play-out. It is written in whole milliseconds.
    pub playout: Span,
}

impl ParityUse {
    /// Converts the message to a packet of a compound.
    pub fn to_packet(&self) -> Packet {
        let delay = u32::try_from(self.playout.as_nanos() / 1_000_000).unwrap_or(u32::MAX);
        let data = [self.media.to_be_bytes(), delay.to_be_bytes()].concat();
        Packet::App { ssrc: self.sender, subtype: 1, name: PARITY, data }
    }

    /// Parses a packet of a compound. Returns `Ok(None)` if the packet has another type. Bytes after the delay are
    /// ignored.
    ///
    /// # Errors
    /// Returns an error if the packet ends before the delay.
    pub fn from_packet(packet: &Packet) -> Result<Option<Self>, ParseError> {
        let Packet::App { ssrc, subtype: 1, name: PARITY, data } = packet else { return Ok(None) };
        let mut reader = Reader::new(data);
        let media = reader.u32("use of parity")?;
        let playout = Span::millis(reader.u32("use of parity")?.into());
        Ok(Some(Self { sender: *ssrc, media, playout }))
    }
}
