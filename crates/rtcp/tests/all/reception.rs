//! The claims about reception.
use proptest::prelude::*;
use steadycast_rtcp::{Arrived, Reception};
use steadycast_units::{Span, Time};
use steadycast_wire::ntp;

const CLOCK: u32 = 90_000;

fn at(us: u64) -> Time {
    Time::ZERO + Span::micros(us)
}

fn fed(numbers: &[u16]) -> Reception {
    let mut reception = Reception::new(7, CLOCK);
    for &seq in numbers {
        reception.on_rtp(Time::ZERO, seq, 0);
    }
    reception
}

#[test]
fn a_loss_of_one_in_four_is_64_of_256_and_only_of_its_interval() {
    let mut reception = fed(&[1, 2, 3, 5]);
    reception.on_rtp(Time::ZERO, 6, 0);
    reception.on_rtp(Time::ZERO, 8, 0);
    let block = reception.report_block(Time::ZERO).unwrap();
    assert_eq!((block.fraction, block.cumulative_lost, block.highest_seq), (64, 2, 8));
    reception.on_rtp(Time::ZERO, 9, 0);
    let block = reception.report_block(Time::ZERO).unwrap();
    assert_eq!((block.fraction, block.cumulative_lost), (0, 2));
}

#[test]
fn nothing_is_said_of_a_source_before_its_first_packet() {
    assert_eq!(fed(&[]).report_block(Time::ZERO), None);
    let block = fed(&[1]).report_block(Time::ZERO).unwrap();
    assert_eq!((block.fraction, block.cumulative_lost, block.highest_seq), (0, 0, 1));
}

#[test]
fn an_interval_without_packets_has_no_loss() {
    let mut reception = fed(&[1, 2]);
    reception.report_block(Time::ZERO);
    assert_eq!(reception.report_block(Time::ZERO).unwrap().fraction, 0);
}

#[test]
fn an_interval_in_which_nearly_all_is_lost_saturates_below_256() {
    let mut reception = fed(&[1, 2]);
    reception.report_block(Time::ZERO);
    reception.on_rtp(at(600_000), 2000, 0);
    assert_eq!(reception.report_block(Time::ZERO).unwrap().fraction, 255);
}

#[test]
fn packets_with_made_up_numbers_cost_a_running_stream_nothing_and_one_after_a_pause_counts() {
    let mut reception = fed(&[1, 2]);
    for (n, seq) in (3..200).enumerate() {
        let now = at(n as u64 * 8_000);
        assert_eq!(reception.on_rtp(now, seq, 0), Arrived::New(i64::from(seq)));
        // After each packet of the stream, three made-up ones in sequence, up to 3,000 ahead.
        for more in 0..3 {
            let made_up = seq + 100 + (seq * 37) % 2_800 + more;
            assert_eq!(reception.on_rtp(now + Span::millis(7), made_up, 0), Arrived::Stray);
        }
    }
    assert_eq!((reception.expected(), reception.received()), (199, 199));
    // At a spacing of 8 ms, up to four times as many packets as fit into the pause may have been lost.
    let last = at(196 * 8_000);
    assert_eq!(reception.clone().on_rtp(last + Span::millis(499), 199 + 248, 0), Arrived::New(447));
    assert_eq!(reception.clone().on_rtp(last + Span::millis(499), 199 + 249, 0), Arrived::Stray);
    assert_eq!(reception.on_rtp(last + Span::millis(500), 199 + 2_999, 0), Arrived::New(3_198));
}

#[test]
fn at_a_gigabit_a_burst_of_losses_makes_no_stray_of_the_packet_behind_it() {
    let mut reception = Reception::new(7, CLOCK);
    // 100,000 packets a second, in pairs. Every half second a burst of 1 to 60 ms of packets is lost.
    let (mut n, mut strays) = (0_u64, 0);
    for burst in 0..60 {
        for _ in 0..50_000 {
            strays += u32::from(reception.on_rtp(at(n / 2 * 20), n as u16, 0) == Arrived::Stray);
            n += 1;
        }
        n += 100 * (burst + 1);
    }
    assert_eq!(strays, 0);
    assert_eq!(reception.expected() - reception.received(), (1..60).map(|burst| 100 * burst).sum::<u64>());
}

#[test]
fn packets_that_are_told_at_once_explain_no_jump() {
    let mut reception = Reception::new(7, CLOCK);
    for n in 0..40 {
        reception.on_rtp(at(0), n, 0);
    }
    assert_eq!(reception.clone().on_rtp(at(64_000), 39 + 6_000, 0), Arrived::Stray);
    // Then one packet every 4 ms: up to four times as many as fit into 64 ms may have been lost.
    for n in 1..=80 {
        reception.on_rtp(at(u64::from(n) * 4_000), 39 + n, 0);
    }
    assert_eq!(reception.clone().on_rtp(at(384_000), 119 + 60, 0), Arrived::New(179));
    assert_eq!(reception.on_rtp(at(384_000), 119 + 120, 0), Arrived::Stray);
}

/// A forged packet with a timestamp ahead of the stream's does not let the next one skip many numbers.
#[test]
fn a_timestamp_ahead_of_the_stream_explains_no_jump() {
    // A packet each 4 ms, with a frame of ten packets each 40 ms.
    let mut reception = Reception::new(7, CLOCK);
    for n in 0..400 {
        reception.on_rtp(at(u64::from(n) * 4_000), n, u32::from(n / 10) * 3_600);
    }
    for ahead_ms in [200, 1_000, 4_900] {
        let mut reception = reception.clone();
        let last = 39 * 3_600;
        assert_eq!(reception.on_rtp(at(1_600_000), 400, last + ahead_ms * 90), Arrived::New(400));
        // The packet lowers the least delay by 100 ms at most. At four times the mean rate, these are 100 packets.
        assert_eq!(reception.on_rtp(at(1_600_000), 401, 40 * 3_600), Arrived::New(401));
        let later = 40 * 3_600 + 4_000 * 90;
        assert_eq!(reception.clone().on_rtp(at(1_600_100), 401 + 200, later), Arrived::Stray, "{ahead_ms}");
    }
}

#[test]
fn duplicates_are_told_and_make_the_cumulative_loss_negative() {
    let mut reception = fed(&[65534, 65535, 0]);
    assert_eq!(reception.on_rtp(Time::ZERO, 65535, 0), Arrived::Duplicate(65535));
    assert_eq!(reception.on_rtp(Time::ZERO, 0, 0), Arrived::Duplicate(65536));
    assert_eq!(reception.on_rtp(Time::ZERO, 65534, 0), Arrived::Duplicate(65534));
    assert_eq!((reception.duplicates(), reception.cumulative_lost()), (3, -3));
    let block = reception.report_block(Time::ZERO).unwrap();
    assert_eq!((block.fraction, block.cumulative_lost), (0, -3));
}

#[test]
fn a_late_packet_is_new_once_and_makes_up_for_its_loss() {
    let mut reception = fed(&[1, 2, 4]);
    assert_eq!(reception.cumulative_lost(), 1);
    assert_eq!(reception.on_rtp(Time::ZERO, 3, 0), Arrived::New(3));
    assert_eq!(reception.on_rtp(Time::ZERO, 3, 0), Arrived::Duplicate(3));
    assert_eq!(reception.cumulative_lost(), -1);
}

#[test]
fn a_restart_voids_the_count() {
    let mut reception = fed(&[1, 2, 9]);
    assert_eq!(reception.on_rtp(Time::ZERO, 40_000, 0), Arrived::Stray);
    assert_eq!(reception.on_rtp(Time::ZERO, 40_001, 0), Arrived::Restarted(40_001));
    assert_eq!((reception.expected(), reception.received(), reception.cumulative_lost()), (1, 1, 0));
}

#[test]
fn a_steady_stream_has_no_jitter_and_an_alternating_one_goes_to_its_difference() {
    let mut steady = Reception::new(7, CLOCK);
    let mut shaken = Reception::new(7, CLOCK);
    for i in 0..400u32 {
        // Packets are 40 ms apart, and every other packet of the second stream is 5 ms later: |D| = 450 ticks, of
        // either sign.
        let (ts, us) = (i.wrapping_mul(3600).wrapping_sub(500_000), u64::from(i) * 40_000);
        steady.on_rtp(at(us), i as u16, ts);
        shaken.on_rtp(at(us + u64::from(i % 2) * 5_000), i as u16, ts);
    }
    assert_eq!(steady.jitter(), Span::ZERO);
    assert!((4.9999..5.0001).contains(&shaken.jitter().as_millis_f64()));
    let block = shaken.report_block(at(0)).unwrap();
    assert!((449..=450).contains(&block.jitter));
}

#[test]
fn one_jump_adds_a_sixteenth_of_it() {
    let mut reception = Reception::new(7, CLOCK);
    reception.on_rtp(at(0), 0, 0);
    reception.on_rtp(at(40_000), 1, 3600);
    reception.on_rtp(at(60_000), 2, 7200); // 20 ms too early: 1800 ticks
    assert_eq!(reception.jitter(), Span::micros(1_250)); // 112.5 ticks
}

#[test]
fn the_block_echoes_the_latest_sender_report_and_how_long_it_was_held() {
    let mut reception = fed(&[1, 2]);
    let block = reception.report_block(at(0)).unwrap();
    assert_eq!((block.lsr, block.dlsr), (0, 0));
    reception.on_sr(at(1_000_000), 0x0123_4567_89ab_cdef);
    let block = reception.report_block(at(6_250_000)).unwrap();
    assert_eq!((block.lsr, block.dlsr), (0x4567_89ab, 0x0005_4000));
}

proptest! {
    #[test]
    fn counts_agree_with_a_plain_set_of_numbers_in_any_order(
        start: u16, steps in prop::collection::vec((0u8..4, 1i64..60, 0i64..90), 1..300),
    ) {
        let mut reception = Reception::new(7, CLOCK);
        let first = i64::from(start);
        reception.on_rtp(Time::ZERO, start, 0);
        reception.on_rtp(Time::ZERO, start.wrapping_add(1), 0);
        let mut seen = std::collections::BTreeSet::from([first, first + 1]);
        let (mut newest, mut arrived, mut duplicates) = (first + 1, 2, 0);
        for (kind, ahead, behind) in steps {
            let seq = if kind == 0 { newest - behind } else { newest + ahead };
            newest = newest.max(seq);
            arrived += 1;
            let expected = if seen.insert(seq) { Arrived::New(seq) } else { Arrived::Duplicate(seq) };
            duplicates += u64::from(matches!(expected, Arrived::Duplicate(_)));
            prop_assert_eq!(reception.on_rtp(Time::ZERO, seq as u16, 0), expected);
        }
        prop_assert_eq!(reception.expected(), (newest - first) as u64 + 1);
        prop_assert_eq!((reception.received(), reception.duplicates()), (arrived, duplicates));
    }

    #[test]
    fn each_block_has_the_loss_since_the_block_before_it(
        lost in prop::collection::vec(any::<bool>(), 4..400), every in 1usize..40,
    ) {
        let mut reception = fed(&[65_500, 65_501]);
        let (mut expected, mut received) = (0, 0);
        for (i, &lost) in lost.iter().enumerate() {
            if !lost {
                reception.on_rtp(Time::ZERO, (65_502 + i) as u16, 0);
            }
            if i % every == 0 {
                let block = reception.report_block(Time::ZERO).unwrap();
                let sent = reception.expected() - expected;
                let fraction = (sent - (reception.received() - received)) as f64 / sent.max(1) as f64;
                prop_assert!((f64::from(block.fraction) / 256.0 - fraction).abs() <= 1.0 / 256.0);
                (expected, received) = (reception.expected(), reception.received());
                prop_assert_eq!(i64::from(block.cumulative_lost), expected as i64 - received as i64);
            }
        }
    }

    #[test]
    fn arbitrary_packets_never_panic(
        packets in prop::collection::vec((any::<u16>(), any::<u32>(), any::<u64>()), 0..200), clock: u32,
    ) {
        let mut reception = Reception::new(1, clock);
        for (seq, timestamp, now) in packets {
            reception.on_rtp(Time::from_nanos(now), seq, timestamp);
            reception.on_sr(Time::from_nanos(now), now);
            reception.report_block(Time::from_nanos(now / 2));
            prop_assert!(reception.jitter() < Span::MAX);
        }
    }

    #[test]
    fn a_round_trip_measured_through_a_block_is_the_real_one(
        start in 0u64..200_000_000, there in 0u64..2_000_000, held in 0u64..20_000_000,
        back in 0u64..2_000_000, skew in 0u64..100_000_000,
    ) {
        // In some cases the middle 32 bits of both clocks wrap during the exchange. The offset of the clocks does not
        // matter.
        let (ours, theirs) = (ntp::NtpEpoch(u64::MAX - (100 << 32)), |us: u64| at(us + skew));
        let mut reception = fed(&[1, 2]);
        reception.on_sr(theirs(start + there), ours.ntp(at(start)));
        let block = reception.report_block(theirs(start + there + held)).unwrap();
        let arrival = ours.middle(at(start + there + held + back));
        let trip = there + back;
        prop_assume!(block.lsr != 0 && trip > 16);
        let measured = ntp::round_trip(arrival, block.lsr, block.dlsr).unwrap();
        let error = measured.as_nanos() as i64 - trip as i64 * 1000;
        prop_assert!((-15_260..=30_520).contains(&error), "{error}");
    }
}
