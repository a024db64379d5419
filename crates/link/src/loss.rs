use crate::Steps;
use steadycast_units::{Chance, Time};

/// How a medium loses packets, in the order in which they are sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Loss {
    /// It does not.
    None,
    /// Each packet with probability `p`.
    Bernoulli {
        /// Probability, 0…1.
        p: f64,
    },
    /// One packet after a run of good ones whose length is exponentially distributed: ns-2's "exponential error model".
    Run {
        /// Mean distance between losses, in packets, at least 1.
        mean: f64,
    },
    /// Gilbert–Elliott: two states with a loss probability each.
    Gilbert {
        /// From good to bad, per packet.
        p_bad: f64,
        /// From bad to good, per packet.
        p_good: f64,
        /// Loss in the good state.
        loss_good: f64,
        /// Loss in the bad state.
        loss_bad: f64,
    },
    /// Just these packets; the first one is number 1.
    List {
        /// Rising.
        packets: Vec<u64>,
    },
}

#[derive(Debug)]
pub(crate) struct LossState {
    steps: Steps<Loss>,
    now: Loss,
    valid: Time,
    chance: Chance,
    packets: u64,
    bad: bool,
    /// `Run`: the position of the next loss, on a real line that rounds to packets.
    next: f64,
}

impl LossState {
    pub(crate) fn new(steps: &Steps<Loss>, chance: Chance) -> Self {
        let mut state = Self {
            steps: steps.clone(),
            now: Loss::None,
            valid: Time::ZERO,
            chance,
            packets: 0,
            bad: false,
            next: 0.0,
        };
        state.enter(Time::ZERO);
        state
    }

    fn enter(&mut self, at: Time) {
        self.now = self.steps.at(at).clone();
        self.valid = self.steps.next_change(at);
        self.bad = false;
        if let Loss::Run { mean } = self.now {
            self.next = self.packets as f64 + self.chance.exponential(mean).max(1.0);
        }
    }

    /// Whether the packet whose transmission ends at `at` is lost.
    pub(crate) fn next(&mut self, at: Time) -> bool {
        if at >= self.valid {
            self.enter(at);
        }
        self.packets += 1;
        match &self.now {
            Loss::None => false,
            Loss::Bernoulli { p } => self.chance.happens(*p),
            Loss::Run { mean } => {
                let lost = self.packets as f64 >= self.next;
                if lost {
                    // The line goes on from the drawn place, not from the packet it was rounded to: the mean stays exact.
                    self.next = (self.next + self.chance.exponential(*mean)).max(self.packets as f64);
                }
                lost
            }
            Loss::Gilbert { p_bad, p_good, loss_good, loss_bad } => {
                let (turn, p) = if self.bad { (*p_good, *loss_bad) } else { (*p_bad, *loss_good) };
                let lost = self.chance.happens(p);
                if self.chance.happens(turn) {
                    self.bad = !self.bad;
                }
                lost
            }
            Loss::List { packets } => packets.binary_search(&self.packets).is_ok(),
        }
    }
}
