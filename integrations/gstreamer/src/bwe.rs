//! The element: its pads, its properties and its thread.

use crate::feedback::{Numbers, ReportedPacket};
use crate::source::Source;
use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer::subclass::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use steadycast_remote::{Bounds, Bytes, FrameEdge, Given, Rate, Span, Time};
use steadycast_sender::{
    Departure, FrameRole, MediaPacket, MediaSender, MediaSettings, Output, StreamId, StreamSettings,
};
use steadycast_wire::rtp::RtpHeader;

static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("rtpsteadycastbwe", gst::DebugColorFlags::empty(), Some("Steadycast's bandwidth estimator"))
});

/// Size of the IPv4 and UDP headers.
const HEADERS: u64 = 28;
/// The header extension that carries a transport-wide number.
const TWCC: &str = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";
/// Without feedback for this time after the first packet, a warning names likely causes.
const FEEDBACK_TIMEOUT: Span = Span::secs(5);
/// Encoders adapt slowly, so a smaller relative change of the estimate is not reported.
const MIN_CHANGE: f64 = 0.01;
/// Minimum time between two reported estimates, except for a fall by [`URGENT_FALL`].
const MIN_INTERVAL: Span = Span::millis(50);
/// A relative fall by this much is reported immediately.
const URGENT_FALL: f64 = 0.1;
/// Maximum time between the events of one RTCP compound.
const COMPOUND: Span = Span::millis(2);
/// Maximum packets pushed together, so that an event behind them waits only briefly.
const MAX_LIST: usize = 32;
/// The stream of the first SSRC's paced packets. Its encoder target is used for all SSRCs.
const PACED: StreamId = StreamId(0);
/// The stream of all packets without frames, and of all if `pace` is false.
const UNPACED: StreamId = StreamId(1);

#[derive(Clone, Debug)]
struct Settings {
    controller: String,
    params: Option<gst::Structure>,
    min: u32,
    max: u32,
    pace: bool,
    max_delay: Span,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            controller: "steady".into(),
            params: None,
            min: 50_000,
            max: 8_192_000,
            pace: true,
            max_delay: Span::millis(400),
        }
    }
}

impl Settings {
    /// Returns the lower limit of the estimate, at most the upper one: an application sets one after the other.
    fn least(&self) -> u32 {
        self.min.min(self.max)
    }

    fn sender(&self) -> Result<MediaSender, String> {
        let bounds = Bounds::new(Rate::bps(self.min.into()), Rate::bps(self.max.into()));
        let mut params: Vec<(String, Given)> = Vec::new();
        for (name, value) in self.params.iter().flat_map(|params| params.iter()) {
            let number = value.transform::<f64>().ok().and_then(|value| value.get::<f64>().ok());
            let given = match (value.get::<bool>(), value.get::<String>(), number) {
                (Ok(switch), ..) => Given::Switch(switch),
                (_, Ok(text), _) => Given::Text(text),
                (.., Some(number)) => Given::Number(number),
                _ => return Err(format!("params: {name} is no number, text or boolean")),
            };
            params.push((name.to_string(), given));
        }
        let mut settings = MediaSettings::new(bounds);
        settings.max_backlog = self.max_delay;
        let mut sender = MediaSender::new(&self.controller, &params, settings).map_err(|error| error.to_string())?;
        sender.add_stream(StreamSettings::video(0));
        // Audio is not paced, and no rate is reserved for it.
        sender.add_stream(StreamSettings::audio(0, Rate::ZERO));
        Ok(sender)
    }
}

#[derive(Debug, Default)]
struct Counts {
    sent: u64,
    lost: u64,
    feedback: u64,
    key_units: u64,
}

enum Item {
    Packet(gst::Buffer, RtpHeader),
    Event(gst::Event),
}

#[derive(Default)]
struct State {
    sender: Option<MediaSender>,
    /// The queued items by number, in order of arrival. The sender uses these numbers as packet identifiers.
    items: BTreeMap<u64, Item>,
    next: u64,
    numbers: Numbers,
    flushing: bool,
    flow: Option<gst::FlowError>,
    clock_id: Option<gst::SingleShotClockId>,
    /// The streams by SSRC.
    sources: BTreeMap<u32, Source>,
    /// The first departure, until feedback arrives or its absence is reported.
    silent_since: Option<Time>,
    /// Feedback that waits for the rest of its RTCP compound, until `feedback_at`.
    reported: Vec<ReportedPacket>,
    feedback_at: Option<Time>,
    /// Mean sizes of packets and of their payloads.
    mean: Option<(f64, f64)>,
    estimated: u32,
    estimated_at: Option<Time>,
    counts: Counts,
}

/// Notifications that are sent after the state is unlocked.
#[derive(Default)]
struct Notifications {
    estimated: bool,
    key_unit: bool,
    silence: bool,
}

pub struct Bwe {
    sink: gst::Pad,
    src: gst::Pad,
    settings: Mutex<Settings>,
    state: Mutex<State>,
    wake: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The system's monotonic clock: the pipeline's clock can be set, replaced or missing.
fn now() -> Time {
    Time::from_nanos(gst::SystemClock::obtain().time().nseconds())
}

impl State {
    /// Reads the encoder's target, and sets the notifications of a change.
    fn read(&mut self, at: Time, settings: &Settings, notifications: &mut Notifications) {
        let Some(sender) = &mut self.sender else { return };
        let mut encoder = sender.encoder(at, PACED);
        for source in self.sources.values() {
            encoder.key_frame |= sender.encoder(at, source.stream).key_frame;
        }
        notifications.key_unit |= encoder.key_frame;
        self.counts.key_units += u64::from(encoder.key_frame);
        // The encoder's rate does not include headers.
        let share = self.mean.map_or(1.0, |(size, payload)| payload / size.max(1.0));
        let target = (encoder.rate.as_bps_f64() * share).clamp(settings.least().into(), settings.max.into()) as u32;
        let change = f64::from(target) / f64::from(self.estimated.max(1)) - 1.0;
        let at_end = (target == settings.least() || target == settings.max) && target != self.estimated;
        let soon = self.estimated_at.is_some_and(|last| at.since(last) < MIN_INTERVAL) && change > -URGENT_FALL;
        if (at_end || change.abs() > MIN_CHANGE) && !soon {
            (self.estimated, self.estimated_at) = (target, Some(at));
            notifications.estimated = true;
        }
    }

    fn add(&mut self, item: Item) -> u64 {
        let number = self.next;
        self.next += 1;
        self.items.insert(number, item);
        number
    }

    /// Moves the events at the head of the queue to `leaving`.
    fn take_events(&mut self, leaving: &mut Vec<Item>) {
        while let Some(first) = self.items.first_entry().filter(|first| matches!(first.get(), Item::Event(_))) {
            leaving.push(first.remove());
        }
    }

    /// Moves the due items to `leaving`, in order. Returns when the next one is due.
    fn poll(&mut self, now: Time, leaving: &mut Vec<Item>) -> Option<Time> {
        let until = loop {
            match self.sender.as_mut()?.poll(now) {
                Output::Send(departure) => {
                    self.take_events(leaving);
                    if let Some(Item::Packet(buffer, header)) = self.items.remove(&departure.id) {
                        self.leaves(now, &departure, &header);
                        leaving.push(Item::Packet(buffer, header));
                    }
                    if leaving.len() >= MAX_LIST {
                        break Some(now);
                    }
                }
                Output::Dropped(_, id) => drop(self.items.remove(&id)),
                Output::Wait(wake) => break wake.map(|wake| wake.at),
            }
        };
        self.take_events(leaving);
        until
    }

    fn leaves(&mut self, now: Time, departure: &Departure, header: &RtpHeader) {
        self.numbers.sent(departure.number, now.as_nanos(), header.payload_len.into());
        if self.counts.sent == 0 && self.counts.feedback == 0 {
            self.silent_since = Some(now);
        }
        self.counts.sent += 1;
        let (size, payload) = (departure.size.as_f64(), f64::from(header.payload_len));
        let (mean_size, mean_payload) = self.mean.unwrap_or((size, payload));
        self.mean = Some((mean_size + (size - mean_size) / 64.0, mean_payload + (payload - mean_payload) / 64.0));
    }

    /// Passes a packet to the sender, unless its frame is dropped.
    fn push(&mut self, now: Time, buffer: gst::Buffer, size: u64, header: RtpHeader, pace: bool) {
        let Some(sender) = &mut self.sender else { return };
        let is_first = self.sources.is_empty();
        let source = self.sources.entry(header.ssrc).or_insert_with(|| {
            // A stream per SSRC: a key frame ends the skipping only of its own stream's frames.
            Source::new(if is_first { PACED } else { sender.add_stream(StreamSettings::video(header.ssrc)) })
        });
        let role = source.read(&header, buffer.flags().contains(gst::BufferFlags::DELTA_UNIT));
        if let Some(role) = role {
            // An unpaced packet would overtake queued ones, so pace until the queue is empty.
            let waits = sender.backlog_of(source.stream).bytes > Bytes::ZERO;
            source.is_paced = source.has_frames() && (pace || waits);
            // An unpaced key frame also fulfils requests for a key frame.
            if source.is_paced || role == FrameRole::Key {
                sender.frame(now, source.stream, role);
            }
        }
        let (stream, is_paced) = if source.is_paced { (source.stream, true) } else { (UNPACED, false) };
        let edge = FrameEdge { first: role.is_some(), last: header.marker };
        let packet = MediaPacket { id: self.next, size: Bytes::new(size), edge, seq: header.seq };
        if sender.push(now, stream, &packet) {
            self.add(Item::Packet(buffer, header));
        } else if is_paced {
            // Dropped. Without flags, other frames may depend on it, so a key frame is needed.
            sender.request_key_frame(stream);
        }
    }
}

impl Bwe {
    fn wake_thread(&self, state: &mut State) {
        if let Some(id) = state.clock_id.take() {
            id.unschedule();
        }
        self.wake.notify_all();
    }

    fn notify(&self, notifications: &Notifications) {
        if notifications.estimated {
            self.obj().notify("estimated-bitrate");
        }
        if notifications.key_unit {
            let structure = gst::Structure::builder("GstForceKeyUnit").field("all-headers", true).build();
            let _ = self.sink.push_event(gst::event::CustomUpstream::new(structure));
        }
        if notifications.silence {
            gst::element_imp_warning!(
                self,
                gst::ResourceError::Settings,
                ("no transport-wide feedback"),
                ["Give the packets' caps rtcp-fb-transport-cc=(boolean)true and extmap-N=(string)\"{TWCC}\", \
                     both ends' rtpbin rtp-profile=avpf, and see that RTCP comes back."]
            );
        }
    }

    fn take(&self, state: &mut State, settings: &Settings, buffer: gst::Buffer) {
        let bytes = buffer.map_readable().ok();
        let Some(header) = bytes.and_then(|bytes| RtpHeader::parse(&bytes).ok().map(|(header, ..)| header)) else {
            gst::debug!(CAT, imp = self, "a buffer that is no RTP is dropped");
            return;
        };
        let size = buffer.size() as u64 + HEADERS;
        state.push(now(), buffer, size, header, settings.pace);
    }

    fn chain(&self, buffers: impl IntoIterator<Item = gst::Buffer>) -> Result<gst::FlowSuccess, gst::FlowError> {
        let settings = lock(&self.settings).clone();
        let mut state = lock(&self.state);
        if let Some(error) = state.flow {
            return Err(error);
        }
        if state.flushing {
            return Err(gst::FlowError::Flushing);
        }
        for buffer in buffers {
            self.take(&mut state, &settings, buffer);
        }
        self.wake_thread(&mut state);
        Ok(gst::FlowSuccess::Ok)
    }

    fn sink_event(&self, pad: &gst::Pad, event: gst::Event) -> bool {
        use gst::EventView;
        match event.view() {
            EventView::FlushStart(_) => {
                self.stop();
                gst::Pad::event_default(pad, Some(&*self.obj()), event)
            }
            EventView::FlushStop(_) => {
                let sent = gst::Pad::event_default(pad, Some(&*self.obj()), event);
                self.begin();
                sent
            }
            _ if event.is_serialized() => {
                let mut state = lock(&self.state);
                if state.flushing {
                    return false;
                }
                state.add(Item::Event(event));
                self.wake_thread(&mut state);
                true
            }
            _ => gst::Pad::event_default(pad, Some(&*self.obj()), event),
        }
    }

    fn src_event(&self, pad: &gst::Pad, event: gst::Event) -> bool {
        if let gst::EventView::CustomUpstream(custom) = event.view()
            && let Some(packets) = custom.structure().filter(|s| s.name() == "RTPTWCCPackets")
        {
            self.feedback(packets);
        }
        gst::Pad::event_default(pad, Some(&*self.obj()), event)
    }

    /// Stores feedback: each message of an RTCP compound arrives as a separate event.
    fn feedback(&self, packets: &gst::StructureRef) {
        let mut state = lock(&self.state);
        state.reported.extend(ReportedPacket::all(packets));
        let at = now() + COMPOUND;
        state.feedback_at.get_or_insert(at);
        state.counts.feedback += 1;
        state.silent_since = None;
        self.wake_thread(&mut state);
    }

    fn process_feedback(&self, state: &mut State, at: Time) {
        state.feedback_at = None;
        let State { sender: Some(sender), numbers, counts, reported, .. } = state else { return };
        let all = reported.len();
        sender.feedback(
            at,
            reported.drain(..).filter_map(|packet| {
                let fate = numbers.fate(&packet)?;
                counts.lost += u64::from(fate.arrived.is_none());
                Some(fate)
            }),
        );
        gst::log!(CAT, imp = self, "feedback on {all} packets");
    }

    /// Runs one step of the thread: processes due feedback, then sends due packets or waits.
    fn step(&self) {
        let settings = lock(&self.settings).clone();
        let mut notifications = Notifications::default();
        let mut state = lock(&self.state);
        if state.flushing || state.flow.is_some() {
            let _ = self.src.pause_task();
            return;
        }
        let at = now();
        if state.feedback_at.is_some_and(|due| due <= at) {
            self.process_feedback(&mut state, at);
            state.read(at, &settings, &mut notifications);
        }
        if state.silent_since.is_some_and(|since| at.since(since) > FEEDBACK_TIMEOUT) {
            (state.silent_since, notifications.silence) = (None, true);
        }
        let mut leaving = Vec::new();
        let until = state.poll(at, &mut leaving);
        state.read(at, &settings, &mut notifications);
        if !leaving.is_empty() || notifications.estimated || notifications.key_unit || notifications.silence {
            drop(state);
            // Push first: a handler that waits for its encoder would falsify the departure times.
            self.push(leaving);
            self.notify(&notifications);
            return;
        }
        let silence_check = state.silent_since.map(|since| since + FEEDBACK_TIMEOUT + FEEDBACK_TIMEOUT / 100);
        match [until, silence_check, state.feedback_at].into_iter().flatten().min() {
            Some(until) if until > at => {
                let id = gst::SystemClock::obtain().new_single_shot_id(gst::ClockTime::from_nseconds(until.as_nanos()));
                state.clock_id = Some(id.clone());
                drop(state);
                let _ = id.wait();
                lock(&self.state).clock_id = None;
            }
            Some(_) => {}
            None => drop(self.wake.wait(state)),
        }
    }

    /// Pushes packets and events in order; consecutive packets as one list.
    fn push(&self, leaving: Vec<Item>) {
        let mut list = Vec::new();
        for item in leaving {
            match item {
                Item::Packet(buffer, _) => list.push(buffer),
                Item::Event(event) => {
                    self.push_list(&mut list);
                    self.src.push_event(event);
                }
            }
        }
        self.push_list(&mut list);
    }

    fn push_list(&self, list: &mut Vec<gst::Buffer>) {
        let flow = match list.len() {
            0 => Ok(gst::FlowSuccess::Ok),
            1 => list.pop().map_or(Ok(gst::FlowSuccess::Ok), |buffer| self.src.push(buffer)),
            _ => self.src.push_list(list.drain(..).collect::<gst::BufferList>()),
        };
        if let Err(error) = flow {
            gst::debug!(CAT, imp = self, "downstream says {error}");
            lock(&self.state).flow = Some(error);
        }
    }

    fn stop(&self) {
        let mut state = lock(&self.state);
        state.flushing = true;
        state.items.clear();
        if let Some(sender) = &mut state.sender {
            sender.clear();
        }
        self.wake_thread(&mut state);
        drop(state);
        let _ = self.src.pause_task();
    }

    fn begin(&self) {
        let mut state = lock(&self.state);
        (state.flushing, state.flow) = (false, None);
        state.sources.values_mut().for_each(Source::flush);
        drop(state);
        let weak = self.downgrade();
        let _ = self.src.start_task(move || {
            if let Some(bwe) = weak.upgrade() {
                bwe.step();
            }
        });
    }

    fn activate(&self, active: bool) -> Result<(), gst::LoggableError> {
        if active {
            self.begin();
            Ok(())
        } else {
            self.stop();
            self.src.stop_task().map_err(|_| gst::loggable_error!(CAT, "the thread would not end"))
        }
    }

    fn why(state: &State) -> String {
        let Some(decision) = state.sender.as_ref().map(MediaSender::decision) else { return String::new() };
        let loss = decision.why.loss.map(|loss| format!("loss {:.2} %", loss * 100.0));
        let rtt = decision.why.rtt.map(|rtt| format!("round trip {:.0} ms", rtt.as_millis_f64()));
        let limit = Some(format!("limit: {:?}", decision.limit).to_lowercase());
        let all = [Some(decision.why.rule.to_string()), loss, rtt, limit];
        all.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    fn stats(state: &State) -> gst::Structure {
        let Counts { sent, lost, feedback, key_units } = state.counts;
        let backlog = state.sender.as_ref().map(MediaSender::backlog).unwrap_or_default();
        let decision = state.sender.as_ref().map(MediaSender::decision);
        let decision = decision.as_ref();
        let bps = |rate: Option<Rate>| rate.map_or(0, Rate::as_bps);
        gst::Structure::builder("application/x-steadycast-stats")
            .field("packets-sent", sent)
            .field("packets-lost", lost)
            .field("feedback-events", feedback)
            .field("frames-dropped", backlog.skipped)
            .field("key-units-asked-for", key_units)
            .field("queue-delay", decision.map_or(0, |d| backlog.bytes.at(d.pacing).as_nanos()))
            .field("target-bitrate", bps(decision.map(|d| d.target)))
            .field("pacing-bitrate", bps(decision.map(|d| d.pacing)))
            .field("loss", decision.and_then(|d| d.why.loss).unwrap_or(0.0))
            .field("round-trip-time", decision.and_then(|d| d.why.rtt).map_or(0, |rtt| rtt.as_nanos()))
            .build()
    }
}

#[glib::object_subclass]
impl ObjectSubclass for Bwe {
    const NAME: &'static str = "GstRtpSteadycastBwe";
    type Type = crate::RtpSteadycastBwe;
    type ParentType = gst::Element;

    fn with_class(class: &Self::Class) -> Self {
        #[expect(clippy::expect_used, reason = "both are made in this file")]
        let template = |name| class.pad_template(name).expect("the class has this template");
        let sink = gst::Pad::builder_from_template(&template("sink"))
            .chain_function(|_, parent, buffer| {
                Self::catch_panic_pad_function(parent, || Err(gst::FlowError::Error), |bwe| bwe.chain([buffer]))
            })
            .chain_list_function(|_, parent, list| {
                let buffers: Vec<_> = list.iter_owned().collect();
                Self::catch_panic_pad_function(parent, || Err(gst::FlowError::Error), |bwe| bwe.chain(buffers))
            })
            .event_function(|pad, parent, event| {
                Self::catch_panic_pad_function(parent, || false, |bwe| bwe.sink_event(pad, event))
            })
            .flags(gst::PadFlags::PROXY_CAPS | gst::PadFlags::PROXY_SCHEDULING)
            .build();
        let src = gst::Pad::builder_from_template(&template("src"))
            .event_function(|pad, parent, event| {
                Self::catch_panic_pad_function(parent, || false, |bwe| bwe.src_event(pad, event))
            })
            .activatemode_function(|_, parent, mode, active| {
                Self::catch_panic_pad_function(
                    parent,
                    || Err(gst::loggable_error!(CAT, "panicked")),
                    |bwe| if mode == gst::PadMode::Push { bwe.activate(active) } else { Ok(()) },
                )
            })
            .flags(gst::PadFlags::PROXY_CAPS | gst::PadFlags::PROXY_SCHEDULING)
            .build();
        Self { sink, src, settings: Mutex::default(), state: Mutex::default(), wake: Condvar::new() }
    }
}

impl ObjectImpl for Bwe {
    fn properties() -> &'static [glib::ParamSpec] {
        static ALL: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(|| {
            let settings = Settings::default();
            let rate = |name, nick, blurb, default| {
                glib::ParamSpecUInt::builder(name).nick(nick).blurb(blurb).minimum(1).default_value(default)
            };
            vec![
                rate(
                    "estimated-bitrate",
                    "Estimated bitrate",
                    "What an encoder may produce, in bits per second; what is set is ignored",
                    settings.min,
                )
                .minimum(0)
                .build(),
                rate("min-bitrate", "Minimum bitrate", "The estimate's least value, in bits per second", settings.min)
                    .mutable_playing()
                    .build(),
                rate(
                    "max-bitrate",
                    "Maximum bitrate",
                    "The estimate's greatest value, in bits per second",
                    settings.max,
                )
                .mutable_playing()
                .build(),
                glib::ParamSpecString::builder("controller")
                    .nick("Controller")
                    .blurb("The rate controller: steady, tfrc, asmp, nada, gcc, …")
                    .default_value(Some(settings.controller.as_str()))
                    .mutable_ready()
                    .build(),
                glib::ParamSpecBoxed::builder::<gst::Structure>("params")
                    .nick("Parameters")
                    .blurb("The controller's parameters, by their names")
                    .mutable_ready()
                    .build(),
                glib::ParamSpecBoolean::builder("pace")
                    .nick("Pace")
                    .blurb("Whether packets leave at the controller's pace, or as they come")
                    .default_value(settings.pace)
                    .mutable_playing()
                    .build(),
                glib::ParamSpecUInt64::builder("max-delay")
                    .nick("Maximum delay")
                    .blurb("Beyond what is paced out in this time (ns), whole frames are dropped up to a key unit")
                    .default_value(settings.max_delay.as_nanos())
                    .mutable_ready()
                    .build(),
                glib::ParamSpecString::builder("why")
                    .nick("Why")
                    .blurb("The rule that set the rate, and what went into it")
                    .read_only()
                    .build(),
                glib::ParamSpecBoxed::builder::<gst::Structure>("stats")
                    .nick("Statistics")
                    .blurb("Packets, losses, feedback, dropped frames and the decision in force")
                    .read_only()
                    .build(),
            ]
        });
        &ALL
    }

    fn set_property(&self, _: usize, value: &glib::Value, spec: &glib::ParamSpec) {
        let mut settings = lock(&self.settings);
        match spec.name() {
            "min-bitrate" => settings.min = value.get().unwrap_or(settings.min),
            "max-bitrate" => settings.max = value.get().unwrap_or(settings.max),
            "controller" => {
                settings.controller = value.get().ok().flatten().unwrap_or_else(|| Settings::default().controller)
            }
            "params" => settings.params = value.get().ok().flatten(),
            "pace" => settings.pace = value.get().unwrap_or(settings.pace),
            "max-delay" => settings.max_delay = value.get().map_or(settings.max_delay, Span::nanos),
            // webrtcsink sets the start rate of `rtpgccbwe`, which our controllers do not need.
            _ => {}
        }
    }

    fn property(&self, _: usize, spec: &glib::ParamSpec) -> glib::Value {
        let settings = lock(&self.settings).clone();
        let state = lock(&self.state);
        match spec.name() {
            "estimated-bitrate" => state.estimated.to_value(),
            "min-bitrate" => settings.min.to_value(),
            "max-bitrate" => settings.max.to_value(),
            "controller" => settings.controller.to_value(),
            "params" => settings.params.to_value(),
            "pace" => settings.pace.to_value(),
            "max-delay" => settings.max_delay.as_nanos().to_value(),
            "why" => Self::why(&state).to_value(),
            _ => Self::stats(&state).to_value(),
        }
    }

    fn constructed(&self) {
        self.parent_constructed();
        lock(&self.state).estimated = Settings::default().min;
        for pad in [&self.sink, &self.src] {
            // Adding a pad to a new element can't fail.
            let _ = self.obj().add_pad(pad);
        }
    }
}

impl GstObjectImpl for Bwe {}

impl ElementImpl for Bwe {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "Steadycast bandwidth estimator",
                "Network/RTP/Filter",
                "Paces RTP and estimates the bandwidth so that TCP keeps its share, on transport-wide feedback",
                "The Steadycast project",
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
            let caps = gst::Caps::new_empty_simple("application/x-rtp");
            let pad = |name, direction| gst::PadTemplate::new(name, direction, gst::PadPresence::Always, &caps);
            [pad("sink", gst::PadDirection::Sink), pad("src", gst::PadDirection::Src)].into_iter().flatten().collect()
        });
        &TEMPLATES
    }

    fn change_state(&self, change: gst::StateChange) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
        if change == gst::StateChange::ReadyToPaused {
            let settings = lock(&self.settings).clone();
            let sender = settings.sender().map_err(|problem| {
                gst::element_imp_error!(self, gst::ResourceError::Settings, ["{problem}"]);
                gst::StateChangeError
            })?;
            let mut state = lock(&self.state);
            let (flushing, mut notifications) = (state.flushing, Notifications::default());
            *state = State { sender: Some(sender), flushing, ..State::default() };
            state.read(now(), &settings, &mut notifications);
        }
        self.parent_change_state(change)
    }
}

#[cfg(test)]
mod tests;
