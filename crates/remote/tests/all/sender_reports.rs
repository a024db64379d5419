//! A sender report reaches a replayed receiver half with the packets. The round-trip time beside the half's report is
//! that of the sender report that it answers.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use std::sync::{Arc, Mutex};
use steadycast_control::registry::{Factory, Setup, Terms};
use steadycast_control::{
    Announcement, Arrival, Body, Departing, Due, FrameEdge, Limit, PacketReport, ReceiverHalf, ReceiverId, Reply,
    Report, SenderHalf, Sent, Slot, Wake, Why,
};
use steadycast_remote::{Bytes, Decision, PacketArrival, PeerTime, Rate, Replayed, Seed, Span, Stream, Time};

const SIZE: Bytes = Bytes::new(1_000);

/// The calls that the halves have received.
#[derive(Default)]
struct Seen {
    /// The packets that had arrived before each sender report.
    before: Vec<u64>,
    came: u64,
    /// The round-trip time of each report, and whether it had a body of the half.
    rtts: Vec<(Span, bool)>,
}

/// Halves that record their calls. The receiver half's reports are empty, or it is never due.
struct Noting(Arc<Mutex<Seen>>, bool);

impl Factory for Noting {
    fn sender(&self, _: &Setup) -> Box<dyn SenderHalf> {
        Box::new(Self(Arc::clone(&self.0), self.1))
    }
    fn receiver(&self, _: &Setup) -> Box<dyn ReceiverHalf> {
        Box::new(Self(Arc::clone(&self.0), self.1))
    }
    fn terms(&self) -> Terms {
        Terms::plain(*b"NOTE")
    }
}

impl SenderHalf for Noting {
    fn on_sent(&mut self, _: &Sent) {}

    fn on_report(&mut self, report: &Report<'_>) {
        self.0.lock().unwrap().rtts.push((report.rtt.unwrap(), report.body.is_some()));
    }

    fn decision(&self) -> Decision {
        let (target, pacing) = (Rate::mbps(1), Rate::mbps(1));
        Decision { target, pacing, window: None, limit: Limit::Network, why: Why::rule("none") }
    }

    fn announce(&mut self, _: Time) -> Option<Body> {
        Some(Body { subtype: 1, bytes: vec![0; 4] })
    }
}

impl ReceiverHalf for Noting {
    fn on_arrival(&mut self, _: &Arrival<'_>) {
        self.0.lock().unwrap().came += 1;
    }

    fn on_announce(&mut self, _: &Announcement<'_>) {
        let mut seen = self.0.lock().unwrap();
        let came = seen.came;
        seen.before.push(came);
    }

    fn due(&self) -> Due {
        if self.1 { Due::At(Wake { at: Time::ZERO, why: "always" }) } else { Due::Hold }
    }

    fn report(&mut self, _: &Slot) -> Reply {
        Reply::Body(Body { subtype: 1, bytes: vec![0; 4] })
    }
}

/// Sends a packet every 10 ms for 1.2 s with feedback every 50 ms, over 20 ms in each direction. There is a queue of
/// 100 ms from packet 50 on. Sender reports are sent right before packets 20 and 70.
fn noted(reports: bool) -> Seen {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let setup = Setup::unicast(Rate::kbps(50), Rate::mbps(20), Seed(1).part("noted"));
    let factory = Arc::new(Noting(Arc::clone(&seen), reports));
    let mut half = Replayed::around(factory, Span::secs(1)).sender(&setup);
    let sent = |n: u64| Time::ZERO + Span::millis(10 * n);
    let came = |n: u64| sent(n) + Span::millis(if n < 50 { 20 } else { 120 });
    let mut told = 0;
    for n in 0..120 {
        let at = sent(n);
        if n == 20 || n == 70 {
            half.announce(at);
        }
        half.notice(&Departing { at, seq: n, size: SIZE, edge: FrameEdge { first: true, last: true } });
        half.on_sent(&Sent { at, left: at, number: n, seq: n, size: SIZE, data_limited: false });
        if n % 5 == 4 {
            // Feedback covers what has arrived 20 ms before it reaches the sender.
            let arrived = (told..n).take_while(|n| came(*n) + Span::millis(20) <= at);
            let packets: Vec<_> = arrived
                .map(|n| {
                    let at = PeerTime::from_nanos((came(n) + Span::secs(7)).as_nanos() as i64);
                    let arrived = Some(PacketArrival { at: Some(at), ecn: None });
                    PacketReport { number: n, sent: sent(n), size: SIZE, stream: Stream::Media, arrived }
                })
                .collect();
            let Some(newest) = packets.last() else { continue };
            told = newest.number + 1;
            let rtt = Some(came(newest.number).since(newest.sent) + Span::millis(20));
            let from = ReceiverId(2);
            half.on_report(&Report { at, from, rtt, reception: None, body: None, packets: &packets, members: 2 });
        }
    }
    drop(half);
    Arc::into_inner(seen).unwrap().into_inner().unwrap()
}

#[test]
fn a_sender_report_comes_to_a_half_with_the_first_packet_that_left_after_it() {
    assert_eq!(noted(true).before, [20, 70]);
}

#[test]
fn a_round_trip_is_that_of_the_sender_report_that_is_answered_whether_the_half_says_anything_or_not() {
    for reports in [true, false] {
        let rtts = noted(reports).rtts;
        assert!(rtts.iter().all(|(_, said)| *said == reports), "{rtts:?}");
        // The queue exists from the eleventh report on. The last eight reports cover packets after the second sender
        // report.
        let (first, second) = rtts.split_at(15);
        assert!(first.iter().all(|(rtt, _)| *rtt == Span::millis(40)), "{rtts:?}");
        assert!(second.iter().all(|(rtt, _)| *rtt == Span::millis(140)) && second.len() == 8, "{rtts:?}");
    }
}
