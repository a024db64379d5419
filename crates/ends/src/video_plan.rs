//! What the two ends of a video flow are made with: decided once, from the flow and the place where it runs, for every
//! world.

use crate::make::BuildError;
use crate::{Intake, MakeReceiver, Player, Skew, VideoSink, VideoSource};
use std::sync::Arc;
use steadycast_control::registry::Factory;
use steadycast_control::{FeedbackFormat, Mode, Pictures, ReceiverId, Rung, Setup};
use steadycast_media::{
    BacklogRule, CodecModel, CodecSettings, Consume, Encoder, Feed, Ladder, PerFrame, PlayBuffer, SyntheticCodec, Vbr,
};
use steadycast_scenario as sc;
use steadycast_session::{
    CircuitBreaker, FeedbackDefence, HeaderIds, Identity, OperatorControls, Origin, PARITY_MORE, ParitySettings,
    Profile, Receiver, RepairSettings, Replayed, RtcpSettings, SenderSettings, Siblings, StandardReports,
};
use steadycast_units::{Bytes, Chance, Rate, Seed, Span, Time};
use steadycast_wire::ntp::NtpEpoch;
use steadycast_wire::rtx::OSN;

/// Bytes of the IP, UDP and RTP headers with the send time: what a packet costs before its notice.
const HEADERS: u64 = 28 + 12 + 4 + 8;
/// Bytes of the largest notice in its header extension element.
const NOTICE: u64 = 24;
/// Bytes of the header extension element with the transport-wide number.
const TRANSPORT_NUMBER: u64 = 4;
/// RTP payload type of media whose format has none of its own.
const MEDIA: u8 = 96;
/// RTP payload type of packets that are sent again, where nothing else is agreed on.
pub const RETRANSMISSIONS: u8 = 97;
/// RTP payload type of parity.
const PARITY: u8 = 98;

/// What the place where a flow's ends run adds to what the flow says.
#[derive(Clone, Debug)]
pub struct Place {
    /// Draws what the flow leaves open: SSRCs, first numbers, times.
    pub seed: Seed,
    /// By how much a source that is woken late may catch up: nothing in virtual time, where nobody is late.
    pub credit: Span,
    /// The largest datagram that the way takes, as IP size.
    pub mtu: Bytes,
    /// The far end, where it is another program.
    pub apart: Option<Apart>,
}

impl Place {
    /// Both ends are in one program, which knows all that the scenario says.
    pub const fn whole(seed: Seed, credit: Span, mtu: Bytes) -> Self {
        Self { seed, credit, mtu, apart: None }
    }
}

/// What holds where the other end is another program. A receiver's play-out delay is then what it says itself, frames
/// are cut into payloads before their packets' notices are known, and an operator may move the limits of the rate.
#[derive(Clone, Debug)]
pub struct Apart {
    /// The canonical name of this end.
    pub cname: String,
    /// Where the one receiver is that a sender sends to.
    pub peer: Option<Origin>,
    /// Bytes that authentication adds to a packet.
    pub tag: u64,
    /// The wall-clock time of time zero.
    pub epoch: NtpEpoch,
    /// The RTP payload type of the media.
    pub payload_type: u8,
    /// That of packets that are sent again.
    pub again: u8,
    /// In which elements of the header extension packets carry what receivers read.
    pub ids: HeaderIds,
    /// Whether the one receiver has shown by a key that it is who it says: browsers do, by DTLS.
    pub authenticated: bool,
    /// The floor of a flow that names none and whose media has no lowest rate; no operator lowers a higher floor below
    /// it.
    pub floor: Rate,
    /// The play-out delay of a receiver of which none is known.
    pub playout: Span,
    /// How long after its frame was ready a packet is of use to a receiver that does not say so; `None`: one second.
    pub useful: Option<Span>,
    /// The limits that an operator moves.
    pub operator: OperatorControls,
}

/// Where a flow's frames come from.
#[derive(Clone, Debug)]
pub enum Supply {
    /// There are no frames: always as much as may be sent, or so much in all.
    Endless(Option<Bytes>),
    /// A clip that was encoded at every quantizer.
    Ladder(Arc<Ladder>),
    /// RFC 8593's codec, which in its traced models follows the frames of a ladder.
    Codec(CodecSettings, Option<Arc<Ladder>>),
    /// An encoder that makes frames of any size while the flow runs.
    Encoder,
}

/// Whether frame sizes can be used.
fn fits(flow: &str, ladder: &Ladder) -> Result<(), BuildError> {
    ladder.check().map_err(|error| BuildError::new(format!("flow.{flow}.media"), error))
}

impl Supply {
    /// What the scenario's media is; `ladder` has its frame sizes, where it has pictures.
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
                // A sequence has a frame rate of its own.
                let t0 = match &ladder {
                    Some(ladder) => ladder.time(1),
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

    /// The lowest and the highest rate that its frames need, in packets of `payload` bytes after `headers` bytes.
    fn range(&self, payload: u64, headers: u64) -> Option<(Rate, Rate)> {
        match self {
            Self::Endless(_) | Self::Encoder => None,
            Self::Ladder(ladder) => Some(ladder.range(payload, headers)),
            Self::Codec(codec, _) => Some((codec.r_min, codec.r_max)),
        }
    }

    /// What a controller is told of its pictures.
    fn pictures(&self, gop: u32, payload: u64, headers: u64) -> Option<Pictures> {
        match self {
            Self::Endless(_) | Self::Encoder => None,
            Self::Ladder(ladder) => Some(pictures(ladder, payload, headers)),
            Self::Codec(codec, _) => Some(codec_pictures(codec, gop)),
        }
    }
}

/// How lost packets of a flow are repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Repairs {
    /// Packets are sent again.
    again: bool,
    /// Parity is sent.
    parity: bool,
}

impl Repairs {
    /// `auto` sends again towards one receiver that may ask early, and parity to all.
    fn of(video: &sc::Video, group: bool) -> Self {
        let asks = !group && video.rtcp.profile == sc::RtcpProfile::Avpf;
        let auto = video.repair == sc::Repair::Auto;
        Self {
            again: video.repair == sc::Repair::Rtx || auto && asks,
            parity: video.repair == sc::Repair::Parity || auto,
        }
    }

    /// By how many bytes a repair is longer than the packet that it repairs.
    const fn more(self) -> u64 {
        match self {
            Self { parity: true, .. } => PARITY_MORE.get(),
            Self { again: true, .. } => OSN as u64,
            _ => 0,
        }
    }
}

/// What the two ends of a video flow are made with.
pub struct VideoPlan {
    flow: String,
    video: sc::Video,
    place: Place,
    /// Makes the controller's sender halves, with the layers around them.
    senders: Arc<dyn Factory>,
    /// Makes the controller's receiver halves.
    receivers: Arc<dyn Factory>,
    /// Whether the controller is one of the registry's.
    registered: bool,
    feedback: FeedbackFormat,
    rtcp: RtcpSettings,
    supply: Supply,
    /// What each half is told, but for its identity and its chance.
    setup: Setup,
    /// The highest rate that the media needs.
    top: Option<Rate>,
    payload: u64,
    headers: u64,
    repairs: Repairs,
}

impl VideoPlan {
    /// The plan of a scenario's flow. `own` makes the halves of a controller that is not in the registry, `ladder` has
    /// the sizes of its frames.
    ///
    /// # Errors
    /// A controller or a ladder that can't be.
    pub fn of(
        flow: &sc::Flow,
        video: &sc::Video,
        own: Option<&Arc<dyn Factory>>,
        ladder: Option<&Arc<Ladder>>,
        place: Place,
    ) -> Result<Self, BuildError> {
        let asked = Asked::of(flow, video, own)?;
        let supply = Supply::of(&flow.name, video, ladder)?;
        Ok(asked.planned(flow, video, supply, place))
    }

    /// The plan of a flow whose frames come from `supply`, whatever its media says.
    ///
    /// # Errors
    /// As [`VideoPlan::of`].
    pub fn supplied(flow: &sc::Flow, video: &sc::Video, supply: Supply, place: Place) -> Result<Self, BuildError> {
        if let Supply::Ladder(ladder) = &supply {
            fits(&flow.name, ladder)?;
        }
        Ok(Asked::of(flow, video, None)?.planned(flow, video, supply, place))
    }

    /// The name of the controller's APP packets.
    pub fn app(&self) -> [u8; 4] {
        self.senders.terms().app
    }

    /// The format in which receivers report single packets.
    pub const fn feedback(&self) -> FeedbackFormat {
        self.feedback
    }

    /// With another timing of RTCP.
    #[must_use]
    pub fn timed(self, change: impl FnOnce(RtcpSettings) -> RtcpSettings) -> Self {
        Self { rtcp: change(self.rtcp), ..self }
    }

    /// What draws for the part of this name.
    pub fn chance(&self, name: &str) -> Chance {
        self.place.seed.part(name)
    }

    /// What the paper means, or what it prints.
    pub const fn mode(&self) -> Mode {
        self.video.mode
    }

    /// The highest rate.
    pub const fn cap(&self) -> Rate {
        self.setup.cap
    }

    /// The most bytes of payload in a packet.
    pub const fn payload(&self) -> u64 {
        self.payload
    }

    /// What stands before a packet's payload, in bytes.
    pub const fn headers(&self) -> u64 {
        self.headers
    }

    /// What an encoder of this ladder does with a rate.
    pub fn encoder(&self, ladder: &Arc<Ladder>) -> Encoder {
        let waiting = if self.video.mode == Mode::Paper { BacklogRule::Damped } else { BacklogRule::Drained };
        Encoder::new(Arc::clone(ladder), self.video.vbr, waiting, self.payload, self.headers)
    }

    /// The encoder of frames that have sizes but no bytes.
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

    /// Who an end of this name is. The name alone decides: another receiver changes nobody's SSRC.
    fn identity(&self, name: &str) -> Identity {
        let ssrc = self.place.seed.part(&format!("{name}.ssrc")).bits32();
        let cname = self.place.apart.as_ref().map_or(name, |apart| &apart.cname).to_owned();
        Identity { ssrc, cname }
    }

    /// What the half of an end of this name is told.
    fn setup(&self, name: &str, ssrc: u32) -> Setup {
        let chance = self.place.seed.part(&format!("{name}.half"));
        Setup { id: ReceiverId(ssrc), chance, ..self.setup.clone() }.alive()
    }

    /// The number of the first packet.
    pub fn first_seq(&self) -> u16 {
        let drawn = || self.place.seed.part(&format!("flow.{}.seq", self.flow)).bits32() as u16;
        self.video.first.seq.unwrap_or_else(drawn)
    }

    /// The stream of packets that are sent again in a session of this name, where there is one.
    pub fn repair(&self, session: &str) -> Option<RepairSettings> {
        self.repairs.again.then(|| RepairSettings {
            ssrc: self.place.seed.part(&format!("{session}.repair.ssrc")).bits32(),
            payload_type: self.place.apart.as_ref().map_or(RETRANSMISSIONS, |apart| apart.again),
            playout: self.place.apart.as_ref().map_or_else(|| self.video.playout.most(), |apart| apart.useful),
        })
    }

    /// The stream of parity in a session of this name, where there is one.
    pub fn parity(&self, session: &str) -> Option<ParitySettings> {
        let known = || self.video.playout.most();
        self.repairs.parity.then(|| ParitySettings {
            ssrc: self.place.seed.part(&format!("{session}.parity.ssrc")).bits32(),
            payload_type: PARITY,
            playout: self.place.apart.as_ref().map_or_else(known, |apart| Some(apart.playout)),
        })
    }

    /// With what the sender of a session of this name is made.
    pub fn sender(&self, name: &str) -> SenderSettings {
        let (video, seed) = (&self.video, self.place.seed);
        let apart = self.place.apart.as_ref();
        let drawn = || seed.part(&format!("{name}.timestamp")).bits32();
        let plain = SenderSettings::new(self.identity(name), self.rtcp, video.packet, self.app());
        SenderSettings {
            payload_type: apart.map_or(MEDIA, |apart| apart.payload_type),
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

    /// The source of a session: `feed` hands it frames with bytes, where they have any. Means count from `from` on.
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
            // One receiver that is sent again what it lacks needs no parity but where it says that this comes too late.
            parity_on_word: repair.is_some() && self.place.apart.is_some(),
            repair,
            siblings,
            ..self.sender(&name)
        };
        let setup = self.setup(&name, settings.identity.ssrc);
        let chance = self.place.seed.part(&format!("{name}.rtcp"));
        let by_ladder = self.top.is_some_and(|top| self.setup.cap >= top);
        let feed = feed.or_else(|| self.sized_feed(&name));
        let senders = Arc::clone(&self.senders);
        let mut source = VideoSource::new(settings, senders, setup, feed, by_ladder, chance, from);
        source.amount = if let Supply::Endless(amount) = self.supply { amount } else { None };
        source
    }

    /// What makes the receiving end in the `n`th place of a session. In a simulcast it is in one of several groups,
    /// `chosen`.
    pub fn receiver(self: &Arc<Self>, n: usize, session: &str, chosen: bool) -> MakeReceiver {
        let plan = Arc::clone(self);
        let name = format!("{session}.dst{}", n + 1);
        let (repair, parity) = (plan.repair(session), plan.parity(session));
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
            if chosen { receiver.in_simulcast(now) } else { receiver }
        })
    }

    /// A receiver without repair that joins now for the `times`th time, from 0 on, and its name then. Who joins again
    /// is somebody else to the others: its old SSRC has said BYE.
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

    /// A receiver's sink around what [`VideoPlan::receiver`] makes.
    pub fn sink(&self, make: MakeReceiver, intake: Intake) -> VideoSink {
        let video = &self.video;
        let period = self.setup.pictures.as_ref().map_or(Span::ZERO, |p| p.frame);
        let consumed = |b: &sc::Buffer| b.consume.map_or(Consume::Frames(period), Consume::Rate);
        let mut sink = VideoSink::new(make, intake, !self.supply.is_endless(), self.first_seq());
        sink.buffer = video.buffer.as_ref().map(|b| Box::new(PlayBuffer::new(b.size, consumed(b))));
        sink.skew = Skew::new(video.clock.ahead, video.clock.drift);
        sink.repair = self.repairs.again || self.repairs.parity;
        sink.player = match video.playout {
            sc::Playout::Adaptive(bounds) => {
                // The codec's frames come at irregular times.
                let regular = !matches!(self.supply, Supply::Codec(..));
                Player::adaptive(bounds, regular.then_some(period))
            }
            fixed => Player::fixed(fixed.most()),
        };
        sink
    }
}

/// A flow's controller, and what its receivers report to it.
struct Asked {
    factory: Arc<dyn Factory>,
    /// Whether it is one of the registry's.
    registered: bool,
    /// The format of single packets that it asks for itself.
    own: FeedbackFormat,
    group: bool,
}

impl Asked {
    fn of(flow: &sc::Flow, video: &sc::Video, own: Option<&Arc<dyn Factory>>) -> Result<Self, BuildError> {
        let wrong = |error| BuildError::new(format!("flow.{}.controller", flow.name), error);
        let factory = match own {
            Some(factory) => Arc::clone(factory),
            None => Arc::new(video.chosen().map_err(wrong)?),
        };
        let group = flow.cast == sc::Cast::Multicast;
        let format = FeedbackFormat::own_of(&*factory, group);
        Ok(Self { factory, registered: own.is_none(), own: format, group })
    }

    fn planned(self, flow: &sc::Flow, video: &sc::Video, supply: Supply, place: Place) -> VideoPlan {
        let feedback = video.feedback.or(self.own);
        let repairs = Repairs::of(video, self.group);
        let headers = match &place.apart {
            None => HEADERS,
            Some(apart) => HEADERS + self.elements(feedback) + apart.tag + repairs.more(),
        };
        let payload = payload(video.packet, headers, place.apart.is_some());
        let range = supply.range(payload, headers);
        VideoPlan {
            flow: flow.name.clone(),
            senders: self.senders(video, feedback, &place),
            receivers: self.receivers(feedback),
            registered: self.registered,
            feedback,
            rtcp: RtcpSettings {
                authenticated: place.apart.as_ref().is_some_and(|apart| apart.authenticated),
                ..rtcp(video, self.group, place.mtu)
            },
            setup: Setup {
                pictures: supply.pictures(video.encode.gop, payload, headers).map(Arc::new),
                ..setup(video, self.group, range, place.apart.as_ref())
            },
            top: range.map(|range| range.1),
            payload,
            headers,
            repairs,
            supply,
            place,
            video: video.clone(),
        }
    }

    /// The most bytes that a packet's extension elements take beside the send time. A controller that reads reports of
    /// single packets tells its receivers nothing.
    fn elements(&self, feedback: FeedbackFormat) -> u64 {
        let silent = self.factory.terms().extension == 0 || self.own != FeedbackFormat::Own;
        let number = if feedback == FeedbackFormat::TransportWide { TRANSPORT_NUMBER } else { 0 };
        number + if silent { 0 } else { NOTICE }
    }

    /// Whether the receivers' halves run at the sender, on reports of single packets. A class in Python is told of
    /// packets where there are such reports, whatever it makes of them.
    fn replayed(&self, feedback: FeedbackFormat) -> bool {
        self.registered && feedback.is_replayed_for(self.own)
    }

    fn receivers(&self, feedback: FeedbackFormat) -> Arc<dyn Factory> {
        let own = Arc::clone(&self.factory);
        if self.replayed(feedback) { Replayed::around(own, Span::ZERO) } else { own }
    }

    /// The sender's halves with what stands around them: from the controller outwards a replay, the treatment of
    /// standard reports, the circuit breaker (RFC 8083) and the defence against false feedback.
    fn senders(&self, video: &sc::Video, feedback: FeedbackFormat, place: &Place) -> Arc<dyn Factory> {
        let own = Arc::clone(&self.factory);
        let factory = if self.replayed(feedback) { Replayed::at_sender(own, Span::ZERO) } else { own };
        // Report blocks are played back to a half that can't read them itself.
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
        let served = if feedback == FeedbackFormat::Own { served } else { served.expecting_packets() };
        let guarded = CircuitBreaker::new(Arc::new(served), operator.clone()).provided(video.floor.is_some());
        Arc::new(FeedbackDefence::new(Arc::new(guarded), operator))
    }
}

/// The most bytes of payload in a packet of this IP size.
fn payload(packet: Bytes, headers: u64, apart: bool) -> u64 {
    // A packet whose headers fill it carries something all the same; real bytes come in pieces that are worth a packet.
    packet.get().saturating_sub(headers).max(if apart { 64 } else { 1 })
}

fn rtcp(video: &sc::Video, group: bool, mtu: Bytes) -> RtcpSettings {
    let profile = match video.rtcp.profile {
        sc::RtcpProfile::Rfc3550 => Profile::Rfc3550,
        sc::RtcpProfile::Asmp => Profile::Asmp,
        sc::RtcpProfile::Avpf => Profile::Avpf { t_rr_interval: Span::ZERO },
    };
    let summary = group && video.rtcp.reports == sc::Reports::Source;
    RtcpSettings { t_min: video.rtcp.t_min, group, summary, mtu, ..RtcpSettings::new(profile, video.rtcp.session_bw) }
}

/// What the halves are told of the flow, but for its pictures. Its rate stays within what is asked for and what its
/// media needs; a floor that an operator may lower holds from outside.
fn setup(video: &sc::Video, group: bool, range: Option<(Rate, Rate)>, apart: Option<&Apart>) -> Setup {
    let cap = video.cap.unwrap_or(Rate::MAX).min(range.map_or(Setup::NO_CAP, |range| range.1));
    let lowest = range.map_or(apart.map_or(Rate::ZERO, |apart| apart.floor), |range| range.0);
    let mut floor = video.floor.unwrap_or(lowest).min(cap);
    if let Some(apart) = apart.filter(|_| video.defences) {
        apart.operator.limit(Some(floor), None);
        floor = floor.min(range.map_or(apart.floor, |range| range.0.max(apart.floor)));
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
        chance: Seed(0).part(""),
        ecn: video.ecn,
    }
}

/// What a controller is told of a ladder, if a packet holds so many bytes of its pictures after so many of headers.
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

/// What a controller is told of RFC 8593's codec, which has a rate in place of quantizers: those of 2, 4 … 62, whose
/// rates fall from the highest to the lowest in equal steps.
fn codec_pictures(codec: &CodecSettings, gop: u32) -> Pictures {
    let step = codec.r_max.saturating_sub(codec.r_min).as_bps_f64() / 30.0;
    let rate = |n: u8| Rate::from_bps_f64(codec.r_max.as_bps_f64() - step * f64::from(n));
    let rungs = (0..31).map(|n| Rung { quantizer: 2 * (n + 1), rate: rate(n), peak: rate(n) }).collect();
    Pictures { frame: codec.t0, group: codec.t0.scale(f64::from(gop)), rungs }
}
