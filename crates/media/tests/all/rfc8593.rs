//! RFC 8593's synthetic codec: its parameters, bursts, damping, and the frames of a sequence between two rates.

use std::sync::Arc;
use steadycast_media::{CodecModel, CodecSettings, Feed, FrameKind, Ladder, Scale, SyntheticCodec};
use steadycast_units::{Bytes, Rate, Seed, Span};

const PAYLOAD: u64 = 1_200;

#[track_caller]
fn between(value: f64, low: f64, high: f64) {
    assert!(value >= low && value <= high, "{value} is not within {low} … {high}");
}

fn codec(settings: CodecSettings, ladder: Option<Arc<Ladder>>, overhead: u64) -> SyntheticCodec {
    SyntheticCodec::new(settings, ladder, PAYLOAD, overhead, Seed(1).part("codec"))
}

/// Returns the sizes of the next frames at the target `rate`.
fn sizes(codec: &mut SyntheticCodec, rate: Rate, frames: usize) -> Vec<f64> {
    (0..frames).filter_map(|_| codec.next(rate, Bytes::ZERO)).map(|frame| frame.size.as_f64()).collect()
}

/// Returns the frames until `end` on the codec's clock.
fn until(codec: &mut SyntheticCodec, rate: Rate, end: Span) -> Vec<f64> {
    let mut all = Vec::new();
    while codec.due() < end {
        all.extend(sizes(codec, rate, 1));
    }
    all
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the mean absolute deviation from `middle`, relative to it: the scale of a Laplace distribution.
fn scale(values: &[f64], middle: f64) -> f64 {
    mean(&values.iter().map(|v| (v / middle - 1.0).abs()).collect::<Vec<_>>())
}

/// Rungs of 400 and 600 kb/s at 25 frames per second: 2000 and 3000 bytes, the first frame ten times as large.
fn ladder() -> Arc<Ladder> {
    let row = |size: u32| -> Arc<[u32]> { (0..100).map(|n| if n == 0 { 10 * size } else { size + n }).collect() };
    Arc::new(Ladder {
        fps: (25, 1),
        gop: 100,
        scale: Scale::Linear,
        quantizers: vec![2, 4],
        kinds: vec![FrameKind::P; 100],
        display: (0..100).collect(),
        sizes: vec![row(3_000), row(2_000)],
    })
}

fn traced() -> CodecSettings {
    CodecSettings { model: CodecModel::Trace, ..CodecSettings::at(25.0) }
}

#[test]
fn the_parameters_are_those_of_figure_2() {
    let of = CodecSettings::at(30.0);
    assert_eq!((of.tau_v, of.k_d, of.k_b), (Span::millis(200), 8, Bytes::new(13_500)));
    assert_eq!((of.scale_t, of.scale_b), (0.15, 0.15));
    assert_eq!((of.r_min, of.r_max), (Rate::kbps(150), Rate::kbps(1_500)));
    between(of.t0.as_secs_f64(), 1.0 / 30.0 - 1e-9, 1.0 / 30.0 + 1e-9);
}

#[test]
fn a_steady_request_is_met_by_sizes_and_intervals_of_the_given_scales() {
    let mut codec = codec(CodecSettings::at(30.0), None, 0);
    sizes(&mut codec, Rate::mbps(1), 8);
    let began = codec.due();
    let all = sizes(&mut codec, Rate::mbps(1), 20_000);
    between(mean(&all), 4_120.0, 4_210.0);
    between(scale(&all, 4_166.7), 0.146, 0.154);
    let times: Vec<_> = (8..20_008).map(|n| codec.shown_at(n).as_secs_f64()).collect();
    let gaps: Vec<_> = times.windows(2).map(|w| w[1] - w[0]).collect();
    between(scale(&gaps, 1.0 / 30.0), 0.146, 0.154);
    let rate = all.iter().sum::<f64>() * 8.0 / codec.due().saturating_sub(began).as_secs_f64();
    between(rate, 0.985e6, 1.015e6);
}

#[test]
fn an_abrupt_request_makes_a_burst_whose_mean_is_the_rate() {
    let mut codec = codec(CodecSettings::at(30.0), None, 0);
    let burst = sizes(&mut codec, Rate::mbps(1), 8);
    assert_eq!(burst[0], 13_500.0);
    assert!(burst[1..].iter().all(|size| (size - 2_833.0).abs() <= 1.0), "{burst:?}");
    between(mean(&burst), 4_166.0, 4_168.0);
    let steady = until(&mut codec, Rate::mbps(1), Span::secs(2));
    assert!(steady.iter().all(|size| *size < 13_000.0), "no burst without a change");
    // A target that changes by less than a tenth causes no burst; a larger change does.
    let gentle = until(&mut codec, Rate::kbps(1_090), Span::secs(4));
    assert!(gentle.iter().all(|size| *size < 13_000.0));
    assert_eq!(sizes(&mut codec, Rate::kbps(900), 1), [13_500.0]);
}

#[test]
fn a_burst_that_the_rate_cannot_pay_is_smaller_so_that_the_mean_stays() {
    let mut codec = codec(CodecSettings::at(30.0), None, 0);
    let burst = sizes(&mut codec, Rate::kbps(300), 8);
    between(mean(&burst), 1_249.0, 1_251.0);
    assert!(burst[1..].iter().all(|size| *size == 10.0), "{burst:?}");
}

#[test]
fn after_a_request_further_ones_wait_for_tau() {
    let still = CodecSettings { scale_t: 0.0, scale_b: 0.0, abrupt: 9.0, ..CodecSettings::at(30.0) };
    let mut codec = codec(still, None, 0);
    until(&mut codec, Rate::mbps(1), Span::secs(1));
    let down = sizes(&mut codec, Rate::kbps(600), 1);
    between(down[0], 2_499.0, 2_501.0);
    // 200 ms are six frames: the five after the first keep their target.
    let held = sizes(&mut codec, Rate::mbps(1), 5);
    assert!(held.iter().all(|size| (size - 2_500.0).abs() <= 1.0), "{held:?}");
    let taken = sizes(&mut codec, Rate::mbps(1), 2);
    between(taken[1], 4_166.0, 4_168.0);
}

#[test]
fn requests_beyond_the_range_are_held_to_its_ends() {
    let still = CodecSettings { scale_t: 0.0, scale_b: 0.0, ..CodecSettings::at(30.0) };
    let mut codec = codec(still, None, 0);
    between(*until(&mut codec, Rate::mbps(9), Span::secs(1)).last().unwrap(), 6_249.0, 6_251.0);
    assert!(codec.limited(), "the content needs no more");
    between(*until(&mut codec, Rate::kbps(9), Span::secs(2)).last().unwrap(), 624.0, 626.0);
    assert!(!codec.limited());
}

#[test]
fn headers_are_part_of_the_rate() {
    let still = CodecSettings { scale_t: 0.0, scale_b: 0.0, ..CodecSettings::at(30.0) };
    let mut codec = codec(still, None, 60);
    let all = until(&mut codec, Rate::mbps(1), Span::secs(40));
    let wire: f64 = all.iter().map(|size| size + (size / PAYLOAD as f64).ceil() * 60.0).sum();
    between(wire * 8.0 / 40.0, 0.99e6, 1.01e6);
}

#[test]
fn what_waits_at_the_pacer_takes_room_up_to_half_and_starts_no_burst() {
    let still = CodecSettings { scale_t: 0.0, scale_b: 0.0, ..CodecSettings::at(30.0) };
    let mut codec = codec(still, None, 0);
    until(&mut codec, Rate::mbps(1), Span::secs(1));
    let mut next = |backlog| codec.next(Rate::mbps(1), Bytes::new(backlog)).unwrap().size.as_f64();
    between(next(0), 4_166.0, 4_168.0);
    // 10 kB are 80 ms at this rate: a fifth of 400 ms.
    between(next(10_000), 3_332.0, 3_334.0);
    between(next(1_000_000), 2_082.0, 2_084.0);
    between(next(0), 4_166.0, 4_168.0);
}

#[test]
fn a_sequence_is_interpolated_between_two_rates_and_scaled_beyond_them() {
    let ladder = ladder();
    let rate = |row: usize| ladder.rates(row, PAYLOAD, 0).0;
    for (asked, want) in [
        (rate(1), 2_001.0),
        (rate(0), 3_001.0),
        (Rate::bps((rate(0).as_bps() + rate(1).as_bps()) / 2), 2_501.0),
        (rate(1).scale(0.5), 1_000.5),
        (rate(0).scale(1.5), 4_501.5),
    ] {
        let mut codec = codec(traced(), Some(Arc::clone(&ladder)), 0);
        let two = sizes(&mut codec, asked, 2);
        between(two[1], want - 1.0, want + 1.0);
        assert_eq!(codec.due(), Span::millis(80), "the frame rate is fixed");
    }
}

#[test]
fn a_sequence_starts_over_without_its_first_twenty_frames() {
    let mut codec = codec(traced(), Some(ladder()), 0);
    let places: Vec<_> =
        (0..185).filter_map(|_| codec.next(Rate::kbps(500), Bytes::ZERO)).map(|frame| frame.clip).collect();
    let want: Vec<u32> = (0..100).chain(20..100).chain(20..25).collect();
    assert_eq!(places, want);
    assert_eq!(codec.resume(), 185, "frames are counted on");
    assert_eq!(codec.next(Rate::kbps(500), Bytes::ZERO).map(|f| (f.clip, f.index)), Some((0, 185)), "from the I frame");
}

#[test]
fn the_hybrid_has_the_bursts_of_the_one_and_the_frames_of_the_other() {
    let settings = CodecSettings { model: CodecModel::Hybrid, r_max: Rate::mbps(2), ..CodecSettings::at(25.0) };
    let mut codec = codec(settings, Some(ladder()), 0);
    let rate = ladder().rates(0, PAYLOAD, 0).0;
    let burst = sizes(&mut codec, rate, 8);
    assert_eq!(burst[0], 13_500.0);
    let steady = sizes(&mut codec, rate, 50);
    assert!(steady.iter().all(|size| (3_000.0..3_100.0).contains(size)), "{steady:?}");
    assert_ne!(codec.due(), Span::millis(58 * 40), "intervals vary");
}
