//! Batched delivery of packets to a receiver. In a large group, most packets neither make a receiver send nor change
//! its timers. Such packets can be delivered later as a batch.

use crate::Media;
use steadycast_control::Stream;
use steadycast_wire::rtcp::{Compound, Packet};

/// Decides whether a packet can be added to a batch. Packets in a batch neither make the receiver send nor advance its
/// timers. The batch is delivered when something else happens at the receiver.
///
/// This value is valid until the next call of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batchable {
    pub(crate) source: u32,
    /// The number of receivers that the source announced last. A packet that announces fewer receivers is not batched,
    /// because it makes the next report due earlier.
    pub(crate) receivers: u32,
}

/// The properties of a packet that decide whether it can be added to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchKey {
    source: u32,
    receivers: Option<u32>,
}

impl BatchKey {
    /// Returns the key of a video packet, or `None` if the packet belongs to another stream.
    pub fn of_media(media: &Media) -> Option<Self> {
        (media.stream == Stream::Media).then_some(Self { source: media.header.ssrc, receivers: None })
    }

    /// Returns the key of a compound, or `None` if it cannot be batched. It must contain only a sender report, SDES,
    /// APP packets and summaries, all from the same source.
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
            // Do not batch packets of other participants, because they can make the receiver act. For example, another
            // receiver's NACK suppresses this receiver's NACK.
            if !own {
                return None;
            }
        }
        Some(all)
    }
}

impl Batchable {
    /// Returns whether the packet can be added to the batch. If not, the caller delivers the batch before this packet.
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
