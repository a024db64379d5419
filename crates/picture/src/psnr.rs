use crate::{PictureError, Plane};

/// The number of samples whose squared differences are summed in 32 bits. The sum can't overflow, because 2^14 · 255²
/// is less than 2^32.
const RUN: usize = 1 << 14;

/// Returns the mean of the squared differences between the samples of two planes.
///
/// # Errors
/// Returns an error if the sizes of the planes differ.
pub fn mean_squared_error(a: &Plane<'_>, b: &Plane<'_>) -> Result<f64, PictureError> {
    a.same_size(b)?;
    // Sum in 32 bits, because this can be vectorized better. Add the sums to 64 bits before they can overflow.
    let sum: u64 = (0..a.height)
        .flat_map(|y| a.row(y).chunks(RUN).zip(b.row(y).chunks(RUN)))
        .map(|(a, b)| u64::from(squared_differences(a, b)))
        .sum();
    Ok(sum as f64 / (a.width * a.height) as f64)
}

/// Returns the peak signal-to-noise ratio of two planes in dB. Returns infinity if the planes are identical.
///
/// ```text
/// PSNR = 20 log10( 255 / sqrt(MSE) )
/// ```
///
/// # Errors
/// Returns an error if the sizes of the planes differ.
pub fn psnr_db(a: &Plane<'_>, b: &Plane<'_>) -> Result<f64, PictureError> {
    let mse = mean_squared_error(a, b)?;
    Ok(if mse == 0.0 { f64::INFINITY } else { 10.0 * libm::log10(255.0 * 255.0 / mse) })
}

fn squared_differences(a: &[u8], b: &[u8]) -> u32 {
    a.iter()
        .zip(b)
        .map(|(&a, &b)| {
            let difference = u32::from(a.abs_diff(b));
            difference * difference
        })
        .sum()
}
