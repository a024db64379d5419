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

/// Size of the headers of a packet, in bytes: IP, UDP, RTP and the extension with the send time. A controller's header
/// extension (`Notice`) is not included.
const HEADER_BYTES: u64 = 28 + 12 + 4 + 8;
/// Size of the largest `Notice`, in bytes. It includes the header of its extension element.
const MAX_NOTICE_BYTES: u64 = 24;
/// Size of the header extension element that contains the transport-wide sequence number, in bytes.
const TRANSPORT_NUMBER_BYTES: u64 = 4;
/// RTP payload type of media that has no static type.
const MEDIA_PAYLOAD_TYPE: u8 = 96;
/// Default RTP payload type of retransmissions.
pub const RETRANSMISSION_PAYLOAD_TYPE: u8 = 97;
const PARITY_PAYLOAD_TYPE: u8 = 98;
/// Default RTP payload type of audio. libwebrtc uses it for Opus.
pub const AUDIO_PAYLOAD_TYPE: u8 = 111;

/// Settings of the host. A flow needs them in addition to its own settings.
#[derive(Clone, Debug)]
pub struct HostContext {
    /// Seed for the SSRCs, and for the first sequence numbers and timestamps that the flow does not set.
    pub seed: Seed,
    /// Maximum delay that a source makes up for when it wakes late. It is zero in virtual time.
    pub credit: Span,
    /// The MTU of the path.
    pub mtu: Bytes,
    /// Settings for a flow whose other end is another program. `None` if both ends are in this program.
    pub apart: Option<RemotePeer>,
}

impl HostContext {
    /// Creates the context of a simulation or emulation. Both ends are then in this program.
    pub const fn whole(seed: Seed, credit: Span, mtu: Bytes) -> Self {
        Self { seed, credit, mtu, apart: None }
    }
}

/// Settings for a flow whose other end is another program.
#[derive(Clone, Debug)]
pub struct RemotePeer {
    /// This end's canonical name (CNAME).
    pub cname: String,
    /// The receiver's address if the sender has only one receiver.
    pub peer: Option<Origin>,
    /// Number of bytes that authentication adds to a packet.
    pub tag: u64,
    /// Wall-clock time that corresponds to time zero.
    pub epoch: NtpEpoch,
    /// The RTP payload type of the media.
    pub payload_type: u8,
    /// The RTP payload type of retransmissions.
    pub again: u8,
    /// The RTP payload type of audio.
    pub audio: u8,
    /// Whether the video's per-packet feedback includes audio packets ([`AudioSettings::shares_feedback`]).
    pub audio_shares_feedback: bool,
    /// The ids of the RTP header extensions.
    pub ids: HeaderIds,
    /// Whether the receiver is authenticated, as browsers are by DTLS.
    pub authenticated: bool,
    /// Minimum rate if neither the scenario nor the media sets one. An operator can't set a lower rate.
    pub floor: Rate,
    /// Play-out delay to assume for a receiver that announces none.
    pub playout: Span,
    /// How long a packet is useful after its frame was ready, if the receiver announces no play-out delay. `None`
    /// stands for one second.
    pub useful: Option<Span>,
    /// Limits that an operator may change.
    pub operator: OperatorControls,
}

/// The source of a flow's frames.
#[derive(Clone, Debug)]
pub enum Supply {
    /// No frames. The data is endless, or has this number of bytes.
    Endless(Option<Bytes>),
    /// The frame sizes of a clip that was encoded once with each quantizer.
    Ladder(Arc<Ladder>),
    /// RFC 8593's codec model. Its traced models use the frame sizes of a ladder.
    Codec(CodecSettings, Option<Arc<Ladder>>),
    /// An encoder that runs during the flow.
    Encoder,
}

fn fits(flow: &str, ladder: &Ladder) -> Result<(), BuildError> {
    ladder.check().map_err(|error| BuildError::new(format!("flow.{flow}.media"), error))
}

impl Supply {
    /// Chooses where a flow's frames come from. `ladder` has the sizes of a clip's encoded frames.
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
                // Use the frame period of the ladder's clip.
                let t0 = match &ladder {
                    Some(ladder) => ladder.time(1),
                    // RFC 8593 defines its values for 30 frames per second, so use this rate by default.
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

    /// Returns the lowest and the highest rate of the frames. A packet has up to `payload` bytes and `headers` bytes of
    /// headers.
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
    /// Returns which repairs a video uses. The setting `auto` means parity. If the flow is not multicast and the
    /// profile is AVPF, `auto` also means retransmissions.
    fn of(video: &sc::Video, group: bool) -> Self {
        let asks = !group && video.rtcp.profile == sc::RtcpProfile::Avpf;
        let auto = video.repair == sc::Repair::Auto;
        Self {
            again: video.repair == sc::Repair::Rtx || auto && asks,
            parity: video.repair == sc::Repair::Parity || auto,
        }
    }

    /// Returns by how many bytes a repair packet is larger than the original packet.
    const fn more(self) -> u64 {
        match self {
            Self { parity: true, .. } => PARITY_MORE.get(),
            Self { again: true, .. } => OSN as u64,
            _ => 0,
        }
    }
}

/// Parts of a video flow that are a Python class or another program.
#[derive(Clone, Copy, Default)]
pub struct ExternalParts<'a> {
    /// Creates controllers that are not in the registry.
    pub controller: Option<&'a Arc<dyn Factory>>,
    /// Creates switching rules other than the built-in rule.
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
    /// Set if the switching rule is a Python class or another program.
    switching: Option<Arc<dyn SwitchingFactory>>,
    feedback: FeedbackFormat,
    rtcp: RtcpSettings,
    supply: Supply,
    /// Parameters with which the controller's sender and receiver parts are created. Their identity and random source
    /// are added later.
    setup: Setup,
    /// Highest rate that the media needs.
    top: Option<Rate>,
    payload: u64,
    headers: u64,
    repairs: Repairs,
    /// Bit rate of the audio including IP headers. Zero if there is no audio.
    audio: Rate,
}

impl VideoPlan {
    /// Creates the plan of a scenario's flow. `ladder` has the sizes of the flow's frames.
    ///
    /// # Errors
    /// The controller or the ladder is invalid.
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

    /// Creates the plan of a flow whose frames come from `supply`.
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

    /// Returns the name in the APP packets that the controller sends.
    pub fn app(&self) -> [u8; 4] {
        self.senders.terms().app
    }

    /// Returns the format of the feedback.
    pub const fn feedback(&self) -> FeedbackFormat {
        self.feedback
    }

    /// Returns the plan with RTCP settings that `change` has changed.
    #[must_use]
    pub fn timed(self, change: impl FnOnce(RtcpSettings) -> RtcpSettings) -> Self {
        Self { rtcp: change(self.rtcp), ..self }
    }

    /// Returns a random source that depends only on the seed and on `name`.
    pub fn chance(&self, name: &str) -> Chance {
        self.place.seed.part(name)
    }

    /// Returns the controller's mode.
    pub const fn mode(&self) -> Mode {
        self.video.mode
    }

    /// Returns the maximum rate of the flow.
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

    /// Creates an encoder whose frames have the sizes of `ladder`.
    pub fn encoder(&self, ladder: &Arc<Ladder>) -> Encoder {
        // Evalvid-RA keeps a backlog. Do the same in the mode `paper`.
        let waiting = if self.video.mode == Mode::Paper { BacklogRule::Damped } else { BacklogRule::Drained };
        let encoder = Encoder::new(Arc::clone(ladder), self.video.vbr.clone(), waiting, self.payload, self.headers);
        match &self.switching {
            Some(external) => encoder.switched_by(external.rule()),
            None => encoder,
        }
    }

    /// Creates an encoder whose frames have sizes but no bytes.
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

    /// Returns the identity of one end of the flow. It depends only on the end's name, so that SSRCs stay the same if
    /// receivers are added.
    fn identity(&self, name: &str) -> Identity {
        let ssrc = self.place.seed.part(&format!("{name}.ssrc")).bits32();
        let cname = self.place.apart.as_ref().map_or(name, |apart| &apart.cname).to_owned();
        Identity { ssrc, cname }
    }

    fn setup(&self, name: &str, ssrc: u32) -> Setup {
        let chance = self.place.seed.part(&format!("{name}.half"));
        // Raise a rate of zero, because a multiplicative controller could never leave it.
        Setup { id: ReceiverId(ssrc), chance, ..self.setup.clone() }.alive()
    }

    /// Returns the first sequence number of the media.
    pub fn first_seq(&self) -> u16 {
        let drawn = || self.place.seed.part(&format!("flow.{}.seq", self.flow)).bits32() as u16;
        self.video.first.seq.unwrap_or_else(drawn)
    }

    /// Returns the settings of a session's retransmission stream. Returns `None` if the flow uses no retransmissions.
    pub fn repair(&self, session: &str) -> Option<RepairSettings> {
        self.repairs.again.then(|| RepairSettings {
            ssrc: self.place.seed.part(&format!("{session}.repair.ssrc")).bits32(),
            payload_type: self.place.apart.as_ref().map_or(RETRANSMISSION_PAYLOAD_TYPE, |apart| apart.again),
            playout: self.place.apart.as_ref().map_or_else(|| self.video.playout.most(), |apart| apart.useful),
        })
    }

    /// Returns the settings of a session's parity stream. Returns `None` if the flow uses no parity.
    pub fn parity(&self, session: &str) -> Option<ParitySettings> {
        let known = || self.video.playout.most();
        self.repairs.parity.then(|| ParitySettings {
            ssrc: self.place.seed.part(&format!("{session}.parity.ssrc")).bits32(),
            payload_type: PARITY_PAYLOAD_TYPE,
            playout: self.place.apart.as_ref().map_or_else(known, |apart| Some(apart.playout)),
        })
    }

    /// Returns the settings of a session's audio stream. Returns `None` if the flow has no audio.
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

    /// Returns the settings of the sender that is called `name`.
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

    /// Creates the source of a session. If `feed` is `None`, frames have sizes but no bytes. Averages are taken from
    /// the time `from` on.
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
            // If retransmissions are on, a receiver gets parity only after it announces that retransmissions would be
            // late.
            parity_on_word: repair.is_some() && self.place.apart.is_some(),
            repair,
            audio: self.audio(session),
            siblings,
            ..self.sender(&name)
        };
        let setup = self.setup(&name, settings.identity.ssrc);
        let chance = self.place.seed.part(&format!("{name}.rtcp"));
        // A cap at or above the highest rate of the media has no effect. The media's highest rate is then the limit.
        let by_ladder = self.top.is_some_and(|top| self.setup.cap >= top);
        let feed = feed.or_else(|| self.sized_feed(&name));
        let senders = Arc::clone(&self.senders);
        let mut source = VideoSource::new(settings, senders, setup, feed, by_ladder, chance, from);
        source.audio = video.audio.map(|rate| Box::new(ConstantAudio::new(rate)) as Box<dyn AudioFeed>);
        source.amount = if let Supply::Endless(amount) = self.supply { amount } else { None };
        source
    }

    /// Returns a function that creates receiver `n` of a session. `chosen` says whether the receiver can choose a group
    /// of a simulcast.
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

    /// Creates a receiver that does not use repair. Returns it with its name. The name contains the number `times` of
    /// the join, counted from 0, because each join needs a new SSRC.
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

    /// Creates a sink. Its receivers are created by `make`, which comes from [`VideoPlan::receiver`].
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
                // Frames from a codec model are not evenly spaced in time, so set no period for them.
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
    /// Set if the switching rule is a Python class or another program.
    switching: Option<Arc<dyn SwitchingFactory>>,
    /// Whether the controller is in the registry.
    registered: bool,
    /// Format of the feedback that the controller needs.
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
            // Only a live session has no factory for a switching rule that is not built in. Refuse such a rule there,
            // because an interpreter or a program could delay packets.
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
            // Assume no header extensions if both ends are in this program. The sender then subtracts the actual
            // extensions of each packet from the payload.
            None => HEADER_BYTES,
            Some(apart) => HEADER_BYTES + self.elements(feedback) + apart.tag + repairs.more(),
        };
        let payload = payload(video.packet, headers, place.apart.is_some());
        let audio = video.audio.map_or(Rate::ZERO, |rate| {
            let number = if feedback == FeedbackFormat::TransportWide { TRANSPORT_NUMBER_BYTES } else { 0 };
            let tag = place.apart.as_ref().map_or(0, |apart| apart.tag);
            packet_rate(rate, Bytes::new(HEADER_BYTES + number + tag))
        });
        // Add the rate of the audio, which is sent in addition to the pictures.
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

    /// Returns the maximum size of a packet's header extensions in bytes. The send time is not included.
    fn elements(&self, feedback: FeedbackFormat) -> u64 {
        // Only a controller that has its own report format sends a `Notice`.
        let silent = self.factory.terms().extension == 0 || self.own != FeedbackFormat::Own;
        let number = if feedback == FeedbackFormat::TransportWide { TRANSPORT_NUMBER_BYTES } else { 0 };
        number + if silent { 0 } else { MAX_NOTICE_BYTES }
    }

    /// Returns whether the controller's receiver parts run at the sender.
    fn replayed(&self, feedback: FeedbackFormat) -> bool {
        self.registered && feedback.is_replayed_for(self.own)
    }

    fn receivers(&self, feedback: FeedbackFormat) -> Arc<dyn Factory> {
        let own = Arc::clone(&self.factory);
        if self.replayed(feedback) { Replayed::around(own, Span::ZERO) } else { own }
    }

    /// Returns the factory that creates the controller's sender parts. It adds up to four layers around the controller.
    /// The innermost layer is the replay of the receiver part. The next layers are standard reports and the circuit
    /// breaker (RFC 8083). The outermost layer is the plausibility checks.
    fn senders(&self, video: &sc::Video, feedback: FeedbackFormat, place: &HostContext) -> Arc<dyn Factory> {
        let own = Arc::clone(&self.factory);
        let factory = if self.replayed(feedback) { Replayed::at_sender(own, Span::ZERO) } else { own };
        // Coarse feedback contains only packet counts. Let [`StandardReports`] convert the counts to arrivals for the
        // controller's receiver part.
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
        // Accept a few standard reports at first, because receivers may send them before they report packets.
        let served = if feedback == FeedbackFormat::Own { served } else { served.expecting_packets() };
        // If the scenario sets a floor, the floor applies even if receivers never report.
        let guarded = CircuitBreaker::new(Arc::new(served), operator.clone()).provided(video.floor.is_some());
        Arc::new(FeedbackDefence::new(Arc::new(guarded), operator))
    }
}

/// Returns the maximum payload of a packet in bytes.
fn payload(packet: Bytes, headers: u64, apart: bool) -> u64 {
    // Leave at least 64 bytes if the other end is another program (`apart`), because real bytes are then sent.
    packet.get().saturating_sub(headers).max(if apart { 64 } else { 1 })
}

fn rtcp(video: &sc::Video, group: bool, mtu: Bytes) -> RtcpSettings {
    let profile = match video.rtcp.profile {
        sc::RtcpProfile::Rfc3550 => Profile::Rfc3550,
        sc::RtcpProfile::Asmp => Profile::Asmp,
        // T_rr_interval is 0, so no regular report is suppressed (RFC 4585, section 3.4).
        sc::RtcpProfile::Avpf => Profile::Avpf { t_rr_interval: Span::ZERO },
    };
    let summary = group && video.rtcp.reports == sc::Reports::Source;
    RtcpSettings { t_min: video.rtcp.t_min, group, summary, mtu, ..RtcpSettings::new(profile, video.rtcp.session_bw) }
}

/// Returns the parameters with which the controller's sender and receiver parts are created. The pictures, the id and
/// the random source are set later. The rates are within the limits of the flow and the media. `range` is the lowest
/// and the highest rate of the media, including audio. `audio` is the constant rate of the audio. It is added to the
/// minimum rates of the flow and of the remote peer, which do not include it.
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
    // If defences are on, enforce the operator's floor outside of the controller.
    if let Some(apart) = apart.filter(|_| video.defences) {
        apart.operator.limit(Some(floor), None);
        floor = floor.min(range.map_or(own, |range| range.0.max(own)));
    }
    Setup {
        packet: video.packet,
        mode: video.mode,
        floor,
        cap,
        capped: video.cap.is_some() || range.is_some(),
        pictures: None,
        session_bandwidth: video.rtcp.session_bw,
        group,
        id: ReceiverId(0),
        // `VideoPlan::setup` replaces this random source for each part of the controller.
        chance: Seed(0).part(""),
        ecn: video.ecn,
        probes: true,
    }
}

/// Describes a ladder to controllers.
fn pictures(ladder: &Ladder, payload: u64, headers: u64) -> Pictures {
    let rung = |(row, quantizer): (usize, &u8)| {
        let (rate, peak) = ladder.rates(row, payload, headers);
        Rung { quantizer: *quantizer, rate, peak }
    };
    Pictures {
        frame: ladder.time(1),
        group: ladder.time(u64::from(ladder.gop)),
        rungs: ladder.quantizers.iter().enumerate().map(rung).collect(),
    }
}

/// Describes RFC 8593's codec model to controllers. The model has no quantizers. Quantizers 2, 4 … 62 therefore stand
/// for equally spaced rates from `r_max` down to `r_min`.
fn codec_pictures(codec: &CodecSettings, gop: u32) -> Pictures {
    let step = codec.r_max.saturating_sub(codec.r_min).as_bps_f64() / 30.0;
    let rate = |n: u8| Rate::from_bps_f64(codec.r_max.as_bps_f64() - step * f64::from(n));
    let rungs = (0..31).map(|n| Rung { quantizer: 2 * (n + 1), rate: rate(n), peak: rate(n) }).collect();
    Pictures { frame: codec.t0, group: codec.t0.scale(f64::from(gop)), rungs }
}
