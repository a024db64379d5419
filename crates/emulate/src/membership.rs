//! Multicast membership of hosts. The hosts' kernels report it by IGMP (RFC 3376, RFC 2236).

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

const REPORT_V1: u8 = 0x12;
const REPORT_V2: u8 = 0x16;
const LEAVE: u8 = 0x17;
const REPORT_V3: u8 = 0x22;

/// A source address in network byte order.
type Source = [u8; 4];

/// A change of a host's membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// The host wants to receive from all sources. A list of excluded sources is ignored, so they are received as well.
    All,
    /// The host wants to receive from these sources only. An empty list means that it leaves the group.
    Only(&'a [Source]),
    /// The host wants to receive from these sources, too.
    More(&'a [Source]),
    /// The host no longer wants to receive from these sources.
    Fewer(&'a [Source]),
}

/// The sources from which a host receives a group.
#[derive(Debug)]
pub(crate) enum Sources {
    /// The host receives from all sources. Excluded sources are not tracked.
    All,
    /// The host receives from these sources. If the set is empty, the host is not in the group.
    Only(BTreeSet<Source>),
}

impl Default for Sources {
    fn default() -> Self {
        Self::Only(BTreeSet::new())
    }
}

impl Sources {
    pub(crate) fn apply(&mut self, change: Change<'_>) {
        match (&mut *self, change) {
            (_, Change::All) => *self = Self::All,
            (_, Change::Only(these)) => *self = Self::Only(these.iter().copied().collect()),
            (Self::Only(sources), Change::More(these)) => sources.extend(these),
            (Self::Only(sources), Change::Fewer(these)) => sources.retain(|one| !these.contains(one)),
            // Ignore the change, because it only concerns the excluded sources, which are not tracked.
            (Self::All, Change::More(_) | Change::Fewer(_)) => {}
        }
    }

    /// Returns whether the host is in the group.
    pub(crate) fn is_any(&self) -> bool {
        !matches!(self, Self::Only(sources) if sources.is_empty())
    }
}

/// Calls `change` for each group record in an IGMP message. Ignores truncated and unknown messages.
pub(crate) fn changes(igmp: &[u8], mut change: impl FnMut(Ipv4Addr, Change<'_>)) {
    let group = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(igmp.get(at..at + 4)?).ok()?));
    match igmp.first() {
        Some(&(REPORT_V1 | REPORT_V2)) => group(4).into_iter().for_each(|g| change(g, Change::All)),
        Some(&LEAVE) => group(4).into_iter().for_each(|g| change(g, Change::Only(&[]))),
        Some(&REPORT_V3) => {
            let count = igmp.get(6..8).map_or(0, |n| u16::from_be_bytes([n[0], n[1]]));
            let mut at = 8;
            for _ in 0..count {
                let (Some(head), Some(group)) = (igmp.get(at..at + 4), group(at + 4)) else { return };
                let end = at + 8 + 4 * usize::from(u16::from_be_bytes([head[2], head[3]]));
                let Some((sources, _)) = igmp.get(at + 8..end).map(<[u8]>::as_chunks) else { return };
                match head[0] {
                    2 | 4 => change(group, Change::All),
                    1 | 3 => change(group, Change::Only(sources)),
                    5 => change(group, Change::More(sources)),
                    // Linux also sends this record when it leaves a source-specific group (RFC 3376, section 5.1).
                    6 => change(group, Change::Fewer(sources)),
                    _ => {}
                }
                // Skip the auxiliary data. Its length is in 32-bit words.
                at = end + 4 * usize::from(head[1]);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 0, 0, 1);
    const OTHER: Ipv4Addr = Ipv4Addr::new(239, 0, 0, 2);
    const A: Source = [10, 0, 0, 1];
    const B: Source = [10, 0, 0, 2];

    /// Checks which calls of `change` a message causes.
    fn check_changes(igmp: &[u8], expected: &[(Ipv4Addr, Change<'_>)]) {
        let mut at = 0;
        changes(igmp, |group, change| {
            assert_eq!(Some(&(group, change)), expected.get(at), "of {igmp:?}");
            at += 1;
        });
        assert_eq!(at, expected.len(), "{igmp:?}");
    }

    /// Returns a report with two records. The first record has the type `kind` and these sources. The second record
    /// accepts all sources of another group.
    fn report(kind: u8, sources: &[Source]) -> Vec<u8> {
        let mut bytes = vec![0x22, 0, 0, 0, 0, 0, 0, 2];
        bytes.extend([kind, 0, 0, sources.len() as u8, 239, 0, 0, 1]);
        bytes.extend(sources.as_flattened());
        bytes.extend([4, 0, 0, 0, 239, 0, 0, 2]);
        bytes
    }

    #[test]
    fn reports_of_all_igmp_versions_are_parsed() {
        check_changes(&[0x16, 0, 0, 0, 239, 0, 0, 1], &[(GROUP, Change::All)]);
        check_changes(&[0x17, 0, 0, 0, 239, 0, 0, 1], &[(GROUP, Change::Only(&[]))]);
        let other = (OTHER, Change::All);
        for (kind, change) in [
            (1, Change::Only(&[A, B])),
            (2, Change::All),
            (3, Change::Only(&[A, B])),
            (4, Change::All),
            (5, Change::More(&[A, B])),
            (6, Change::Fewer(&[A, B])),
        ] {
            check_changes(&report(kind, &[A, B]), &[(GROUP, change), other]);
        }
        check_changes(&report(3, &[]), &[(GROUP, Change::Only(&[])), other]);
        check_changes(&report(7, &[A]), &[other]);
    }

    /// Applies these records in order. Returns, after each, whether the host is in the group.
    fn is_in(records: &[(u8, &[Source])]) -> Vec<bool> {
        let mut sources = Sources::default();
        let mut apply = |&(kind, these): &(u8, &[Source])| {
            changes(&report(kind, these), |group, change| {
                if group == GROUP {
                    sources.apply(change);
                }
            });
            sources.is_any()
        };
        records.iter().map(&mut apply).collect()
    }

    #[test]
    fn a_source_specific_group_is_left_with_its_last_source() {
        // Kernels repeat their reports. A repeated report must not change the membership.
        assert_eq!(is_in(&[(5, &[A]), (5, &[B]), (5, &[B]), (6, &[A]), (6, &[A])]), [true; 5]);
        assert_eq!(
            is_in(&[(5, &[A, B]), (6, &[A]), (6, &[B]), (6, &[B]), (5, &[A])]),
            [true, true, false, false, true]
        );
        assert_eq!(is_in(&[(3, &[A, B]), (3, &[B]), (6, &[B])]), [true, true, false]);
        assert_eq!(is_in(&[(6, &[A]), (5, &[])]), [false; 2]);
    }

    #[test]
    fn sources_more_or_less_change_nothing_where_it_is_taken_from_everybody() {
        assert_eq!(is_in(&[(5, &[A]), (4, &[]), (6, &[A]), (5, &[A]), (6, &[A])]), [true; 5]);
        assert_eq!(is_in(&[(4, &[]), (3, &[A]), (6, &[A])]), [true, true, false]);
        assert_eq!(is_in(&[(4, &[]), (3, &[])]), [true, false]);
    }

    #[test]
    fn a_truncated_report_yields_its_complete_records() {
        let whole = report(5, &[A, B]);
        let all = [(GROUP, Change::More(&[A, B])), (OTHER, Change::All)];
        for len in 0..=whole.len() {
            check_changes(&whole[..len], &all[..usize::from(len >= 24) + usize::from(len >= 32)]);
        }
    }
}
