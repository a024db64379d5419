//! The sender's table of receivers.

use std::collections::{BTreeMap, BTreeSet};
use steadycast_rtcp::Origin;
use steadycast_units::{Span, Time};
use steadycast_wire::rtcp::ReportBlock;

/// A receiver that has reported.
pub(crate) struct Peer {
    pub(crate) from: Origin,
    /// Whether the receiver has sent a report in the format of the session's controller.
    ours: bool,
    /// The LSR of the sender report that the receiver echoed last.
    echo: Option<u32>,
    pub(crate) receives: bool,
    /// The arrival time of the receiver's last report, plus [`STANDARD_REPORTS_GRACE`] if it only sends standard
    /// reports.
    aged: Time,
    /// The offset that has to be added to the receiver's extended sequence numbers, a multiple of 2^16, because the
    /// receiver counts cycles from its first packet. `None` before the receiver's first block.
    cycles: Option<u64>,
    /// The highest sequence number of the last block. The next block's counts are differences to the last block's.
    highest: Option<u32>,
    /// The cumulative loss of the last block, in packets.
    cumulative: i32,
    /// The recent loss rate (0 to 1).
    pub(crate) loss: f64,
    /// The number of packets over which the loss rate is averaged.
    pub(crate) counted: f64,
}

impl Peer {
    /// Returns the sender's extended number for a block's highest sequence number. `next` is the number of the next
    /// packet to be sent.
    pub(crate) fn extended(&mut self, highest: u32, next: u64) -> u64 {
        // The offset is never negative, so that a sequence number that was never sent stays too high and is recognised.
        let cycles = *self.cycles.get_or_insert(next.saturating_sub(highest.into()) & !0xffff);
        cycles + extend(highest, next.saturating_sub(cycles))
    }

    /// Returns the packets that were expected and lost since the previous block. Must be called before
    /// [`Peer::extended`].
    pub(crate) fn count(&mut self, block: &ReportBlock) -> (u64, i64) {
        let ahead = self.highest.map_or(0, |highest| block.highest_seq.wrapping_sub(highest) as i32);
        match ahead {
            // A later report block has overtaken this one, and already covers its packets.
            REORDERED_BLOCK..0 => return (0, 0),
            // The receiver has restarted.
            ..REORDERED_BLOCK => (self.cycles, self.cumulative) = (None, 0),
            0.. => {}
        }
        // The difference may be negative: duplicates count as received (RFC 3550, section 6.4.1).
        let lost = i64::from(block.cumulative_lost) - i64::from(self.cumulative);
        (self.highest, self.cumulative) = (Some(block.highest_seq), block.cumulative_lost);
        (ahead.max(0).unsigned_abs().into(), lost)
    }

    /// Updates the loss rate with a report on `expected` packets, of which `lost` are missing.
    pub(crate) fn on_loss(&mut self, expected: u64, lost: i64) {
        if expected == 0 {
            return;
        }
        let (expected, share) = (expected as f64, lost.max(0) as f64 / expected as f64);
        self.counted = (self.counted + expected).min(LOSS_WINDOW);
        self.loss += (share.min(1.0) - self.loss) * (expected / self.counted).min(1.0);
    }
}

/// Additional time-out for receivers that only send standard reports. Such receivers may use RFC 3550's interval of 5
/// s, even if this session's interval is shorter. The value is five intervals of 5 s, minus the 5 s of the shortest
/// time-out.
pub(crate) const STANDARD_REPORTS_GRACE: Span = Span::secs(20);

/// A block whose highest sequence number is below the previous block's by at most this value was reordered. If the
/// number falls by more, the receiver has restarted.
const REORDERED_BLOCK: i32 = -(1 << 14);

/// Number of packets over which the loss rate is averaged (exponentially weighted).
const LOSS_WINDOW: f64 = 2_000.0;
/// Minimum number of packets for a valid loss rate.
const MIN_LOSS_PACKETS: f64 = 100.0;

/// The table of receivers. Its size is bounded, because forged SSRCs could otherwise fill the memory. If the table is
/// full, the receiver whose last report is oldest is removed. That receiver is added again with its next report.
#[derive(Default)]
pub(crate) struct Peers {
    table: BTreeMap<u32, Peer>,
    by_age: BTreeSet<(Time, u32)>,
    /// The number of receivers that have proved that they receive the stream.
    pub(crate) receiving: usize,
}

impl Peers {
    /// Maximum number of receivers, which exceeds the largest supported groups.
    pub(crate) const MAX_PEERS: usize = 1 << 17;

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Stores that a receiver has echoed the sender report with this LSR. An echo of a second, different sender report
    /// proves that it receives the stream.
    pub(crate) fn echo(&mut self, ssrc: u32, lsr: u32) {
        let Some(peer) = self.table.get_mut(&ssrc) else { return };
        let before = peer.echo.replace(lsr);
        if !peer.receives && before.is_some_and(|before| before != lsr) {
            peer.receives = true;
            self.receiving += 1;
        }
    }

    /// Makes room for a new receiver. Returns the one that it displaces, if any.
    pub(crate) fn make_room_for(&mut self, ssrc: u32) -> Option<u32> {
        if self.table.len() < Self::MAX_PEERS || self.table.contains_key(&ssrc) {
            return None;
        }
        // Refusing newcomers would let forged SSRCs lock out real receivers.
        self.pop_oldest()
    }

    /// Adds a report. `ours` is true if the report is one of the session's controller.
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

    /// Returns the quantile 1 − `but` of the receivers' loss rates: the share `but` of the receivers, those with the
    /// highest losses, is left out. Only receivers with enough samples are considered.
    pub(crate) fn loss(&self, but: f64) -> Option<f64> {
        let known = self.table.values().filter(|peer| peer.counted >= MIN_LOSS_PACKETS);
        let mut all: Vec<f64> = known.map(|peer| peer.loss).collect();
        all.sort_unstable_by(f64::total_cmp);
        let place = (all.len() as f64 * (1.0 - but)).ceil() as usize;
        // A quantile is used, because a few receivers with high losses must not determine the parity for all.
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

    /// Removes a receiver whose last report is older than `limit`, if there is one.
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

/// Returns the extended sequence number nearest to `near` whose low 32 bits are `low`.
fn extend(low: u32, near: u64) -> u64 {
    let ahead = i64::from(low.wrapping_sub(near as u32) as i32);
    near.saturating_add_signed(ahead)
}
