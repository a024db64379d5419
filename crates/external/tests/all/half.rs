use proptest::prelude::*;
use steadycast_control::{
    ExtraSent, FeedbackFormat, Limit, ReceiverId, Reception, Report, SenderHalf, Sent, Setup, Stream, Window,
};
use steadycast_external::{Decided, Event, Half, Law};
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

/// A law that always returns the same decision and records the reports.
struct Says(Decided, std::sync::mpsc::Sender<String>);

impl Law for Says {
    fn on_event(&mut self, _: Option<Time>, event: &Event<'_>) -> Option<Decided> {
        if let Event::Report(heard) = event {
            let _ =
                self.1.send(format!("{:?} {:?} {:?} {:?}", heard.counts, heard.received, heard.queueing, heard.rtt));
        }
        Some(self.0.clone())
    }
}

fn half(decided: Decided, feedback: FeedbackFormat) -> (Half<Says>, std::sync::mpsc::Receiver<String>) {
    let (told, heard) = std::sync::mpsc::channel();
    let setup = Setup::unicast(Rate::kbps(100), Rate::mbps(2), Seed(1).part("half"));
    (Half::new(Says(decided, told), &setup, feedback), heard)
}

#[test]
fn a_window_is_counted_down_by_all_that_leaves_until_the_next_decision() {
    let decided = Decided { rate: Rate::mbps(1), window: Some(Bytes::new(3_000)), ..Decided::default() };
    let mut half = half(decided, FeedbackFormat::Own).0;
    let left = |half: &Half<Says>| half.decision().window;
    assert_eq!(left(&half), Some(Window::Bytes(Bytes::new(3_000))));
    let (at, size) = (Time::ZERO, Bytes::new(1_200));
    for expected in [1_800, 600, 0] {
        half.on_extra_sent(&ExtraSent { at, left: at, number: 0, stream: Stream::Repair, size });
        assert_eq!(left(&half), Some(Window::Bytes(Bytes::new(expected))));
    }
    half.on_timer(at);
    assert_eq!(left(&half), Some(Window::Bytes(Bytes::new(3_000))));
}

#[test]
fn report_blocks_are_counts_to_a_law_that_asks_for_them_alone() {
    let reception = Reception { expected: 40, lost: -2, fraction: 0.0, highest: 9, jitter: Span::ZERO };
    for (feedback, counts) in [(FeedbackFormat::Blocks, "Some((40, 0))"), (FeedbackFormat::Own, "None")] {
        let (mut half, heard) = half(Decided::default(), feedback);
        let (rtt, reception) = (Some(Span::millis(50)), Some(reception));
        let report =
            Report { at: Time::ZERO, from: ReceiverId(7), rtt, reception, body: None, packets: &[], members: 1 };
        half.on_report(&report);
        assert_eq!(heard.recv().unwrap(), format!("{counts} None None {rtt:?}"));
        assert_eq!(half.decision().why.by, Some(ReceiverId(7)));
    }
}

proptest! {
    #[test]
    fn what_a_law_says_is_kept_within_floor_and_cap_and_wakes_lie_ahead(
        rate: u64, pacing in prop::option::of(any::<u64>()), wake in prop::option::of(any::<u64>()),
        now in 0u64..1 << 50,
    ) {
        let (pacing, wake) = (pacing.map(Rate::bps), wake.map(Time::from_nanos));
        let decided = Decided { rate: Rate::bps(rate), pacing, wake, ..Decided::default() };
        let (mut half, now) = (half(decided, FeedbackFormat::Own).0, Time::from_nanos(now));
        half.on_sent(&Sent { at: now, left: now, number: 0, seq: 0, size: Bytes::new(1), data_limited: true });
        let told = half.decision();
        prop_assert!(told.target >= Rate::kbps(100) && told.target <= Rate::mbps(2));
        prop_assert!(told.pacing >= Rate::kbps(100) && told.window.is_none());
        prop_assert_eq!(told.limit == Limit::Cap, rate >= 2_000_000);
        prop_assert_eq!(half.wake().is_some(), wake.is_some());
        prop_assert!(half.wake().is_none_or(|wake| wake.at >= now + Span::micros(100)));
    }
}
