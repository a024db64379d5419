//! The claims about the members of a session.
use proptest::prelude::*;
use steadycast_rtcp::{Conflict, Members, Origin, SourceStatus};
use steadycast_units::{Seed, Span, Time};

const A: Origin = Origin(1);
const B: Origin = Origin(2);
/// An address from which no source sends.
const UNUSED: Origin = Origin(u64::MAX);

/// Returns a separate address for each source.
fn place(ssrc: u32) -> Origin {
    Origin(1000 + u64::from(ssrc))
}

fn at(s: u64) -> Time {
    Time::ZERO + Span::secs(s)
}

fn census(members: &Members) -> (u32, u32) {
    let census = members.census();
    (census.members, census.senders)
}

/// Creates a table that has room for each member of a test.
fn large_table(own: u32) -> Members {
    Members::sampled(own, 0, 16_384)
}

/// Counts the SSRCs that have an entry in the table. Sources that are not members count too.
fn entries(members: &Members, ssrcs: impl IntoIterator<Item = u32>) -> usize {
    ssrcs.into_iter().filter(|&ssrc| !members.speaks_from(ssrc, UNUSED)).count()
}

#[test]
fn one_packet_is_no_member_two_are_and_a_name_is_at_once() {
    let mut members = large_table(1);
    assert_eq!(census(&members), (1, 0));
    assert_eq!(members.on_rtcp(at(0), 5, A), SourceStatus::Unproven);
    assert_eq!(census(&members), (1, 0));
    assert_eq!(members.on_rtcp(at(1), 5, A), SourceStatus::Joined);
    assert_eq!(members.on_cname(at(1), 6, B), SourceStatus::Joined);
    assert_eq!(members.on_rtcp(at(2), 6, B), SourceStatus::Member);
    assert_eq!(census(&members), (3, 0));
    assert!(members.contains(5) && members.contains(6));
}

#[test]
fn senders_are_those_heard_sending_until_two_intervals_of_silence() {
    let mut members = large_table(1);
    members.on_rtp(at(0), 5, A);
    members.on_own_rtp(at(0));
    assert_eq!(census(&members), (2, 2));
    assert!(members.census().we_sent);
    members.on_rtcp(at(9), 5, A);
    assert_eq!(members.expire(at(10), Span::secs(25), Span::secs(10)), 0);
    assert_eq!(census(&members), (2, 2));
    assert_eq!(members.expire(at(11), Span::secs(25), Span::secs(10)), 0);
    assert_eq!(census(&members), (2, 0));
    assert!(!members.census().we_sent);
}

#[test]
fn a_member_silent_for_its_timeout_is_gone_and_counted_among_the_departures() {
    let mut members = large_table(1);
    members.on_rtp(at(0), 5, A);
    members.on_cname(at(10), 6, B);
    members.on_rtcp(at(0), 7, B);
    assert_eq!(members.expire(at(25), Span::secs(25), Span::secs(100)), 0);
    assert_eq!(members.expire(at(26), Span::secs(25), Span::secs(100)), 1);
    assert_eq!((census(&members), entries(&members, 5..8)), ((2, 0), 1));
}

#[test]
fn a_bye_counts_at_once_and_its_stragglers_do_not_bring_it_back() {
    let mut members = large_table(1);
    members.on_rtp(at(0), 5, A);
    members.on_cname(at(0), 5, A);
    assert!(members.on_bye(at(1), 5, A));
    assert_eq!(census(&members), (1, 0));
    assert!(!members.on_bye(at(1), 5, A), "a second BYE changes nothing");
    assert_eq!(members.on_rtp(at(2), 5, A), SourceStatus::Gone);
    assert_eq!(members.on_cname(at(2), 5, A), SourceStatus::Gone);
    assert_eq!(census(&members), (1, 0));
    assert_eq!(members.expire(at(27), Span::secs(25), Span::secs(10)), 0);
    assert_eq!(members.on_cname(at(28), 5, A), SourceStatus::Joined);
    assert!(!members.on_bye(at(28), 99, A), "a BYE of a stranger");
}

#[test]
fn a_bye_from_another_address_is_not_believed() {
    let mut members = large_table(1);
    members.on_cname(at(0), 5, A);
    assert!(!members.on_bye(at(1), 5, B));
    assert_eq!(census(&members), (2, 0));
}

#[test]
fn a_bye_is_not_believed_either_from_where_neither_reports_nor_media_come() {
    let mut members = large_table(1);
    members.on_rtp(at(0), 5, A);
    assert!(!members.on_bye(at(1), 5, B));
    assert!(members.on_bye(at(1), 5, A));
}

#[test]
fn our_ssrc_from_elsewhere_is_a_collision_once_and_a_loop_after() {
    let mut members = large_table(1);
    assert_eq!(members.on_rtp(at(0), 1, A), SourceStatus::Conflict(Conflict::WithUs));
    members.renew(2);
    assert_eq!(members.on_cname(at(0), 1, A), SourceStatus::Joined, "the other one keeps the number");
    assert_eq!(members.on_rtcp(at(1), 2, A), SourceStatus::Conflict(Conflict::Loop));
    assert_eq!(members.on_rtcp(at(1), 2, B), SourceStatus::Conflict(Conflict::WithUs));
}

#[test]
fn another_members_ssrc_from_elsewhere_is_ignored() {
    let mut members = large_table(1);
    members.on_rtp(at(0), 5, A);
    assert_eq!(members.on_rtcp(at(0), 5, B), SourceStatus::Conflict(Conflict::WithMember));
    assert_eq!(members.on_rtp(at(1), 5, B), SourceStatus::Conflict(Conflict::WithMember));
    assert_eq!(members.on_rtp(at(1), 5, A), SourceStatus::Member);
    assert_eq!(members.on_rtcp(at(1), 5, A), SourceStatus::Member);
}

#[test]
fn who_spoke_in_a_sources_name_before_its_media_came_is_forgotten_when_it_comes() {
    // Validated by two reports, a report and a name, or a name and a BYE.
    for said in 0..3 {
        let mut members = large_table(1);
        members.on_rtcp(at(0), 5, B);
        match said {
            0 => drop(members.on_rtcp(at(0), 5, B)),
            _ => drop(members.on_cname(at(0), 5, B)),
        }
        if said == 2 {
            members.on_bye(at(0), 5, B);
        }
        assert_eq!(members.on_rtp(at(1), 5, A), SourceStatus::Member, "{said}");
        assert!(members.speaks_from(5, A) && !members.speaks_from(5, B), "{said}");
        assert_eq!(census(&members), (2, 1), "{said}");
        assert_eq!(members.on_cname(at(2), 5, A), SourceStatus::Member, "{said}");
        assert_eq!(members.on_rtcp(at(2), 5, B), SourceStatus::Conflict(Conflict::WithMember), "{said}");
        assert!(!members.on_bye(at(3), 5, B) && members.on_bye(at(3), 5, A), "{said}");
        // The stranger's address can have all its entries again.
        for n in 0..Members::PER_ADDRESS {
            assert_eq!(members.on_cname(at(4), 1_000 + n, B), SourceStatus::Joined, "{said}");
        }
    }
}

#[test]
fn a_hundred_thousand_forged_sources_leave_the_table_bounded_and_the_members_in_it() {
    let mut members = Members::sampled(1, 0, 1000);
    for ssrc in 2..500 {
        members.on_cname(at(0), ssrc, place(ssrc));
    }
    for forged in 0..100_000u32 {
        let ssrc = 1_000_000 + forged;
        assert_eq!(members.on_rtcp(at(1), ssrc, place(ssrc)), SourceStatus::Unproven);
        if forged % 10_000 == 9_999 {
            assert_eq!(entries(&members, (2..500).chain(1_000_000..=ssrc)), 1000);
        }
    }
    assert_eq!(census(&members), (499, 0));
    assert_eq!(members.on_cname(at(2), 600, A), SourceStatus::Joined);
    for ssrc in 2..500 {
        assert_eq!(members.on_rtcp(at(3), ssrc, place(ssrc)), SourceStatus::Member);
    }
}

#[test]
fn forged_sources_that_say_bye_take_no_room_for_long_either() {
    let mut members = Members::sampled(1, 0, 100);
    for forged in 0..10_000u32 {
        let from = place(1_000 + forged);
        assert_eq!(members.on_cname(at(1), 1_000 + forged, from), SourceStatus::Joined);
        members.on_bye(at(1), 1_000 + forged, from);
    }
    assert_eq!(members.on_cname(at(2), 5, A), SourceStatus::Joined);
    assert_eq!(census(&members), (2, 0));
}

#[test]
fn one_address_counts_as_sixteen_members_however_many_names_it_makes_up() {
    let mut members = large_table(1);
    for ssrc in 2..17 {
        members.on_cname(at(0), ssrc, place(ssrc));
    }
    let refused = |ssrc: &u32| members.on_cname(at(1), *ssrc, B) == SourceStatus::Refused;
    assert_eq!((1_000..11_000).filter(refused).count(), 10_000 - 64);
    assert_eq!(census(&members), (16 + Members::COUNTED, 0));
    assert_eq!(members.on_cname(at(2), 600, A), SourceStatus::Joined, "another address has room of its own");
    members.expire(at(30), Span::secs(25), Span::secs(10));
    assert_eq!(members.on_cname(at(31), 601, B), SourceStatus::Joined, "and so has this one when they are forgotten");
    assert_eq!(census(&members), (2, 0), "the others have fallen silent");
}

#[test]
fn a_table_full_of_members_that_agree_with_the_key_refuses_newcomers() {
    let mut members = Members::sampled(1, 0, 10);
    for n in 1..11 {
        members.on_cname(at(0), n << 20, A);
    }
    assert_eq!(members.on_cname(at(1), 50 << 20, A), SourceStatus::Refused);
    assert_eq!(census(&members), (11, 0));
}

/// The mean of the estimates over forty samples of a group whose SSRCs are random, each relative to the truth.
fn estimates(truth: u32) -> (f64, f64) {
    let ratios: Vec<f64> = (0..40u64)
        .map(|seed| {
            let mut chance = Seed(seed).part("ssrc");
            let mut members = Members::sampled(1, chance.bits32(), 64);
            let ssrcs: Vec<u32> = (1..truth).map(|_| chance.bits32()).collect();
            for &ssrc in &ssrcs {
                members.on_cname(at(0), ssrc, place(ssrc));
            }
            assert!(entries(&members, ssrcs) <= 64);
            f64::from(members.census().members) / f64::from(truth)
        })
        .collect();
    let mean = ratios.iter().sum::<f64>() / 40.0;
    let worst = ratios.iter().map(|ratio| (ratio - 1.0).abs()).fold(0.0, f64::max);
    (mean, worst)
}

#[test]
fn a_sample_counts_small_groups_exactly_and_ten_thousand_well() {
    assert_eq!(estimates(65), (1.0, 0.0));
    // 39 to 64 in the sample: a standard error of 12 to 16 % each, and about 2.5 % of the mean of forty.
    let (mean, worst) = estimates(10_000);
    assert!((0.92..1.08).contains(&mean), "{mean}");
    assert!((0.1..0.6).contains(&worst), "{worst}");
}

#[test]
fn ssrcs_that_are_chosen_like_our_own_or_even_like_the_key_do_not_count_as_hundreds_of_millions() {
    for (alike, most) in [(1, 3_000), (0x5bd1_e995, 10_000_000)] {
        let mut members = Members::sampled(1, 0x5bd1_e995, 256);
        let mut chance = Seed(1).part("ssrc");
        for n in 0..100 {
            members.on_cname(at(0), chance.bits32(), Origin(100 + n));
        }
        // Five addresses, whose SSRCs agree in the lowest twenty bits.
        for n in 1..=320 {
            members.on_cname(at(1), alike ^ n << 20, Origin(u64::from(n) / 64));
            assert!(members.census().members <= most, "{:?}", members.census());
        }
    }
}

#[test]
fn a_sample_keeps_every_sender_and_leaves_it_out_when_it_falls_silent() {
    let mut members = Members::sampled(0, 0, 8);
    for ssrc in 0..1000u32 {
        members.on_cname(at(0), ssrc.wrapping_mul(0x9e37_79b9) | 1 << 20, place(ssrc));
    }
    let sender = 0x7fff_ffff; // differs from the key in every bit
    assert_eq!(members.on_cname(at(0), sender, A), SourceStatus::Unsampled);
    let before = members.census().members;
    assert_eq!(members.on_rtp(at(0), sender, A), SourceStatus::Joined);
    assert_eq!(members.on_cname(at(0), sender, A), SourceStatus::Member);
    assert_eq!(census(&members), (before + 1, 1));
    members.on_rtcp(at(19), sender, A);
    members.expire(at(20), Span::secs(100), Span::secs(10));
    assert_eq!(census(&members), (before, 0));
    assert!(!members.contains(sender));
}

#[test]
fn a_sample_grows_again_when_the_group_shrinks_without_a_dip_below_those_who_stay() {
    let mut members = Members::sampled(0, 0, 64);
    let ssrc = |i: u32| i.wrapping_mul(0x9e37_79b1);
    let mut now = 0;
    let mut hear = |members: &mut Members, count: u32| {
        now += 5;
        for i in 1..count {
            members.on_cname(at(now), ssrc(i), place(i));
        }
        members.expire(at(now), Span::secs(25), Span::secs(10));
        members.census().members
    };
    let large = hear(&mut members, 5_000);
    assert!((2_500..9_000).contains(&large), "{large}");
    // All but 39 fall silent. The estimate falls after they have timed out, but never below the true number.
    let course: Vec<u32> = (0..12).map(|_| hear(&mut members, 40)).collect();
    assert!(course.iter().all(|&members| members >= 40), "{course:?}");
    assert_eq!((course[0], course.last()), (large, Some(&40)));
}

#[test]
fn a_leave_storm_of_ten_thousand_leaves_nobody_behind() {
    let mut members = large_table(1);
    for ssrc in 2..10_002 {
        members.on_rtp(at(0), ssrc, place(ssrc));
    }
    assert_eq!(census(&members), (10_001, 10_000));
    let counted = (2..10_002).filter(|&ssrc| members.on_bye(at(1), ssrc, place(ssrc))).count();
    assert_eq!((counted, census(&members)), (10_000, (1, 0)));
    members.expire(at(100), Span::secs(25), Span::secs(10));
    assert_eq!(entries(&members, 2..10_002), 0);
}

proptest! {
    #[test]
    fn a_sample_stays_bounded_and_consistent_after_any_events(
        events in prop::collection::vec((0u8..6, 0u32..40, 0u64..3, 0u64..8), 1..300), capacity in 1usize..12,
    ) {
        let mut members = Members::sampled(3, 3, capacity);
        let mut now = Time::ZERO;
        for (event, ssrc, from, step) in events {
            now += Span::secs(step);
            let from = Origin(from);
            match event {
                0 => { members.on_rtp(now, ssrc, from); }
                1 => { members.on_rtcp(now, ssrc, from); }
                2 => { members.on_cname(now, ssrc, from); }
                3 => { members.on_bye(now, ssrc, from); }
                4 => { members.expire(now, Span::secs(20), Span::secs(8)); }
                _ if step == 7 => members.renew(ssrc),
                _ => members.on_own_rtp(now),
            }
            let census = members.census();
            prop_assert!(census.members as usize > (0..40).filter(|&ssrc| members.contains(ssrc)).count());
            prop_assert!(census.senders <= census.members);
            prop_assert!(entries(&members, 0..40) <= capacity);
        }
        // The first sweep removes all members; the second no longer counts those of the previous interval.
        for _ in 0..2 {
            now += Span::secs(1000);
            members.expire(now, Span::secs(20), Span::secs(8));
        }
        prop_assert_eq!((census(&members), entries(&members, 0..40)), ((1, 0), 0));
    }

    #[test]
    fn the_census_agrees_with_a_count_after_any_events(
        events in prop::collection::vec((0u8..6, 0u32..12, 0u64..3, 0u64..8), 1..300), capacity in 1usize..12,
    ) {
        // A sample cannot be halved if all SSRCs agree with its key, so a full table refuses newcomers.
        let of_key = |n: u32| n << 20;
        let ssrcs = || (0..12).map(of_key);
        let mut own = of_key(3);
        let mut members = Members::sampled(own, 0, capacity);
        let mut now = Time::ZERO;
        for (event, ssrc, from, step) in events {
            now += Span::secs(step);
            let (ssrc, from, before) = (of_key(ssrc), Origin(from), members.census().members);
            match event {
                0 => { members.on_rtp(now, ssrc, from); }
                1 => { members.on_rtcp(now, ssrc, from); }
                2 => { members.on_cname(now, ssrc, from); }
                3 => {
                    let counted = members.on_bye(now, ssrc, from);
                    prop_assert_eq!(members.census().members, before - u32::from(counted));
                }
                4 => {
                    let departed = members.expire(now, Span::secs(20), Span::secs(8));
                    prop_assert_eq!(members.census().members, before - departed);
                }
                _ if step == 7 => {
                    own = ssrc;
                    members.renew(own);
                }
                _ => members.on_own_rtp(now),
            }
            let census = members.census();
            prop_assert_eq!(census.members as usize, ssrcs().filter(|&ssrc| members.contains(ssrc)).count() + 1);
            prop_assert!(census.senders <= census.members);
            prop_assert!(entries(&members, ssrcs()) <= capacity);
            prop_assert!(!members.contains(own));
        }
        members.expire(now + Span::secs(1000), Span::secs(20), Span::secs(8));
        prop_assert_eq!((census(&members), entries(&members, ssrcs())), ((1, 0), 0));
    }
}
