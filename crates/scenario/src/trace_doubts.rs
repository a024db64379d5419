//! Warnings about trace files: gaps, lines with equal times, implausible units, and commas that may be decimal commas.

use crate::recorded::{Fault, Quantity, Rows};
use steadycast_settings::tree::quoted;
use steadycast_units::{Span, counted};

/// A step between two lines is a gap if it is at least this many times the median step and at least [`LEAST_GAP`].
const GAP_STEPS: u64 = 10;
const LEAST_GAP: Span = Span::secs(10);
/// Tables with fewer lines have no warning of gaps. They may be written by hand, with one line per change.
const LEAST_ROWS: usize = 10;
/// The shortest pause in a Mahimahi trace that causes a warning. A shorter pause is probably an outage of the link.
const LEAST_OUTAGE: Span = Span::secs(60);
/// Warn if more than this share of the lines has the same time as the line that follows.
const REPLACED_SHARE: f64 = 0.1;
/// A table with lines such as "3,5" has either two columns or decimal commas. If it has fewer lines than this, a
/// warning says so. In a longer table, the numbers before the comma are taken as times if they increase with each line.
const CLEAR_ROWS: usize = 5;
/// The largest plausible mean rate of a table without a header, in bit/s. Such a table is read in Mb/s.
const LIKELY_BPS: f64 = 2e8;
/// The smallest plausible mean delay of a table without a header, in seconds. Such a table is read in milliseconds.
const LIKELY_DELAY_S: f64 = 1e-3;
/// The largest plausible mean loss of a table without a header. Such a table is read as probabilities.
const LIKELY_LOSS: f64 = 0.3;
/// The longest plausible mean step of a table without a header. Times in such a table are read as seconds.
const LIKELY_STEP: Span = Span::secs(10);
/// The longest plausible duration of a table without a header.
const LIKELY_LENGTH: Span = Span::secs(7200);

/// A warning about a trace file that can be read but may not be what the user intended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Time in the trace. The doubt does not matter if the run ends before this time.
    pub from: Span,
    /// The problem, with its position in the file.
    pub what: String,
    /// What the user can do.
    pub remedy: String,
}

/// The lines of a table that have been read so far.
pub(crate) struct Table<'a> {
    shown: &'a str,
    pub(crate) values: Vec<(Span, f64)>,
    numbers: Vec<usize>,
    is_named: bool,
    /// Whether each line is two whole numbers with a comma between them. Such a line may be a single decimal number.
    is_bare: bool,
    /// The first line such as "2,05", and its number in the file. The comma of this line must be a decimal comma.
    /// Otherwise the line would contain the number "05", but nobody writes whole numbers with a leading zero.
    decimal: Option<(usize, String)>,
}

impl<'a> Table<'a> {
    pub(crate) const fn new(shown: &'a str) -> Self {
        Self { shown, values: Vec::new(), numbers: Vec::new(), is_named: false, is_bare: true, decimal: None }
    }

    pub(crate) fn push(&mut self, n: usize, line: &str, is_named: bool, value: (Span, f64)) {
        self.values.push(value);
        self.numbers.push(n);
        self.is_named = is_named;
        self.is_bare &= !is_named && decimals(line).is_some();
        let has_zero = |after: &str| after.len() > 1 && after.starts_with('0');
        if self.is_bare && self.decimal.is_none() && decimals(line).is_some_and(has_zero) {
            self.decimal = Some((n, line.to_owned()));
        }
    }

    /// Returns an error about decimal commas if all lines, including `line`, look like "3,5". Called when the time
    /// decreases at `line`.
    pub(crate) fn decimal_commas(&self, line: &str) -> Option<Fault> {
        (self.is_bare && decimals(line).is_some()).then(|| decimal(line))
    }

    /// Returns the table's values with warnings.
    ///
    /// # Errors
    /// There are no values, all values have the same time, or the commas are decimal.
    pub(crate) fn into_rows(self, quantity: Quantity) -> Result<Rows, Fault> {
        let shown = self.shown;
        if let Some((n, line)) = self.decimal.as_ref().filter(|_| self.is_bare) {
            let (what, remedy) = decimal(line);
            return Err((format!("{shown}:{n}: {what}"), remedy));
        }
        let steps = || self.values.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].0));
        let mut sorted: Vec<Span> = steps().filter(|step| !step.is_zero()).collect();
        if self.values.is_empty() {
            let what = format!("{shown} has no values below its header");
            return Err((what, "write two lines or more, at different times".into()));
        }
        if sorted.is_empty() {
            let what = format!("{shown} has values of one time alone, which say nothing of how long they hold");
            return Err((what, "write two lines or more, at different times".into()));
        }
        let middle = sorted.len() / 2;
        let median = *sorted.select_nth_unstable(middle).1;
        let end = self.values.last().map_or(Span::ZERO, |(at, _)| *at);
        let rows = Rows { values: self.values.as_slice().into(), period: end + median, doubts: Vec::new() };
        let all = [self.units(&rows, quantity), self.gap(median), self.replaced(), self.commas(median)];
        let doubts = all.into_iter().flatten().collect();
        Ok(Rows { doubts, ..rows })
    }

    /// Warns if the table has no header and its values are implausible in the units of the format.
    fn units(&self, rows: &Rows, quantity: Quantity) -> Option<Doubt> {
        if self.is_named {
            return None;
        }
        let shown = self.shown;
        let mean = rows.mean();
        let (counts, example) = match quantity {
            Quantity::Rate if mean > LIKELY_BPS => {
                (format!("values count as Mb/s, and are {:.0} Mb/s on average", mean / 1e6), "t_s,kbps")
            }
            Quantity::Delay if mean > 0.0 && mean < LIKELY_DELAY_S => {
                (format!("values count as milliseconds, and are {:.3} ms on average", mean * 1e3), "t_s,s")
            }
            Quantity::Loss if mean > LIKELY_LOSS => {
                (format!("values count as probabilities, and are {mean:.2} on average"), "t_s,loss_%")
            }
            _ if rows.period > LIKELY_STEP * rows.values.len() as u64 || rows.period > LIKELY_LENGTH => {
                (format!("times count as seconds, and it lasts {}", in_words(rows.period)), "t_ms,mbps")
            }
            _ => return None,
        };
        Some(Doubt {
            from: Span::ZERO,
            what: format!("{shown} has no header, so its {counts}"),
            remedy: format!("if they are in another unit, write a header above them, as {example}"),
        })
    }

    /// Warns of gaps, because during a gap the value before it holds.
    fn gap(&self, median: Span) -> Option<Doubt> {
        let least = LEAST_GAP.max(median * GAP_STEPS);
        if self.values.len() < LEAST_ROWS {
            return None;
        }
        let steps = self.values.windows(2).map(|pair| (pair[0].0, pair[1].0.saturating_sub(pair[0].0)));
        let gaps = steps.zip(&self.numbers).filter(|((_, step), _)| *step >= least);
        let ((first, _), _) = gaps.clone().next()?;
        let more = gaps.clone().count() - 1;
        let ((_, longest), n) = gaps.max_by_key(|((_, step), _)| *step)?;
        let others = if more == 0 { String::new() } else { format!(" ({} too)", counted(more as u64, "shorter gap")) };
        Some(Doubt {
            from: first,
            what: format!(
                "{}:{n}: no value follows for {}, in which the value of this line holds{others}",
                self.shown,
                in_words(longest)
            ),
            remedy: "cut the file at the gap, or write a line for what held in it, as 0 for an outage".to_owned(),
        })
    }

    /// Warns of lines that have the same time as the line that follows, because only the last value of each time is
    /// used. Ignores lines that repeat the previous value, because nothing is lost with them.
    fn replaced(&self) -> Option<Doubt> {
        let is_same = |a: f64, b: f64| (a - b).abs() < f64::EPSILON * a.abs();
        let lines: Vec<usize> = (0..self.values.len().saturating_sub(1))
            .filter(|&i| self.values[i].0 == self.values[i + 1].0)
            .filter(|&i| i == 0 || !is_same(self.values[i].1, self.values[i - 1].1))
            .collect();
        let first = *lines.first()?;
        (lines.len() as f64 > REPLACED_SHARE * self.values.len() as f64).then(|| Doubt {
            from: self.values[first].0,
            what: format!(
                "{}:{}: the next line has the same time; the values of {} are not used for this reason",
                self.shown,
                self.numbers[first],
                counted(lines.len() as u64, "line")
            ),
            remedy: "write times with more digits, or one line for each time, with the mean of its values".to_owned(),
        })
    }

    /// Warns if all lines of a table look like "3,5" and the table is short or repeats a time, because the commas may
    /// be decimal.
    fn commas(&self, median: Span) -> Option<Doubt> {
        let does_repeat = self.values.windows(2).any(|pair| pair[0].0 == pair[1].0);
        if !self.is_bare || self.values.len() >= CLEAR_ROWS && !does_repeat || median.is_zero() {
            return None;
        }
        let n = self.numbers.first()?;
        Some(Doubt {
            from: Span::ZERO,
            what: format!("{}:{n}: the comma counts as the end of a column, with the time before it", self.shown),
            remedy: "if it is a decimal comma, write a decimal point and a time before each rate; if not, a header as \
                     t_s,mbps says so"
                .to_owned(),
        })
    }
}

/// Returns a time as a text for messages. It is rounded to 0.1 ms or 0.1 s, because a trace's times have more digits
/// than matter.
pub(crate) fn in_words(span: Span) -> String {
    let ms = span.as_millis_f64();
    if ms < 1e3 { format!("{ms:.1} ms") } else { format!("{:.1} s", ms / 1e3) }
}

/// Returns the digits after the comma in a line such as "12,5".
fn decimals(line: &str) -> Option<&str> {
    let is_whole = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    line.split_once(',').filter(|(before, after)| is_whole(before) && is_whole(after)).map(|parts| parts.1)
}

fn decimal(line: &str) -> Fault {
    let what = format!("{} is no time with a value, but seems to be one number with a decimal comma", quoted(line));
    (what, "write two columns, seconds and Mb/s, with decimal points; or a header with units, as t_s,mbps".to_owned())
}

/// Returns the warnings about a Mahimahi trace. `numbers` contains the line numbers of the times `at`.
pub(crate) fn opportunity_doubts(at: &[Span], numbers: &[usize], shown: &str) -> Vec<Doubt> {
    let step = |pair: &[Span]| pair[1].saturating_sub(pair[0]);
    let longest = at.windows(2).zip(numbers).max_by_key(|(pair, _)| step(pair));
    let longest = longest.filter(|(pair, _)| step(pair) >= LEAST_OUTAGE);
    let doubt = |(pair, n): (&[Span], &usize)| Doubt {
        from: pair[0],
        what: format!("{shown}:{n}: nothing can leave the link for {} after this line", in_words(step(pair))),
        remedy: "cut the file at the gap, if it is one of the recording".to_owned(),
    };
    longest.map(doubt).into_iter().collect()
}
