//! The configuration of a video flow's two ends, for simulated, emulated and live runs.

use crate::make::BuildError;
use crate::{Intake, MakeReceiver, Player, Skew, VideoSink, VideoSource};
use std::sync::Arc;
use steadycast_control::registry::Factory;
use steadycast_control::{FeedbackFormat, Mode, Pictures, ReceiverId, Rung, Setup};
use steadycast_media::{
    AudioFeed, BUILT_IN_SWITCHING, BacklogRule, CodecModel, CodecSettings, ConstantAudio, Consume, Encoder, Feed,
    Ladder, PerFrame, PlayBuffer, SwitchingFactory, SyntheticCodec, Vbr, packet_rate,
};
use steadycast_scenario as sc;
use steadycast_session::{
    AudioSettings, CircuitBreaker, FeedbackDefence, HeaderIds, Identity, OperatorControls, Origin, PARITY_MORE,
    ParitySettings, Profile, Receiver, RepairSettings, Replayed, RtcpSettings, SenderSettings, Siblings,
    StandardReports,
};
use steadycast_units::{Bytes, Chance, Rate, Seed, Span, Time};
use steadycast_wire::ntp::NtpEpoch;
use steadycast_wire::rtx::OSN;

/// Bytes of a packet's headers: IP, UDP, RTP and the send time. A controller's header extension (`Notice`) is not
/// included.
const HEADER_BYTES: u64 = 28 + 12 + 4 + 8;
/// Bytes of the largest `Notice`, with the header of its extension element.
const MAX_NOTICE_BYTES: u64 = 24;
/// Bytes of the extension element with the transport-wide sequence number.
const TRANSPORT_NUMBER_BYTES: u64 = 4;
/// The RTP payload type of media without a static type.
const MEDIA_PAYLOAD_TYPE: u8 = 96;
/// The default RTP payload type of retransmissions.
pub const RETRANSMISSION_PAYLOAD_TYPE: u8 = 97;
const PARITY_PAYLOAD_TYPE: u8 = 98;
/// The default RTP payload type of audio, libwebrtc's for Opus.
pub const AUDIO_PAYLOAD_TYPE: u8 = 111;

/// The host's settings, which complete a flow's.
#[derive(Clone, Debug)]
pub struct HostContext {
    /// The seed of SSRCs, first sequence numbers and first timestamps that the flow leaves open.
    pub seed: Seed,
    /// The maximum catch-up time of a source after a late wake-up; zero in virtual time.
    pub credit: Span,
    /// The MTU of the path.
    pub mtu: Bytes,
    /// The settings of the other end, if it is another program.
    pub apart: Option<RemotePeer>,
}

impl HostContext {
    /// Creates the context of a simulation or emulation, in which both ends are in this program.
    pub const fn whole(seed: Seed, credit: Span, mtu: Bytes) -> Self {
        Self { seed, credit, mtu, apart: None }
    }
}

/// Settings for a flow whose other end is another program.
#[derive(Clone, Debug)]
pub struct RemotePeer {
    /// This end's canonical name (CNAME).
    pub cname: String,
    /// The address of a sender's only receiver.
    pub peer: Option<Origin>,
    /// The bytes that authentication adds to a packet.
    pub tag: u64,
    /// The wall-clock time of time zero.
    pub epoch: NtpEpoch,
    /// The RTP payload type of the media.
    pub payload_type: u8,
    /// The RTP payload type of retransmissions.
    pub again: u8,
    /// The RTP payload type of audio.
    pub audio: u8,
    /// Whether the video's per-packet feedback covers audio packets ([`AudioSettings::shares_feedback`]).
    pub audio_shares_feedback: bool,
    /// The ids of the RTP header extensions.
    pub ids: HeaderIds,
    /// Whether the receiver is authenticated, as browsers are by DTLS.
    pub authenticated: bool,
    /// The minimum rate if neither the scenario nor the media sets a minimum. An operator can't set a lower rate.
    pub floor: Rate,
    /// The assumed play-out delay of a receiver that announces none.
    pub playout: Span,
    /// The time for which a packet is useful after its frame was ready, if no play-out delay is announced; `None` is
    /// one second.
    pub useful: Option<Span>,
    /// The limits that an operator may change.
    pub operator: OperatorControls,
}

/// The source of a flow's frames.
#[derive(Clone, Debug)]
pub enum Supply {
    /// No frames: data without end, or this number of bytes.
    Endless(Option<Bytes>),
    /// A clip that was encoded at each quantizer.
    Ladder(Arc<Ladder>),
    /// RFC 8593's codec, whose traced models use a ladder's frame sizes.
    Codec(CodecSettings, Option<Arc<Ladder>>),
    /// An encoder that runs during the flow.
    Encoder,
}

fn fits(flow: &str, ladder: &Ladder) -> Result<(), BuildError> {
    ladder.check().map_err(|error| BuildError::new(format!("flow.{flow}.media"), error))
}

impl Supply {
    /// Returns where the flow's frames come from. `ladder` has the coded sizes of a clip's frames.
    fn of(flow: &str, video: &sc::Video, ladder: Option<&Arc<Ladder>>) -> Result<Self, BuildError> {
        let checked = || {
            let none = "no frame sizes were given; encode the clip first, or take media = \"greedy\"";
            let ladder = ladder.ok_or_else(|| BuildError::new(format!("flow.{flow}.media"), none))?;
            fits(flow, ladder).map(|()| Arc::clone(ladder))
        };
        match &video.media {
            sc::Media::Greedy { bytes } => Ok(Self::Endless(*bytes)),
            sc::Media::Rfc8593 { codec, .. } => {
                let ladder = if codec.model == CodecModel::Statistical { None } else { Some(checked()?) };
                // The frame period of the ladder's clip.
                let t0 = match &ladder {
                    Some(ladder) => ladder.time(1),
                    // RFC 8593 defines its values for 30 frames per second.
                    None => Span::from_secs_f64(1.0 / video.encode.fps.number().unwrap_or(30.0)),
                };
                Ok(Self::Codec(CodecSettings { t0, ..codec.clone() }, ladder))
            }
            _ => checked().map(Self::Ladder),
        }
    }

    const fn is_endless(&self) -> bool {
        matches!(self, Self::Endless(_))
    }

    /// Returns the lowest and highest rate of the frames, in packets of `payload` and `headers` bytes.
    fn range(&self, payload: u64, headers: u64) -> Option<(Rate, Rate)> {
        match self {
            Self::Endless(_) | Self::Encoder => None,
            Self::Ladder(ladder) => Some(ladder.range(payload, headers)),
            Self::Codec(codec, _) => Some((codec.r_min, codec.r_max)),
        }
    }

    fn pictures(&self, gop: u32, payload: u64, headers: u64) -> Option<Pictures> {
        match self {
            Self::Endless(_) | Self::Encoder => None,
            Self::Ladder(ladder) => Some(pictures(ladder, payload, headers)),
            Self::Codec(codec, _) => Some(codec_pictures(codec, gop)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Repairs {
    again: bool,
    parity: bool,
}

impl Repairs {
    /// Returns a video's kinds of repair. `auto` is parity, plus retransmissions for a single receiver under AVPF.
    fn of(video: &sc::Video, group: bool) -> Self {
        let asks = !group && video.rtcp.profile == sc::RtcpProfile::Avpf;
        let auto = video.repair == sc::Repair::Auto;
        Self {
            again: video.repair == sc::Repair::Rtx || auto && asks,
            parity: video.repair == sc::Repair::Parity || auto,
        }
    }

    /// Returns the bytes by which a repair packet exceeds the original.
    const fn more(self) -> u64 {
        match self {
            Self { parity: true, .. } => PARITY_MORE.get(),
            Self { again: true, .. } => OSN as u64,
            _ => 0,
        }
    }
}

/// The parts of a video flow that are a Python class or a program.
#[derive(Clone, Copy, Default)]
pub struct ExternalParts<'a> {
    /// The factory of a controller that is not in the registry.
    pub controller: Option<&'a Arc<dyn Factory>>,
    /// The factory of a switching rule that is not the built-in one.
    pub switching: Option<&'a Arc<dyn SwitchingFactory>>,
}

/// The configuration of a video flow's two ends.
pub struct VideoPlan {
    flow: String,
    video: sc::Video,
    place: HostContext,
    senders: Arc<dyn Factory>,
    receivers: Arc<dyn Factory>,
    /// Whether the controller is in the registry.
    registered: bool,
    /// Set if the switching rule is a class or a program.
    switching: Option<Arc<dyn SwitchingFactory>>,
    feedback: FeedbackFormat,
    rtcp: RtcpSettings,
    supply: Supply,
    /// The setup of the controller's sender and receiver halves, without identity and random source.
    setup: Setup,
    /// The highest rate that the media needs.
    top: Option<Rate>,
    payload: u64,
    headers: u64,
    repairs: Repairs,
    /// The audio's bit rate including IP headers; zero without audio.
    audio: Rate,
}

impl VideoPlan {
    /// Creates the plan of a scenario's flow; `ladder` has its frame sizes.
    ///
    /// # Errors
    /// The controller or the ladder is not valid.
    pub fn of(
        flow: &sc::Flow,
        video: &sc::Video,
        external: ExternalParts<'_>,
        ladder: Option<&Arc<Ladder>>,
        place: HostContext,
    ) -> Result<Self, BuildError> {
        let choice = ControllerChoice::of(flow, video, external)?;
        let supply = Supply::of(&flow.name, video, ladder)?;
        Ok(choice.planned(flow, video, supply, place))
    }

    /// Creates the plan of a flow with frames from `supply`.
    ///
    /// # Errors
    /// See [`VideoPlan::of`].
    pub fn supplied(
        flow: &sc::Flow,
        video: &sc::Video,
        supply: Supply,
        place: HostContext,
    ) -> Result<Self, BuildError> {
        if let Supply::Ladder(ladder) = &supply {
            fits(&flow.name, ladder)?;
        }
        Ok(ControllerChoice::of(flow, video, ExternalParts::default())?.planned(flow, video, supply, place))
    }

    /// Returns the name of the controller's APP packets.
    pub fn app(&self) -> [u8; 4] {
        self.senders.terms().app
    }

    /// Returns the format of per-packet feedback.
    pub const fn feedback(&self) -> FeedbackFormat {
        self.feedback
    }

    /// Changes the RTCP settings.
    #[must_use]
    pub fn timed(self, change: impl FnOnce(RtcpSettings) -> RtcpSettings) -> Self {
        Self { rtcp: change(self.rtcp), ..self }
    }

    /// Returns a random source that depends only on the seed and the name.
    pub fn chance(&self, name: &str) -> Chance {
        self.place.seed.part(name)
    }

    /// Returns the controller's mode.
    pub const fn mode(&self) -> Mode {
        self.video.mode
    }

    /// Returns the maximum rate.
    pub const fn cap(&self) -> Rate {
        self.setup.cap
    }

    /// Returns the maximum payload of a packet in bytes.
    pub const fn payload(&self) -> u64 {
        self.payload
    }

    /// Returns the size of a packet's headers in bytes.
    pub const fn headers(&self) -> u64 {
        self.headers
    }

    /// Creates an encoder with a ladder's frame sizes.
    pub fn encoder(&self, ladder: &Arc<Ladder>) -> Encoder {
        // In Evalvid-RA (`paper`), a backlog persists.
        let waiting = if self.video.mode == Mode::Paper { BacklogRule::Damped } else { BacklogRule::Drained };
        let encoder = Encoder::new(Arc::clone(ladder), self.video.vbr.clone(), waiting, self.payload, self.headers);
        match &self.switching {
            Some(external) => encoder.switched_by(external.rule()),
            None => encoder,
        }
    }

    /// Creates an encoder of frames with sizes but no bytes.
    fn sized_feed(&self, name: &str) -> Option<Box<dyn Feed>> {
        match &self.supply {
            Supply::Endless(_) | Supply::Encoder => None,
            Supply::Ladder(ladder) => Some(Box::new(self.encoder(ladder))),
            Supply::Codec(codec, ladder) => {
                let chance = self.place.seed.part(&format!("{name}.codec"));
                let (payload, headers) = (self.payload, self.headers);
                Some(Box::new(SyntheticCodec::new(codec.clone(), ladder.clone(), payload, headers, chance)))
            }
        }
    }

    /// Returns an end's identity. It depends on the name only, so that further receivers change no SSRCs.
    fn identity(&self, name: &str) -> Identity {
        let ssrc = self.place.seed.part(&format!("{name}.ssrc")).bits32();
        let cname = self.place.apart.as_ref().map_or(name, |apart| &apart.cname).to_owned();
        Identity { ssrc, cname }
    }

    fn setup(&self, name: &str, ssrc: u32) -> Setup {
        let chance = self.place.seed.part(&format!("{name}.half"));
        // A multiplicative controller would never leave a rate of zero.
        Setup { id: ReceiverId(ssrc), chance, ..self.setup.clone() }.alive()
    }

    /// Returns the first sequence number.
    pub fn first_seq(&self) -> u16 {
        let drawn = || self.place.seed.part(&format!("flow.{}.seq", self.flow)).bits32() as u16;
        self.video.first.seq.unwrap_or_else(drawn)
    }

    /// Returns the settings of a session's retransmission stream, if any.
    pub fn repair(&self, session: &str) -> Option<RepairSettings> {
        self.repairs.again.then(|| RepairSettings {
            ssrc: self.place.seed.part(&format!("{session}.repair.ssrc")).bits32(),
            payload_type: self.place.apart.as_ref().map_or(RETRANSMISSION_PAYLOAD_TYPE, |apart| apart.again),
            playout: self.place.apart.as_ref().map_or_else(|| self.video.playout.most(), |apart| apart.useful),
        })
    }

    /// Returns the settings of a session's parity stream, if any.
    pub fn parity(&self, session: &str) -> Option<ParitySettings> {
        let known = || self.video.playout.most();
        self.repairs.parity.then(|| ParitySettings {
            ssrc: self.place.seed.part(&format!("{session}.parity.ssrc")).bits32(),
            payload_type: PARITY_PAYLOAD_TYPE,
            playout: self.place.apart.as_ref().map_or_else(known, |apart| Some(apart.playout)),
        })
    }

    /// Returns the settings of a session's audio stream, if any.
    pub fn audio(&self, session: &str) -> Option<AudioSettings> {
        let drawn = |what: &str| self.place.seed.part(&format!("{session}.audio.{what}")).bits32();
        self.video.audio.map(|_| AudioSettings {
            ssrc: drawn("ssrc"),
            payload_type: self.place.apart.as_ref().map_or(AUDIO_PAYLOAD_TYPE, |apart| apart.audio),
            rate: self.audio,
            shares_feedback: self.place.apart.as_ref().is_none_or(|apart| apart.audio_shares_feedback),
            first_seq: drawn("seq") as u16,
            first_timestamp: drawn("timestamp"),
        })
    }

    /// Returns the settings of the sender with this name.
    pub fn sender(&self, name: &str) -> SenderSettings {
        let (video, seed) = (&self.video, self.place.seed);
        let apart = self.place.apart.as_ref();
        let drawn = || seed.part(&format!("{name}.timestamp")).bits32();
        let plain = SenderSettings::new(self.identity(name), self.rtcp, video.packet, self.app());
        SenderSettings {
            payload_type: apart.map_or(MEDIA_PAYLOAD_TYPE, |apart| apart.payload_type),
            ids: apart.map(|apart| apart.ids).unwrap_or_default(),
            emit: video.emit,
            credit: self.place.credit,
            cap: video.cap,
            greedy: self.supply.is_endless(),
            gated: video.defences,
            feedback: self.feedback,
            first_seq: self.first_seq(),
            first_timestamp: video.first.timestamp.unwrap_or_else(drawn),
            epoch: apart.map_or(plain.epoch, |apart| apart.epoch),
            peer: apart.and_then(|apart| apart.peer),
            ..plain
        }
    }

    /// Creates a session's source. Without `feed`, frames have only sizes. Averages begin at `from`.
    pub fn source(
        &self,
        session: &str,
        feed: Option<Box<dyn Feed>>,
        siblings: Option<Siblings>,
        from: Time,
    ) -> VideoSource {
        let (video, name) = (&self.video, format!("{session}.src"));
        let repair = self.repair(session);
        let settings = SenderSettings {
            ecn: video.ecn,
            room: if let Vbr::Frame(PerFrame { room, .. }) = video.vbr { room } else { 1.0 },
            padding: video.padding,
            parity: self.parity(session),
            // With retransmissions, a receiver gets parity only if it announces that retransmissions would be late.
            parity_on_word: repair.is_some() && self.place.apart.is_some(),
            repair,
            audio: self.audio(session),
            siblings,
            ..self.sender(&name)
        };
        let setup = self.setup(&name, settings.identity.ssrc);
        let chance = self.place.seed.part(&format!("{name}.rtcp"));
        // A cap at or above the media's highest rate has no effect.
        let by_ladder = self.top.is_some_and(|top| self.setup.cap >= top);
        let feed = feed.or_else(|| self.sized_feed(&name));
        let senders = Arc::clone(&self.senders);
        let mut source = VideoSource::new(settings, senders, setup, feed, by_ladder, chance, from);
        source.audio = video.audio.map(|rate| Box::new(ConstantAudio::new(rate)) as Box<dyn AudioFeed>);
        source.amount = if let Supply::Endless(amount) = self.supply { amount } else { None };
        source
    }

    /// Returns a function that creates a session's receiver `n`. `chosen` is whether it can choose a simulcast's group.
    pub fn receiver(self: &Arc<Self>, n: usize, session: &str, chosen: bool) -> MakeReceiver {
        let plan = Arc::clone(self);
        let name = format!("{session}.dst{}", n + 1);
        let (repair, parity, audio) = (plan.repair(session), plan.parity(session), plan.audio(session));
        Box::new(move |now, times| {
            let (receiver, name) = plan.bare_receiver(&name, now, times);
            let receiver = match repair {
                Some(repair) => receiver.with_repair(repair),
                None => receiver,
            };
            let receiver = match parity {
                Some(parity) => receiver.with_parity(parity, plan.place.seed.part(&format!("{name}.parity"))),
                None => receiver,
            };
            let receiver = match audio {
                Some(audio) => receiver.with_audio(audio.payload_type),
                None => receiver,
            };
            if chosen { receiver.in_simulcast(now) } else { receiver }
        })
    }

    /// Creates a receiver without repair, and returns it with its name. The name contains the join's number `times`
    /// (from 0), because each join needs a new SSRC.
    pub fn bare_receiver(&self, name: &str, now: Time, times: u32) -> (Receiver, String) {
        let name = if times == 0 { name.to_owned() } else { format!("{name}.{times}") };
        let identity = self.identity(&name);
        let coarse = self.video.feedback.coarse_receiver(!self.registered);
        let half = coarse.unwrap_or_else(|| self.receivers.receiver(&self.setup(&name, identity.ssrc)));
        let chance = self.place.seed.part(&format!("{name}.rtcp"));
        let receiver = Receiver::new(identity, self.rtcp, self.receivers.terms().app, half, chance, now)
            .with_feedback(self.feedback, self.rtcp.session_bandwidth);
        (receiver, name)
    }

    /// Creates a sink from the function of [`VideoPlan::receiver`].
    pub fn sink(&self, make: MakeReceiver, intake: Intake) -> VideoSink {
        let video = &self.video;
        let period = self.setup.pictures.as_ref().map_or(Span::ZERO, |p| p.frame);
        let consumed = |b: &sc::Buffer| b.consume.map_or(Consume::Frames(period), Consume::Rate);
        let mut sink = VideoSink::new(make, intake, !self.supply.is_endless(), self.first_seq());
        sink.buffer = video.buffer.as_ref().map(|b| Box::new(PlayBuffer::new(b.size, consumed(b))));
        sink.skew = Skew::new(video.clock.ahead, video.clock.drift);
        sink.repair = self.repairs.again || self.repairs.parity;
        sink.audio = video.audio.map(|_| Box::default());
        sink.player = match video.playout {
            sc::Playout::Adaptive(bounds) => {
                // Frames from a codec are not evenly spaced in time.
                let regular = !matches!(self.supply, Supply::Codec(..));
                Player::adaptive(bounds, regular.then_some(period))
            }
            fixed => Player::fixed(fixed.most()),
        };
        sink
    }
}

struct ControllerChoice {
    factory: Arc<dyn Factory>,
    /// Set if the switching rule is a class or a program.
    switching: Option<Arc<dyn SwitchingFactory>>,
    /// Whether the controller is in the registry.
    registered: bool,
    /// The per-packet feedback that the controller needs.
    own: FeedbackFormat,
    group: bool,
}

impl ControllerChoice {
    fn of(flow: &sc::Flow, video: &sc::Video, external: ExternalParts<'_>) -> Result<Self, BuildError> {
        let wrong = |error| BuildError::new(format!("flow.{}.controller", flow.name), error);
        let factory = match external.controller {
            Some(factory) => Arc::clone(factory),
            None => Arc::new(video.chosen().map_err(wrong)?),
        };
        let group = flow.cast == sc::Cast::Multicast;
        let format = FeedbackFormat::own_of(&*factory, group);
        let switching = external.switching.map(Arc::clone);
        if let (Some(name), None) = (video.outside_switching(), &switching) {
            // An interpreter or a program could delay a live session's packets.
            let what = format!(
                "{name} switches simulated and emulated flows alone; the built-in rule is \"{BUILT_IN_SWITCHING}\""
            );
            return Err(BuildError::new(format!("flow.{}.switching", flow.name), what));
        }
        Ok(Self { factory, switching, registered: external.controller.is_none(), own: format, group })
    }

    fn planned(self, flow: &sc::Flow, video: &sc::Video, supply: Supply, place: HostContext) -> VideoPlan {
        let feedback = video.feedback.or(self.own);
        let repairs = Repairs::of(video, self.group);
        let headers = match &place.apart {
            // If both ends are in this program, the sender subtracts each packet's actual header extensions from the
            // payload.
            None => HEADER_BYTES,
            Some(apart) => HEADER_BYTES + self.elements(feedback) + apart.tag + repairs.more(),
        };
        let payload = payload(video.packet, headers, place.apart.is_some());
        let audio = video.audio.map_or(Rate::ZERO, |rate| {
            let number = if feedback == FeedbackFormat::TransportWide { TRANSPORT_NUMBER_BYTES } else { 0 };
            let tag = place.apart.as_ref().map_or(0, |apart| apart.tag);
            packet_rate(rate, Bytes::new(HEADER_BYTES + number + tag))
        });
        // Audio is sent in addition to the pictures.
        let range = supply.range(payload, headers).map(|(low, high)| (low + audio, high + audio));
        VideoPlan {
            flow: flow.name.clone(),
            senders: self.senders(video, feedback, &place),
            receivers: self.receivers(feedback),
            registered: self.registered,
            switching: self.switching,
            feedback,
            rtcp: RtcpSettings {
                authenticated: place.apart.as_ref().is_some_and(|apart| apart.authenticated),
                real_time: place.apart.is_some(),
                ..rtcp(video, self.group, place.mtu)
            },
            setup: Setup {
                pictures: supply.pictures(video.encode.gop, payload, headers).map(Arc::new),
                ..setup(video, self.group, range, place.apart.as_ref(), audio)
            },
            top: range.map(|range| range.1),
            payload,
            headers,
            repairs,
            audio,
            supply,
            place,
            video: video.clone(),
        }
    }

    /// Returns the maximum bytes of a packet's header extensions, without the send time.
    fn elements(&self, feedback: FeedbackFormat) -> u64 {
        // Only a controller with its own report format sends a `Notice`.
        let silent = self.factory.terms().extension == 0 || self.own != FeedbackFormat::Own;
        let number = if feedback == FeedbackFormat::TransportWide { TRANSPORT_NUMBER_BYTES } else { 0 };
        number + if silent { 0 } else { MAX_NOTICE_BYTES }
    }

    /// Returns whether the receiver halves run at the sender.
    fn replayed(&self, feedback: FeedbackFormat) -> bool {
        self.registered && feedback.is_replayed_for(self.own)
    }

    fn receivers(&self, feedback: FeedbackFormat) -> Arc<dyn Factory> {
        let own = Arc::clone(&self.factory);
        if self.replayed(feedback) { Replayed::around(own, Span::ZERO) } else { own }
    }

    /// Returns the factory of sender halves. Its layers, from the controller outwards: replay of the receiver half,
    /// standard reports, circuit breaker (RFC 8083), plausibility checks.
    fn senders(&self, video: &sc::Video, feedback: FeedbackFormat, place: &HostContext) -> Arc<dyn Factory> {
        let own = Arc::clone(&self.factory);
        let factory = if self.replayed(feedback) { Replayed::at_sender(own, Span::ZERO) } else { own };
        // Coarse feedback has only packet counts. [`StandardReports`] converts these to arrivals for a receiver half.
        let blocks = self.registered && video.feedback.is_coarse();
        if !video.defences && !blocks {
            return factory;
        }
        let operator = place.apart.as_ref().map(|apart| apart.operator.clone()).unwrap_or_default();
        let reads = video.controller.entry().is_some_and(|entry| entry.standard_reports);
        let served = StandardReports::new(factory, reads);
        if !video.defences {
            return Arc::new(served);
        }
        // Receivers may send standard reports before they begin to report packets.
        let served = if feedback == FeedbackFormat::Own { served } else { served.expecting_packets() };
        // The operator's floor applies even if receivers never report.
        let guarded = CircuitBreaker::new(Arc::new(served), operator.clone()).provided(video.floor.is_some());
        Arc::new(FeedbackDefence::new(Arc::new(guarded), operator))
    }
}

/// Returns a packet's maximum payload in bytes.
fn payload(packet: Bytes, headers: u64, apart: bool) -> u64 {
    // At least 64 bytes for separate programs (`apart`), which send real bytes.
    packet.get().saturating_sub(headers).max(if apart { 64 } else { 1 })
}

fn rtcp(video: &sc::Video, group: bool, mtu: Bytes) -> RtcpSettings {
    let profile = match video.rtcp.profile {
        sc::RtcpProfile::Rfc3550 => Profile::Rfc3550,
        sc::RtcpProfile::Asmp => Profile::Asmp,
        // With a T_rr_interval of 0, no regular report is suppressed (RFC 4585, section 3.4).
        sc::RtcpProfile::Avpf => Profile::Avpf { t_rr_interval: Span::ZERO },
    };
    let summary = group && video.rtcp.reports == sc::Reports::Source;
    RtcpSettings { t_min: video.rtcp.t_min, group, summary, mtu, ..RtcpSettings::new(profile, video.rtcp.session_bw) }
}

/// Returns the halves' setup without pictures, within the limits of flow and media. `audio` is a constant rate on top.
fn setup(
    video: &sc::Video,
    group: bool,
    range: Option<(Rate, Rate)>,
    apart: Option<&RemotePeer>,
    audio: Rate,
) -> Setup {
    let cap = video.cap.unwrap_or(Rate::MAX).min(range.map_or(Setup::NO_CAP, |range| range.1));
    let own = apart.map_or(Rate::ZERO, |apart| apart.floor) + audio;
    let lowest = range.map_or(own, |range| range.0);
    let mut floor = video.floor.map_or(lowest, |floor| floor + audio).min(cap);
    // With defences, the operator's floor is enforced outside of the controller.
    if let Some(apart) = apart.filter(|_| video.defences) {
        apart.operator.limit(Some(floor), None);
        floor = floor.min(range.map_or(own, |range| range.0.max(own)));
    }
    Setup {
        packet: video.packet,
        mode: video.mode,
        floor,
        cap,
        pictures: None,
        session_bandwidth: video.rtcp.session_bw,
        group,
        id: ReceiverId(0),
        // `VideoPlan::setup` replaces it for each half.
        chance: Seed(0).part(""),
        ecn: video.ecn,
        probes: true,
    }
}

/// Returns a ladder's description for controllers.
fn pictures(ladder: &Ladder, payload: u64, headers: u64) -> Pictures {
    let rung = |(row, quantizer): (usize, &u8)| {
        let (rate, peak) = ladder.rates(row, payload, headers);
        Rung { quantizer: *quantizer, rate, peak }
    };
    Pictures {
        frame: ladder.time(1),
        group: ladder.span(u64::from(ladder.gop)),
        rungs: ladder.quantizers.iter().enumerate().map(rung).collect(),
    }
}

/// Describes RFC 8593's codec to controllers. The codec has no quantizers, so quantizers 2, 4 … 62 stand for equally
/// spaced rates from `r_max` down to `r_min`.
fn codec_pictures(codec: &CodecSettings, gop: u32) -> Pictures {
    let step = codec.r_max.saturating_sub(codec.r_min).as_bps_f64() / 30.0;
    let rate = |n: u8| Rate::from_bps_f64(codec.r_max.as_bps_f64() - step * f64::from(n));
    let rungs = (0..31).map(|n| Rung { quantizer: 2 * (n + 1), rate: rate(n), peak: rate(n) }).collect();
    Pictures { frame: codec.t0, group: codec.t0.scale(f64::from(gop)), rungs }
}
