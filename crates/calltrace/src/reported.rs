//! Finds arrivals by the receiver's reports on single packets: transport-wide feedback
//! (draft-holmer-rmcat-transport-wide-cc-extensions-01) and RFC 8888.

use crate::call::{Direction, PacketReport};
use std::collections::BTreeMap;
use steadycast_units::{PeerTime, Span};
use steadycast_wire::rtcp::{Acknowledged, Compound, CongestionFeedback, TransportFeedback};

/// What a report says about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    At(PeerTime),
    /// The packet arrived, but the report has no time for it.
    Untimed,
    Missing,
}

#[derive(Default)]
pub(crate) struct Arrivals {
    /// `None` if no report is about the packet.
    pub(crate) reported: Vec<Option<Reported>>,
    pub(crate) reports: Vec<PacketReport>,
    pub(crate) round_trip: Option<Span>,
    /// Whether the recording has the call's first packets.
    pub(crate) begins: bool,
    pub(crate) resolution: Option<Span>,
}

impl Arrivals {
    /// Returns the increase and the spread of the return delay at the time `arrived`, in nanoseconds; `None` with few
    /// reports. The return delay is the time from a report's newest arrival to the report.
    ///
    /// The increase is the difference between the medians of the ten seconds after and before `arrived`. The spread is
    /// the larger of the two ranges from the 10th to the 90th percentile.
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
    /// Joins reports with packets. If several packets have the same number, a report is about the newest packet before
    /// the report.
    pub(crate) fn arrivals(&self) -> Arrivals {
        let mut found = Arrivals { reported: vec![None; self.packets.len()], ..Arrivals::default() };
        let mut newest: BTreeMap<Option<u32>, Vec<u32>> = BTreeMap::new();
        let (mut next, mut near) = (0, None);
        for (at, bytes) in &self.reports {
            // Older packets with the same number are overwritten.
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
                    // If the packet with this number is half a number space old, the report is about a newer packet.
                    // The recording does not contain the newer packet.
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
