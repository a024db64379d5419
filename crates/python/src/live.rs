use crate::error::wrong;
use crate::locked;
use crate::simulation::{columns, frame_kind, ladder, scale};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use steadycast_live::sdp::{self, Description};
use steadycast_live::{
    AudioQueue, Broadcast, Destination, EncodedFrame, EncoderQueue, FlowKeys, FrameQueue, Handle, Interface, LiveError,
    LiveRecord, LocalOffer, MasterKey, MediaPort, Medium, NextBroadcastJob, NextJob, PairOptions, Publisher,
    ReceiveOptions, ReceivedAudioQueue, Receiving, RungData, SendOptions, Sending, SharedRungs, Steering,
};
use steadycast_media::Ladder;
use steadycast_session::UnusedReason;
use steadycast_units::{Bytes, Rate, Span};
use steadycast_wire::payload::PayloadFormat;

fn refused(error: LiveError) -> PyErr {
    wrong(error.place, error.problem, error.remedy)
}

pub(crate) fn want<'py, T>(from: &Bound<'py, PyDict>, key: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
{
    let value = from.get_item(key)?.ok_or_else(|| PyKeyError::new_err(key.to_owned()))?;
    value.extract().map_err(Into::into)
}

fn pair(from: &Bound<'_, PyDict>) -> PyResult<PairOptions> {
    let interface: Option<String> = want(from, "interface")?;
    let source: Option<String> = want(from, "source")?;
    Ok(PairOptions {
        // Pass any text here. If it is not an address, it is taken as the name of an interface.
        interface: interface.and_then(|text| text.parse::<Interface>().ok()),
        ttl: want(from, "ttl")?,
        source: source.map(|text| address(&text)).transpose()?,
        mux: want(from, "mux")?,
        local: want(from, "local")?,
        // Only a session description can specify that RTCP uses another port than the port after the media port.
        reports: None,
    })
}

fn address(text: &str) -> PyResult<IpAddr> {
    text.parse().map_err(|_| wrong(text, "not an address", "write it as 10.0.0.1 or fd00::1"))
}

fn socket(text: &str) -> PyResult<SocketAddr> {
    let remedy = "write it as 10.0.0.1:5004, [fd00::1]:5004 or host:5004";
    text.parse().map_err(|_| wrong(text, "not ADDRESS:PORT", remedy))
}

/// Returns a browser's media port, the address at which the browser reaches it, and further addresses.
fn media(options: &Bound<'_, PyDict>) -> PyResult<(Arc<MediaPort>, IpAddr, Vec<IpAddr>)> {
    let (port, addresses): (PyRef<'_, PyMediaPort>, Vec<String>) = want(options, "media")?;
    let mut others = addresses.iter().map(|text| address(text)).collect::<PyResult<Vec<_>>>()?.into_iter();
    let Some(address) = others.next() else {
        return Err(wrong("media", "there is no address for media", "give one that the browser reaches"));
    };
    Ok((Arc::clone(&port.0), address, others.collect()))
}

/// Reads the destination. For a WHIP server, it is the local address towards the server. For a browser, it is the offer
/// and the media port. For a receiver, it is the receiver's address.
fn to(options: &Bound<'_, PyDict>) -> PyResult<Destination> {
    if options.contains("server")? {
        return Ok(Destination::Server(address(&want::<String>(options, "server")?)?));
    }
    if !options.contains("offer")? {
        return Ok(Destination::Address(socket(&want::<String>(options, "to")?)?));
    }
    let (port, address, others) = media(options)?;
    Ok(Destination::Browser { offer: want(options, "offer")?, port, address, others })
}

/// A UDP port for the media of all browsers. `addresses` are addresses of this machine, with at most one IPv4 and one
/// IPv6 address.
#[pyclass(frozen, name = "MediaPort", module = "steadycast._core")]
pub(crate) struct PyMediaPort(Arc<MediaPort>);

#[pymethods]
impl PyMediaPort {
    /// Opens the port. Raises UserError.
    #[new]
    fn new(addresses: Vec<String>, port: u16) -> PyResult<Self> {
        let addresses = addresses.iter().map(|text| address(text)).collect::<PyResult<Vec<_>>>()?;
        Ok(Self(Arc::new(MediaPort::open(&addresses, port).map_err(refused)?)))
    }

    /// The number of the port.
    #[getter]
    fn port(&self) -> u16 {
        self.0.port()
    }

    fn __repr__(&self) -> String {
        format!("MediaPort(port={})", self.0.port())
    }

    /// Returns the number of datagrams that were not delivered to any session, by reason.
    fn dropped(&self) -> BTreeMap<&'static str, u64> {
        self.0.dropped().into_iter().map(|(reason, count)| (reason.name(), count)).collect()
    }
}

fn format(codec: &str) -> PyResult<PayloadFormat> {
    PayloadFormat::of_codec(codec).ok_or_else(|| {
        let all = PayloadFormat::ALL.map(PayloadFormat::codec).join(", ");
        wrong("codec", format!("there is no {codec}"), format!("take one of {all}"))
    })
}

/// Returns the names of all reasons for which a receiver discards a packet.
#[pyfunction]
pub(crate) fn unused_reasons() -> Vec<&'static str> {
    UnusedReason::ALL.map(UnusedReason::name).to_vec()
}

/// Returns whether a decoder can start with this frame.
#[pyfunction]
pub(crate) fn is_key_frame(codec: &str, frame: &[u8]) -> PyResult<bool> {
    Ok(steadycast_wire::payload::is_key_frame(format(codec)?, frame))
}

fn unreadable(error: serde_json::Error) -> PyErr {
    wrong("flow", format!("can't be read ({error})"), "give an object of a flow's keys")
}

/// Returns the master key from the text of a key file.
pub(crate) fn master(text: Option<&str>) -> PyResult<Option<MasterKey>> {
    let remedy = "make one with: openssl rand -base64 30 > key";
    let none = || wrong("--key-file", "it does not hold 30 bytes in base64", remedy);
    text.map(|text| MasterKey::read(text).ok_or_else(none)).transpose()
}

fn steering(from: &Bound<'_, PyDict>) -> PyResult<Steering> {
    Ok(Steering {
        fps: want(from, "fps")?,
        gop: want(from, "gop")?,
        quantizers: want(from, "quantizers")?,
        scale: scale(want(from, "doubling")?),
        sizes: want(from, "sizes")?,
        own_pace: want(from, "own_pace")?,
        // The session or the broadcast sets the value when it starts.
        overhead: 0,
    })
}

/// A live source that is encoded once for all its viewers. `options` is a dict (see `steadycast.live.source`).
#[pyclass(frozen, name = "Broadcast", module = "steadycast._core")]
pub(crate) struct PyBroadcast(Broadcast);

#[pymethods]
impl PyBroadcast {
    #[new]
    fn new(options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let rate = |key: &str| want::<u64>(options, key).map(Rate::bps);
        let (rungs, top, bottom) = (want(options, "rungs")?, rate("top_bps")?, rate("bottom_bps")?);
        Ok(Self(Broadcast::new(steering(options)?, rungs, top, bottom)))
    }

    fn __repr__(&self) -> String {
        format!("Broadcast(rungs={})", self.0.status().rungs.len())
    }

    /// Waits up to `patience` seconds for the next picture that is due. Returns a tuple: the number of the picture,
    /// whether it starts a group of pictures, and a list with (quantizer, index of the size) for each rung, the finest
    /// rung first. Returns `None` if no picture is due yet, and `False` if the broadcast has ended.
    fn next_job<'py>(&self, py: Python<'py>, patience: f64) -> PyResult<Bound<'py, PyAny>> {
        let patience = seconds(patience);
        match py.detach(|| self.0.next_job(patience)) {
            NextBroadcastJob::Job(job) => (job.picture, job.first, job.rungs).into_pyobject(py).map(Bound::into_any),
            NextBroadcastJob::Nothing => Ok(py.None().into_bound(py)),
            NextBroadcastJob::Closed => Ok(false.into_pyobject(py)?.to_owned().into_any()),
        }
    }

    /// Adds the access units of picture number `picture`, the finest rung first. The kind of each access unit is 0, 1
    /// or 2 for I, P and B. If the source has its own pace, `sampled_s` is the time of the picture, in seconds since
    /// the source's first picture.
    #[pyo3(signature = (picture, units, sampled_s=None))]
    fn push(&self, picture: u32, units: Vec<(u8, Bound<'_, PyBytes>)>, sampled_s: Option<f64>) {
        let units = units.into_iter().map(|(kind, data)| (frame_kind(kind), data.as_bytes().to_vec())).collect();
        self.0.push(picture, sampled_s.map(Span::from_secs_f64), units);
    }

    /// Adds an Opus packet for all viewers. Waits up to `patience` seconds until the packet is due. Returns whether it
    /// was due, or `None` if the broadcast has ended. See `Sender.push_audio` for the arguments.
    fn push_audio(&self, py: Python<'_>, at_s: f64, begins: bool, data: Vec<u8>, patience: f64) -> Option<bool> {
        py.detach(|| self.0.push_audio(Span::from_secs_f64(at_s), begins, &data, seconds(patience)))
    }

    /// The highest audio loss that a viewer reports, as a share of the audio packets from 0 to 1.
    #[getter]
    fn audio_loss(&self) -> f64 {
        self.0.audio_loss()
    }

    /// Adds `pictures` to the number of pictures that the source skipped.
    fn passed(&self, pictures: u32) {
        self.0.passed(pictures);
    }

    /// Announces that the source has no more pictures. Blocks until the time of the last picture is over.
    fn end(&self, py: Python<'_>) {
        py.detach(|| self.0.end());
    }

    /// Ends the broadcast.
    fn close(&self) {
        self.0.close();
    }

    /// Waits up to `patience` seconds for the end of the broadcast. Returns whether it has ended.
    fn wait(&self, py: Python<'_>, patience: f64) -> bool {
        py.detach(|| self.0.wait(seconds(patience)))
    }

    /// Returns three values. The first is a list with the target rate in bit/s, the width and the height of each rung.
    /// The second is the number of rungs that were given up because the encoders fell behind. The third is the number
    /// of pictures that were left out.
    fn status(&self) -> (Vec<(f64, u32, u32)>, u32, u64) {
        let status = self.0.status();
        let rungs = status.rungs.into_iter().map(|(rate, (width, height))| (rate.as_bps_f64(), width, height));
        (rungs.collect(), status.given_up, status.left_out)
    }
}

/// A ladder whose pictures were encoded in advance. Any number of senders can share it.
#[pyclass(frozen, name = "EncodedLadder", module = "steadycast._core")]
pub(crate) struct PyEncodedLadder {
    ladder: Arc<Ladder>,
    rungs: SharedRungs,
}

#[pymethods]
impl PyEncodedLadder {
    /// Copies a ladder. `table` is the dict of frame sizes (see `steadycast.media.ladder`). Each rung is a tuple of
    /// four values: the quantizer, the bytes of all access units, the offsets, and the decoder configuration. The
    /// offsets are the starts of all access units in the bytes, followed by the end of the last access unit.
    #[new]
    fn new(table: &Bound<'_, PyDict>, rungs: &Bound<'_, PyList>) -> PyResult<Self> {
        let py = table.py();
        let mut copied = BTreeMap::new();
        for rung in rungs {
            let (q, data, offsets, head): (u8, Bound<'_, PyAny>, Bound<'_, PyAny>, Vec<u8>) = rung.extract()?;
            // Copy the buffer, because sessions outlive this call and Python may change the buffer.
            let data = PyBuffer::<u8>::get(&data)?.to_vec(py)?;
            let offsets = PyBuffer::<u64>::get(&offsets)?.to_vec(py)?;
            copied.insert(q, RungData { data, offsets, head });
        }
        Ok(Self { ladder: Arc::new(ladder(table)?), rungs: Arc::new(copied) })
    }

    fn __repr__(&self) -> String {
        format!("EncodedLadder(rungs={})", self.rungs.len())
    }
}

fn medium(from: &Bound<'_, PyDict>) -> PyResult<Medium> {
    let kind: String = want(from, "kind")?;
    if kind == "greedy" {
        return Ok(Medium::Greedy);
    }
    let codec: String = want(from, "codec")?;
    let (format, config) = (format(&codec)?, want::<Vec<u8>>(from, "config")?);
    if kind == "encoder" {
        return Ok(Medium::Encoder { format, config, steering: steering(from)? });
    }
    if kind == "broadcast" {
        let broadcast = want::<PyRef<'_, PyBroadcast>>(from, "broadcast")?.0.clone();
        return Ok(Medium::Broadcast { format, config, broadcast });
    }
    let encoded = want::<PyRef<'_, PyEncodedLadder>>(from, "ladder")?;
    let (ladder, rungs) = (Arc::clone(&encoded.ladder), Arc::clone(&encoded.rungs));
    Ok(Medium::Ladder { format, config, ladder, rungs, frames: want(from, "frames")? })
}

/// Maximum wait for the status of a session. A session answers immediately unless it is about to end.
const STATUS_TIMEOUT: Duration = Duration::from_millis(250);

fn seconds(patience: f64) -> Duration {
    // Do not wait if the number is negative or NaN.
    Duration::try_from_secs_f64(patience).unwrap_or_default().min(Duration::from_secs(60))
}

/// Returns the Python spelling of a boolean.
const fn python(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// The state that live senders and live receivers have in common.
#[pyclass(frozen, subclass, name = "Session", module = "steadycast._core")]
pub(crate) struct PySession {
    kind: &'static str,
    handle: Handle,
}

#[pymethods]
impl PySession {
    fn __repr__(&self) -> String {
        format!("{}(done={})", self.kind, python(self.handle.done()))
    }

    /// Returns the current status of the session as JSON. Returns `null` if there is no status yet, because the session
    /// has not begun.
    fn status(&self, py: Python<'_>) -> String {
        py.detach(|| self.handle.status(STATUS_TIMEOUT)).to_string()
    }

    /// Whether the session has ended.
    #[getter]
    fn done(&self) -> bool {
        self.handle.done()
    }

    /// Waits up to `patience` seconds until the session ends. Returns whether it has ended.
    fn wait(&self, py: Python<'_>, patience: f64) -> bool {
        // Let other Python threads run during the wait.
        py.detach(|| self.handle.wait(seconds(patience)))
    }

    /// Makes the session send BYE and end.
    fn stop(&self) {
        self.handle.stop();
    }

    /// Waits until the session ends, and returns its record.
    fn finish(&self, py: Python<'_>) -> PyResult<PyRecord> {
        let record = py.detach(|| self.handle.finish()).map_err(refused)?;
        Ok(PyRecord(Mutex::new(record)))
    }
}

fn send_options(options: &Bound<'_, PyDict>) -> PyResult<SendOptions> {
    let flow = serde_json::from_str(&want::<String>(options, "flow")?).map_err(unreadable)?;
    Ok(SendOptions {
        flow: FlowKeys::new(flow),
        to: to(options)?,
        pair: pair(options)?,
        cname: want(options, "cname")?,
        buffer: want::<Option<u64>>(options, "buffer_bytes")?.map(Bytes::new),
        consume: want::<Option<u64>>(options, "consume_bps")?.map(Rate::bps),
        key: master(want::<Option<String>>(options, "key")?.as_deref())?,
    })
}

/// Checks the arguments of a `Sender` without opening any socket. Raises UserError.
#[pyfunction]
pub(crate) fn check_sender(options: &Bound<'_, PyDict>, medium_: &Bound<'_, PyDict>) -> PyResult<()> {
    Sending::check(send_options(options)?, &medium(medium_)?).map_err(refused)
}

/// The offer of a sender that publishes to a server. `options` and `medium` are dicts (see `steadycast.live.send`).
#[pyclass(frozen, name = "Offer", module = "steadycast._core")]
pub(crate) struct PyOffer {
    /// The offer. `None` once `accept` has been called.
    offer: Mutex<Option<LocalOffer>>,
    sdp: String,
}

#[pymethods]
impl PyOffer {
    /// Opens a socket and creates the offer. Raises UserError.
    #[new]
    fn new(options: &Bound<'_, PyDict>, medium_: &Bound<'_, PyDict>) -> PyResult<Self> {
        let offer = LocalOffer::new(send_options(options)?, &medium(medium_)?).map_err(refused)?;
        Ok(Self { sdp: offer.sdp.clone(), offer: Mutex::new(Some(offer)) })
    }

    /// The offer as a session description.
    #[getter]
    fn sdp(&self) -> &str {
        &self.sdp
    }

    fn __repr__(&self) -> String {
        format!("Offer({} bytes)", self.sdp.len())
    }

    /// Starts sending, with the parameters in the server's answer. Raises UserError.
    fn accept(&self, py: Python<'_>, answer: &str, medium_: &Bound<'_, PyDict>) -> PyResult<Py<PySender>> {
        let used = || wrong("offer", "it has an answer already", "make another one");
        let offer = locked(&self.offer).take().ok_or_else(used)?;
        let sending = offer.start(answer, medium(medium_)?).map_err(refused)?;
        Py::new(py, PySender::of(sending))
    }
}

/// A live sender. `options` and `medium` are dicts (see `steadycast.live.send`).
#[pyclass(frozen, extends = PySession, name = "Sender", module = "steadycast._core")]
pub(crate) struct PySender {
    sending: Sending,
    encoder_queue: Option<EncoderQueue>,
    audio_queue: Option<AudioQueue>,
}

impl PySender {
    fn of(sending: Sending) -> PyClassInitializer<Self> {
        let session = PySession { kind: "Sender", handle: sending.handle.clone() };
        PyClassInitializer::from(session).add_subclass(Self {
            encoder_queue: sending.encoder_queue.clone(),
            audio_queue: sending.audio_queue.clone(),
            sending,
        })
    }
}

#[pymethods]
impl PySender {
    /// Starts sending. Raises UserError.
    #[new]
    fn new(options: &Bound<'_, PyDict>, medium_: &Bound<'_, PyDict>) -> PyResult<PyClassInitializer<Self>> {
        let options = send_options(options)?;
        Ok(Self::of(Sending::start(options, medium(medium_)?).map_err(refused)?))
    }

    /// The session description. For a browser it is the SDP answer, and for a server the SDP offer.
    #[getter]
    fn sdp(&self) -> &str {
        &self.sending.sdp
    }

    /// Ignores all further reports of the receiver with this name.
    fn exclude(&self, name: &str) {
        self.sending.exclude(name);
    }

    /// Accepts the reports of all receivers again.
    fn admit_all(&self) {
        self.sending.admit_all();
    }

    /// Sets the lower and the upper limit of the rate in bit/s.
    #[pyo3(signature = (floor=None, cap=None))]
    fn limit(&self, floor: Option<u64>, cap: Option<u64>) {
        self.sending.limit(floor.map(Rate::bps), cap.map(Rate::bps));
    }

    /// The lower limit of the rate in bit/s. `None` if it can't be changed.
    #[getter]
    fn floor(&self) -> Option<u64> {
        self.sending.floor().map(Rate::as_bps)
    }

    /// Waits up to `patience` seconds for the encoder's next job. Returns a tuple: the number of the picture, whether
    /// it starts a group of pictures, the quantizer, and the index of its size. Returns `None` if there is no job yet,
    /// and `False` if the session has ended.
    fn next_job<'py>(&self, py: Python<'py>, patience: f64) -> PyResult<Bound<'py, PyAny>> {
        let patience = seconds(patience);
        let next = py.detach(|| {
            // A session that has no encoder never has a job.
            self.encoder_queue.as_ref().map_or(NextJob::Closed, |encoder_queue| encoder_queue.next_job(patience))
        });
        match next {
            NextJob::Job(job) => {
                (job.picture, job.first, job.quantizer, job.size).into_pyobject(py).map(Bound::into_any)
            }
            NextJob::Nothing => Ok(py.None().into_bound(py)),
            NextJob::Closed => Ok(false.into_pyobject(py)?.to_owned().into_any()),
        }
    }

    /// Adds an access unit that the encoder produced for picture number `picture`. `kind` is 0, 1 or 2 for I, P and B.
    fn push(&self, picture: u32, kind: u8, quantizer: u8, data: Vec<u8>) {
        if let Some(encoder_queue) = &self.encoder_queue {
            encoder_queue.push(EncodedFrame { picture, kind: frame_kind(kind), quantizer, bytes: data });
        }
    }

    /// Adds an Opus packet. `at_s` is the time at which it begins, in seconds since the first picture. `begins` states
    /// whether a silence precedes the packet. Waits up to `patience` seconds for room in the queue. Returns whether
    /// there was room, or `None` if the session has ended or has no audio.
    fn push_audio(&self, py: Python<'_>, at_s: f64, begins: bool, data: Vec<u8>, patience: f64) -> Option<bool> {
        let queue = self.audio_queue.as_ref()?;
        py.detach(|| queue.push(Span::from_secs_f64(at_s), begins, &data, seconds(patience)))
    }

    /// Whether the session sends audio.
    #[getter]
    fn has_audio(&self) -> bool {
        self.audio_queue.is_some()
    }

    /// The audio loss that receivers report, as a share of the audio packets from 0 to 1.
    #[getter]
    fn audio_loss(&self) -> f64 {
        self.audio_queue.as_ref().map_or(0.0, AudioQueue::loss)
    }

    /// Adds `pictures` to the number of pictures that the source skipped.
    fn passed(&self, pictures: u32) {
        if let Some(encoder_queue) = &self.encoder_queue {
            encoder_queue.passed(pictures);
        }
    }

    /// Announces that the source has no more pictures.
    fn end(&self) {
        if let Some(encoder_queue) = &self.encoder_queue {
            encoder_queue.end();
        }
    }
}

/// Valid widths and heights in pixels. An implausible description could otherwise make the receiver allocate too much
/// memory.
const SIDES: std::ops::RangeInclusive<u32> = 16..=16_384;

/// A live receiver. `options` is a dict (see `steadycast.live.receive`). If `options` contains an `offer`, a browser
/// publishes to the receiver.
#[pyclass(frozen, extends = PySession, name = "Receiver", module = "steadycast._core")]
pub(crate) struct PyReceiver {
    frame_queue: FrameQueue,
    audio_queue: ReceivedAudioQueue,
    description: Description,
    offered: Option<String>,
    other_clock: Option<(String, u8, String)>,
    receiving: Receiving,
}

impl PyReceiver {
    fn of(
        receiving: Receiving,
        offered: Option<String>,
        other_clock: Option<(String, u8, String)>,
    ) -> (Self, PySession) {
        let session = PySession { kind: "Receiver", handle: receiving.handle.clone() };
        let (frame_queue, audio_queue) = (receiving.frame_queue.clone(), receiving.audio_queue.clone());
        let description = receiving.description.clone();
        (Self { frame_queue, audio_queue, description, offered, other_clock, receiving }, session)
    }
}

#[pymethods]
impl PyReceiver {
    /// Starts receiving. Raises UserError.
    #[new]
    fn new(options: &Bound<'_, PyDict>) -> PyResult<PyClassInitializer<Self>> {
        // A browser that publishes needs no session description, because its offer has the parameters.
        if options.contains("offer")? {
            let (port, address, others) = media(options)?;
            let (offer, audio) = (want(options, "offer")?, want(options, "audio")?);
            let publisher = Publisher { offer, port, address, others, audio };
            let receiving = Receiving::from_browser(&publisher, want(options, "cname")?).map_err(refused)?;
            let (own, session) = Self::of(receiving, None, None);
            return Ok(PyClassInitializer::from(session).add_subclass(own));
        }
        let text: Option<String> = want(options, "sdp")?;
        let offered = text.as_ref().map(|text| sdp::offered(text.as_bytes()));
        let other_clock = text.as_ref().and_then(|text| sdp::other_clock(text.as_bytes()));
        let description = match text {
            Some(text) => {
                let place: String = want(options, "at")?;
                Description::read(text.as_bytes()).map_err(|e| wrong(place, e.problem, e.remedy))?
            }
            None => {
                let codec: Option<String> = want(options, "codec")?;
                let format = codec.map(|c| format(&c)).transpose()?;
                Description::bare(socket(&want::<String>(options, "at")?)?, format)
            }
        };
        let options = ReceiveOptions {
            description: description.clone(),
            offered: offered.clone(),
            pair: pair(options)?,
            key: master(want::<Option<String>>(options, "key")?.as_deref())?,
            cname: want(options, "cname")?,
            buffer: want::<Option<u64>>(options, "buffer_bytes")?.map(Bytes::new),
            consume: want::<Option<u64>>(options, "consume_bps")?.map(Rate::bps),
            give_up: want::<Option<f64>>(options, "give_up_s")?.map(Span::from_secs_f64),
            latency: want::<Option<f64>>(options, "latency_s")?.map(Span::from_secs_f64),
        };
        if description.secure && options.key.is_none() {
            let problem = "the stream is encrypted, and no key is given";
            return Err(wrong("--key-file", problem, "ask its sender for the key"));
        }
        let receiving = Receiving::start(options).map_err(refused)?;
        let (own, session) = Self::of(receiving, offered.map(|all| all.join(", ")), other_clock);
        Ok(PyClassInitializer::from(session).add_subclass(own))
    }

    /// The SDP answer for a browser that publishes. `None` if no browser publishes.
    #[getter]
    fn answer(&self) -> Option<&str> {
        self.receiving.answer.as_deref()
    }

    /// The name of the codec. `None` if it is not known.
    #[getter]
    fn codec(&self) -> Option<&'static str> {
        self.description.format.map(PayloadFormat::codec)
    }

    /// The payload types in the session description. `None` if there is no session description.
    #[getter]
    fn offered(&self) -> Option<&str> {
        self.offered.as_deref()
    }

    /// An offered format whose clock rate is not 90 kHz: the encoding, the payload type and the clock rate in Hz.
    /// `None` if there is no such format.
    #[getter]
    fn other_clock(&self) -> Option<(String, u8, String)> {
        self.other_clock.clone()
    }

    /// The codec configuration (extradata) that a decoder needs before the first frame.
    #[getter]
    fn config<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.description.config)
    }

    /// The address at which media is received, as text. It is a local address or the address of a group.
    #[getter]
    fn address(&self) -> String {
        self.description.address.to_string()
    }

    /// The display width and height in pixels. `None` if the sender has not announced them.
    #[getter]
    fn size(&self) -> Option<(u32, u32)> {
        let (width, height) = self.description.private_value("size")?.split_once('x')?;
        let side = |text: &str| text.parse().ok().filter(|side| SIDES.contains(side));
        Some((side(width)?, side(height)?))
    }

    /// The name of the controller. `None` if the sender has not announced it.
    #[getter]
    fn controller(&self) -> Option<String> {
        self.description.private_value("controller").map(str::to_owned)
    }

    /// Whether the session description has an audio stream that this program supports.
    #[getter]
    fn has_audio(&self) -> bool {
        self.description.audio.is_some()
    }

    /// Starts to queue arriving frames and audio packets. The methods `frames` and `audio` return them.
    fn want_frames(&self) {
        self.frame_queue.want();
        self.audio_queue.want();
    }

    /// Returns the audio packets that have arrived since the last call, in order. Each is a tuple: the time in ticks of
    /// the frames' clock, the number of packets missing before this packet, and the bytes.
    fn audio<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for packet in self.audio_queue.take() {
            list.append((packet.ticks, packet.missing, PyBytes::new(py, &packet.bytes)))?;
        }
        Ok(list)
    }

    /// Waits up to `patience` seconds for frames. Returns a list of tuples: ticks, damaged, whole, arrival in seconds,
    /// bytes. The list is empty if no frame arrived. Returns `None` if the session has ended.
    fn frames<'py>(&self, py: Python<'py>, patience: f64) -> PyResult<Option<Bound<'py, PyList>>> {
        let patience = seconds(patience);
        let Some(frames) = py.detach(|| self.frame_queue.take(patience)) else { return Ok(None) };
        let list = PyList::empty(py);
        for f in frames {
            list.append((f.ticks, f.damaged, f.whole, f.last.as_secs_f64(), PyBytes::new(py, &f.bytes)))?;
        }
        Ok(Some(list))
    }
}

/// The record of a live session.
#[pyclass(frozen, name = "LiveRecord", module = "steadycast._core")]
pub(crate) struct PyRecord(Mutex<LiveRecord>);

#[pymethods]
impl PyRecord {
    fn __repr__(&self) -> String {
        let record = locked(&self.0);
        format!("LiveRecord(end_s={}, silent={})", record.now.as_secs_f64(), python(record.silent()))
    }

    /// Returns the content of summary.json. Figures that are measured on decoded pictures, such as PSNR, are left out.
    fn summary(&self, complete: bool) -> String {
        locked(&self.0).summary(complete).to_string()
    }

    /// Whether this is the record of a receiver at which no packet arrived.
    #[getter]
    fn silent(&self) -> bool {
        locked(&self.0).silent()
    }

    /// A description of the session as a scenario, in TOML.
    #[getter]
    fn toml(&self) -> String {
        locked(&self.0).toml().to_owned()
    }

    /// Returns a table of the record. See `Simulation.table`.
    fn table<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        columns(py, locked(&self.0).table(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?)
    }
}
