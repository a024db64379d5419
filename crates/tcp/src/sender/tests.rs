//! The sender compared with a kernel. It processes the acknowledgments that a kernel's TCP received, recorded by
//! `python -m validation.kernel --write`.

use super::{Poll, Sender};
use crate::{Ack, Block, Config, Congestion, Preset};
use steadycast_units::{Span, Time};

/// The number of samples in the first five seconds.
const SETTLED: usize = 50;

/// Window and threshold of the model and of the kernel at the same time.
struct Sample {
    model: (f64, f64),
    kernel: (f64, f64),
}

struct Replay {
    sender: Sender,
    now: Time,
    /// The time at which each segment was last sent.
    sent: Vec<Time>,
    una: u32,
}

impl Replay {
    fn drain(&mut self) {
        while let Poll::Send(segment) = self.sender.poll(self.now) {
            let seq = segment.seq as usize;
            self.sent.resize(self.sent.len().max(seq + 1), self.now);
            self.sent[seq] = self.now;
        }
    }

    /// Processes the time-outs until `now`.
    fn until(&mut self, now: Time) {
        while let Some(due) = self.sender.wake().filter(|due| *due <= now) {
            self.now = due;
            self.sender.on_timer(due);
            self.drain();
        }
        self.now = now;
    }

    fn on_ack(&mut self, next: u32, sacks: [Block; 3]) {
        // A segment that has arrived was sent, even if the model has not sent it yet.
        let sent_to = sacks.iter().map(|block| block.end).fold(next, u32::max);
        if sent_to > self.sender.max {
            self.sender.max = sent_to;
            self.sender.scoreboard.on_sent_to(sent_to);
            self.sent.resize(sent_to as usize, self.now);
        }
        let measured = if next > self.una { self.una } else { sacks[0].start };
        let echo = self.sent.get(measured as usize).copied().unwrap_or(self.now);
        self.una = self.una.max(next);
        self.sender.on_ack(self.now, &Ack { next, sacks, echo, ece: false, marks: 0 });
        self.drain();
    }
}

fn block(text: &str) -> Block {
    let (start, end) = text.split_once('-').expect("start-end");
    Block { start: start.parse().expect("a number"), end: end.parse().expect("a number") }
}

/// Replays a record. A line `a MICROSECONDS NEXT START-END…` is an acknowledgment as it arrived at the sender. A line
/// `w MICROSECONDS CWND SSTHRESH` is the kernel's state after that acknowledgment.
fn replay(recorded: &str, congestion: Congestion) -> Vec<Sample> {
    let sender = Sender::new(&Config::new(Preset::Linux, congestion));
    let mut replay = Replay { sender, now: Time::ZERO, sent: vec![], una: 0 };
    replay.drain();
    let mut samples = vec![];
    for line in recorded.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        replay.until(Time::ZERO + Span::micros(words[1].parse().expect("a number")));
        if words[0] == "a" {
            let mut sacks = [Block::default(); 3];
            for (slot, text) in sacks.iter_mut().zip(&words[3..]) {
                *slot = block(text);
            }
            replay.on_ack(words[2].parse().expect("a number"), sacks);
        } else {
            let kernel = (words[2].parse().expect("a number"), words[3].parse().expect("a number or inf"));
            samples.push(Sample { model: (replay.sender.cwnd, replay.sender.ssthresh), kernel });
        }
    }
    samples
}

fn assert_between(value: f64, low: f64, high: f64) {
    assert!((low..=high).contains(&value), "{value} is not in {low} … {high}");
}

fn share(of: &[Sample], is: impl Fn(&Sample) -> bool) -> f64 {
    of.iter().filter(|sample| is(sample)).count() as f64 / of.len() as f64
}

#[test]
fn fed_with_a_kernels_acknowledgments_the_window_is_the_kernels() {
    for (congestion, recorded) in
        [(Congestion::Cubic, include_str!("kernel-cubic.txt")), (Congestion::Reno, include_str!("kernel-reno.txt"))]
    {
        let all = replay(recorded, congestion);
        let same = share(&all, |s| (s.model.1 - s.kernel.1).abs() <= 2.0 || s.model.1 > 1e5 && s.kernel.1 > 1e5);
        // Skip the first five seconds, because the kernel's Reno needs longer than the model's to recover from the
        // overflow of slow start.
        let samples = &all[SETTLED..];
        let mean = |of: &dyn Fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / samples.len() as f64;
        let kernel = mean(&|s| s.kernel.0);
        let bias = mean(&|s| s.model.0 - s.kernel.0);
        let near = share(samples, |s| (s.model.0 - s.kernel.0).abs() <= 2.0);
        let reductions = samples.windows(2).filter(|w| w[0].kernel.1 != w[1].kernel.1).count();
        println!(
            "{congestion}: {kernel:.2} segments, {bias:+.2}; within two {near:.3}, thresholds {same:.3} over \
                {reductions}"
        );
        assert_between(kernel, 25.0, 45.0);
        assert_between(reductions as f64, 3.0, 20.0);
        assert_between(bias, -1.0, 1.0);
        assert_between(near, 0.95, 1.0);
        assert_between(same, 0.95, 1.0);
    }
}

#[test]
fn a_kernels_acknowledgments_of_cubic_are_not_those_of_reno() {
    let samples = replay(include_str!("kernel-cubic.txt"), Congestion::Reno);
    assert_between(share(&samples, |s| (s.model.0 - s.kernel.0).abs() <= 1.0), 0.0, 0.4);
}
