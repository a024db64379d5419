//! Receivers that send nothing but standard reports: the sender runs the receiver half itself, on what their reports say.
//!
//! A report block tells how many packets were expected and lost since the last one, and the sender measures the round trip. With
//! its own record of what left when, that is enough to play the arrivals back to a receiver half as they may have been: the
//! losses spread evenly (which makes as many loss events of them as there can be), the delay of each packet between the two
//! round trips that were measured at the interval's ends. What the half then reports goes to the sender half as if it had
//! come from the receiver.
//!
//! A controller whose reports say what no report block holds (the registry's `standard_reports`) can't be served so. From the
//! first such receiver on, `asmp` takes its place for the whole session, and the decisions say so.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use steadycast_control::registry::{Chosen, Factory, Feedback};
use steadycast_control::{
    Announcement, Arrival, Body, Decision, Departing, FrameEdge, Mode, Notice, ReceiverHalf, ReceiverId, Reply, Report,
    SenderHalf, Sent, Setup, Slot, Wake,
};
use steadycast_units::{Bytes, PeerTime, Span, Time};

/// Makes the halves of a controller, and lets it serve receivers that send standard reports alone.
pub struct Served {
    own: Arc<dyn Factory>,
    /// Whether the controller itself can be run on standard reports.
    able: bool,
}

impl Served {
    /// Around this controller.
    pub fn new(own: Arc<dyn Factory>, able: bool) -> Self {
        Self { own, able }
    }
}

impl Factory for Served {
    fn sender(&self, setup: &Setup) -> Box<dyn SenderHalf> {
        Box::new(Standard::new(Arc::clone(&self.own), self.able, setup.clone()))
    }
    fn receiver(&self, setup: &Setup) -> Box<dyn ReceiverHalf> {
        self.own.receiver(setup)
    }
    fn extension(&self) -> u8 {
        self.own.extension()
    }
    fn app(&self) -> [u8; 4] {
        self.own.app()
    }
    fn feedback(&self) -> Feedback {
        self.own.feedback()
    }
}

/// A packet as it left.
#[derive(Clone, Copy)]
struct Left {
    at: Time,
    size: Bytes,
    edge: FrameEdge,
    notice: Notice,
}

/// The receiver half that stands in for a receiver.
struct Shadow {
    half: Box<dyn ReceiverHalf>,
    highest: u64,
    heard: Time,
    rtt: Option<Span>,
    /// Where the arrivals that were played back end.
    until: Time,
}

/// Packets of which it is remembered when they left: more than leave between two reports.
const REMEMBERED: usize = 1 << 16;
/// Receivers that are stood in for.
const SHADOWS: usize = 4_096;
/// A receiver of our own may begin with a report that says nothing yet.
const BARE: u32 = 2;

struct Standard {
    factory: Arc<dyn Factory>,
    able: bool,
    fallen: bool,
    setup: Setup,
    half: Box<dyn SenderHalf>,
    /// Those who have sent the controller's own reports.
    ours: BTreeSet<ReceiverId>,
    /// Those who have not, and how many reports of theirs came.
    bare: BTreeMap<ReceiverId, (u32, u64)>,
    shadows: BTreeMap<ReceiverId, Shadow>,
    left: VecDeque<Left>,
    /// Extended sequence number of the first that is remembered.
    first: u64,
    edge: FrameEdge,
    notice: Notice,
}

impl Standard {
    fn new(factory: Arc<dyn Factory>, able: bool, setup: Setup) -> Self {
        Self {
            half: factory.sender(&setup),
            factory,
            able,
            fallen: false,
            setup,
            ours: BTreeSet::new(),
            bare: BTreeMap::new(),
            shadows: BTreeMap::new(),
            left: VecDeque::new(),
            first: 0,
            edge: FrameEdge::default(),
            notice: Notice::NONE,
        }
    }

    /// `asmp` takes over: whoever is there is served by what its report blocks say.
    fn fall_back(&mut self) {
        let Ok(asmp) = Chosen::shared("asmp", Mode::Repaired, &[]) else { return };
        self.factory = asmp;
        self.half = self.factory.sender(&self.setup);
        self.fallen = true;
        self.shadows.clear();
    }

    fn on_bare(&mut self, report: &Report<'_>) {
        let Some(reception) = report.reception else { return self.half.on_report(report) };
        if self.bare.len() >= SHADOWS && !self.bare.contains_key(&report.from) {
            return self.half.on_report(report);
        }
        let seen = self.bare.entry(report.from).or_insert((0, reception.highest));
        seen.0 += 1;
        let (count, highest) = *seen;
        if count < BARE {
            return self.half.on_report(report);
        }
        if !self.able && !self.fallen {
            self.fall_back();
        }
        let (factory, setup) = (&self.factory, &self.setup);
        let shadow = self.shadows.entry(report.from).or_insert_with(|| {
            let setup = Setup { id: report.from, group: false, ..setup.clone() };
            Shadow { half: factory.receiver(&setup), highest, heard: report.at, rtt: report.rtt, until: Time::ZERO }
        });
        let lost = reception.lost.max(0) as u64;
        let slot = shadow.replay(report, reception.highest, lost, &self.left, self.first);
        match shadow.half.report(&slot) {
            Reply::Body(body) => self.half.on_report(&Report { body: Some(&body), ..*report }),
            Reply::Plain => self.half.on_report(report),
            Reply::Suppress => {}
        }
    }
}

impl Shadow {
    /// Plays back the arrivals since the last report; returns what the half is to report on.
    fn replay(&mut self, report: &Report<'_>, highest: u64, lost: u64, left: &VecDeque<Left>, first: u64) -> Slot {
        let expected = highest.saturating_sub(self.highest);
        let (from, to) = (self.rtt.or(report.rtt).unwrap_or_default(), report.rtt.or(self.rtt).unwrap_or_default());
        for n in 0..expected {
            // Evenly spread: the so-and-so-manieth loss where its share of the packets is full.
            if (n + 1) * lost / expected > n * lost / expected {
                continue;
            }
            let seq = self.highest + 1 + n;
            let Some(packet) = seq.checked_sub(first).and_then(|place| left.get(place as usize)) else { continue };
            let share = (n + 1) as f64 / expected as f64;
            let delay = Span::nanos((from.as_nanos() as f64 * (1.0 - share) + to.as_nanos() as f64 * share) as u64);
            let at = (packet.at + delay).min(report.at).max(self.until);
            self.until = at;
            let sent = PeerTime::from_nanos(i64::try_from(packet.at.as_nanos()).unwrap_or(i64::MAX));
            self.half.on_arrival(&Arrival {
                at,
                seq,
                size: packet.size,
                sent,
                sampled: sent,
                edge: packet.edge,
                ce: false,
                notice: packet.notice.bytes(),
                buffer: None,
            });
        }
        let slot = Slot {
            now: report.at,
            expected,
            lost: lost as i64,
            members: report.members + 1,
            interval: report.at.since(self.heard),
            rtcp_share: 0.0,
        };
        self.highest = self.highest.max(highest);
        (self.heard, self.rtt) = (report.at, report.rtt.or(self.rtt));
        slot
    }
}

impl SenderHalf for Standard {
    fn on_sent(&mut self, sent: &Sent) {
        if self.left.is_empty() {
            self.first = sent.seq;
        }
        self.left.push_back(Left { at: sent.at, size: sent.size, edge: self.edge, notice: self.notice });
        if self.left.len() > REMEMBERED {
            self.left.pop_front();
            self.first += 1;
        }
        self.half.on_sent(sent);
    }

    fn on_report(&mut self, report: &Report<'_>) {
        if report.body.is_some() && !self.fallen {
            if self.ours.len() < SHADOWS {
                self.ours.insert(report.from);
            }
            self.bare.remove(&report.from);
            self.shadows.remove(&report.from);
            return self.half.on_report(report);
        }
        if self.ours.contains(&report.from) && !self.fallen {
            return self.half.on_report(report);
        }
        // After a fall-back what others say in their own way is not understood; their report blocks are.
        self.on_bare(&Report { body: None, ..*report });
    }

    fn on_leave(&mut self, at: Time, receiver: ReceiverId) {
        self.ours.remove(&receiver);
        self.bare.remove(&receiver);
        self.shadows.remove(&receiver);
        self.half.on_leave(at, receiver);
    }

    fn on_timer(&mut self, now: Time) {
        for shadow in self.shadows.values_mut() {
            if shadow.half.wake().is_some_and(|wake| wake.at <= now) {
                shadow.half.on_timer(now);
            }
        }
        if self.half.wake().is_some_and(|wake| wake.at <= now) {
            self.half.on_timer(now);
        }
    }

    fn wake(&self) -> Option<Wake> {
        let shadows = self.shadows.values().filter_map(|s| s.half.wake());
        self.half.wake().into_iter().chain(shadows).min_by_key(|wake| wake.at)
    }

    fn decision(&self) -> Decision {
        let mut decision = self.half.decision();
        if self.fallen {
            let rule = format!("standard reports alone, so asmp: {}", decision.why.rule);
            decision.why.rule = Cow::Owned(rule);
        }
        decision
    }

    fn notice(&mut self, packet: &Departing) -> Notice {
        self.edge = packet.edge;
        self.notice = self.half.notice(packet);
        // Another controller's notice would be misread by receivers of the one that was announced.
        if self.fallen { Notice::NONE } else { self.notice }
    }

    fn announce(&mut self, now: Time) -> Option<Body> {
        let body = self.half.announce(now)?;
        for shadow in self.shadows.values_mut() {
            shadow.half.on_announce(&Announcement { at: now, body: &body });
        }
        if self.fallen { None } else { Some(body) }
    }
}
