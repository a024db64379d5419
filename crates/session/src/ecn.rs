//! ECN path validation (RFC 6679, sections 7.2 to 7.4), based on the feedback of RFC 8888 (section 7).

use steadycast_control::PacketReport;
use steadycast_units::{Ecn, Span, Time, sums};

/// The result of the validation. Failures come last in the order, because a session with several sources reports the
/// maximum of their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum EcnPath {
    /// All packets are sent without ECN, because ECN was not requested.
    #[default]
    Off,
    /// Reports do not contain the ECN field with which packets arrive.
    Untold,
    /// Not enough reports have arrived yet.
    Unknown,
    /// Packets arrive with the ECN field that they were sent with, or with CE.
    Kept,
    /// Packets arrive as not ECN-capable. From now on packets are sent without ECN.
    Cleared,
    /// ECT(0) arrives as ECT(1), or the reverse. From now on packets are sent without ECN.
    Changed,
    /// ECN-capable packets are lost, but packets without ECN arrive. From now on packets are sent without ECN.
    Lost,
}

impl EcnPath {
    /// Returns the result's name in records.
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

    /// Returns a description of the path's fault, or `None` if no fault is known.
    pub const fn failure(self) -> Option<&'static str> {
        match self {
            Self::Off | Self::Untold | Self::Unknown | Self::Kept => None,
            Self::Cleared => Some("the path clears the ECN field"),
            Self::Changed => Some("the path changes the ECN field"),
            Self::Lost => Some("the path loses ECN-capable packets"),
        }
    }
}

/// Numbers of ECN-capable packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnCounts {
    /// Number of packets sent as ECN-capable.
    pub sent: u64,
    /// Number of packets reported as marked (CE).
    pub marked: u64,
    /// Number of packets reported as not ECN-capable.
    pub cleared: u64,
    /// Number of packets whose ECT(0) arrived as ECT(1), or the reverse.
    pub changed: u64,
}

sums!(EcnCounts { sent, marked, cleared, changed });

/// Number of arrivals that are assessed together.
const ASSESSED_PACKETS: u64 = 20;
/// Up to one wrong field in this many packets is not taken as a fault of the path.
const PACKETS_PER_TOLERATED_FAULT: u64 = 10;
/// If no ECN-capable packet arrives for this time and for [`ASSESSED_PACKETS`] packets, packets without ECN are tried.
const MAX_SILENCE: Span = Span::secs(3);

/// Validates the path for ECN. All packets are ECN-capable, starting with the first one (RFC 6679, section 7.2.3),
/// until the path clears, changes or loses them (section 7.4.1).
///
/// If no ECN-capable packet arrives, packets without ECN are tried. If they arrive, ECN is tried once more. A failure
/// is final.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EcnCheck {
    asked: Ecn,
    pub(crate) path: EcnPath,
    pub(crate) counts: EcnCounts,
    /// Numbers of packets in the present assessment: all, those with a cleared field, and those with a changed field.
    judged: (u64, u64, u64),
    /// The time since which no ECN-capable packet has arrived, and the number of ECN-capable packets sent since then.
    silent: Option<(Time, u64)>,
    /// The numbers of the first and the last packet of the trial without ECN. During the trial, the last number is
    /// `u64::MAX`.
    plain: Option<(u64, u64)>,
    plain_arrivals: u64,
}

impl EcnCheck {
    /// Creates a check. `reported` is whether reports contain the ECN field with which each packet arrives.
    pub(crate) fn new(asked: Ecn, reported: bool) -> Self {
        let path = match (asked.is_capable(), reported) {
            (false, _) => EcnPath::Off,
            (true, false) => EcnPath::Untold,
            (true, true) => EcnPath::Unknown,
        };
        Self { asked, path, ..Self::default() }
    }

    pub(crate) fn field(&self) -> Ecn {
        if self.trying_plain() || self.path.failure().is_some() { Ecn::NotEct } else { self.asked }
    }

    fn trying_plain(&self) -> bool {
        self.plain.is_some_and(|(_, last)| last == u64::MAX)
    }

    /// Counts a packet as sent. `number` is the packet's number. Its ECN field is the result of [`EcnCheck::field`].
    pub(crate) fn on_sent(&mut self, now: Time, number: u64) {
        if !self.field().is_capable() {
            return;
        }
        self.counts.sent += 1;
        // Do nothing if ECN-capable packets have arrived before, because a later lack of arrivals has other reasons
        // than ECN.
        if self.path != EcnPath::Unknown {
            return;
        }
        let (since, count) = self.silent.unwrap_or((now, 0));
        self.silent = Some((since, count + 1));
        if count + 1 < ASSESSED_PACKETS || now.since(since) < MAX_SILENCE {
            return;
        }
        if self.plain.is_some() {
            self.path = EcnPath::Lost;
        } else {
            self.plain = Some((number + 1, u64::MAX));
        }
    }

    /// Processes per-packet feedback. `next` is the number of the next packet that is sent.
    pub(crate) fn on_report(&mut self, packets: &[PacketReport], next: u64) {
        if matches!(self.path, EcnPath::Off | EcnPath::Untold) {
            return;
        }
        for packet in packets {
            let Some(ecn) = packet.arrived.and_then(|arrived| arrived.ecn) else { continue };
            if self.plain.is_some_and(|(first, last)| (first..=last).contains(&packet.number)) {
                self.plain_arrivals += 1;
            } else {
                self.on_capable(ecn);
            }
        }
        // Packets without ECN arrive, so a receiver exists. End the trial and try ECN-capable packets once more.
        if self.trying_plain() && self.plain_arrivals >= ASSESSED_PACKETS {
            self.end_trial(next);
        }
    }

    fn end_trial(&mut self, next: u64) {
        self.plain = self.plain.map(|(first, _)| (first, next.saturating_sub(1)));
        self.silent = None;
    }

    fn on_capable(&mut self, ecn: Ecn) {
        if self.path.failure().is_some() {
            return;
        }
        // CE is not a change, because a router may mark any ECN-capable packet.
        let (cleared, changed) = (ecn == Ecn::NotEct, ecn.is_capable() && !ecn.is_ce() && ecn != self.asked);
        self.counts.marked += u64::from(ecn.is_ce());
        self.counts.cleared += u64::from(cleared);
        self.counts.changed += u64::from(changed);
        // An ECN-capable packet has arrived, so the path does not drop all such packets. If a trial without ECN is
        // running, end it without a result.
        (self.silent, self.plain_arrivals) = (None, 0);
        if self.trying_plain() {
            self.plain = self.plain.map(|(first, _)| (first, first));
        }
        let (all, none, other) = &mut self.judged;
        (*all, *none, *other) = (*all + 1, *none + u64::from(cleared), *other + u64::from(changed));
        if *all < ASSESSED_PACKETS {
            return;
        }
        self.path = if *none * PACKETS_PER_TOLERATED_FAULT > *all {
            EcnPath::Cleared
        } else if *other * PACKETS_PER_TOLERATED_FAULT > *all {
            EcnPath::Changed
        } else {
            EcnPath::Kept
        };
        // Start another assessment, because the route may change.
        self.judged = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_control::{PacketArrival, Stream};
    use steadycast_units::Bytes;

    /// Sends a packet every 10 ms and reports it immediately. `path` returns the ECN field with which each packet
    /// arrives. Returns the check and the ECN field with which each packet was sent.
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
            // The path has the fault for the first 100 packets only. The check does not try ECN again after a failure.
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
        // ECN-capable packets are sent in two phases of three seconds, each with 301 packets.
        assert_eq!(left.iter().filter(|ecn| ecn.is_capable()).count(), 602);
        // The receiver joins after ten seconds.
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
