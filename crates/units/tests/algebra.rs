//! The claims of the quantities' algebra and of the seeded generators.
use proptest::prelude::*;
use steadycast_units::{Bytes, OneWay, PeerTime, Rate, Seed, Span, Stamp, Time};

#[test]
fn a_1018_byte_packet_takes_2036_microseconds_at_4_megabits() {
    assert_eq!(Bytes::new(1018).at(Rate::mbps(4)), Span::micros(2036));
    assert_eq!(Bytes::new(1018).per(Span::micros(2036)), Rate::mbps(4));
    assert_eq!(Rate::mbps(4).over(Span::micros(2036)), Bytes::new(1018));
}

#[test]
fn a_clock_offset_cancels_in_the_variation_of_the_one_way_delay() {
    let way = |offset_h: i64, sent_ms: i64, arrived_ms: u64| {
        let sent = PeerTime::from_nanos(sent_ms * 1_000_000 - offset_h * 3_600_000_000_000);
        OneWay::between(sent, Time::ZERO + Span::millis(arrived_ms))
    };
    for offset in [-1, 0, 1] {
        let first = way(offset, 0, 20);
        assert_eq!(way(offset, 40, 95).variation_since(first).as_nanos(), 35_000_000);
    }
}

#[test]
fn the_same_seed_and_name_draw_the_same_and_another_name_does_not() {
    let draw = |seed, name: &str| Seed(seed).part(name).bits64();
    assert_eq!(draw(1, "link.a"), draw(1, "link.a"));
    assert_ne!(draw(1, "link.a"), draw(1, "link.b"));
    assert_ne!(draw(1, "link.a"), draw(2, "link.a"));
}

#[test]
fn draws_have_the_mean_they_are_asked_for() {
    let mut chance = Seed(7).part("mean");
    let n = 200_000;
    let exponential = (0..n).map(|_| chance.exponential(5.0)).sum::<f64>() / f64::from(n);
    assert!((4.95..5.05).contains(&exponential), "{exponential}");
    // Shape 3 has a finite variance, so that the mean of a sample converges.
    let pareto = (0..n).map(|_| chance.pareto(5.0, 3.0)).sum::<f64>() / f64::from(n);
    assert!((4.9..5.1).contains(&pareto), "{pareto}");
    let unit = (0..n).map(|_| chance.unit()).sum::<f64>() / f64::from(n);
    assert!((0.495..0.505).contains(&unit), "{unit}");
}

proptest! {
    #[test]
    fn a_stamp_gives_the_time_back_to_two_units_across_its_wrap(at in 0u64..200_000_000_000_000, age in 0u64..3_600_000_000_000) {
        let (at, now) = (Time::from_nanos(at), Time::from_nanos(at + age));
        let back = Stamp::of(at).own(now);
        let error = back.since(at).as_nanos().max(at.since(back).as_nanos());
        prop_assert!(error <= 2 * Stamp::UNIT.as_nanos(), "{error}");
    }

    #[test]
    fn a_peers_stamps_unwrap_in_order_even_when_packets_do_not_arrive_in_order(
        start in 0u64..40_000_000_000_000, step in -60_000_000_000i64..60_000_000_000,
    ) {
        let near = Stamp::of(Time::from_nanos(start)).peer(None);
        let Some(then) = start.checked_add_signed(step) else { return Ok(()) };
        let moved = Stamp::of(Time::from_nanos(then)).peer(Some(near)).since(near).as_nanos();
        prop_assert!((moved - step).unsigned_abs() <= 4 * Stamp::UNIT.as_nanos(), "{moved} {step}");
    }

    #[test]
    fn time_at_a_rate_and_rate_over_a_time_are_inverse(bytes in 1u64..10_000_000, bps in 1_000u64..10_000_000_000) {
        let span = Bytes::new(bytes).at(Rate::bps(bps));
        let back = Rate::bps(bps).over(span).get();
        prop_assert!(back == bytes || back == bytes + bps / 8_000_000_000, "{back} {bytes}");
    }
}
