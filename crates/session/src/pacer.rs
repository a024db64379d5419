//! The pacer sends packets one at a time at the rate that the controller decided. It is separate from the controller,
//! and its backlog is bounded.

use crate::{Emit, Frame, FrameKind, Part};
use std::collections::VecDeque;
use steadycast_units::{Bytes, Rate, Span, Time};

/// The pacer's backlog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Bytes of frames that have not been sent.
    pub bytes: Bytes,
    /// Frames that were skipped, because the backlog was full or the controller's allowance was used up.
    pub skipped: u64,
}

#[derive(Debug)]
pub(crate) struct Pacer {
    emit: Emit,
    /// The maximum time of the backlog at the pacing rate; `None` if packets never wait for the rate.
    bound: Option<Span>,
    /// The maximum time that a late wake-up may catch up.
    credit: Span,
    waiting: VecDeque<Pending>,
    backlog: Backlog,
    /// Whether a reference frame was skipped. No frame can then be decoded until the next I frame.
    broken: bool,
    /// The time at which the last packet was due, and its size.
    last: Option<(Time, Bytes)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) frame: Frame,
    /// The time at which the frame was added.
    pub(crate) since: Time,
    pub(crate) offset: Bytes,
    /// The parts that have not been sent; empty if only the size matters.
    pub(crate) parts: VecDeque<Part>,
}

impl Pending {
    pub(crate) fn rest(&self) -> Bytes {
        self.frame.size.saturating_sub(self.offset)
    }
}

impl Pacer {
    pub(crate) fn new(emit: Emit, bound: Option<Span>, credit: Span) -> Self {
        let waiting = VecDeque::new();
        Self { emit, bound, credit, waiting, backlog: Backlog::default(), broken: false, last: None }
    }

    pub(crate) const fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// Adds a frame, or skips it and returns false. If the backlog is full, B frames are skipped first, then P frames
    /// with all that depend on them. An I frame is always added, and the frames before it whose sending has not begun
    /// are dropped.
    pub(crate) fn push(&mut self, now: Time, frame: &Frame, parts: VecDeque<Part>, pacing: Rate) -> bool {
        let full = self.bound.is_some_and(|bound| self.backlog.bytes.at(pacing) > bound);
        match frame.kind {
            FrameKind::I => {
                self.broken = false;
                if full {
                    // A frame whose first packets were sent is completed, as its rest is small and receivers wait for
                    // it.
                    let begun = self.waiting.front().is_some_and(|p| p.offset > Bytes::ZERO);
                    let dropped = self
                        .waiting
                        .drain(usize::from(begun)..)
                        .fold((0, Bytes::ZERO), |(n, b), p| (n + 1, b + p.rest()));
                    self.backlog.skipped += dropped.0;
                    self.backlog.bytes = self.backlog.bytes.saturating_sub(dropped.1);
                }
            }
            FrameKind::P if full => self.broken = true,
            _ => {}
        }
        if self.broken || (full && frame.kind == FrameKind::B) {
            self.backlog.skipped += 1;
            return false;
        }
        self.backlog.bytes += frame.size;
        self.waiting.push_back(Pending { frame: *frame, since: now, offset: Bytes::ZERO, parts });
        true
    }

    /// Skips a frame independently of the backlog. Unless it is a B frame, no frame can be decoded until the next I
    /// frame.
    pub(crate) fn skip(&mut self, kind: FrameKind) {
        self.broken |= kind != FrameKind::B;
        self.backlog.skipped += 1;
    }

    pub(crate) fn head(&self) -> Option<&Pending> {
        self.waiting.front()
    }

    /// Returns when the next packet may be sent.
    pub(crate) fn due(&self, pacing: Rate) -> Time {
        match (self.emit, self.last) {
            (Emit::Paced, Some((at, size))) => at + size.at(pacing),
            _ => Time::ZERO,
        }
    }

    /// Removes `len` bytes from the first frame, which are sent now.
    pub(crate) fn take(&mut self, len: Bytes) {
        self.backlog.bytes = self.backlog.bytes.saturating_sub(len);
        if let Some(head) = self.waiting.front_mut() {
            head.offset += len;
            head.parts.pop_front();
            if head.rest() == Bytes::ZERO {
                self.waiting.pop_front();
            }
        }
    }

    /// Charges a packet of `size` that was sent at the rate `pacing`.
    pub(crate) fn sent(&mut self, now: Time, size: Bytes, pacing: Rate) {
        // The due time, not the wake-up time, is the reference: a late wake-up must not lower the rate. The credit
        // bounds the burst that follows one.
        self.last = Some((self.due(pacing).max(now.before(self.credit)), size));
    }

    /// Charges bytes that were sent sooner than at the pacing rate, so that the next packet waits for them as well.
    pub(crate) fn charge_early(&mut self, bytes: Bytes) {
        if let Some((_, size)) = &mut self.last {
            *size += bytes;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.backlog.bytes = Bytes::ZERO;
    }
}
