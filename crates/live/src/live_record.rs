//! The record of a live session. It has the same format as the record of a simulation.

use crate::peers::{ReceivedBlock, expected_since};
use crate::{FrameRow, Peers};
use serde_json::Value;
use std::ops::Range;
use steadycast_endpoints::{Agent, AgentIx, FlowEnds, Record};
use steadycast_record::{Figures, Of, Table, frames, receiver, run};
use steadycast_scenario::{Loaded, Scenario};
use steadycast_units::{Bytes, Rate, Span, Spread, Time};
use steadycast_wire::rtcp::ReportBlock;

/// Sampling interval of the time series.
pub(crate) const STEP: Span = Span::millis(100);

/// The record of a session's sender or receiver.
pub struct LiveRecord {
    scenario: Scenario,
    toml: String,
    agents: Vec<Agent>,
    flows: Vec<FlowEnds>,
    /// When the session ended, counted from its start.
    pub now: Time,
    warnings: Vec<String>,
    /// Frames from the jitter buffer of a receiver. Empty for a sender.
    frames: Vec<FrameRow>,
}

impl LiveRecord {
    /// Creates the record of an agent, which was active during `active`.
    pub(crate) fn new(
        loaded: Loaded,
        agent: Agent,
        active: Range<Time>,
        now: Time,
        warnings: Vec<String>,
        frames: Vec<FrameRow>,
    ) -> Self {
        let (toml, scenario) = (loaded.resolved_toml(), loaded.scenario);
        let (sources, sinks) = match &agent {
            Agent::VideoSource(_) => (vec![AgentIx(0)], Vec::new()),
            _ => (Vec::new(), vec![AgentIx(0)]),
        };
        let Range { start, end: stop } = active;
        let active = vec![(start, stop)];
        let flows = vec![FlowEnds { start, stop, active, means_from: start, sources, sinks }];
        Self { scenario, toml, agents: vec![agent], flows, now, warnings, frames }
    }

    fn record(&self) -> Record<'_> {
        Record {
            world: "live",
            scenario: &self.scenario,
            agents: &self.agents,
            flows: &self.flows,
            viewers: &[],
            links: Vec::new(),
            ways: vec![Vec::new()],
            logs: &[],
            hops: 0,
            step: STEP,
            now: self.now,
        }
    }

    /// Returns whether this end is a receiver that never got a usable media packet.
    pub fn silent(&self) -> bool {
        self.agents.iter().any(|agent| matches!(agent, Agent::VideoSink(sink) if sink.intake.bytes == Bytes::ZERO))
    }

    /// Returns the session in the form of a scenario file.
    pub fn toml(&self) -> &str {
        &self.toml
    }

    /// Returns the summary. `complete` says whether the session has reached its end.
    pub fn summary(&self, complete: bool) -> Value {
        let record = self.record();
        let mut tree = record.tree(complete);
        tree.figures.append(&run::WARNINGS, self.warnings.iter().map(String::as_str));
        tree.into()
    }

    /// Returns the table called `name`, if there is one.
    pub fn table(&self, name: &str) -> Option<Table> {
        let table = self.record().table(name)?;
        if name != frames::FRAME.table || self.frames.is_empty() {
            return Some(table);
        }
        // List the frames of the jitter buffer, because a receiver does not know the sender's frames.
        let mut into = Table::called(name)?;
        let node = self.scenario.flows[0].to.first().map_or("receiver", |n| self.scenario.node_name(*n));
        for (n, frame) in (0..).zip(&self.frames) {
            into.text(&frames::FLOW, &self.scenario.flows[0].name);
            into.text(&frames::NODE, node);
            into.whole(&frames::FRAME, n);
            into.whole(&frames::DISPLAY, n);
            into.real(&frames::PTS, frame.ticks as f64 / 90_000.0);
            into.whole(&frames::SIZE, frame.size.get() as i64);
            into.real(&frames::FIRST, frame.came.0.as_secs_f64());
            into.real(&frames::ARRIVED, frame.came.1.as_secs_f64());
            into.text(&frames::FATE, frame.fate.word());
            into.end_row();
        }
        Some(into)
    }
}

/// Returns the names and the figures of the receivers that have reported.
pub(crate) fn reported(peers: &Peers) -> (Vec<String>, Vec<Figures>) {
    let (mut names, mut rows) = (Vec::new(), Vec::new());
    for (_, peer) in peers.iter() {
        if peer.reports == 0 {
            continue;
        }
        // Count from the first report block, because no block says with which packet the receiver has begun. With one
        // block, only a loss of 0 is known. A receiver that sends only per-packet feedback sends no block.
        let blocks = peer.begin.zip(peer.block);
        let loss = blocks.and_then(|(first, last)| {
            let lossless = first.block.cumulative_lost <= 0;
            loss_since(&first.block, &last.block).or_else(|| lossless.then_some(0.0))
        });
        // Convert to milliseconds. A millisecond is 90 ticks of the RTP clock.
        let jitter = peer.block.map(|received| f64::from(received.block.jitter) / 90.0);
        names.push(peer.cname.clone());
        let mut into = Figures::new(Of::Receiver);
        into.put(&receiver::NAME, peer.cname.as_str());
        into.put(&receiver::ADDRESS, peer.address.to_string());
        into.put(&receiver::THROUGHPUT, blocks.and_then(received_rate).map(Rate::as_bps_f64));
        into.put(&receiver::LOSS, loss);
        into.put(&receiver::JITTER, jitter);
        into.put_span(&receiver::RTT, peer.rtt);
        into.put_spread(&receiver::DELAY, &Spread::default());
        into.put(&receiver::FEEDBACK_PACKETS, peer.reports);
        into.put(&receiver::STANDARD, !peer.ours && !peer.packets);
        into.put(&receiver::LEFT, peer.left);
        into.put_unknown(&receiver::FRAMES_OK);
        rows.push(into);
    }
    (names, rows)
}

/// Returns the share of packets that were lost between two report blocks. Returns `None` if there are no new packets.
fn loss_since(first: &ReportBlock, last: &ReportBlock) -> Option<f64> {
    let expected = expected_since(first, last)?;
    let lost = last.cumulative_lost.wrapping_sub(first.cumulative_lost);
    // Clamp the share, because duplicates can make the loss negative.
    Some((f64::from(lost) / f64::from(expected)).clamp(0.0, 1.0))
}

/// Minimum time between two reports that a rate can be computed from.
const MIN_RATE_TIME: Span = Span::secs(1);

/// Returns the rate that arrived at a receiver between its first and its last report. It is computed from the bytes
/// sent in this time and the reported loss. Returns `None` if the reports are too close or contain no new packets.
fn received_rate((first, last): (ReceivedBlock, ReceivedBlock)) -> Option<Rate> {
    let time = last.at.since(first.at);
    let loss = loss_since(&first.block, &last.block)?;
    let sent = last.sent.saturating_sub(first.sent);
    (time >= MIN_RATE_TIME).then(|| sent.per(time).scale(1.0 - loss))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::OwnStream;
    use steadycast_units::Seed;
    use steadycast_wire::ntp::NtpEpoch;
    use steadycast_wire::rtcp::{Compound, Packet};

    const BLOCK: ReportBlock =
        ReportBlock { ssrc: 1, fraction: 0, cumulative_lost: 0, highest_seq: 0, jitter: 0, lsr: 0, dlsr: 0 };

    /// Returns the list of peers after a receiver has sent these report blocks. Each has the number of packets that
    /// were sent by then. A second passes between two blocks.
    fn after(reports: &[(u64, ReportBlock)]) -> Peers {
        let mut peers = Peers::new(NtpEpoch::from_unix_secs(0), *b"TEST");
        for (n, (packets, block)) in (0..).zip(reports) {
            let mut bytes = Vec::new();
            let packets_of = vec![Packet::ReceiverReport { ssrc: 9, blocks: vec![*block] }];
            Compound { packets: packets_of }.encode(&mut bytes);
            let own = OwnStream { ssrc: 1, packets: *packets, bytes: Bytes::new(1_000 * packets) };
            peers.on_rtcp(Time::ZERO + Span::secs(n), own, "10.0.0.1:5001".parse().unwrap(), &bytes);
        }
        peers
    }

    fn loss(peers: &Peers) -> Option<f64> {
        reported(peers).1[0].get(&receiver::LOSS)?.as_f64()
    }

    #[test]
    fn a_receivers_loss_counts_no_packet_from_before_it_joined() {
        // The receiver gets its first packet as number `joined`, and then loses every tenth of 100 packets per second.
        for joined in [0, 1, 300, 2_000, 65_000] {
            let at = |seconds: u32| {
                let highest_seq = 40_000 + joined + 100 * seconds;
                let block = ReportBlock { highest_seq, cumulative_lost: 10 * seconds as i32, ..BLOCK };
                (u64::from(joined + 100 * seconds), block)
            };
            assert_eq!(loss(&after(&[at(1), at(2), at(5)])), Some(0.1), "joined at packet {joined}");
            assert_eq!(loss(&after(&[at(1)])), None, "one report does not say how many packets it is about");
            assert_eq!(loss(&after(&[at(0)])), Some(0.0), "it says if none was lost");
        }
    }

    #[test]
    fn reports_with_more_losses_than_packets_make_loss_and_rate_unknown() {
        let forged = ReportBlock { fraction: 255, cumulative_lost: 0x7f_ffff, jitter: 1 << 30, ..BLOCK };
        let forged = |n: u32| (u64::from(100 * n), ReportBlock { highest_seq: 100 * n, ..forged });
        let peers = after(&[forged(1), forged(2), forged(3)]);
        let (_, rows) = reported(&peers);
        for figure in [&receiver::LOSS, &receiver::THROUGHPUT, &receiver::JITTER] {
            assert!(rows[0].get(figure).is_none_or(serde_json::Value::is_null), "{}", figure.key);
        }
        let (_, peer) = peers.iter().next().unwrap();
        assert_eq!((peer.implausible, peer.reports, peer.block.is_none()), (3, 3, true));
        // More losses since the previous report than packets since then.
        let honest = (200, ReportBlock { highest_seq: 200, cumulative_lost: 20, ..BLOCK });
        let jump = (1_000, ReportBlock { highest_seq: 300, cumulative_lost: 121, ..BLOCK });
        let peers = after(&[(100, ReportBlock { highest_seq: 100, ..BLOCK }), honest, jump]);
        assert_eq!((loss(&peers), peers.iter().next().unwrap().1.implausible), (Some(0.2), 1));
    }

    #[test]
    fn no_report_of_a_receiver_that_counts_rightly_is_ignored() {
        let mut chance = Seed(1).part("network");
        for _ in 0..200 {
            let (base, loss, twice) = (chance.bits32() & 0xffff, chance.unit(), chance.unit());
            let (mut received, mut reports) = (0_i32, Vec::new());
            for n in 0..500_u32 {
                received += i32::from(chance.unit() >= loss) + i32::from(chance.unit() < twice);
                if chance.unit() < 0.05 {
                    let cumulative_lost = n as i32 + 1 - received;
                    let block = ReportBlock { highest_seq: base + n, cumulative_lost, ..BLOCK };
                    reports.push((u64::from(n) + 1, block));
                }
            }
            assert_eq!(after(&reports).iter().map(|(_, peer)| peer.implausible).sum::<u64>(), 0);
        }
    }

    #[test]
    fn a_receivers_rate_is_what_was_sent_while_it_reported_minus_its_loss() {
        let block = |highest_seq, cumulative_lost| ReportBlock { highest_seq, cumulative_lost, ..BLOCK };
        let received =
            |ms, sent, block| ReceivedBlock { block, at: Time::ZERO + Span::millis(ms), sent: Bytes::new(sent) };
        for joined in [0, 3_000, 60_000] {
            for lost in [0, 25, 100] {
                let first = received(joined, 500_000, block(u32::MAX - 10, 7));
                // Let the sequence number wrap.
                let last = received(joined + 4_000, 1_500_000, block(89, 7 + lost));
                let rate = received_rate((first, last)).unwrap().as_bps_f64();
                let expected = 2e6 * (1.0 - f64::from(lost) / 100.0);
                assert!((rate - expected).abs() <= 1.0, "{rate} b/s for {expected}");
            }
            // Neither two equal reports nor two reports within less than a second show a rate.
            let first = received(joined, 500_000, block(10, 0));
            assert_eq!(received_rate((first, received(joined + 5_000, 900_000, block(10, 0)))), None);
            assert_eq!(received_rate((first, received(joined + 900, 900_000, block(90, 0)))), None);
        }
    }
}
