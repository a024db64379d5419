use std::collections::VecDeque;
use steadycast_units::{Bytes, Rate, Span, Time};

/// The dependence of other frames on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameRole {
    /// The frame depends on no other frame, and all later frames depend on it.
    Key,
    /// Later frames depend on this frame.
    Reference,
    /// No other frame depends on this frame.
    Disposable,
}

/// The backlog of a [`FrameQueue`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Bytes of frames that have not been sent.
    pub bytes: Bytes,
    /// The number of frames that were skipped, because the backlog was full or the controller's allowance was used up.
    pub skipped: u64,
}

/// A frame in the queue that has not been sent, or only in part.
#[derive(Clone, Debug)]
pub struct QueuedFrame<T> {
    /// The frame's description or packets.
    pub content: T,
    /// The time at which the frame was added.
    pub since: Time,
    /// The number of the frame's bytes that were taken to be sent.
    pub taken: Bytes,
    size: Bytes,
}

impl<T> QueuedFrame<T> {
    /// Returns the number of the frame's bytes that were not taken yet.
    pub fn rest(&self) -> Bytes {
        self.size.saturating_sub(self.taken)
    }
}

/// The frames that wait for the pacer, first in, first out, with a bounded backlog.
#[derive(Debug)]
pub struct FrameQueue<T> {
    /// The maximum time of the backlog at the pacing rate; `None` if packets never wait for the rate.
    bound: Option<Span>,
    waiting: VecDeque<QueuedFrame<T>>,
    backlog: Backlog,
    /// Whether a reference frame was skipped. No frame can then be decoded until the next key frame.
    broken: bool,
}

impl<T> FrameQueue<T> {
    /// Creates an empty queue. The queue is full when its backlog takes longer than `bound`; with `None` it is never
    /// full.
    pub const fn new(bound: Option<Span>) -> Self {
        let backlog = Backlog { bytes: Bytes::ZERO, skipped: 0 };
        Self { bound, waiting: VecDeque::new(), backlog, broken: false }
    }

    /// Returns the backlog.
    pub const fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// Returns true if no frame can be decoded until the next key frame, because one that others depend on was skipped.
    pub const fn is_broken(&self) -> bool {
        self.broken
    }

    /// Decides whether a frame is admitted. The backlog is the time that the bytes of this queue and of the other
    /// queues (`others`) take at the rate `pacing`. Returns `None` if the frame has to be skipped, and otherwise the
    /// frames that were dropped in its favour.
    ///
    /// If the queue is full, disposable frames are skipped first, then reference frames with all frames that depend on
    /// them. A key frame is never skipped. It drops the frames before it whose sending has not begun.
    pub fn admit(&mut self, role: FrameRole, others: Bytes, pacing: Rate) -> Option<Vec<QueuedFrame<T>>> {
        let full = self.bound.is_some_and(|bound| (self.backlog.bytes + others).at(pacing) > bound);
        let mut dropped = Vec::new();
        match role {
            FrameRole::Key => {
                // A key frame does not depend on skipped frames, so decoding can resume.
                self.broken = false;
                if full {
                    // A frame whose first packets were sent is completed, because receivers wait for its rest, which is
                    // small.
                    let begun = self.waiting.front().is_some_and(|frame| frame.taken > Bytes::ZERO);
                    dropped.extend(self.waiting.drain(usize::from(begun)..));
                    self.backlog.skipped += dropped.len() as u64;
                    let bytes = dropped.iter().fold(Bytes::ZERO, |bytes, frame| bytes + frame.rest());
                    self.backlog.bytes = self.backlog.bytes.saturating_sub(bytes);
                }
            }
            FrameRole::Reference if full => self.broken = true,
            FrameRole::Reference | FrameRole::Disposable => {}
        }
        if self.broken || (full && role == FrameRole::Disposable) {
            self.backlog.skipped += 1;
            return None;
        }
        Some(dropped)
    }

    /// Adds a frame that was admitted.
    pub fn add(&mut self, now: Time, size: Bytes, content: T) {
        self.backlog.bytes += size;
        self.waiting.push_back(QueuedFrame { content, since: now, taken: Bytes::ZERO, size });
    }

    /// Adds `size` bytes to the newest frame and returns its content; `None` if no frame waits.
    pub fn extend(&mut self, size: Bytes) -> Option<&mut T> {
        let newest = self.waiting.back_mut()?;
        newest.size += size;
        self.backlog.bytes += size;
        Some(&mut newest.content)
    }

    /// Skips a frame independently of the backlog. Unless it is disposable, no frame can be decoded until the next key
    /// frame.
    pub fn skip(&mut self, role: FrameRole) {
        self.broken |= role != FrameRole::Disposable;
        self.backlog.skipped += 1;
    }

    /// Returns the oldest frame.
    pub fn head(&self) -> Option<&QueuedFrame<T>> {
        self.waiting.front()
    }

    /// Removes `len` bytes, which are sent now, from the oldest frame. `cut` removes them from the frame's content.
    pub fn take<R>(&mut self, len: Bytes, cut: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.backlog.bytes = self.backlog.bytes.saturating_sub(len);
        let head = self.waiting.front_mut()?;
        head.taken += len;
        let part = cut(&mut head.content);
        if head.rest() == Bytes::ZERO {
            self.waiting.pop_front();
        }
        Some(part)
    }

    /// Removes all frames.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.backlog.bytes = Bytes::ZERO;
    }
}
