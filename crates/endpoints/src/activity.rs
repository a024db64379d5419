//! The periods in which a source had data to send. The source may pause between two periods.

use steadycast_units::{Span, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    from: Time,
    /// The end of the period. [`Time::NEVER`] while the period lasts.
    until: Time,
    complete: bool,
}

/// The periods in which a source had data to send. A period ends when all data is acknowledged. If the source gets no
/// acknowledgments, the period ends when all data is sent.
#[derive(Clone, Debug, Default)]
pub struct Activity(Vec<Stretch>);

impl Activity {
    /// Begins a period. Does nothing if a period is already open.
    pub fn begin(&mut self, now: Time) {
        if self.open().is_none() {
            self.0.push(Stretch { from: now, until: Time::NEVER, complete: false });
        }
    }

    /// Ends the open period.
    pub fn end(&mut self, now: Time) {
        if let Some(stretch) = self.open() {
            stretch.until = now;
        }
    }

    /// Ends the open period as a complete transfer.
    pub fn complete(&mut self, now: Time) {
        if let Some(stretch) = self.open() {
            (stretch.until, stretch.complete) = (now, true);
        }
    }

    fn open(&mut self) -> Option<&mut Stretch> {
        self.0.last_mut().filter(|stretch| stretch.until == Time::NEVER)
    }

    /// Returns the begin and the end of each complete transfer.
    pub fn transfers(&self) -> impl Iterator<Item = (Time, Time)> {
        self.0.iter().filter(|stretch| stretch.complete).map(|stretch| (stretch.from, stretch.until))
    }

    /// Returns the begin and the end of each period.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = (Time, Time)> {
        self.0.iter().map(|stretch| (stretch.from, stretch.until))
    }
}

/// Returns how much of the time between `from` and `until` lies within the periods.
pub(crate) fn within(stretches: impl Iterator<Item = (Time, Time)>, from: Time, until: Time) -> Span {
    stretches.map(|(start, stop)| stop.min(until).since(start.max(from))).fold(Span::ZERO, |sum, span| sum + span)
}

/// Returns the parts of the periods that lie within one of the periods `other`.
pub(crate) fn overlap(
    stretches: impl Iterator<Item = (Time, Time)>,
    other: &[(Time, Time)],
) -> impl Iterator<Item = (Time, Time)> {
    let parts = |(start, stop): (Time, Time)| {
        let part = move |(from, until): &(Time, Time)| (start.max(*from), stop.min(*until));
        other.iter().map(part).filter(|(begin, end)| begin < end)
    };
    stretches.flat_map(parts)
}

/// Returns whether a single period contains all the time between `from` and `until`.
pub(crate) fn throughout(mut stretches: impl Iterator<Item = (Time, Time)>, from: Time, until: Time) -> bool {
    stretches.any(|(start, stop)| start <= from && until <= stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_goes_on_until_it_ends_and_only_complete_ones_are_transfers() {
        let at = |ms| Time::ZERO + Span::millis(ms);
        let mut activity = Activity::default();
        activity.end(at(1));
        activity.begin(at(10));
        activity.begin(at(20));
        activity.complete(at(30));
        activity.complete(at(35));
        activity.begin(at(50));
        activity.end(at(60));
        activity.begin(at(90));
        assert_eq!(activity.transfers().collect::<Vec<_>>(), [(at(10), at(30))]);
        // 5 ms of the first period count, then the whole second period, and the part of the third period before the
        // end.
        assert_eq!(within(activity.stretches(), at(25), at(100)), Span::millis(5 + 10 + 10));
        let parts: Vec<_> = overlap(activity.stretches(), &[(at(0), at(15)), (at(25), at(95))]).collect();
        assert_eq!(parts, [(at(10), at(15)), (at(25), at(30)), (at(50), at(60)), (at(90), at(95))]);
        assert!(throughout(activity.stretches(), at(10), at(30)));
        assert!(!throughout(activity.stretches(), at(25), at(55)));
        assert!(throughout(activity.stretches(), at(91), at(1_000)));
    }
}
