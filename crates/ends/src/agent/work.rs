//! What an application over TCP does, and when.

use super::plain::draw;
use crate::Activity;
use steadycast_scenario::{Periods, Workload};
use steadycast_units::{Bytes, Chance, Span, Time};

/// What an application over TCP does, and when.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// As much as it was given, at once.
    Once,
    /// When the next transfer begins.
    Transfers {
        /// How long it pauses between two.
        off: Periods,
        /// When; never while one is going on.
        next: Time,
    },
    /// It writes and pauses.
    OnOff {
        /// How long it writes.
        on: Periods,
        /// How long it pauses.
        off: Periods,
        /// Until when it goes on with what it does.
        until: Time,
        /// Whether it writes.
        writing: bool,
        /// Between two packets that it writes; without a rate of its own it writes as fast as it can.
        gap: Option<Span>,
        /// When it writes the next packet.
        write: Time,
    },
}

impl Work {
    /// What a workload asks for, in packets of this size.
    pub fn new(source: &Workload, packet: Bytes) -> Self {
        match source {
            Workload::Bulk | Workload::File(_) => Self::Once,
            Workload::Transfers { off, .. } => Self::Transfers { off: *off, next: Time::NEVER },
            Workload::OnOff { rate, on, off } => {
                let gap = rate.map(|rate| packet.at(rate).max(Span::nanos(1)));
                Self::OnOff { on: *on, off: *off, until: Time::NEVER, writing: false, gap, write: Time::NEVER }
            }
        }
    }

    /// When it wants to go on.
    pub fn wake(&self) -> Time {
        match self {
            Self::Once => Time::NEVER,
            Self::Transfers { next, .. } => *next,
            Self::OnOff { until, write, .. } => (*until).min(*write),
        }
    }

    /// The flow starts.
    pub fn start(&mut self, now: Time, chance: &mut Chance) {
        if let Self::OnOff { on, until, writing, gap, write, .. } = self {
            (*until, *writing) = (now + draw(on, chance), true);
            *write = gap.map_or(Time::NEVER, |_| now);
        }
    }

    /// Whether a transfer begins now.
    pub fn transfers(&mut self, now: Time) -> bool {
        match self {
            Self::Transfers { next, .. } if *next <= now => {
                *next = Time::NEVER;
                true
            }
            _ => false,
        }
    }

    /// A transfer is complete: the pause after it begins.
    pub fn complete(&mut self, now: Time, chance: &mut Chance) {
        if let Self::Transfers { off, next } = self {
            *next = now + draw(off, chance);
        }
    }

    /// Begins and ends the periods whose time has come; the end of one shows when all that was written is through.
    pub fn turn(&mut self, now: Time, chance: &mut Chance, activity: &mut Activity) {
        let Self::OnOff { on, off, until, writing, gap, write } = self else { return };
        while *until <= now {
            *writing = !*writing;
            let began = *until;
            let period = draw(if *writing { &*on } else { &*off }, chance);
            // A period of no length at all must not keep this loop from ending.
            *until += period.max(Span::nanos(1));
            *write = gap.filter(|_| *writing).map_or(Time::NEVER, |_| began);
            if *writing {
                activity.begin(began);
            }
        }
    }

    /// Whether a packet is written now; to be asked until none is.
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
