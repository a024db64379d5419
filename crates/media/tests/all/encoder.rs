//! The encoder model: the quantizer that results from a rate.

use std::sync::Arc;
use steadycast_media::FrameKind;
use steadycast_media::{BacklogRule, Bucket, Encoder, Evalvid, Feed, Ladder, PerFrame, Scale, Vbr, bucket};
use steadycast_units::{Bytes, Rate, Span};

#[track_caller]
fn between(value: f64, low: f64, high: f64) {
    assert!(value >= low && value <= high, "{value} is not within {low} … {high}");
}

#[test]
fn the_weights_of_the_bucket_are_those_of_its_fill() {
    let (r, factor) = (1_000.0, 1.5);
    for (x, e1, e2) in [(0.25, 0.763, 0.001), (0.5, 0.969, 0.031), (0.75, 0.999, 0.237)] {
        // An empty bucket that receives the bytes that fill it to x.
        let sent = x * factor * r;
        let (fill, above) = bucket(0.0, factor, r, sent, 2.0 * r);
        assert!((fill - x).abs() < 1e-12);
        between((2.0 * r - above) / r, e1 - 0.0005, e1 + 0.0005);
        let (_, below) = bucket(0.0, factor, r, sent, 0.5 * r);
        between((r - below) / (0.5 * r), e2 - 0.0005, e2 + 0.0005);
    }
}

#[test]
fn who_sends_at_the_rate_fills_the_bucket_to_two_thirds() {
    let mut fill = 0.5;
    for _ in 0..5 {
        fill = bucket(fill, 1.5, 1_000.0, 1_000.0, 1_000.0).0;
        between(fill, 2.0 / 3.0 - 1e-12, 2.0 / 3.0 + 1e-12);
    }
}

/// Returns the target sizes of the next GoPs as multiples of the rate, if each has `open` times the rate at the current
/// quantizer.
fn wanted(open: f64, gops: usize) -> Vec<f64> {
    let r = 1e6;
    let (mut fill, mut sent) = (0.5, r);
    (0..gops)
        .map(|_| {
            (fill, sent) = bucket(fill, 1.5, r, sent, open * r);
            sent / r
        })
        .collect()
}

#[test]
fn a_clip_of_half_the_rate_settles_below_it_and_one_of_twice_the_rate_just_above() {
    let half = wanted(0.5, 200);
    between(half[199], 0.9485, 0.9495);
    between((half[199] - half[150]).abs(), 0.0, 1e-3);
    let twice = wanted(2.0, 200);
    for first in &twice[..3] {
        between(*first, 1.003, 1.005);
    }
    assert!(twice.windows(2).all(|w| w[1] <= w[0] + 1e-12), "it falls");
    between(twice[199], 1.0, 1.003);
}

/// The ladder of Multi-Evalvid-RA's table 2: rates in kb/s, quantizers 2 to 31, 12 frames of one size per GoP.
const TABLE_2: [f64; 30] = [
    2614.4, 1420.5, 929.1, 651.1, 452.9, 362.0, 294.0, 234.8, 219.0, 197.4, 179.0, 166.0, 139.7, 135.4, 129.9, 113.6,
    107.6, 102.6, 96.9, 92.8, 103.2, 85.1, 81.6, 92.7, 76.6, 73.8, 86.1, 69.5, 67.4, 65.5,
];

fn ladder() -> Arc<Ladder> {
    let size = |kbps: f64| (kbps * 1000.0 / 8.0 / 25.0).round() as u32;
    Arc::new(Ladder {
        fps: (25, 1),
        gop: 12,
        scale: Scale::Linear,
        quantizers: (2..=31).collect(),
        kinds: (0..48).map(|n| if n % 12 == 0 { FrameKind::I } else { FrameKind::P }).collect(),
        display: (0..48).collect(),
        sizes: TABLE_2.iter().map(|kbps| (0..48).map(|_| size(*kbps)).collect()).collect(),
    })
}

/// Returns the quantizers of the first frames of some GoPs at a constant rate, without packet overhead.
fn quantizers(vbr: Vbr, kbps: f64, gops: usize) -> Vec<u8> {
    let mut encoder = Encoder::new(ladder(), vbr, BacklogRule::default(), 1_000_000, 0);
    let rate = Rate::from_bps_f64(kbps * 1000.0);
    (0..gops * 12)
        .map(|_| encoder.next_frame(rate, Bytes::ZERO))
        .filter(|c| c.index % 12 == 0)
        .map(|c| c.quantizer)
        .collect()
}

#[test]
fn the_plain_rule_takes_the_best_rung_that_fits_where_the_ladder_is_not_monotone() {
    for (kbps, q) in [
        (9_000.0, 2),
        (2_614.5, 2),
        (2_614.0, 3),
        (93.0, 21),
        (92.0, 23), // 22 would take 103.2
        (82.0, 24),
        (80.0, 26), // 25 would take 92.7
        (72.0, 29), // 28 would take 86.1
        (66.0, 31),
        (10.0, 31), // nothing fits: the cheapest
    ] {
        assert_eq!(quantizers(Vbr::Ladder, kbps, 3), [q, q, q], "{kbps} kb/s");
    }
}

#[test]
fn the_plain_rule_never_exceeds_the_rate_it_can_keep() {
    for kbps in (70..3_000).step_by(37) {
        for q in quantizers(Vbr::Ladder, f64::from(kbps), 4) {
            assert!(TABLE_2[usize::from(q) - 2] <= f64::from(kbps) * 1.001, "{q} at {kbps}");
        }
    }
}

#[test]
fn the_bucket_comes_to_the_rung_of_its_rate_and_stays_near() {
    for kbps in [150.0, 300.0, 650.0, 1_400.0] {
        let all = quantizers(Vbr::Bucket(Bucket { bucket: 1.5 }), kbps, 60);
        let mean = all[20..].iter().map(|q| TABLE_2[usize::from(*q) - 2]).sum::<f64>() / 40.0;
        between(mean / kbps, 0.75, 1.2);
    }
    assert_eq!(quantizers(Vbr::Bucket(Bucket { bucket: 1.5 }), 9_000.0, 30).last(), Some(&2));
    assert_eq!(quantizers(Vbr::Bucket(Bucket { bucket: 1.5 }), 10.0, 30).last(), Some(&31));
}

#[test]
fn a_rate_below_or_above_the_ladder_is_survived() {
    for vbr in [Vbr::Ladder, Vbr::Bucket(Bucket { bucket: 1.5 })] {
        for rate in [Rate::ZERO, Rate::bps(1), Rate::MAX] {
            let mut encoder = Encoder::new(ladder(), vbr.clone(), BacklogRule::Damped, 1, 60);
            for _ in 0..100 {
                let coded = encoder.next_frame(rate, Bytes::new(1 << 40));
                assert!((2..=31).contains(&coded.quantizer));
                encoder.on_rate(rate);
            }
        }
    }
}

#[test]
fn after_a_pause_the_next_group_of_pictures_begins() {
    let mut encoder = Encoder::new(ladder(), Vbr::Ladder, BacklogRule::default(), 1_000, 0);
    let take = |encoder: &mut Encoder, n: usize| {
        (0..n).map(|_| encoder.next_frame(Rate::mbps(1), Bytes::ZERO)).last().unwrap()
    };
    assert_eq!(take(&mut encoder, 12).index, 11);
    assert_eq!(encoder.resume(), 12, "a group that is whole is not left out");
    assert_eq!(take(&mut encoder, 1).index, 12);
    assert_eq!(encoder.resume(), 24);
    let next = take(&mut encoder, 1);
    assert_eq!((next.index, next.clip, next.display, next.kind), (24, 24, 24, FrameKind::I));
    take(&mut encoder, 20);
    assert_eq!(encoder.resume(), 48, "and not beyond the clip's end");
    let next = take(&mut encoder, 1);
    assert_eq!((next.index, next.clip, next.display, next.kind), (48, 0, 48, FrameKind::I));
}

#[test]
fn what_waits_takes_room_from_the_next_group() {
    let after = |waiting, backlog: u64| {
        let mut encoder = Encoder::new(ladder(), Vbr::Ladder, waiting, 1_000_000, 0);
        encoder.next_frame(Rate::mbps(1), Bytes::new(backlog)).quantizer
    };
    // 1 Mb/s are 60 kB per GoP. All of it gives q 4 (929); 15 kB less are 750 kb/s, q 5 (651); at least half of it
    // gives q 6 (453).
    assert_eq!([0, 15_000, 30_000, 600_000].map(|b| after(BacklogRule::Drained, b)), [4, 5, 6, 6]);
    // e^(−15/1000) subtracts 1.5 %; e^(−0.6) leaves 549 kb/s.
    assert_eq!([0, 15_000, 600_000].map(|b| after(BacklogRule::Damped, b)), [4, 4, 6]);
}

/// Returns groups of twelve frames whose I frame is as large as ten others, at 30 quantizers. Each quantizer's frames
/// are a tenth smaller than those of the one before.
fn peaked() -> Arc<Ladder> {
    let size = |rung: i32, n: u32| {
        (20_000.0 * libm::pow(0.9, f64::from(rung)) * if n.is_multiple_of(12) { 1.0 } else { 0.1 }) as u32
    };
    Arc::new(Ladder {
        fps: (25, 1),
        gop: 12,
        scale: Scale::Linear,
        quantizers: (2..=31).collect(),
        kinds: (0..48).map(|n| if n % 12 == 0 { FrameKind::I } else { FrameKind::P }).collect(),
        display: (0..48).collect(),
        sizes: (0..30).map(|rung| (0..48).map(|n| size(rung, n)).collect()).collect(),
    })
}

/// Encodes `frames` at the rates of `rate`, drained `room` times as fast. Returns the longest time from a frame to
/// the sending of its last byte, and the sum of all bytes.
fn played(room: f64, wait: Span, frames: u32, rate: impl Fn(u32) -> Rate) -> (Span, u64) {
    let mut encoder = Encoder::new(peaked(), Vbr::Frame(PerFrame { wait, room }), BacklogRule::Drained, 1_000, 0);
    let (mut level, mut longest, mut all, mut last) = (0.0, Span::ZERO, 0, 2);
    for n in 0..frames {
        let coded = encoder.next_frame(rate(n), Bytes::new(level as u64));
        assert!(n.is_multiple_of(12) || coded.quantizer >= last, "within a group it becomes no finer");
        last = coded.quantizer;
        let drained = rate(n).scale(room);
        level += coded.size.as_f64();
        longest = longest.max(Bytes::new(level as u64).at(drained));
        all += coded.size.get();
        level = (level - drained.over(Span::millis(40)).as_f64()).max(0.0);
    }
    (longest, all)
}

#[test]
fn per_frame_each_frame_leaves_in_time_and_the_mean_is_the_rate() {
    let rate = |_| Rate::kbps(500);
    for (room, wait, low) in [(2.5, 100, 0.9), (2.5, 60, 0.6), (1.0, 100, 0.3)] {
        let (longest, all) = played(room, Span::millis(wait), 250, rate);
        assert!(longest <= Span::millis(wait), "room {room}: {longest}");
        // Ten seconds at 62 500 bytes per second. The wait bounds the I frame, and therefore the group.
        between(all as f64 / 625_000.0, low, 1.01);
    }
}

#[test]
fn per_frame_a_rate_that_falls_within_a_group_is_followed_within_it() {
    let falls = |n: u32| if n % 48 < 18 { Rate::mbps(1) } else { Rate::kbps(300) };
    let (longest, _) = played(2.5, Span::millis(100), 480, falls);
    assert!(longest <= Span::millis(100), "{longest}");
}

#[test]
fn per_frame_a_dip_of_a_fifth_within_a_group_is_owed_and_a_halved_rate_is_followed() {
    let quantizers = |dip: f64| {
        let vbr = Vbr::Frame(PerFrame { wait: Span::millis(100), room: 2.5 });
        let mut encoder = Encoder::new(peaked(), vbr, BacklogRule::Drained, 1_000, 0);
        let rate = |n: u32| Rate::kbps(500).scale(if n < 4 { 1.0 } else { dip });
        let mut chosen: Vec<u8> = (0..12).map(|n| encoder.next_frame(rate(n), Bytes::ZERO).quantizer).collect();
        chosen.dedup();
        chosen.len()
    };
    // By then the I frame and three more have 17 058 of the group's 30 000 bytes. The other eight need 10 498, and
    // the group may exceed its share by a quarter.
    assert_eq!([1.0, 0.95, 0.8].map(quantizers), [1; 3]);
    assert!([0.5, 0.4].map(quantizers).iter().all(|steps| *steps > 1));
}

#[test]
fn evalvid_ras_own_rule_never_takes_the_finest_quantizer_where_only_the_next_one_fits() {
    // Table 2 takes 2.61 Mb/s at q = 2 and 1.42 Mb/s at q = 3. At 1.7 Mb/s, the fill level x of the bucket decides
    // between them. Q = 2 R_o / R' is at least 2.61 · 2 / 2.61 = 2 at an empty bucket, and rounds to 2 below 2.5. This
    // requires R' > 2.09 Mb/s, and x < 0.11. A GoP of 1.42 Mb/s is 0.56 of a bucket of 1.5, so x never falls that low
    // after two of them.
    let own = Vbr::Evalvid(Evalvid { bucket: 1.5, nominal: 2.0 });
    assert!(quantizers(own.clone(), 1_700.0, 200)[1..].iter().all(|q| *q == 3), "{:?}", quantizers(own, 1_700.0, 20));
    // The rule for the current quantizer alternates.
    assert!(quantizers(Vbr::Bucket(Bucket { bucket: 1.5 }), 1_700.0, 200).contains(&2));
}

#[test]
fn evalvid_ras_own_rule_begins_at_twice_the_nominal_quantizer_and_comes_to_the_rate() {
    for (nominal, kbps) in [(2.0, 300.0), (2.0, 650.0), (8.0, 300.0), (8.0, 650.0)] {
        let all = quantizers(Vbr::Evalvid(Evalvid { bucket: 1.5, nominal }), kbps, 60);
        assert_eq!(f64::from(all[0]), 2.0 * nominal);
        let mean = all[20..].iter().map(|q| TABLE_2[usize::from(*q) - 2]).sum::<f64>() / 40.0;
        // Q assumes rates proportional to 1/q, and those of Table 2 fall faster: the finer the nominal quantizer, the
        // lower the rate.
        between(mean / kbps, 0.3, 1.2);
    }
}
