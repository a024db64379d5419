//! The session's part of a simulcast: several sessions that carry the same video at different rates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use steadycast_control::simulcast::rates_body;
use steadycast_control::{Body, Wake};
use steadycast_units::{Rate, Span, Time};

/// The rates of a simulcast's senders, as one of these senders sees them. All senders run in one process, so each knows
/// the rates of the others.
#[derive(Clone, Debug)]
pub struct Siblings {
    rates: Arc<[AtomicU64]>,
    place: usize,
}

impl Siblings {
    /// Creates one value for each of a simulcast's `groups` senders, in ascending order of their rates. No sender sends
    /// yet.
    pub fn new(groups: usize) -> Vec<Self> {
        let rates: Arc<[AtomicU64]> = (0..groups).map(|_| AtomicU64::new(0)).collect();
        (0..groups).map(|place| Self { rates: Arc::clone(&rates), place }).collect()
    }

    /// Sets the rate of this sender. Zero means that it does not send.
    pub fn set_rate(&self, rate: Rate) {
        // The rates are independent of each other, so relaxed ordering suffices.
        self.rates[self.place].store(rate.as_bps(), Ordering::Relaxed);
    }

    /// Returns the APP body that accompanies sender reports.
    pub(crate) fn body(&self) -> Body {
        rates_body(self.place, self.rates.iter().map(|rate| Rate::bps(rate.load(Ordering::Relaxed))))
    }
}

/// Schedules presence reports of a receiver that receives no media. A sender that has paused because it has no
/// receivers resumes at such a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PresenceTimer {
    /// The earliest time of the next report.
    at: Time,
    apart: Span,
}

impl PresenceTimer {
    /// Time before the first report, in which a multicast join can reach the source. The interval doubles with each
    /// report up to `MOST`.
    const FIRST: Span = Span::millis(100);
    const MOST: Span = Span::secs(1);
    /// Time without media after which reports are sent.
    const SILENCE: Span = Span::secs(2);

    pub(crate) fn new(now: Time) -> Self {
        Self { at: now + Self::FIRST, apart: Self::FIRST }
    }

    /// Returns when the next report is due, if media last arrived at `heard`.
    pub(crate) fn wake(&self, heard: Option<Time>) -> Wake {
        Wake { at: heard.map_or(self.at, |heard| self.at.max(heard + Self::SILENCE)), why: "no media" }
    }

    pub(crate) fn on_report_sent(&mut self, now: Time) {
        self.apart = (self.apart * 2).min(Self::MOST);
        self.at = now + self.apart;
    }
}
