//! A browser behind an RTT of 240 ms and a loss of 5 % in each direction, by libwebrtc's rules.
#![allow(clippy::unwrap_used, reason = "a test ends where it must not go on")]

use crate::group;

use group::{at, rtcp, sender, settings, who};
use std::collections::{BTreeMap, VecDeque};
use steadycast_session::{
    Emit, FeedbackFormat, Frame, FrameKind, Media, Origin, Output, Profile, RepairSettings, RtcpSettings,
    SenderSettings,
};
use steadycast_units::{Bytes, Chance, Rate, Seed, Span, Time};
use steadycast_wire::ntp;
use steadycast_wire::rtcp::{
    Compound, KeyFrameRequest, Nack, Packet, PacketStatus, ReportBlock, Ticks, TransportFeedback,
};

const WAY: Span = Span::millis(120);
const LOSS: f64 = 0.05;
const SECONDS: u64 = 50;
/// Interval between NACKs for a packet: an RTT, which the browser measures by an extended report (RFC 3611).
/// [`MAX_NACKS`] is their maximum number.
const NACK_INTERVAL: Span = Span::millis(242);
const MAX_NACKS: u32 = 10;
/// Time without a picture after which it requests a key frame.
const FREEZE_LIMIT: Span = Span::secs(3);
const SENDER: u32 = 0x5e0d_0001;
const BROWSER: u32 = 1;

/// A packet in flight: media or RTCP.
enum Datagram {
    Rtp(Media),
    Rtcp(Vec<u8>),
}

/// One direction of the path.
struct Way {
    travels: VecDeque<(Time, Datagram)>,
    chance: Chance,
}

impl Way {
    fn new(name: &str, seed: u64) -> Self {
        Self { travels: VecDeque::new(), chance: Seed(seed).part(name) }
    }

    fn put(&mut self, now: Time, datagram: Datagram) {
        if !self.chance.happens(LOSS) {
            self.travels.push_back((now + WAY, datagram));
        }
    }

    fn take(&mut self, now: Time) -> Option<Datagram> {
        self.travels.pop_front_if(|(at, _)| *at <= now).map(|(_, datagram)| datagram)
    }
}

/// A model of libwebrtc's receiver: it requests missing packets and decodes pictures in order.
#[derive(Default)]
struct Browser {
    came: BTreeMap<u64, Time>,
    next: Option<u64>,
    missing: BTreeMap<u64, (Time, u32)>,
    /// The first and last packet of each picture, whether it is a key frame, and when it was sampled.
    pictures: BTreeMap<u32, (u64, Option<u64>, bool, Time)>,
    decodes: u32,
    decoded: Vec<Time>,
    asked: Option<Time>,
    numbers: BTreeMap<u16, Ticks>,
    told: Option<u16>,
    report: (u32, Time),
}

impl Browser {
    fn on_rtp(&mut self, now: Time, media: &Media) -> Vec<u64> {
        if let Some(number) = media.transport {
            self.numbers.insert(number, Ticks::of(now));
        }
        let seq = media.repairs.unwrap_or(media.seq);
        self.came.entry(seq).or_insert(now);
        self.missing.remove(&seq);
        let next = self.next.unwrap_or(seq);
        let gap: Vec<u64> = (next..seq).collect();
        self.next = Some(next.max(seq + 1));
        self.missing.extend(gap.iter().map(|seq| (*seq, (now, 1))));
        gap
    }

    /// The repeated requests.
    fn again(&mut self, now: Time) -> Vec<u64> {
        self.missing.retain(|_, (_, tries)| *tries < MAX_NACKS);
        let mut due = Vec::new();
        for (seq, (last, tries)) in &mut self.missing {
            if now.since(*last) >= NACK_INTERVAL {
                (*last, *tries) = (now, *tries + 1);
                due.push(*seq);
            }
        }
        due
    }

    /// Returns true if all packets of a picture have arrived.
    fn whole(&self, index: u32) -> bool {
        let Some((first, Some(last), ..)) = self.pictures.get(&index) else { return false };
        (*first..=*last).all(|seq| self.came.contains_key(&seq))
    }

    /// Decodes the pictures that are due, `wait` after they could have arrived. Continues at a key frame if one is late
    /// or has gaps.
    fn decode(&mut self, now: Time, wait: Span) {
        loop {
            let key = |index: &u32| self.pictures[index].2 && self.whole(*index);
            let due = |index: u32| self.pictures[&index].3 + WAY + wait;
            let later = self.pictures.range(self.decodes + 1..).map(|(index, _)| *index).find(key);
            let own = self.whole(self.decodes).then_some(self.decodes);
            let late = |index: u32| now > due(index) + Span::millis(5);
            let found = match (own, later) {
                (Some(own), Some(later)) if late(own) => later,
                (Some(found), _) | (None, Some(found)) => found,
                (None, None) => return,
            };
            if now < due(found) {
                return;
            }
            self.decodes = found + 1;
            self.decoded.push(now);
        }
    }

    /// Returns the total duration of freezes in seconds, by the W3C's rule of `totalFreezesDuration`.
    fn frozen(&self) -> f64 {
        let spans: Vec<f64> = self.decoded.windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64()).collect();
        let froze = |n: &usize| {
            let recent = &spans[n.saturating_sub(29)..=*n];
            let mean = recent.iter().sum::<f64>() / recent.len() as f64;
            spans[*n] >= (3.0 * mean).max(mean + 0.15)
        };
        (0..spans.len()).filter(froze).map(|n| spans[n]).sum()
    }
}

/// Runs for [`SECONDS`]. The browser shows a picture `wait` after it could have arrived. The sender assumes that
/// packets are useful for `playout`, and with `feedback` it also retransmits lost retransmissions. Returns the duration
/// of all freezes in seconds, and the share of retransmissions.
fn watch(wait: Span, gop: u32, kbps: u64, playout: Option<Span>, feedback: bool, seed: u64) -> (f64, f64) {
    let rtcp = RtcpSettings {
        authenticated: feedback,
        ..rtcp(Profile::Avpf { t_rr_interval: Span::ZERO }, Rate::mbps(2), false)
    };
    let repair = Some(RepairSettings { ssrc: 9, payload_type: 97, playout });
    let with = SenderSettings {
        identity: who(SENDER),
        repair,
        feedback: FeedbackFormat::TransportWide,
        credit: Span::millis(4),
        ..settings(rtcp, Emit::Paced)
    };
    let rate = Rate::kbps(kbps);
    let (mut sender, _) = sender(with, rate, &[]);
    let (mut there, mut back) = (Way::new("there", seed), Way::new("back", seed));
    let (mut browser, mut filmed, mut wants_key, mut sent, mut again) = (Browser::default(), 0, false, 0, 0);
    for now in (0..SECONDS * 1_000).map(at) {
        let ms = now.as_nanos() / 1_000_000;
        if ms >= u64::from(filmed) * 200 / 3 {
            let kind = if filmed % gop == 0 || std::mem::take(&mut wants_key) { FrameKind::I } else { FrameKind::P };
            let size = Bytes::new(kbps * 1_000 / 8 / 15 * 8 / 10);
            browser.pictures.insert(filmed, (u64::MAX, None, kind == FrameKind::I, now));
            sender.push_frame(now, &Frame { index: filmed, kind, size, sampled: now });
            filmed += 1;
        }
        loop {
            match sender.poll(now) {
                Output::Media(media) => {
                    (sent, again) = (sent + 1, again + u32::from(media.repairs.is_some()));
                    if media.repairs.is_none() {
                        let picture = browser.pictures.get_mut(&media.fragment.frame).unwrap();
                        picture.0 = picture.0.min(media.seq);
                        picture.1 = media.header.marker.then_some(media.seq);
                    }
                    there.put(now, Datagram::Rtp(media));
                }
                Output::Rtcp(bytes) => there.put(now, Datagram::Rtcp(bytes)),
                Output::Wait(_) => break,
            }
        }
        let mut says = Vec::new();
        let asks = |missing: Vec<u64>| {
            let missing: Vec<u16> = missing.into_iter().map(|seq| seq as u16).collect();
            (!missing.is_empty()).then(|| Nack { sender: BROWSER, media: SENDER, missing }.to_packet())
        };
        while let Some(datagram) = there.take(now) {
            match datagram {
                Datagram::Rtp(media) => says.extend(asks(browser.on_rtp(now, &media))),
                Datagram::Rtcp(bytes) => {
                    if let Some(Packet::SenderReport { ntp, .. }) = Compound::parse(&bytes).unwrap().packets.first() {
                        browser.report = (ntp::middle(*ntp), now);
                    }
                }
            }
        }
        if ms % 20 == 0 {
            says.extend(asks(browser.again(now)));
        }
        browser.decode(now, wait);
        let stands = |since: &Time| now.since(*since) >= FREEZE_LIMIT;
        if browser.decoded.last().is_some_and(stands) && browser.asked.as_ref().is_none_or(stands) {
            browser.asked = Some(now);
            says.push(KeyFrameRequest::PictureLoss { sender: BROWSER, media: SENDER }.to_packet());
        }
        for packet in says.drain(..) {
            back.put(now, Datagram::Rtcp(written(vec![packet], &browser, now)));
        }
        if ms % 100 == 0 {
            let told = feedback_of(&mut browser);
            back.put(now, Datagram::Rtcp(written(told, &browser, now)));
        }
        while let Some(Datagram::Rtcp(bytes)) = back.take(now) {
            sender.on_rtcp(now, Origin(1), &bytes);
        }
        wants_key |= sender.take_key_frame();
    }
    (browser.frozen(), f64::from(again) / f64::from(sent))
}

fn feedback_of(browser: &mut Browser) -> Vec<Packet> {
    let Some(newest) = browser.numbers.last_key_value().map(|(number, _)| *number) else { return Vec::new() };
    let begin_seq = browser.told.map_or(0, |told| told + 1);
    let status = |number: u16| browser.numbers.get(&number).map_or(PacketStatus::Missing, |at| PacketStatus::At(*at));
    if newest < begin_seq {
        return Vec::new();
    }
    let packets = (begin_seq..=newest).map(status).collect();
    browser.told = Some(newest);
    TransportFeedback { sender: BROWSER, media: SENDER, count: 0, begin_seq, packets }.to_packets(1_200)
}

fn written(packets: Vec<Packet>, browser: &Browser, now: Time) -> Vec<u8> {
    let (lsr, came) = browser.report;
    let block = ReportBlock { ssrc: SENDER, lsr, dlsr: ntp::dlsr(now.since(came)), ..ReportBlock::default() };
    let report = Packet::ReceiverReport { ssrc: BROWSER, blocks: vec![block] };
    let mut bytes = Vec::new();
    Compound { packets: [vec![report], packets].concat() }.encode(&mut bytes);
    bytes
}

#[test]
fn three_round_trips_of_wait_keep_a_teleoperator_s_picture_moving() {
    let (wait, bound) = (Span::millis(800), 0.7);
    let runs = [(300, 150, 0), (300, 12, 1), (1_000, 150, 2), (1_000, 12, 3)];
    let mut worst: f64 = 0.0;
    for (kbps, gop, seed) in runs {
        let (frozen, again) = watch(wait, gop, kbps, Some(FREEZE_LIMIT), true, seed);
        assert!(frozen <= bound, "{frozen} s of {SECONDS} at {kbps} kb/s, a key frame every {gop}");
        // Each lost packet is retransmitted once, and one in twenty of those again.
        assert!((0.035..0.07).contains(&again), "{again} of all packets were sent again");
        worst = worst.max(watch(wait, gop, kbps, None, false, seed).0);
    }
    assert!(worst > bound, "{worst} s where each has to be asked for, within a second");
}
