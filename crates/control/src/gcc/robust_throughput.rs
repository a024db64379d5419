//! Measures the acknowledged rate from feedback (libwebrtc, `robust_throughput_estimator.cc`).

use super::Received;
use std::collections::VecDeque;
use steadycast_units::{Bytes, Rate, Span, Time};

/// Minimum number of packets in the window.
const LEAST_PACKETS: usize = 20;
/// Minimum duration of the window.
const LEAST_SPAN: Span = Span::secs(1);
/// Maximum number of packets in the window.
const MOST_PACKETS: usize = 500;
/// Maximum duration of the window.
const MOST_SPAN: Span = Span::secs(5);
const REQUIRED: usize = 10;
/// If a packet arrived earlier than the newest packet by more than this, the receiver's clock has jumped.
const REORDERING: Span = Span::secs(1);
const SHORTEST: Span = Span::millis(1);

/// Measures the lower of the receive rate and the send rate over a window of packets.
///
/// ```text
///             bytes without the first packet           bytes without the last packet
///  min( ────────────────────────────────────────── ,  ─────────────────────────────── )
///       t_n − t_1 − largest gap + second largest              T_last − T_first
/// ```
///
/// t are arrival times, and T are send times. The largest gap between two arrivals may be a pause of the path, so it is
/// replaced by the second largest gap. This may make the receive rate too high, so the send rate limits the result.
#[derive(Clone, Debug, Default)]
pub(super) struct RobustThroughput {
    /// Packets in the order of arrival.
    window: VecDeque<Received>,
    /// Latest send time of the packets that have left the window.
    left: Option<Time>,
}

impl RobustThroughput {
    /// Adds packets in the order of arrival.
    pub(super) fn take(&mut self, packets: &[Received]) {
        for packet in packets {
            let place = self.window.partition_point(|known| known.arrived <= packet.arrived);
            self.window.insert(place, *packet);
            let newest = self.window.back().map_or(packet.arrived, |last| last.arrived);
            // The receiver's clock has jumped, so discard the window.
            if newest.since(packet.arrived).later() > REORDERING {
                *self = Self::default();
            }
        }
        while self.is_first_outside() {
            if let Some(gone) = self.window.pop_front() {
                self.left = self.left.max(Some(gone.sent));
            }
        }
    }

    fn is_first_outside(&self) -> bool {
        let (Some(first), Some(last)) = (self.window.front(), self.window.back()) else { return false };
        let (packets, span) = (self.window.len(), last.arrived.since(first.arrived).later());
        packets > MOST_PACKETS || span > MOST_SPAN || (packets > LEAST_PACKETS && span > LEAST_SPAN)
    }

    pub(super) fn rate(&self) -> Option<Rate> {
        let (first, last) = (self.window.front()?, self.window.back()?);
        if self.window.len() < REQUIRED {
            return None;
        }
        let (mut largest, mut second) = (Span::ZERO, Span::ZERO);
        let gaps = self.window.iter().zip(self.window.iter().skip(1)).map(|(a, b)| b.arrived.since(a.arrived).later());
        for gap in gaps {
            // Keep the two largest gaps.
            (largest, second) = if gap > largest { (gap, largest) } else { (largest, second.max(gap)) };
        }
        let all: Bytes = self.window.iter().map(|packet| packet.size).sum();
        let span = (last.arrived.since(first.arrived).later().saturating_sub(largest) + second).max(SHORTEST);
        let received = all.saturating_sub(first.size).per(span);
        // Skip packets that were sent before a packet that has left the window. They would make the duration longer,
        // but other bytes that were sent in this time are not in the window any more.
        let sent = self.window.iter().filter(|packet| self.left.is_none_or(|left| packet.sent >= left));
        let Some((size, begun, last, count)) =
            sent.fold(None, |sum: Option<(Bytes, Time, &Received, usize)>, packet| {
                Some(sum.map_or((packet.size, packet.sent, packet, 1), |(size, begun, last, count)| {
                    let last = if packet.sent > last.sent { packet } else { last };
                    (size + packet.size, begun.min(packet.sent), last, count + 1)
                }))
            })
        else {
            return Some(received);
        };
        if count < REQUIRED {
            return Some(received);
        }
        let sent = size.saturating_sub(last.size).per(last.sent.since(begun).max(SHORTEST));
        Some(received.min(sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_units::PeerTime;

    fn packet(sent_ms: f64, arrived_ms: f64, size: u64) -> Received {
        let nanos = |ms: f64| (ms * 1e6).round();
        Received {
            sent: Time::from_nanos(nanos(sent_ms) as u64),
            arrived: PeerTime::from_nanos(nanos(arrived_ms) as i64),
            size: Bytes::new(size),
            probe: None,
        }
    }

    fn kbps(robust: &RobustThroughput) -> Option<f64> {
        robust.rate().map(|rate| (rate.as_bps_f64() / 1e3).round())
    }

    #[test]
    fn ten_packets_give_the_rate_at_which_they_came() {
        let mut robust = RobustThroughput::default();
        let packets: Vec<_> = (0..9).map(|i| packet(f64::from(i) * 10.0, 50.0 + f64::from(i) * 10.0, 1_000)).collect();
        robust.take(&packets);
        assert_eq!(kbps(&robust), None);
        robust.take(&[packet(90.0, 140.0, 1_000)]);
        assert_eq!(kbps(&robust), Some(800.0));
    }

    #[test]
    fn a_pause_of_the_path_does_not_lower_the_rate_and_its_burst_does_not_raise_it() {
        let mut robust = RobustThroughput::default();
        let arrival = |i: u32| if (15..25).contains(&i) { 300.0 } else { 50.0 + f64::from(i) * 10.0 };
        let packets: Vec<_> = (0..40).map(|i| packet(f64::from(i) * 10.0, arrival(i), 1_000)).collect();
        robust.take(&packets);
        assert_eq!(kbps(&robust), Some(800.0));
        // The packets arrive more slowly than they are sent, so the acknowledged rate is the receive rate.
        let mut slow = RobustThroughput::default();
        let packets: Vec<_> = (0..40).map(|i| packet(f64::from(i) * 10.0, 50.0 + f64::from(i) * 20.0, 1_000)).collect();
        slow.take(&packets);
        assert_eq!(kbps(&slow), Some(400.0));
    }

    #[test]
    fn the_window_is_a_second_and_twenty_packets_and_a_clock_that_jumps_back_clears_it() {
        let mut robust = RobustThroughput::default();
        let packets: Vec<_> = (0..400).map(|i| packet(f64::from(i) * 10.0, f64::from(i) * 10.0, 1_000)).collect();
        robust.take(&packets);
        assert_eq!(robust.window.len(), 101);
        let mut sparse = RobustThroughput::default();
        let packets: Vec<_> = (0..40).map(|i| packet(f64::from(i) * 100.0, f64::from(i) * 100.0, 1_000)).collect();
        sparse.take(&packets);
        assert_eq!(sparse.window.len(), 20);
        robust.take(&[packet(4_000.0, -30_000.0, 1_000)]);
        assert_eq!((robust.window.len(), kbps(&robust)), (0, None));
    }
}
