//! Packets that left together are one group; what the way did to it shows in its distance from the group before
//! (libwebrtc, `inter_arrival_delta.cc`).

use steadycast_units::{Offset, PeerTime, Span, Time};

/// A group holds what left within this time of its first packet.
const GROUP: Span = Span::millis(5);
/// Packets that arrive this close together with a falling delay waited for the same thing and are one group.
const BURST: Span = Span::millis(5);
/// Such a group does not last longer than this.
const LONGEST_BURST: Span = Span::millis(100);
/// The other clock has jumped when its time between two groups is longer than ours by this.
const JUMP: Span = Span::secs(3);
/// After this many groups in a row that arrived before the one before them, all is forgotten.
const REORDERED: u32 = 3;

/// The time between the departures, and between the arrivals, of the last packets of two successive groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delta {
    pub(super) sent: Span,
    pub(super) arrived: Offset,
}

impl Delta {
    /// By how much longer the second was under way, in milliseconds.
    pub(super) fn variation(&self) -> f64 {
        (self.arrived.as_secs_f64() - self.sent.as_secs_f64()) * 1e3
    }
}

#[derive(Clone, Copy, Debug)]
struct Group {
    first_sent: Time,
    last_sent: Time,
    first_arrival: PeerTime,
    last_arrival: PeerTime,
    /// When feedback told of its last packet.
    told: Time,
}

impl Group {
    fn of(sent: Time, arrived: PeerTime, told: Time) -> Self {
        Self { first_sent: sent, last_sent: sent, first_arrival: arrived, last_arrival: arrived, told }
    }

    fn holds(&self, sent: Time, arrived: PeerTime) -> bool {
        sent.since(self.first_sent) <= GROUP || self.is_burst_with(sent, arrived)
    }

    fn is_burst_with(&self, sent: Time, arrived: PeerTime) -> bool {
        let apart = arrived.since(self.last_arrival).as_nanos();
        let sent_apart = sent.since(self.last_sent).as_offset().as_nanos();
        let lasts = arrived.since(self.first_arrival).as_nanos();
        sent_apart == 0
            || (apart < sent_apart
                && apart <= BURST.as_offset().as_nanos()
                && lasts < LONGEST_BURST.as_offset().as_nanos())
    }
}

/// Makes groups of packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Groups {
    current: Option<Group>,
    before: Option<Group>,
    reordered: u32,
}

impl Groups {
    /// A packet that arrived, and of which feedback told at `told`. The packets of one report come in the order of
    /// their arrival. The difference between the last two groups, when this packet begins another.
    pub(super) fn take(&mut self, sent: Time, arrived: PeerTime, told: Time) -> Option<Delta> {
        let Some(current) = &mut self.current else {
            self.current = Some(Group::of(sent, arrived, told));
            return None;
        };
        if sent < current.first_sent {
            return None;
        }
        if current.holds(sent, arrived) {
            current.last_sent = current.last_sent.max(sent);
            (current.last_arrival, current.told) = (arrived, told);
            return None;
        }
        let done = *current;
        let delta = self.before.map(|before| {
            let delta = Delta {
                sent: done.last_sent.since(before.last_sent),
                arrived: done.last_arrival.since(before.last_arrival),
            };
            (delta, done.told.since(before.told).as_offset())
        });
        if let Some((delta, here)) = delta {
            if delta.arrived.as_nanos().saturating_sub(here.as_nanos()) >= JUMP.as_offset().as_nanos() {
                *self = Self::default();
                return None;
            }
            if delta.arrived < Offset::ZERO {
                self.reordered += 1;
                if self.reordered >= REORDERED {
                    *self = Self::default();
                }
                return None;
            }
            self.reordered = 0;
        }
        self.before = Some(done);
        self.current = Some(Group::of(sent, arrived, told));
        delta.map(|(delta, _)| delta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds of departure and arrival; told at arrival.
    fn feed(groups: &mut Groups, packets: &[(u64, i64)]) -> Vec<(u64, i64)> {
        let each = packets.iter().filter_map(|(sent, arrived)| {
            let told = Time::ZERO + Span::millis(*sent + 100);
            groups.take(Time::ZERO + Span::millis(*sent), PeerTime::from_nanos(arrived * 1_000_000), told)
        });
        each.map(|d| (d.sent.as_nanos() / 1_000_000, d.arrived.as_nanos() / 1_000_000)).collect()
    }

    #[test]
    fn what_left_within_five_milliseconds_is_a_group_and_differences_are_of_last_packets() {
        let mut groups = Groups::default();
        let packets = [(0, 50), (3, 60), (5, 70), (33, 90), (36, 100), (66, 140), (100, 150)];
        // 0, 3 and 5 are one group, 33 and 36 the next, 66 the third; the one of 100 is not complete.
        assert_eq!(feed(&mut groups, &packets), [(31, 30), (30, 40)]);
    }

    #[test]
    fn what_waited_for_the_same_thing_is_a_group_though_it_left_apart() {
        let mut groups = Groups::default();
        // The way stood still until 200; then all came at once.
        let packets = [(0, 50), (20, 70), (40, 200), (60, 202), (80, 204), (100, 206), (130, 260), (160, 290)];
        assert_eq!(feed(&mut groups, &packets), [(20, 20), (80, 136), (30, 54)]);
    }

    #[test]
    fn packets_from_before_the_group_are_left_out() {
        let mut groups = Groups::default();
        assert_eq!(feed(&mut groups, &[(20, 50), (10, 55), (40, 70), (60, 90)]), [(20, 20)]);
    }

    #[test]
    fn a_jump_of_the_other_clock_begins_anew_in_either_direction() {
        let mut ahead = Groups::default();
        assert_eq!(feed(&mut ahead, &[(0, 0), (20, 20), (40, 40)]), [(20, 20)]);
        // The group of 60 arrives half a minute late by its clock: no difference is given over the jump.
        assert_eq!(feed(&mut ahead, &[(60, 30_060), (80, 30_080), (100, 30_100), (120, 30_120)]), [(20, 20)]);
        let mut back = Groups::default();
        feed(&mut back, &[(30_000, 30_000), (30_020, 30_020)]);
        let packets: Vec<_> = (2..12).map(|i| (30_000 + 20 * i, 20 * i as i64)).collect();
        let told = feed(&mut back, &packets);
        assert!(!told.is_empty() && told.iter().all(|d| *d == (20, 20)), "{told:?}");
    }
}
