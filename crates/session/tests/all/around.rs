//! What stands around a controller's half hides nothing of it from the session, and nothing of the session from it.
#![allow(clippy::unwrap_used, reason = "a test may stop")]

use std::sync::{Arc, Mutex};
use steadycast_control::registry::{Chosen, Factory, FeedbackTiming, Setup};
use steadycast_control::{
    Allowance, Check, Decision, Due, Limit, MediaQueue, Mode, ReceiverHalf, ReceiverId, Report, SenderHalf, Sent, Wake,
    Why,
};
use steadycast_session::{CircuitBreaker, FeedbackDefence, OperatorControls, Replayed, StandardReports};
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

/// Any time.
const AT: Time = Time::from_nanos(7);
const ALLOWED: Allowance = Allowance { bytes: Bytes::new(777), until: AT };

/// Says what most halves leave at its default, and notes what it is told.
struct Speaks {
    told: Arc<Mutex<Vec<&'static str>>>,
    checks: [Check; 1],
}

impl Speaks {
    fn note(&self, what: &'static str) {
        self.told.lock().unwrap().push(what);
    }
}

impl SenderHalf for Speaks {
    fn on_sent(&mut self, _: &Sent) {}
    fn on_report(&mut self, _: &Report<'_>) {}
    fn on_queue(&mut self, _: &MediaQueue) {
        self.note("queue");
    }
    fn on_leave(&mut self, _: Time, _: ReceiverId) {
        self.note("leave");
    }
    fn on_bye(&mut self, _: Time, _: ReceiverId) {
        self.note("bye");
    }
    fn decision(&self) -> Decision {
        let rate = Rate::mbps(1);
        Decision { target: rate, pacing: rate, window: None, limit: Limit::Network, why: Why::rule("always") }
    }
    fn allowance(&self) -> Option<Allowance> {
        Some(ALLOWED)
    }
    fn due(&self) -> Due {
        Due::At(Wake { at: AT, why: "own" })
    }
    fn checks(&self) -> &[Check] {
        &self.checks
    }
}

type Around = fn(Arc<dyn Factory>) -> Arc<dyn Factory>;

struct Makes(Arc<Mutex<Vec<&'static str>>>);

impl Factory for Makes {
    fn sender(&self, _: &Setup) -> Box<dyn SenderHalf> {
        Box::new(Speaks { told: Arc::clone(&self.0), checks: [Check::new("INV-0")] })
    }
    fn receiver(&self, setup: &Setup) -> Box<dyn ReceiverHalf> {
        Chosen::shared("fixed", Mode::Repaired, &[]).unwrap().receiver(setup)
    }
    fn extension(&self) -> u8 {
        0
    }
    fn app(&self) -> [u8; 4] {
        *b"TEST"
    }
    fn feedback(&self) -> FeedbackTiming {
        FeedbackTiming::Clocked
    }
}

#[test]
fn each_of_them_passes_on_allowance_sender_reports_promises_queue_and_bye() {
    let setup = Setup {
        session_bandwidth: Rate::mbps(2),
        ..Setup::unicast(Rate::kbps(50), Rate::mbps(10), Seed(1).part("half"))
    };
    let around: [(&str, Around); 4] = [
        ("StandardReports", |own| Arc::new(StandardReports::new(own, true))),
        ("CircuitBreaker", |own| Arc::new(CircuitBreaker::new(own, OperatorControls::default()))),
        ("FeedbackDefence", |own| Arc::new(FeedbackDefence::new(own, OperatorControls::default()))),
        ("Replayed", |own| Replayed::around(own, Span::secs(1))),
    ];
    for (name, around) in around {
        let told = Arc::new(Mutex::new(Vec::new()));
        let mut half = around(Arc::new(Makes(Arc::clone(&told)))).sender(&setup);
        assert_eq!(half.allowance(), Some(ALLOWED), "{name}");
        assert_eq!(half.due(), Due::At(Wake { at: AT, why: "own" }), "{name}");
        assert_eq!(half.checks().len(), 1, "{name}");
        half.on_queue(&MediaQueue { at: AT, waiting: Bytes::ZERO, age: Span::ZERO, frame: None });
        half.on_bye(AT, ReceiverId(2));
        half.on_leave(AT, ReceiverId(3));
        assert_eq!(*told.lock().unwrap(), ["queue", "bye", "leave"], "{name}");
    }
}
