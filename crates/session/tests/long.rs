//! Heap use of a session of hours. A separate process, because the test counts all allocations.
#![allow(clippy::unwrap_used, reason = "a test ends where it must not go on")]

#[path = "all/group/mod.rs"]
#[allow(dead_code, reason = "one test uses a part")]
mod group;

use allocation_counter::measure;
use group::{frame, rtcp, settings, who};
use std::collections::VecDeque;
use steadycast_control::Mode;
use steadycast_control::registry::{Chosen, Setup};
use steadycast_session::{
    Emit, FeedbackFormat, FrameKind, Origin, Output, ParitySettings, Profile, Receiver, RepairSettings, Sender,
    SenderSettings,
};
use steadycast_units::{Chance, Ecn, Rate, Seed, Span, Time};

const WAY: Span = Span::millis(20);
const PLAYOUT: Option<Span> = Some(Span::secs(1));
/// Four frames per second; one in eight is a key frame.
const PERIOD: u64 = 250;

/// A session over a path that loses 2 % in each direction, with retransmission and parity.
struct Session {
    sender: Sender,
    receiver: Receiver,
    now: Time,
    frames: u32,
    loss: Chance,
    /// Packets in flight by arrival time: whether a packet is for the receiver, and its content.
    under_way: VecDeque<(Time, bool, Vec<u8>)>,
}

impl Session {
    fn new(controller: &str) -> Self {
        let bandwidth = Rate::kbps(300);
        let avpf = rtcp(Profile::Avpf { t_rr_interval: Span::ZERO }, bandwidth, false);
        let chosen = Chosen::shared(controller, Mode::Repaired, &[]).unwrap();
        let own = FeedbackFormat::own_of(&*chosen, false);
        let setup =
            Setup { session_bandwidth: bandwidth, ..Setup::unicast(Rate::kbps(50), bandwidth, Seed(1).part("half")) };
        let repair = RepairSettings { ssrc: 8, payload_type: 97, playout: PLAYOUT };
        let parity = ParitySettings { ssrc: 9, payload_type: 98, playout: PLAYOUT };
        let settings = SenderSettings {
            gated: true,
            peer: Some(Origin(2)),
            feedback: own,
            app: chosen.terms().app,
            repair: Some(repair),
            parity: Some(parity),
            ..settings(avpf, Emit::Paced)
        };
        let start = Time::ZERO;
        let receiver =
            Receiver::new(who(2), avpf, chosen.terms().app, chosen.receiver(&setup), Seed(3).part("rtcp"), start)
                .with_feedback(own, bandwidth)
                .described(Some([96].into_iter().collect()), Some(group::SENDER))
                .with_repair(repair)
                .with_parity(parity, Seed(4).part("parity"));
        let sender = Sender::new(settings, chosen.sender(&setup), Seed(1).part("sender"), start);
        let (loss, under_way) = (Seed(5).part("loss"), VecDeque::new());
        Self { sender, receiver, now: start, frames: 0, loss, under_way }
    }

    fn post(&mut self, to_receiver: bool, bytes: Vec<u8>) {
        if !self.loss.happens(0.02) {
            self.under_way.push_back((self.now + WAY, to_receiver, bytes));
        }
    }

    /// Returns when either end has to be polled again.
    fn drain(&mut self) -> Time {
        let mut wake = Time::NEVER;
        loop {
            match self.sender.poll(self.now) {
                Output::Media(media) => {
                    let mut bytes = Vec::new();
                    media.encode(&vec![0; media.header.payload_len.into()], &mut bytes);
                    self.post(true, bytes);
                }
                Output::Rtcp(bytes) => self.post(true, bytes),
                Output::Wait(until) => break wake = until.map_or(wake, |until| wake.min(until.at)),
            }
        }
        loop {
            match self.receiver.poll(self.now) {
                Output::Rtcp(bytes) => self.post(false, bytes),
                Output::Wait(until) => break wake = until.map_or(wake, |until| wake.min(until.at)),
                Output::Media(_) => unreachable!("a receiver sends no media"),
            }
        }
        self.receiver.take_recovered();
        wake
    }

    fn run(&mut self, until: Time) {
        while self.now < until {
            let next_frame = Time::ZERO + Span::millis(u64::from(self.frames) * PERIOD);
            if next_frame <= self.now {
                let kind = if self.frames.is_multiple_of(8) { FrameKind::I } else { FrameKind::P };
                let frame = frame(self.frames, kind, 3_000, u64::from(self.frames) * PERIOD);
                self.sender.push_frame(self.now, &frame);
                self.frames += 1;
            }
            let wake = self.drain().min(Time::ZERO + Span::millis(u64::from(self.frames) * PERIOD));
            self.now = self.under_way.front().map_or(wake, |(at, ..)| wake.min(*at)).max(self.now);
            while let Some((_, to_receiver, bytes)) = self.under_way.pop_front_if(|(at, ..)| *at <= self.now) {
                match (to_receiver, steadycast_wire::is_rtcp(&bytes)) {
                    (false, _) => self.sender.on_rtcp(self.now, Origin(2), &bytes),
                    (true, true) => self.receiver.on_rtcp(self.now, Origin(1), &bytes),
                    (true, false) => drop(self.receiver.on_rtp(self.now, Origin(1), &bytes, Ecn::NotEct, None)),
                }
            }
        }
    }
}

/// No state may grow: a map with one entry per packet would take 800 kB more in this hour. State that grows to a bound
/// has reached it in the first half hour.
#[test]
fn a_session_takes_no_more_memory_after_an_hour_and_a_half_than_after_half_an_hour() {
    for controller in ["steady", "asmp"] {
        let mut session = Session::new(controller);
        session.run(Time::ZERO + Span::secs(1_800));
        let more = measure(|| session.run(Time::ZERO + Span::secs(5_400)));
        assert!(session.sender.packets() > 30_000, "{controller}: {} packets", session.sender.packets());
        assert!(session.receiver.requests().repaired > 100, "{controller}: {:?}", session.receiver.requests());
        assert!(more.bytes_current < 64_000, "{controller}: {more:?}");
    }
}
