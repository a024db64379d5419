//! The retransmissions, parity packets and padding of a sender, and their shares of the rate.

use super::{
    AnnouncedPlayouts, Blocks, MAX_REQUESTING_MEMBERS, PARITY_MORE, Parity, ParitySettings, Protected, Protection,
};
use crate::participant::Participant;
use crate::peers::Peers;
use crate::sender::SenderSettings;
use crate::{Emit, Fragment, Media, RepairSettings, Repairs};
use steadycast_control::Check;
use steadycast_control::promise::REPAIR_WITHIN_RATE;
use steadycast_sender::{CachedPacket, FrameRole, RepairBudget, RepairShare, Retransmission, RetransmissionCache};
use steadycast_units::{Bytes, Rate, Span, Time};
use steadycast_wire::rtp::RtpHeader;
use steadycast_wire::rtx;

/// The loss rate that should remain after repair in a group.
const GROUP_RESIDUAL_LOSS: f64 = 2e-5;
/// The loss rate that should remain in a small group before its members request more parity.
const REQUESTING_GROUP_RESIDUAL_LOSS: f64 = 1e-3;
/// The loss rate that should remain after retransmission and parity in a unicast session.
///
/// The target is very low, because losses are assumed to be independent. In reality a full queue also drops the
/// retransmissions.
const UNICAST_RESIDUAL_LOSS: f64 = 3e-7;
const PARITY_USE_LIFETIME: Span = Span::secs(10);
/// Maximum play-out delay that is accepted in a receiver's announcement.
const MAX_PLAYOUT: Span = Span::secs(10);
/// The share of receivers that parity need not serve. They are the receivers with the highest losses.
const UNSERVED_SHARE: f64 = 0.02;
const LOSS_CHECK_INTERVAL: Span = Span::secs(1);

pub(crate) struct RepairStreams {
    pub(crate) retransmission: Option<RetransmissionSender>,
    pub(crate) parity: Option<ParitySender>,
    pub(crate) padding: Option<Padding>,
    pacing_check: Option<PacingCheck>,
    /// Whether packets are paced. If not, the pacing is not checked.
    paced: bool,
}

pub(crate) struct RetransmissionSender {
    pub(crate) cache: RetransmissionCache<(RtpHeader, Fragment)>,
    pub(crate) budget: RepairBudget,
    pub(crate) seq: u64,
    share: RepairShare,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Padding {
    pub(crate) packets: u64,
    pub(crate) bytes: Bytes,
}

pub(crate) struct ParitySender {
    pub(crate) blocks: Blocks,
    seq: u64,
    share: RepairShare,
    pub(crate) newest: Option<Protection>,
    packets: u64,
    bytes: Bytes,
    looked: Time,
    /// The time until which parity is sent. It is extended when receivers announce that they use parity
    /// ([`SenderSettings::parity_on_word`]).
    until: Time,
    pub(crate) announced: AnnouncedPlayouts,
}

pub(crate) struct NextParity {
    /// The extended sequence number of the packet in the parity stream.
    pub(crate) seq: u64,
    /// The length of the payload in bytes.
    pub(crate) payload: u16,
    pub(crate) size: Bytes,
    /// The first fragment that the parity packet protects.
    pub(crate) fragment: Fragment,
}

/// Checks that all streams together do not exceed the pacing rate. A packet may be sent too early by at most `credit`
/// plus the time that a full packet takes at the pacing rate.
struct PacingCheck {
    check: Check,
    packet: Bytes,
    /// If a packet is sent late, the pacer may catch up for this time. It is a time and not a number of bytes, so it
    /// stays valid when the rate falls.
    credit: Span,
    /// The time by which the last packet was too early for the pacing rate.
    ahead: Span,
    size: Bytes,
    last: Time,
    /// The highest pacing rate since the last packet was sent.
    rate: Rate,
}

impl RepairStreams {
    pub(crate) fn new(settings: &SenderSettings) -> Self {
        Self {
            retransmission: settings.repair.map(|repair| RetransmissionSender::new(repair, settings)),
            parity: settings.parity.map(|parity| ParitySender::new(parity, settings)),
            padding: settings.padding.then(Padding::default),
            pacing_check: settings.repair.map(|_| PacingCheck::new(settings)),
            paced: settings.emit == Emit::Paced,
        }
    }

    pub(crate) fn counts(&self) -> Repairs {
        let again = self.retransmission.as_ref().map(|again| again.cache.counts).unwrap_or_default();
        let Some(parity) = &self.parity else { return again };
        let refused = again.refused + parity.blocks.refused;
        Repairs { parities: parity.packets, parity_bytes: parity.bytes, refused, ..again }
    }

    /// Returns the part of `rate` that repair leaves for media.
    pub(crate) fn left(&mut self, now: Time, rate: Rate) -> Rate {
        let rate = self.retransmission.as_mut().map_or(rate, |again| again.share.left(now, rate));
        self.parity.as_mut().map_or(rate, |parity| parity.share.left(now, rate))
    }

    /// Continues the sequence numbers of the streams of `before`, a sender that has stopped.
    pub(crate) fn continue_after(&mut self, before: &Self) {
        if let (Some(again), Some(before)) = (&mut self.retransmission, &before.retransmission) {
            again.seq = before.seq;
        }
        if let (Some(parity), Some(before)) = (&mut self.parity, &before.parity) {
            parity.seq = before.seq;
        }
    }

    /// Returns the oldest media packet that may still be needed for repair. `next` is the sequence number of the next
    /// media packet.
    pub(crate) fn first_kept(&self, next: u64) -> Option<u64> {
        let again = self.retransmission.as_ref().map(|again| again.cache.first());
        let covered = self.parity.as_ref().map(|parity| parity.blocks.first().unwrap_or(next));
        again.into_iter().chain(covered).min()
    }

    pub(crate) fn clear(&mut self) {
        if let Some(again) = &mut self.retransmission {
            again.cache.clear();
        }
        if let Some(parity) = &mut self.parity {
            parity.blocks.clear();
        }
    }

    pub(crate) fn has_waiting(&self) -> bool {
        self.retransmission.as_ref().is_some_and(|again| again.cache.has_waiting())
            || self.parity.as_ref().is_some_and(|parity| parity.blocks.waits())
    }

    /// Returns whether the newest packet can be sent again as padding.
    pub(crate) fn can_pad(&self) -> bool {
        self.padding.is_some() && self.retransmission.as_ref().is_some_and(|again| again.cache.newest().is_some())
    }

    /// Returns the SSRC of the retransmission stream and the SSRC of the parity stream.
    pub(crate) fn ssrcs(&self) -> (Option<u32>, Option<u32>) {
        let again = self.retransmission.as_ref().map(|again| again.cache.settings.ssrc);
        (again, self.parity.as_ref().map(|parity| parity.blocks.settings.ssrc))
    }

    /// Returns the number of bytes by which a retransmission or parity packet is larger than the original.
    pub(crate) fn overhead(&self) -> Bytes {
        match (&self.parity, &self.retransmission) {
            (Some(_), _) => PARITY_MORE,
            (None, Some(_)) => Bytes::new(rtx::OSN as u64),
            (None, None) => Bytes::ZERO,
        }
    }

    /// Processes the announcement of `member` that it uses parity and has this play-out delay.
    pub(crate) fn on_parity_use(&mut self, now: Time, member: u32, playout: Span) {
        // Ignore the announcement if `until` is [`Time::NEVER`]: parity is then always sent, for the configured
        // play-out delay.
        let Some(parity) = self.parity.as_mut().filter(|parity| parity.until != Time::NEVER) else { return };
        // Limit the announced delay, because the duration of blocks depends on it.
        parity.announced.announce(now, member, playout.min(MAX_PLAYOUT), now + PARITY_USE_LIFETIME);
        let Some(playout) = parity.announced.longest(now) else { return };
        parity.blocks.settings.playout = Some(playout);
        if self.retransmission.as_mut().is_none_or(|again| again.cache.on_playout(playout)) {
            parity.until = now + PARITY_USE_LIFETIME;
        }
    }

    /// Adds a sent packet to the cache. `head` is the size of its headers without the controller's header extension.
    pub(crate) fn keep(&mut self, now: Time, media: &Media, role: FrameRole, ready: Time, head: Bytes) {
        let (header, fragment) = (media.header, media.fragment);
        let Some(again) = &mut self.retransmission else { return };
        let size = head + Bytes::new(rtx::OSN as u64 + u64::from(header.payload_len));
        let content = (header, fragment);
        let packet = CachedPacket { content, role, ready, sent: now, size, queued: false, resent_as: None };
        again.cache.on_sent(media.seq, packet);
        again.share.on_sent(now, media.size, false);
    }

    /// Checks the pacing of a packet, which can belong to any stream.
    pub(crate) fn check_pacing(&mut self, now: Time, size: Bytes, pacing: Rate) {
        if let Some(check) = self.pacing_check.as_mut().filter(|_| self.paced) {
            check.on_sent(now, size, pacing);
        }
    }

    pub(crate) fn on_pacing(&mut self, pacing: Rate) {
        if let Some(check) = &mut self.pacing_check {
            check.rate = check.rate.max(pacing);
        }
    }

    /// Returns the result of the check that media and repair together do not exceed the pacing rate. Returns `None` if
    /// there are no retransmissions.
    pub(crate) fn check(&self) -> Option<Check> {
        self.pacing_check.as_ref().map(|pacing| pacing.check)
    }

    /// Adds a media packet to the present block. The packet was sent `waited` after its frame was ready.
    pub(crate) fn add_to_block(
        &mut self,
        now: Time,
        media: &Media,
        waited: Span,
        peers: &Peers,
        participant: &Participant,
    ) {
        let Some(parity) = &mut self.parity else { return };
        parity.share.on_sent(now, media.size, false);
        if now >= parity.until {
            return;
        }
        // Update the loss rate only once per interval, because the quantile over a large group is too expensive for
        // each packet.
        if now.since(parity.looked) >= LOSS_CHECK_INTERVAL {
            parity.looked = now;
            if let Some(loss) = peers.loss(UNSERVED_SHARE) {
                parity.blocks.on_loss(now, loss);
            }
        }
        let loss = parity.blocks.loss();
        let few = participant.census().members <= MAX_REQUESTING_MEMBERS;
        let left = match &mut self.retransmission {
            None if few && peers.len() > 0 => REQUESTING_GROUP_RESIDUAL_LOSS,
            None => GROUP_RESIDUAL_LOSS,
            Some(again) => {
                // A retransmission fails if its request is lost or if the packet itself is lost.
                let missed = 1.0 - (1.0 - loss) * (1.0 - loss);
                let tries = again.cache.possible_retransmissions(
                    now,
                    media.header.timestamp,
                    waited,
                    parity.announced.longest(now),
                );
                (0..tries).fold(UNICAST_RESIDUAL_LOSS, |left, _| left / missed.max(1e-9))
            }
        };
        let packet = Protected { seq: media.seq, fragment: media.fragment, marker: media.header.marker };
        parity.blocks.on_sent(now, packet, media.header.payload_len, left);
    }
}

impl RetransmissionSender {
    fn new(repair: RepairSettings, settings: &SenderSettings) -> Self {
        Self {
            cache: RetransmissionCache::new(repair),
            budget: RepairBudget::default(),
            seq: settings.first_seq.into(),
            share: RepairShare::default(),
        }
    }

    /// Returns the next retransmission. It counts as sent from now on.
    pub(crate) fn next(&mut self, now: Time, number: u64) -> Option<Retransmission<(RtpHeader, Fragment)>> {
        let next = self.cache.next(now, number)?;
        self.cache.counts.packets += 1;
        self.cache.counts.bytes += next.packet.size;
        self.share.on_sent(now, next.packet.size, true);
        Some(next)
    }
}

impl ParitySender {
    fn new(parity: ParitySettings, settings: &SenderSettings) -> Self {
        let mut blocks = Blocks::new(parity);
        blocks.anywhere = settings.greedy;
        Self {
            blocks,
            seq: settings.first_seq.into(),
            share: RepairShare::default(),
            newest: None,
            packets: 0,
            bytes: Bytes::ZERO,
            looked: Time::ZERO,
            until: if settings.parity_on_word { Time::ZERO } else { Time::NEVER },
            announced: AnnouncedPlayouts::default(),
        }
    }

    /// Returns the next parity packet. It counts as sent from now on. `head` is the size of its headers.
    pub(crate) fn next(&mut self, now: Time, head: Bytes) -> Option<NextParity> {
        let Parity { protection, payload } = self.blocks.next()?;
        let (seq, size) = (self.seq, head + Bytes::new(payload.into()));
        self.seq += 1;
        self.packets += 1;
        self.bytes += size;
        self.share.on_sent(now, size, true);
        let fragment = protection.packets.first()?.fragment;
        self.newest = Some(protection);
        Some(NextParity { seq, payload, size, fragment })
    }
}

impl PacingCheck {
    fn new(settings: &SenderSettings) -> Self {
        Self {
            check: Check::new(&REPAIR_WITHIN_RATE),
            packet: settings.packet,
            credit: settings.credit,
            ahead: Span::ZERO,
            size: Bytes::ZERO,
            last: Time::ZERO,
            rate: Rate::ZERO,
        }
    }

    fn on_sent(&mut self, now: Time, size: Bytes, pacing: Rate) {
        let rate = self.rate.max(pacing);
        // Allow one nanosecond, because rounding may make a packet early by this much.
        let since = now.since(self.last) + Span::nanos(1);
        self.ahead = (self.ahead + self.size.at(rate)).saturating_sub(since);
        self.check.see(self.ahead <= self.packet.saturating_sub(size).at(rate) + self.credit);
        (self.size, self.last, self.rate) = (size, now, pacing);
    }
}
