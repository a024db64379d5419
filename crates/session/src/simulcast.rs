//! The same video in several sessions at different rates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use steadycast_control::simulcast::rates_body;
use steadycast_control::{Body, Wake};
use steadycast_units::{Rate, Span, Time};

/// The rates of a simulcast's senders, which share one process.
#[derive(Clone, Debug)]
pub struct Siblings {
    rates: Arc<[AtomicU64]>,
    place: usize,
}

impl Siblings {
    /// Creates one value per sender, in ascending order of the senders' rates. Initially all rates are zero.
    pub fn new(groups: usize) -> Vec<Self> {
        let rates: Arc<[AtomicU64]> = (0..groups).map(|_| AtomicU64::new(0)).collect();
        (0..groups).map(|place| Self { rates: Arc::clone(&rates), place }).collect()
    }

    /// Sets this sender's rate; zero if it does not send.
    pub fn set_rate(&self, rate: Rate) {
        // The rates are independent, so relaxed ordering suffices.
        self.rates[self.place].store(rate.as_bps(), Ordering::Relaxed);
    }

    /// Returns the APP body that accompanies sender reports.
    pub(crate) fn body(&self) -> Body {
        rates_body(self.place, self.rates.iter().map(|rate| Rate::bps(rate.load(Ordering::Relaxed))))
    }
}

/// Schedules presence reports of a receiver without media, which resume a paused sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PresenceTimer {
    /// The earliest time of the next report.
    at: Time,
    apart: Span,
}

impl PresenceTimer {
    /// The first interval between reports: the time for a multicast join to reach the source.
    const FIRST: Span = Span::millis(100);
    /// The maximum interval. The interval doubles with each report.
    const MOST: Span = Span::secs(1);
    /// Time without media after which reports are sent.
    const SILENCE: Span = Span::secs(2);

    pub(crate) fn new(now: Time) -> Self {
        Self { at: now + Self::FIRST, apart: Self::FIRST }
    }

    /// Returns the next report's time, if media last arrived at `heard`.
    pub(crate) fn wake(&self, heard: Option<Time>) -> Wake {
        Wake { at: heard.map_or(self.at, |heard| self.at.max(heard + Self::SILENCE)), why: "no media" }
    }

    pub(crate) fn on_report_sent(&mut self, now: Time) {
        self.apart = (self.apart * 2).min(Self::MOST);
        self.at = now + self.apart;
    }
}
