use std::collections::VecDeque;
use steadycast_units::{Bytes, Span, Time};

/// A unit is as long as what the pacing rate lets out in this time, but at least [`LEAST`] segments and at most
/// [`LARGEST`].
const PACED: Span = Span::nanos(1_000_000_000 / 1024);
const LEAST: u32 = 2;
const LARGEST: Bytes = Bytes::new(65_000);
/// On short ways more: the largest, halved for each of these in the least round trip.
const HALVING: Span = Span::micros(512);
/// Where the next acknowledgment is nearer than this, less than a unit waits for it.
const NEAR: Span = Span::millis(1);
/// Only what left that lately makes a segment wait.
const RECENT: Span = Span::millis(1);

/// What the sender knows when it could send a new segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) una: u32,
    /// The new segment.
    pub(crate) seq: u32,
    /// How many the congestion window has room for: at least 1.
    pub(crate) room: u32,
    /// How many there are to send: at least 1.
    pub(crate) unsent: u32,
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: f64,
    pub(crate) srtt: Option<Span>,
    pub(crate) least_rtt: Span,
    /// Recovery: nothing waits.
    pub(crate) repairing: bool,
}

/// New segments leave Linux in units that are cut by the device or just before it ("TSO autosizing"): two segments on
/// most ways, more on fast and on short ones. An odd one goes alone, or waits for the acknowledgment that is due at any
/// moment.
#[derive(Clone, Debug)]
pub(crate) struct Offload {
    /// Payload of a full segment.
    payload: Bytes,
    /// The length of the unit that is leaving, and what is left of it.
    length: u32,
    left: u32,
    /// The first segment of each unit on its way, and when it left.
    sent: VecDeque<(u32, Time)>,
    last: Option<Time>,
    /// Some of the window is unused because a segment waits for company.
    waits: bool,
}

impl Offload {
    pub(crate) fn new(payload: Bytes) -> Self {
        let sent = VecDeque::new();
        Self { payload, length: 0, left: 0, sent, last: None, waits: false }
    }

    /// Whether the window is used as far as it can be, although there is room.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// Something leaves: a new segment that was admitted, or a repair. Whether it ends a unit of several.
    pub(crate) fn on_sent(&mut self, now: Time, repair: bool) -> bool {
        self.last = Some(now);
        !repair && self.left == 0 && self.length > 1
    }

    /// Whether a unit is leaving of which this new segment is the next.
    #[inline]
    pub(crate) fn goes_on(&mut self) -> bool {
        self.left.checked_sub(1).is_some_and(|left| {
            self.left = left;
            true
        })
    }

    /// Whether a unit may leave now that begins with this new segment.
    #[inline]
    pub(crate) fn begins(&mut self, now: Time, view: &View) -> bool {
        while self.sent.get(1).is_some_and(|(seq, _)| *seq <= view.una) {
            self.sent.pop_front();
        }
        // Room for less than the least unit is room for less than a full one, however long that is.
        let full = if view.room < LEAST { LEAST } else { self.full(*view) };
        self.waits = view.unsent > 1 && view.room < full && self.better_waits(now, view);
        if self.waits {
            return false;
        }
        // Two units at least are to be on their way.
        self.length = full.min(view.room).min(view.unsent).min((view.cwnd / 2).max(1));
        self.left = self.length - 1;
        self.sent.push_back((view.seq, now));
        true
    }

    /// Segments in a full unit (`tcp_tso_autosize`).
    #[inline(never)]
    fn full(&self, view: View) -> u32 {
        let Some(srtt) = view.srtt else { return ((LARGEST.get() / self.payload.get()) as u32).max(1) };
        let halvings = view.least_rtt.as_nanos() / HALVING.as_nanos();
        // So little of a window that even twice the rate is less than two segments, on a way that is not short.
        if halvings >= 16 && PACED * u64::from(view.cwnd) < srtt {
            return LEAST;
        }
        // A window per round trip, and more than that while it grows fast.
        let factor = if f64::from(view.cwnd) < view.ssthresh / 2.0 { 2.0 } else { 1.2 };
        let window = Bytes::new(self.payload.get() * u64::from(view.cwnd));
        let paced = window.per(srtt).scale(factor).over(PACED);
        let near = Bytes::new(if halvings < 32 { LARGEST.get() >> halvings } else { 0 });
        let bytes = (paced + near).min(LARGEST);
        ((bytes.get() / self.payload.get()) as u32).max(LEAST)
    }

    /// `tcp_tso_should_defer`.
    fn better_waits(&self, now: Time, view: &View) -> bool {
        let recent = self.last.is_some_and(|last| now.since(last) <= RECENT);
        if view.repairing || !recent || view.room >= view.cwnd.div_ceil(3) {
            return false;
        }
        let oldest = self.sent.front().filter(|(seq, _)| *seq <= view.una);
        let (Some((_, oldest)), Some(srtt)) = (oldest, view.srtt) else { return false };
        (*oldest + srtt).since(now) <= NEAR.min(srtt / 2)
    }
}
