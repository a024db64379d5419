/// The known name that `wrong` most likely meant: at most a third of its letters differ.
pub fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|k| (distance(wrong, k), *k))
        .filter(|(d, k)| *d <= k.chars().count().max(wrong.chars().count()).div_ceil(3).max(1))
        .min()
        .map(|(_, k)| k)
}

/// Optimal string alignment distance: insertions, deletions, changes and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_of_the_known_names_is_meant_unless_too_much_of_it_differs() {
        assert_eq!(nearest("gama_congested", &["beta", "gamma_congested"]), Some("gamma_congested"));
        assert_eq!(nearest("zzz", &["beta", "gamma"]), None);
    }
}
