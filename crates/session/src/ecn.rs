//! Whether the path keeps the ECN field of what a sender sends (RFC 6679, 7.2 to 7.4), by reports of single packets,
//! which tell each packet's field on arrival (RFC 8888, 7).

use steadycast_control::PacketReport;
use steadycast_units::{Ecn, Span, Time, sums};

/// What is known of a path's way with the ECN field; in order, the worst last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum EcnPath {
    /// Packets leave as not ECN-capable.
    #[default]
    Off,
    /// Packets leave as ECN-capable, and no report tells how they arrive.
    Untold,
    /// Too few reports have come so far.
    Unknown,
    /// Packets arrive as they were sent, or marked.
    Kept,
    /// Packets arrive as not ECN-capable; they leave so from now on.
    Cleared,
    /// Packets arrive with the other ECN-capable codepoint; they leave as not ECN-capable from now on.
    Changed,
    /// ECN-capable packets do not arrive, others do; they leave as not ECN-capable from now on.
    Lost,
}

impl EcnPath {
    /// Its name in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Untold => "untold",
            Self::Unknown => "unknown",
            Self::Kept => "kept",
            Self::Cleared => "cleared",
            Self::Changed => "changed",
            Self::Lost => "lost",
        }
    }

    /// What a path does that does not serve ECN; `None` of one that may.
    pub const fn failure(self) -> Option<&'static str> {
        match self {
            Self::Off | Self::Untold | Self::Unknown | Self::Kept => None,
            Self::Cleared => Some("the path clears the ECN field"),
            Self::Changed => Some("the path changes the ECN field"),
            Self::Lost => Some("the path loses ECN-capable packets"),
        }
    }
}

/// What became of ECN-capable packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnCounts {
    /// Sent as ECN-capable.
    pub sent: u64,
    /// Reported as marked.
    pub marked: u64,
    /// Reported as not ECN-capable.
    pub cleared: u64,
    /// Reported with the other ECN-capable codepoint.
    pub changed: u64,
}

sums!(EcnCounts { sent, marked, cleared, changed });

/// This many packets that have arrived are judged together.
const JUDGED: u64 = 20;
/// No more than one in this many of them may have come with another field than a path may give it.
const TOLERATED: u64 = 10;
/// ECN-capable packets are sent into silence for this long, and for as many packets as are judged, before others are
/// tried.
const SILENCE: Span = Span::secs(3);

/// Sends as ECN-capable from the first packet (the leap of faith of RFC 6679, 7.2.3), and no more once the path turns
/// out to clear, change or lose what is so (7.4.1). Where nothing arrives, others are tried: where those arrive and
/// ECN-capable ones, tried again, do not, it is ECN that is lost. A path that fails is not tried again in the session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EcnCheck {
    asked: Ecn,
    pub(crate) path: EcnPath,
    pub(crate) counts: EcnCounts,
    /// How many packets are judged next, how many of them were cleared, and how many changed.
    judged: (u64, u64, u64),
    /// Since when ECN-capable packets have been sent of which none is known to have arrived, and how many.
    silent: Option<(Time, u64)>,
    /// The numbers of the packets that were sent otherwise for a trial; while it lasts the second is the largest.
    plain: Option<(u64, u64)>,
    /// How many of these have arrived.
    plainly: u64,
}

impl EcnCheck {
    /// Sends as `asked`; reports tell how packets arrive, or they don't.
    pub(crate) fn new(asked: Ecn, told: bool) -> Self {
        let path = match (asked.is_capable(), told) {
            (false, _) => EcnPath::Off,
            (true, false) => EcnPath::Untold,
            (true, true) => EcnPath::Unknown,
        };
        Self { asked, path, ..Self::default() }
    }

    /// The field with which the next packet leaves.
    pub(crate) fn field(&self) -> Ecn {
        if self.trying_plain() || self.path.failure().is_some() { Ecn::NotEct } else { self.asked }
    }

    fn trying_plain(&self) -> bool {
        self.plain.is_some_and(|(_, last)| last == u64::MAX)
    }

    /// The packet of this number leaves with [`EcnCheck::field`].
    pub(crate) fn on_sent(&mut self, now: Time, number: u64) {
        if !self.field().is_capable() {
            return;
        }
        self.counts.sent += 1;
        if self.path != EcnPath::Unknown {
            return;
        }
        let (since, count) = self.silent.unwrap_or((now, 0));
        self.silent = Some((since, count + 1));
        if count + 1 < JUDGED || now.since(since) < SILENCE {
            return;
        }
        if self.plain.is_some() {
            self.path = EcnPath::Lost;
        } else {
            self.plain = Some((number + 1, u64::MAX));
        }
    }

    /// A report tells of these packets; the next one to leave has the number `next`.
    pub(crate) fn on_report(&mut self, packets: &[PacketReport], next: u64) {
        if matches!(self.path, EcnPath::Off | EcnPath::Untold) {
            return;
        }
        for packet in packets {
            let Some(ecn) = packet.arrived.and_then(|arrived| arrived.ecn) else { continue };
            if self.plain.is_some_and(|(first, last)| (first..=last).contains(&packet.number)) {
                self.plainly += 1;
            } else {
                self.on_capable(ecn);
            }
        }
        // Somebody is there: what is ECN-capable is tried once more.
        if self.trying_plain() && self.plainly >= JUDGED {
            self.end_trial(next);
        }
    }

    fn end_trial(&mut self, next: u64) {
        self.plain = self.plain.map(|(first, _)| (first, next.saturating_sub(1)));
        self.silent = None;
    }

    /// A packet that was sent as ECN-capable has arrived with this field.
    fn on_capable(&mut self, ecn: Ecn) {
        if self.path.failure().is_some() {
            return;
        }
        let (cleared, changed) = (ecn == Ecn::NotEct, ecn.is_capable() && !ecn.is_ce() && ecn != self.asked);
        self.counts.marked += u64::from(ecn.is_ce());
        self.counts.cleared += u64::from(cleared);
        self.counts.changed += u64::from(changed);
        // They do come, late: the trial of others is over, and says nothing.
        (self.silent, self.plainly) = (None, 0);
        if self.trying_plain() {
            self.plain = self.plain.map(|(first, _)| (first, first));
        }
        let (all, none, other) = &mut self.judged;
        (*all, *none, *other) = (*all + 1, *none + u64::from(cleared), *other + u64::from(changed));
        if *all < JUDGED {
            return;
        }
        self.path = if *none * TOLERATED > *all {
            EcnPath::Cleared
        } else if *other * TOLERATED > *all {
            EcnPath::Changed
        } else {
            EcnPath::Kept
        };
        self.judged = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_control::{PacketArrival, Stream};
    use steadycast_units::Bytes;

    /// Sends `packets` in 10 ms each over a path that tells of each at once what `path` makes of its field, and returns
    /// the check and the field with which each left.
    fn over(asked: Ecn, packets: u64, mut path: impl FnMut(u64, Ecn) -> Option<Ecn>) -> (EcnCheck, Vec<Ecn>) {
        let mut check = EcnCheck::new(asked, true);
        let mut left = Vec::new();
        for number in 0..packets {
            let at = Time::ZERO + Span::millis(10 * number);
            let field = check.field();
            check.on_sent(at, number);
            left.push(field);
            let arrived = path(number, field).map(|ecn| PacketArrival { at: None, ecn: Some(ecn) });
            let report = PacketReport { number, sent: at, size: Bytes::new(1000), stream: Stream::Media, arrived };
            check.on_report(&[report], number + 1);
        }
        (check, left)
    }

    #[test]
    fn a_path_that_keeps_and_marks_is_kept_and_its_marks_are_counted() {
        for asked in [Ecn::Ect0, Ecn::Ect1] {
            let (check, left) = over(asked, 200, |n, ecn| Some(if n % 4 == 0 { Ecn::Ce } else { ecn }));
            assert_eq!(check.path, EcnPath::Kept);
            assert_eq!(check.counts, EcnCounts { sent: 200, marked: 50, cleared: 0, changed: 0 });
            assert!(left.iter().all(|ecn| *ecn == asked));
        }
    }

    #[test]
    fn a_path_that_clears_or_changes_the_field_ends_it_after_twenty_packets_and_for_good() {
        for (what, path) in [(Ecn::NotEct, EcnPath::Cleared), (Ecn::Ect0, EcnPath::Changed)] {
            // It would keep the field later.
            let (check, left) = over(Ecn::Ect1, 400, |n, ecn| Some(if n < 100 { what } else { ecn }));
            assert_eq!(check.path, path);
            assert!(left[..20].iter().all(|ecn| *ecn == Ecn::Ect1));
            assert!(left[20..].iter().all(|ecn| *ecn == Ecn::NotEct));
            assert_eq!(check.counts.sent, 20);
        }
    }

    #[test]
    fn a_path_that_begins_to_clear_later_is_found_too_and_one_packet_in_ten_is_none() {
        let (check, left) = over(Ecn::Ect0, 400, |n, ecn| Some(if n < 200 { ecn } else { Ecn::NotEct }));
        assert_eq!(check.path, EcnPath::Cleared);
        assert!(left[..200].iter().all(|ecn| *ecn == Ecn::Ect0) && left[220..].iter().all(|ecn| *ecn == Ecn::NotEct));
        let (check, _) = over(Ecn::Ect0, 400, |n, ecn| Some(if n % 10 == 3 { Ecn::NotEct } else { ecn }));
        assert_eq!((check.path, check.counts.cleared), (EcnPath::Kept, 40));
    }

    #[test]
    fn a_path_that_loses_what_is_capable_is_told_from_one_on_which_nobody_listens_yet() {
        let (check, left) = over(Ecn::Ect1, 2_000, |_, ecn| (!ecn.is_capable()).then_some(ecn));
        assert_eq!(check.path, EcnPath::Lost);
        // Three seconds of each, and the trial of others until twenty have come.
        assert_eq!(left.iter().filter(|ecn| ecn.is_capable()).count(), 602);
        // A receiver that comes after ten seconds.
        let (check, left) = over(Ecn::Ect1, 3_000, |n, ecn| (n >= 1_000).then_some(ecn));
        assert_eq!(check.path, EcnPath::Kept);
        assert_eq!(left.iter().filter(|ecn| !ecn.is_capable()).count(), 1_000 - 301 + 20);
    }

    #[test]
    fn without_reports_of_it_the_field_is_what_was_asked_for_and_off_is_off() {
        for (asked, path) in [(Ecn::Ect0, EcnPath::Untold), (Ecn::NotEct, EcnPath::Off)] {
            let mut check = EcnCheck::new(asked, false);
            for number in 0..2_000 {
                check.on_sent(Time::ZERO + Span::millis(10 * number), number);
            }
            assert_eq!((check.path, check.field()), (path, asked));
        }
    }
}
