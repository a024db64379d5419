//! The pacer lets packets go, one at a time, at the rate that the controller decided. It is separate from the
//! controller, and its backlog is bounded.

use crate::{Emit, Frame, FrameKind, Part};
use std::collections::VecDeque;
use steadycast_units::{Bytes, Rate, Span, Time};

/// What waits in the pacer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Bytes of frames not yet sent.
    pub bytes: Bytes,
    /// Frames that were not sent because the backlog was at its bound, or the controller could not afford them.
    pub skipped: u64,
}

#[derive(Debug)]
pub(crate) struct Pacer {
    emit: Emit,
    /// The longest that the backlog may take at the pacing rate; `None` where packets never wait for a rate.
    bound: Option<Span>,
    /// A driver that wakes late may catch up by this much, and no more.
    credit: Span,
    waiting: VecDeque<Pending>,
    backlog: Backlog,
    /// Since a P frame was skipped, no frame can be decoded until the next I frame.
    broken: bool,
    /// When the last packet was due, and its size.
    last: Option<(Time, Bytes)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) frame: Frame,
    /// When it came in.
    pub(crate) since: Time,
    pub(crate) offset: Bytes,
    /// How the rest is cut; empty where only its size counts.
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

    /// Takes a frame, or skips it: false. When the backlog is at its bound, B frames go first, then P frames with all
    /// that depend on them; an I frame is taken and the frames before it that have not begun are skipped.
    pub(crate) fn push(&mut self, now: Time, frame: &Frame, parts: VecDeque<Part>, pacing: Rate) -> bool {
        let full = self.bound.is_some_and(|bound| self.backlog.bytes.at(pacing) > bound);
        match frame.kind {
            FrameKind::I => {
                self.broken = false;
                if full {
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

    /// A frame is not sent, whatever waits: unless it is a B frame, nothing can be decoded until the next I frame.
    pub(crate) fn skip(&mut self, kind: FrameKind) {
        self.broken |= kind != FrameKind::B;
        self.backlog.skipped += 1;
    }

    pub(crate) fn head(&self) -> Option<&Pending> {
        self.waiting.front()
    }

    /// When the next packet may leave.
    pub(crate) fn due(&self, pacing: Rate) -> Time {
        match (self.emit, self.last) {
            (Emit::Paced, Some((at, size))) => at + size.at(pacing),
            _ => Time::ZERO,
        }
    }

    /// `len` bytes of the head leave now in a packet of `size`.
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

    /// A packet of `size` has left.
    pub(crate) fn sent(&mut self, now: Time, size: Bytes, pacing: Rate) {
        self.last = Some((self.due(pacing).max(now.before(self.credit)), size));
    }

    /// So many bytes left sooner than at the pacing rate: the next packet waits for them, too.
    pub(crate) fn owe(&mut self, bytes: Bytes) {
        if let Some((_, size)) = &mut self.last {
            *size += bytes;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.backlog.bytes = Bytes::ZERO;
    }
}
