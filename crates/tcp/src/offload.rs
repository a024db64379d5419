use std::collections::VecDeque;
use steadycast_units::{Bytes, Span, Time};

/// A unit contains the data that the pacing rate allows in this time (`sk_pacing_shift` 10), but at least [`MIN_UNIT`]
/// segments and at most [`MAX_UNIT`].
const UNIT_TIME: Span = Span::nanos(1_000_000_000 / 1024);
const MIN_UNIT: u32 = 2;
const MAX_UNIT: Bytes = Bytes::new(65_000);
/// On short paths a unit may exceed the size that [`UNIT_TIME`] gives. The maximum excess is [`MAX_UNIT`], halved n
/// times if the minimum RTT is n times as long as this time (`tcp_tso_rtt_log` 9).
const RTT_STEP: Span = Span::micros(512);
/// A partial unit waits for the next acknowledgment if that acknowledgment is expected within this time.
const ACK_DUE_SOON: Span = Span::millis(1);
/// A partial unit waits only if a segment was sent within this time.
const RECENTLY_SENT: Span = Span::millis(1);

/// The sender's state when it could send a new segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendState {
    pub(crate) una: u32,
    /// The number of the new segment.
    pub(crate) seq: u32,
    /// The number of segments for which the congestion window has room, at least 1.
    pub(crate) room: u32,
    /// The number of segments that are available to send, at least 1.
    pub(crate) unsent: u32,
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: f64,
    pub(crate) srtt: Option<Span>,
    pub(crate) min_rtt: Span,
    /// Whether the sender is in recovery, in which no segment waits.
    pub(crate) repairing: bool,
}

/// TSO autosizing: Linux sends new segments in units that the device, or GSO just before it, splits. A unit has two
/// segments on most paths, and more on fast or short paths. A single remaining segment is sent alone, or waits for an
/// acknowledgment that is due soon.
#[derive(Clone, Debug)]
pub(crate) struct Offload {
    /// The payload of a full segment.
    payload: Bytes,
    /// The length of the current unit, and the number of its segments that have not been sent.
    length: u32,
    left: u32,
    /// The first segment of each unit in flight, and the time at which the unit was sent.
    sent: VecDeque<(u32, Time)>,
    last: Option<Time>,
    /// Whether a segment waits, although the window has room, until it can leave in one unit with further segments.
    defers: bool,
}

impl Offload {
    pub(crate) fn new(payload: Bytes) -> Self {
        let sent = VecDeque::new();
        Self { payload, length: 0, left: 0, sent, last: None, defers: false }
    }

    /// Whether a segment waits although the window has room. The window then counts as fully used.
    pub(crate) fn defers(&self) -> bool {
        self.defers
    }

    /// Records that an admitted new segment, or a retransmission, is sent. Returns whether it ends a unit of several
    /// segments.
    pub(crate) fn on_sent(&mut self, now: Time, repair: bool) -> bool {
        self.last = Some(now);
        !repair && self.left == 0 && self.length > 1
    }

    /// Whether the new segment continues the current unit.
    #[inline]
    pub(crate) fn continues_unit(&mut self) -> bool {
        self.left.checked_sub(1).is_some_and(|left| {
            self.left = left;
            true
        })
    }

    /// Whether a new unit may start now with this segment.
    #[inline]
    pub(crate) fn starts_unit(&mut self, now: Time, view: &SendState) -> bool {
        while self.sent.get(1).is_some_and(|(seq, _)| *seq <= view.una) {
            self.sent.pop_front();
        }
        // If the room is smaller than the minimum unit, it is smaller than any full unit. The size of a full unit is
        // then not computed.
        let full = if view.room < MIN_UNIT { MIN_UNIT } else { self.full_unit(*view) };
        self.defers = view.unsent > 1 && view.room < full && self.should_defer(now, view);
        if self.defers {
            return false;
        }
        // A unit is at most half of the window, so that at least two units are in flight.
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
        // Shortcut for long paths. The pacing rate is at most two windows per RTT. If the unit time is shorter than the
        // RTT divided by the window, fewer than two segments are paced in it, so the minimum applies.
        if halvings >= 16 && UNIT_TIME * u64::from(view.cwnd) < srtt {
            return MIN_UNIT;
        }
        // The pacing rate is a window per RTT, times 2 in slow start and 1.2 afterwards (`tcp_update_pacing_rate`).
        let factor = if f64::from(view.cwnd) < view.ssthresh / 2.0 { 2.0 } else { 1.2 };
        let window = Bytes::new(self.payload.get() * u64::from(view.cwnd));
        let paced = window.per(srtt).scale(factor).over(UNIT_TIME);
        let near = Bytes::new(if halvings < 32 { MAX_UNIT.get() >> halvings } else { 0 });
        let bytes = (paced + near).min(MAX_UNIT);
        ((bytes.get() / self.payload.get()) as u32).max(MIN_UNIT)
    }

    /// Whether a partial unit should wait for the next acknowledgment (`tcp_tso_should_defer`).
    fn should_defer(&self, now: Time, view: &SendState) -> bool {
        // If no segment was sent recently, waiting would only delay this one.
        let recent = self.last.is_some_and(|last| now.since(last) <= RECENTLY_SENT);
        if view.repairing || !recent || view.room >= view.cwnd.div_ceil(3) {
            return false;
        }
        // The first unit in flight is acknowledged about one SRTT after it was sent.
        let oldest = self.sent.front().filter(|(seq, _)| *seq <= view.una);
        let (Some((_, oldest)), Some(srtt)) = (oldest, view.srtt) else { return false };
        (*oldest + srtt).since(now) <= ACK_DUE_SOON.min(srtt / 2)
    }
}
