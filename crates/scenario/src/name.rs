//! Names and their ranges: `r[1-45]` is r1, r2 … r45.

use steadycast_settings::Findings;
use steadycast_settings::tree::Place;

/// Maximum number of flows, nodes or links in a scenario. It is also the maximum number of names in a range.
pub(crate) const MAX_COUNT: u64 = 200_000;

/// A name, or a range of names that differ in a number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pattern {
    before: String,
    range: Option<(u64, u64)>,
    after: String,
}

impl Pattern {
    pub(crate) fn read_or_report(text: &str, at: &Place, out: &mut Findings) -> Option<Self> {
        Self::read(text).map_err(|(what, remedy)| out.problem(at, what, remedy)).ok()
    }

    pub(crate) fn read(text: &str) -> Result<Self, (String, String)> {
        let wrong = |what: &str| {
            let shown = steadycast_settings::tree::quoted(text);
            Err((format!("{shown} {what}"), "names are [a-z0-9.-], \"r[1-45]\" is a range".to_owned()))
        };
        if text.is_empty() {
            return wrong("is empty");
        }
        if text.len() > 80 {
            return wrong("is longer than 80 letters");
        }
        let (before, range, after) = match text.split_once('[') {
            None => (text, None, ""),
            Some((before, rest)) => {
                let Some((range, after)) = rest.split_once(']') else { return wrong("has no closing bracket") };
                let ends = range.split_once('-').and_then(|(a, b)| Some((number(a)?, number(b)?)));
                let Some((first, last)) = ends else { return wrong("has no range of numbers in its brackets") };
                if first > last {
                    return wrong("counts backwards");
                }
                if last - first >= MAX_COUNT {
                    return wrong("is more than 200000 names");
                }
                (before, Some((first, last)), after)
            }
        };
        let fits = |part: &str| part.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-'));
        if !fits(before) || !fits(after) {
            return wrong("has characters that names do not have");
        }
        let edge = |b: Option<u8>| matches!(b, Some(b'.' | b'-'));
        if edge(text.bytes().next()) || edge(text.bytes().last()) {
            return wrong("begins or ends with a dot or hyphen");
        }
        Ok(Self { before: before.to_owned(), range, after: after.to_owned() })
    }

    /// Returns the range of names `name1` … `nameN`, where N is `count`.
    pub(crate) fn counted(name: &str, count: u64) -> Self {
        Self { before: name.to_owned(), range: Some((1, count)), after: String::new() }
    }

    pub(crate) fn is_range(&self) -> bool {
        self.range.is_some()
    }
    pub(crate) fn count(&self) -> u64 {
        // With `count = 0` the range is (1, 0), which contains no names.
        self.range.map_or(1, |(first, last)| (last + 1).saturating_sub(first))
    }
    pub(crate) fn names(&self) -> Vec<String> {
        match self.range {
            None => vec![self.before.clone()],
            Some((first, last)) => (first..=last).map(|n| format!("{}{n}{}", self.before, self.after)).collect(),
        }
    }
}

fn number(text: &str) -> Option<u64> {
    // Check the digits, because `parse` would also accept a sign.
    let plain = !text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}
