//! Layers around a controller's half must forward all calls between the half and the session.
#![allow(clippy::unwrap_used, reason = "a test may stop")]

use std::sync::{Arc, Mutex};
use steadycast_control::promise::RTCP_SHARE;
use steadycast_control::registry::{Chosen, Factory, Setup, Terms};
use steadycast_control::{
    Allowance, Body, Check, Decision, Departing, Due, ExtraSent, FrameEdge, Leave, Limit, MediaQueue, Mode, Need,
    Notice, PacketReport, Probe, ReceiverHalf, ReceiverId, Report, SenderHalf, Sent, Stream, Wake, Why,
};
use steadycast_session::{CircuitBreaker, FeedbackDefence, OperatorControls, Replayed, StandardReports};
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

/// An arbitrary time.
const AT: Time = Time::from_nanos(7);
const WAKE: Wake = Wake { at: AT, why: "own" };
const ALLOWED: Allowance = Allowance { bytes: Bytes::new(777), until: AT };
const PROBE: Probe = Probe { id: 3, rate: Rate::mbps(2), packets: 5, bytes: Bytes::new(5), within: false };

#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<&'static str>>>);

impl Told {
    fn note(&self, what: &'static str) {
        self.0.lock().unwrap().push(what);
    }
}

/// Records each call, and returns values that differ from all defaults.
struct Speaks {
    told: Told,
    checks: [Check; 1],
}

// A new method of the trait is missing here, which the lint and the last line of the test below show.
#[deny(clippy::missing_trait_methods)]
impl SenderHalf for Speaks {
    fn inner(&self) -> Option<&dyn SenderHalf> {
        None
    }
    fn inner_mut(&mut self) -> Option<&mut dyn SenderHalf> {
        None
    }
    fn on_sent(&mut self, _: &Sent) {
        self.told.note("sent");
    }
    fn on_extra_sent(&mut self, _: &ExtraSent) {
        self.told.note("extra sent");
    }
    fn on_queue(&mut self, _: &MediaQueue) {
        self.told.note("queue");
    }
    fn on_feedback_interval(&mut self, _: Span) {
        self.told.note("feedback interval");
    }
    fn on_unknown(&mut self, _: &[PacketReport]) {
        self.told.note("unknown");
    }
    fn on_report(&mut self, _: &Report<'_>) {
        self.told.note("report");
    }
    fn on_leave(&mut self, _: Time, _: ReceiverId, _: Leave) {
        self.told.note("leave");
    }
    fn on_timer(&mut self, _: Time) {
        self.told.note("timer");
    }
    fn wake(&self) -> Option<Wake> {
        self.told.note("wake");
        Some(WAKE)
    }
    fn decision(&self) -> Decision {
        self.told.note("decision");
        let rate = Rate::mbps(1);
        Decision { target: rate, pacing: rate, window: None, limit: Limit::Network, why: Why::rule("always") }
    }
    fn allowance(&self) -> Option<Allowance> {
        self.told.note("allowance");
        Some(ALLOWED)
    }
    fn probe(&self) -> Option<Probe> {
        self.told.note("probe");
        Some(PROBE)
    }
    fn due(&self) -> Due {
        self.told.note("due");
        Due::At(WAKE)
    }
    fn notice(&mut self, _: &Departing) -> Notice {
        self.told.note("notice");
        Notice::new(5, b"note")
    }
    fn checks(&self) -> &[Check] {
        self.told.note("checks");
        &self.checks
    }
    fn announce(&mut self, _: Time) -> Option<Body> {
        self.told.note("announce");
        Some(Body { subtype: 9, bytes: vec![1, 2, 3, 4] })
    }
}

struct Makes(Told);

#[deny(clippy::missing_trait_methods)]
impl Factory for Makes {
    fn sender(&self, setup: &Setup) -> Box<dyn SenderHalf> {
        if !setup.probes {
            self.0.note("no probes");
        }
        Box::new(Speaks { told: self.0.clone(), checks: [Check::new(&RTCP_SHARE)] })
    }
    fn receiver(&self, setup: &Setup) -> Box<dyn ReceiverHalf> {
        Chosen::shared("fixed", Mode::Repaired, &[]).unwrap().receiver(setup)
    }
    fn terms(&self) -> Terms {
        Terms { extension: 11, repeats: true, needs: &[Need::PacketReports], ..Terms::plain(*b"TEST") }
    }
}

type Around = fn(Arc<dyn Factory>) -> Arc<dyn Factory>;

const AROUND: [(&str, Around); 4] = [
    ("StandardReports", |own| Arc::new(StandardReports::new(own, true))),
    ("CircuitBreaker", |own| Arc::new(CircuitBreaker::new(own, OperatorControls::default()))),
    ("FeedbackDefence", |own| Arc::new(FeedbackDefence::new(own, OperatorControls::default()))),
    ("Replayed", |own| Replayed::around(own, Span::secs(1))),
];

#[test]
fn each_layer_passes_on_whatever_it_does_not_change() {
    let setup = Setup {
        session_bandwidth: Rate::mbps(2),
        probes: false,
        ..Setup::unicast(Rate::kbps(50), Rate::mbps(10), Seed(1).part("half"))
    };
    let size = Bytes::new(1_000);
    for (name, around) in AROUND {
        let told = Told::default();
        let mut half = around(Arc::new(Makes(told.clone()))).sender(&setup);
        assert_eq!(*told.0.lock().unwrap(), ["no probes"], "{name} builds its half for another setup");
        let mut calls = 0;
        // Whether the inner half has been called since the last check.
        let mut reached = |what: &str| {
            calls += 1;
            let told = std::mem::take(&mut *told.0.lock().unwrap());
            assert!(told.contains(&what), "{name} swallows {what}");
        };
        half.on_sent(&Sent { at: AT, left: AT, number: 0, seq: 0, size, data_limited: false });
        reached("sent");
        half.on_extra_sent(&ExtraSent { at: AT, left: AT, number: 1, stream: Stream::Repair, size });
        reached("extra sent");
        half.on_queue(&MediaQueue { at: AT, waiting: Bytes::ZERO, age: Span::ZERO, frame: None });
        reached("queue");
        half.on_feedback_interval(Span::secs(1));
        reached("feedback interval");
        half.on_unknown(&[]);
        // The replay hands packets of unknown fate to the receiver half, as arrivals.
        let is_replay = name == "Replayed";
        if !is_replay {
            reached("unknown");
        }
        let from = ReceiverId(2);
        half.on_report(&Report { at: AT, from, rtt: None, reception: None, body: None, packets: &[], members: 1 });
        reached("report");
        half.on_timer(AT);
        reached("timer");
        assert_eq!(half.wake(), Some(WAKE), "{name}");
        reached("wake");
        assert_eq!(half.decision().target, Rate::mbps(1), "{name}");
        reached("decision");
        assert_eq!(half.allowance(), Some(ALLOWED), "{name}");
        reached("allowance");
        assert_eq!(half.probe(), Some(PROBE), "{name}");
        reached("probe");
        assert_eq!(half.due(), Due::At(WAKE), "{name}");
        reached("due");
        let notice = half.notice(&Departing { at: AT, seq: 1, size, edge: FrameEdge::default() });
        assert_eq!(notice.bytes(), b"note", "{name}");
        reached("notice");
        assert_eq!(half.checks().len(), 1, "{name}");
        reached("checks");
        assert!(half.announce(AT).is_some(), "{name}");
        reached("announce");
        half.on_leave(AT, from, Leave::Bye);
        reached("leave");
        let calls = calls + usize::from(is_replay);
        assert_eq!(calls, include_str!("around.rs").matches("        self.told.note(\"").count(), "one is not called");
    }
}

#[test]
fn what_a_controller_says_of_itself_is_said_through_a_layer() {
    for (name, around) in &AROUND[..3] {
        let layered = around(Arc::new(Makes(Told::default())));
        assert_eq!(layered.terms(), Makes(Told::default()).terms(), "{name}");
    }
}
