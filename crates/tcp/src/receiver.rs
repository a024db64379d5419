use crate::config::{Config, Congestion, MAX_SEGMENTS, MAX_WINDOW};
use crate::sliding_bitmap::SlidingBitmap;
use crate::wire::{Ack, Block, Segment};
use steadycast_units::{Bytes, Ecn, Span, Time};

/// How CE marks are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MarkFeedback {
    /// ECE until the sender sends CWR (RFC 3168, section 6.1.3).
    #[default]
    Latched,
    /// ECE if the acknowledged segments were marked (RFC 8257, section 3.2).
    Immediate,
    /// The number of marked segments.
    Counted,
}

/// The receiving end of the connection.
///
/// Read [`Receiver::wake`] again after each call of [`Receiver::on_segment`] and [`Receiver::on_timer`].
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    sack: bool,
    delay: Option<Span>,
    /// The remaining number of immediate acknowledgments. Linux starts with 16, so that slow start is not delayed.
    quick_acks_left: u32,
    window: u32,
    /// The next expected segment.
    next: u32,
    /// One past the highest segment that has arrived.
    top: u32,
    /// The segments that have arrived beyond `next`.
    out_of_order: SlidingBitmap,
    out_of_order_count: u32,
    /// The reported SACK blocks, newest first. Each contains all contiguous arrivals.
    blocks: [Block; 3],
    echo: Time,
    /// `next` in the last acknowledgment. The timestamp echo comes from the segment with this number.
    acked: u32,
    ece: bool,
    marks: u16,
    mark_feedback: MarkFeedback,
    pending: u32,
    due: Option<Time>,
    /// The wire size of the distinct segments that have arrived.
    pub distinct: Bytes,
    /// The distinct segments that have arrived.
    pub distinct_segments: u64,
    duplicates: u64,
}

impl Receiver {
    /// Creates a receiver that expects segment 0.
    pub fn new(config: &Config) -> Self {
        Self {
            sack: config.uses_sack(),
            delay: config.delayed_ack.then_some(config.delayed_ack_timeout),
            quick_acks_left: config.quick_acks,
            window: config.window.clamp(1, MAX_WINDOW),
            mark_feedback: match config.congestion {
                Congestion::Dctcp => MarkFeedback::Immediate,
                Congestion::Prague => MarkFeedback::Counted,
                _ => MarkFeedback::Latched,
            },
            ..Self::default()
        }
    }

    /// Processes a segment. Returns the acknowledgment to send now, if any. A segment outside the window counts as a
    /// duplicate.
    #[inline(always)]
    pub fn on_segment(&mut self, now: Time, segment: &Segment) -> Option<Ack> {
        let seq = segment.seq;
        let mut changed = false;
        if self.mark_feedback == MarkFeedback::Latched {
            // CWR is processed before the CE mark, because a mark on the same segment starts a new report (RFC 3168,
            // section 6.1.3).
            if segment.cwr {
                self.ece = false;
            }
            if segment.ecn == Ecn::Ce {
                self.ece = true;
            }
        } else {
            changed = self.record_mark(segment);
            if changed && self.pending > 0 {
                return Some(self.acknowledge_pending(now, segment));
            }
        }
        // The echo is of the earliest segment covered, so the RTT includes the delay (RFC 7323, section 4.3).
        if seq == self.acked || self.delay.is_none() && seq <= self.next {
            self.echo = segment.sent;
        }
        let in_order = seq == self.next && seq < MAX_SEGMENTS;
        if in_order && self.out_of_order_count == 0 {
            self.count_arrival(segment);
            self.next += 1;
            self.top = self.next;
            return self.in_order(now, segment.push || changed);
        }
        if in_order {
            self.count_arrival(segment);
            self.next += 1;
            self.fill_gap();
            // RFC 5681, section 4.2.
            return Some(self.acknowledge());
        }
        // `out_of_order` has no bits for segments outside the window.
        let inside = seq > self.next && seq - self.next < self.window && seq < MAX_SEGMENTS;
        if inside && self.is_new(seq) {
            self.count_arrival(segment);
            self.record_out_of_order(seq);
        } else {
            self.duplicates += 1;
        }
        Some(self.acknowledge())
    }

    /// Returns when [`Receiver::on_timer`] is due, if an acknowledgment is delayed.
    pub fn wake(&self) -> Option<Time> {
        self.due
    }

    /// Returns the delayed acknowledgment if it is due at `now`.
    pub fn on_timer(&mut self, now: Time) -> Option<Ack> {
        (self.due? <= now).then(|| self.acknowledge())
    }

    /// Returns the segments that were duplicates or outside the window.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }
    /// Returns the next expected segment.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Records a mark for DCTCP and Prague. Returns whether ECE changes with this segment.
    fn record_mark(&mut self, segment: &Segment) -> bool {
        let marked = segment.ecn == Ecn::Ce;
        if self.mark_feedback == MarkFeedback::Counted {
            self.marks = self.marks.wrapping_add(u16::from(marked));
            return false;
        }
        // A retransmission is not ECN-capable, so it shows nothing.
        segment.ecn != Ecn::NotEct && marked != self.ece && {
            self.ece = marked;
            true
        }
    }

    /// Acknowledges the pending segments, whose mark differs from that of `segment` (RFC 8257, section 3.2).
    #[cold]
    fn acknowledge_pending(&mut self, now: Time, segment: &Segment) -> Ack {
        self.ece = !self.ece;
        let before = self.acknowledge();
        self.ece = !self.ece;
        if self.on_segment(now, segment).is_some() {
            self.due = Some(now);
        }
        before
    }

    fn count_arrival(&mut self, segment: &Segment) {
        self.distinct += segment.len;
        self.distinct_segments += 1;
    }

    #[inline(always)]
    fn in_order(&mut self, now: Time, push: bool) -> Option<Ack> {
        let Some(delay) = self.delay else {
            return Some(self.acknowledge());
        };
        self.pending += 1;
        if self.pending >= 2
            || push
            || self.quick_acks_left > 0
            || self.ece && self.mark_feedback == MarkFeedback::Latched
        {
            self.quick_acks_left = self.quick_acks_left.saturating_sub(1);
            return Some(self.acknowledge());
        }
        self.due = Some(now + delay);
        None
    }

    fn is_new(&self, seq: u32) -> bool {
        seq >= self.top || !self.out_of_order.get(seq)
    }

    fn record_out_of_order(&mut self, seq: u32) {
        self.top = self.top.max(seq + 1);
        self.out_of_order.reserve(self.next, self.top);
        self.out_of_order.set(seq);
        self.out_of_order_count += 1;
        if !self.sack {
            return;
        }
        // Usually a recent block is adjacent, which saves a search.
        let at_left = self.blocks.iter().find(|b| !b.is_empty() && b.end == seq).map(|b| b.start);
        let at_right = self.blocks.iter().find(|b| !b.is_empty() && b.start == seq + 1).map(|b| b.end);
        let start = at_left
            .unwrap_or_else(|| self.out_of_order.last_clear(self.next, seq).map_or(self.next, |clear| clear + 1));
        let end = at_right.unwrap_or_else(|| self.out_of_order.first_clear(seq, self.top).unwrap_or(self.top));
        let mut blocks = [Block { start, end }, Block::default(), Block::default()];
        // Blocks that the new one touches are merged into it (RFC 2018, section 4).
        let others = self.blocks.iter().filter(|b| !b.is_empty() && (b.end <= start || b.start >= end));
        for (slot, other) in blocks[1..].iter_mut().zip(others) {
            *slot = *other;
        }
        self.blocks = blocks;
    }

    /// Moves `next` past the out-of-order segments.
    fn fill_gap(&mut self) {
        let from = self.next;
        let end = self.out_of_order.first_clear(from, self.top).unwrap_or(self.top);
        self.out_of_order.clear_range(from, end);
        self.out_of_order_count -= end - from;
        self.next = end;
        self.top = self.top.max(end);
        // Blocks below the cumulative acknowledgment are obsolete.
        let mut kept = [Block::default(); 3];
        let still = self.blocks.iter().filter(|b| !b.is_empty() && b.start > end);
        for (slot, block) in kept.iter_mut().zip(still) {
            *slot = *block;
        }
        self.blocks = kept;
    }

    #[inline(always)]
    fn acknowledge(&mut self) -> Ack {
        self.pending = 0;
        self.due = None;
        self.acked = self.next;
        Ack { next: self.next, sacks: self.blocks, echo: self.echo, ece: self.ece, marks: self.marks }
    }
}
