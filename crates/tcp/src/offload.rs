use std::collections::VecDeque;
use steadycast_units::{Bytes, Span, Time};

/// The time in which a TSO unit's data are paced (`sk_pacing_shift` 10).
const UNIT_TIME: Span = Span::nanos(1_000_000_000 / 1024);
/// The minimum size of a unit, in segments.
const MIN_UNIT: u32 = 2;
/// The maximum size of a unit.
const MAX_UNIT: Bytes = Bytes::new(65_000);
/// On short paths, units are larger by [`MAX_UNIT`]/2ⁿ. n is the minimum RTT divided by this step (`tcp_tso_rtt_log`
/// 9).
const RTT_STEP: Span = Span::micros(512);
/// A partial unit waits for an acknowledgment that is expected within this time.
const ACK_DUE_SOON: Span = Span::millis(1);
/// A partial unit waits only if a segment was sent within this time.
const RECENTLY_SENT: Span = Span::millis(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct SendState {
    pub(crate) una: u32,
    /// The new segment's number.
    pub(crate) seq: u32,
    /// The congestion window's room in segments, at least 1.
    pub(crate) room: u32,
    /// The segments to send, at least 1.
    pub(crate) unsent: u32,
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: f64,
    pub(crate) srtt: Option<Span>,
    pub(crate) min_rtt: Span,
    /// In recovery, no segment waits.
    pub(crate) repairing: bool,
}

/// TSO autosizing: Linux sends new segments in units, of two segments on most paths. A single remaining segment may
/// wait for an acknowledgment.
#[derive(Clone, Debug)]
pub(crate) struct Offload {
    payload: Bytes,
    /// The current unit's length, and how many of its segments are not sent yet.
    length: u32,
    left: u32,
    /// The first segment and the send time of each unit in flight.
    sent: VecDeque<(u32, Time)>,
    last: Option<Time>,
    /// Whether a segment waits although the window has room.
    defers: bool,
}

impl Offload {
    pub(crate) fn new(payload: Bytes) -> Self {
        let sent = VecDeque::new();
        Self { payload, length: 0, left: 0, sent, last: None, defers: false }
    }

    /// Whether a segment waits although the window has room.
    pub(crate) fn defers(&self) -> bool {
        self.defers
    }

    /// Records a transmission. Returns whether it ends a unit of several segments.
    pub(crate) fn on_sent(&mut self, now: Time, repair: bool) -> bool {
        self.last = Some(now);
        !repair && self.left == 0 && self.length > 1
    }

    #[inline]
    pub(crate) fn continues_unit(&mut self) -> bool {
        self.left.checked_sub(1).is_some_and(|left| {
            self.left = left;
            true
        })
    }

    /// Whether a new unit may start with this segment.
    #[inline]
    pub(crate) fn starts_unit(&mut self, now: Time, view: &SendState) -> bool {
        while self.sent.get(1).is_some_and(|(seq, _)| *seq <= view.una) {
            self.sent.pop_front();
        }
        // If `room` is less than `MIN_UNIT`, `room` limits the unit, so `full_unit` is not called.
        let full = if view.room < MIN_UNIT { MIN_UNIT } else { self.full_unit(*view) };
        self.defers = view.unsent > 1 && view.room < full && self.should_defer(now, view);
        if self.defers {
            return false;
        }
        // At least two units are in flight.
        self.length = full.min(view.room).min(view.unsent).min((view.cwnd / 2).max(1));
        self.left = self.length - 1;
        self.sent.push_back((view.seq, now));
        true
    }

    /// Returns the segments of a full unit (`tcp_tso_autosize`).
    #[inline(never)]
    fn full_unit(&self, view: SendState) -> u32 {
        let Some(srtt) = view.srtt else { return ((MAX_UNIT.get() / self.payload.get()) as u32).max(1) };
        let halvings = view.min_rtt.as_nanos() / RTT_STEP.as_nanos();
        // Skips the computation below, whose result would be `MIN_UNIT`.
        if halvings >= 16 && UNIT_TIME * u64::from(view.cwnd) < srtt {
            return MIN_UNIT;
        }
        // A window per RTT, times 2 in slow start and 1.2 afterwards (`tcp_update_pacing_rate`).
        let factor = if f64::from(view.cwnd) < view.ssthresh / 2.0 { 2.0 } else { 1.2 };
        let window = Bytes::new(self.payload.get() * u64::from(view.cwnd));
        let paced = window.per(srtt).scale(factor).over(UNIT_TIME);
        let near = Bytes::new(if halvings < 32 { MAX_UNIT.get() >> halvings } else { 0 });
        let bytes = (paced + near).min(MAX_UNIT);
        ((bytes.get() / self.payload.get()) as u32).max(MIN_UNIT)
    }

    /// Whether a partial unit waits for the next acknowledgment (`tcp_tso_should_defer`).
    fn should_defer(&self, now: Time, view: &SendState) -> bool {
        let recent = self.last.is_some_and(|last| now.since(last) <= RECENTLY_SENT);
        if view.repairing || !recent || view.room >= view.cwnd.div_ceil(3) {
            return false;
        }
        // The first unit is acknowledged about one SRTT after it was sent.
        let oldest = self.sent.front().filter(|(seq, _)| *seq <= view.una);
        let (Some((_, oldest)), Some(srtt)) = (oldest, view.srtt) else { return false };
        (*oldest + srtt).since(now) <= ACK_DUE_SOON.min(srtt / 2)
    }
}
