//! Records of single packets that the files of `steady` share: what arrived, and what was lost.

use std::collections::VecDeque;

/// A packet that arrived. Times are in seconds; `at` and `came` are on the receiver's clock.
///
/// The packets of a burst wait for each other. `left`, `at` and `delay` are therefore corrected: they have the values
/// that they would have had if the packets had been sent at the pacing rate. `sent`, `came` and `whole` are as
/// measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivedPacket {
    /// The corrected send time.
    pub(super) left: f64,
    /// The corrected arrival time.
    pub(super) at: f64,
    /// The corrected one-way delay, relative to that of the first packet.
    pub(super) delay: f64,
    /// The measured send time.
    pub(super) sent: f64,
    /// The measured arrival time.
    pub(super) came: f64,
    /// The measured one-way delay, relative to that of the first packet.
    pub(super) whole: f64,
    /// The total of bytes that have arrived, this packet included.
    pub(super) bytes: u64,
}

/// A lost packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Loss {
    /// The send time, in seconds.
    pub(super) sent: f64,
    /// The queueing delay, in seconds, of the last packet that arrived before it.
    pub(super) q: f64,
    /// The share of the last seconds' packets with a smaller queueing delay than `q`. Its mean is 0.5 if losses are
    /// random.
    pub(super) rank: f64,
}

/// Removes entries from the front of `queue` while they are `old`.
pub(super) fn drop_old<T>(queue: &mut VecDeque<T>, old: impl Fn(&T) -> bool) {
    while queue.front().is_some_and(&old) {
        queue.pop_front();
    }
}
