use std::collections::VecDeque;
use steadycast_units::{Bytes, Rate, Span, Time};

/// Whether other frames depend on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameRole {
    /// The frame depends on no other frame, and all later frames depend on it.
    Key,
    /// Later frames depend on the frame.
    Reference,
    /// No other frame depends on the frame.
    Disposable,
}

/// The backlog of a [`FrameQueue`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// The bytes that wait in the queue.
    pub bytes: Bytes,
    /// Number of frames that were skipped because of the backlog or the controller's allowance.
    pub skipped: u64,
}

/// A frame in the queue. A part of it may have been sent already.
#[derive(Clone, Debug)]
pub struct QueuedFrame<T> {
    /// The frame's packets, or the caller's description of the frame.
    pub content: T,
    /// When the frame was added.
    pub since: Time,
    /// The bytes that have been taken from the frame for sending.
    pub taken: Bytes,
    size: Bytes,
}

impl<T> QueuedFrame<T> {
    /// Returns the number of bytes that have not been taken yet.
    pub fn rest(&self) -> Bytes {
        self.size.saturating_sub(self.taken)
    }
}

/// Frames that wait for the pacer, in the order in which they are sent.
#[derive(Debug)]
pub struct FrameQueue<T> {
    /// The queue is full when sending its backlog at the pacing rate takes longer than this. With `None`, it is never
    /// full.
    bound: Option<Span>,
    waiting: VecDeque<QueuedFrame<T>>,
    backlog: Backlog,
    /// Whether a reference frame has been skipped. No frame can then be decoded until the next key frame.
    broken: bool,
}

impl<T> FrameQueue<T> {
    /// Creates a queue. It is full when sending its backlog at the pacing rate takes longer than `bound`. With `None`,
    /// it is never full.
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

    /// Decides whether a frame is added to the queue. Returns the frames that are dropped in favour of this frame, or
    /// `None` if this frame has to be skipped.
    ///
    /// The queue is full if sending its bytes and `others` at the rate `pacing` takes longer than the bound.
    ///
    /// A full queue skips disposable and reference frames. After a skipped reference frame, the queue skips all frames
    /// until the next key frame. A key frame is always added. In a full queue, the key frame replaces all frames of
    /// which no part has been sent.
    pub fn admit(&mut self, role: FrameRole, others: Bytes, pacing: Rate) -> Option<Vec<QueuedFrame<T>>> {
        let full = self.bound.is_some_and(|bound| (self.backlog.bytes + others).at(pacing) > bound);
        let mut dropped = Vec::new();
        match role {
            FrameRole::Key => {
                // From now on frames can be decoded again, because a key frame does not depend on skipped frames.
                self.broken = false;
                if full {
                    // Keep a frame that has been sent in part, because receivers wait for the rest of it.
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

    /// Adds a frame that [`FrameQueue::admit`] has accepted.
    pub fn add(&mut self, now: Time, size: Bytes, content: T) {
        self.backlog.bytes += size;
        self.waiting.push_back(QueuedFrame { content, since: now, taken: Bytes::ZERO, size });
    }

    /// Adds bytes to the newest frame and returns its content. Returns `None` if the queue is empty.
    pub fn extend(&mut self, size: Bytes) -> Option<&mut T> {
        let newest = self.waiting.back_mut()?;
        newest.size += size;
        self.backlog.bytes += size;
        Some(&mut newest.content)
    }

    /// Skips a frame. If the frame is not disposable, no frame can be decoded until the next key frame.
    pub fn skip(&mut self, role: FrameRole) {
        self.broken |= role != FrameRole::Disposable;
        self.backlog.skipped += 1;
    }

    /// Returns the oldest frame.
    pub fn head(&self) -> Option<&QueuedFrame<T>> {
        self.waiting.front()
    }

    /// Removes `len` bytes from the oldest frame and returns the result of `cut`, which removes them from the frame's
    /// content. Returns `None` if the queue is empty.
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
