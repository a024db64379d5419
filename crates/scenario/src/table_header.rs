//! The header of a table of values over time. It determines the column of the time, the column of the value, and their
//! units.

use crate::recorded::Quantity;
use std::borrow::Cow;
use steadycast_settings::tree::quoted;

/// Maximum number of columns that are searched.
const MOST_COLUMNS: usize = 1_000;
/// Names of a time column, without the unit that follows.
const TIMES: [&str; 8] = ["t", "ts", "time", "timestamp", "elapsed", "seconds", "at", "offset"];
/// Units of time, with their length in seconds.
const TIME_UNITS: [(&str, f64); 15] = [
    ("s", 1.0),
    ("sec", 1.0),
    ("secs", 1.0),
    ("second", 1.0),
    ("seconds", 1.0),
    ("ms", 1e-3),
    ("msec", 1e-3),
    ("millis", 1e-3),
    ("milliseconds", 1e-3),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("usec", 1e-6),
    ("microseconds", 1e-6),
    ("ns", 1e-9),
    ("nanoseconds", 1e-9),
];
/// Names of a column of one-way delays. Names of round-trip times are not accepted.
const DELAYS: [&str; 4] = ["delay", "latency", "owd", "oneway"];
/// Prefixes of rate units. The upper-case K is accepted because it is common, although it is not an SI prefix.
const PREFIXES: [(&str, f64); 9] = [
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("k", 1e3),
    ("K", 1e3),
    ("M", 1e6),
    ("m", 1e6),
    ("G", 1e9),
    ("g", 1e9),
];
/// Units of rates, with their value in bit/s. In abbreviations, b means bits and B means bytes.
const RATES: [(&str, f64); 14] = [
    ("bps", 1.0),
    ("bit/s", 1.0),
    ("bits/s", 1.0),
    ("b/s", 1.0),
    ("bitps", 1.0),
    ("bits/sec", 1.0),
    ("bit/sec", 1.0),
    ("bits_per_second", 1.0),
    ("Bps", 8.0),
    ("B/s", 8.0),
    ("byte/s", 8.0),
    ("bytes/s", 8.0),
    ("bytes/sec", 8.0),
    ("bytes_per_second", 8.0),
];

pub(crate) struct Columns {
    /// The character between cells. If it is `None`, each blank, comma, tab or semicolon ends a cell.
    divider: Option<char>,
    /// The indexes of the time column and the value column.
    pub(crate) taken: [usize; 2],
    pub(crate) count: usize,
    /// Factors that convert the time column to seconds and the value column to the unit of its [`Quantity`].
    pub(crate) units: [f64; 2],
    /// Whether the units come from a header.
    pub(crate) is_named: bool,
}

impl Columns {
    /// Returns the columns of a table without a header. The first column is the time in seconds, the second is the
    /// value in `unit`.
    pub(crate) fn unnamed(first: &str, unit: f64) -> Self {
        Self { divider: divider_of_values(first), taken: [0, 1], count: 2, units: [1.0, unit], is_named: false }
    }

    /// Whether `line`, a table's first line, is a header. In a header no cell is a number, and the first cell does not
    /// begin with a digit.
    pub(crate) fn is_header(line: &str) -> bool {
        let cells = split(divider_of_header(line), line);
        let begins = |cell: &&str| cell.starts_with(|c: char| c.is_ascii_digit());
        !cells.first().is_some_and(begins) && cells.iter().all(|cell| cell.parse::<f64>().is_err())
    }

    /// Returns the same columns with the divider of the line `values`. A header in a remark can have another divider
    /// than the values.
    pub(crate) fn divided_as(self, values: &str) -> Self {
        Self { divider: divider_of_values(values), ..self }
    }

    /// Finds the time column and the column of `quantity` by the names in a header.
    ///
    /// # Errors
    /// No column is the time, no column is `quantity`, a unit is missing, or several columns match.
    pub(crate) fn named(header: &str, quantity: Quantity) -> Result<Self, String> {
        let divider = divider_of_header(header);
        let cells = split(divider, header);
        let (time, to_s) = only(&cells, time_unit, is_time, "time")?;
        let (value, unit) = match quantity {
            Quantity::Rate => only(&cells, rate_unit, is_rate, "rate")?,
            Quantity::Delay => only(&cells, delay_unit, |cell| DELAYS.contains(&cell), "delay")?,
            Quantity::Loss => only(&cells, loss_unit, |cell| cell == "loss", "loss")?,
        };
        Ok(Self { divider, taken: [time, value], count: cells.len(), units: [to_s, unit], is_named: true })
    }

    pub(crate) fn cells<'a>(&self, line: &'a str) -> Vec<&'a str> {
        split(self.divider, line)
    }
}

fn divider_of_header(line: &str) -> Option<char> {
    [';', ',', '\t'].into_iter().find(|divider| line.contains(*divider))
}

/// Returns the divider of a line of values. Tabs and semicolons come first. If a line contains one of them, its commas
/// are decimal commas, for which the function `number` returns an error.
fn divider_of_values(line: &str) -> Option<char> {
    [';', '\t', ','].into_iter().find(|divider| line.contains(*divider))
}

/// Splits a line into cells. A divider between quotation marks, which spreadsheets write, is part of the cell.
fn split(divider: Option<char>, line: &str) -> Vec<&str> {
    let mut quotes = false;
    let divides = |c: char| {
        quotes ^= c == '"';
        !quotes && divider.map_or(matches!(c, ',' | ';') || c.is_whitespace(), |divider| c == divider)
    };
    let cells = line.split(divides).map(plain);
    // Without a fixed divider, drop empty cells, so that several dividers in a row count as one.
    cells.filter(|cell| divider.is_some() || !cell.is_empty()).take(MOST_COLUMNS).collect()
}

pub(crate) fn plain(cell: &str) -> &str {
    cell.trim().trim_matches('"').trim()
}

/// Returns the index and the unit of the column for which `unit` returns a unit. If there are several such columns,
/// takes the one whose heading is just a unit or a short name. Returns an error if the choice is not unique.
fn only(
    cells: &[&str],
    unit: impl Fn(&str) -> Option<(f64, bool)>,
    is_named: impl Fn(&str) -> bool,
    what: &str,
) -> Result<(usize, f64), String> {
    let known: Vec<(usize, f64, bool)> =
        cells.iter().enumerate().filter_map(|(i, cell)| unit(cell).map(|(unit, is_bare)| (i, unit, is_bare))).collect();
    let bare: Vec<_> = known.iter().filter(|column| column.2).collect();
    match (&known[..], &bare[..]) {
        ([(i, unit, _)], _) | (_, [(i, unit, _)]) => Ok((*i, *unit)),
        ([], _) => Err(match cells.iter().find(|cell| is_named(&cell.to_lowercase())) {
            Some(cell) => format!("{} has no unit that is known", quoted(cell)),
            None => format!("no column is a {what} with its unit"),
        }),
        ([one, other, ..], _) => {
            Err(format!("{} and {} are both a {what}", quoted(cells[one.0]), quoted(cells[other.0])))
        }
    }
}

/// Splits a heading into a name in lower case and a unit. For example, "Time (ms)", "time_ms", "time \[ms\]" and "time
/// ms" become "time" and "ms". The name is empty if the heading is only a unit.
fn divided(cell: &str) -> Option<(String, &str)> {
    let cell = cell.trim_end_matches([')', ']']);
    let at = cell.rfind(['(', '[', '_', ' ']);
    let (name, unit) = at.map_or(("", cell), |at| (&cell[..at], &cell[at + 1..]));
    let name = name.trim_end_matches(['(', '[', '_', ' ', ',']).to_lowercase();
    (!unit.is_empty()).then_some((name, unit))
}

fn is_time(cell: &str) -> bool {
    TIMES.contains(&cell)
}

fn time_unit(cell: &str) -> Option<(f64, bool)> {
    let (name, unit) = divided(cell)?;
    let unit = unit.to_lowercase();
    let unit = TIME_UNITS.iter().find(|(known, _)| *known == unit)?.1;
    // Do not accept a heading that is only "ms" or "s", because such a column may contain delays.
    (is_time(&name) || name.is_empty() && cell.eq_ignore_ascii_case("seconds")).then_some((unit, name == "t"))
}

fn is_rate(cell: &str) -> bool {
    let words = ["rate", "throughput", "bandwidth", "bw", "speed", "capacity", "download", "upload"];
    words.iter().any(|word| cell.contains(word))
}

fn rate_unit(cell: &str) -> Option<(f64, bool)> {
    for spelled in ["bits_per_second", "bytes_per_second"] {
        if let Some(name) = cell.to_lowercase().strip_suffix(spelled) {
            let unit = RATES.iter().find(|(known, _)| *known == spelled)?.1;
            return Some((unit, name.is_empty()));
        }
    }
    let (name, unit) = divided(cell)?;
    // Ignore the case of letters in a spelled-out unit such as "Bytes/sec".
    let lower = unit.to_lowercase();
    let spelled = ["bit", "byte"].iter().find_map(|word| lower.find(word));
    let unit = &*spelled.map_or(Cow::Borrowed(unit), |at| format!("{}{}", &unit[..at], &lower[at..]).into());
    let of = |text: &str| RATES.iter().find(|(known, _)| *known == text).map(|(_, unit)| *unit);
    let prefixed = |text: &str| {
        let (prefix, factor) = PREFIXES.iter().find(|(prefix, _)| text.starts_with(prefix))?;
        Some(factor * of(&text[prefix.len()..])?)
    };
    // Refuse a unit in capitals only, because its B can mean bits or bytes.
    let unit = of(unit).or_else(|| prefixed(unit)).filter(|_| unit.chars().any(char::is_lowercase))?;
    Some((unit, name.is_empty()))
}

fn delay_unit(cell: &str) -> Option<(f64, bool)> {
    let (name, unit) = divided(cell)?;
    let unit = unit.to_lowercase();
    let unit = TIME_UNITS.iter().find(|(known, _)| *known == unit)?.1;
    (name.is_empty() || DELAYS.contains(&name.as_str())).then_some((unit, name.is_empty()))
}

fn loss_unit(cell: &str) -> Option<(f64, bool)> {
    let lower = cell.to_lowercase();
    match lower.strip_prefix("loss")?.trim_matches([' ', '_', '(', ')', '[', ']']) {
        "" => Some((1.0, true)),
        "frac" | "fraction" | "probability" => Some((1.0, false)),
        "%" | "percent" | "pct" => Some((0.01, false)),
        _ => None,
    }
}
