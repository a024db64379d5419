//! Reads logs of measured throughput: the log files of two data sets of mobile networks, and the traces of Sabre.
//!
//! A line of the log files has a time, a latitude, a longitude, the bytes that were received since the previous line,
//! and the milliseconds since the previous line. The data set HSDPA (Riiser and others, MMSys 2013) and the 4G logs of
//! Ghent (van der Hooft and others, IEEE Communications Letters 2016) also have a second time, in milliseconds.

use crate::recorded::{Fault, Rows};
use crate::trace_doubts::{Doubt, in_words};
use serde_json::Value as Json;
use steadycast_settings::tree::quoted;
use steadycast_units::{Span, counted};

/// A time of at least this is a date in milliseconds, and otherwise in seconds. As seconds, it is in the year 5138.
const LEAST_DATE_MS: f64 = 1e11;
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
            [date] => match date.parse::<f64>().ok()? {
                date if date >= LEAST_DATE_MS => (date * 1e-3, false),
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

/// Reads a log file. Each of `lines` is the line's number and its cells.
///
/// # Errors
/// A line has another form, or its milliseconds are not the time since the previous line.
pub(crate) fn log<'a>(lines: impl Iterator<Item = (usize, Vec<&'a str>)>, shown: &str) -> Result<Rows, Fault> {
    let mut values: Vec<(Span, f64)> = Vec::new();
    let (mut end, mut last): (Span, Option<f64>) = (Span::ZERO, None);
    let mut gaps: Vec<(usize, Span, Span)> = Vec::new();
    for (n, cells) in lines {
        let fault = |what: String, remedy: &str| (format!("{shown}:{n}: {what}"), remedy.to_owned());
        let Some(Line { at, is_coarse, bytes, ms }) = Line::read(&cells) else {
            let what = format!("{} is no line of a throughput log", quoted(&cells.join(" ")));
            return Err(fault(
                what,
                "its lines have a time, latitude, longitude, bytes and milliseconds; leave it out",
            ));
        };
        let lasts = ms as f64 * 1e-3;
        if ms == 0 {
            return Err(fault("a line of 0 ms has no rate".to_owned(), "leave the line out"));
        }
        let tolerance = if is_coarse { TOLERANCE_OF_SECONDS_S } else { TOLERANCE_OF_MILLIS_S };
        let passed = last.map_or(lasts, |last| at - last);
        if passed < lasts - tolerance {
            let what = format!("its {ms} ms are longer than the {passed:.3} s since the line before");
            let remedy = "sort the lines by their time, or cut the file there if another recording begins";
            return Err(fault(what, remedy));
        }
        if passed > lasts + tolerance {
            gaps.push((n, end, Span::from_secs_f64(passed - lasts)));
        }
        last = Some(at);
        values.push((end, bytes as f64 * 8.0 / lasts));
        end += Span::millis(ms);
    }
    let doubts = gap_doubt(&gaps, shown).into_iter().collect();
    Ok(Rows { values: values.into(), period: end, doubts })
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
            "{shown}:{n}: nothing describes {} before this line, and it is left out{others}",
            in_words(*longest)
        ),
        remedy: "if nothing was received then, insert a line with 0 bytes and its milliseconds".to_owned(),
    })
}

/// Reads a trace of Sabre (Spiteri and others, MMSys 2018): a list of duration_ms, bandwidth_kbps and latency_ms.
/// Returns `None` if the file has another form.
pub(crate) fn sabre(json: &Json, shown: &str) -> Option<Rows> {
    let list = json.as_array().filter(|list| !list.is_empty())?;
    let (mut values, mut end, mut latency) = (Vec::new(), Span::ZERO, 0.0_f64);
    for entry in list {
        let number = |key: &str| entry.get(key).and_then(Json::as_f64).filter(|number| (0.0..1e12).contains(number));
        values.push((end, number("bandwidth_kbps")? * 1e3));
        end += Span::from_secs_f64(number("duration_ms")? * 1e-3);
        latency = latency.max(number("latency_ms").unwrap_or(0.0));
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
    (!end.is_zero()).then(|| Rows { values: values.into(), period: end, doubts })
}
