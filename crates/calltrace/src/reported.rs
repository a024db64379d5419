//! Finds arrivals in the receiver's reports on individual packets. These are transport-wide feedback
//! (draft-holmer-rmcat-transport-wide-cc-extensions-01) and RFC 8888 feedback.

use crate::call::{Direction, PacketReport};
use std::collections::BTreeMap;
use steadycast_units::{PeerTime, Span};
use steadycast_wire::rtcp::{Acknowledged, Compound, CongestionFeedback, TransportFeedback};

/// What a feedback report says about one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    At(PeerTime),
    /// The packet arrived, but the report has no arrival time for it.
    Untimed,
    Missing,
}

#[derive(Default)]
pub(crate) struct Arrivals {
    /// What is reported for each packet. It is `None` if no report is about the packet.
    pub(crate) reported: Vec<Option<Reported>>,
    pub(crate) reports: Vec<PacketReport>,
    pub(crate) round_trip: Option<Span>,
    /// Whether the recording contains the call's first packets.
    pub(crate) begins: bool,
    pub(crate) resolution: Option<Span>,
}

impl Arrivals {
    /// Returns how the return delay changes at the time `arrived`: its increase and its spread, in nanoseconds. Returns
    /// `None` if there are too few reports.
    ///
    /// The return delay of a report is the time from the newest arrival in it until the report itself arrives. The
    /// increase is the median in the ten seconds after `arrived`, minus the median in the ten seconds before. The
    /// spread is the range from the 10th to the 90th percentile. It is computed before and after `arrived`, and the
    /// larger value is returned.
    pub(crate) fn return_delay_change(&self, arrived: i64) -> Option<(i64, i64)> {
        const SIDE_NS: i64 = 10_000_000_000;
        const LEAST_REPORTS: usize = 5;
        let mut sides = [Vec::new(), Vec::new()];
        for (at, results) in &self.reports {
            let Some(newest) = results.iter().filter_map(|one| one.1).max() else { continue };
            let newest = newest.as_nanos();
            if (newest - arrived).abs() <= SIDE_NS {
                sides[usize::from(newest >= arrived)].push(at.as_nanos() as i64 - newest);
            }
        }
        sides.iter_mut().for_each(|side| side.sort_unstable());
        let [before, after] = &sides;
        if before.len().min(after.len()) < LEAST_REPORTS {
            return None;
        }
        let at = |side: &[i64], percent: usize| side[side.len() * percent / 100];
        let spread = |side: &[i64]| at(side, 90) - at(side, 10);
        Some((at(after, 50) - at(before, 50), spread(before).max(spread(after))))
    }
}

impl Direction {
    /// Joins reports with packets. If several packets have the same sequence number, a report is about the newest of
    /// them that left before the report.
    pub(crate) fn arrivals(&self) -> Arrivals {
        let mut found = Arrivals { reported: vec![None; self.packets.len()], ..Arrivals::default() };
        let mut newest: BTreeMap<Option<u32>, Vec<u32>> = BTreeMap::new();
        let (mut next, mut near) = (0, None);
        for (at, bytes) in &self.reports {
            // Overwrite older packets that have the same number.
            while let Some(packet) = self.packets.get(next).filter(|packet| packet.seen <= *at) {
                for (key, number) in [(Some(packet.ssrc), Some(packet.seq)), (None, packet.transport)] {
                    if let Some(number) = number {
                        let table = newest.entry(key).or_insert_with(|| vec![u32::MAX; 1 << 16]);
                        table[usize::from(number)] = next as u32;
                    }
                }
                next += 1;
            }
            let Ok(compound) = Compound::parse(bytes) else { continue };
            let mut results = Vec::new();
            for packet in &compound.packets {
                let mut each = Vec::new();
                if let Ok(Some(report)) = TransportFeedback::from_packet(packet) {
                    each.extend(report.acknowledged(near).map(|one| (None, one)));
                    found.resolution = Some(Span::micros(250));
                } else if let Ok(Some(report)) = CongestionFeedback::from_packet(packet) {
                    each.extend(report.acknowledged(near).map(|(ssrc, one)| (Some(ssrc), one)));
                    found.resolution = Some(Span::nanos(976_563));
                }
                let mut last = None;
                for (key, Acknowledged { seq, arrival }) in each {
                    let Some(index) = newest.get(&key).map(|table| table[usize::from(seq)] as usize) else { continue };
                    // If this packet is at least half a number space old, the report is about a newer packet with the
                    // same number. Skip it, because the recording does not contain that newer packet.
                    let recent = next.checked_sub(index).is_some_and(|behind| behind < 1 << 15);
                    let Some(known) = found.reported.get_mut(index).filter(|_| recent) else { continue };
                    results.push((index as u32, arrival.and_then(|arrived| arrived.at)));
                    match arrival {
                        None if known.is_none() => *known = Some(Reported::Missing),
                        Some(arrived) if !matches!(known, Some(Reported::At(_))) => {
                            *known = Some(arrived.at.map_or(Reported::Untimed, Reported::At));
                            near = arrived.at.or(near);
                            if self.packets[index].is_recorded {
                                last = last.max(Some(self.packets[index].seen));
                            }
                        }
                        _ => {}
                    }
                }
                if let Some(last) = last {
                    let trip = at.since(last);
                    found.round_trip = Some(found.round_trip.map_or(trip, |least| least.min(trip)));
                }
            }
            if !results.is_empty() {
                found.reports.push((*at, results));
            }
        }
        let waited =
            self.packets.first().zip(found.reports.first()).map(|(packet, report)| report.0.since(packet.seen));
        found.begins = waited.zip(found.round_trip).is_none_or(|(waited, least)| waited >= least);
        found
    }
}
