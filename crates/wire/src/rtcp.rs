//! RTCP packets (RFC 3550, section 6) and feedback messages (RFC 4585), as owned values.
//!
//! The parser is lenient. It accepts the single reports that FFmpeg sends and reduced-size RTCP (RFC 5506). It keeps
//! packets of unknown types as bytes. The writer is strict.

mod acknowledged;
mod congestion;
mod extended;
mod feedback;
mod transport;

pub use acknowledged::{Acknowledged, Arrived};
pub use congestion::{CongestionFeedback, PacketArrival, StreamArrivals};
pub use extended::ReferenceTime;
pub use feedback::{BlockRequest, KeyFrameRequest, Nack, ParityRequest, ParityUse, ReceiverEstimate};
pub use transport::{PacketStatus, Ticks, TransportFeedback};

use crate::ParseError;
use crate::bytes::{Reader, to_words};

const SR: u8 = 200;
const RR: u8 = 201;
const SDES: u8 = 202;
const BYE: u8 = 203;
const APP: u8 = 204;
const RTPFB: u8 = 205;
const PSFB: u8 = 206;
const RSI: u8 = 209;
/// Type of the sub-report "group and average packet size" in an RSI packet (RFC 5760, section 7.1.12).
const GROUP_SIZE: u8 = 12;

const CNAME: u8 = 1;
const BLOCK: usize = 24;
/// Maximum value of a 5-bit count field.
const MAX_COUNT: usize = 31;
/// Maximum number of packets in a compound. Legitimate compounds have fewer than ten.
const MAX_PACKETS: usize = 256;

/// A report block. It describes the reception of one source (RFC 3550, section 6.4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportBlock {
    /// The SSRC of the source.
    pub ssrc: u32,
    /// Fraction of packets that were lost since the previous report, in units of 1/256.
    pub fraction: u8,
    /// Number of packets lost since the beginning. The field has 24 bits and saturates when it is written. It is
    /// negative if there are more duplicates than losses.
    pub cumulative_lost: i32,
    /// The highest sequence number received, extended by the count of wraps.
    pub highest_seq: u32,
    /// Interarrival jitter in units of the media clock.
    pub jitter: u32,
    /// LSR: the middle 32 bits of the NTP time in the last sender report. It is 0 if no sender report has arrived.
    pub lsr: u32,
    /// DLSR: the time since the last sender report arrived, in units of 1/65536 s.
    pub dlsr: u32,
}

impl ReportBlock {
    fn encode(&self, out: &mut Vec<u8>) {
        // Clamp to the range of a signed number with 24 bits.
        let lost = self.cumulative_lost.clamp(-0x80_0000, 0x7f_ffff) as u32 & 0xff_ffff;
        let words =
            [self.ssrc, u32::from(self.fraction) << 24 | lost, self.highest_seq, self.jitter, self.lsr, self.dlsr];
        for word in words {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let what = "report block";
        let ssrc = reader.u32(what)?;
        let loss = reader.u32(what)?;
        Ok(Self {
            ssrc,
            fraction: (loss >> 24) as u8,
            cumulative_lost: ((loss << 8) as i32) >> 8, // extends the sign of 24 bits
            highest_seq: reader.u32(what)?,
            jitter: reader.u32(what)?,
            lsr: reader.u32(what)?,
            dlsr: reader.u32(what)?,
        })
    }
}

/// The layer to which a feedback message applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedbackKind {
    /// The transport layer (RTPFB, packet type 205).
    Transport,
    /// The codec (PSFB, packet type 206).
    Payload,
}

/// The size of a group, as its media source knows it (RFC 5760, section 7.1.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSize {
    /// Average size of an RTCP datagram of the group, in bytes.
    pub average: u16,
    /// Number of receivers.
    pub receivers: u32,
}

/// An RTCP packet. A compound consists of one or more such packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Sender report (SR). The reporting participant has sent media since its previous report.
    SenderReport {
        /// The SSRC of the reporting participant.
        ssrc: u32,
        /// NTP time of the report, in seconds as 32.32 fixed point.
        ntp: u64,
        /// Time of the report as an RTP timestamp.
        rtp: u32,
        /// Number of RTP packets sent so far.
        packets: u32,
        /// Number of payload bytes sent so far.
        octets: u32,
        /// Report blocks. If there are more than 31, the other blocks are written into receiver reports.
        blocks: Vec<ReportBlock>,
    },
    /// Receiver report (RR). The reporting participant has sent no media since its previous report.
    ReceiverReport {
        /// The SSRC of the reporting participant.
        ssrc: u32,
        /// Report blocks. If there are more than 31, the other blocks are written into further reports.
        blocks: Vec<ReportBlock>,
    },
    /// Source description (SDES). Only CNAME items are supported. A CNAME is cut to 255 bytes when it is written.
    Sdes {
        /// Pairs of SSRC and CNAME.
        chunks: Vec<(u32, String)>,
    },
    /// BYE: some participants leave the session.
    Bye {
        /// The SSRCs of the participants that leave.
        ssrcs: Vec<u32>,
        /// The reason for leaving. It is empty if there is none. It is cut to 255 bytes when it is written.
        reason: String,
    },
    /// APP: an application-defined packet.
    App {
        /// The SSRC of the sender.
        ssrc: u32,
        /// The subtype, 0…31.
        subtype: u8,
        /// The name: four ASCII characters.
        name: [u8; 4],
        /// The data. It is padded with zeros to whole words when it is written.
        data: Vec<u8>,
    },
    /// A feedback message. It can be any message of RFC 4585.
    Feedback {
        /// The layer to which the message applies.
        kind: FeedbackKind,
        /// The message's format (FMT), 0…31.
        fmt: u8,
        /// The SSRC of the sender of the message.
        sender: u32,
        /// The SSRC of the media source. In RFC 8888, it is the SSRC of the first stream.
        media: u32,
        /// Feedback control information (FCI). It is padded to whole words when it is written. Transport-wide feedback
        /// uses RTCP padding, and other messages use zeros.
        fci: Vec<u8>,
    },
    /// Receiver summary information (RSI, RFC 5760, section 7.1.1). It is used in groups whose members send reports
    /// only to their source. Of its content, only the group size is kept.
    Summary {
        /// The SSRC of the sender of the summary.
        ssrc: u32,
        /// The SSRC of the source that the summary describes.
        media: u32,
        /// NTP time of the summary, in seconds as 32.32 fixed point.
        ntp: u64,
        /// The size of the group, if the summary contains it.
        group: Option<GroupSize>,
    },
    /// A packet of an unknown type.
    Unknown {
        /// The RTCP packet type.
        packet_type: u8,
        /// The value of the count field, 0…31.
        count: u8,
        /// The bytes after the first word. They are padded with zeros to whole words when they are written.
        body: Vec<u8>,
    },
}

/// The RTCP packets of one datagram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compound {
    /// The packets in wire order.
    pub packets: Vec<Packet>,
}

impl Compound {
    /// Returns the SSRC of the participant that sent the compound, if a packet contains it.
    pub fn sender(&self) -> Option<u32> {
        self.packets.iter().find_map(|packet| match packet {
            Packet::SenderReport { ssrc, .. }
            | Packet::ReceiverReport { ssrc, .. }
            | Packet::App { ssrc, .. }
            | Packet::Summary { ssrc, .. }
            | Packet::Feedback { sender: ssrc, .. } => Some(*ssrc),
            Packet::Sdes { chunks } => chunks.first().map(|chunk| chunk.0),
            Packet::Bye { ssrcs, .. } => ssrcs.first().copied(),
            Packet::Unknown { .. } => None,
        })
    }

    /// Returns the number of bytes that [`Compound::encode`] appends.
    pub fn encoded_len(&self) -> usize {
        self.packets.iter().map(Packet::encoded_len).sum()
    }

    /// Appends the compound to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_len());
        for packet in &self.packets {
            packet.encode(out);
        }
    }

    /// Parses a datagram. Returns an error if any part of it is malformed.
    pub fn parse(datagram: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(datagram);
        let mut packets = Vec::new();
        loop {
            // Limit the number of packets, so that many tiny packets can't use much memory.
            if packets.len() == MAX_PACKETS {
                return Err(ParseError::TooMany { what: "packets in a compound", limit: MAX_PACKETS });
            }
            let [flags, packet_type] = reader.array("RTCP header")?;
            if flags >> 6 != 2 {
                return Err(ParseError::Version { got: flags >> 6 });
            }
            let words = reader.u16("RTCP header")?;
            let mut body = reader.take(usize::from(words) * 4, "RTCP packet")?;
            let is_last = reader.rest.is_empty();
            if flags & 0x20 != 0 {
                let count = usize::from(body.last().copied().unwrap_or(0));
                // Normally only the last packet may have padding, and only in whole words (RFC 3550, section 6.4.1).
                // But libwebrtc pads transport-wide feedback by less than a word, anywhere in a compound.
                let aligned = count % 4 == 0 && is_last || fills_up(packet_type, flags & 0x1f);
                if count == 0 || count > body.len() || !aligned {
                    return Err(ParseError::Padding { count, len: body.len() });
                }
                body = &body[..body.len() - count];
            }
            packets.push(Packet::parse(packet_type, flags & 0x1f, body)?);
            if is_last {
                return Ok(Self { packets });
            }
        }
    }
}

impl Packet {
    fn parse(packet_type: u8, count: u8, body: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(body);
        Ok(match packet_type {
            SR => Self::SenderReport {
                ssrc: reader.u32("sender report")?,
                ntp: reader.u64("sender report")?,
                rtp: reader.u32("sender report")?,
                packets: reader.u32("sender report")?,
                octets: reader.u32("sender report")?,
                // Ignore a profile-specific extension that follows the blocks.
                blocks: parse_blocks(count, &mut reader)?,
            },
            RR => {
                Self::ReceiverReport { ssrc: reader.u32("receiver report")?, blocks: parse_blocks(count, &mut reader)? }
            }
            SDES => Self::Sdes { chunks: parse_chunks(count, reader)? },
            BYE => {
                let ssrcs = (0..count).map(|_| reader.u32("BYE")).collect::<Result<_, _>>()?;
                let reason = match reader.u8("BYE reason") {
                    Ok(len) => text(reader.take(usize::from(len), "BYE reason")?),
                    Err(_) => String::new(),
                };
                Self::Bye { ssrcs, reason }
            }
            APP => Self::App {
                ssrc: reader.u32("APP")?,
                subtype: count,
                name: reader.array("APP")?,
                data: reader.rest.to_vec(),
            },
            RTPFB | PSFB => Self::Feedback {
                kind: if packet_type == RTPFB { FeedbackKind::Transport } else { FeedbackKind::Payload },
                fmt: count,
                sender: reader.u32("feedback")?,
                media: reader.u32("feedback")?,
                fci: reader.rest.to_vec(),
            },
            RSI => {
                let what = "receiver summary";
                let (ssrc, media, ntp) = (reader.u32(what)?, reader.u32(what)?, reader.u64(what)?);
                Self::Summary { ssrc, media, ntp, group: parse_group_size(reader)? }
            }
            _ => Self::Unknown { packet_type, count, body: body.to_vec() },
        })
    }

    /// Returns whether the packet is per-packet feedback. Only its type and its FMT are checked.
    pub fn is_packet_feedback(&self) -> bool {
        CongestionFeedback::is(self) || TransportFeedback::is(self)
    }

    /// Returns the length of the packet in bytes when it is encoded.
    pub fn encoded_len(&self) -> usize {
        // Each further report contains up to 31 blocks. It has a header and an SSRC, which are 8 bytes.
        let continued = |blocks: &[ReportBlock]| blocks.len().saturating_sub(1) / MAX_COUNT * 8;
        match self {
            Self::SenderReport { blocks, .. } => 28 + blocks.len() * BLOCK + continued(blocks),
            Self::ReceiverReport { blocks, .. } => 8 + blocks.len() * BLOCK + continued(blocks),
            Self::Sdes { chunks } => {
                let heads = chunks.len().div_ceil(MAX_COUNT).max(1) * 4;
                heads + chunks.iter().map(|(_, cname)| chunk_len(cut(cname))).sum::<usize>()
            }
            Self::Bye { ssrcs, reason } => {
                let heads = ssrcs.len().div_ceil(MAX_COUNT).max(1);
                let reason = cut(reason);
                heads * 4 + ssrcs.len() * 4 + if reason.is_empty() { 0 } else { to_words(1 + reason.len()) }
            }
            Self::App { data, .. } => 12 + to_words(data.len()),
            Self::Feedback { fci, .. } => 12 + to_words(fci.len()),
            Self::Summary { group, .. } => 20 + if group.is_some() { 8 } else { 0 },
            Self::Unknown { body, .. } => 4 + to_words(body.len()),
        }
    }

    /// Appends the packet to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::SenderReport { ssrc, ntp, rtp, packets, octets, blocks } => {
                let (first, more) = blocks.split_at(blocks.len().min(MAX_COUNT));
                // A sender report has room for `MAX_COUNT` blocks. Put the rest into receiver reports (RFC 3550,
                // section 6.1).
                let at = open(SR, first.len(), out);
                put(*ssrc, out);
                out.extend_from_slice(&ntp.to_be_bytes());
                for word in [*rtp, *packets, *octets] {
                    put(word, out);
                }
                first.iter().for_each(|block| block.encode(out));
                close(at, out);
                for blocks in more.chunks(MAX_COUNT) {
                    receiver_report(*ssrc, blocks, out);
                }
            }
            Self::ReceiverReport { ssrc, blocks } => {
                let (first, more) = blocks.split_at(blocks.len().min(MAX_COUNT));
                receiver_report(*ssrc, first, out);
                for blocks in more.chunks(MAX_COUNT) {
                    receiver_report(*ssrc, blocks, out);
                }
            }
            Self::Sdes { chunks } => {
                for chunks in groups(chunks) {
                    let at = open(SDES, chunks.len(), out);
                    for (ssrc, cname) in chunks {
                        let (cname, start) = (cut(cname), out.len());
                        put(*ssrc, out);
                        out.extend_from_slice(&[CNAME, cname.len() as u8]);
                        out.extend_from_slice(cname.as_bytes());
                        out.resize(start + chunk_len(cname), 0); // at least one zero ends the list of items
                    }
                    close(at, out);
                }
            }
            Self::Bye { ssrcs, reason } => {
                let (reason, last) = (cut(reason), ssrcs.len().div_ceil(MAX_COUNT).max(1) - 1);
                for (i, ssrcs) in groups(ssrcs).enumerate() {
                    let at = open(BYE, ssrcs.len(), out);
                    ssrcs.iter().for_each(|&ssrc| put(ssrc, out));
                    // The reason follows the last SSRC, so only the last packet has it.
                    if i == last && !reason.is_empty() {
                        out.push(reason.len() as u8);
                        out.extend_from_slice(reason.as_bytes());
                    }
                    close(at, out);
                }
            }
            Self::App { ssrc, subtype, name, data } => {
                let at = open(APP, usize::from(*subtype), out);
                put(*ssrc, out);
                out.extend_from_slice(name);
                out.extend_from_slice(data);
                close(at, out);
            }
            Self::Feedback { kind, fmt, sender, media, fci } => {
                let packet_type = match kind {
                    FeedbackKind::Transport => RTPFB,
                    FeedbackKind::Payload => PSFB,
                };
                let at = open(packet_type, usize::from(*fmt), out);
                put(*sender, out);
                put(*media, out);
                out.extend_from_slice(fci);
                let filling = to_words(fci.len()) - fci.len();
                // Use the padding bit for this message instead of zeros, because libwebrtc does so.
                if filling > 0 && fills_up(packet_type, *fmt) {
                    out[at] |= 0x20;
                    out.resize(out.len() + filling - 1, 0);
                    out.push(filling as u8);
                }
                close(at, out);
            }
            Self::Summary { ssrc, media, ntp, group } => {
                let at = open(RSI, 0, out);
                put(*ssrc, out);
                put(*media, out);
                out.extend_from_slice(&ntp.to_be_bytes());
                if let Some(GroupSize { average, receivers }) = group {
                    out.extend_from_slice(&[GROUP_SIZE, 2]);
                    out.extend_from_slice(&average.to_be_bytes());
                    put(*receivers, out);
                }
                close(at, out);
            }
            Self::Unknown { packet_type, count, body } => {
                let at = open(*packet_type, usize::from(*count), out);
                out.extend_from_slice(body);
                close(at, out);
            }
        }
    }
}

/// Returns whether a packet may have padding even if it is not the last packet of a compound. libwebrtc writes such
/// padding in transport-wide feedback.
const fn fills_up(packet_type: u8, fmt: u8) -> bool {
    packet_type == RTPFB && fmt == transport::TRANSPORT_WIDE
}

fn parse_blocks(count: u8, reader: &mut Reader<'_>) -> Result<Vec<ReportBlock>, ParseError> {
    (0..count).map(|_| ReportBlock::parse(reader)).collect()
}

fn parse_chunks(count: u8, mut reader: Reader<'_>) -> Result<Vec<(u32, String)>, ParseError> {
    let mut chunks = Vec::new();
    for _ in 0..count {
        let start = reader.rest.len();
        let ssrc = reader.u32("SDES chunk")?;
        let mut cname = None;
        loop {
            let item = reader.u8("SDES items")?;
            if item == 0 {
                break;
            }
            let len = reader.u8("SDES item")?;
            let value = reader.take(usize::from(len), "SDES item")?;
            // Use only the first CNAME of a chunk.
            if item == CNAME && cname.is_none() {
                cname = Some(text(value));
            }
        }
        // Use the length to skip the padding of the chunk. Skipping all zeros would be wrong, because the next SSRC may
        // begin with zeros.
        let used = start - reader.rest.len();
        reader.take(to_words(used) - used, "SDES chunk")?;
        chunks.extend(cname.map(|cname| (ssrc, cname)));
    }
    Ok(chunks)
}

/// Parses the sub-reports of an RSI packet. Returns the size of the group, if a sub-report contains it.
fn parse_group_size(mut reader: Reader<'_>) -> Result<Option<GroupSize>, ParseError> {
    let (what, mut group) = ("receiver summary's sub-report", None);
    while !reader.rest.is_empty() {
        let [kind, words] = reader.array(what)?;
        // The length counts 32-bit words. It includes the two bytes just read (RFC 5760, section 7.1).
        let mut body = Reader::new(reader.take((usize::from(words) * 4).saturating_sub(2), what)?);
        if kind == GROUP_SIZE {
            group = Some(GroupSize { average: body.u16(what)?, receivers: body.u32(what)? });
        // Stop at a sub-report of length 0, because it would not advance the parser.
        } else if words == 0 {
            break;
        }
    }
    Ok(group)
}

fn receiver_report(ssrc: u32, blocks: &[ReportBlock], out: &mut Vec<u8>) {
    let at = open(RR, blocks.len(), out);
    put(ssrc, out);
    blocks.iter().for_each(|block| block.encode(out));
    close(at, out);
}

/// Splits items into groups of at most [`MAX_COUNT`]. If there are no items, returns one empty group, so that a packet
/// is still written.
fn groups<T>(all: &[T]) -> impl Iterator<Item = &[T]> {
    let none: &[T] = &[];
    all.chunks(MAX_COUNT).chain(all.is_empty().then_some(none))
}

fn open(packet_type: u8, count: usize, out: &mut Vec<u8>) -> usize {
    debug_assert!(count <= MAX_COUNT, "{count} doesn't fit the five bits of packet type {packet_type}");
    let at = out.len();
    // Write version 2 without padding (RFC 3550, section 6.4.1).
    out.extend_from_slice(&[0x80 | (count & 0x1f) as u8, packet_type, 0, 0]);
    at
}

fn close(at: usize, out: &mut Vec<u8>) {
    let len = to_words(out.len() - at);
    out.resize(at + len, 0);
    debug_assert!(len <= 4 * (1 << 16), "{len} bytes in one RTCP packet");
    // The length field contains the number of words minus one (RFC 3550, section 6.4.1).
    out[at + 2..at + 4].copy_from_slice(&((len / 4 - 1) as u16).to_be_bytes());
}

fn put(word: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&word.to_be_bytes());
}

fn chunk_len(cname: &str) -> usize {
    // Add the sizes of the SSRC, the type, the length, the text, and the zero that ends the items.
    to_words(4 + 2 + cname.len() + 1)
}

/// Cuts a text to at most 255 bytes, at a character boundary.
fn cut(text: &str) -> &str {
    let end = (0..=text.len().min(255)).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// Decodes a text and removes its line breaks.
fn text(bytes: &[u8]) -> String {
    crate::plain_text(bytes).replace(['\r', '\n'], "")
}
