//! A path with one bottleneck, a drop-tail queue and a fixed delay. The reverse path never queues.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use steadycast_tcp::{Ack, Config, Ecn, Poll, Receiver, Segment, SendLimit, Sender};
use steadycast_units::{Chance, Rate, Seed, Span, Time};

/// The path's properties and impairments.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) rate: Rate,
    /// The one-way delay, equal in both directions.
    pub(crate) delay: Span,
    /// The segments that the queue holds, the one on the transmitter included.
    pub(crate) buffer: usize,
    /// The sequence numbers whose first n transmissions are dropped, with n.
    pub(crate) drop: Vec<(u32, u32)>,
    /// The random loss of segments and acknowledgments.
    pub(crate) loss: f64,
    pub(crate) ack_loss: f64,
    /// The sequence numbers whose first transmission is delayed, with the extra delay.
    pub(crate) late: Vec<(u32, Span)>,
    /// The probability that a segment is marked.
    pub(crate) mark: f64,
    /// The wait above which every segment is marked.
    pub(crate) mark_above: Span,
    pub(crate) seed: u64,
}

impl Path {
    pub(crate) fn new(rate: Rate, delay: Span, buffer: usize) -> Self {
        Self {
            rate,
            delay,
            buffer,
            drop: vec![],
            loss: 0.0,
            ack_loss: 0.0,
            late: vec![],
            mark: 0.0,
            mark_above: Span::MAX,
            seed: 1,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Segment(usize),
    Ack(usize),
    SenderTimer,
    ReceiverTimer,
}

/// A transmission and its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    pub(crate) at: Time,
    pub(crate) segment: Segment,
}

pub(crate) struct Run {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) now: Time,
    pub(crate) sent: Vec<Departure>,
    pub(crate) acks: Vec<(Time, Ack)>,
    /// The time, cwnd and ssthresh after each acknowledgment.
    pub(crate) windows: Vec<(Time, f64, f64)>,
    pub(crate) last_limit: Option<SendLimit>,
    pub(crate) queue_drops: u64,
    pub(crate) max_queue: Span,
    /// The time, state of BBR, alpha and segments in flight after each acknowledgment.
    pub(crate) states: Vec<(Time, &'static str, f64, u32)>,
    /// The queueing delay of each accepted segment.
    pub(crate) waits: Vec<(Time, Span)>,
    keep_trace: bool,
    path: Path,
    heap: BinaryHeap<Reverse<(Time, u64, What)>>,
    order: u64,
    segments: Vec<Segment>,
    in_ack: Vec<Ack>,
    free_at: Time,
    to_drop: Vec<(u32, u32)>,
    delayed: BTreeSet<u32>,
    chance: Chance,
    back: Chance,
    marks: Chance,
}

impl Run {
    pub(crate) fn new(config: &Config, path: &Path) -> Self {
        Self {
            sender: Sender::new(config),
            receiver: Receiver::new(config),
            now: Time::ZERO,
            sent: vec![],
            acks: vec![],
            windows: vec![],
            last_limit: None,
            queue_drops: 0,
            max_queue: Span::ZERO,
            states: vec![],
            waits: vec![],
            keep_trace: true,
            path: path.clone(),
            heap: BinaryHeap::new(),
            order: 0,
            segments: vec![],
            in_ack: vec![],
            free_at: Time::ZERO,
            to_drop: path.drop.clone(),
            delayed: BTreeSet::new(),
            chance: Seed(path.seed).part("forward"),
            back: Seed(path.seed).part("back"),
            marks: Seed(path.seed).part("marks"),
        }
    }

    pub(crate) fn untraced(mut self) -> Self {
        self.keep_trace = false;
        self
    }

    fn push(&mut self, at: Time, what: What) {
        self.order += 1;
        self.heap.push(Reverse((at, self.order, what)));
    }

    fn carry(&mut self, mut segment: Segment) {
        let listed = self.to_drop.iter_mut().find(|(seq, left)| *seq == segment.seq && *left > 0);
        let lost = match listed {
            Some((_, left)) => {
                *left -= 1;
                true
            }
            None => self.chance.happens(self.path.loss),
        };
        let wait = self.free_at.since(self.now);
        let capable = matches!(segment.ecn, Ecn::Ect0 | Ecn::Ect1);
        let at_random = self.path.mark > 0.0 && capable && self.marks.happens(self.path.mark);
        if at_random || capable && wait > self.path.mark_above {
            segment.ecn = Ecn::Ce;
        }
        let one = segment.len.at(self.path.rate);
        let full = wait > one * (self.path.buffer as u64 - 1);
        if full {
            self.queue_drops += 1;
        }
        if self.keep_trace {
            self.sent.push(Departure { at: self.now, segment });
        }
        if full {
            return;
        }
        self.max_queue = self.max_queue.max(wait);
        if self.keep_trace {
            self.waits.push((self.now, wait));
        }
        self.free_at = self.free_at.max(self.now) + one;
        if lost {
            return;
        }
        let mut at = self.free_at + self.path.delay;
        if let Some((_, by)) = self.path.late.iter().find(|(seq, _)| *seq == segment.seq)
            && self.delayed.insert(segment.seq)
        {
            at += *by;
        }
        self.segments.push(segment);
        self.push(at, What::Segment(self.segments.len() - 1));
    }

    fn send_ack(&mut self, ack: Option<Ack>) {
        if let Some(ack) = ack
            && !self.back.happens(self.path.ack_loss)
        {
            self.in_ack.push(ack);
            self.push(self.now + self.path.delay, What::Ack(self.in_ack.len() - 1));
        }
        if let Some(due) = self.receiver.wake() {
            self.push(due, What::ReceiverTimer);
        }
    }

    /// Polls until the sender waits. The timer must then run if anything is outstanding.
    fn drain(&mut self) {
        loop {
            match self.sender.poll(self.now) {
                Poll::Send(segment) => self.carry(segment),
                Poll::Wait { until, limit } => {
                    let until = until.unwrap_or_else(|| panic!("waits for ever: {limit:?}"));
                    assert_eq!(Some(until), self.sender.wake());
                    assert!(until > self.now, "wakes at {until}, it is {}", self.now);
                    self.last_limit = Some(limit);
                    self.push(until, What::SenderTimer);
                    return;
                }
                Poll::Done => return,
            }
        }
    }

    /// Gives the sender more segments from the application.
    pub(crate) fn offer(&mut self, segments: u32) {
        self.sender.offer(self.now, segments);
        self.drain();
    }

    /// Runs until `end`, or until everything is acknowledged.
    pub(crate) fn until(&mut self, end: Time) -> &mut Self {
        self.drain();
        while self.sender.completed.is_none() {
            let Some(&Reverse((at, _, what))) = self.heap.peek() else { break };
            if at > end {
                break;
            }
            self.heap.pop();
            self.now = at;
            match what {
                What::Segment(i) => {
                    let segment = self.segments[i];
                    let ack = self.receiver.on_segment(at, &segment);
                    self.send_ack(ack);
                }
                What::Ack(i) => {
                    let ack = self.in_ack[i];
                    self.sender.on_ack(at, &ack);
                    if self.keep_trace {
                        self.acks.push((at, ack));
                        self.windows.push((at, self.sender.cwnd, self.sender.ssthresh));
                        let state = self.sender.state_name().unwrap_or_default();
                        let alpha = self.sender.marked_share().unwrap_or_default();
                        self.states.push((at, state, alpha, self.sender.in_flight()));
                    }
                    self.drain();
                }
                What::SenderTimer => {
                    if self.sender.wake().is_some_and(|due| due <= at) {
                        self.sender.on_timer(at);
                        self.drain();
                    }
                }
                What::ReceiverTimer => {
                    let ack = self.receiver.on_timer(at);
                    if ack.is_some() {
                        self.send_ack(ack);
                    }
                }
            }
        }
        if self.sender.completed.is_none() {
            self.now = end;
        }
        self
    }
}

pub(crate) fn at(seconds: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(seconds)
}

#[track_caller]
pub(crate) fn assert_between(value: f64, low: f64, high: f64) {
    assert!((low..=high).contains(&value), "{value} is not in {low} … {high}");
}
