//! The clocks of receivers, which have an offset and a drift relative to the sender's clock.

use crate::file::ClockTable;
use crate::model::OwnClock;
use steadycast_settings::{Findings, Spanned};
use steadycast_units::{Offset, Span};

/// Maximum offset of a receiver's clock. The send times in packets wrap after 4.5 hours, so that a larger offset would
/// be ambiguous.
const MAX_OFFSET: Span = Span::secs(4 * 3600);

/// Maximum drift in parts per million. The drift of a quartz is 20 to 100.
const MAX_DRIFT_PPM: f64 = 10_000.0;

pub(crate) fn clock(table: &Spanned<ClockTable>, out: &mut Findings) -> OwnClock {
    for given in [&table.ahead, &table.behind].into_iter().flatten().filter(|span| span.value > MAX_OFFSET) {
        out.problem(&given.at, format!("{} is too long", given.value), "write at most \"240min\"");
    }
    let drift = table.drift.as_ref().map_or(0.0, |given| {
        if given.value.abs() > MAX_DRIFT_PPM {
            out.problem(
                &given.at,
                format!("a drift of {} ppm is out of range", given.value),
                "write a number from -10000 to 10000",
            );
        }
        given.value
    });
    let ahead = match (&table.ahead, &table.behind) {
        (Some(_), Some(behind)) => {
            out.problem(&behind.at, "both ahead and behind", "leave one of them out");
            Offset::ZERO
        }
        (Some(ahead), None) => ahead.value.as_offset(),
        // There are two keys for the offset, `ahead` and `behind`, because a span can't be negative.
        (None, Some(behind)) => Offset::ZERO - behind.value.as_offset(),
        (None, None) => Offset::ZERO,
    };
    OwnClock { ahead, drift }
}
