//! Checks that prove that a report's sender receives the stream. Addresses can be forged, and anyone can send a report.
//! However, the contents of a sender report are known only to its sender, its receivers and the hosts on the path.

use std::collections::VecDeque;
use steadycast_units::{Span, Time};
use steadycast_wire::rtcp::ReportBlock;

/// Minimum number of stored sender reports. A receiver echoes the last one that it received, and some are lost.
const LATEST: usize = 8;
/// Minimum time for which a sender report is stored.
const FRESH: Span = Span::secs(2);
/// Maximum lag of a report block, in packets: the last packet sent before the echoed sender report, minus the block's
/// highest sequence number.
const BEHIND: u64 = 100;

/// The latest sender reports, each with its time, the middle 32 bits of its NTP time, and the number of the next
/// packet.
///
/// The echoed time (LSR in RFC 3550, section 6.4.1) has a resolution of 1/65,536 s, and the first sequence number is
/// random. An attacker that knows the wall-clock time but receives nothing would have to guess both. For a report of
/// the last second, the probability of success is about 1e-7. Two such reports are required.
#[derive(Debug, Default)]
pub(crate) struct SentReports(VecDeque<(Time, u32, u64)>);

impl SentReports {
    /// Adds a sender report. `middle` is the middle 32 bits of its NTP time. `next` is the number of the next packet.
    pub(crate) fn push(&mut self, now: Time, middle: u32, next: u64) {
        self.0.push_back((now, middle, next));
        while self.0.len() > LATEST && self.0.front().is_some_and(|(at, ..)| now.since(*at) > FRESH) {
            self.0.pop_front();
        }
    }

    /// Returns true if a report block echoes one of the sender reports and its highest sequence number is that of a
    /// packet sent at about that time. `next` is the number of the next packet.
    pub(crate) fn echoed_by(&self, block: &ReportBlock, next: u64) -> bool {
        let lsr = |(_, middle, _): &&(Time, u32, u64)| *middle == block.lsr;
        self.0.iter().rev().find(lsr).is_some_and(|(.., then)| {
            // Only the low 16 bits are compared, because a receiver counts the cycles from its first packet.
            let behind = (next as u16).wrapping_sub(1).wrapping_sub(block.highest_seq as u16);
            u64::from(behind) <= next.saturating_sub(*then) + BEHIND
        })
    }
}
