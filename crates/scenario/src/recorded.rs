//! Reads the trace files of links. The formats are Mahimahi's transmission opportunities, tables with a time and a
//! value, AlphaRTC's patterns, and logs of throughput.

use crate::foreign_trace;
use crate::table_header::Columns;
use crate::throughput_log::{self, ThroughputLog};
use crate::trace_doubts::{Doubt, Table, opportunity_doubts};
use serde_json::Value as Json;
use std::borrow::Cow;
use std::sync::Arc;
use steadycast_settings::tree::quoted;
use steadycast_units::{Span, counted};

/// Maximum size of a trace file, in bytes.
pub(crate) const MOST_BYTES: u64 = 64 << 20;
const MOST_ROWS: usize = 2_000_000;
/// Maximum duration of a table and of a scenario, in seconds.
pub(crate) const LONGEST_S: f64 = 30.0 * 86_400.0;
/// The largest time, in the year 5138, that is accepted as seconds. A larger number must be in milliseconds or a
/// smaller unit.
pub(crate) const LATEST_S: f64 = 1e11;

/// A property of a link that a file can contain: its rate, delay or loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// The link's rate in bit/s.
    Rate,
    /// The link's one-way delay in seconds.
    Delay,
    /// The probability of losing a packet.
    Loss,
}

impl Quantity {
    /// Returns the unit of the values in a table without a header, as a factor that converts them to this quantity's
    /// unit.
    const fn unit(self) -> f64 {
        match self {
            Self::Rate => 1e6,
            Self::Delay => 1e-3,
            Self::Loss => 1.0,
        }
    }
    const fn header(self) -> &'static str {
        match self {
            Self::Rate => "t_s,mbps or time_ms,rate_kbps",
            Self::Delay => "t_s,ms or time_ms,delay_ms",
            Self::Loss => "t_s,loss",
        }
    }
    /// Returns a header with the smallest units of values, for values that are too large in the unit of a table without
    /// a header. Returns `None` if the message of [`Self::most`] has it.
    const fn smallest_unit(self) -> Option<&'static str> {
        match self {
            Self::Rate => Some("t_s,bps"),
            Self::Delay => Some("t_s,us"),
            Self::Loss => None,
        }
    }
    /// Returns the largest valid value, and how error messages write it.
    pub(crate) const fn most(self) -> (f64, &'static str) {
        match self {
            Self::Rate => (1e12, "1 Tb/s"),
            Self::Delay => (3600.0, "an hour"),
            Self::Loss => (1.0, "1; values in percent have the header t_s,loss_%"),
        }
    }
    pub(crate) const fn forms(self) -> &'static str {
        match self {
            Self::Rate => {
                "a Mahimahi trace has one line per 1500 bytes: when, in whole milliseconds, never decreasing; a table \
                 has two columns, seconds and Mb/s, or a header with units, as t_s,mbps or time_ms,rate_kbps"
            }
            Self::Delay => {
                "a table has two columns, seconds and milliseconds one way, or a header with units, as t_s,ms or t_ms,s"
            }
            Self::Loss => "a table has two columns, seconds and a probability, or a header of t_s or t_ms and loss",
        }
    }
}

/// A step function: each value is valid until the time of the next value.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// Pairs of the time at which a value begins, and the value. The first time is zero, and times never decrease.
    pub values: Arc<[(Span, f64)]>,
    /// The time after which the values repeat. It is above zero. In a table it includes the last value, which lasts for
    /// the median step.
    pub period: Span,
    /// Warnings about the file.
    pub doubts: Vec<Doubt>,
}

impl Rows {
    /// Returns the time-weighted mean of the values over one period.
    pub fn mean(&self) -> f64 {
        let until = self.values.iter().skip(1).map(|(at, _)| *at).chain([self.period]);
        let held =
            self.values.iter().zip(until).map(|((at, value), end)| value * end.saturating_sub(*at).as_secs_f64());
        held.sum::<f64>() / self.period.as_secs_f64()
    }
}

/// The content of a trace file.
#[derive(Clone, Debug, PartialEq)]
pub enum Recorded {
    /// A Mahimahi trace: the times at which 1500 bytes can leave.
    Opportunities(Arc<[Span]>, Vec<Doubt>),
    /// The values of a table, the rates of a log of throughput or of a trace of Sabre, or the delays or losses of an
    /// AlphaRTC pattern.
    Rows(Rows),
    /// The rates of an AlphaRTC pattern, and which other quantities the pattern contains.
    Pattern(Rows, Vec<Quantity>),
}

/// An error: the problem with its position in the file, and the remedy.
pub type Fault = (String, String);

/// Parses a trace file for one quantity. `shown` is the file's name in messages.
///
/// # Errors
/// The file is in none of the formats for this quantity, or a value is not valid.
pub fn recorded(bytes: &[u8], shown: &str, quantity: Quantity) -> Result<Recorded, Fault> {
    let foreign = |(kind, remedy): (&str, &str)| Err((format!("{shown} is {kind}"), remedy.to_owned()));
    if let Some(known) = foreign_trace::by_bytes(bytes) {
        return foreign(known);
    }
    // Skip the byte order mark that spreadsheets write at the start of UTF-8 files.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let start = &bytes[..bytes.len().min(64)];
    // Count zero bytes, because a text in UTF-16 may have no byte order mark.
    if start.iter().filter(|byte| **byte == 0).count() * 4 > start.len() {
        let what = format!("{shown} has zero bytes, as a text in UTF-16 or a binary file");
        return Err((what, format!("save it as a text in UTF-8; {}", quantity.forms())));
    }
    let first = lines(bytes).next().map(|one| one.1).unwrap_or_default();
    let cells: Vec<&str> = fields(&first).collect();
    if let Some(known) = foreign_trace::by_cells(&cells) {
        return foreign(known);
    }
    let has_header = last_remark(bytes).is_some_and(|remark| Columns::named(&remark, quantity).is_ok());
    if !has_header && throughput_log::is_log(&cells) {
        return throughputs(bytes, shown, quantity).map(Recorded::Rows);
    }
    match lines(bytes).next() {
        None => Err((format!("{shown} has no line"), quantity.forms().into())),
        Some((_, first)) if first.starts_with(['{', '[']) => pattern(bytes, shown, quantity),
        // Read the file as a table, unless it is a single column of rates. Only Mahimahi's format has a single column.
        Some((_, first)) if quantity != Quantity::Rate || fields(&first).nth(1).is_some() => {
            table(bytes, shown, quantity).map(Recorded::Rows)
        }
        Some(_) => opportunities(bytes, shown),
    }
}

/// Returns all lines with their numbers. Leaves out empty lines and the `sep=` line that spreadsheets write.
fn all_lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    // Use the carriage return if the file has no newline, because old Macintosh programs end lines with it.
    let end = if bytes.contains(&b'\n') { b'\n' } else { b'\r' };
    let all = bytes.split(move |byte| *byte == end).map(<[u8]>::trim_ascii).zip(1..);
    all.filter(|(line, _)| !line.is_empty() && !line.starts_with(b"sep=")).map(|(line, n)| (n, line))
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, Cow<'_, str>)> {
    all_lines(bytes).filter(|(_, line)| !line.starts_with(b"#")).map(|(n, line)| (n, String::from_utf8_lossy(line)))
}

/// Returns the last remark before the first line of values, because some programs write the header as a remark.
fn last_remark(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let remarks = all_lines(bytes).map_while(|(_, line)| line.strip_prefix(b"#"));
    remarks.last().map(|line| String::from_utf8_lossy(line.trim_ascii()))
}

fn fields(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| matches!(c, ',' | ';') || c.is_whitespace()).filter(|field| !field.is_empty())
}

fn opportunities(bytes: &[u8], shown: &str) -> Result<Recorded, Fault> {
    let fault = |what: String| (what, Quantity::Rate.forms().to_owned());
    let mut all = Vec::new();
    let mut numbers = Vec::new();
    let mut last = 0u64;
    for (n, text) in lines(bytes) {
        let ms: u64 = text
            .parse()
            .map_err(|_| fault(format!("{shown}:{n}: {} is not a time in whole milliseconds", quoted(&text))))?;
        // Accept the same time again: Mahimahi allows several opportunities in one millisecond.
        if ms < last {
            return Err(fault(format!("{shown}:{n}: {ms} ms comes after {last} ms")));
        }
        if ms as f64 > LONGEST_S * 1e3 {
            let remedy = "write times from the beginning of the trace, not of an epoch";
            return Err((format!("{shown}:{n}: {ms} ms is more than 30 days"), remedy.to_owned()));
        }
        last = ms;
        all.push(Span::millis(last));
        numbers.push(n);
    }
    if last == 0 {
        return Err(fault(format!("{shown} ends at 0 ms: it takes no time")));
    }
    let doubts = opportunity_doubts(&all, &numbers, shown);
    Ok(Recorded::Opportunities(all.into(), doubts))
}

/// Returns an error if a file with this number of values is too long.
pub(crate) fn check_count(values: usize) -> Result<(), Fault> {
    if values > MOST_ROWS {
        return Err((format!("more than {MOST_ROWS} values"), "write a shorter file".to_owned()));
    }
    Ok(())
}

/// Returns the end of a value that begins at `begin` and lasts for this many seconds.
pub(crate) fn end_of(begin: Span, lasts_s: f64) -> Result<Span, Fault> {
    if lasts_s > LONGEST_S || begin.as_secs_f64() + lasts_s > LONGEST_S {
        let remedy = "write a shorter file; its durations are in milliseconds";
        return Err(("ends more than 30 days after the beginning".to_owned(), remedy.to_owned()));
    }
    Ok(begin + Span::from_secs_f64(lasts_s))
}

/// Returns the member `key` of a JSON object. Returns `None` if the object does not have it. `place` is the object's
/// place in messages.
pub(crate) fn member(entry: &Json, key: &str, most: f64, called: &str, place: &str) -> Result<Option<f64>, Fault> {
    match entry.get(key) {
        None | Some(Json::Null) => Ok(None),
        Some(given) => number(&given.to_string(), most, called)
            .map(Some)
            .map_err(|(what, remedy)| (format!("{place}.{key}: {what}"), remedy)),
    }
}

fn number(text: &str, most: f64, called: &str) -> Result<f64, Fault> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=most).contains(&value) => Ok(value),
        Ok(value) if value > most && value.is_finite() => {
            Err((format!("{text} is out of range"), format!("write at most {called}")))
        }
        _ => {
            let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
            let remedy = match text.split_once(',') {
                Some((whole, rest)) if format!("{whole}{rest}").parse::<f64>().is_ok() => {
                    "write numbers with a decimal point, and without commas"
                }
                _ if is_digit(text.chars().next()) && text.ends_with(char::is_alphabetic) => {
                    "write the number alone, and its unit into a header above the columns"
                }
                _ => "write a number, or leave its line out",
            };
            Err((format!("{} is no number from 0", quoted(text)), remedy.into()))
        }
    }
}

/// Parses a cell that contains a time.
fn time_of(cell: &str) -> Result<f64, Fault> {
    number(cell, f64::MAX, "").map_err(|(what, remedy)| {
        // A date such as 2026-11-29 has at least eight digits.
        let is_date = cell.contains(':') || cell.bytes().filter(u8::is_ascii_digit).count() >= 8;
        (what, if is_date { "write the time in seconds or milliseconds, not as a date".to_owned() } else { remedy })
    })
}

/// Returns the problem of a line that has `cells` cells, which is not the number of `columns`.
fn miscounted(line: &str, cells: usize, columns: &Columns, quantity: Quantity) -> Fault {
    let what = format!("{} where there are {}", counted(cells as u64, "column"), columns.count);
    let commas = line.split([' ', '\t', ';']).filter(|cell| !cell.is_empty());
    let is_number = |cell: &str| cell.replacen(',', ".", 1).parse::<f64>().is_ok();
    let is_decimal = line.contains(',') && commas.clone().count() == columns.count && commas.clone().all(is_number);
    if is_decimal || line.contains(',') && cells == 2 * columns.count {
        return (what, "a comma divides columns: write numbers with a decimal point, and without commas".to_owned());
    }
    if !columns.is_named && cells > columns.count {
        let remedy = format!(
            "write a header above them, which names one time and one value with their units, as {}",
            quantity.header()
        );
        return (what, remedy);
    }
    (what, quantity.forms().to_owned())
}

fn table(bytes: &[u8], shown: &str, quantity: Quantity) -> Result<Rows, Fault> {
    let (most, called) = quantity.most();
    let mut columns: Option<Columns> = None;
    let mut table = Table::new(shown);
    let (mut first, mut last) = (None, f64::MIN);
    for (i, (n, line)) in lines(bytes).enumerate() {
        let place = |(what, remedy): Fault| (format!("{shown}:{n}: {what}"), remedy);
        match (i == 0).then(|| Columns::named(&line, quantity)) {
            Some(Ok(named)) => {
                columns = Some(named);
                continue;
            }
            Some(Err(why)) if Columns::is_header(&line) => {
                let what = format!("{} is not a known header: {why}", quoted(&line));
                let remedy = format!("name one time and one value, each with its unit, as {}", quantity.header());
                return Err(place((what, remedy)));
            }
            _ => {}
        }
        let columns = columns.get_or_insert_with(|| {
            let remark = last_remark(bytes).and_then(|line| Columns::named(&line, quantity).ok());
            remark.map_or_else(|| Columns::unnamed(&line, quantity.unit()), |named| named.divided_as(&line))
        });
        let (cells, [to_s, unit]) = (columns.cells(&line), columns.units);
        if cells.len() != columns.count {
            return Err(place(miscounted(&line, cells.len(), columns, quantity)));
        }
        let [time, value] = columns.taken.map(|column| cells[column]);
        let time = time_of(time).map_err(place)?;
        if time * to_s > LATEST_S {
            let unit = [("t_ms", 1e14), ("t_us", 1e17), ("t_ns", f64::MAX)].iter().find(|unit| time * to_s < unit.1);
            let what = format!("{} s is later than any date: its times are in a smaller unit", time * to_s);
            let unit = unit.map_or("t_ms", |unit| unit.0);
            return Err(place((what, format!("name their unit in a header above the columns, as {unit}"))));
        }
        if time < last {
            return Err(place(match table.decimal_commas(&line) {
                Some(fault) => fault,
                None => {
                    let remedy = "sort the lines by their time, or cut the file there if another recording begins";
                    (format!("{time} comes after {last}"), remedy.into())
                }
            }));
        }
        last = time;
        // Subtract the first time, because the series begins at 0.
        let since = (time - *first.get_or_insert(time)) * to_s;
        if since > LONGEST_S {
            let what = "more than 30 days after the first line".into();
            return Err(place((what, "write a shorter table; milliseconds have the header t_ms".into())));
        }
        check_count(table.values.len() + 1).map_err(place)?;
        // Check the range in the column's unit, before the conversion, so that the message contains the number in the
        // file.
        let value = number(value, most / unit, called).map_err(|(what, remedy)| {
            let is_large = !columns.is_named && what.ends_with("out of range");
            let header = quantity.smallest_unit().filter(|_| is_large);
            let header = header.map(|header| format!("; or, if it is in a smaller unit, write a header as {header}"));
            place((what, remedy + &header.unwrap_or_default()))
        })? * unit;
        table.push(n, &line, columns.is_named, (Span::from_secs_f64(since), value));
    }
    carries(table.into_rows(quantity)?, shown, quantity)
}

/// Returns `rows`, or an error if they contain a rate that is always zero.
fn carries(rows: Rows, shown: &str, quantity: Quantity) -> Result<Rows, Fault> {
    // Check the mean instead of each rate, because a rate has no duration if the next line has the same time.
    if quantity == Quantity::Rate && rows.mean() < f64::MIN_POSITIVE {
        return Err((format!("{shown} never carries anything"), "one rate at least is above 0".into()));
    }
    Ok(rows)
}

/// Reads a log of throughput, which has rates only.
fn throughputs(bytes: &[u8], shown: &str, quantity: Quantity) -> Result<Rows, Fault> {
    if quantity != Quantity::Rate {
        return Err(without(shown, "log of throughput", quantity));
    }
    let mut log = ThroughputLog::new(shown);
    for (n, line) in lines(bytes) {
        let cells: Vec<&str> = fields(&line).collect();
        log.add(n, &cells).map_err(|(what, remedy)| (format!("{shown}:{n}: {what}"), remedy))?;
    }
    let rows = log.into_rows();
    carries(rows, shown, quantity)
}

/// Returns the error for a file that has rates, where another quantity is needed.
fn without(shown: &str, kind: &str, quantity: Quantity) -> Fault {
    let (key, name) = if quantity == Quantity::Loss { ("loss_trace", "loss") } else { ("delay_trace", "delay") };
    let what = format!("{shown} is a {kind}, and has no {name} over time");
    (what, format!("give it as trace; of {key}, {}", quantity.forms()))
}

/// Parses JSON: the uplink of an AlphaRTC pattern, or a trace of Sabre. An AlphaRTC pattern consists of steps with a
/// duration (ms), a capacity (kb/s), a loss and an RTT (ms).
fn pattern(bytes: &[u8], shown: &str, quantity: Quantity) -> Result<Recorded, Fault> {
    let form = || {
        format!(
            "of JSON, only AlphaRTC's and Sabre's are read: uplink.trace_pattern, a list of duration (ms), capacity \
             (kb/s), loss and rtt; or a list of duration_ms and bandwidth_kbps; write others as a table with the \
             header {}",
            quantity.header()
        )
    };
    let json: Json = serde_json::from_slice(bytes)
        .map_err(|error| (format!("{shown}:{}: this is no JSON ({error})", error.line().max(1)), form()))?;
    if let Some((kind, remedy)) = foreign_trace::by_json(&json) {
        return Err((format!("{shown} is {kind}"), remedy.to_owned()));
    }
    if let Some(list) = throughput_log::sabre_list(&json) {
        return match quantity {
            Quantity::Rate => carries(throughput_log::sabre(list, shown)?, shown, quantity).map(Recorded::Rows),
            Quantity::Delay | Quantity::Loss => Err(without(shown, "trace of Sabre", quantity)),
        };
    }
    let Some(list) = json.pointer("/uplink/trace_pattern").and_then(Json::as_array).filter(|list| !list.is_empty())
    else {
        return Err((format!("{shown} has no list uplink.trace_pattern"), form()));
    };
    check_count(list.len()).map_err(|(what, remedy)| (format!("{shown}: uplink.trace_pattern has {what}"), remedy))?;
    let mut now = Span::ZERO;
    let mut all = [const { Vec::new() }; 3];
    // Use half of the RTT as the one-way delay. The pattern's RTT is in milliseconds.
    let kinds = [("capacity", Quantity::Rate, 1e3), ("rtt", Quantity::Delay, 0.5e-3), ("loss", Quantity::Loss, 1.0)];
    let mut jitter = false;
    for (entry, n) in list.iter().zip(1..) {
        let place = format!("{shown}: uplink.trace_pattern[{n}]");
        let fault = |(what, remedy): Fault| (format!("{place}: {what}"), remedy);
        let value = |key: &str, most: f64, called: &str| member(entry, key, most, called, &place);
        for ((key, kind, unit), values) in kinds.iter().zip(&mut all) {
            let (most, called) = kind.most();
            // If a step does not contain this quantity, the previous value continues.
            if let Some(value) = value(key, most / unit, called)? {
                values.push((now, value * unit));
            }
        }
        jitter |= value("jitter", f64::MAX, "")?.is_some_and(|jitter| jitter > 0.0);
        let Some(lasts) = value("duration", LONGEST_S * 1e3, "30 days")? else {
            return Err((format!("{place} has no duration"), form()));
        };
        now = end_of(now, lasts / 1e3).map_err(fault)?;
    }
    if now.is_zero() {
        return Err((format!("{shown} takes no time"), "write a duration above 0".into()));
    }
    let has = |values: &[(Span, f64)]| values.iter().any(|(_, value)| *value > 0.0);
    let others =
        kinds.iter().zip(&all).skip(1).filter(|(_, values)| has(values)).map(|((_, kind, _), _)| *kind).collect();
    let Some(((key, ..), mut values)) = kinds.iter().zip(all).find(|((_, kind, _), _)| *kind == quantity) else {
        return Err((format!("{shown} has nothing"), form()));
    };
    match values.first_mut() {
        None => return Err((format!("{shown} has no {key}"), form())),
        // Let the first value begin at 0, even if earlier steps lack this quantity.
        Some((first, _)) => *first = Span::ZERO,
    }
    let left_aside = |_| Doubt {
        from: Span::ZERO,
        what: format!("the jitter of {shown} is left aside"),
        remedy: "write jitter = { mean = \"5ms\" } beside it, if there is to be one".to_owned(),
    };
    let doubts = (jitter && quantity == Quantity::Rate).then_some(()).map(left_aside).into_iter().collect();
    let rows = carries(Rows { values: values.into(), period: now, doubts }, shown, quantity)?;
    Ok(if quantity == Quantity::Rate { Recorded::Pattern(rows, others) } else { Recorded::Rows(rows) })
}
