//! A model of the application of a TCP flow.

use super::plain::draw;
use crate::Activity;
use steadycast_scenario::{Periods, Workload};
use steadycast_units::{Bytes, Chance, Span, Time};

/// The application of a TCP flow, which decides when there is data.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// All data is available at the start.
    Once,
    /// Transfers with pauses between them.
    Transfers {
        /// The distribution of pauses.
        off: Periods,
        /// When the next transfer starts. `Time::NEVER` during a transfer.
        next: Time,
    },
    /// The application writes for a period, then pauses, in turn.
    OnOff {
        /// The distribution of writing periods.
        on: Periods,
        /// The distribution of pauses.
        off: Periods,
        /// When the present period ends.
        until: Time,
        /// Whether the application writes in the present period.
        writing: bool,
        /// Time between two packets that are written. If `None`, the application writes as fast as TCP accepts.
        gap: Option<Span>,
        /// When the next packet is written.
        write: Time,
    },
}

impl Work {
    /// Creates the application of a workload. Its packets have the size `packet`.
    pub fn new(source: &Workload, packet: Bytes) -> Self {
        match source {
            Workload::Bulk | Workload::File(_) => Self::Once,
            Workload::Transfers { off, .. } => Self::Transfers { off: *off, next: Time::NEVER },
            Workload::OnOff { rate, on, off } => {
                // Avoid a gap of zero, because the caller's loop over `writes` would never end.
                let gap = rate.map(|rate| packet.at(rate).max(Span::nanos(1)));
                Self::OnOff { on: *on, off: *off, until: Time::NEVER, writing: false, gap, write: Time::NEVER }
            }
        }
    }

    /// Returns when the application acts next.
    pub fn wake(&self) -> Time {
        match self {
            Self::Once => Time::NEVER,
            Self::Transfers { next, .. } => *next,
            Self::OnOff { until, write, .. } => (*until).min(*write),
        }
    }

    /// Starts the first period.
    pub fn start(&mut self, now: Time, chance: &mut Chance) {
        if let Self::OnOff { on, until, writing, gap, write, .. } = self {
            (*until, *writing) = (now + draw(on, chance), true);
            *write = gap.map_or(Time::NEVER, |_| now);
        }
    }

    /// Returns whether a transfer begins at `now`.
    pub fn transfers(&mut self, now: Time) -> bool {
        match self {
            Self::Transfers { next, .. } if *next <= now => {
                *next = Time::NEVER;
                true
            }
            _ => false,
        }
    }

    /// Ends a transfer, before a pause.
    pub fn complete(&mut self, now: Time, chance: &mut Chance) {
        if let Self::Transfers { off, next } = self {
            *next = now + draw(off, chance);
        }
    }

    /// Switches between writing and pausing at the end of each period up to `now`. Registers the start of each writing
    /// period in `activity`. Its end is registered elsewhere, when the last packet of the period is acknowledged.
    pub fn turn(&mut self, now: Time, chance: &mut Chance, activity: &mut Activity) {
        let Self::OnOff { on, off, until, writing, gap, write } = self else { return };
        while *until <= now {
            *writing = !*writing;
            let began = *until;
            let period = draw(if *writing { &*on } else { &*off }, chance);
            // Avoid a period of zero, so that this loop ends.
            *until += period.max(Span::nanos(1));
            *write = gap.filter(|_| *writing).map_or(Time::NEVER, |_| began);
            if *writing {
                activity.begin(began);
            }
        }
    }

    /// Returns whether a packet is written at `now`. The caller repeats the call until it returns false.
    pub fn writes(&mut self, now: Time) -> bool {
        match self {
            Self::OnOff { gap: Some(gap), write, .. } if *write <= now => {
                *write += *gap;
                true
            }
            _ => false,
        }
    }
}
