//! What a session has to have when it is one of several that carry the same video at different rates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use steadycast_control::simulcast::rates_body;
use steadycast_control::{Body, Wake};
use steadycast_units::{Rate, Span, Time};

/// One of the senders of a simulcast. All run in one program, and each knows the rates of the others.
#[derive(Clone, Debug)]
pub struct Siblings {
    rates: Arc<[AtomicU64]>,
    place: usize,
}

impl Siblings {
    /// The senders of `groups` groups, the one of the lowest rate first. None of them sends yet.
    pub fn new(groups: usize) -> Vec<Self> {
        let rates: Arc<[AtomicU64]> = (0..groups).map(|_| AtomicU64::new(0)).collect();
        (0..groups).map(|place| Self { rates: Arc::clone(&rates), place }).collect()
    }

    /// Says that this one sends at `rate` from now on; zero: it does not send.
    pub fn tell(&self, rate: Rate) {
        self.rates[self.place].store(rate.as_bps(), Ordering::Relaxed);
    }

    /// What goes to the group beside a sender report.
    pub(crate) fn body(&self) -> Body {
        rates_body(self.place, self.rates.iter().map(|rate| Rate::bps(rate.load(Ordering::Relaxed))))
    }
}

/// A receiver that hears no media says that it is there, so that a sender that pauses while nobody is goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PresenceTimer {
    /// Not before this.
    at: Time,
    apart: Span,
}

impl PresenceTimer {
    /// How long the join may need to reach the source before the first; until later ones are as far apart as `MOST`,
    /// each waits twice as long.
    const FIRST: Span = Span::millis(100);
    const MOST: Span = Span::secs(1);
    /// After so long without media.
    const SILENCE: Span = Span::secs(2);

    pub(crate) fn new(now: Time) -> Self {
        Self { at: now + Self::FIRST, apart: Self::FIRST }
    }

    /// When to knock next, if media was heard last at `heard`.
    pub(crate) fn wake(&self, heard: Option<Time>) -> Wake {
        Wake { at: heard.map_or(self.at, |heard| self.at.max(heard + Self::SILENCE)), why: "no media" }
    }

    pub(crate) fn on_report_sent(&mut self, now: Time) {
        self.apart = (self.apart * 2).min(Self::MOST);
        self.at = now + self.apart;
    }
}
