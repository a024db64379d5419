//! Records of single packets that have arrived or were lost.

use std::collections::VecDeque;

/// A packet that has arrived. Times are in seconds. `at` and `came` are on the receiver's clock.
///
/// `sent`, `came` and `whole` are the measured send time, arrival time and delay. `left`, `at` and `delay` are
/// corrected values: they are as if bursts had been sent at the pacing rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivedPacket {
    pub(super) left: f64,
    pub(super) at: f64,
    /// The corrected one-way delay minus the one-way delay of the first packet.
    pub(super) delay: f64,
    pub(super) sent: f64,
    pub(super) came: f64,
    /// The measured one-way delay minus the one-way delay of the first packet.
    pub(super) whole: f64,
    /// Number of bytes that have arrived so far, including this packet.
    pub(super) bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Loss {
    /// Send time of the lost packet, in seconds.
    pub(super) sent: f64,
    /// Queueing delay of the last packet before the lost packet, in seconds.
    pub(super) q: f64,
    /// Fraction of recent packets whose queueing delay is smaller than `q`. If losses are random, this fraction is 0.5
    /// on average.
    pub(super) rank: f64,
}

pub(super) fn drop_old<T>(queue: &mut VecDeque<T>, old: impl Fn(&T) -> bool) {
    while queue.front().is_some_and(&old) {
        queue.pop_front();
    }
}
