//! The peers that send RTCP to a sender. The list is only for display.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use steadycast_units::{Bytes, Span, Time};
use steadycast_wire::ntp::{self, NtpEpoch};
use steadycast_wire::rtcp::{Compound, Packet, ReportBlock};

/// What a sender has sent on its stream when a datagram arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnStream {
    /// The SSRC of the stream.
    pub(crate) ssrc: u32,
    /// The number of packets of the stream.
    pub(crate) packets: u64,
    /// The number of IP bytes, including audio and repair.
    pub(crate) bytes: Bytes,
}

/// A report block, and the state of this sender when it arrived.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedBlock {
    /// The report block on the stream of this sender.
    pub block: ReportBlock,
    /// When the block arrived.
    pub at: Time,
    /// How many IP bytes this sender had sent by then.
    pub sent: Bytes,
}

/// A peer that sends reports.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The canonical name (CNAME). Before it is received, the SSRC.
    pub cname: String,
    /// Address that the reports come from.
    pub address: SocketAddr,
    /// When the first report arrived.
    pub first: Time,
    /// When the last report arrived.
    pub last: Time,
    /// Number of RTCP compounds that contained a report block or feedback on this sender's stream.
    pub reports: u64,
    /// Whether the peer sends reports in the controller's own format (RTCP APP).
    pub ours: bool,
    /// Whether the peer sends standard per-packet feedback.
    pub packets: bool,
    /// The first report block on the stream of this sender.
    pub begin: Option<ReceivedBlock>,
    /// The latest report block on the stream of this sender.
    pub block: Option<ReceivedBlock>,
    /// Number of report blocks that were ignored because they contained more losses than packets.
    pub implausible: u64,
    /// Round-trip time of the latest report that contained an LSR.
    pub rtt: Option<Span>,
    /// Whether the receiver has sent a BYE.
    pub left: bool,
}

/// The list of peers. It contains at most 1,024 peers. If there are more, the peers with the latest reports stay.
#[derive(Debug)]
pub struct Peers {
    all: BTreeMap<u32, Peer>,
    epoch: NtpEpoch,
    app: [u8; 4],
    unreadable: u64,
}

const MAX_PEERS: usize = 1_024;
/// Maximum length of a name, in characters.
const MAX_NAME: usize = 64;

impl Peers {
    /// Creates the list of a sender. `app` is the name in the controller's APP packets.
    pub fn new(epoch: NtpEpoch, app: [u8; 4]) -> Self {
        Self { all: BTreeMap::new(), epoch, app, unreadable: 0 }
    }

    /// Returns all peers by SSRC.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Peer)> {
        self.all.iter().map(|(ssrc, peer)| (*ssrc, peer))
    }

    /// Returns the canonical name of the receiver with this SSRC.
    pub fn name(&self, ssrc: u32) -> Option<&str> {
        self.all.get(&ssrc).map(|p| p.cname.as_str())
    }

    /// Returns the number of datagrams that could not be parsed.
    pub const fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Returns the peer whose report arrived last. The peer may have left since.
    pub(crate) fn latest(&self) -> Option<&Peer> {
        self.all.values().max_by_key(|peer| peer.last)
    }

    /// Processes a datagram from `from`. `own` is the stream of this sender.
    pub(crate) fn on_rtcp(&mut self, now: Time, own: OwnStream, from: SocketAddr, datagram: &[u8]) {
        let mine = own.ssrc;
        let Ok(compound) = Compound::parse(datagram) else {
            self.unreadable += 1;
            return;
        };
        // Count feedback only if it comes without a report, because a report is counted itself.
        let alone =
            !compound.packets.iter().any(|p| matches!(p, Packet::ReceiverReport { .. } | Packet::SenderReport { .. }));
        for packet in &compound.packets {
            match packet {
                Packet::ReceiverReport { ssrc, blocks } | Packet::SenderReport { ssrc, blocks, .. }
                    if *ssrc != mine =>
                {
                    let epoch = self.epoch;
                    let Some(peer) = self.peer(now, *ssrc, from) else { continue };
                    if let Some(block) = blocks.iter().find(|b| b.ssrc == mine) {
                        peer.reports += 1;
                        if !is_plausible(block, peer.block.map(|before| before.block), own.packets) {
                            peer.implausible += 1;
                            continue;
                        }
                        let received = ReceivedBlock { block: *block, at: now, sent: own.bytes };
                        peer.begin.get_or_insert(received);
                        peer.block = Some(received);
                        // If the block has no LSR, keep the previous RTT.
                        peer.rtt = ntp::round_trip(epoch.middle(now), block.lsr, block.dlsr).or(peer.rtt);
                    }
                }
                Packet::App { ssrc, name, .. } if *name == self.app && *ssrc != mine => {
                    if let Some(peer) = self.peer(now, *ssrc, from) {
                        peer.ours = true;
                    }
                }
                // Look only at the format, because the controller reads the content.
                Packet::Feedback { sender, .. } if *sender != mine && packet.is_packet_feedback() => {
                    if let Some(peer) = self.peer(now, *sender, from) {
                        peer.packets = true;
                        peer.reports += u64::from(alone);
                    }
                }
                Packet::Sdes { chunks } => {
                    for (ssrc, cname) in chunks {
                        if let Some(peer) = self.all.get_mut(ssrc).filter(|p| p.address.ip() == from.ip()) {
                            peer.cname = cname.chars().take(MAX_NAME).collect();
                        }
                    }
                }
                Packet::Bye { ssrcs, .. } => {
                    for ssrc in ssrcs {
                        if let Some(peer) = self.all.get_mut(ssrc).filter(|p| p.address.ip() == from.ip()) {
                            peer.left = true;
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the peer with this SSRC. Adds the peer if it is new. Returns `None` if the SSRC belongs to a peer at
    /// another address.
    fn peer(&mut self, now: Time, ssrc: u32, from: SocketAddr) -> Option<&mut Peer> {
        // Ignore this SSRC, because GStreamer uses it until its session has chosen one.
        if ssrc == u32::MAX {
            return None;
        }
        // Remove the peer with the oldest report, because forged SSRCs must not fill the memory.
        if self.all.len() >= MAX_PEERS
            && !self.all.contains_key(&ssrc)
            && let Some(oldest) = self.all.iter().min_by_key(|(_, p)| p.last).map(|(ssrc, _)| *ssrc)
        {
            self.all.remove(&oldest);
        }
        let fresh = || Peer {
            cname: format!("{ssrc:08x}"),
            address: from,
            first: now,
            last: now,
            reports: 0,
            ours: false,
            packets: false,
            begin: None,
            block: None,
            implausible: 0,
            rtt: None,
            left: false,
        };
        let peer = self.all.entry(ssrc).or_insert_with(fresh);
        // Refuse another address, which must not take over an SSRC. Accept another port, because a NAT may change it.
        if peer.address.ip() != from.ip() {
            return None;
        }
        (peer.last, peer.address, peer.left) = (now, from, false);
        Some(peer)
    }
}

/// Returns the number of packets from the highest sequence number of `before` to the one of `block`. Returns `None` if
/// there are none.
pub(crate) fn expected_since(before: &ReportBlock, block: &ReportBlock) -> Option<u32> {
    let expected = block.highest_seq.wrapping_sub(before.highest_seq);
    // Ignore 2³¹ or more, which is forged or wrapped.
    (expected > 0 && expected < 1 << 31).then_some(expected)
}

/// Returns whether a report block has at most as many losses as packets (RFC 3550, appendix A.3). The packets are those
/// that this sender has sent, and those since the previous block `before`.
fn is_plausible(block: &ReportBlock, before: Option<ReportBlock>, sent: u64) -> bool {
    // Duplicates can make the number of losses negative.
    let within = |lost: i32, packets: u64| u64::try_from(lost).unwrap_or(0) <= packets;
    let since = before.and_then(|before| {
        Some((block.cumulative_lost.wrapping_sub(before.cumulative_lost), expected_since(&before, block)?))
    });
    within(block.cumulative_lost, sent) && since.is_none_or(|(lost, expected)| within(lost, expected.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_feedback_is_recognised_by_its_format_alone() {
        let mut peers = Peers::new(NtpEpoch::from_unix_secs(0), *b"TEST");
        let from: SocketAddr = "10.0.0.1:5001".parse().unwrap();
        // The first two formats are packet feedback: RFC 8888 and transport-wide feedback. The other two are NACK and
        // application layer feedback.
        let formats: [(u8, u8); 4] = [(205, 11), (205, 15), (205, 1), (206, 15)];
        for (ssrc, (packet_type, fmt)) in (1..).zip(formats) {
            // Send only a header and the SSRCs, so that nothing but the format shows what the message is.
            let bytes = [0x80 | fmt, packet_type, 0, 2, 0, 0, 0, ssrc, 0, 0, 0, 9];
            peers.on_rtcp(Time::ZERO, OwnStream { ssrc: 9, packets: 0, bytes: Bytes::ZERO }, from, &bytes);
        }
        let told: Vec<u32> = peers.iter().filter(|(_, peer)| peer.packets).map(|(ssrc, _)| ssrc).collect();
        assert_eq!(told, [1, 2]);
    }
}
