//! Batched delivery of packets to a receiver. In a large group, most packets change nothing before the receiver's next
//! report.

use crate::Media;
use steadycast_control::Stream;
use steadycast_wire::rtcp::{Compound, Packet};

/// Decides which packets may be delivered to a receiver later. Such packets keep their own arrival times and their
/// order, and are delivered before any other event of the receiver. A packet may be delivered later if it neither makes
/// the receiver send nor moves one of the receiver's timers to an earlier time. [`crate::Receiver::batchable`] returns
/// this value, which is valid until the receiver is called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batchable {
    /// The SSRC of the source from which the receiver receives.
    pub(crate) source: u32,
    /// The group size that the sender reported last. A packet that announces a smaller group can't be delivered later,
    /// because the receiver's next report is then due earlier.
    pub(crate) receivers: u32,
}

/// The properties of a packet that decide whether it can be delivered in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchKey {
    source: u32,
    receivers: Option<u32>,
}

impl BatchKey {
    /// Returns the key of a video packet; `None` for a packet of a stream other than the video, such as a
    /// retransmission.
    pub fn of_media(media: &Media) -> Option<Self> {
        (media.stream == Stream::Media).then_some(Self { source: media.header.ssrc, receivers: None })
    }

    /// Returns the key of an RTCP compound that contains only a source's sender report, SDES, APP and summary; `None`
    /// for any other.
    pub fn of_compound(compound: &Compound) -> Option<Self> {
        let Some(Packet::SenderReport { ssrc: source, .. }) = compound.packets.first() else { return None };
        let mut all = Self { source: *source, receivers: None };
        for packet in &compound.packets {
            let own = match packet {
                Packet::SenderReport { ssrc, .. } | Packet::App { ssrc, .. } => ssrc == source,
                Packet::Sdes { chunks } => chunks.iter().all(|(ssrc, _)| ssrc == source),
                Packet::Summary { ssrc, group, .. } => {
                    all.receivers = group.map(|group| group.receivers).or(all.receivers);
                    ssrc == source
                }
                _ => false,
            };
            // A packet of another participant can make the receiver act, for example by suppressing a request.
            if !own {
                return None;
            }
        }
        Some(all)
    }
}

impl Batchable {
    /// Returns true if the packet can be delivered later. If not, the packets of the batch have to be delivered first,
    /// so that the order is kept.
    #[inline]
    pub fn accepts(&mut self, packet: &BatchKey) -> bool {
        let receivers = packet.receivers.unwrap_or(self.receivers);
        let accepts = packet.source == self.source && receivers >= self.receivers;
        if accepts {
            self.receivers = receivers;
        }
        accepts
    }
}
