//! Analysis of calls of other programs, from the bytes of a capture file.

use crate::error::wrong;
use crate::live::{master, want};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;
use serde_json::{Value, json};
use std::time::Duration;
use steadycast_calltrace::{Band, Call, Opener, Options, Path, Side, Verdict, decisions, read, read_ends};
use steadycast_live::Srtp;
use steadycast_units::{Rate, Span, Time};

fn bps(rate: Rate) -> f64 {
    rate.as_bps_f64()
}

fn band(band: Band) -> Value {
    json!({ "low": bps(band.low), "rate": bps(band.rate), "high": bps(band.high) })
}

/// Reads the capture of a call and returns its analysis as JSON. ``controllers`` lists the controllers whose decisions
/// are computed from the reports of the call. ``place`` is the name of the file in error messages.
///
/// ``options`` has these keys. ``stream`` is an SSRC. ``sender`` is ``True`` if the capture was taken at the sender,
/// and ``False`` if it was taken at the receiver. ``other`` is the receiver's capture of the same call.
/// ``send_time_id`` is the id of the header extension abs-send-time. ``beside`` states whether, according to the user,
/// other flows were in the bottleneck's queue. ``key`` is the text of the session's key file.
///
/// Raises `UserError` if the capture can't be read.
#[pyfunction]
pub(crate) fn call(
    py: Python<'_>,
    place: &str,
    file: PyBackedBytes,
    controllers: Vec<String>,
    options: &Bound<'_, PyDict>,
) -> PyResult<String> {
    let (other, beside) = (want::<Option<PyBackedBytes>>(options, "other")?, want(options, "beside")?);
    let mut srtp = master(want::<Option<String>>(options, "key")?.as_deref())?.map(|key| Srtp::new(&key));
    let side = want::<Option<bool>>(options, "sender")?.map(|is| if is { Side::Sender } else { Side::Receiver });
    let chosen = Options { stream: want(options, "stream")?, side, send_time_id: want(options, "send_time_id")? };
    // Let other Python threads run, because the analysis takes seconds.
    let read = py.detach(|| {
        let mut opener = srtp.as_mut().map(|srtp| |bytes: &[u8]| srtp.open_rtcp(bytes).map(<[u8]>::to_vec));
        let opener = opener.as_mut().map(|opener| opener as Opener<'_>);
        let call = match &other {
            Some(other) => read_ends(&file, other, chosen, opener),
            None => read(&file, chosen, opener),
        };
        call.map(|call| {
            let path = Path::of(&call, beside);
            let mut all = analysis(&call, &path);
            all["open"] = controllers.iter().map(|name| (name.clone(), open(&call, &path, name))).collect();
            all
        })
    });
    let read = read.map_err(|problem| wrong(position(place, problem.at), problem.what, problem.remedy))?;
    Ok(read.to_string())
}

/// A datagram. The file `_core.pyi` lists the fields.
type Captured = (u64, String, String, u64, Option<u16>, Option<(u32, u16)>, u64);

/// Reads the UDP datagrams of a capture. Returns one tuple per datagram, and notes on datagrams that are left out.
///
/// Raises `UserError` if the file can't be read.
#[pyfunction]
pub(crate) fn datagrams(py: Python<'_>, place: &str, file: PyBackedBytes) -> PyResult<(Vec<Captured>, Vec<String>)> {
    let nanos = |at: Duration| u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
    let read = py.detach(|| steadycast_calltrace::datagrams(&file));
    let read = read.map_err(|problem| wrong(position(place, problem.at), problem.what, problem.remedy))?;
    let all = read.all.iter();
    let all =
        all.map(|one| (nanos(one.at), one.from.to_string(), one.to.to_string(), one.size, one.id, one.rtp, one.digest));
    Ok((all.collect(), read.notes))
}

/// Returns a place in a file, for error messages. Byte 0 means the whole file.
fn position(place: &str, at: u64) -> String {
    if at == 0 { place.to_owned() } else { format!("{place}: byte {at}") }
}

/// Returns the decisions of a controller on the reports of the call. Each decision has a time, a rate and a rule.
fn open(call: &Call, path: &Path, name: &str) -> Value {
    let since = |at: Time| at.as_secs_f64() - path.begin.as_secs_f64();
    let all = decisions(call, name).unwrap_or_default();
    all.into_iter().map(|(at, rate, rule)| json!([since(at), bps(rate), rule])).collect()
}

fn analysis(call: &Call, path: &Path) -> Value {
    // Subtract as floats, because `Time::since` returns 0 for times before the start of the path's record.
    let since = |at: Time| at.as_secs_f64() - path.begin.as_secs_f64();
    let millis = |span: Span| span.as_millis_f64();
    let shared = |(capacity, own)| json!({ "capacity_bps": bps(capacity), "own_bps": bps(own) });
    let bins = path.bins.iter().map(|bin| {
        json!({
            "sent_bps": bps(bin.sent), "arrived_bps": bps(bin.arrived), "packets": bin.packets, "lost": bin.lost,
            "lost_by_chance": bin.lost_by_chance,
            "delay_ms": bin.delay.map(|delay| millis(delay.0)), "delay_max_ms": bin.delay.map(|delay| millis(delay.1)),
            "capacity_bps": bin.capacity.map(band), "at_least_bps": bin.at_least.map(bps),
            "shared": bin.shared.map(shared),
        })
    });
    let verdict = match path.verdict {
        Verdict::Alone => "alone",
        Verdict::Jittered => "jittered",
        Verdict::Shared => "shared",
        Verdict::Changing => "changing",
        Verdict::Unseen => "unseen",
    };
    let frames = call.frames.iter().map(|frame| {
        let arrived = frame.arrived.map(|at| at.as_nanos() as f64 * 1e-9);
        json!([since(frame.left), arrived, frame.size.get(), frame.ticks])
    });
    let gaps = call.frames.iter().enumerate().filter(|(_, frame)| frame.missing.all > 0);
    let gaps = gaps.map(|(place, frame)| json!([place, frame.missing.all, frame.missing.lost]));
    json!({
        "source": call.source, "notes": call.notes, "packets": call.packets.len(), "reports": call.reports,
        "begins": call.begins,
        "round_trip_ms": call.round_trip.map(millis),
        "estimates": call.estimates.iter().map(|(at, rate)| json!([since(*at), bps(*rate)])).collect::<Vec<_>>(),
        "frames": frames.collect::<Vec<_>>(), "frame_gaps": gaps.collect::<Vec<_>>(),
        "delay_p95_ms": path.delay.map(millis), "verdict": verdict, "jitter_ms": millis(path.jitter),
        "shared": path.shared.map(shared),
        "removed_steps_ms": path.removed_steps.iter().map(|step| millis(*step)).collect::<Vec<_>>(),
        "known_frac": path.known, "drift_ppm": path.drift.map(|drift| drift * 1e6),
        "queue": { "bytes": path.queue.holds.get(), "full": path.queue.full },
        "chance_loss_frac": path.losses.chance, "loss_run_packets": path.losses.run,
        "route_changes_s": path.routes, "late_frac": path.late, "refusals": path.refusals,
        "bins": bins.collect::<Vec<_>>(),
    })
}
