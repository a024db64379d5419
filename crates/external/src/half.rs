use steadycast_control::{
    Body, Decision, Echo, ExtraSent, FeedbackFormat, Leave, Limit, MediaQueue, PacketReport, ReceiverId, Report,
    SenderHalf, Sent, Setup, Wake, Why, Window,
};
use steadycast_units::{Bytes, Rate, Span, Time};

/// Minimum time until a timer expires. With shorter timers, a controller could prevent virtual time from advancing.
const SHORTEST_WAIT: Span = Span::micros(100);
/// Size of an [`Echo`] in bytes. In a report, the bytes that an external receiver has added follow it.
const ECHO: usize = 24;

/// The decision rules of a controller that is not part of this program.
pub trait Law: Send {
    /// Returns the new decision. Returns `None` if the previous decision stays, or after a failure. `now` is `None`
    /// when the flow starts.
    fn on_event(&mut self, now: Option<Time>, event: &Event<'_>) -> Option<Decided>;
}

/// An event that a [`Law`] is informed about.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The flow starts.
    Start,
    /// A report has arrived.
    Report(&'a LawReport<'a>),
    /// A media packet was sent.
    Sent(&'a Sent),
    /// The timer that the law requested has expired.
    Timer,
    /// A receiver has left.
    Leave(ReceiverId),
}

/// A report for a [`Law`]. Values that the feedback does not contain are `None`.
#[derive(Clone, Copy, Debug)]
pub struct LawReport<'a> {
    /// When the report arrived.
    pub at: Time,
    /// The receiver that sent the report.
    pub from: ReceiverId,
    /// Number of receivers in the session when the report arrives.
    pub members: u32,
    /// The round-trip time.
    pub rtt: Option<Span>,
    /// Number of packets that were expected since the previous report, and number of packets that are missing.
    pub counts: Option<(u32, u32)>,
    /// Rate at which packets arrived since the previous report.
    pub received: Option<Rate>,
    /// One-way delay of the newest packet minus the smallest one-way delay so far.
    pub queueing: Option<Span>,
    /// The interarrival jitter (RFC 3550).
    pub jitter: Option<Span>,
    /// Bytes that an external receiver has appended to its report, after the [`Echo`].
    pub added: Option<&'a [u8]>,
    /// Per-packet feedback.
    pub packets: &'a [PacketReport],
    /// Bytes in the pacer, and how long the oldest packet in the pacer has waited.
    pub waiting: (Bytes, Span),
}

impl<'a> LawReport<'a> {
    fn of(report: &Report<'a>, feedback: FeedbackFormat, waiting: (Bytes, Span)) -> Self {
        let (echo, added) = report.body.map_or((None, None), split);
        // Pass report blocks only if they are the feedback format of the flow.
        let blocks = report.reception.filter(|_| feedback == FeedbackFormat::Blocks);
        let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        // Duplicates can make the number of lost packets negative (RFC 3550, section 6.4.1). Pass zero then.
        let of_block = || blocks.map(|b| (count(b.expected), count(b.lost.max(0).unsigned_abs())));
        Self {
            at: report.at,
            from: report.from,
            members: report.members,
            rtt: echo.map(|e| e.rtt(report.at)).or(report.rtt),
            counts: echo.map(|e| (e.expected, e.lost)).or_else(of_block),
            received: echo.map(|e| e.received),
            // Pass no queueing delay if the feedback imitates a browser's statistics, which contain no one-way delay.
            queueing: echo.filter(|_| feedback != FeedbackFormat::Stats).map(|e| e.queueing),
            jitter: report.reception.map(|r| r.jitter),
            added,
            packets: report.packets,
            waiting,
        }
    }

    /// Returns the share of expected packets that are missing, from 0 to 1.
    pub fn loss(&self) -> f64 {
        self.counts
            .filter(|(expected, _)| *expected > 0)
            .map_or(0.0, |(expected, lost)| f64::from(lost) / f64::from(expected))
    }
}

/// Splits the body of a report into the echo and the bytes that an external receiver has added. A part that is invalid
/// becomes `None`.
fn split(body: &Body) -> (Option<Echo>, Option<&[u8]>) {
    let Some((echo, rest)) = body.bytes.split_at_checked(ECHO) else { return (None, None) };
    let echo = Echo::parse(&Body { subtype: body.subtype, bytes: echo.to_vec() });
    // Read the length of the added bytes first, because RTCP pads the report to whole words.
    let added = rest.split_first_chunk::<4>().and_then(|(len, rest)| rest.get(..u32::from_be_bytes(*len) as usize));
    (echo, added)
}

/// The decision of a [`Law`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decided {
    /// Rate at which to send. It is limited to the range from floor to cap.
    pub rate: Rate,
    /// Pacing rate. If `None`, it is the same as `rate`.
    pub pacing: Option<Rate>,
    /// Bytes that may be sent before the next decision. If `None`, there is no limit.
    pub window: Option<Bytes>,
    /// When the timer of the law expires. If `None`, it never expires.
    pub wake: Option<Time>,
    /// Reason for the decision. If `None`, the previous reason stays.
    pub why: Option<String>,
}

/// Turns a [`Law`] into the sender part of a controller.
pub struct Half<L> {
    law: L,
    feedback: FeedbackFormat,
    floor: Rate,
    cap: Rate,
    decided: Decided,
    why: String,
    last: Option<(f64, Span)>,
    by: Option<ReceiverId>,
    waiting: (Bytes, Span),
}

impl<L: Law> Half<L> {
    /// Creates the sender part and gets the first decision from `law`. `feedback` is the format of the reports.
    pub fn new(law: L, setup: &Setup, feedback: FeedbackFormat) -> Self {
        let (floor, cap) = (setup.floor, setup.cap);
        let decided = Decided { rate: floor.max(Rate::kbps(8)).min(cap), ..Decided::default() };
        let why = "start".to_owned();
        let waiting = (Bytes::ZERO, Span::ZERO);
        let mut half = Self { law, feedback, floor, cap, decided, why, last: None, by: None, waiting };
        half.on_event(None, &Event::Start);
        half
    }

    fn on_event(&mut self, now: Option<Time>, event: &Event<'_>) {
        let Some(mut new) = self.law.on_event(now, event) else { return };
        // Apply the session's limits here, so that even a faulty controller can't exceed them.
        new.rate = new.rate.max(self.floor).min(self.cap);
        new.pacing = new.pacing.map(|pacing| pacing.max(self.floor));
        new.wake = new.wake.map(|at| at.max(now.unwrap_or(Time::ZERO) + SHORTEST_WAIT));
        if let Some(why) = new.why.take() {
            self.why = why;
        }
        self.decided = new;
    }

    fn leaves(&mut self, size: Bytes) {
        self.decided.window = self.decided.window.map(|left| left.saturating_sub(size));
    }
}

impl<L: Law> SenderHalf for Half<L> {
    fn on_sent(&mut self, sent: &Sent) {
        self.leaves(sent.size);
        self.on_event(Some(sent.at), &Event::Sent(sent));
    }

    fn on_extra_sent(&mut self, sent: &ExtraSent) {
        self.leaves(sent.size);
    }

    fn on_queue(&mut self, queue: &MediaQueue) {
        self.waiting = (queue.waiting, queue.age);
    }

    fn on_report(&mut self, report: &Report<'_>) {
        let seen = LawReport::of(report, self.feedback, self.waiting);
        self.last = seen.rtt.map(|rtt| (seen.loss(), rtt));
        self.by = Some(report.from);
        self.on_event(Some(report.at), &Event::Report(&seen));
    }

    fn on_leave(&mut self, at: Time, receiver: ReceiverId, _: Leave) {
        self.on_event(Some(at), &Event::Leave(receiver));
    }

    fn on_timer(&mut self, now: Time) {
        // Clear the timer. The law has to request the next timer in its decision.
        self.decided.wake = None;
        self.on_event(Some(now), &Event::Timer);
    }

    fn wake(&self) -> Option<Wake> {
        self.decided.wake.map(|at| Wake { at, why: "asked for" })
    }

    fn decision(&self) -> Decision {
        let target = self.decided.rate;
        let limit = match target {
            rate if rate >= self.cap => Limit::Cap,
            rate if rate <= self.floor => Limit::Floor,
            _ => Limit::Network,
        };
        let (loss, rtt) = self.last.unzip();
        let why = Why { rule: self.why.clone().into(), loss, rtt, by: self.by };
        let window = self.decided.window.map(Window::Bytes);
        Decision { target, pacing: self.decided.pacing.unwrap_or(target), window, limit, why }
    }
}
