//! Batched delivery of packets to a receiver. In a large group, most packets neither make a receiver send nor change
//! its timers, so they can be delivered later, together.

use crate::Media;
use steadycast_control::Stream;
use steadycast_wire::rtcp::{Compound, Packet};

/// Decides which packets may wait until something else happens at the receiver. These packets neither make the receiver
/// send nor advance its timers.
///
/// Valid until the next call of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batchable {
    pub(crate) source: u32,
    /// The last reported group size; a smaller one would advance the next report.
    pub(crate) receivers: u32,
}

/// The properties of a packet that decide whether it is batched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchKey {
    source: u32,
    receivers: Option<u32>,
}

impl BatchKey {
    /// Returns the key of a video packet; `None` for other streams.
    pub fn of_media(media: &Media) -> Option<Self> {
        (media.stream == Stream::Media).then_some(Self { source: media.header.ssrc, receivers: None })
    }

    /// Returns the key of a compound with only a source's sender report, SDES, APP and summary.
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
            // Packets of other participants are not batched, because they can make the receiver act. For example,
            // another receiver's NACK suppresses its own NACK.
            if !own {
                return None;
            }
        }
        Some(all)
    }
}

impl Batchable {
    /// Returns whether the packet can wait. If not, deliver the batch before it.
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
