//! Claims about PSNR and SSIM.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

use proptest::prelude::*;
use steadycast_picture::{PictureError, Plane, mean_squared_error, psnr_db, ssim};

const WIDTH: usize = 61;
const HEIGHT: usize = 42;

/// Returns a reproducible picture, a textured ramp, and the same with a coarser texture.
fn pair() -> (Vec<u8>, Vec<u8>) {
    let sample = |x: usize, y: usize| (3 * x + 5 * y + (x * y) % 23) % 200;
    let coarse = |x: usize, y: usize| sample(x, y) / 9 * 9 + (x * 7 + y * 11) % 5;
    let draw = |f: &dyn Fn(usize, usize) -> usize| {
        (0..WIDTH * HEIGHT).map(|i| u8::try_from(f(i % WIDTH, i / WIDTH)).unwrap()).collect()
    };
    (draw(&sample), draw(&coarse))
}

fn plane(samples: &[u8]) -> Plane<'_> {
    Plane::new(samples, WIDTH, WIDTH, HEIGHT).unwrap()
}

fn assert_near(value: f64, expected: f64, tolerance: f64) {
    assert!((value - expected).abs() <= tolerance, "{value} is not within {tolerance} of {expected}");
}

#[test]
fn a_difference_of_one_everywhere_is_48_1308_db() {
    let (a, _) = pair();
    let b: Vec<u8> = a.iter().map(|sample| sample + 1).collect();
    assert_near(psnr_db(&plane(&a), &plane(&b)).unwrap(), 48.1308, 5e-5);
}

#[test]
fn black_against_white_is_zero_db() {
    let (black, white) = (vec![0; WIDTH * HEIGHT], vec![255; WIDTH * HEIGHT]);
    assert_near(psnr_db(&plane(&black), &plane(&white)).unwrap(), 0.0, 1e-12);
}

#[test]
fn identical_planes_are_infinitely_good_and_perfectly_similar() {
    let (a, _) = pair();
    assert_eq!(psnr_db(&plane(&a), &plane(&a)), Ok(f64::INFINITY));
    assert_near(ssim(&plane(&a), &plane(&a)).unwrap(), 1.0, 1e-12);
}

#[test]
fn a_textured_pair_scores_as_in_the_filters_of_ffmpeg() {
    // Expected: PSNR and SSIM of these two planes by FFmpeg's `psnr` and `ssim` (libavfilter 11.14).
    let (a, b) = pair();
    assert_near(psnr_db(&plane(&a), &plane(&b)).unwrap(), 37.151_680, 0.000_01);
    assert_near(ssim(&plane(&a), &plane(&b)).unwrap(), 0.988_147, 0.000_01);
}

#[test]
fn a_negative_is_dissimilar_below_zero() {
    let (a, _) = pair();
    let negative: Vec<u8> = a.iter().map(|sample| 255 - sample).collect();
    let value = ssim(&plane(&a), &plane(&negative)).unwrap();
    assert!((-1.0..-0.3).contains(&value), "{value}");
}

#[test]
fn bytes_between_the_rows_are_not_looked_at() {
    let (a, b) = pair();
    let padded: Vec<u8> = b.chunks(WIDTH).flat_map(|row| row.iter().copied().chain([0xAA; 13])).collect();
    let wide = Plane::new(&padded[..padded.len() - 13], WIDTH + 13, WIDTH, HEIGHT).unwrap();
    assert_eq!(ssim(&plane(&a), &wide), ssim(&plane(&a), &plane(&b)));
    assert_eq!(psnr_db(&plane(&a), &wide), psnr_db(&plane(&a), &plane(&b)));
}

#[test]
fn a_mean_over_a_very_wide_plane_does_not_overflow() {
    let (black, white) = (vec![0; 200_000], vec![255; 200_000]);
    let (black, white) = (Plane::new(&black, 200_000, 200_000, 1), Plane::new(&white, 200_000, 200_000, 1));
    assert_near(mean_squared_error(&black.unwrap(), &white.unwrap()).unwrap(), 65_025.0, 1e-9);
}

#[test]
fn planes_that_cannot_be_compared_are_errors() {
    let samples = [0; 64];
    assert_eq!(Plane::new(&samples, 8, 8, 9).unwrap_err(), PictureError::Short { need: 72, got: 64 });
    assert_eq!(Plane::new(&samples, 7, 8, 8).unwrap_err(), PictureError::Stride { width: 8, stride: 7 });
    assert_eq!(Plane::new(&samples, 8, 0, 8).unwrap_err(), PictureError::Empty { width: 0, height: 8 });
    assert!(matches!(Plane::new(&samples, usize::MAX, 8, 8), Err(PictureError::Short { .. })));
    let (small, flat) = (Plane::new(&samples, 8, 8, 8).unwrap(), Plane::new(&samples, 16, 16, 4).unwrap());
    assert_eq!(psnr_db(&small, &flat), Err(PictureError::Sizes { first: (8, 8), second: (16, 4) }));
    assert_eq!(ssim(&flat, &flat), Err(PictureError::TooSmall { width: 16, height: 4 }));
    assert_near(ssim(&small, &small).unwrap(), 1.0, 1e-12);
}

proptest! {
    #[test]
    fn order_of_the_two_pictures_does_not_matter(
        a in prop::collection::vec(any::<u8>(), 19 * 17), b in prop::collection::vec(any::<u8>(), 19 * 17),
    ) {
        let (a, b) = (Plane::new(&a, 19, 19, 17).unwrap(), Plane::new(&b, 19, 19, 17).unwrap());
        prop_assert_eq!(psnr_db(&a, &b), psnr_db(&b, &a));
        let similarity = ssim(&a, &b).unwrap();
        prop_assert_eq!(similarity, ssim(&b, &a).unwrap());
        prop_assert!((-1.0..=1.0).contains(&similarity));
    }
}
