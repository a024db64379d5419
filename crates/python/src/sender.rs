//! Interface for Python programs that have their own RTP stack. It provides a controller alone, a sender around a
//! controller, and the feedback of a receiver.

use crate::error::wrong;
use crate::locked;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::Mutex;
use steadycast_control::{FeedbackFormat, Stream};
use steadycast_remote::{
    Bounds, Decision, FrameEdge, Given, Limit, MediaQueue, Need, Packet, PacketArrival, PacketResult, ParamError,
    PeerTime, Remote, Window,
};
use steadycast_sender::{
    FrameRole, MediaPacket, MediaSender, MediaSettings, Output, PacketName, RepairSettings, StreamId, StreamSettings,
};
use steadycast_session::TransportFeedbackRecorder;
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

#[derive(FromPyObject)]
enum Value {
    // `Switch` must come before `Number`, because a Python bool can also be converted to a float.
    Switch(bool),
    Number(f64),
    Text(String),
}

type Parameters = BTreeMap<String, Value>;

/// The number of a packet, and its arrival on the receiver's clock in seconds. The arrival is `None` if the packet is
/// lost, and NaN if the time is unknown.
type Fate = (u64, Option<f64>);

/// A time or a duration in seconds. It is finite and not negative.
#[derive(Clone, Copy)]
struct Seconds(f64);

impl Seconds {
    fn time(self) -> Time {
        Time::ZERO + self.span()
    }

    fn span(self) -> Span {
        Span::from_secs_f64(self.0)
    }
}

/// Returns a time in seconds that is not before `at` when it is read again. A `f64` rounds to the nearest value, which
/// may be earlier. A program that waits until then would find that nothing is due.
fn not_before(at: Time) -> f64 {
    let mut seconds = at.as_secs_f64();
    while Seconds(seconds).time() < at {
        seconds = seconds.next_up();
    }
    seconds
}

impl<'py> FromPyObject<'_, 'py> for Seconds {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        seconds("time", value.extract()?)
    }
}

fn seconds(place: &str, seconds: f64) -> PyResult<Seconds> {
    match seconds.is_finite() && seconds >= 0.0 {
        true => Ok(Seconds(seconds)),
        false => Err(wrong(place, format!("{seconds} is not valid"), "give a finite number of seconds, 0 or more")),
    }
}

fn rate(place: &str, bps: f64) -> PyResult<Rate> {
    match bps.is_finite() && bps >= 0.0 {
        true => Ok(Rate::from_bps_f64(bps)),
        false => Err(wrong(place, format!("{bps} is no rate"), "give a finite number of bit/s, 0 or more")),
    }
}

fn refused(error: ParamError) -> PyErr {
    wrong(error.name, error.problem, error.remedy)
}

fn params(parameters: Option<Parameters>) -> Vec<(String, Given)> {
    let given = |(name, value)| match value {
        Value::Switch(switch) => (name, Given::Switch(switch)),
        Value::Number(number) => (name, Given::Number(number)),
        Value::Text(text) => (name, Given::Text(text)),
    };
    parameters.unwrap_or_default().into_iter().map(given).collect()
}

fn bounds(floor_bps: f64, cap_bps: f64, packet_bytes: u64, seed: u64) -> PyResult<Bounds> {
    let mut bounds = Bounds::new(rate("floor_bps", floor_bps)?, rate("cap_bps", cap_bps)?);
    (bounds.packet, bounds.seed) = (Bytes::new(packet_bytes), Seed(seed));
    Ok(bounds)
}

fn results(fates: Vec<Fate>) -> Vec<PacketResult> {
    let result = |(number, arrived): Fate| PacketResult {
        number,
        arrived: arrived.map(|at| {
            // NaN means that the packet arrived at an unknown time.
            let at = (!at.is_nan()).then(|| PeerTime::from_nanos((at * 1e9) as i64));
            PacketArrival { at, ecn: None }
        }),
    };
    fates.into_iter().map(result).collect()
}

fn stream_of(stream: &str) -> PyResult<Stream> {
    match stream {
        "media" => Ok(Stream::Media),
        "repair" => Ok(Stream::Repair),
        "parity" => Ok(Stream::Parity),
        "padding" => Ok(Stream::Padding),
        "audio" => Ok(Stream::Audio),
        other => {
            let remedy = "give \"media\", \"repair\", \"parity\", \"padding\" or \"audio\"";
            Err(wrong("stream", format!("{other:?} is none"), remedy))
        }
    }
}

const fn stream_name(stream: Stream) -> &'static str {
    match stream {
        Stream::Media => "media",
        Stream::Repair => "repair",
        Stream::Parity => "parity",
        Stream::Padding => "padding",
        Stream::Audio => "audio",
    }
}

/// A decision of a controller, with its reason.
#[pyclass(frozen, get_all, name = "Decision", module = "steadycast._core")]
pub(crate) struct PyDecision {
    target_bps: f64,
    pacing_bps: f64,
    window_bytes: Option<u64>,
    limit: &'static str,
    why: String,
}

impl PyDecision {
    fn of(decision: Decision, packet: Bytes) -> Self {
        let Decision { target, pacing, window, limit, why } = decision;
        Self {
            target_bps: target.as_bps_f64(),
            pacing_bps: pacing.as_bps_f64(),
            window_bytes: window.map(|window| match window {
                // Convert a window in packets to bytes, as a number of full packets.
                Window::Packets(packets) => u64::from(packets) * packet.get(),
                Window::Bytes(bytes) => bytes.get(),
            }),
            limit: match limit {
                Limit::Start => "start",
                Limit::Network => "network",
                Limit::Cap => "cap",
                Limit::Floor => "floor",
            },
            why: why.rule.into_owned(),
        }
    }
}

#[pymethods]
impl PyDecision {
    fn __repr__(&self) -> String {
        let Self { target_bps, pacing_bps, limit, why, .. } = self;
        format!("Decision(target_bps={target_bps}, pacing_bps={pacing_bps}, limit={limit:?}, why={why:?})")
    }
}

/// A group of packets that is to be sent above the target rate, to measure the capacity of the path.
#[pyclass(frozen, get_all, name = "Probe", module = "steadycast._core")]
pub(crate) struct PyProbe {
    id: u32,
    rate_bps: f64,
    packets: u32,
    size_bytes: u64,
    within_pacing: bool,
}

#[pymethods]
impl PyProbe {
    fn __repr__(&self) -> String {
        let Self { id, rate_bps, packets, size_bytes, .. } = self;
        format!("Probe(id={id}, rate_bps={rate_bps}, packets={packets}, size_bytes={size_bytes})")
    }
}

/// A controller that runs only at the sender. It processes the standard feedback of receivers.
#[pyclass(frozen, name = "Remote", module = "steadycast._core")]
pub(crate) struct PyRemote {
    /// The controller. It needs a lock because it is not `Sync`.
    remote: Mutex<Remote>,
    packet: Bytes,
}

#[pymethods]
impl PyRemote {
    #[new]
    #[pyo3(signature = (
        controller = "steady", *, floor_bps, cap_bps, parameters = None, packet_bytes = 1_200, seed = 0,
        probes = false, late = false, interval_s = 0.0, acknowledged = false
    ))]
    #[allow(clippy::too_many_arguments, reason = "they have names in Python")]
    fn new(
        controller: &str,
        floor_bps: f64,
        cap_bps: f64,
        parameters: Option<Parameters>,
        packet_bytes: u64,
        seed: u64,
        probes: bool,
        late: bool,
        interval_s: f64,
        acknowledged: bool,
    ) -> PyResult<Self> {
        let mut bounds = bounds(floor_bps, cap_bps, packet_bytes, seed)?;
        bounds.offers = if probes { vec![Need::Probes] } else { Vec::new() };
        (bounds.feedback.late, bounds.feedback.acknowledged) = (late, acknowledged);
        bounds.feedback.interval = seconds("interval_s", interval_s)?.span();
        let remote = Remote::new(controller, &params(parameters), &bounds).map_err(refused)?;
        Ok(Self { remote: Mutex::new(remote), packet: bounds.packet })
    }

    #[pyo3(signature = (at_s, size_bytes, *, first = false, last = false, data_limited = false, covered = true))]
    fn sent(&self, at_s: Seconds, size_bytes: u64, first: bool, last: bool, data_limited: bool, covered: bool) -> u64 {
        let (size, edge) = (Bytes::new(size_bytes), FrameEdge { first, last });
        match covered {
            true => locked(&self.remote).sent(at_s.time(), &Packet { size, edge, data_limited }),
            false => locked(&self.remote).sent_uncovered(at_s.time(), Stream::Media, size),
        }
    }

    #[pyo3(signature = (at_s, size_bytes, stream, *, covered = true))]
    fn sent_extra(&self, at_s: Seconds, size_bytes: u64, stream: &str, covered: bool) -> PyResult<u64> {
        let (stream, size) = (stream_of(stream)?, Bytes::new(size_bytes));
        Ok(match covered {
            true => locked(&self.remote).sent_extra(at_s.time(), stream, size),
            false => locked(&self.remote).sent_uncovered(at_s.time(), stream, size),
        })
    }

    fn feedback(&self, at_s: Seconds, fates: Vec<Fate>) -> Option<f64> {
        locked(&self.remote).feedback(at_s.time(), results(fates)).map(Span::as_secs_f64)
    }

    fn forget(&self, number: u64) {
        locked(&self.remote).forget(number);
    }

    fn number(&self, low: u16) -> Option<u64> {
        locked(&self.remote).number(low)
    }

    #[pyo3(signature = (at_s, waiting_bytes, age_s, frame_bytes = None))]
    fn queued(&self, at_s: Seconds, waiting_bytes: u64, age_s: Seconds, frame_bytes: Option<u64>) {
        let (waiting, age) = (Bytes::new(waiting_bytes), age_s.span());
        locked(&self.remote).queued(&MediaQueue { at: at_s.time(), waiting, age, frame: frame_bytes.map(Bytes::new) });
    }

    fn __repr__(&self) -> String {
        let decision = PyDecision::of(locked(&self.remote).decision(), self.packet);
        format!("Remote({})", decision.__repr__())
    }

    #[getter]
    fn decision(&self) -> PyDecision {
        PyDecision::of(locked(&self.remote).decision(), self.packet)
    }

    fn probe(&self) -> Option<PyProbe> {
        let probe = locked(&self.remote).probe()?;
        Some(PyProbe {
            id: probe.id,
            rate_bps: probe.rate.as_bps_f64(),
            packets: probe.packets,
            size_bytes: probe.bytes.get(),
            within_pacing: probe.within,
        })
    }

    #[getter]
    fn wake_s(&self) -> Option<f64> {
        locked(&self.remote).wake().map(|wake| not_before(wake.at))
    }

    fn timer(&self, now_s: Seconds) {
        locked(&self.remote).timer(now_s.time());
    }
}

/// What the encoder has to do for its next frame.
#[pyclass(frozen, get_all, name = "EncoderTarget", module = "steadycast._core")]
pub(crate) struct PyEncoderTarget {
    rate_bps: f64,
    skip: bool,
    key_frame: bool,
}

#[pymethods]
impl PyEncoderTarget {
    fn __repr__(&self) -> String {
        let Self { rate_bps, skip, key_frame } = self;
        format!("EncoderTarget(rate_bps={rate_bps}, skip={skip}, key_frame={key_frame})")
    }
}

/// A packet that has to be sent now.
#[pyclass(frozen, get_all, name = "Departure", module = "steadycast._core")]
pub(crate) struct PyDeparture {
    stream: u32,
    id: u64,
    seq: u16,
    number: u64,
    kind: &'static str,
    size_bytes: u64,
}

#[pymethods]
impl PyDeparture {
    fn __repr__(&self) -> String {
        let Self { stream, id, seq, number, kind, size_bytes } = self;
        format!(
            "Departure(stream={stream}, id={id}, seq={seq}, number={number}, kind={kind:?}, size_bytes={size_bytes})"
        )
    }
}

/// A sender of several streams that uses a controller.
#[pyclass(frozen, name = "MediaSender", module = "steadycast._core")]
pub(crate) struct PyMediaSender {
    /// The sender. It needs a lock because its controller is not `Sync`.
    sender: Mutex<MediaSender>,
    packet: Bytes,
    wake: Mutex<Option<Time>>,
    dropped: Mutex<Vec<(u32, u64)>>,
}

impl PyMediaSender {
    /// Adds a stream, after a check of its settings.
    fn add(&self, settings: StreamSettings) -> PyResult<u32> {
        Ok(locked(&self.sender).try_add_stream(settings).map_err(refused)?.0)
    }

    /// Returns the id of an added stream.
    fn stream(&self, stream: u32) -> PyResult<StreamId> {
        let added = locked(&self.sender).streams();
        match (stream as usize) < added {
            true => Ok(StreamId(stream)),
            false => {
                let remedy = "give a number that add_audio, add_video or add_parity has returned";
                Err(wrong("stream", format!("{stream} is none of the {added} streams"), remedy))
            }
        }
    }
}

/// Converts the identification of a packet. It is the transport-wide sequence number, or the SSRC with the sequence
/// number, or the caller's own number.
fn name_of(transport: Option<u16>, rtp: Option<(u32, u16)>, own: Option<u64>) -> PyResult<PacketName> {
    match (transport, rtp, own) {
        (Some(low), None, None) => Ok(PacketName::Transport(low)),
        (None, Some((ssrc, seq)), None) => Ok(PacketName::Rtp { ssrc, seq }),
        (None, None, Some(own)) => Ok(PacketName::Own(own)),
        _ => Err(wrong("name", "a packet has one name", "give one of transport, rtp and own")),
    }
}

#[pymethods]
impl PyMediaSender {
    #[new]
    #[pyo3(signature = (
        controller = "steady", *, floor_bps, cap_bps, parameters = None, packet_bytes = 1_200, seed = 0,
        feedback = "twcc", retransmissions_covered = false, padding = false, max_backlog_s = 1.0,
        credit_s = 0.02
    ))]
    #[allow(clippy::too_many_arguments, reason = "they have names in Python")]
    fn new(
        controller: &str,
        floor_bps: f64,
        cap_bps: f64,
        parameters: Option<Parameters>,
        packet_bytes: u64,
        seed: u64,
        feedback: &str,
        retransmissions_covered: bool,
        padding: bool,
        max_backlog_s: f64,
        credit_s: f64,
    ) -> PyResult<Self> {
        let mut settings = MediaSettings::new(bounds(floor_bps, cap_bps, packet_bytes, seed)?);
        settings.format = match feedback {
            "twcc" => FeedbackFormat::TransportWide,
            "rfc8888" => FeedbackFormat::Rfc8888,
            "joined" => FeedbackFormat::Own,
            other => {
                let remedy = "give \"twcc\", \"rfc8888\" or \"joined\"";
                return Err(wrong("feedback", format!("{other:?} is no format"), remedy));
            }
        };
        (settings.retransmissions_covered, settings.padding) = (retransmissions_covered, padding);
        settings.max_backlog = seconds("max_backlog_s", max_backlog_s)?.span();
        settings.credit = seconds("credit_s", credit_s)?.span();
        let sender = MediaSender::new(controller, &params(parameters), settings).map_err(refused)?;
        Ok(Self {
            sender: Mutex::new(sender),
            packet: Bytes::new(packet_bytes),
            wake: Mutex::default(),
            dropped: Mutex::default(),
        })
    }

    #[pyo3(signature = (ssrc, rate_bps, *, covered = true))]
    fn add_audio(&self, ssrc: u32, rate_bps: f64, covered: bool) -> PyResult<u32> {
        let mut settings = StreamSettings::audio(ssrc, rate("rate_bps", rate_bps)?);
        settings.covered = covered;
        self.add(settings)
    }

    #[pyo3(signature = (ssrc, *, retransmission = true, least_bps = 0.0, most_bps = None))]
    fn add_video(&self, ssrc: u32, retransmission: bool, least_bps: f64, most_bps: Option<f64>) -> PyResult<u32> {
        let mut settings = StreamSettings::video(ssrc);
        settings.retransmission = retransmission.then(RepairSettings::default);
        settings.least = rate("least_bps", least_bps)?;
        settings.most = most_bps.map_or(Ok(Rate::MAX), |most| rate("most_bps", most))?;
        self.add(settings)
    }

    fn add_parity(&self, ssrc: u32, rate_bps: f64) -> PyResult<u32> {
        self.add(StreamSettings::parity(ssrc, rate("rate_bps", rate_bps)?))
    }

    fn encoder(&self, now_s: Seconds, stream: u32) -> PyResult<PyEncoderTarget> {
        let stream = self.stream(stream)?;
        let target = locked(&self.sender).encoder(now_s.time(), stream);
        Ok(PyEncoderTarget { rate_bps: target.rate.as_bps_f64(), skip: target.skip, key_frame: target.key_frame })
    }

    fn frame(&self, now_s: Seconds, stream: u32, role: &str) -> PyResult<bool> {
        let role = match role {
            "key" => FrameRole::Key,
            "reference" => FrameRole::Reference,
            "disposable" => FrameRole::Disposable,
            other => {
                let remedy = "give \"key\", \"reference\" or \"disposable\"";
                return Err(wrong("role", format!("{other:?} is none"), remedy));
            }
        };
        let stream = self.stream(stream)?;
        Ok(locked(&self.sender).frame(now_s.time(), stream, role))
    }

    #[pyo3(signature = (now_s, stream, id, size_bytes, seq, *, first = true, last = true))]
    #[allow(clippy::too_many_arguments, reason = "they have names in Python")]
    fn push(
        &self,
        now_s: Seconds,
        stream: u32,
        id: u64,
        size_bytes: u64,
        seq: u16,
        first: bool,
        last: bool,
    ) -> PyResult<bool> {
        let stream = self.stream(stream)?;
        let packet = MediaPacket { id, size: Bytes::new(size_bytes), edge: FrameEdge { first, last }, seq };
        Ok(locked(&self.sender).push(now_s.time(), stream, &packet))
    }

    fn poll(&self, now_s: Seconds) -> Vec<PyDeparture> {
        let (mut sent, mut sender) = (Vec::new(), locked(&self.sender));
        loop {
            match sender.poll(now_s.time()) {
                Output::Send(left) => sent.push(PyDeparture {
                    stream: left.stream.0,
                    id: left.id,
                    seq: left.seq,
                    number: left.number,
                    kind: stream_name(left.kind),
                    size_bytes: left.size.get(),
                }),
                // Store the dropped packet until `take_dropped` returns it.
                Output::Dropped(stream, id) => locked(&self.dropped).push((stream.0, id)),
                Output::Wait(wake) => {
                    // Store the time of the next wake-up, which `wake_s` returns.
                    *locked(&self.wake) = wake.map(|wake| wake.at);
                    return sent;
                }
            }
        }
    }

    #[getter]
    fn wake_s(&self) -> Option<f64> {
        locked(&self.wake).map(not_before)
    }

    fn take_dropped(&self) -> Vec<(u32, u64)> {
        std::mem::take(&mut *locked(&self.dropped))
    }

    fn on_rtcp(&self, now_s: Seconds, datagram: &[u8]) -> bool {
        locked(&self.sender).on_rtcp(now_s.time(), datagram).is_ok()
    }

    fn feedback(&self, now_s: Seconds, fates: Vec<Fate>) {
        locked(&self.sender).feedback(now_s.time(), results(fates));
    }

    fn resend(&self, now_s: Seconds, stream: u32, seq: u16) -> PyResult<bool> {
        let stream = self.stream(stream)?;
        Ok(locked(&self.sender).resend(now_s.time(), stream, seq))
    }

    fn request_key_frame(&self, stream: u32) -> PyResult<()> {
        let stream = self.stream(stream)?;
        locked(&self.sender).request_key_frame(stream);
        Ok(())
    }

    #[pyo3(signature = (number, *, transport = None, rtp = None, own = None))]
    fn sent_as(&self, number: u64, transport: Option<u16>, rtp: Option<(u32, u16)>, own: Option<u64>) -> PyResult<()> {
        locked(&self.sender).sent_as(number, name_of(transport, rtp, own)?);
        Ok(())
    }

    #[pyo3(signature = (*, transport = None, rtp = None, own = None))]
    fn number(&self, transport: Option<u16>, rtp: Option<(u32, u16)>, own: Option<u64>) -> PyResult<Option<u64>> {
        Ok(locked(&self.sender).number(name_of(transport, rtp, own)?))
    }

    fn forget(&self, number: u64) {
        locked(&self.sender).forget(number);
    }

    fn __repr__(&self) -> String {
        let sender = locked(&self.sender);
        let decision = PyDecision::of(sender.decision(), self.packet);
        format!("MediaSender(backlog_bytes={}, {})", sender.backlog().bytes.get(), decision.__repr__())
    }

    #[getter]
    fn decision(&self) -> PyDecision {
        PyDecision::of(locked(&self.sender).decision(), self.packet)
    }

    #[getter]
    fn backlog_bytes(&self) -> u64 {
        locked(&self.sender).backlog().bytes.get()
    }

    #[getter]
    fn skipped_frames(&self) -> u64 {
        locked(&self.sender).backlog().skipped
    }

    #[getter]
    fn retransmissions(&self) -> u64 {
        locked(&self.sender).repairs().packets
    }
}

/// The receiver's side of transport-wide feedback. It records arrivals and creates the feedback.
#[pyclass(frozen, name = "TransportFeedbackRecorder", module = "steadycast._core")]
pub(crate) struct PyTransportFeedbackRecorder(Mutex<TransportFeedbackRecorder>);

#[pymethods]
impl PyTransportFeedbackRecorder {
    #[new]
    fn new(ssrc: u32, bandwidth_bps: f64) -> PyResult<Self> {
        let bandwidth = rate("bandwidth_bps", bandwidth_bps)?;
        Ok(Self(Mutex::new(TransportFeedbackRecorder::new(ssrc, bandwidth))))
    }

    #[pyo3(signature = (now_s, ssrc, number, size_bytes, *, last = false))]
    fn on_packet(&self, now_s: Seconds, ssrc: u32, number: u16, size_bytes: u64, last: bool) {
        locked(&self.0).on_packet(now_s.time(), ssrc, number, Bytes::new(size_bytes), last);
    }

    #[getter]
    fn due_s(&self) -> Option<f64> {
        locked(&self.0).due().map(not_before)
    }

    fn report(&self, now_s: Seconds) -> Vec<Vec<u8>> {
        locked(&self.0).report(now_s.time())
    }

    fn __repr__(&self) -> String {
        let due = locked(&self.0).due();
        due.map_or("TransportFeedbackRecorder(nothing to report)".into(), |due| {
            format!("TransportFeedbackRecorder(due_s={:.3})", due.as_secs_f64())
        })
    }
}
