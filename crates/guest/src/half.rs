use steadycast_control::{
    Body, Decision, Echo, ExtraSent, FeedbackFormat, Leave, Limit, MediaQueue, PacketReport, ReceiverId, Report,
    SenderHalf, Sent, Setup, Wake, Why, Window,
};
use steadycast_units::{Bytes, Rate, Span, Time};

/// A timer that is asked for sooner than this would let virtual time stand still.
const SHORTEST_WAIT: Span = Span::micros(100);
/// Bytes of an [`Echo`], which stands before what a receiver from outside adds.
const ECHO: usize = 24;

/// What decides a rate outside of the program.
pub trait Law: Send {
    /// What it wants after an event; `None`: as before, for it was not asked, or has made a mistake. `now` is `None`
    /// at its flow's start.
    fn tell(&mut self, now: Option<Time>, event: &Event<'_>) -> Option<Decided>;
}

/// What a law is told of.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Its flow starts.
    Start,
    /// A report has arrived.
    Report(&'a Heard<'a>),
    /// A packet of the media has left.
    Sent(&'a Sent),
    /// The time that it asked for has come.
    Timer,
    /// A receiver has left.
    Leave(ReceiverId),
}

/// A report as a law is told of it. What the feedback does not tell is `None`.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'a> {
    /// When it arrived.
    pub at: Time,
    /// From whom.
    pub from: ReceiverId,
    /// Receivers that are in the session now.
    pub members: u32,
    /// Round-trip time.
    pub rtt: Option<Span>,
    /// Packets that were expected since the report before, and of these, how many are missing.
    pub counts: Option<(u32, u32)>,
    /// Rate of what arrived since then.
    pub received: Option<Rate>,
    /// How much longer the newest packet was under way than the quickest one.
    pub queueing: Option<Span>,
    /// Interarrival jitter (RFC 3550).
    pub jitter: Option<Span>,
    /// What a receiver from outside added.
    pub added: Option<&'a [u8]>,
    /// Single packets.
    pub packets: &'a [PacketReport],
    /// Bytes that wait at the sender, and how long the oldest has waited.
    pub waiting: (Bytes, Span),
}

impl<'a> Heard<'a> {
    fn of(report: &Report<'a>, feedback: FeedbackFormat, waiting: (Bytes, Span)) -> Self {
        let (echo, added) = report.body.map_or((None, None), split);
        let blocks = report.reception.filter(|_| feedback == FeedbackFormat::Blocks);
        let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let of_block = || blocks.map(|b| (count(b.expected), count(b.lost.max(0).unsigned_abs())));
        Self {
            at: report.at,
            from: report.from,
            members: report.members,
            rtt: echo.map(|e| e.rtt(report.at)).or(report.rtt),
            counts: echo.map(|e| (e.expected, e.lost)).or_else(of_block),
            received: echo.map(|e| e.received),
            queueing: echo.filter(|_| feedback != FeedbackFormat::Stats).map(|e| e.queueing),
            jitter: report.reception.map(|r| r.jitter),
            added,
            packets: report.packets,
            waiting,
        }
    }

    /// The share of the expected packets that are missing.
    pub fn loss(&self) -> f64 {
        self.counts
            .filter(|(expected, _)| *expected > 0)
            .map_or(0.0, |(expected, lost)| f64::from(lost) / f64::from(expected))
    }
}

/// The echo in a report, and what a receiver from outside added. What can't be true is left out.
fn split(body: &Body) -> (Option<Echo>, Option<&[u8]>) {
    let Some((echo, rest)) = body.bytes.split_at_checked(ECHO) else { return (None, None) };
    let echo = Echo::parse(&Body { subtype: body.subtype, bytes: echo.to_vec() });
    let added = rest.split_first_chunk::<4>().and_then(|(len, rest)| rest.get(..u32::from_be_bytes(*len) as usize));
    (echo, added)
}

/// What a law wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decided {
    /// The rate; it is kept within floor and cap.
    pub rate: Rate,
    /// The rate at which waiting packets leave; `None`: the same.
    pub pacing: Option<Rate>,
    /// What may leave before the next decision; `None`: it has no window.
    pub window: Option<Bytes>,
    /// When it wants a timer.
    pub wake: Option<Time>,
    /// Its reason; `None`: as before.
    pub why: Option<String>,
}

/// The sender half of a [`Law`].
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
    /// Asks `law` for its first decision. `feedback` is what its reports tell.
    pub fn new(law: L, setup: &Setup, feedback: FeedbackFormat) -> Self {
        let (floor, cap) = (setup.floor, setup.cap);
        let decided = Decided { rate: floor.max(Rate::kbps(8)).min(cap), ..Decided::default() };
        let why = "start".to_owned();
        let waiting = (Bytes::ZERO, Span::ZERO);
        let mut half = Self { law, feedback, floor, cap, decided, why, last: None, by: None, waiting };
        half.tell(None, &Event::Start);
        half
    }

    fn tell(&mut self, now: Option<Time>, event: &Event<'_>) {
        let Some(mut new) = self.law.tell(now, event) else { return };
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
        self.tell(Some(sent.at), &Event::Sent(sent));
    }

    fn on_extra_sent(&mut self, sent: &ExtraSent) {
        self.leaves(sent.size);
    }

    fn on_queue(&mut self, queue: &MediaQueue) {
        self.waiting = (queue.waiting, queue.age);
    }

    fn on_report(&mut self, report: &Report<'_>) {
        let heard = Heard::of(report, self.feedback, self.waiting);
        self.last = heard.rtt.map(|rtt| (heard.loss(), rtt));
        self.by = Some(report.from);
        self.tell(Some(report.at), &Event::Report(&heard));
    }

    fn on_leave(&mut self, at: Time, receiver: ReceiverId, _: Leave) {
        self.tell(Some(at), &Event::Leave(receiver));
    }

    fn on_timer(&mut self, now: Time) {
        self.decided.wake = None;
        self.tell(Some(now), &Event::Timer);
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
