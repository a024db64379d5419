use crate::path::{Path, Run, at};
use proptest::prelude::*;
use std::collections::VecDeque;
use steadycast_tcp::{Ack, Block, Config, Congestion, Ecn, Poll, Preset, Receiver, Segment, Sender};
use steadycast_units::{Bytes, Rate, Span, Time};

fn config(preset: u8, congestion: u8, segments: u64) -> Config {
    let preset = [Preset::Ns2, Preset::Ns2Old, Preset::Linux][preset as usize % 3];
    let mut config = Config::new(preset, Congestion::ALL[congestion as usize % 8]);
    config.bytes = Some(Bytes::new(segments * config.packet.saturating_sub(config.header).get()));
    config
}

#[test]
fn everything_arrives_through_thirty_percent_of_loss_both_ways() {
    for preset in 0..3 {
        for congestion in 0..8 {
            for seed in 1..=3 {
                let path = Path { loss: 0.3, ack_loss: 0.3, seed, ..Path::new(Rate::mbps(10), Span::millis(20), 50) };
                let mut run = Run::new(&config(preset, congestion, 300), &path);
                run.until(at(50_000.0));
                assert!(run.sender.completed.is_some(), "{preset} {congestion} {seed}: {:?}", run.last_limit);
                assert_eq!(run.receiver.distinct_segments, 301);
                assert_eq!(run.receiver.next(), 301);
            }
        }
    }
}

/// A connection over a path that the test controls step by step.
struct Bench {
    /// The segments to send, the SYN included.
    total: u64,
    proportional: bool,
    sender: Sender,
    receiver: Receiver,
    now: Time,
    forward: VecDeque<Segment>,
    back: VecDeque<Ack>,
}

impl Bench {
    fn new(config: &Config) -> Self {
        Self {
            total: 151,
            proportional: config.proportional_reduction,
            sender: Sender::new(config),
            receiver: Receiver::new(config),
            now: Time::ZERO,
            forward: VecDeque::new(),
            back: VecDeque::new(),
        }
    }

    /// Polls the sender and checks the invariants.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for count in 0.. {
            prop_assert!(count < 5000, "a poll without an end");
            match self.sender.poll(self.now) {
                Poll::Send(segment) => self.forward.push_back(segment),
                Poll::Done => {
                    prop_assert!(self.sender.completed.is_some());
                    prop_assert_eq!(self.sender.wake(), None);
                    break;
                }
                Poll::Wait { until, limit } => {
                    // Something is always outstanding here, so the timer must run.
                    let until = until.ok_or_else(|| TestCaseError::fail(format!("waits for ever: {limit:?}")))?;
                    prop_assert!(until > self.now);
                    prop_assert_eq!(self.sender.wake(), Some(until));
                    break;
                }
            }
        }
        prop_assert!(self.sender.cwnd >= 1.0 && self.sender.cwnd.is_finite());
        prop_assert!(self.sender.ssthresh >= 2.0 && self.sender.ssthresh.is_finite());
        prop_assert!(self.sender.pacing().is_none_or(|rate| rate.is_finite() && rate > 0.0));
        prop_assert!(self.sender.marked_share().is_none_or(|alpha| (0.0..=1.0).contains(&alpha)));
        prop_assert!(self.sender.in_flight() <= 2 * (1 << 20));
        prop_assert!(self.sender.rto() > Span::ZERO && self.sender.rto() <= Span::secs(120));
        if let Some(due) = self.receiver.wake() {
            prop_assert!(due >= self.now);
        }
        Ok(())
    }

    fn deliver(&mut self, segment: &Segment) {
        let ack = self.receiver.on_segment(self.now, segment);
        self.back.extend(ack);
    }

    fn timers(&mut self) {
        let ack = self.receiver.on_timer(self.now);
        self.back.extend(ack);
        self.sender.on_timer(self.now);
    }

    /// Advances the time. The driver stops at each timer, so none is late.
    fn pass(&mut self, span: Span) -> Result<(), TestCaseError> {
        let goal = self.now + span;
        loop {
            let due = [self.sender.wake(), self.receiver.wake()].into_iter().flatten().min();
            let Some(due) = due.filter(|due| *due <= goal) else { break };
            self.now = self.now.max(due);
            self.timers();
            self.settle()?;
        }
        self.now = goal;
        Ok(())
    }

    fn step(&mut self, op: Op) -> Result<(), TestCaseError> {
        self.pass(Span::micros(100))?;
        match op {
            Op::Deliver => {
                if let Some(segment) = self.forward.pop_front() {
                    self.deliver(&segment);
                }
            }
            Op::DeliverMarked => {
                if let Some(mut segment) = self.forward.pop_front() {
                    segment.ecn = Ecn::Ce;
                    self.deliver(&segment);
                }
            }
            Op::Lose => drop(self.forward.pop_front()),
            Op::Repeat => {
                if let Some(segment) = self.forward.front().copied() {
                    self.deliver(&segment);
                }
            }
            Op::Overtake => {
                if let Some(segment) = self.forward.pop_front() {
                    self.forward.push_back(segment);
                }
            }
            Op::Ack => {
                if let Some(ack) = self.back.pop_front() {
                    self.sender.on_ack(self.now, &ack);
                }
            }
            Op::LoseAck => drop(self.back.pop_front()),
            Op::RepeatAck => {
                if let Some(ack) = self.back.front() {
                    self.sender.on_ack(self.now, ack);
                }
            }
            Op::Pass(span) => self.pass(span)?,
            Op::Offer(segments) => {
                self.sender.offer(self.now, segments);
                self.total += u64::from(segments);
            }
            Op::Forge(ack) => {
                let before = self.sender.cwnd;
                let proportional = self.proportional;
                let (una, max) = (self.sender.acknowledged(), self.sender.sent);
                let invalid_acks = self.sender.invalid_acks;
                self.sender.on_ack(self.now, &ack);
                let acknowledges =
                    ack.next > una && u64::from(ack.next) <= max && self.sender.invalid_acks == invalid_acks;
                // The third duplicate reveals a loss, which leaves at least two segments of window (RFC 9438, section
                // 4.6).
                let before = before.max(2.0);
                // During proportional rate reduction the window varies, up to its final value.
                let most = if proportional { before.max(self.sender.ssthresh) } else { before };
                // BBR correctly counts SACKed segments as delivered.
                let counts_blocks = self.sender.state_name().is_some();
                prop_assert!(
                    acknowledges || counts_blocks || self.sender.cwnd <= most,
                    "{before} became {}",
                    self.sender.cwnd
                );
                prop_assert!(acknowledges || self.sender.acknowledged() == una);
            }
        }
        self.settle()
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Deliver,
    DeliverMarked,
    Lose,
    Repeat,
    Overtake,
    Ack,
    LoseAck,
    RepeatAck,
    Pass(Span),
    Offer(u32),
    Forge(Ack),
}

fn block() -> impl Strategy<Value = Block> {
    prop_oneof![
        Just(Block::default()),
        (0u32..300, 0u32..30).prop_map(|(start, len)| Block { start, end: start + len }),
        (any::<u32>(), any::<u32>()).prop_map(|(start, end)| Block { start, end }),
    ]
}

fn forged() -> impl Strategy<Value = Ack> {
    let next = prop_oneof![0u32..200, any::<u32>()];
    (next, [block(), block(), block()], any::<u64>(), (any::<bool>(), any::<u16>()))
        .prop_map(|(next, sacks, echo, (ece, marks))| Ack { next, sacks, echo: Time::from_nanos(echo), ece, marks })
}

fn honest() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => Just(Op::Deliver),
        1 => Just(Op::DeliverMarked),
        2 => Just(Op::Lose),
        1 => Just(Op::Repeat),
        1 => Just(Op::Overtake),
        8 => Just(Op::Ack),
        2 => Just(Op::LoseAck),
        1 => Just(Op::RepeatAck),
        2 => (0u64..2000).prop_map(|ms| Op::Pass(Span::millis(ms))),
        1 => (0u32..5).prop_map(Op::Offer),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_path_does_the_rest_arrives_once_it_behaves(
        preset in 0u8..3,
        congestion in 0u8..8,
        ecn in any::<bool>(),
        hystart in any::<bool>(),
        ops in prop::collection::vec(honest(), 1..300),
    ) {
        let mut config = config(preset, congestion, 150);
        config.ecn = ecn;
        if hystart {
            config.hystart = steadycast_tcp::Hystart::PlusPlus;
        }
        let mut bench = Bench::new(&config);
        bench.settle()?;
        for op in ops {
            bench.step(op)?;
        }
        for _ in 0..5000 {
            if bench.sender.completed.is_some() {
                break;
            }
            if bench.forward.is_empty() && bench.back.is_empty() {
                bench.step(Op::Pass(Span::secs(1)))?;
            }
            bench.step(Op::Deliver)?;
            bench.step(Op::Ack)?;
        }
        prop_assert!(bench.sender.completed.is_some());
        prop_assert_eq!(bench.receiver.distinct_segments, bench.total);
    }

    #[test]
    fn forged_acknowledgments_of_anything_neither_panic_nor_raise_the_window_nor_stop_the_timer(
        preset in 0u8..3,
        congestion in 0u8..8,
        ops in prop::collection::vec(prop_oneof![2 => honest(), 1 => forged().prop_map(Op::Forge)], 1..200),
    ) {
        let mut bench = Bench::new(&config(preset, congestion, 150));
        bench.settle()?;
        for op in ops {
            bench.step(op)?;
        }
    }

    #[test]
    fn false_blocks_do_not_keep_the_data_from_arriving(
        congestion in 2u8..8,
        ops in prop::collection::vec(honest(), 1..60),
        sacks in [block(), block(), block()],
    ) {
        let mut bench = Bench::new(&config(2, congestion, 150));
        bench.settle()?;
        for op in ops {
            bench.step(op)?;
        }
        let next = bench.sender.acknowledged();
        bench.step(Op::Forge(Ack { next, sacks, echo: Time::ZERO, ece: false, marks: 0 }))?;
        for _ in 0..5000 {
            if bench.sender.completed.is_some() {
                break;
            }
            if bench.forward.is_empty() && bench.back.is_empty() {
                bench.step(Op::Pass(Span::secs(1)))?;
            }
            bench.step(Op::Deliver)?;
            bench.step(Op::Ack)?;
        }
        prop_assert_eq!(bench.receiver.distinct_segments, bench.total);
    }

    #[test]
    fn any_segment_at_all_is_answered_and_only_new_ones_count(
        seqs in prop::collection::vec(prop_oneof![0u32..80, any::<u32>()], 1..200),
        delayed in any::<bool>(),
    ) {
        let config = Config { delayed_ack: delayed, window: 64, ..Config::new(Preset::Linux, Congestion::Sack) };
        let mut receiver = Receiver::new(&config);
        let mut seen = std::collections::BTreeSet::new();
        let mut now = Time::ZERO;
        for seq in seqs {
            now += Span::millis(1);
            let inside = seq >= receiver.next() && seq < receiver.next() + 64;
            let fresh = inside && seen.insert(seq);
            let before = receiver.distinct_segments;
            let segment = Segment {
                seq,
                len: Bytes::new(1500),
                sent: now,
                retransmission: false,
                cwr: false,
                push: false,
                ecn: Ecn::NotEct,
            };
            let ack = receiver.on_segment(now, &segment);
            prop_assert_eq!(receiver.distinct_segments - before, u64::from(fresh));
            prop_assert!(ack.is_some() || receiver.wake().is_some());
            prop_assert_eq!(receiver.next(), (0..).find(|n| !seen.contains(n)).unwrap_or(0));
            for block in ack.iter().flat_map(|ack| ack.sacks).filter(|b| !b.is_empty()) {
                // A block is maximal, lies beyond the gap, and contains only segments that arrived.
                prop_assert!((block.start..block.end).all(|n| seen.contains(&n)));
                prop_assert!(block.start > receiver.next());
                prop_assert!(!seen.contains(&(block.start - 1)) && !seen.contains(&block.end));
            }
        }
    }
}
