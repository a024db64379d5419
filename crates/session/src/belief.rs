//! What shows that a report is of somebody who receives the stream. Addresses can be forged, and anybody can send a
//! report; but what a sender report carries is known to nobody but its sender, those who receive it, and whoever is on
//! the way.

use std::collections::VecDeque;
use steadycast_units::{Span, Time};
use steadycast_wire::rtcp::ReportBlock;

/// A receiver echoes the sender report that it heard last: one of so many, where some were lost.
const LATEST: usize = 8;
/// A receiver echoes a sender report of no longer ago than this, or one of the latest.
const FRESH: Span = Span::secs(2);
/// A receiver's highest number may be so far behind what had been sent when that report was.
const BEHIND: u64 = 100;

/// The sender reports of late, and how many packets had been sent with each.
///
/// The time that is echoed (RFC 3550, section 6.4.1: LSR) has a resolution of 1/65,536 s, and the first sequence number
/// is random. Who knows the wall clock and receives nothing has one chance in some ten million to name both of one
/// report of the last second; two are asked for.
#[derive(Debug, Default)]
pub(crate) struct SentReports(VecDeque<(Time, u32, u64)>);

impl SentReports {
    /// A sender report has left with these middle 32 bits of its NTP time; `next` is the number of the next packet.
    pub(crate) fn push(&mut self, now: Time, middle: u32, next: u64) {
        self.0.push_back((now, middle, next));
        while self.0.len() > LATEST && self.0.front().is_some_and(|(at, ..)| now.since(*at) > FRESH) {
            self.0.pop_front();
        }
    }

    /// Whether a block echoes one of them, and tells of a packet that was sent about then; `next` is the number of the
    /// next packet.
    pub(crate) fn echoed_by(&self, block: &ReportBlock, next: u64) -> bool {
        let lsr = |(_, middle, _): &&(Time, u32, u64)| *middle == block.lsr;
        self.0.iter().rev().find(lsr).is_some_and(|(.., then)| {
            let behind = (next as u16).wrapping_sub(1).wrapping_sub(block.highest_seq as u16);
            u64::from(behind) <= next.saturating_sub(*then) + BEHIND
        })
    }
}
