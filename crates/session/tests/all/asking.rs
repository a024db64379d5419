//! Requests of a sender half to its session: skipping frames beyond its allowance, and reports at its own times.
#![allow(clippy::unwrap_used, reason = "a test ends where it must not go on")]

use crate::group;

use group::{at, rtcp, settings};
use std::sync::{Arc, Mutex};
use steadycast_control::{
    Allowance, Body, Decision, Departing, Due, Limit, Notice, Report, SenderHalf, Sent, Wake, Why,
};
use steadycast_session::{Emit, Frame, FrameKind, Output, Profile, Sender};
use steadycast_units::{Bytes, Rate, Seed, Span, Time};
use steadycast_wire::rtcp::{Compound, Packet};

/// A half with an allowance per second that reports five times in each.
struct Miser {
    bytes: Option<Bytes>,
    now: Time,
    next: Time,
    /// The announced size of the packet.
    told: Bytes,
    sizes: Arc<Mutex<Vec<(Bytes, Bytes)>>>,
}

impl SenderHalf for Miser {
    fn notice(&mut self, packet: &Departing) -> Notice {
        self.told = packet.size;
        Notice::new(5, b"note")
    }
    fn on_sent(&mut self, sent: &Sent) {
        self.sizes.lock().unwrap().push((self.told, sent.size));
    }
    fn on_report(&mut self, _: &Report<'_>) {}
    fn on_timer(&mut self, now: Time) {
        self.now = now;
    }
    fn wake(&self) -> Option<Wake> {
        Some(Wake { at: self.now + Span::secs(1), why: "the next second" })
    }
    fn decision(&self) -> Decision {
        let (rate, why) = (Rate::mbps(10), Why::rule("whatever"));
        Decision { target: rate, pacing: rate, window: None, limit: Limit::Cap, why }
    }
    fn allowance(&self) -> Option<Allowance> {
        self.bytes.map(|bytes| Allowance { bytes, until: self.now + Span::secs(1) })
    }
    fn due(&self) -> Due {
        Due::At(Wake { at: self.next, why: "a fifth" })
    }
    fn announce(&mut self, now: Time) -> Option<Body> {
        self.next = now + Span::millis(200);
        None
    }
}

fn miser(bytes: Option<u64>) -> Miser {
    let (now, told, sizes) = (Time::ZERO, Bytes::ZERO, Arc::default());
    Miser { bytes: bytes.map(Bytes::new), now, next: at(200), told, sizes }
}

/// Sends ten frames of 1000 bytes per second in groups of five. Returns the accepted frames, the packets sent and the
/// times of reports.
fn run(half: Miser) -> (Vec<bool>, Sender, Vec<Time>) {
    let settings = settings(rtcp(Profile::Rfc3550, Rate::mbps(2), false), Emit::Paced);
    let mut sender = Sender::new(settings, Box::new(half), Seed(1).part("rtcp"), Time::ZERO);
    let (mut taken, mut reports) = (Vec::new(), Vec::new());
    for ms in 0..3_000 {
        if ms % 100 == 10 {
            let n = ms as u32 / 100;
            let kind = if n.is_multiple_of(5) { FrameKind::I } else { FrameKind::P };
            let frame = Frame { index: n, kind, size: Bytes::new(1_000), sampled: at(ms) };
            taken.push(sender.push_frame(Time::ZERO, &frame));
        }
        loop {
            match sender.poll(at(ms)) {
                Output::Media(_) => {}
                Output::Rtcp(compound) => {
                    let first = Compound::parse(&compound).unwrap().packets.swap_remove(0);
                    assert_eq!(matches!(first, Packet::SenderReport { .. }), sender.packets() > 0);
                    reports.push(at(ms));
                }
                Output::Wait(_) => break,
            }
        }
    }
    (taken, sender, reports)
}

#[test]
fn frames_beyond_an_allowance_are_skipped_until_the_next_one() {
    // Each frame is two packets with 56 bytes of headers and notice: four frames fit into 4500 bytes.
    let (taken, sender, _) = run(miser(Some(4_500)));
    let second: Vec<bool> = (0..10).map(|n| n < 4).collect();
    assert_eq!(taken, second.repeat(3));
    assert_eq!((sender.packets(), sender.backlog().skipped), (24, 18));
}

#[test]
fn without_an_allowance_everything_is_sent_and_one_of_nothing_sends_nothing() {
    let (taken, sender, _) = run(miser(None));
    assert!(taken.iter().all(|t| *t));
    assert_eq!((sender.packets(), sender.backlog().skipped), (60, 0));
    let (taken, sender, _) = run(miser(Some(0)));
    assert!(taken.iter().all(|t| !*t));
    assert_eq!((sender.packets(), sender.backlog().skipped), (0, 30));
}

#[test]
fn a_half_s_sender_reports_leave_when_it_says_and_not_by_rtcp_s_timer() {
    let (_, _, reports) = run(miser(None));
    let wanted: Vec<Time> = (1..15).map(|n| at(200 * n)).collect();
    assert_eq!(reports, wanted);
}

#[test]
fn a_half_is_told_the_size_that_its_packet_will_have_once_its_notices_have_one_length() {
    let half = miser(None);
    let sizes = Arc::clone(&half.sizes);
    run(half);
    let sizes = sizes.lock().unwrap();
    assert!(sizes.len() == 60 && sizes[1..].iter().all(|(told, was)| told == was), "{sizes:?}");
}
