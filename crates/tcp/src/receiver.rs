use crate::config::{Config, Congestion, MAX_SEGMENTS, MAX_WINDOW};
use crate::sliding_bitmap::SlidingBitmap;
use crate::wire::{Ack, Block, Segment};
use steadycast_units::{Bytes, Ecn, Span, Time};

/// How the receiver reports CE marks to the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MarkFeedback {
    /// Each acknowledgment has the ECE flag until the sender sends CWR (RFC 3168, section 6.1.3).
    #[default]
    Latched,
    /// An acknowledgment has the ECE flag if the acknowledged segments were marked (RFC 8257, section 3.2).
    Immediate,
    /// Each acknowledgment contains the number of marked segments.
    Counted,
}

/// The receiving end of a TCP connection.
///
/// Read [`Receiver::wake`] again after each call of [`Receiver::on_segment`] and [`Receiver::on_timer`].
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    sack: bool,
    delay: Option<Span>,
    /// Number of acknowledgments that are still sent without delay. Linux starts with 16, so that slow start is not
    /// slowed down.
    quick_acks_left: u32,
    window: u32,
    /// The next expected segment.
    next: u32,
    /// One past the highest segment that has arrived.
    top: u32,
    /// The segments above `next` that have arrived.
    out_of_order: SlidingBitmap,
    out_of_order_count: u32,
    /// The SACK blocks that are reported, newest first. Each block contains all contiguous segments that have arrived.
    blocks: [Block; 3],
    echo: Time,
    /// Value of `next` in the last acknowledgment. The segment with this number provides the timestamp echo.
    acked: u32,
    ece: bool,
    marks: u16,
    mark_feedback: MarkFeedback,
    pending: u32,
    due: Option<Time>,
    /// Total wire size of the segments that have arrived, without duplicates.
    pub distinct: Bytes,
    /// Number of segments that have arrived, without duplicates.
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

    /// Processes a segment. Returns an acknowledgment if one must be sent now. A segment outside the window is counted
    /// as a duplicate.
    #[inline(always)]
    pub fn on_segment(&mut self, now: Time, segment: &Segment) -> Option<Ack> {
        let seq = segment.seq;
        let mut changed = false;
        if self.mark_feedback == MarkFeedback::Latched {
            // Process CWR before the CE mark. A mark on the same segment must start a new report (RFC 3168,
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
        // Echo the timestamp of the earliest segment that the acknowledgment covers. The measured RTT then includes the
        // acknowledgment delay (RFC 7323, section 4.3).
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
            // Acknowledge immediately, because the segment filled a gap (RFC 5681, section 4.2).
            return Some(self.acknowledge());
        }
        // Check the window first, because `out_of_order` has no bits for segments outside it.
        let inside = seq > self.next && seq - self.next < self.window && seq < MAX_SEGMENTS;
        if inside && self.is_new(seq) {
            self.count_arrival(segment);
            self.record_out_of_order(seq);
        } else {
            self.duplicates += 1;
        }
        Some(self.acknowledge())
    }

    /// Returns when [`Receiver::on_timer`] must be called. Returns `None` if no acknowledgment is delayed.
    pub fn wake(&self) -> Option<Time> {
        self.due
    }

    /// Returns the delayed acknowledgment if it is due at `now`.
    pub fn on_timer(&mut self, now: Time) -> Option<Ack> {
        (self.due? <= now).then(|| self.acknowledge())
    }

    /// Returns the number of segments that were duplicates or outside the window.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }
    /// Returns the number of the next expected segment.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Records whether a segment is marked, for DCTCP and Prague. Returns whether the ECE flag changes with this
    /// segment.
    fn record_mark(&mut self, segment: &Segment) -> bool {
        let marked = segment.ecn == Ecn::Ce;
        if self.mark_feedback == MarkFeedback::Counted {
            self.marks = self.marks.wrapping_add(u16::from(marked));
            return false;
        }
        // Ignore a segment that is not ECN-capable, such as a retransmission. It can't be marked.
        segment.ecn != Ecn::NotEct && marked != self.ece && {
            self.ece = marked;
            true
        }
    }

    /// Acknowledges the pending segments. This is necessary because their mark differs from the mark of `segment`
    /// (RFC 8257, section 3.2).
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
        // Usually a recent block is adjacent to the segment. Using it avoids a search.
        let at_left = self.blocks.iter().find(|b| !b.is_empty() && b.end == seq).map(|b| b.start);
        let at_right = self.blocks.iter().find(|b| !b.is_empty() && b.start == seq + 1).map(|b| b.end);
        let start = at_left
            .unwrap_or_else(|| self.out_of_order.last_clear(self.next, seq).map_or(self.next, |clear| clear + 1));
        let end = at_right.unwrap_or_else(|| self.out_of_order.first_clear(seq, self.top).unwrap_or(self.top));
        let mut blocks = [Block { start, end }, Block::default(), Block::default()];
        // Put the new block first. Then keep the other blocks, except those that the new block contains (RFC 2018,
        // section 4).
        let others = self.blocks.iter().filter(|b| !b.is_empty() && (b.end <= start || b.start >= end));
        for (slot, other) in blocks[1..].iter_mut().zip(others) {
            *slot = *other;
        }
        self.blocks = blocks;
    }

    /// Moves `next` past the segments that have already arrived out of order.
    fn fill_gap(&mut self) {
        let from = self.next;
        let end = self.out_of_order.first_clear(from, self.top).unwrap_or(self.top);
        self.out_of_order.clear_range(from, end);
        self.out_of_order_count -= end - from;
        self.next = end;
        self.top = self.top.max(end);
        // Remove blocks below the cumulative acknowledgment, because they are obsolete.
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
