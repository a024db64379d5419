//! A session of one sender and many receivers over a constant delay, with halves that record their calls.
#![allow(clippy::unwrap_used, reason = "a test ends where it must not go on")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use steadycast_control::{
    Arrival, Body, Decision, Departing, Leave, Limit, Notice, ReceiverHalf, ReceiverId, Reply, Report, SenderHalf,
    Sent, Slot, Why,
};
use steadycast_session::{
    Emit, Frame, FrameKind, Identity, Media, Origin, Output, Profile, Receiver, RtcpSettings, Sender, SenderSettings,
};
use steadycast_units::{Bytes, Ecn, Rate, Seed, Span, Time};
use steadycast_wire::ntp::NtpEpoch;

/// The calls of the sender half.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) reports: Vec<(Time, ReceiverId, Option<Span>)>,
    pub(crate) left: Vec<(Time, ReceiverId)>,
}

pub(crate) struct NotingSender {
    pub(crate) told: Arc<Mutex<Told>>,
    pub(crate) rate: Rate,
    /// The sizes of successive notices.
    pub(crate) notices: Vec<usize>,
    pub(crate) sent: usize,
}

impl SenderHalf for NotingSender {
    fn on_sent(&mut self, _: &Sent) {
        self.sent += 1;
    }
    fn on_report(&mut self, report: &Report<'_>) {
        self.told.lock().unwrap().reports.push((report.at, report.from, report.rtt));
    }
    fn on_leave(&mut self, at: Time, receiver: ReceiverId, _: Leave) {
        self.told.lock().unwrap().left.push((at, receiver));
    }
    fn decision(&self) -> Decision {
        let why = Why::rule("as told");
        Decision { target: self.rate, pacing: self.rate, window: None, limit: Limit::Cap, why }
    }
    fn notice(&mut self, _: &Departing) -> Notice {
        match self.notices.get(self.sent % self.notices.len().max(1)) {
            Some(0) | None => Notice::NONE,
            Some(len) => Notice::new(2, &vec![7; *len]),
        }
    }
    fn announce(&mut self, _: Time) -> Option<Body> {
        Some(Body { subtype: 2, bytes: vec![1, 2, 3] })
    }
}

/// The calls of a receiver half.
#[derive(Default)]
pub(crate) struct Got {
    pub(crate) seqs: Vec<u64>,
    pub(crate) renamed: Vec<ReceiverId>,
}

pub(crate) struct NotingReceiver(pub(crate) Arc<Mutex<Got>>);

impl ReceiverHalf for NotingReceiver {
    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        self.0.lock().unwrap().seqs.push(arrival.seq);
    }
    fn report(&mut self, _: &Slot) -> Reply {
        Reply::Body(Body { subtype: 1, bytes: vec![0; 16] })
    }
    fn on_renamed(&mut self, id: ReceiverId) {
        self.0.lock().unwrap().renamed.push(id);
    }
    fn leave(&mut self, _: Time) -> Option<Body> {
        Some(Body { subtype: 3, bytes: vec![9] })
    }
}

pub(crate) const SENDER: u32 = 1;

pub(crate) fn who(ssrc: u32) -> Identity {
    Identity { ssrc, cname: format!("{ssrc}@test") }
}

pub(crate) fn rtcp(profile: Profile, bandwidth: Rate, group: bool) -> RtcpSettings {
    RtcpSettings { group, ..RtcpSettings::new(profile, bandwidth) }
}

pub(crate) fn settings(rtcp: RtcpSettings, emit: Emit) -> SenderSettings {
    SenderSettings {
        emit,
        first_seq: 65_500,
        first_timestamp: 0xffff_0000,
        epoch: NtpEpoch::from_unix_secs(1_000_000_000),
        ..SenderSettings::new(who(SENDER), rtcp, Bytes::new(1000), *b"TEST")
    }
}

pub(crate) fn at(ms: u64) -> Time {
    Time::ZERO + Span::millis(ms)
}

pub(crate) fn frame(index: u32, kind: FrameKind, size: u64, ms: u64) -> Frame {
    Frame { index, kind, size: Bytes::new(size), sampled: at(ms) }
}

/// Returns a sender without receivers, and the calls of its half.
pub(crate) fn sender(settings: SenderSettings, rate: Rate, notices: &[usize]) -> (Sender, Arc<Mutex<Told>>) {
    let told = Arc::new(Mutex::new(Told::default()));
    let half = NotingSender { told: Arc::clone(&told), rate, notices: notices.to_vec(), sent: 0 };
    (Sender::new(settings, Box::new(half), Seed(1).part("sender"), Time::ZERO), told)
}

pub(crate) fn receiver(ssrc: u32, rtcp: RtcpSettings, now: Time) -> (Receiver, Arc<Mutex<Got>>) {
    let got = Arc::new(Mutex::new(Got::default()));
    let half = Box::new(NotingReceiver(Arc::clone(&got)));
    (Receiver::new(who(ssrc), rtcp, *b"TEST", half, Seed(1).part(&format!("receiver {ssrc}")), now), got)
}

/// Returns all media packets that a sender sends until `until`.
pub(crate) fn media(sender: &mut Sender, mut now: Time, until: Time) -> Vec<(Time, Media)> {
    let mut all = Vec::new();
    loop {
        match sender.poll(now) {
            Output::Media(media) => all.push((now, media)),
            Output::Rtcp(_) => {}
            Output::Wait(Some(wake)) if wake.at <= until => now = wake.at,
            Output::Wait(_) => return all,
        }
    }
}

#[derive(Clone)]
pub(crate) enum Datagram {
    Rtp(Vec<u8>),
    Rtcp(Vec<u8>),
}

/// Sender, receivers and the packets in flight. Receiver n is `Origin(n)`, the sender the last.
pub(crate) struct Group {
    pub(crate) sender: Sender,
    pub(crate) told: Arc<Mutex<Told>>,
    pub(crate) receivers: Vec<Option<Receiver>>,
    pub(crate) got: Vec<Arc<Mutex<Got>>>,
    pub(crate) rtcp: RtcpSettings,
    pub(crate) now: Time,
    pub(crate) delay: Span,
    /// Whether receivers' RTCP is lost.
    pub(crate) feedback_lost: bool,
    /// All RTCP that was sent: its time, its sender (`None`: the media sender) and its content.
    pub(crate) said: Vec<(Time, Option<usize>, Vec<u8>)>,
    frames: u32,
    period: Span,
    under_way: BTreeMap<(Time, u64), (Option<usize>, Datagram)>,
    turns: u64,
}

impl Group {
    /// A frame of 2000 B every `period`.
    pub(crate) fn new(rtcp: RtcpSettings, period: Span, delay: Span) -> Self {
        let (sender, told) = sender(settings(rtcp, Emit::Burst), Rate::mbps(1), &[]);
        Self {
            sender,
            told,
            receivers: Vec::new(),
            got: Vec::new(),
            rtcp,
            now: Time::ZERO,
            delay,
            feedback_lost: false,
            said: Vec::new(),
            frames: 0,
            period,
            under_way: BTreeMap::new(),
            turns: 0,
        }
    }

    /// The receiver `n` has SSRC 100 + n.
    pub(crate) fn join(&mut self) -> usize {
        let n = self.receivers.len();
        let (receiver, got) = receiver(100 + n as u32, self.rtcp, self.now);
        self.receivers.push(Some(receiver));
        self.got.push(got);
        n
    }

    pub(crate) fn at(&mut self, n: usize) -> &mut Receiver {
        self.receivers[n].as_mut().unwrap()
    }

    pub(crate) fn send(&mut self, by: Option<usize>, datagram: Datagram) {
        if let Datagram::Rtcp(bytes) = &datagram {
            self.said.push((self.now, by, bytes.clone()));
            if by.is_some() && self.feedback_lost {
                return;
            }
        }
        self.turns += 1;
        self.under_way.insert((self.now + self.delay, self.turns), (by, datagram));
    }

    fn origin(by: Option<usize>) -> Origin {
        Origin(by.map_or(u64::MAX, |n| n as u64))
    }

    fn deliver(&mut self, by: Option<usize>, datagram: &Datagram) {
        let (now, from) = (self.now, Self::origin(by));
        if let (Some(_), Datagram::Rtcp(bytes)) = (by, datagram) {
            self.sender.on_rtcp(now, from, bytes);
        }
        for (n, receiver) in self.receivers.iter_mut().enumerate() {
            let Some(receiver) = receiver.as_mut().filter(|_| by != Some(n)) else { continue };
            match datagram {
                Datagram::Rtp(bytes) => drop(receiver.on_rtp(now, from, bytes, Ecn::NotEct, None)),
                Datagram::Rtcp(bytes) => receiver.on_rtcp(now, from, bytes),
            }
        }
    }

    /// Polls all ends. Returns when the next one has to be polled.
    fn poll(&mut self) -> Time {
        let mut next = Time::NEVER;
        loop {
            match self.sender.poll(self.now) {
                Output::Media(media) => {
                    let mut bytes = Vec::new();
                    media.encode(&vec![0; usize::from(media.header.payload_len)], &mut bytes);
                    self.send(None, Datagram::Rtp(bytes));
                }
                Output::Rtcp(bytes) => self.send(None, Datagram::Rtcp(bytes)),
                Output::Wait(wake) => {
                    next = next.min(wake.map_or(Time::NEVER, |w| w.at));
                    break;
                }
            }
        }
        for n in 0..self.receivers.len() {
            while let Some(receiver) = &mut self.receivers[n] {
                match receiver.poll(self.now) {
                    Output::Rtcp(bytes) => self.send(Some(n), Datagram::Rtcp(bytes)),
                    Output::Wait(wake) => {
                        next = next.min(wake.map_or(Time::NEVER, |w| w.at));
                        break;
                    }
                    Output::Media(_) => unreachable!("a receiver sends no media"),
                }
            }
        }
        next
    }

    pub(crate) fn run_to(&mut self, until: Time) {
        loop {
            let due = Time::ZERO + self.period * u64::from(self.frames);
            if due <= self.now {
                let kind = if self.frames.is_multiple_of(12) { FrameKind::I } else { FrameKind::P };
                let size = Bytes::new(2000);
                self.sender.push_frame(due, &Frame { index: self.frames, kind, size, sampled: due });
                self.frames += 1;
                continue;
            }
            let mut next = self.poll().min(due);
            if let Some((key, _)) = self.under_way.first_key_value() {
                next = next.min(key.0);
            }
            if next > until {
                self.now = until;
                return;
            }
            self.now = next;
            while let Some(entry) = self.under_way.first_entry().filter(|e| e.key().0 <= self.now) {
                let (by, datagram) = entry.remove();
                self.deliver(by, &datagram);
            }
        }
    }
}
