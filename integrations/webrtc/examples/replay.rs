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

const REPORT_INTERVAL: Duration = Duration::from_millis(50);
const REPORT_DELAY: Duration = Duration::from_millis(20);
/// Bits per second, of both estimators.
const START: u64 = 300_000;
const FLOOR: u64 = 50_000;
const CAP: u64 = 8_000_000;

struct SentPacket {
    sent_at: Duration,
    size: usize,
    arrived: Option<Duration>,
    is_reported: bool,
}

fn read_packets() -> Vec<SentPacket> {
    let seconds = |text: &str| Duration::from_secs_f64(text.parse().unwrap());
    let packet = |line: String| {
        let mut parts = line.split(',');
        let (sent_at, size) = (seconds(parts.next().unwrap()), parts.next().unwrap().parse().unwrap());
        let arrived = parts.next().filter(|part| !part.is_empty()).map(seconds);
        SentPacket { sent_at, size, arrived, is_reported: false }
    };
    stdin().lines().map(|line| packet(line.unwrap())).collect()
}

fn steadycast_gcc(loss: &str) -> Remote {
    let given = |key: &str, value: Given| (key.to_owned(), value);
    let params = [
        given("probes", Given::Switch(false)),
        given("loss", Given::Text(loss.into())),
        given("start", Given::Text(format!("{START}bps"))),
    ];
    let mut bounds = Bounds::new(Rate::bps(FLOOR), Rate::bps(CAP));
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
    let (start, mut packets) = (start(), read_packets());
    let mut controllers = [steadycast_gcc("v1"), steadycast_gcc("v2")];
    let mut webrtc_rs = Gcc::new(START as f64, FLOOR as f64, CAP as f64);
    println!("t_s,gcc_v1_bps,gcc_v2_bps,webrtc_rs_bps");
    let end = packets.last().map_or(Duration::ZERO, |last| last.sent_at);
    let (mut report, mut sent, mut first) = (REPORT_INTERVAL, 0, 0);
    while report <= end {
        let feedback_at = report + REPORT_DELAY;
        // Packets that are sent before the report arrives.
        while sent < packets.len() && packets[sent].sent_at <= feedback_at {
            let SentPacket { sent_at, size, .. } = packets[sent];
            let packet = Packet { size: Bytes::new(size as u64), edge: FrameEdge::default(), data_limited: false };
            for remote in &mut controllers {
                while let Some(wake) = remote.wake().filter(|wake| wake.at <= at(sent_at)) {
                    remote.timer(wake.at);
                }
                assert_eq!(remote.sent(at(sent_at), &packet), sent as u64);
            }
            sent += 1;
        }
        let has_arrived = |packet: &SentPacket| packet.arrived.is_some_and(|arrived| arrived <= report);
        let newest = packets.iter().rposition(|packet| has_arrived(packet) && !packet.is_reported).unwrap_or(0);
        let covered: Vec<usize> = (first..=newest).filter(|n| !packets[*n].is_reported).collect();
        if packets.get(newest).is_some_and(|packet| has_arrived(packet) && !packet.is_reported) {
            let result_of = |n: &usize| match packets[*n].arrived.filter(|_| has_arrived(&packets[*n])) {
                Some(arrived) => PacketResult::at(*n as u64, PeerTime::from_nanos(arrived.as_nanos() as i64)),
                None => PacketResult::missing(*n as u64),
            };
            for remote in &mut controllers {
                remote.feedback(at(feedback_at), covered.iter().map(result_of));
            }
            let report_of = |n: &usize| {
                let SentPacket { sent_at, size, arrived, .. } = packets[*n];
                PacketReport {
                    ssrc: 1,
                    id: *n as u64,
                    rtp_sequence_number: *n as u16,
                    is_twcc: true,
                    twcc_sequence_number: *n as u16,
                    size,
                    arrived: has_arrived(&packets[*n]),
                    departure: start + sent_at,
                    arrival: arrived.filter(|_| has_arrived(&packets[*n])),
                    ecn: Ecn::default(),
                }
            };
            let reports: Vec<PacketReport> = covered.iter().map(report_of).collect();
            webrtc_rs.on_reports(start + feedback_at, &reports);
            covered.iter().for_each(|n| packets[*n].is_reported = true);
            first = newest + 1;
        }
        for remote in &mut controllers {
            while let Some(wake) = remote.wake().filter(|wake| wake.at <= at(feedback_at)) {
                remote.timer(wake.at);
            }
        }
        let [v1, v2] = controllers.each_ref().map(|remote| remote.decision().target.as_bps());
        println!("{:.3},{v1},{v2},{:.0}", feedback_at.as_secs_f64(), webrtc_rs.target_bitrate());
        report += REPORT_INTERVAL;
    }
}
