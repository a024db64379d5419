//! Checks whether a host that sends receiver reports also receives the stream.
//!
//! The host's address may be forged. But only a host that receives the stream knows the contents of sender reports,
//! which its own reports have to repeat.

use std::collections::VecDeque;
use steadycast_units::{Span, Time};
use steadycast_wire::rtcp::ReportBlock;

/// Minimum number of sender reports that are stored. Several are needed, because some may be lost.
const LATEST: usize = 8;
/// Minimum time for which a sender report is stored.
const FRESH: Span = Span::secs(2);
/// Number of packets by which a report block may be older than the sender report to which it refers.
const BEHIND: u64 = 100;

/// The latest sender reports. The elements for each report are: when it was sent, the middle 32 bits of its NTP time,
/// and the sequence number of the next packet.
///
/// An attacker who does not receive the stream has to guess the LSR and a recent sequence number. The LSR is in units
/// of 1/65,536 s (RFC 3550, section 6.4.1), and the first sequence number is random.
///
/// Two reports with correct numbers are required. The attack then succeeds with a probability of about 1e-7 per second.
#[derive(Debug, Default)]
pub(crate) struct SentReports(VecDeque<(Time, u32, u64)>);

impl SentReports {
    /// Adds a sender report. `middle` is the middle 32 bits of its NTP time. `next` is the sequence number of the next
    /// packet.
    pub(crate) fn push(&mut self, now: Time, middle: u32, next: u64) {
        self.0.push_back((now, middle, next));
        while self.0.len() > LATEST && self.0.front().is_some_and(|(at, ..)| now.since(*at) > FRESH) {
            self.0.pop_front();
        }
    }

    /// Returns whether the LSR in a report block matches a stored sender report. The highest sequence number in the
    /// block may be older than this sender report by at most [`BEHIND`] packets. `next` is the sequence number of the
    /// next packet.
    pub(crate) fn echoed_by(&self, block: &ReportBlock, next: u64) -> bool {
        let lsr = |(_, middle, _): &&(Time, u32, u64)| *middle == block.lsr;
        self.0.iter().rev().find(lsr).is_some_and(|(.., then)| {
            // Compare only the low 16 bits, because a receiver counts cycles from its first packet on.
            let behind = (next as u16).wrapping_sub(1).wrapping_sub(block.highest_seq as u16);
            u64::from(behind) <= next.saturating_sub(*then) + BEHIND
        })
    }
}
