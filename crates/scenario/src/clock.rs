//! A receiver's clock, beside the sender's.

use crate::file::ClockTable;
use crate::model::OwnClock;
use steadycast_settings::{Findings, Spanned};
use steadycast_units::{Offset, Span};

/// Clocks that differ by more than this can't be told from others: the stamps in packets start again after 4.5 hours.
const FARTHEST: Span = Span::secs(4 * 3600);

/// No clock is worse, in parts per million; a quartz is at 20 to 100.
const WORST: f64 = 10_000.0;

pub(crate) fn clock(table: &Spanned<ClockTable>, out: &mut Findings) -> OwnClock {
    for said in [&table.ahead, &table.behind].into_iter().flatten().filter(|span| span.value > FARTHEST) {
        out.problem(&said.at, format!("{} is too far", said.value), "at most \"240min\"");
    }
    let drift = table.drift.as_ref().map_or(0.0, |said| {
        if said.value.abs() > WORST {
            out.problem(&said.at, format!("{} ppm is no clock", said.value), "from -10000 to 10000 ppm");
        }
        said.value
    });
    let ahead = match (&table.ahead, &table.behind) {
        (Some(_), Some(behind)) => {
            out.problem(&behind.at, "both ahead and behind", "leave one of them out");
            Offset::ZERO
        }
        (Some(ahead), None) => ahead.value.as_offset(),
        (None, Some(behind)) => Offset::ZERO - behind.value.as_offset(),
        (None, None) => Offset::ZERO,
    };
    OwnClock { ahead, drift }
}
