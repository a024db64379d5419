//! From a scenario's flow to its agents.

use crate::{
    Agent, AgentIx, Beat, FlowEnds, Intake, MakeReceiver, PlainSink, PlainSource, Player, Skew, TcpSink, TcpSource,
    VideoSink, VideoSource,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use steadycast_control::registry::Factory;
use steadycast_control::{FeedbackFormat, ParamError, Pictures, ReceiverId, Rung, Setup};
use steadycast_media::{
    Bounds, CodecModel, CodecSettings, Consume, Encoder, Feed, Ladder, LadderError, PerFrame, PlayBuffer,
    SyntheticCodec, Vbr, Waiting,
};
use steadycast_scenario as sc;
use steadycast_session::{
    Emit, FeedbackDefence, Identity, OperatorControls, ParitySettings, Profile, Receiver, RepairSettings, Replayed,
    RtcpSettings, SenderSettings, Siblings,
};
use steadycast_tcp as tcp;
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

/// What a scenario needs besides itself.
#[derive(Default)]
pub struct Inputs {
    /// For each video flow that is not greedy: its ladder.
    pub ladders: BTreeMap<String, Arc<Ladder>>,
    /// For video flows whose controller is not in the registry: what makes its halves.
    pub factories: BTreeMap<String, Arc<dyn Factory>>,
    /// By how much a source that is woken late may catch up: nothing in virtual time, where nobody is late.
    pub credit: Span,
}

/// Why a flow can't be.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// The controller or one of its parameters.
    #[error("flow.{flow}.controller: {error}")]
    Controller {
        /// The flow.
        flow: String,
        /// What is wrong.
        error: ParamError,
    },
    /// A flow has nothing to send.
    #[error("flow.{flow}.media: no frame sizes were given; encode the clip first, or take media = \"greedy\"")]
    NoLadder {
        /// The flow.
        flow: String,
    },
    /// Frame sizes that can't be used.
    #[error("flow.{flow}.media: {error}")]
    Ladder {
        /// The flow.
        flow: String,
        /// What is wrong.
        error: LadderError,
    },
    /// A TCP that can't be.
    #[error("flow.{flow}: {error}")]
    Tcp {
        /// The flow.
        flow: String,
        /// What is wrong.
        error: tcp::ConfigError,
    },
    /// A congestion control that only a kernel has.
    #[error("flow.{flow}.congestion: \"{name}\" is a kernel's; simulated are reno, newreno, sack and cubic")]
    KernelOnly {
        /// The flow.
        flow: String,
        /// Its name.
        name: String,
    },
}

/// Bytes of IP, UDP and RTP headers with the send time: what a packet costs before its notice.
const HEADERS: u64 = 28 + 12 + 4 + 8;

/// RTP payload type of packets that are sent again.
const RETRANSMISSIONS: u8 = 97;

/// RTP payload type of parity.
const PARITY: u8 = 98;

/// Makes a source, told the name of its session.
pub type MakeSource<'a> = Box<dyn FnMut(&str) -> Agent + 'a>;

/// Makes a sink, told its place among the receivers and the name of its session.
pub type MakeSink<'a> = Box<dyn FnMut(usize, &str) -> Agent + 'a>;

/// Makes the agents of a flow.
pub struct Makers<'a> {
    /// Its source, or one for each receiver.
    pub source: MakeSource<'a>,
    /// Its sinks.
    pub sink: MakeSink<'a>,
}

/// Makes the agents of a scenario's flows.
pub struct AgentFactory<'a> {
    scenario: &'a sc::Scenario,
    inputs: &'a Inputs,
    seed: Seed,
    /// For each simulcast its groups' senders.
    siblings: Vec<Vec<Siblings>>,
}

impl<'a> AgentFactory<'a> {
    /// For this scenario.
    pub fn new(scenario: &'a sc::Scenario, inputs: &'a Inputs) -> Self {
        let siblings = scenario.simulcasts.iter().map(|s| Siblings::new(s.flows.len())).collect();
        Self { scenario, inputs, seed: scenario.seed, siblings }
    }

    /// When the flow in place `n` is active, without agents yet.
    pub fn ends(&self, n: u32) -> FlowEnds {
        let active = self.activity(n, &self.scenario.flows[n as usize]);
        let start = active.first().map_or(Time::NEVER, |a| a.0);
        let stop = active.last().map_or(Time::NEVER, |a| a.1);
        let means_from = start.max(Time::ZERO + self.scenario.warmup);
        let (sources, sinks): (Vec<AgentIx>, Vec<AgentIx>) = (Vec::new(), Vec::new());
        FlowEnds { start, stop, active, means_from, sources, sinks }
    }

    /// What makes the agents of the flow in place `n`.
    ///
    /// # Errors
    /// A controller, TCP or ladder that can't be.
    pub fn makers(&self, n: u32, ends: &FlowEnds) -> Result<Makers<'a>, MakeError> {
        let flow = &self.scenario.flows[n as usize];
        let end = Time::ZERO + self.scenario.duration;
        let intake = Intake::new(ends.means_from, end.min(ends.stop)).active(&ends.active);
        match &flow.kind {
            sc::FlowKind::Cbr(cbr) => Ok(self.plain(cbr.rate, cbr.packet, None, intake)),
            sc::FlowKind::OnOff(on) => Ok(self.plain(on.rate, on.packet, Some((on.on, on.off)), intake)),
            sc::FlowKind::Tcp(tcp) => self.tcp(flow, tcp, intake),
            sc::FlowKind::Video(video) => {
                let group = self.scenario.group_of(sc::FlowIx(n));
                let siblings = group.map(|(simulcast, place)| self.siblings[simulcast][place].clone());
                self.video(flow, video, intake, ends.means_from, siblings)
            }
        }
    }

    /// When the flow is active: its own start and stop, and those of events, in the order of time.
    fn activity(&self, n: u32, flow: &sc::Flow) -> Vec<(Time, Time)> {
        let own = match flow.start {
            sc::Start::At(at) => Some(at),
            sc::Start::Uniform(low, high) => {
                let mut chance = self.seed.part(&format!("flow.{}.start", flow.name));
                Some(low + chance.span_between(Span::ZERO, high.since(low)))
            }
            sc::Start::Event => None,
        };
        let mut turns: Vec<(Time, bool)> =
            own.map(|at| (at, true)).into_iter().chain(flow.stop.map(|at| (at, false))).collect();
        turns.extend(self.scenario.events.iter().filter_map(|e| match e.what {
            sc::What::StartFlow(flow) if flow.0 == n => Some((e.at, true)),
            sc::What::StopFlow(flow) if flow.0 == n => Some((e.at, false)),
            _ => None,
        }));
        turns.sort_by_key(|(at, _)| *at);
        let (mut active, mut since) = (Vec::new(), None);
        for (at, on) in turns {
            match since {
                None if on => since = Some(at),
                Some(from) if !on => {
                    active.push((from, at));
                    since = None;
                }
                _ => {}
            }
        }
        active.extend(since.map(|from| (from, Time::NEVER)));
        active.retain(|(from, to)| from < to);
        active
    }

    fn plain(
        &self,
        rate: Rate,
        packet: Bytes,
        periods: Option<(sc::Periods, sc::Periods)>,
        intake: Intake,
    ) -> Makers<'a> {
        let seed = self.seed;
        Makers {
            source: Box::new(move |session| {
                let beat = match periods {
                    None => Beat::Always,
                    Some((on, off)) => {
                        let chance = seed.part(&format!("flow.{session}.periods"));
                        Beat::OnOff { on, off, until: Time::ZERO, sending: false, chance }
                    }
                };
                Agent::PlainSource(Box::new(PlainSource::new(rate, packet, beat)))
            }),
            sink: Box::new(move |_, _| Agent::PlainSink(Box::new(PlainSink::new(intake.clone())))),
        }
    }

    fn tcp(&self, flow: &'a sc::Flow, spec: &'a sc::Tcp, intake: Intake) -> Result<Makers<'a>, MakeError> {
        let mut config = tcp_config(flow, spec)?;
        if !config.tick.is_zero() {
            // As in ns-2, a connection's clock starts anywhere within a tick.
            let mut chance = self.seed.part(&format!("flow.{}.tick", flow.name));
            let phase = chance.span_between(Span::ZERO, config.tick);
            config.tick_phase = phase.min(config.tick.saturating_sub(Span::nanos(1)));
        }
        config.check().map_err(|error| MakeError::Tcp { flow: flow.name.clone(), error })?;
        let (seed, sink) = (self.seed, config.clone());
        Ok(Makers {
            source: Box::new(move |session| {
                let chance = seed.part(&format!("flow.{session}.transfers"));
                let config = tcp::Config { draws: seed.derive(&format!("flow.{session}.tcp")), ..config.clone() };
                Agent::TcpSource(Box::new(TcpSource::new(config, &spec.source, chance)))
            }),
            sink: Box::new(move |_, _| Agent::TcpSink(Box::new(TcpSink::new(sink.clone(), intake.clone())))),
        })
    }

    fn video(
        &self,
        flow: &'a sc::Flow,
        video: &'a sc::Video,
        intake: Intake,
        from: Time,
        siblings: Option<Siblings>,
    ) -> Result<Makers<'a>, MakeError> {
        let wrong = |error| MakeError::Controller { flow: flow.name.clone(), error };
        let factory = match self.inputs.factories.get(&flow.name) {
            Some(factory) => Arc::clone(factory),
            None => Arc::new(video.chosen().map_err(wrong)?),
        };
        let group = flow.cast == sc::Cast::Multicast;
        let own = FeedbackFormat::own_of(&*factory, group);
        let feedback = video.feedback.or(own);
        let (greedy, amount) = match video.media {
            sc::Media::Greedy { bytes } => (true, bytes),
            _ => (false, None),
        };
        // A class in Python is told of packets where there are such reports, whatever it makes of them.
        let replayed = feedback.is_replayed_for(own) && !self.inputs.factories.contains_key(&flow.name);
        let factory = if replayed { Replayed::around(factory, Span::ZERO) } else { factory };
        let factory: Arc<dyn Factory> =
            if video.defences { Arc::new(FeedbackDefence::new(factory, OperatorControls::default())) } else { factory };
        let codec = match &video.media {
            sc::Media::Rfc8593 { codec, .. } => {
                let t0 = Span::from_secs_f64(1.0 / video.encode.fps.0.unwrap_or(30.0));
                Some(CodecSettings { t0, ..codec.clone() })
            }
            _ => None,
        };
        let drawn = codec.as_ref().is_some_and(|codec| codec.model == CodecModel::Statistical);
        let ladder = if greedy || drawn {
            None
        } else {
            let ladder = self.inputs.ladders.get(&flow.name);
            let ladder = ladder.ok_or_else(|| MakeError::NoLadder { flow: flow.name.clone() })?;
            ladder.check().map_err(|error| MakeError::Ladder { flow: flow.name.clone(), error })?;
            Some(Arc::clone(ladder))
        };
        let payload = video.packet.get().saturating_sub(HEADERS).max(1);
        let codec = codec.map(|codec| match &ladder {
            // A sequence has a frame rate of its own.
            Some(ladder) => CodecSettings { t0: ladder.time(1), ..codec },
            None => codec,
        });
        let range = match &codec {
            Some(codec) => Some((codec.r_min, codec.r_max)),
            None => ladder.as_ref().map(|l| l.range(payload, HEADERS)),
        };
        let cap = video.cap.unwrap_or(Rate::MAX).min(range.map_or(Setup::NO_CAP, |r| r.1));
        let pictures = match &codec {
            Some(codec) => Some(codec_pictures(codec, video.encode.gop)),
            None => ladder.as_ref().map(|l| pictures(l, payload, HEADERS)),
        };
        let pictures = pictures.map(Arc::new);
        let period = pictures.as_ref().map_or(Span::ZERO, |p| p.frame);
        let buffer = video
            .buffer
            .as_ref()
            .map(|b| PlayBuffer::new(b.size, b.consume.map_or(Consume::Frames(period), Consume::Rate)));
        let floor = video.floor.unwrap_or(range.map_or(Rate::ZERO, |r| r.0)).min(cap);
        let rtcp = RtcpSettings {
            profile: match video.rtcp.profile {
                sc::RtcpProfile::Rfc3550 => Profile::Rfc3550,
                sc::RtcpProfile::Asmp => Profile::Asmp,
                sc::RtcpProfile::Avpf => Profile::Avpf { t_rr_interval: Span::ZERO },
            },
            session_bandwidth: video.rtcp.session_bw,
            t_min: video.rtcp.t_min,
            group: flow.cast == sc::Cast::Multicast,
            summary: flow.cast == sc::Cast::Multicast && video.rtcp.reports == sc::Reports::Source,
            mtu: self.scenario.mtu(flow),
        };
        let seed = self.seed;
        let setup = move |name: &str, ssrc: u32| {
            let setup = Setup {
                packet: video.packet,
                mode: video.mode,
                floor,
                cap,
                pictures: pictures.clone(),
                session_bandwidth: video.rtcp.session_bw,
                group: flow.cast == sc::Cast::Multicast,
                id: ReceiverId(ssrc),
                chance: seed.part(&format!("{name}.half")),
                ecn: video.ecn,
            };
            setup.alive()
        };
        // All sinks share what is none's own.
        let base = Arc::new(setup("", 0));
        // The name alone decides: adding a receiver changes no other's SSRC.
        let who =
            move |name: &str| Identity { ssrc: seed.part(&format!("{name}.ssrc")).bits32(), cname: name.to_owned() };
        let drawn = seed.part(&format!("flow.{}.seq", flow.name)).bits32() as u16;
        let first_seq = video.first.seq.unwrap_or(drawn);
        let skew = Skew::new(video.clock.ahead, video.clock.drift);
        let crowd = flow.to.len() > 1_000;
        let repair = move |session: &str| {
            let ssrc = seed.part(&format!("{session}.repair.ssrc")).bits32();
            let settings = RepairSettings { ssrc, payload_type: RETRANSMISSIONS, playout: video.playout.most() };
            let asks = flow.cast != sc::Cast::Multicast && video.rtcp.profile == sc::RtcpProfile::Avpf;
            let repairs = video.repair == sc::Repair::Rtx || video.repair == sc::Repair::Auto && asks;
            repairs.then_some(settings)
        };
        let parity = move |session: &str| {
            let ssrc = seed.part(&format!("{session}.parity.ssrc")).bits32();
            let settings = ParitySettings { ssrc, payload_type: PARITY, playout: video.playout.most() };
            let protects = matches!(video.repair, sc::Repair::Parity | sc::Repair::Auto);
            protects.then_some(settings)
        };
        let player = match video.playout {
            sc::Playout::Adaptive(sc::AdaptivePlayout { least, most }) => {
                // The codec's frames come at irregular times.
                Player::adaptive(Bounds { least, most }, codec.is_none().then_some(period))
            }
            fixed => Player::fixed(fixed.most()),
        };
        let chosen = siblings.is_some();
        let (make_half, credit) = (Arc::clone(&factory), self.inputs.credit);
        Ok(Makers {
            source: Box::new(move |session| {
                let name = format!("{session}.src");
                let settings = SenderSettings {
                    emit: match video.emit {
                        sc::Emit::Paced => Emit::Paced,
                        sc::Emit::Burst => Emit::Burst,
                    },
                    credit,
                    greedy,
                    gated: video.defences,
                    feedback,
                    first_seq,
                    first_timestamp: video
                        .first
                        .timestamp
                        .unwrap_or_else(|| seed.part(&format!("{name}.timestamp")).bits32()),
                    ..SenderSettings::new(who(&name), rtcp, video.packet, factory.app())
                };
                let vbr = video.vbr;
                let paper = video.mode == steadycast_control::Mode::Paper;
                let waiting = if paper { Waiting::Damped } else { Waiting::Drained };
                let encoder: Option<Box<dyn Feed>> = match (&codec, &ladder) {
                    (Some(codec), ladder) => {
                        let chance = seed.part(&format!("{name}.codec"));
                        let codec = SyntheticCodec::new(codec.clone(), ladder.clone(), payload, HEADERS, chance);
                        Some(Box::new(codec))
                    }
                    (None, Some(l)) => Some(Box::new(Encoder::new(Arc::clone(l), vbr, waiting, payload, HEADERS))),
                    (None, None) => None,
                };
                let setup = setup(&name, settings.identity.ssrc);
                let chance = seed.part(&format!("{name}.rtcp"));
                let by_ladder = range.is_some_and(|r| cap >= r.1);
                let source = VideoSource::new(settings, factory.clone(), setup, encoder, by_ladder, chance, from);
                let room = if let Vbr::Frame(PerFrame { room, .. }) = vbr { room } else { 1.0 };
                let source = source
                    .with_amount(amount)
                    .with_room(room)
                    .with_ecn(video.ecn)
                    .with_repair(repair(session))
                    .with_padding(video.padding)
                    .with_parity(parity(session))
                    .in_simulcast(siblings.clone());
                Agent::VideoSource(Box::new(source))
            }),
            sink: Box::new(move |n, session| {
                let name = format!("{session}.dst{}", n + 1);
                let base = Arc::clone(&base);
                let (repair, parity) = (repair(session), parity(session));
                let factory = Arc::clone(&make_half);
                let make: MakeReceiver = Box::new(move |now, times| {
                    // Who joins again is somebody else to the others: its old SSRC has said BYE.
                    let name = if times == 0 { name.clone() } else { format!("{name}.{times}") };
                    let identity = who(&name);
                    let chance = seed.part(&format!("{name}.half"));
                    let setup = Setup { id: ReceiverId(identity.ssrc), chance, ..Setup::clone(&base) };
                    let half = factory.receiver(&setup);
                    let chance = seed.part(&format!("{name}.rtcp"));
                    let receiver = Receiver::new(identity, rtcp, factory.app(), half, chance, now)
                        .with_feedback(feedback, rtcp.session_bandwidth);
                    let receiver = match repair {
                        Some(repair) => receiver.with_repair(repair),
                        None => receiver,
                    };
                    let receiver = match parity {
                        Some(parity) => receiver.with_parity(parity, seed.part(&format!("{name}.parity"))),
                        None => receiver,
                    };
                    if chosen { receiver.in_simulcast(now) } else { receiver }
                });
                let intake = if crowd { intake.clone().packed() } else { intake.clone() };
                let sink = VideoSink::new(make, intake, !greedy, first_seq);
                let sink = if crowd { sink.without_views() } else { sink };
                let sink = sink.buffered(buffer.clone()).by_clock(skew).repairing(repair.is_some() || parity.is_some());
                let sink = sink.played(player.clone());
                Agent::VideoSink(Box::new(sink))
            }),
        })
    }
}

/// What a controller is told of a ladder, if a packet holds so many bytes of its pictures after so many of headers.
pub fn pictures(ladder: &Ladder, payload: u64, headers: u64) -> Pictures {
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

/// What a controller is told of RFC 8593's codec, which has a rate in place of quantizers: those of 2, 4 … 62, whose rates fall from
/// the highest to the lowest in equal steps.
fn codec_pictures(codec: &CodecSettings, gop: u32) -> Pictures {
    let step = codec.r_max.saturating_sub(codec.r_min).as_bps_f64() / 30.0;
    let rate = |n: u8| Rate::from_bps_f64(codec.r_max.as_bps_f64() - step * f64::from(n));
    let rungs = (0..31).map(|n| Rung { quantizer: 2 * (n + 1), rate: rate(n), peak: rate(n) }).collect();
    Pictures { frame: codec.t0, group: codec.t0.scale(f64::from(gop)), rungs }
}

fn tcp_config(flow: &sc::Flow, spec: &sc::Tcp) -> Result<tcp::Config, MakeError> {
    if let tcp::Congestion::Kernel(name) = spec.config.congestion {
        return Err(MakeError::KernelOnly { flow: flow.name.clone(), name: name.to_owned() });
    }
    let mut config = spec.config.clone();
    config.bytes = match spec.source {
        sc::Workload::File(bytes) | sc::Workload::Transfers { bytes, .. } => Some(bytes),
        // What the application writes is offered as it comes.
        sc::Workload::OnOff { .. } => Some(Bytes::ZERO),
        sc::Workload::Bulk => None,
    };
    if !flow.send_jitter.is_zero() {
        // ns-2 drops the limit where it delays sends (its `overhead_`).
        config.recovery_burst = 0;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config(keys: &str) -> tcp::Config {
        let text = format!(
            "duration = \"1s\"\n[topology]\nshape = \"dumbbell\"\nbottleneck = {{ rate = \"1Mbps\", delay = \"1ms\" }}\n\
             [[flow]]\nname = \"tcp\"\nkind = \"tcp\"\n{keys}\n"
        );
        let loaded = sc::Scenario::parse(&text, Path::new("test.toml")).unwrap_or_else(|p| panic!("{p}"));
        let sc::FlowKind::Tcp(spec) = &loaded.scenario.flows[0].kind else { panic!("no TCP") };
        tcp_config(&loaded.scenario.flows[0], spec).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn a_flow_has_the_settings_that_its_keys_say_and_what_it_carries() {
        let base = tcp::Config::new(tcp::Preset::Ns2, tcp::Congestion::NewReno);
        let said =
            config("preset = \"ns2\"\ncongestion = \"newreno\"\nwindow = \"7p\"\npacket = \"500B\"\nbytes = \"9kB\"");
        let (packet, bytes) = (Bytes::new(500), Some(Bytes::new(9_000)));
        assert_eq!(said, tcp::Config { window: 7, packet, bytes, ..base });
    }

    #[test]
    fn delayed_sends_lift_ns2s_limit_on_bursts_in_recovery() {
        let ns2 = "preset = \"ns2\"\ncongestion = \"newreno\"\n";
        assert_eq!(config(ns2).recovery_burst, 2);
        assert_eq!(config(&format!("{ns2}send_jitter = \"1ms\"")).recovery_burst, 0);
    }
}
