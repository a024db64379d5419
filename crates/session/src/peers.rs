//! The sender's table of receivers.

use std::collections::{BTreeMap, BTreeSet};
use steadycast_rtcp::Origin;
use steadycast_units::{Span, Time};
use steadycast_wire::rtcp::ReportBlock;

pub(crate) struct Peer {
    pub(crate) from: Origin,
    /// Whether the receiver has sent an APP packet of this session's controller.
    ours: bool,
    /// The last LSR from the receiver that matched a sender report.
    echo: Option<u32>,
    pub(crate) receives: bool,
    /// The arrival time of the last report. If the receiver sends only standard reports, [`STANDARD_REPORTS_GRACE`] is
    /// added.
    aged: Time,
    /// The multiple of 2^16 that is added to the receiver's extended sequence numbers. It is needed because a receiver
    /// counts cycles only from its first packet on.
    cycles: Option<u64>,
    /// The highest sequence number in the last report block.
    highest: Option<u32>,
    /// The cumulative loss in the last report block, in packets.
    cumulative: i32,
    /// The recent loss rate, as a fraction.
    pub(crate) loss: f64,
    /// Number of packets over which `loss` is the mean.
    pub(crate) counted: f64,
}

impl Peer {
    /// Converts a report block's highest sequence number to the sender's extended sequence numbers. `next` is the
    /// sequence number of the next packet to send.
    pub(crate) fn extended(&mut self, highest: u32, next: u64) -> u64 {
        // If the block is forged and `highest` is above `next`, `cycles` is zero and the result is above `next`.
        let cycles = *self.cycles.get_or_insert(next.saturating_sub(highest.into()) & !0xffff);
        cycles + extend(highest, next.saturating_sub(cycles))
    }

    /// Returns the number of expected and of lost packets since the previous report block. Call this method before
    /// [`Peer::extended`]. If the receiver has restarted, this method resets `cycles`, which `extended` uses.
    pub(crate) fn count(&mut self, block: &ReportBlock) -> (u64, i64) {
        let ahead = self.highest.map_or(0, |highest| block.highest_seq.wrapping_sub(highest) as i32);
        match ahead {
            // This report block has been overtaken by a later one.
            REORDERED_BLOCK..0 => return (0, 0),
            // The receiver has restarted.
            ..REORDERED_BLOCK => (self.cycles, self.cumulative) = (None, 0),
            0.. => {}
        }
        // The number of lost packets can be negative, because duplicates count as received (RFC 3550, section 6.4.1).
        let lost = i64::from(block.cumulative_lost) - i64::from(self.cumulative);
        (self.highest, self.cumulative) = (Some(block.highest_seq), block.cumulative_lost);
        (ahead.max(0).unsigned_abs().into(), lost)
    }

    /// Updates the loss rate with a report in which `lost` of `expected` packets are lost.
    pub(crate) fn on_loss(&mut self, expected: u64, lost: i64) {
        if expected == 0 {
            return;
        }
        let (expected, share) = (expected as f64, lost.max(0) as f64 / expected as f64);
        self.counted = (self.counted + expected).min(LOSS_WINDOW);
        self.loss += (share.min(1.0) - self.loss) * (expected / self.counted).min(1.0);
    }
}

/// Additional time after which a receiver with standard reports is removed. It is five intervals of 5 s (RFC 3550),
/// minus the shortest time-out, which is also 5 s.
pub(crate) const STANDARD_REPORTS_GRACE: Span = Span::secs(20);

/// If the highest sequence number falls by more than this, the receiver has restarted.
const REORDERED_BLOCK: i32 = -(1 << 14);

/// The number of packets over which the loss rate is an exponentially weighted mean.
const LOSS_WINDOW: f64 = 2_000.0;
/// Minimum number of packets for which a loss rate is used.
const MIN_LOSS_PACKETS: f64 = 100.0;

/// The table of receivers. Its size is limited, because SSRCs may be forged. If it is full, a new receiver replaces the
/// receiver whose last report is oldest.
#[derive(Default)]
pub(crate) struct Peers {
    table: BTreeMap<u32, Peer>,
    by_age: BTreeSet<(Time, u32)>,
    /// Number of receivers that have proved that they receive the stream.
    pub(crate) receiving: usize,
}

impl Peers {
    /// Maximum number of receivers. The largest supported group is smaller.
    pub(crate) const MAX_PEERS: usize = 1 << 17;

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Stores an LSR that matches a sender report. If the LSR differs from the previously stored LSR, the receiver has
    /// proved that it receives the stream.
    pub(crate) fn echo(&mut self, ssrc: u32, lsr: u32) {
        let Some(peer) = self.table.get_mut(&ssrc) else { return };
        let before = peer.echo.replace(lsr);
        if !peer.receives && before.is_some_and(|before| before != lsr) {
            peer.receives = true;
            self.receiving += 1;
        }
    }

    /// Makes room for a new receiver. Returns the SSRC of the receiver that was removed for it, if any.
    pub(crate) fn make_room_for(&mut self, ssrc: u32) -> Option<u32> {
        if self.table.len() < Self::MAX_PEERS || self.table.contains_key(&ssrc) {
            return None;
        }
        // Remove an old receiver instead of refusing the new one. Otherwise forged SSRCs could lock out real receivers.
        self.pop_oldest()
    }

    /// Adds a report. `ours` is whether the report contains an APP packet of this session's controller.
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

    /// Returns the quantile `1 - but` of the receivers' loss rates. Ignores receivers with too few samples.
    pub(crate) fn loss(&self, but: f64) -> Option<f64> {
        let known = self.table.values().filter(|peer| peer.counted >= MIN_LOSS_PACKETS);
        let mut all: Vec<f64> = known.map(|peer| peer.loss).collect();
        all.sort_unstable_by(f64::total_cmp);
        let place = (all.len() as f64 * (1.0 - but)).ceil() as usize;
        // Use a quantile, so that a few receivers with high losses do not determine the parity of all receivers.
        all.get(place.saturating_sub(1)).copied()
    }

    pub(crate) fn get(&self, ssrc: u32) -> Option<&Peer> {
        self.table.get(&ssrc)
    }

    /// Returns the SSRC of a receiver at this address that has proved that it receives the stream.
    pub(crate) fn receiving_from(&self, from: Origin) -> Option<u32> {
        self.table.iter().find(|(_, peer)| peer.receives && peer.from == from).map(|(ssrc, _)| *ssrc)
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

    /// Removes the receiver with the oldest report if that report is older than `limit`. Returns its SSRC.
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
