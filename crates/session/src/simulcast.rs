//! Simulcast: several sessions send the same video at different rates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use steadycast_control::simulcast::rates_body;
use steadycast_control::{Body, Wake};
use steadycast_units::{Rate, Span, Time};

/// The rates of all senders of a simulcast. The senders run in one process. Each sender has a value of this type, and
/// all these values share the rates.
#[derive(Clone, Debug)]
pub struct Siblings {
    rates: Arc<[AtomicU64]>,
    place: usize,
}

impl Siblings {
    /// Returns one value for each of the `groups` senders. The first value is for the sender with the lowest rate.
    /// Until `set_rate` is called, a rate is zero.
    pub fn new(groups: usize) -> Vec<Self> {
        let rates: Arc<[AtomicU64]> = (0..groups).map(|_| AtomicU64::new(0)).collect();
        (0..groups).map(|place| Self { rates: Arc::clone(&rates), place }).collect()
    }

    /// Sets this sender's rate. The rate is zero while the sender does not send.
    pub fn set_rate(&self, rate: Rate) {
        // The rates are independent, so relaxed ordering suffices.
        self.rates[self.place].store(rate.as_bps(), Ordering::Relaxed);
    }

    /// Returns the body of the RTCP APP packet that is sent with each sender report.
    pub(crate) fn body(&self) -> Body {
        rates_body(self.place, self.rates.iter().map(|rate| Rate::bps(rate.load(Ordering::Relaxed))))
    }
}

/// Decides when a receiver without media sends a report. Such a report shows a paused sender that a receiver is
/// present.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PresenceTimer {
    /// The earliest time of the next report.
    at: Time,
    apart: Span,
}

impl PresenceTimer {
    /// The interval before the first report. A multicast join reaches the source within this time.
    const FIRST: Span = Span::millis(100);
    /// The maximum interval. The interval doubles with each report.
    const MOST: Span = Span::secs(1);
    /// Time without media after which reports are sent.
    const SILENCE: Span = Span::secs(2);

    pub(crate) fn new(now: Time) -> Self {
        Self { at: now + Self::FIRST, apart: Self::FIRST }
    }

    /// Returns when the next report is due. `heard` is the last time at which media arrived.
    pub(crate) fn wake(&self, heard: Option<Time>) -> Wake {
        Wake { at: heard.map_or(self.at, |heard| self.at.max(heard + Self::SILENCE)), why: "no media" }
    }

    pub(crate) fn on_report_sent(&mut self, now: Time) {
        self.apart = (self.apart * 2).min(Self::MOST);
        self.at = now + self.apart;
    }
}
