//! Feeds the same packets to `gcc` and to webrtc-rs's own estimator, and prints the targets of both: `python -m
//! validation.reference`.
//!
//! Standard input has a line for each packet, in the order of sending: its sending time in seconds, its IP size in
//! bytes, and its arrival time in seconds. A packet without an arrival time was lost. Every 50 ms, the receiver sends a
//! report on all packets that arrived since the last report, which takes 20 ms to the sender. Standard output has a
//! line for each report: its time, and both targets in bits per second of IP packets.
#![allow(clippy::unwrap_used, reason = "an example may stop")]

use rtc_interceptor::{BandwidthEstimator, Gcc, PacketReport};
use rtc_rtcp::transport_feedbacks::cc_feedback_report::Ecn;
use std::io::stdin;
use std::time::{Duration, Instant};
use steadycast_remote::{Bounds, Bytes, FrameEdge, Given, Packet, PacketResult, PeerTime, Rate, Remote, Time};

/// How often the receiver reports.
const EACH: Duration = Duration::from_millis(50);
/// The delay of a report.
const BACK: Duration = Duration::from_millis(20);
/// The start rate of both, and their lower and upper limit, in bits per second.
const START: u64 = 300_000;
const LEAST: u64 = 50_000;
const MOST: u64 = 8_000_000;

struct Sent {
    left: Duration,
    size: usize,
    arrived: Option<Duration>,
    /// Whether its arrival has been reported.
    told: bool,
}

fn read() -> Vec<Sent> {
    let seconds = |text: &str| Duration::from_secs_f64(text.parse().unwrap());
    let packet = |line: String| {
        let mut parts = line.split(',');
        let (left, size) = (seconds(parts.next().unwrap()), parts.next().unwrap().parse().unwrap());
        let arrived = parts.next().filter(|part| !part.is_empty()).map(seconds);
        Sent { left, size, arrived, told: false }
    };
    stdin().lines().map(|line| packet(line.unwrap())).collect()
}

fn ours(loss: &str) -> Remote {
    let given = |key: &str, value: Given| (key.to_owned(), value);
    let params = [
        given("probes", Given::Switch(false)),
        given("loss", Given::Text(loss.into())),
        given("start", Given::Text(format!("{START}bps"))),
    ];
    let mut bounds = Bounds::new(Rate::bps(LEAST), Rate::bps(MOST));
    bounds.packet = Bytes::new(1_000);
    Remote::new("gcc", &params, &bounds).unwrap()
}

fn at(time: Duration) -> Time {
    Time::from_nanos(time.as_nanos() as u64)
}

#[allow(clippy::disallowed_methods, reason = "webrtc-rs counts times from an instant, whichever it is")]
fn start() -> Instant {
    Instant::now()
}

fn main() {
    let (start, mut packets) = (start(), read());
    let mut all = [ours("v1"), ours("v2")];
    let mut theirs = Gcc::new(START as f64, LEAST as f64, MOST as f64);
    println!("t_s,gcc_v1_bps,gcc_v2_bps,webrtc_rs_bps");
    let end = packets.last().map_or(Duration::ZERO, |last| last.left);
    let (mut report, mut left, mut first) = (EACH, 0, 0);
    while report <= end {
        let heard = report + BACK;
        // Packets that are sent before the report arrives.
        while left < packets.len() && packets[left].left <= heard {
            let Sent { left: time, size, .. } = packets[left];
            let packet = Packet { size: Bytes::new(size as u64), edge: FrameEdge::default(), data_limited: false };
            for remote in &mut all {
                while let Some(wake) = remote.wake().filter(|wake| wake.at <= at(time)) {
                    remote.timer(wake.at);
                }
                assert_eq!(remote.sent(at(time), &packet), left as u64);
            }
            left += 1;
        }
        let came = |packet: &Sent| packet.arrived.is_some_and(|arrived| arrived <= report);
        let newest = packets.iter().rposition(|packet| came(packet) && !packet.told).unwrap_or(0);
        let told: Vec<usize> = (first..=newest).filter(|n| !packets[*n].told).collect();
        if packets.get(newest).is_some_and(|packet| came(packet) && !packet.told) {
            let fate = |n: &usize| match packets[*n].arrived.filter(|_| came(&packets[*n])) {
                Some(arrived) => PacketResult::at(*n as u64, PeerTime::from_nanos(arrived.as_nanos() as i64)),
                None => PacketResult::missing(*n as u64),
            };
            for remote in &mut all {
                remote.feedback(at(heard), told.iter().map(fate));
            }
            let reported = |n: &usize| {
                let Sent { left, size, arrived, .. } = packets[*n];
                PacketReport {
                    ssrc: 1,
                    id: *n as u64,
                    rtp_sequence_number: *n as u16,
                    is_twcc: true,
                    twcc_sequence_number: *n as u16,
                    size,
                    arrived: came(&packets[*n]),
                    departure: start + left,
                    arrival: arrived.filter(|_| came(&packets[*n])),
                    ecn: Ecn::default(),
                }
            };
            let reports: Vec<PacketReport> = told.iter().map(reported).collect();
            theirs.on_reports(start + heard, &reports);
            told.iter().for_each(|n| packets[*n].told = true);
            first = newest + 1;
        }
        for remote in &mut all {
            while let Some(wake) = remote.wake().filter(|wake| wake.at <= at(heard)) {
                remote.timer(wake.at);
            }
        }
        let [v1, v2] = all.each_ref().map(|remote| remote.decision().target.as_bps());
        println!("{:.3},{v1},{v2},{:.0}", heard.as_secs_f64(), theirs.target_bitrate());
        report += EACH;
    }
}
