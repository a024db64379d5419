/// Returns the known name that is most similar to `wrong`. Names are similar if they differ by one letter, or by at
/// most a third of the letters of the longer name.
pub fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = |d: usize, k: &str| d <= 1 || 3 * d <= k.chars().count().max(wrong.chars().count());
    known.iter().map(|k| (distance(wrong, k), *k)).filter(|(d, k)| near(*d, k)).min().map(|(_, k)| k)
}

/// Returns the optimal string alignment distance: the number of letters to insert, delete, replace or swap with a
/// neighbour.
fn distance(a: &str, b: &str) -> usize {
    // Limit the lengths, because the time is proportional to their product.
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
    fn a_name_is_near_when_at_most_a_third_of_its_letters_differ() {
        assert_eq!(nearest("gama_congested", &["beta", "gamma_congested"]), Some("gamma_congested"));
        assert_eq!(
            nearest("tpc", &["udp", "tcp"]),
            Some("tcp"),
            "two neighbours that changed places are one difference"
        );
        assert_eq!(nearest("coddle", &["droptail", "codel"]), Some("codel"), "2 of 6 letters");
        assert_eq!(nearest("gcc", &["pgmcc"]), None, "2 of 5 letters");
        assert_eq!(nearest("zzz", &["beta", "gamma"]), None);
    }
}
