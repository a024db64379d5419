//! What a receiver may be told of later: most packets of a large group change nothing before its next report.

use crate::Media;
use steadycast_control::Stream;
use steadycast_wire::rtcp::{Compound, Packet};

/// The packets that a receiver may be told of later: at their own times and in their order, before anything else
/// happens to it. Such a packet makes it send nothing, and moves none of its times forward.
/// [`crate::Receiver::patience`] returns it; it holds until the receiver is called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The source that it follows.
    pub(crate) source: u32,
    /// How many receivers it was told that there are: a group that shrinks brings the next report forward.
    pub(crate) receivers: u32,
}

/// What decides whether a packet can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routine {
    source: u32,
    receivers: Option<u32>,
}

impl Routine {
    /// The routine of a packet of media; `None` for another stream's packet.
    pub fn of_media(media: &Media) -> Option<Self> {
        (media.stream == Stream::Media).then_some(Self { source: media.header.ssrc, receivers: None })
    }

    /// The routine of a compound in which a source reports, names itself and announces; `None` for one with anything
    /// else.
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
            if !own {
                return None;
            }
        }
        Some(all)
    }
}

impl Patience {
    /// Whether the packet can wait. One that can is to be told before any that cannot.
    #[inline]
    pub fn bears(&mut self, packet: &Routine) -> bool {
        let receivers = packet.receivers.unwrap_or(self.receivers);
        let bears = packet.source == self.source && receivers >= self.receivers;
        if bears {
            self.receivers = receivers;
        }
        bears
    }
}
