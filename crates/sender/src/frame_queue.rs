use std::collections::VecDeque;
use steadycast_units::{Bytes, Rate, Span, Time};

/// How other frames depend on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameRole {
    /// It depends on no frame, and all later ones depend on it.
    Key,
    /// Later frames depend on it.
    Reference,
    /// No frame depends on it.
    Disposable,
}

/// The backlog of a [`FrameQueue`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// The unsent bytes.
    pub bytes: Bytes,
    /// The frames skipped because of the backlog or the controller's allowance.
    pub skipped: u64,
}

/// A queued frame, perhaps partly sent.
#[derive(Clone, Debug)]
pub struct QueuedFrame<T> {
    /// The description or packets.
    pub content: T,
    /// When the frame was added.
    pub since: Time,
    /// The bytes already taken.
    pub taken: Bytes,
    size: Bytes,
}

impl<T> QueuedFrame<T> {
    /// Returns the bytes not taken yet.
    pub fn rest(&self) -> Bytes {
        self.size.saturating_sub(self.taken)
    }
}

/// The frames that wait for the pacer, first in, first out.
#[derive(Debug)]
pub struct FrameQueue<T> {
    /// The maximum time of the backlog at the pacing rate; `None` without a limit.
    bound: Option<Span>,
    waiting: VecDeque<QueuedFrame<T>>,
    backlog: Backlog,
    /// A reference frame was skipped, so no frame can be decoded until the next key frame.
    broken: bool,
}

impl<T> FrameQueue<T> {
    /// Creates a queue that is full when its backlog takes longer than `bound`. With `None`, the queue is never full.
    pub const fn new(bound: Option<Span>) -> Self {
        let backlog = Backlog { bytes: Bytes::ZERO, skipped: 0 };
        Self { bound, waiting: VecDeque::new(), backlog, broken: false }
    }

    /// Returns the backlog.
    pub const fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// Returns whether no frame can be decoded until the next key frame.
    pub const fn is_broken(&self) -> bool {
        self.broken
    }

    /// Decides whether a frame is admitted. Returns the frames dropped for it; `None` if the new frame has to be
    /// skipped.
    ///
    /// The queue is full if its bytes and `others` take longer than the bound at the rate `pacing`.
    ///
    /// In a full queue, disposable frames are skipped first, then reference frames. A key frame drops the frames
    /// before it that have not begun.
    pub fn admit(&mut self, role: FrameRole, others: Bytes, pacing: Rate) -> Option<Vec<QueuedFrame<T>>> {
        let full = self.bound.is_some_and(|bound| (self.backlog.bytes + others).at(pacing) > bound);
        let mut dropped = Vec::new();
        match role {
            FrameRole::Key => {
                // A key frame does not depend on skipped frames.
                self.broken = false;
                if full {
                    // Receivers wait for the rest of a begun frame.
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

    /// Adds an admitted frame.
    pub fn add(&mut self, now: Time, size: Bytes, content: T) {
        self.backlog.bytes += size;
        self.waiting.push_back(QueuedFrame { content, since: now, taken: Bytes::ZERO, size });
    }

    /// Adds bytes to the newest frame and returns its content; `None` if no frame waits.
    pub fn extend(&mut self, size: Bytes) -> Option<&mut T> {
        let newest = self.waiting.back_mut()?;
        newest.size += size;
        self.backlog.bytes += size;
        Some(&mut newest.content)
    }

    /// Skips a frame. Unless it is disposable, no frame can be decoded until the next key frame.
    pub fn skip(&mut self, role: FrameRole) {
        self.broken |= role != FrameRole::Disposable;
        self.backlog.skipped += 1;
    }

    /// Returns the oldest frame.
    pub fn head(&self) -> Option<&QueuedFrame<T>> {
        self.waiting.front()
    }

    /// Removes `len` bytes from the oldest frame; `cut` removes them from its content.
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
