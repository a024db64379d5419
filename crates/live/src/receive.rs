//! The session of a live receiver, which runs in a separate thread.

use crate::audio::AudioIntake;
use crate::browser::{BrowserConnection, NegotiatedOffer};
use crate::entropy;
use crate::flow::{self, FlowKeys, SINK};
use crate::handle::Shared;
use crate::jitter_buffer::REORDER_WAIT;
use crate::live_record::STEP;
use crate::sdp::{Description, PacketFeedback};
use crate::{
    Clock, Consumer, Discard, FrameCounts, FrameQueue, Handle, JitterBuffer, LiveError, LiveRecord, Loop, MasterKey,
    Pair, PairOptions, Publisher, ReceivedAudioQueue, ReceivedSymbols, Reports, SocketSink, Srtp, TempStore, Unused,
};
use serde_json::{Map, Value, json};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use steadycast_control::Mode;
use steadycast_endpoints::{
    Agent, HostContext, Intake, MakeReceiver, RemotePeer, StoredRows, Supply, VideoPlan, VideoSink,
};
use steadycast_media::{Consume, PlayBuffer};
use steadycast_record::receiver;
use steadycast_scenario::Loaded;
use steadycast_session::{ParitySettings, Profile, Receiver, RepairSettings, RtcpSettings, UnusedReason};
use steadycast_units::{Bytes, Rate, Span, Time, counted};
use steadycast_wire::rtp::PayloadTypes;

/// Options of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiveOptions {
    /// The session description.
    pub description: Description,
    /// Payload types and encodings in the session description ([`crate::sdp::offered`]). `None` if only an address was
    /// given.
    pub offered: Option<Vec<String>>,
    /// Options of the sockets.
    pub pair: PairOptions,
    /// The SRTP master key that protects media and reports.
    pub key: Option<MasterKey>,
    /// Canonical name (CNAME).
    pub cname: String,
    /// Size of the play-out buffer. If `None`, the size in the session description is used.
    pub buffer: Option<Bytes>,
    /// Maximum time to wait for the repair of earlier packets. If `None`, it is [`LATENCY`], or less if there is no
    /// repair.
    pub latency: Option<Span>,
    /// The session ends if nothing arrives for this time, but not before five reporting intervals. If `None`, it waits
    /// for ever.
    pub give_up: Option<Span>,
    /// Rate at which the play-out buffer drains. If `None`, it drains by the media clock.
    pub consume: Option<Rate>,
}

/// How long packets wait for the repair of earlier packets, by default.
pub const LATENCY: Span = Span::millis(300);

/// Interval of regular reports to standard senders under AVPF (RFC 3550, section 6.2).
const REGULAR_REPORT_INTERVAL: Span = Span::secs(5);

/// If a player has no drain rate, it rounds media times to multiples of this step.
const PLAYOUT_STEP: Span = Span::millis(10);

/// A receiver that is running.
pub struct Receiving {
    /// Observes and stops the session. Without a stop, the session ends when the sender sends a BYE, when nothing
    /// arrives for [`ReceiveOptions::give_up`], or when a browser's connection ends.
    pub handle: Handle,
    /// Queue of the frames that were received.
    pub frame_queue: FrameQueue,
    /// Queue of the audio packets that were received.
    pub audio_queue: ReceivedAudioQueue,
    /// Session description of the media that is received.
    pub description: Description,
    /// The answer to a browser that publishes.
    pub answer: Option<String>,
}

/// The offer of a browser that publishes, its sockets on the shared media port, and the SDP answer.
type Published = (NegotiatedOffer, Pair, String);

/// What a receiver needs from the session description.
struct DescribedSession {
    payload_types: Option<PayloadTypes>,
    named: Option<u32>,
    repair: Option<RepairSettings>,
    parity: Option<ParitySettings>,
    audio: Option<u8>,
    /// Maximum time that packets wait for earlier packets.
    latency: Span,
}

impl DescribedSession {
    fn of(description: &Description, latency: Option<Span>) -> Self {
        // Ignore retransmissions in a group. Its members lose different packets, so no sender retransmits.
        let again = description.repair.as_ref().filter(|_| !description.address.ip().is_multicast());
        let covered = description.parity.as_ref();
        let comes_again = again.is_some() || covered.is_some();
        let latency = latency.unwrap_or(if comes_again { LATENCY } else { REORDER_WAIT });
        // Without a format and private values, nothing but an address is known.
        let described = description.format.is_some() || !description.ours.is_empty();
        Self {
            payload_types: described.then(|| description.payload_types()),
            named: description.sources().0.first().copied(),
            // The SSRC does not matter, because a restarted sender has new SSRCs. `Self::receiver` accepts repair from
            // any SSRC.
            repair: again.map(|again| RepairSettings {
                ssrc: again.sources.as_ref().map_or(0, |sources| sources.repair),
                payload_type: again.payload_type,
                playout: Some(latency),
            }),
            parity: covered.map(|parity| ParitySettings {
                ssrc: 0,
                payload_type: parity.payload_type,
                playout: Some(latency),
            }),
            audio: description.audio.as_ref().map(|audio| audio.payload_type),
            latency,
        }
    }

    /// Returns a function that creates the receiver. It is called at each join.
    fn receiver(&self, plan: VideoPlan) -> MakeReceiver {
        let Self { payload_types, named, repair, parity, audio, .. } = *self;
        Box::new(move |now, times| {
            let (receiver, name) = plan.bare_receiver(SINK, now, times);
            let receiver = receiver.described(payload_types, named);
            let receiver = match repair {
                Some(repair) => receiver.with_repair_of_any_source(repair),
                None => receiver,
            };
            let chance = plan.chance(&format!("{name}.parity"));
            let receiver = match parity {
                // Report the play-out delay. If a sender offers both kinds of repair, it can then choose one that
                // arrives in time.
                Some(parity) if repair.is_some() => {
                    receiver.with_parity_of_any_source(parity, chance).telling_playout()
                }
                Some(parity) => receiver.with_parity_of_any_source(parity, chance),
                None => receiver,
            };
            let receiver = match audio {
                Some(payload_type) => receiver.with_audio(payload_type),
                None => receiver,
            };
            // Send empty reports while no media arrives, because some senders pause until they get a report. In paper
            // mode, the sender never pauses.
            if plan.mode() == Mode::Paper { receiver } else { receiver.answering() }
        })
    }
}

/// Returns the RTCP settings for a standard sender. Regular reports are about five seconds apart (RFC 3550). If `asks`,
/// NACKs and requests for key frames may be sent immediately.
fn standard(plan: RtcpSettings, asks: bool) -> RtcpSettings {
    let profile = if asks { Profile::Avpf { t_rr_interval: REGULAR_REPORT_INTERVAL } } else { Profile::Rfc3550 };
    RtcpSettings { profile, group: plan.group || !asks, summary: false, ..plan }
}

impl Receiving {
    /// Opens the sockets and starts to receive. If the address is a multicast address, joins the group.
    ///
    /// # Errors
    /// An address can't be used, or the sender's controller is unknown.
    pub fn start(options: ReceiveOptions) -> Result<Self, LiveError> {
        Self::begin(options, None)
    }

    /// Answers the offer of a browser that publishes, and starts to receive.
    ///
    /// # Errors
    /// The offer can't be answered.
    pub fn from_browser(publisher: &Publisher, cname: String) -> Result<Self, LiveError> {
        let negotiated = NegotiatedOffer::to_receive(publisher)?;
        let pair = negotiated.attach(&publisher.port, publisher.address)?;
        let local = pair.rtp().local();
        let others: Vec<SocketAddr> =
            publisher.others.iter().map(|ip| SocketAddr::new(*ip, publisher.port.port())).collect();
        // Use the NTP seconds of the start as the session number, because they are unique (RFC 8866, section 5.2).
        let answer = negotiated.receiver_answer(local, &others, Clock::start().epoch().0 >> 32);
        let options = ReceiveOptions {
            description: negotiated.description(local),
            offered: None,
            pair: PairOptions::default(),
            key: None,
            cname,
            buffer: None,
            latency: None,
            give_up: None,
            consume: None,
        };
        Self::begin(options, Some((negotiated, pair, answer)))
    }

    fn begin(options: ReceiveOptions, published: Option<Published>) -> Result<Self, LiveError> {
        let (clock, seed) = (Clock::start(), entropy::seed()?);
        let description = &options.description;
        let group = description.address.ip().is_multicast();
        let keys = FlowKeys::described(description)?;
        let own = std::slice::from_ref(&options.cname);
        // Report an error in the keys as an error in the session description, because the keys come from the
        // description.
        let loaded = keys.scenario(own, group, Span::ZERO).map_err(LiveError::of_description)?;
        let apart = RemotePeer {
            authenticated: published.is_some(),
            ..flow::remote_peer(&options.cname, clock, description.payload_type)
        };
        let place = HostContext { seed, credit: Span::ZERO, mtu: flow::MTU, apart: Some(apart) };
        let (flow, video) = (&loaded.scenario.flows[0], flow::video(&loaded)?);
        let described_session = DescribedSession::of(description, options.latency);
        let mut plan = VideoPlan::supplied(flow, video, Supply::Endless(None), place)?;
        // Use standard RTCP timing if the description contains no controller, because the sender is then a standard
        // sender.
        if description.private_value("controller").is_none() {
            plan = plan.timed(|rtcp| standard(rtcp, described_session.repair.is_some() || description.key_frames));
        }
        let (pair, reports, browser, answer) = match published {
            Some((negotiated, pair, answer)) => {
                let local = pair.rtp().local();
                (pair, Reports::Connection, Some(negotiated.connection(&clock, local)?), Some(answer))
            }
            None => (opened(&options)?, reports_of(&options), None, None),
        };
        let frame_queue = FrameQueue::default().spooled();
        let audio_queue = ReceivedAudioQueue::default();
        let mut wired = wired(&options, &described_session, plan, reports, &frame_queue);
        wired.browser = browser;
        wired.audio = described_session.audio.map(|payload_type| AudioIntake::new(payload_type, audio_queue.clone()));
        let mut driver = Loop::new(clock)?;
        let ix = driver.add(wired, pair)?;
        let shared = Arc::new(Shared::default());
        let (waker, seen) = (driver.waker(), Arc::clone(&shared));
        let description = options.description.clone();
        let mut session =
            Session { driver, ix, shared, frame_queue: frame_queue.clone(), options, loaded, given_up: None };
        let handle = Handle::start("steadycast-receive", seen, waker, move || {
            let record = session.run().and_then(|()| session.finish());
            session.frame_queue.close();
            record
        })?;
        Ok(Self { handle, frame_queue, audio_queue, description, answer })
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        let _ = self.handle.finish();
    }
}

/// Returns the only source that is accepted, and whether RTP and RTCP share a port.
fn source_and_mux(options: &ReceiveOptions) -> (Option<IpAddr>, bool) {
    let description = &options.description;
    (options.pair.source.or(description.source), options.pair.mux || description.mux)
}

fn opened(options: &ReceiveOptions) -> Result<Pair, LiveError> {
    let description = &options.description;
    let (source, mux) = source_and_mux(options);
    let pair_options = PairOptions { source, mux, reports: description.rtcp_port, ..options.pair.clone() };
    let pair = Pair::receiver(description.address, &pair_options)?;
    let beside = description.audio.as_ref().filter(|audio| audio.port != description.address.port());
    let Some(audio) = beside else { return Ok(pair) };
    let mut at = description.address;
    at.set_port(audio.port);
    Ok(pair.with_audio(Pair::receiver(at, &PairOptions { reports: None, ..pair_options })?))
}

fn reports_of(options: &ReceiveOptions) -> Reports {
    let description = &options.description;
    let (source, mux) = source_and_mux(options);
    match description.reports {
        // Send no reports, because `b=RR:0` forbids receiver reports.
        Some(Rate::ZERO) => Reports::Nowhere,
        // Report to the group, because its members can reach each other. In a source-specific group they can't.
        _ if description.address.ip().is_multicast() && source.is_none() => Reports::Group,
        _ => Reports::Sender { known: None, mux, heard: false },
    }
}

/// Creates the endpoint that receives what the session description describes.
fn wired(
    options: &ReceiveOptions,
    described_session: &DescribedSession,
    plan: VideoPlan,
    reports: Reports,
    frame_queue: &FrameQueue,
) -> SocketSink {
    let description = &options.description;
    let number =
        |key: &str| description.private_value(key).and_then(|text| text.parse::<u64>().ok()).filter(|n| *n > 0);
    let consume =
        options.consume.or(number("consume").map(Rate::bps)).map_or(Consume::Frames(PLAYOUT_STEP), Consume::Rate);
    let size = options.buffer.or(number("buffer").map(Bytes::new));
    let mut sink = VideoSink::new(described_session.receiver(plan), Intake::new(Time::ZERO, Time::NEVER), false, 0);
    sink.buffer = size.map(|size| Box::new(PlayBuffer::new(size, consume)));
    sink.repair = described_session.repair.is_some() || described_session.parity.is_some();
    // Move older rows to a file, because a session may last for days.
    TempStore::keep(sink.stored_rows());
    let consumer: Box<dyn Consumer> = match description.format {
        Some(format) => Box::new(
            JitterBuffer::new(format, description.payload_types(), frame_queue.clone())
                .waiting(described_session.latency),
        ),
        None => Box::new(Discard),
    };
    let (sources, each) = description.sources();
    // Restrict SRTP to the announced SSRCs only if every stream has announced its own.
    let srtp = options.key.as_ref().map(|key| Srtp::new(key).of_sources(if each { sources } else { Vec::new() }));
    let mut wired = SocketSink::new(sink, consumer, reports).timing(PLAYOUT_STEP);
    wired.srtp = srtp;
    if let Some(PacketFeedback::Transport(id)) = description.feedback {
        wired.number_id = id;
    }
    wired.rtx = described_session.repair.map(|repair| (repair.payload_type, description.payload_type));
    wired.parity = described_session.parity.map(|parity| (parity.payload_type, ReceivedSymbols::default()));
    wired.requests_key_frames = description.key_frames;
    wired.excluded.clone_from(&description.excluded);
    wired
}

struct Session {
    driver: Loop<SocketSink>,
    ix: crate::EndIx,
    shared: Arc<Shared>,
    frame_queue: FrameQueue,
    options: ReceiveOptions,
    /// The scenario at the start of the session.
    loaded: Loaded,
    /// How long the source had been silent when the session gave up.
    given_up: Option<Span>,
}

/// If no audio, or no report on it, arrives for this time, there is a warning.
const AUDIO_GRACE: Span = Span::secs(3);

/// How long to wait after a BYE for media packets that the BYE has overtaken.
const BYE_GRACE: Span = Span::millis(300);
/// Maximum time for sending a BYE. In a large group, the BYE is delayed.
const BYE_TIMEOUT: Span = Span::secs(1);

impl Session {
    fn run(&mut self) -> Result<(), LiveError> {
        let clock = self.driver.clock;
        self.driver.call(self.ix, |end, now, _| end.join(now));
        let mut next = Time::ZERO + STEP;
        let mut ended: Option<Time> = None;
        loop {
            let shared = Arc::clone(&self.shared);
            self.driver.run(next, |_| !shared.calls())?;
            let now = clock.now();
            // Sample each step that is due, so that the series has no gaps after a stall.
            while next <= now {
                self.driver.call(self.ix, |end, _, _| end.sink.sample(next));
                next += STEP;
            }
            self.shared.show(|| self.status(now));
            // Forget the BYE if it no longer applies, because a new source may have followed.
            let says_so = self.session().is_some_and(Receiver::source_ended);
            ended = if says_so { ended.or(Some(now)) } else { None };
            let left = |least| self.session().and_then(|session| session.source_left(now, least));
            self.given_up = self.options.give_up.and_then(left);
            // Look at the browser's connection as well, because it may end without a BYE.
            let is_over = self.driver.end(self.ix).browser.as_ref().is_some_and(BrowserConnection::is_over);
            if is_over
                || self.given_up.is_some()
                || self.shared.stopped()
                || ended.is_some_and(|at| now.since(at) >= BYE_GRACE)
            {
                break;
            }
        }
        self.driver.call(self.ix, SocketSink::leave);
        self.driver.run(clock.now() + BYE_TIMEOUT, |_| true)?;
        self.driver.call(self.ix, |end, _, _| end.close());
        self.shared.show_now(self.status(clock.now()));
        Ok(())
    }

    fn session(&self) -> Option<&Receiver> {
        self.driver.end(self.ix).sink.session()
    }

    /// Returns why the session ended. The text contains the address from which a BYE arrived, or how long nothing
    /// arrived.
    fn ended_by(&self, end: &SocketSink) -> Option<String> {
        let bye = end.ended_by().map(|from| format!("BYE of {}", from.ip().to_canonical()));
        let silence = || Some(format!("silence: nothing came for {:.0} s", self.given_up?.as_secs_f64()));
        bye.or_else(silence)
    }

    /// Returns warnings about packets and frames that have arrived, and about the audio.
    fn anomalies(&self, now: Time, end: &SocketSink, unused: &Unused, counts: &FrameCounts) -> Vec<String> {
        let unused = unused.explanations(self.options.offered.as_deref(), false).into_iter();
        unused.chain(counts.warning()).chain(self.lacks_audio(now, end)).chain(self.ignored_audio()).collect()
    }

    /// Returns why audio in the session description is not received. Returns `None` if it is, or if there is none.
    fn ignored_audio(&self) -> Option<String> {
        let formats = &self.options.description.unsupported_audio;
        (!formats.is_empty()).then(|| {
            format!(
                "the sound is not received: only Opus with its own payload type is supported; formats: {}",
                formats.join(", ")
            )
        })
    }

    /// Returns why there is no audio. Returns `None` unless audio is described and pictures arrive.
    fn lacks_audio(&self, now: Time, end: &SocketSink) -> Option<String> {
        let (description, counts) = (&self.options.description, end.audio.as_ref()?.counts);
        let port = description.audio.as_ref()?.port;
        // If audio shares the video's port, the pictures show that the port can be reached.
        let apart = port != description.address.port();
        let shared = source_and_mux(&self.options).1;
        let waited = |since: Option<Time>| since.is_some_and(|since| now.since(since) >= AUDIO_GRACE);
        if counts.received == 0 {
            let check = if apart { ": check that UDP reaches it" } else { "" };
            return waited(end.first_media()).then(|| format!("no sound packet has arrived at port {port}{check}"));
        }
        let port = if apart && !shared { port.saturating_add(1) } else { port };
        let check = if apart && !shared { "; check that UDP reaches it" } else { "" };
        (counts.aligned == 0 && waited(counts.first)).then(|| {
            format!(
                "no sound report has arrived at port {port}, or none about the pictures, so the two can't be \
                 aligned{check}"
            )
        })
    }

    fn status(&self, now: Time) -> Value {
        let end = self.driver.end(self.ix);
        let sink = &end.sink;
        // Average over the last second, which has ten samples.
        let recent = sink.intake.samples.len().saturating_sub(10);
        let points = &sink.intake.samples[recent..];
        let span = STEP * points.len().max(1) as u64;
        let (bytes, packets, expected) = points.iter().fold((0, 0, 0), |(b, p, e), point| {
            (b + point.bytes, p + u64::from(point.packets), e + u64::from(point.expected))
        });
        let buffer = sink.buffer.as_ref().map(|b| {
            let level = sink.intake.samples.last().and_then(|p| p.buffer).unwrap_or_default();
            let (level, size) = (level.get(), b.size().get());
            let (under, over) = (b.underflows(), b.overflows());
            json!({ "level_bytes": level, "size_bytes": size, "underflows": under, "overflows": over })
        });
        let delay = points.iter().rev().find_map(|p| p.delay);
        let view = self.session().map(Receiver::view).unwrap_or_default();
        let counts = self.frame_queue.counts();
        let unused = end.unused();
        let by_reason: Map<String, Value> =
            unused.counts.iter().map(|(reason, count)| (reason.name().to_owned(), count.into())).collect();
        json!({
            "at_s": now.as_secs_f64(),
            "rate_bps": Bytes::new(bytes).per(span).as_bps_f64(),
            "loss_frac": (expected > 0).then(|| (1.0 - packets as f64 / expected as f64).max(0.0)),
            "delay_ms": delay.map(|d| d.as_millis_f64()),
            "jitter_ms": self.session().and_then(Receiver::jitter).map(Span::as_millis_f64),
            "received": self.session().map_or(0, Receiver::received),
            "expected": self.session().map_or(0, Receiver::expected),
            // Without a payload format, frames can't be recognised, so the time since the last frame is unknown.
            "still_s": counts.shown.or(end.first_media()).filter(|_| self.options.description.format.is_some())
                .map(|at| now.since(at).as_secs_f64()),
            "silent_s": end.last_media().map(|at| now.since(at).as_secs_f64()),
            "from": end.media_from().map(|a| a.to_string()),
            "reports_to": end.reports_to().map(|a| a.to_string()),
            "ended_by": self.ended_by(end),
            "reports": sink.rtcp_packets, "buffer": buffer,
            "repair": sink.requests().map(|r| json!({ "requests": r.asked, "repaired": sink.repaired.len() })),
            "view": { "rate_bps": view.rate.map(|r| r.as_bps_f64()), "loss": view.loss,
                      "rtt_ms": view.rtt.map(|r| r.as_millis_f64()), "state": view.state },
            "browser": end.browser.as_ref().map(|browser| browser.status(now)),
            "frames": { "whole": counts.whole, "damaged": counts.damaged, "missing": counts.missing,
                        "undecodable": counts.undecodable },
            "ecn": ecn(sink.by_ecn),
            "overrun": self.frame_queue.overrun(), "unreadable": unused.unreadable(),
            "unused": by_reason, "unused_said": unused.explanations(self.options.offered.as_deref(), true),
            "odd": self.anomalies(now, end, &unused, &counts),
            "audio": end.audio.as_ref().map(|audio| json!({
                "received": audio.counts.received, "lost": audio.counts.lost,
            })),
            "other": end.waiting(now).map(|(other, from)| json!({
                "ssrc": other.ssrc, "from": from.to_string(), "after_s": other.after.as_secs_f64() })),
        })
    }

    fn finish(&mut self) -> Result<LiveRecord, LiveError> {
        let clock = self.driver.clock;
        let driver = std::mem::replace(&mut self.driver, Loop::new(clock)?);
        let Some((mut wired, _)) = driver.into_ends().pop() else {
            return Err(LiveError::unwritten("the receiver is gone"));
        };
        let counts = self.frame_queue.counts();
        let now = clock.now();
        let mut warnings = Vec::new();
        let unused = wired.unused();
        if wired.last_media().is_none() {
            let what = if unused.counts.total() > 0 { "no usable packet" } else { "no packet" };
            warnings.push(format!("{what} arrived at {}", self.options.description.address));
        }
        let (unreadable, keyed) = (unused.unreadable(), self.options.key.is_some());
        // The short datagrams of a transport stream do not show what they are.
        if unreadable > 0 && unused.counts.get(UnusedReason::MpegTs) == 0 {
            let why = if keyed { "the key may be wrong" } else { "is the stream encrypted?" };
            warnings.push(format!("{} could not be read: {why}", counted(unreadable, "datagram")));
        }
        warnings.extend(self.anomalies(now, &wired, &unused, &counts));
        let others = unused.counts.get(UnusedReason::OtherSource);
        if others > 0 {
            let came = counted(others, "packet");
            warnings.push(format!("{came} of other sources were ignored, because another source was already sending"));
        }
        let runs = wired.restarts();
        if runs > 0 {
            let again = counted(runs.into(), "time");
            warnings.push(format!("another source replaced the first one, or it started again, {again}"));
        }
        if wired.sink.rtcp_packets == 0 {
            warnings.push("no report was sent, because the sender's address is unknown".into());
        }
        if self.options.description.private_value("controller").is_none() {
            warnings.push("the sender did not name its controller, so it was sent standard reports only".into());
        }
        if wired.sink.intake.delay.max().is_some() {
            warnings.push("delays are relative to the smallest delay, because the sender's clock differs".into());
        } else if wired.last_media().is_some() {
            let problem = "delays are unknown, because the packets do not contain the time at which they were sent";
            warnings.push(format!("{problem}: only `steadycast send` writes this time"));
        }
        // Measure from the first packet on, because the network does not cause the wait before this packet.
        let from = wired.first_media().unwrap_or(Time::ZERO);
        let until = wired.last_media().unwrap_or(now);
        let ended = self.ended_by(&wired);
        let also = &mut wired.sink.also;
        also.put(&receiver::NAME, self.options.cname.as_str());
        also.put(&receiver::ENDED_BY, ended);
        also.put(&receiver::UNUSED_PACKETS, unused.counts.total());
        let by_reason =
            unused.counts.iter().map(|(reason, count)| json!({ "reason": reason.name(), "packets": count }));
        also.put(&receiver::UNUSED, by_reason.collect::<Vec<Value>>());
        let lost = counts.damaged + counts.missing;
        // The number of frames is an estimate from the timestamps.
        let sent = counts.whole + counts.undecodable + lost;
        if sent > 0 {
            also.put(&receiver::FRAMES_SENT, sent);
            also.put(&receiver::FRAMES_OK, counts.whole);
            also.put(&receiver::FRAMES_LOST, lost);
            // Leave the number of late frames unknown, because the play-out time is unknown here.
            also.put(&receiver::FRAMES_LATE, None::<u64>);
            also.put(&receiver::FRAMES_UNDECODABLE, counts.undecodable);
        }
        if let Some(audio) = &wired.audio {
            also.put(&receiver::AUDIO_RECEIVED, audio.counts.received);
            also.put(&receiver::AUDIO_LOST, audio.counts.lost);
        }
        let group = self.options.description.address.ip().is_multicast();
        let receivers = std::slice::from_ref(&self.options.cname);
        let loaded = flow::ended(&self.loaded, receivers, group, now.since(Time::ZERO))?;
        wired.sink.stored_rows().into_iter().try_for_each(StoredRows::recall)?;
        let frames = self.frame_queue.rows()?;
        let agent = Agent::VideoSink(Box::new(wired.sink));
        Ok(LiveRecord::new(loaded, agent, from..until, now, warnings, frames))
    }
}

/// Returns the number of ECN-capable packets and the number of packets marked CE. Returns `None` if there are none.
fn ecn([_, ect1, ect0, marked]: [u64; 4]) -> Option<Value> {
    let capable = ect0 + ect1 + marked;
    (capable > 0).then(|| json!({ "capable": capable, "marked": marked }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Duration;

    #[test]
    fn a_session_bandwidth_that_no_session_has_is_refused_with_a_remedy() {
        let of = |said: &str| {
            let text = format!(
                "v=0\r\no=- 0 0 IN IP4 1.2.3.4\r\ns=x\r\nc=IN IP4 1.2.3.4\r\nt=0 0\r\nm=video 5004 RTP/AVP 96\r\n\
                 a=x-steadycast:controller=asmp{said}\r\n"
            );
            let keys = FlowKeys::described(&Description::read(text.as_bytes()).unwrap())?;
            flow::video(&keys.scenario(&[], false, Span::ZERO)?).map(|video| video.rtcp.session_bw)
        };
        for wrong in [0, 9_999, 10_000_000_001, 1_000_000_000_000_000, u64::MAX] {
            let error = of(&format!(";session-bw={wrong}")).unwrap_err().to_string();
            assert!(error.contains("session-bw") && error.contains(&wrong.to_string()), "{error}");
            assert!(error.contains("10000 to 10000000000"), "{error}");
        }
        for right in [10_000, 2_500_000, 10_000_000_000] {
            assert_eq!(of(&format!(";session-bw={right}")).unwrap(), Rate::bps(right));
        }
        assert_eq!(of("").unwrap(), Rate::mbps(2));
    }

    /// Starts a receiver at a free port of this machine. Also returns a socket that can send to it, and its port.
    fn receiving(more: &str) -> (Receiving, UdpSocket, SocketAddr) {
        let out = UdpSocket::bind("127.0.0.1:0").unwrap();
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let text = format!(
            "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=video {} RTP/AVP 96\r\n\
             a=rtpmap:96 MP4V-ES/90000\r\na=rtcp-mux\r\n{more}",
            free.port()
        );
        let receiving = Receiving::start(ReceiveOptions {
            description: Description::read(text.as_bytes()).unwrap(),
            offered: None,
            pair: PairOptions::default(),
            key: None,
            cname: "test".into(),
            buffer: None,
            latency: None,
            give_up: None,
            consume: None,
        })
        .unwrap();
        (receiving, out, free)
    }

    /// Returns a packet with an I frame. `extension` is its header extension, with the profile and the length.
    fn packet(seq: u8, extension: &[u8]) -> Vec<u8> {
        let first = if extension.is_empty() { 0x80 } else { 0x90 };
        let header = [first, 0xe0, 0, seq, 0, 0, 0x10 * seq, 0, 0, 0, 0, 1];
        [&header, extension, &[0, 0, 1, 0xb6, 0, seq]].concat()
    }

    /// Sends packets, waits until they have arrived, and ends the session. Returns the last status and the summary.
    fn ended(
        (receiving, out, to): &(Receiving, UdpSocket, SocketAddr),
        packets: impl Iterator<Item = Vec<u8>>,
    ) -> (Value, Value) {
        receiving.frame_queue.want();
        let mut sent = 0;
        for packet in packets {
            out.send_to(&packet, to).unwrap();
            sent += 1;
        }
        let handle = receiving.handle.clone();
        let came = || handle.status(Duration::from_secs(1))["received"] == sent;
        assert!((0..30).any(|_| came()));
        handle.stop();
        let summary = handle.finish().unwrap().summary(true);
        (handle.status(Duration::ZERO), summary)
    }

    #[test]
    fn packets_that_wait_at_the_end_of_the_session_are_taken_and_counted() {
        let session = receiving("");
        // Send one I frame in each packet. Leave out number 2.
        let (status, _) = ended(&session, [0, 1, 3, 4, 5].into_iter().map(|seq| packet(seq, &[])));
        assert_eq!(session.0.frame_queue.take(Duration::ZERO).unwrap().len(), 5);
        let frames = &status["frames"];
        assert_eq!((&frames["whole"], &frames["damaged"]), (&json!(4), &json!(1)), "in the last status");
    }

    #[test]
    fn delays_are_known_only_if_packets_contain_the_time_at_which_they_were_sent() {
        // The header extension has one element of 4 bytes, which is `steadycast send`'s time stamp.
        let stamped = |seq: u8| packet(seq, &[0xbe, 0xde, 0, 2, 0x13, 0, 0, 0, seq, 0, 0, 0]);
        for (all, known) in [(0..6, true), (0..0, false)] {
            let packets = (0..6).map(|seq| if all.contains(&seq) { stamped(seq) } else { packet(seq, &[]) });
            let (status, summary) = ended(&receiving(""), packets);
            let receiver = &summary["flows"][0]["receivers"][0];
            let delays = &receiver["delay_ms"];
            let figures = [&delays["p50"], &delays["max"], &receiver["delay_mean_ms"]];
            assert!(figures.iter().all(|figure| figure.is_number() == known), "{figures:?}");
            assert!(known || status["delay_ms"].is_null(), "{status}");
            assert_eq!(receiver["cumulative_jitter_max_ms"].is_number(), known, "{receiver}");
            let told = summary["warnings"].as_array().unwrap().iter().filter_map(Value::as_str);
            let told: Vec<&str> = told.filter(|told| told.starts_with("delays are")).collect();
            assert!(told.len() == 1 && told[0].contains("unknown") != known, "{told:?}");
        }
    }

    #[test]
    fn audio_that_is_not_supported_is_told_once_in_the_status_and_in_the_summary() {
        for (more, expected) in [("m=audio 5006 RTP/AVP 0\r\n", 1), ("", 0)] {
            let (status, summary) = ended(&receiving(more), (0..3).map(|seq| packet(seq, &[])));
            for told in [&status["odd"], &summary["warnings"]] {
                let all = told.as_array().unwrap().iter().filter_map(Value::as_str);
                let told: Vec<&str> = all.filter(|told| told.contains("sound")).collect();
                assert_eq!(told.len(), expected, "{told:?}");
                assert!(told.iter().all(|told| told.contains("PCMU (0)") && told.contains("Opus")), "{told:?}");
            }
        }
    }
}
