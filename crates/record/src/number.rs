/// Returns the median. If the number of values is even, returns the mean of the two middle values. Returns `None` if
/// there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    let upper = *sorted.get(half)?;
    Some(if sorted.len() % 2 == 1 { upper } else { f64::midpoint(sorted[half - 1], upper) })
}

/// Returns the coefficient of variation: the standard deviation of the sample (with n − 1), divided by the mean.
/// Returns `None` if there are fewer than two values or if the mean is not above zero.
pub fn variation(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    (values.len() > 1 && mean > 0.0).then(|| (squares / (n - 1.0)).sqrt() / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[9.0, 1.0, 4.0]), Some(4.0));
        assert_eq!(median(&[9.0, 1.0, 4.0, 2.0]), Some(3.0));
    }

    #[test]
    fn the_variation_divides_by_one_less_than_the_number_of_values() {
        // The mean is 3, and the squared deviations are 4, 0 and 4. The result is √(8 / 2) / 3.
        assert_eq!(variation(&[1.0, 3.0, 5.0]), Some(2.0 / 3.0));
        assert_eq!(variation(&[3.0]), None);
        assert_eq!(variation(&[0.0, 0.0]), None);
    }
}
