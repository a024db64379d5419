//! The receivers that a sender has heard of.

use std::collections::{BTreeMap, BTreeSet};
use steadycast_rtcp::Origin;
use steadycast_units::{Span, Time};
use steadycast_wire::rtcp::ReportBlock;

/// One that has reported.
pub(crate) struct Peer {
    pub(crate) from: Origin,
    /// It has sent a report of the controller's own.
    ours: bool,
    /// Which sender report it echoed last, and that it has echoed two: it receives the stream.
    echo: Option<u32>,
    pub(crate) receives: bool,
    /// When it was heard last; of whoever sends nothing but standard reports, later by [`STANDARD_REPORTS_GRACE`].
    aged: Time,
    /// What is added to the numbers in its blocks, whole cycles of 2^16: it counts cycles from the first packet that it
    /// got. Known from its first block on.
    cycles: Option<u64>,
    /// Its last block: what the next one is counted from.
    highest: Option<u32>,
    cumulative: i32,
    /// The share of packets that it has lost of late, and of how many.
    pub(crate) loss: f64,
    pub(crate) counted: f64,
}

impl Peer {
    /// The sender's own number of the packet that a block calls the highest; `next` is the number of the next packet to
    /// be sent.
    pub(crate) fn extended(&mut self, highest: u32, next: u64) -> u64 {
        // A number that was never sent stays one: no cycles are taken away.
        let cycles = *self.cycles.get_or_insert(next.saturating_sub(highest.into()) & !0xffff);
        cycles + extend(highest, next.saturating_sub(cycles))
    }

    /// Packets expected and lost since the block before. To be asked before [`Peer::extended`].
    pub(crate) fn count(&mut self, block: &ReportBlock) -> (u64, i64) {
        let ahead = self.highest.map_or(0, |highest| block.highest_seq.wrapping_sub(highest) as i32);
        match ahead {
            // A later block has overtaken it, and has told of these packets.
            OVERTAKEN..0 => return (0, 0),
            // The receiver has begun anew.
            ..OVERTAKEN => (self.cycles, self.cumulative) = (None, 0),
            0.. => {}
        }
        let lost = i64::from(block.cumulative_lost) - i64::from(self.cumulative);
        (self.highest, self.cumulative) = (Some(block.highest_seq), block.cumulative_lost);
        (ahead.max(0).unsigned_abs().into(), lost)
    }

    /// A report tells of `expected` packets, of which `lost` are missing.
    pub(crate) fn on_loss(&mut self, expected: u64, lost: i64) {
        if expected == 0 {
            return;
        }
        let (expected, share) = (expected as f64, lost.max(0) as f64 / expected as f64);
        self.counted = (self.counted + expected).min(LOSS_OF);
        self.loss += (share.min(1.0) - self.loss) * (expected / self.counted).min(1.0);
    }
}

/// Whoever sends nothing but standard reports may keep to RFC 3550's own interval of 5 s, whatever ours is: five of
/// them, less the five seconds that the shortest time-out of ours allows.
pub(crate) const STANDARD_REPORTS_GRACE: Span = Span::secs(20);

/// How far a block that another one has overtaken is ahead of it, at the least. A receiver that begins anew falls back
/// by nearly a whole cycle of 2^16, or by several.
const OVERTAKEN: i32 = -(1 << 14);

/// Loss is that of this many packets (exponentially weighted), …
const LOSS_OF: f64 = 2_000.0;
/// … and of this many at least.
const KNOWN: f64 = 100.0;

/// All that report, up to a bound: whoever makes SSRCs up gets no more memory than that. The one that was heard longest
/// ago makes room; should it be a true one, it is taken in again with its next report.
#[derive(Default)]
pub(crate) struct Peers {
    table: BTreeMap<u32, Peer>,
    by_age: BTreeSet<(Time, u32)>,
    /// How many have shown that they receive the stream.
    pub(crate) receiving: usize,
}

impl Peers {
    /// More than the largest groups that Steadycast is made for.
    pub(crate) const MOST: usize = 1 << 17;

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// One has echoed the sender report of this time.
    pub(crate) fn echo(&mut self, ssrc: u32, lsr: u32) {
        let Some(peer) = self.table.get_mut(&ssrc) else { return };
        let before = peer.echo.replace(lsr);
        if !peer.receives && before.is_some_and(|before| before != lsr) {
            peer.receives = true;
            self.receiving += 1;
        }
    }

    /// Whom a newcomer displaces, if anybody.
    pub(crate) fn make_room_for(&mut self, ssrc: u32) -> Option<u32> {
        if self.table.len() < Self::MOST || self.table.contains_key(&ssrc) {
            return None;
        }
        self.pop_oldest()
    }

    /// A report has arrived; `ours` says that it was one of the controller's own.
    pub(crate) fn hear(&mut self, now: Time, from: Origin, ssrc: u32, ours: bool) {
        let (highest, cumulative) = (None, 0);
        let fresh = Peer {
            from,
            ours,
            echo: None,
            receives: false,
            aged: Time::NEVER,
            cycles: None,
            highest,
            cumulative,
            loss: 0.0,
            counted: 0.0,
        };
        let peer = self.table.entry(ssrc).or_insert(fresh);
        peer.ours |= ours;
        let aged = if peer.ours { now } else { now + STANDARD_REPORTS_GRACE };
        if peer.aged != aged {
            self.by_age.remove(&(peer.aged, ssrc));
            peer.aged = aged;
        }
        self.by_age.insert((aged, ssrc));
    }

    /// The loss that all but a share of the receivers keep to, of those of which enough is known.
    pub(crate) fn loss(&self, but: f64) -> Option<f64> {
        let known = self.table.values().filter(|peer| peer.counted >= KNOWN);
        let mut all: Vec<f64> = known.map(|peer| peer.loss).collect();
        all.sort_unstable_by(f64::total_cmp);
        let place = (all.len() as f64 * (1.0 - but)).ceil() as usize;
        all.get(place.saturating_sub(1)).copied()
    }

    pub(crate) fn get(&self, ssrc: u32) -> Option<&Peer> {
        self.table.get(&ssrc)
    }

    pub(crate) fn get_mut(&mut self, ssrc: u32) -> Option<&mut Peer> {
        self.table.get_mut(&ssrc)
    }

    pub(crate) fn remove(&mut self, ssrc: u32) {
        if let Some(peer) = self.table.remove(&ssrc) {
            self.by_age.remove(&(peer.aged, ssrc));
            self.receiving -= usize::from(peer.receives);
        }
    }

    /// Takes out one that was heard before `limit`, as long as there is one.
    pub(crate) fn pop_silent(&mut self, limit: Time) -> Option<u32> {
        self.by_age.first().filter(|(aged, _)| *aged < limit)?;
        self.pop_oldest()
    }

    fn pop_oldest(&mut self) -> Option<u32> {
        let (_, ssrc) = *self.by_age.first()?;
        self.remove(ssrc);
        Some(ssrc)
    }
}

/// The extended sequence number nearest to `near` whose low 32 bits are `low`.
fn extend(low: u32, near: u64) -> u64 {
    let ahead = i64::from(low.wrapping_sub(near as u32) as i32);
    near.saturating_add_signed(ahead)
}
