//! Checks that a host that sends receiver reports also receives the stream.
//!
//! The host's address may be forged. Only a host that receives the stream can echo the contents of sender reports.

use std::collections::VecDeque;
use steadycast_units::{Span, Time};
use steadycast_wire::rtcp::ReportBlock;

/// Minimum number of stored sender reports, some of which may be lost.
const LATEST: usize = 8;
/// Minimum time for which a sender report is stored.
const FRESH: Span = Span::secs(2);
/// The number of packets by which a block may lag behind the echoed sender report.
const BEHIND: u64 = 100;

/// The latest sender reports: time, middle 32 bits of the NTP time, and number of the next packet.
///
/// An attacker without the stream has to guess the LSR (in 1/65,536 s, RFC 3550, section 6.4.1) and a recent sequence
/// number. The first sequence number is random.
///
/// The attack succeeds with a probability of about 1e-7 per second. Two reports with right values are required.
#[derive(Debug, Default)]
pub(crate) struct SentReports(VecDeque<(Time, u32, u64)>);

impl SentReports {
    /// Adds a report. `middle` is the middle 32 bits of its NTP time, `next` the number of the next packet.
    pub(crate) fn push(&mut self, now: Time, middle: u32, next: u64) {
        self.0.push_back((now, middle, next));
        while self.0.len() > LATEST && self.0.front().is_some_and(|(at, ..)| now.since(*at) > FRESH) {
            self.0.pop_front();
        }
    }

    /// Returns whether a block echoes a stored sender report. The block's highest sequence number may be older than the
    /// echoed report by at most [`BEHIND`] packets.
    pub(crate) fn echoed_by(&self, block: &ReportBlock, next: u64) -> bool {
        let lsr = |(_, middle, _): &&(Time, u32, u64)| *middle == block.lsr;
        self.0.iter().rev().find(lsr).is_some_and(|(.., then)| {
            // A receiver counts cycles from its first packet, so only the low 16 bits are comparable.
            let behind = (next as u16).wrapping_sub(1).wrapping_sub(block.highest_seq as u16);
            u64::from(behind) <= next.saturating_sub(*then) + BEHIND
        })
    }
}
