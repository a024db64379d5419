//! Reads logs of measured throughput: the log files of two data sets of mobile networks, and the traces of Sabre.
//!
//! A line of the log files has a time, a latitude, a longitude, the bytes that were received since the previous line,
//! and the milliseconds since the previous line. The data set HSDPA (Riiser and others, MMSys 2013) and the 4G logs of
//! Ghent (van der Hooft and others, IEEE Communications Letters 2016) also have a second time, in milliseconds.

use crate::recorded::{Fault, LATEST_S, LONGEST_S, Quantity, Rows, check_count, end_of, member};
use crate::trace_doubts::{Doubt, in_words};
use serde_json::Value as Json;
use steadycast_settings::tree::quoted;
use steadycast_units::{Span, counted};

/// Largest difference between the milliseconds of a line and the time since the previous line, in seconds, if times are
/// whole seconds.
const TOLERANCE_OF_SECONDS_S: f64 = 2.0;
/// The same limit if times are in milliseconds.
const TOLERANCE_OF_MILLIS_S: f64 = 0.5;

/// A line of a log file.
struct Line {
    /// The time of the line, in seconds since some time.
    at: f64,
    /// Whether times are whole seconds.
    is_coarse: bool,
    bytes: u64,
    ms: u64,
}

impl Line {
    fn read(cells: &[&str]) -> Option<Self> {
        let (times, [latitude, longitude, bytes, ms]) = cells.split_last_chunk::<4>()?;
        let degrees = |cell: &str, most: f64| {
            cell.contains('.') && cell.parse::<f64>().is_ok_and(|degrees| (-most..=most).contains(&degrees))
        };
        let (bytes, ms) = (bytes.parse().ok()?, ms.parse().ok()?);
        let (at, is_coarse) = match times {
            [date] => match date.parse::<f64>().ok().filter(|date| date.is_finite())? {
                date if date > LATEST_S => (date * 1e-3, false),
                date => (date, true),
            },
            [_, millis] => (millis.parse::<u64>().ok()? as f64 * 1e-3, false),
            _ => return None,
        };
        (degrees(latitude, 90.0) && degrees(longitude, 180.0)).then_some(Self { at, is_coarse, bytes, ms })
    }
}

/// Whether a line with these cells is the first line of a log file.
pub(crate) fn is_log(cells: &[&str]) -> bool {
    Line::read(cells).is_some()
}

/// The lines of a log file that were read.
pub(crate) struct ThroughputLog<'a> {
    /// The file's name in messages.
    shown: &'a str,
    values: Vec<(Span, f64)>,
    /// The end of the last value.
    end: Span,
    /// The time of the last line, in seconds since some time.
    last: Option<f64>,
    /// The gaps: the line after the gap, the beginning of this line's value, and the gap's length.
    gaps: Vec<(usize, Span, Span)>,
}

impl<'a> ThroughputLog<'a> {
    pub(crate) const fn new(shown: &'a str) -> Self {
        Self { shown, values: Vec::new(), end: Span::ZERO, last: None, gaps: Vec::new() }
    }

    /// Adds the line with the number `n`.
    ///
    /// # Errors
    /// The line has another form or a value that is out of range, or its milliseconds are not the time since the
    /// previous line.
    pub(crate) fn add(&mut self, n: usize, cells: &[&str]) -> Result<(), Fault> {
        let fault = |what: String, remedy: &str| Err((what, remedy.to_owned()));
        let Some(Line { at, is_coarse, bytes, ms }) = Line::read(cells) else {
            let what = format!("{} is no line of a throughput log", quoted(&cells.join(" ")));
            let remedy = "its lines have a time, latitude, longitude, bytes and milliseconds; leave this line out";
            return fault(what, remedy);
        };
        check_count(self.values.len() + 1)?;
        let lasts = ms as f64 * 1e-3;
        if ms == 0 {
            return fault("a line of 0 ms has no rate".to_owned(), "leave the line out");
        }
        let end = end_of(self.end, lasts)?;
        let (most, called) = Quantity::Rate.most();
        let rate = bytes as f64 * 8.0 / lasts;
        if rate > most {
            let what = format!("{bytes} bytes in {ms} ms are more than {called}");
            return fault(what, "correct the line, or leave it out");
        }
        let tolerance = if is_coarse { TOLERANCE_OF_SECONDS_S } else { TOLERANCE_OF_MILLIS_S };
        let passed = self.last.map_or(lasts, |last| at - last);
        if passed < lasts - tolerance {
            let what = format!("its {ms} ms are longer than the {passed:.3} s since the line before");
            let remedy = "sort the lines by their time, or cut the file there if another recording begins";
            return fault(what, remedy);
        }
        if passed > LONGEST_S {
            let what = "more than 30 days after the line before".to_owned();
            return fault(what, "cut the file there if another recording begins");
        }
        if passed > lasts + tolerance {
            self.gaps.push((n, self.end, Span::from_secs_f64(passed - lasts)));
        }
        self.last = Some(at);
        self.values.push((self.end, rate));
        self.end = end;
        Ok(())
    }

    pub(crate) fn into_rows(self) -> Rows {
        let doubts = gap_doubt(&self.gaps, self.shown).into_iter().collect();
        Rows { values: self.values.into(), period: self.end, doubts }
    }
}

/// Warns of times that no line describes.
fn gap_doubt(gaps: &[(usize, Span, Span)], shown: &str) -> Option<Doubt> {
    let (_, from, _) = gaps.first()?;
    let (n, _, longest) = gaps.iter().max_by_key(|gap| gap.2)?;
    let more = gaps.len() - 1;
    let others = if more == 0 { String::new() } else { format!(" ({} too)", counted(more as u64, "shorter gap")) };
    Some(Doubt {
        from: *from,
        what: format!(
            "{shown}:{n}: nothing describes the {0} before this line: these {0} are left out{others}",
            in_words(*longest)
        ),
        remedy: "if nothing was received then, insert a line with 0 bytes and its milliseconds".to_owned(),
    })
}

/// Returns the entries of a trace of Sabre (Spiteri and others, MMSys 2018): a list of duration_ms, bandwidth_kbps and
/// latency_ms. Returns `None` if the first entry has another form.
pub(crate) fn sabre_list(json: &Json) -> Option<&[Json]> {
    let list = json.as_array()?;
    let first = list.first()?;
    (first.get("duration_ms").is_some() && first.get("bandwidth_kbps").is_some()).then_some(list)
}

/// Reads a trace of Sabre.
///
/// # Errors
/// An entry has no duration or bandwidth, or one that is out of range.
pub(crate) fn sabre(list: &[Json], shown: &str) -> Result<Rows, Fault> {
    check_count(list.len()).map_err(|(what, remedy)| (format!("{shown} has {what}"), remedy))?;
    let (mut values, mut end, mut latency) = (Vec::new(), Span::ZERO, 0.0_f64);
    let ((most_bps, most_rate), (most_s, most_delay)) = (Quantity::Rate.most(), Quantity::Delay.most());
    for (entry, n) in list.iter().zip(1..) {
        let place = format!("{shown}: [{n}]");
        let fault = |(what, remedy): Fault| (format!("{place}: {what}"), remedy);
        let number = |key: &str, most: f64, called: &str| member(entry, key, most, called, &place);
        let needed = |key: &str, value: Option<f64>| {
            value.ok_or_else(|| (format!("{place} has no {key}"), "add it, or leave the entry out".to_owned()))
        };
        let kbps = needed("bandwidth_kbps", number("bandwidth_kbps", most_bps / 1e3, most_rate)?)?;
        let ms = needed("duration_ms", number("duration_ms", LONGEST_S * 1e3, "30 days")?)?;
        values.push((end, kbps * 1e3));
        end = end_of(end, ms * 1e-3).map_err(fault)?;
        latency = latency.max(number("latency_ms", most_s * 1e3, most_delay)?.unwrap_or(0.0));
    }
    if end.is_zero() {
        return Err((format!("{shown} takes no time"), "write a duration above 0".to_owned()));
    }
    let doubt = Doubt {
        from: Span::ZERO,
        what: format!("the latency of {shown}, up to {latency} ms, is left aside"),
        remedy: format!(
            "it is a request's round trip: write delay = \"{}ms\" beside the trace, if there is to be one",
            latency / 2.0
        ),
    };
    let doubts = (latency > 0.0).then_some(doubt).into_iter().collect();
    Ok(Rows { values: values.into(), period: end, doubts })
}
