//! Records of single packets: arrivals and losses.

use std::collections::VecDeque;

/// An arrival. Times are in seconds; `at` and `came` are on the receiver's clock.
///
/// `sent` and `came` are the measured send and arrival time, `whole` is the measured delay. `left`, `at` and `delay`
/// are the same, but as if bursts had been sent at the pacing rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivedPacket {
    pub(super) left: f64,
    pub(super) at: f64,
    /// The one-way delay, relative to the first packet's.
    pub(super) delay: f64,
    pub(super) sent: f64,
    pub(super) came: f64,
    /// The one-way delay, relative to the first packet's.
    pub(super) whole: f64,
    /// The bytes that have arrived, with this packet.
    pub(super) bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Loss {
    /// In seconds.
    pub(super) sent: f64,
    /// The queueing delay of the last packet before it, in seconds.
    pub(super) q: f64,
    /// The share of recent packets with a smaller queueing delay; 0.5 on average for random losses.
    pub(super) rank: f64,
}

pub(super) fn drop_old<T>(queue: &mut VecDeque<T>, old: impl Fn(&T) -> bool) {
    while queue.front().is_some_and(&old) {
        queue.pop_front();
    }
}
