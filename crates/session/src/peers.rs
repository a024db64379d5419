//! The sender's table of receivers.

use std::collections::{BTreeMap, BTreeSet};
use steadycast_rtcp::Origin;
use steadycast_units::{Span, Time};
use steadycast_wire::rtcp::ReportBlock;

pub(crate) struct Peer {
    pub(crate) from: Origin,
    /// Whether the receiver has sent an APP packet of the session's controller.
    ours: bool,
    /// The LSR of the last echoed sender report.
    echo: Option<u32>,
    pub(crate) receives: bool,
    /// The last report's arrival, plus [`STANDARD_REPORTS_GRACE`] for standard reports.
    aged: Time,
    /// The multiple of 2^16 to add to the receiver's extended sequence numbers, because a receiver counts cycles only
    /// from its first packet.
    cycles: Option<u64>,
    /// The last block's highest sequence number.
    highest: Option<u32>,
    /// The last block's cumulative loss in packets.
    cumulative: i32,
    /// The recent loss rate (0 to 1).
    pub(crate) loss: f64,
    /// The packets over which `loss` is averaged.
    pub(crate) counted: f64,
}

impl Peer {
    /// Converts a block's highest sequence number to the sender's extended numbering. `next` is the number of the next
    /// packet to send.
    pub(crate) fn extended(&mut self, highest: u32, next: u64) -> u64 {
        // A false first block can have a `highest` above `next`. `cycles` is zero then, and the result is above `next`.
        let cycles = *self.cycles.get_or_insert(next.saturating_sub(highest.into()) & !0xffff);
        cycles + extend(highest, next.saturating_sub(cycles))
    }

    /// Returns the packets expected and lost since the previous block. Must be called before [`Peer::extended`],
    /// because a restart resets the cycles.
    pub(crate) fn count(&mut self, block: &ReportBlock) -> (u64, i64) {
        let ahead = self.highest.map_or(0, |highest| block.highest_seq.wrapping_sub(highest) as i32);
        match ahead {
            // A later report block has overtaken this one.
            REORDERED_BLOCK..0 => return (0, 0),
            // The receiver has restarted.
            ..REORDERED_BLOCK => (self.cycles, self.cumulative) = (None, 0),
            0.. => {}
        }
        // The loss may be negative, because duplicates count as received (RFC 3550, section 6.4.1).
        let lost = i64::from(block.cumulative_lost) - i64::from(self.cumulative);
        (self.highest, self.cumulative) = (Some(block.highest_seq), block.cumulative_lost);
        (ahead.max(0).unsigned_abs().into(), lost)
    }

    /// Updates the loss rate with a report: `lost` of `expected` packets.
    pub(crate) fn on_loss(&mut self, expected: u64, lost: i64) {
        if expected == 0 {
            return;
        }
        let (expected, share) = (expected as f64, lost.max(0) as f64 / expected as f64);
        self.counted = (self.counted + expected).min(LOSS_WINDOW);
        self.loss += (share.min(1.0) - self.loss) * (expected / self.counted).min(1.0);
    }
}

/// The time-out of standard receivers is longer by this: five intervals of 5 s (RFC 3550), minus the shortest time-out
/// of 5 s.
pub(crate) const STANDARD_REPORTS_GRACE: Span = Span::secs(20);

/// A larger fall of the highest sequence number is a restart.
const REORDERED_BLOCK: i32 = -(1 << 14);

/// Packets over which the loss rate is averaged (exponentially weighted).
const LOSS_WINDOW: f64 = 2_000.0;
/// Minimum number of packets for a valid loss rate.
const MIN_LOSS_PACKETS: f64 = 100.0;

/// The table of receivers. It is bounded, because SSRCs may be forged. A full table drops the receiver with the oldest
/// report.
#[derive(Default)]
pub(crate) struct Peers {
    table: BTreeMap<u32, Peer>,
    by_age: BTreeSet<(Time, u32)>,
    /// Receivers that have proved that they receive the stream.
    pub(crate) receiving: usize,
}

impl Peers {
    /// This exceeds the largest supported groups.
    pub(crate) const MAX_PEERS: usize = 1 << 17;

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Stores an echoed LSR. A second, different one proves that the receiver gets the stream.
    pub(crate) fn echo(&mut self, ssrc: u32, lsr: u32) {
        let Some(peer) = self.table.get_mut(&ssrc) else { return };
        let before = peer.echo.replace(lsr);
        if !peer.receives && before.is_some_and(|before| before != lsr) {
            peer.receives = true;
            self.receiving += 1;
        }
    }

    /// Makes room for a new receiver, and returns the one removed.
    pub(crate) fn make_room_for(&mut self, ssrc: u32) -> Option<u32> {
        if self.table.len() < Self::MAX_PEERS || self.table.contains_key(&ssrc) {
            return None;
        }
        // Refusing newcomers would let forged SSRCs lock out real receivers.
        self.pop_oldest()
    }

    /// Adds a report. `ours` is whether it contains an APP packet of the session's controller.
    pub(crate) fn on_report(&mut self, now: Time, from: Origin, ssrc: u32, ours: bool) {
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

    /// Returns the quantile 1 − `but` of the loss rates of receivers with enough samples.
    pub(crate) fn loss(&self, but: f64) -> Option<f64> {
        let known = self.table.values().filter(|peer| peer.counted >= MIN_LOSS_PACKETS);
        let mut all: Vec<f64> = known.map(|peer| peer.loss).collect();
        all.sort_unstable_by(f64::total_cmp);
        let place = (all.len() as f64 * (1.0 - but)).ceil() as usize;
        // A few high losses must not determine everyone's parity.
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

    /// Removes a receiver whose last report is older than `limit`.
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

/// Returns the number nearest to `near` whose low 32 bits are `low`.
fn extend(low: u32, near: u64) -> u64 {
    let ahead = i64::from(low.wrapping_sub(near as u32) as i32);
    near.saturating_add_signed(ahead)
}
