use std::collections::VecDeque;
use steadycast_units::{Bytes, Span, Time};

/// A TSO unit contains the data that is paced in this time (`sk_pacing_shift` 10).
const UNIT_TIME: Span = Span::nanos(1_000_000_000 / 1024);
/// Minimum size of a TSO unit in segments.
const MIN_UNIT: u32 = 2;
/// Maximum size of a TSO unit.
const MAX_UNIT: Bytes = Bytes::new(65_000);
/// On paths with a short RTT, TSO units are larger by [`MAX_UNIT`]/2ⁿ. Here n is the minimum RTT divided by this step
/// (`tcp_tso_rtt_log` 9).
const RTT_STEP: Span = Span::micros(512);
/// A partial unit waits if an acknowledgment is expected within this time.
const ACK_DUE_SOON: Span = Span::millis(1);
/// A partial unit waits only if another segment was sent within this time.
const RECENTLY_SENT: Span = Span::millis(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct SendState {
    pub(crate) una: u32,
    /// The number of the new segment.
    pub(crate) seq: u32,
    /// How many segments the congestion window still allows. It is at least 1.
    pub(crate) room: u32,
    /// Number of segments that are waiting to be sent. It is at least 1.
    pub(crate) unsent: u32,
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: f64,
    pub(crate) srtt: Option<Span>,
    pub(crate) min_rtt: Span,
    /// Whether the sender is in recovery. No segment is delayed then.
    pub(crate) repairing: bool,
}

/// Models TSO autosizing. Linux sends new segments in units, which have two segments on most paths. A partial unit may
/// be delayed until the next acknowledgment.
#[derive(Clone, Debug)]
pub(crate) struct Offload {
    payload: Bytes,
    /// Length of the current unit in segments.
    length: u32,
    /// How many segments of the current unit have not been sent yet.
    left: u32,
    /// The first segment and the send time of each unit in flight.
    sent: VecDeque<(u32, Time)>,
    last: Option<Time>,
    /// Whether a segment is delayed although the window has room.
    defers: bool,
}

impl Offload {
    pub(crate) fn new(payload: Bytes) -> Self {
        let sent = VecDeque::new();
        Self { payload, length: 0, left: 0, sent, last: None, defers: false }
    }

    /// Whether a segment is delayed although the window has room.
    pub(crate) fn defers(&self) -> bool {
        self.defers
    }

    /// Records a transmission. Returns whether this segment is the last of a unit of several segments.
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

    /// Returns whether a new unit may start with this segment.
    #[inline]
    pub(crate) fn starts_unit(&mut self, now: Time, view: &SendState) -> bool {
        while self.sent.get(1).is_some_and(|(seq, _)| *seq <= view.una) {
            self.sent.pop_front();
        }
        // If `room` is below `MIN_UNIT`, it limits the unit anyway. Skip the slow `full_unit` then.
        let full = if view.room < MIN_UNIT { MIN_UNIT } else { self.full_unit(*view) };
        self.defers = view.unsent > 1 && view.room < full && self.should_defer(now, view);
        if self.defers {
            return false;
        }
        // Limit the unit to half the window, so that at least two units are in flight.
        self.length = full.min(view.room).min(view.unsent).min((view.cwnd / 2).max(1));
        self.left = self.length - 1;
        self.sent.push_back((view.seq, now));
        true
    }

    /// Returns the size of a full unit in segments (`tcp_tso_autosize`).
    #[inline(never)]
    fn full_unit(&self, view: SendState) -> u32 {
        let Some(srtt) = view.srtt else { return ((MAX_UNIT.get() / self.payload.get()) as u32).max(1) };
        let halvings = view.min_rtt.as_nanos() / RTT_STEP.as_nanos();
        // Return early if the computation below can only give `MIN_UNIT`.
        if halvings >= 16 && UNIT_TIME * u64::from(view.cwnd) < srtt {
            return MIN_UNIT;
        }
        // The pacing rate is a window per RTT, times 2 in slow start and times 1.2 afterwards
        // (`tcp_update_pacing_rate`).
        let factor = if f64::from(view.cwnd) < view.ssthresh / 2.0 { 2.0 } else { 1.2 };
        let window = Bytes::new(self.payload.get() * u64::from(view.cwnd));
        let paced = window.per(srtt).scale(factor).over(UNIT_TIME);
        let near = Bytes::new(if halvings < 32 { MAX_UNIT.get() >> halvings } else { 0 });
        let bytes = (paced + near).min(MAX_UNIT);
        ((bytes.get() / self.payload.get()) as u32).max(MIN_UNIT)
    }

    /// Returns whether a partial unit waits for the next acknowledgment (`tcp_tso_should_defer`).
    fn should_defer(&self, now: Time, view: &SendState) -> bool {
        let recent = self.last.is_some_and(|last| now.since(last) <= RECENTLY_SENT);
        if view.repairing || !recent || view.room >= view.cwnd.div_ceil(3) {
            return false;
        }
        // The oldest unit in flight will be acknowledged about one SRTT after it was sent.
        let oldest = self.sent.front().filter(|(seq, _)| *seq <= view.una);
        let (Some((_, oldest)), Some(srtt)) = (oldest, view.srtt) else { return false };
        (*oldest + srtt).since(now) <= ACK_DUE_SOON.min(srtt / 2)
    }
}
