//! Packets that arrive late or twice.

use crate::{Steps, probability};
use steadycast_settings::tree::Item;
use steadycast_settings::{Findings, settings};
use steadycast_units::{Chance, Span, Time};

settings! {
    /// Packets that arrive late, so that later ones overtake them.
    #[derive(Copy, Default)]
    Reorder checked by comes_later {
        /// The probability that a packet is delayed, from 0 to 1.
        p: f64 where (probability) => "write a probability from 0 to 1",
        /// The additional delay of a delayed packet; required if `p` is above 0.
        by: Span = Span::ZERO,
    }
}

fn comes_later(reorder: &Reorder, item: &Item, out: &mut Findings) {
    if reorder.p > 0.0 && reorder.by.is_zero() {
        match item.get("by") {
            Some(by) => {
                out.problem(&by.at, "delayed packets need a delay", "write for example by = \"20ms\", or p = 0")
            }
            None => out.missing(&item.at, "by", "write for example by = \"20ms\""),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Disorder {
    reorder: Steps<Reorder>,
    duplicate: Steps<f64>,
    now: (Reorder, f64),
    valid: Time,
    chance: Chance,
}

impl Disorder {
    /// Creates the state. Returns `None` if no packet is ever reordered or duplicated.
    pub(crate) fn new(reorder: &Steps<Reorder>, duplicate: &Steps<f64>, chance: Chance) -> Option<Self> {
        let none = reorder.as_constant().is_some_and(|r| r.p == 0.0) && duplicate.as_constant() == Some(&0.0);
        let (now, valid) = ((Reorder::default(), 0.0), Time::ZERO);
        (!none).then(|| Self { reorder: reorder.clone(), duplicate: duplicate.clone(), now, valid, chance })
    }

    fn at(&mut self, at: Time) -> (Reorder, f64) {
        if at >= self.valid {
            self.now = (*self.reorder.at(at), *self.duplicate.at(at));
            self.valid = self.reorder.next_change(at).min(self.duplicate.next_change(at));
        }
        self.now
    }

    /// Returns the extra delay of a packet if the packet is to be reordered. The packet's transmission ends at `at`.
    pub(crate) fn extra_delay(&mut self, at: Time) -> Option<Span> {
        let (reorder, _) = self.at(at);
        self.chance.happens(reorder.p).then_some(reorder.by)
    }

    pub(crate) fn is_duplicated(&mut self, at: Time) -> bool {
        let (_, duplicate) = self.at(at);
        self.chance.happens(duplicate)
    }
}
