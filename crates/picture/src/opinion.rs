/// Mean-opinion class of a frame's luma PSNR in dB: 5 excellent, 4 good, 3 fair, 2 poor, 1 bad.
///
/// Paper 000, Table 1, whose classes leave gaps; closed as half-open intervals: above 37 → 5, (31, 37] → 4,
/// (25, 31] → 3, \[20, 25\] → 2, below 20 → 1. NaN counts as 1.
#[must_use]
pub fn opinion_class(psnr_db: f64) -> u8 {
    if psnr_db > 37.0 {
        5
    } else if psnr_db > 31.0 {
        4
    } else if psnr_db > 25.0 {
        3
    } else if psnr_db >= 20.0 {
        2
    } else {
        1
    }
}
