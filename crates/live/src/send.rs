//! A live sender in a thread of its own.

use crate::entropy;
use crate::folder::{STEP, Words, reported};
use crate::handle::Shared;
use crate::sdp::{Description, PacketFeedback, ParityStream, Retransmissions, Sources};
use crate::{
    Clock, EncoderDesk, Handle, LATENCY, LadderFeed, LiveFeed, LiveRecord, Loop, MasterKey, NetError, Outbox, Pair,
    PairOptions, Payloads, Peers, RTP_TAG, RungData, Sizes, Spool, Srtp, Steering, Store, WiredSource, Zeros,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use steadycast_control::registry::{Chosen, Factory, Given, Setup};
use steadycast_control::{FeedbackFormat, Limit, Mode, ParamError, ReceiverId};
use steadycast_ends::{Agent, Kept, VideoSource};
use steadycast_media::{Bucket, Encoder, Feed, Ladder, SentFrames, Vbr, Waiting};
use steadycast_record::{flow, receiver};
use steadycast_scenario::Repair;
use steadycast_session::{
    CircuitBreaker, FeedbackDefence, Identity, PARITY_MORE, ParitySettings, Profile, RepairSettings, Replayed,
    RtcpSettings, SenderSettings, StandardReports,
};
use steadycast_units::{Bytes, Ecn, Rate, Span, Time};
use steadycast_wire::payload::PayloadFormat;
use steadycast_wire::rtx::OSN;

/// Why a live session can't begin, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The controller or one of its parameters.
    #[error("controller: {0}")]
    Controller(#[from] ParamError),
    /// An address, a port or an interface.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A frame table that can't be used.
    #[error("ladder: {0}; encode the clip again")]
    Ladder(#[from] steadycast_media::LadderError),
    /// The system gives no more sockets or threads.
    #[error("{0}; look at `ulimit -n`")]
    System(#[from] io::Error),
    /// The system gives no random numbers.
    #[error("no random numbers for a session: {0}; a Linux kernel from 3.17 on has them (`getrandom`)")]
    Entropy(getrandom::Error),
    /// The controller serves one receiver.
    #[error("--to: controller {0} serves one receiver, and this is a group; take asmp or tfmcc")]
    OneReceiver(String),
    /// A group's receivers can't all report single packets.
    #[error("--feedback: a group's receivers report as the controller asks, not packet by packet; leave it away")]
    GroupFeedback,
    /// ECN is used where reports of single packets tell how it arrives.
    #[error(
        "--ecn: marks are known, and the path is checked, by reports of single packets that tell of them; take --feedback rfc8888"
    )]
    EcnUntold,
    /// One receiver's losses are not sent again to a group.
    #[error(
        "--repair rtx: what one receiver lost is not sent again to a group (RFC 4588, 5.3); take auto, parity or none"
    )]
    GroupRepair,
    /// A packet that a scenario does not allow, or that its links' default MTU does not take.
    #[error("{0}: {1} is no packet size that a record can hold; take 100 to 1500 bytes")]
    Packet(&'static str, Bytes),
    /// A session bandwidth that no session has: reports would never leave, or without end.
    #[error(
        "the description's session-bw: {0} is no bandwidth of a session; take 10000 to 10000000000 bits per second"
    )]
    SessionBandwidth(u64),
    /// The record is not what a scenario can say: a bug.
    #[error("the record can't be written: {0}")]
    Record(String),
}

/// What a session sends.
pub enum Medium {
    /// Always as much as it may, of nothing.
    Greedy,
    /// What an encoder in another thread makes of a source.
    Encoder {
        /// Payload format.
        format: PayloadFormat,
        /// What a decoder must be told first.
        config: Vec<u8>,
        /// How it is steered.
        steering: Steering,
    },
    /// A clip at every quantizer.
    Ladder {
        /// Payload format.
        format: PayloadFormat,
        /// What a decoder must be told first.
        config: Vec<u8>,
        /// Frame sizes.
        ladder: Box<Ladder>,
        /// Frames, by their quantizers.
        rungs: BTreeMap<u8, RungData>,
        /// After how many frames it ends; never without.
        frames: Option<u32>,
    },
}

impl Medium {
    const fn format(&self) -> Option<PayloadFormat> {
        match self {
            Self::Greedy => None,
            Self::Encoder { format, .. } | Self::Ladder { format, .. } => Some(*format),
        }
    }

    fn config(&self) -> Vec<u8> {
        match self {
            Self::Greedy => Vec::new(),
            Self::Encoder { config, .. } | Self::Ladder { config, .. } => config.clone(),
        }
    }
}

/// The retransmissions' payload type; their media's is another one.
const RETRANSMISSIONS: u8 = 97;
/// The payload type of parity.
const PARITY: u8 = 98;
/// For how long at least a sender keeps what it sent.
const KEPT: Span = Span::secs(1);

/// How to send.
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// A receiver's RTP address, or a group's.
    pub to: SocketAddr,
    /// Sockets.
    pub pair: PairOptions,
    /// The controller's name.
    pub controller: String,
    /// Paper or repaired.
    pub mode: Mode,
    /// The controller's parameters.
    pub params: Vec<(String, Given)>,
    /// IP size of a full packet.
    pub packet: Bytes,
    /// Least rate.
    pub floor: Rate,
    /// Highest rate.
    pub cap: Rate,
    /// Of which RTCP may take 5 %.
    pub session_bandwidth: Rate,
    /// Canonical name.
    pub cname: String,
    /// How its receivers report single packets; [`FeedbackFormat::Own`]: as the controller asks.
    pub feedback: FeedbackFormat,
    /// As which packets leave, while the path keeps it.
    pub ecn: Ecn,
    /// What becomes of lost packets. [`Repair::Auto`]: where there are pictures, and not in paper mode, one receiver gets again what
    /// it asks for, and parity where it says that it waits too short a time for that; a group gets parity.
    pub repair: Repair,
    /// Its receivers' play-out buffer, and how fast they empty it: said in the description.
    pub buffer: Option<Bytes>,
    /// See above.
    pub consume: Option<Rate>,
    /// Media and reports are protected with it.
    pub key: Option<MasterKey>,
    /// The clip's name, for the record; nothing for a greedy source.
    pub clip: Option<String>,
}

/// A full packet's IP size, if the record can hold it.
pub(crate) fn packet_size(place: &'static str, size: Bytes) -> Result<Bytes, LiveError> {
    if (100..=1_500).contains(&size.get()) { Ok(size) } else { Err(LiveError::Packet(place, size)) }
}

/// RTCP of a live session: feedback as often as its 5 % allow. `summary`: receivers can't hear each other (source-specific
/// multicast) and are told how many they are.
pub(crate) const fn rtcp(session_bandwidth: Rate, group: bool, summary: bool) -> RtcpSettings {
    RtcpSettings { group, summary, ..RtcpSettings::new(Profile::Avpf { t_rr_interval: Span::ZERO }, session_bandwidth) }
}

/// A sender that runs.
pub struct Sending {
    shared: Arc<Shared>,
    handle: Handle,
    desk: Option<EncoderDesk>,
    sdp: String,
}

/// What goes before a payload: IP, UDP, RTP with the send time, the largest notice of a controller that has one, and the transport-wide
/// number where there is one. A controller whose `own` reports are those of single packets tells its receivers nothing.
fn overhead(factory: &dyn Factory, own: FeedbackFormat, feedback: FeedbackFormat) -> u64 {
    let notice = if factory.extension() == 0 || own != FeedbackFormat::Own { 0 } else { 24 };
    let number = if feedback == FeedbackFormat::TransportWide { 4 } else { 0 };
    28 + 12 + 4 + 8 + notice + number
}

/// A floor that its operator can lower is no lower than this, but for one that was so from the start.
const LEAST: Rate = Rate::kbps(50);

/// By how much a pacer that is woken late catches up: more would be a burst.
const CREDIT: Span = Span::millis(4);

impl Sending {
    /// Opens the sockets and begins to send.
    ///
    /// # Errors
    /// A parameter, an address or the medium can't be used; nothing was sent then.
    pub fn start(options: SendOptions, medium: Medium) -> Result<Self, LiveError> {
        let clock = Clock::start();
        let seed = entropy::seed()?;
        let chosen = Chosen::new(&options.controller, options.mode, &options.params)?;
        let group = options.to.ip().is_multicast();
        let entry = chosen.controller;
        if group && entry.receivers == steadycast_control::registry::Receivers::One {
            return Err(LiveError::OneReceiver(options.controller));
        }
        if group && options.feedback != FeedbackFormat::Own {
            return Err(LiveError::GroupFeedback);
        }
        let pictures_repaired = options.mode != Mode::Paper && !matches!(medium, Medium::Greedy);
        let (repairs, protects) = match options.repair {
            Repair::Rtx if group => return Err(LiveError::GroupRepair),
            Repair::Rtx => (true, false),
            Repair::Parity => (false, true),
            Repair::Auto => (!group && pictures_repaired, pictures_repaired),
            Repair::None => (false, false),
        };
        let factory: Arc<dyn Factory> = Arc::new(chosen);
        let own_format = FeedbackFormat::own_of(&*factory, group);
        let feedback = options.feedback.or(own_format);
        if options.ecn.is_capable() && feedback != FeedbackFormat::Rfc8888 {
            return Err(LiveError::EcnUntold);
        }
        packet_size("--packet", options.packet)?;
        let pair = Pair::sender(options.to, &options.pair)?;
        let own = pair.rtp().local().ip();
        let (format, config, greedy) = (medium.format(), medium.config(), matches!(medium, Medium::Greedy));
        let payload_type = format.and_then(PayloadFormat::static_type).unwrap_or(96);
        let identity = Identity { ssrc: seed.part("ssrc").bits32(), cname: options.cname.clone() };
        let first_seq = seed.part("seq").bits32() as u16;
        let settings = SenderSettings {
            payload_type,
            credit: CREDIT,
            greedy,
            gated: options.mode != Mode::Paper,
            peer: (!group).then(|| crate::wired::host(options.to)),
            feedback,
            first_seq,
            first_timestamp: seed.part("timestamp").bits32(),
            epoch: clock.epoch(),
            ..SenderSettings::new(
                identity.clone(),
                rtcp(options.session_bandwidth, group, group && crate::source_specific(options.to.ip())),
                options.packet,
                factory.app(),
            )
        };
        let tag = if options.key.is_some() { RTP_TAG as u64 } else { 0 };
        // What a packet that is sent again, or its parity, is longer by.
        let more = if protects { PARITY_MORE.get() } else { u64::from(repairs) * OSN as u64 };
        let cost = overhead(&*factory, own_format, feedback) + tag + more;
        let max_payload = options.packet.get().saturating_sub(cost).max(64) as usize;
        let (mut floor, mut cap) = (options.floor, options.cap);
        let (mut desk, mut over, mut rung, mut pictures) = (None, None, Rate::ZERO, None);
        let (mut sizes, mut shown) = (Vec::new(), None);
        let (feed, payloads, by_ladder): (Option<Box<dyn Feed>>, Box<dyn Payloads>, bool) = match medium {
            Medium::Greedy => (None, Box::new(Zeros), false),
            Medium::Encoder { format, steering, .. } => {
                let store = Store::new(format, max_payload);
                let own = EncoderDesk::default();
                desk = Some(own.clone());
                let mut steering = Steering { overhead: cost, ..steering };
                shown = steering.sizes.first().copied();
                if options.mode == Mode::Paper {
                    steering.sizes.truncate(1);
                }
                sizes.clone_from(&steering.sizes);
                (Some(Box::new(LiveFeed::new(own, store.clone(), steering, clock))), Box::new(store), false)
            }
            Medium::Ladder { format, ladder, rungs, frames, .. } => {
                ladder.check()?;
                let store = Store::new(format, max_payload);
                let range = ladder.range(max_payload as u64, cost);
                let by_ladder = cap >= range.1;
                cap = cap.min(range.1);
                rung = range.0;
                floor = floor.max(rung).min(cap);
                pictures = Some(Arc::new(steadycast_ends::pictures(&ladder, max_payload as u64, cost)));
                let paper = options.mode == Mode::Paper;
                let waiting = if paper { Waiting::Damped } else { Waiting::Drained };
                let vbr = Vbr::Bucket(Bucket { bucket: 2.5 });
                let encoder = Encoder::new(Arc::new(*ladder), vbr, waiting, max_payload as u64, cost);
                let feed = LadderFeed::new(encoder, store.clone(), rungs, frames);
                over = Some(feed.over());
                (Some(Box::new(feed)), Box::new(store), by_ladder)
            }
        };
        // What the operator may change during the session is held from outside; a ladder's lowest rung is not.
        let floor = floor.min(cap);
        let least = if options.mode == Mode::Paper { floor } else { floor.min(LEAST.max(rung)) };
        let setup = Setup {
            packet: options.packet,
            mode: options.mode,
            floor: least,
            cap,
            pictures,
            session_bandwidth: options.session_bandwidth,
            group,
            id: ReceiverId(identity.ssrc),
            chance: seed.part("half"),
            ecn: options.ecn,
        }
        .alive();
        let repair = repairs.then(|| RepairSettings {
            ssrc: seed.part("repair.ssrc").bits32(),
            payload_type: RETRANSMISSIONS,
            // Until its receiver has said how long it waits.
            playout: None,
        });
        let parity = protects.then(|| ParitySettings {
            ssrc: seed.part("parity.ssrc").bits32(),
            payload_type: PARITY,
            // A receiver of ours waits so long without a word of its operator.
            playout: Some(LATENCY),
        });
        let sources = |repair| Some(Sources { media: identity.ssrc, repair, cname: options.cname.clone() });
        let description = Description {
            address: options.to,
            source: (group && crate::source_specific(options.to.ip())).then_some(own),
            ttl: options.pair.ttl,
            rtcp_port: None,
            excluded: Vec::new(),
            reports: None,
            mux: options.pair.mux,
            secure: options.key.is_some(),
            payload_type,
            format,
            config,
            bandwidth: Some(cap.min(Rate::mbps(100_000))),
            feedback: PacketFeedback::of(feedback),
            ecn: options.ecn,
            key_frames: desk.is_some() && options.mode != Mode::Paper,
            repair: repair.map(|repair| Retransmissions {
                payload_type: repair.payload_type,
                kept: Some(KEPT),
                sources: sources(repair.ssrc),
            }),
            parity: parity
                .map(|parity| ParityStream { payload_type: parity.payload_type, sources: sources(parity.ssrc) }),
            // Nothing of another session passes for this one's.
            media: options.key.is_some().then(|| (identity.ssrc, options.cname.clone())),
            ours: ours(&options, shown),
        };
        let sdp = description.write(own, clock.epoch().0 >> 32);
        let shared = Arc::new(Shared::default());
        let app = factory.app();
        let paper = options.mode == Mode::Paper;
        if !paper {
            shared.orders.limit(Some(floor), None);
        }
        let replayed = feedback.is_replayed_for(own_format);
        let factory = if replayed { Replayed::at_sender(factory, Span::ZERO) } else { factory };
        let factory: Arc<dyn Factory> = if paper {
            factory
        } else {
            let served = StandardReports::new(factory, entry.standard_reports);
            let served = if feedback == FeedbackFormat::Own { served } else { served.expecting_packets() };
            let guarded = CircuitBreaker::new(Arc::new(served), shared.orders.clone());
            Arc::new(FeedbackDefence::new(Arc::new(guarded), shared.orders.clone()))
        };
        let source = VideoSource::new(settings, factory, setup, feed, by_ladder, seed.part("rtcp"), Time::ZERO);
        let source = source.with_ecn(options.ecn).with_repair(repair).with_padding(repair.is_some());
        // One receiver that is sent again what it lacks needs no parity but where that comes too late.
        let mut source = match parity {
            Some(parity) if repairs => source.with_parity_on_word(parity),
            parity => source.with_parity(parity),
        };
        Spool::keep(source.kept());
        // What becomes of each packet is not known here.
        source.frames = SentFrames::lean();
        let wired = WiredSource::new(source, payloads, None)
            .with_peers(Peers::new(clock.epoch(), app))
            .with_srtp(options.key.as_ref().map(Srtp::new));
        let how = if repairs && protects {
            "auto"
        } else if repairs {
            "rtx"
        } else if protects {
            "parity"
        } else {
            "none"
        };
        let mut driver = Loop::new(clock)?;
        let ix = driver.add(wired, pair)?;
        if let Some(desk) = &desk {
            desk.wake_by(driver.waker());
        }
        let waker = driver.waker();
        let mut session = Session {
            driver,
            ix,
            shared: Arc::clone(&shared),
            desk: desk.clone(),
            sizes,
            over,
            options,
            first_seq,
            how,
        };
        let handle = Handle::start("steadycast-send", Arc::clone(&shared), waker, move || {
            let record = session.run().and_then(|()| session.finish());
            // Whatever has ended it, nobody is to wait for it any more.
            session.desk.iter().for_each(EncoderDesk::close);
            record
        })?;
        Ok(Self { shared, handle, desk, sdp })
    }

    /// The session description, for receivers.
    pub fn sdp(&self) -> &str {
        &self.sdp
    }

    /// The desk at which its encoder works, where it has one.
    pub fn desk(&self) -> Option<EncoderDesk> {
        self.desk.clone()
    }

    /// How other threads see it, and end it: its end is the source's, or [`Handle::stop`].
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The receiver of this name is not heard any more, now or whenever it comes.
    pub fn exclude(&self, name: &str) {
        self.shared.excluded.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
    }

    /// All receivers are heard again.
    pub fn admit_all(&self) {
        self.shared.excluded.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.shared.orders.admit_all();
    }

    /// Lower and upper limit of the rate from now on.
    pub fn limit(&self, floor: Option<Rate>, cap: Option<Rate>) {
        self.shared.orders.limit(floor, cap);
    }

    /// The lower limit that the operator may move; none in paper mode.
    pub fn floor(&self) -> Option<Rate> {
        self.shared.orders.floor()
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let _ = self.handle.finish();
    }
}

/// What our receivers need to know to run the receiving half.
fn ours(options: &SendOptions, shown: Option<(u32, u32)>) -> Vec<(String, String)> {
    let mode = if options.mode == Mode::Paper { "paper" } else { "repaired" };
    let mut all = vec![
        ("controller".to_owned(), options.controller.clone()),
        ("mode".to_owned(), mode.to_owned()),
        ("session-bw".to_owned(), options.session_bandwidth.as_bps().to_string()),
        ("packet".to_owned(), options.packet.get().to_string()),
    ];
    // Pictures of any size are shown at this one.
    all.extend(shown.map(|(width, height)| ("size".to_owned(), format!("{width}x{height}"))));
    all.extend(options.buffer.map(|size| ("buffer".to_owned(), size.get().to_string())));
    all.extend(options.consume.map(|rate| ("consume".to_owned(), rate.as_bps().to_string())));
    all.extend(options.params.iter().map(|(key, value)| (format!("param.{key}"), said(value))));
    all
}

fn said(value: &Given) -> String {
    match value {
        Given::Number(n) => n.to_string(),
        Given::Text(text) => text.clone(),
        Given::Switch(on) => on.to_string(),
    }
}

struct Session {
    driver: Loop<WiredSource>,
    ix: crate::EndIx,
    shared: Arc<Shared>,
    desk: Option<EncoderDesk>,
    /// Of an encoder's pictures: the places in [`Sizes`].
    sizes: Vec<(u32, u32)>,
    over: Option<Arc<AtomicBool>>,
    options: SendOptions,
    first_seq: u16,
    /// What becomes of lost packets, as a scenario says it.
    how: &'static str,
}

/// How long a BYE may take, and what waits in the pacer at a source's end.
const LAST_WORDS: Span = Span::secs(2);

impl Session {
    fn run(&mut self) -> Result<(), LiveError> {
        let clock = self.driver.clock();
        self.tell(WiredSource::start);
        let mut next = Time::ZERO + STEP;
        loop {
            let shared = Arc::clone(&self.shared);
            self.driver.run(next, |_| !shared.calls())?;
            let now = clock.now();
            while next <= now {
                self.tell(|end, _, _| end.source_mut().sample(next));
                next += STEP;
            }
            self.exclude();
            self.shared.show(|| self.status(now));
            if self.shared.stopped() || self.ended() {
                break;
            }
        }
        // What waits in the pacer still leaves when the source has ended by itself.
        let until = clock.now() + LAST_WORDS;
        while !self.shared.stopped() && clock.now() < until && self.backlog() > Bytes::ZERO {
            self.driver.run(clock.now() + STEP, |_| true)?;
        }
        self.tell(WiredSource::stop);
        self.driver.run(clock.now() + LAST_WORDS, |_| true)?;
        self.shared.show_now(self.status(clock.now()));
        Ok(())
    }

    /// Names become known when their owners say them.
    fn exclude(&self) {
        let excluded = self.shared.excluded.lock().unwrap_or_else(PoisonError::into_inner);
        for (ssrc, peer) in self.end().peers().into_iter().flat_map(Peers::iter) {
            if excluded.contains(&peer.cname) {
                self.shared.orders.exclude(ssrc);
            }
        }
    }

    fn tell(&mut self, what: impl FnOnce(&mut WiredSource, Time, &mut Outbox)) {
        self.driver.tell(self.ix, what);
    }

    fn end(&self) -> &WiredSource {
        self.driver.end(self.ix)
    }

    fn backlog(&self) -> Bytes {
        self.end().source().session().map_or(Bytes::ZERO, |s| s.backlog().bytes)
    }

    /// At which sizes an encoder's frames were coded, and the present one.
    fn sizes(&self) -> Option<(Sizes, (u32, u32))> {
        let sizes = self.desk.as_ref()?.sizes();
        Some((sizes, *self.sizes.get(usize::from(sizes.now))?))
    }

    /// Whether the source has given all that it has.
    fn ended(&self) -> bool {
        self.desk.as_ref().is_some_and(EncoderDesk::over)
            || self.over.as_ref().is_some_and(|over| over.load(Ordering::Relaxed))
    }

    fn status(&self, now: Time) -> Value {
        let (end, source) = (self.end(), self.end().source());
        let aside: BTreeMap<u32, &str> = self.shared.orders.aside().into_iter().collect();
        let peers: Vec<Value> = end
            .peers()
            .into_iter()
            .flat_map(Peers::iter)
            .filter(|(ssrc, p)| source.session().is_none_or(|session| session.counts(now, *ssrc, p.last)))
            .map(|(ssrc, p)| {
                json!({
                    "ssrc": ssrc, "name": p.cname, "address": p.address.to_string(), "ours": p.ours, "left": p.left,
                    "aside": aside.get(&ssrc).copied().or_else(|| source.session()?.doubt(ssrc)),
                    "silent_s": now.since(p.last).as_secs_f64(), "reports": p.reports, "packets": p.packets,
                    "rtt_ms": p.rtt.map(|r| r.as_millis_f64()),
                    "loss_frac": p.block.map(|b| f64::from(b.fraction) / 256.0),
                    "jitter_ms": p.block.map(|b| f64::from(b.jitter) / 90.0),
                })
            })
            .collect();
        let recent = source.samples.len().saturating_sub(10);
        let sent: u64 = source.samples[recent..].iter().map(|s| s.bytes).sum();
        let span = STEP * (source.samples.len() - recent).max(1) as u64;
        let decision = source.session().map(|s| s.decision().clone());
        let decided = decision.map(|d| {
            let limit = source.decisions.last().map_or("start", |row| source.limit(row));
            let by = d.why.by.and_then(|id| end.peers()?.name(id.0)).map(str::to_owned);
            json!({
                "target_bps": d.target.as_bps_f64(), "pacing_bps": d.pacing.as_bps_f64(), "limit": limit,
                "at_floor": d.limit == Limit::Floor, "rule": d.why.rule, "loss": d.why.loss,
                "rtt_ms": d.why.rtt.map(|r| r.as_millis_f64()), "by": by,
            })
        });
        let (refused, unsent) = self.driver.pair(self.ix).rtp().failures();
        let last = source.frames.frames.last().map(|f| f.coded.quantizer);
        json!({
            "at_s": now.as_secs_f64(),
            "rate_bps": Bytes::new(sent).per(span).as_bps_f64(),
            "decision": decided,
            "backlog_ms": source.session().map(|s| s.backlog().bytes.at(s.decision().pacing).as_millis_f64()),
            "packets": source.sent_packets, "bytes": source.sent_bytes.get(), "frames": source.frames.frames.len(),
            "skipped_frames": source.skipped(), "left_out": self.desk.as_ref().map_or(0, EncoderDesk::left_out),
            "ecn": source.ecn().map(|(path, counts)| json!({
                "path": path.name(), "failure": path.failure(), "sent": counts.sent, "marked": counts.marked,
            })),
            "no_room": self.desk.as_ref().map_or(0, EncoderDesk::no_room),
            "size": self.sizes().map(|(sizes, (width, height))| json!({
                "width": width, "height": height, "smaller": sizes.now > 0, "smaller_frames": sizes.smaller, "changes": sizes.changes,
            })),
            "repair": source.repairs().map(|r| json!({
                "packets": r.packets, "parities": r.parities, "refused": r.refused, "stale": r.stale,
            })),
            "padding": source.padding().map(|(packets, _)| packets), "key_frames": source.key_frames, "quantizer": last, "feedback": source.feedback().packets,
            "feedback_refused": source.feedback().refused, "floor_bps": self.shared.orders.floor().map(Rate::as_bps_f64), "refused": refused, "unsent": unsent,
            "unreadable": end.peers().map_or(0, Peers::unreadable), "peers": peers,
        })
    }

    fn finish(&mut self) -> Result<LiveRecord, LiveError> {
        let clock = self.driver.clock();
        let now = clock.now();
        let driver = std::mem::replace(&mut self.driver, Loop::new(clock)?);
        let late = driver.lateness().spread.clone();
        let Some((mut wired, pair)) = driver.into_ends().pop() else {
            return Err(LiveError::Record("the sender is gone".into()));
        };
        wired.source_mut().kept().into_iter().try_for_each(Kept::recall)?;
        let sent = wired.source().sent_bytes.per(now.since(Time::ZERO));
        let none = Peers::new(clock.epoch(), *b"NONE");
        let (names, rows) = reported(wired.peers().unwrap_or(&none), self.first_seq, Time::ZERO, sent);
        let rates: Vec<f64> = rows.iter().filter_map(|row| row.get(&receiver::THROUGHPUT)?.as_f64()).collect();
        let left_out = self.desk.as_ref().map_or(0, EncoderDesk::left_out);
        let no_room = self.desk.as_ref().map_or(0, EncoderDesk::no_room);
        let sizes = self.sizes().map(|(sizes, _)| sizes).unwrap_or_default();
        let coded = wired.source().frames.frames.len();
        let key_frames = wired.source().key_frames;
        // What arrived is known by reports alone.
        let also = &mut wired.source_mut().also;
        also.put(&flow::THROUGHPUT, (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64));
        also.put_list(&flow::RECEIVERS, rows);
        also.put(&flow::SENT_BPS, sent.as_bps_f64());
        also.put_spread(&flow::PACING_LATE, &late);
        also.put(&flow::CODED_FRAMES, coded);
        also.put(&flow::LEFT_OUT_FRAMES, left_out);
        also.put(&flow::NO_ROOM_FRAMES, no_room);
        also.put(&flow::SMALLER_FRAMES, sizes.smaller);
        also.put(&flow::SIZE_CHANGES, sizes.changes);
        also.put(&flow::KEY_FRAMES, key_frames);
        let mut warnings = Vec::new();
        let (refused, unsent) = pair.rtp().failures();
        if refused > 0 {
            warnings.push(format!("{refused} packets were refused: nobody listened at {}", self.options.to));
        }
        if unsent > 0 {
            warnings.push(format!("{unsent} packets could not leave this machine"));
        }
        if left_out > 0 {
            warnings.push(format!("the encoder was too slow: {left_out} pictures were left out"));
        }
        if let Some(failure) = wired.source().ecn().and_then(|(path, _)| path.failure()) {
            warnings.push(format!("{failure}: packets left as not ECN-capable from then on"));
        }
        if no_room > 0 {
            warnings.push(format!(
                "the rate had no room for {no_room} pictures: take a higher --floor, or a smaller --size"
            ));
        }
        if sizes.smaller > 0 {
            let (width, height) = self.sizes.first().copied().unwrap_or_default();
            warnings.push(format!(
                "the rate had no room for {width}x{height} in {} of {coded} frames, which were made smaller: take a higher --floor, or a \
                 smaller --size",
                sizes.smaller
            ));
        }
        if names.is_empty() {
            warnings.push("no receiver has reported: what arrived is not known".into());
        }
        let ecn = self.options.ecn;
        let quoted = |(key, value): &(String, Given)| match value {
            Given::Text(text) => format!("{key} = {}", Value::String(text.clone())),
            other => format!("{key} = {}", said(other)),
        };
        let words = Words {
            controller: self.options.controller.clone(),
            mode: if self.options.mode == Mode::Paper { "paper" } else { "repaired" },
            params: self.options.params.iter().map(quoted).collect(),
            packet: self.options.packet.get(),
            clip: self.options.clip.clone(),
            receivers: names,
            group: self.options.to.ip().is_multicast(),
            repair: self.how,
            padding: wired.source().padding().is_some_and(|(packets, _)| packets > 0),
            ecn,
        };
        let agent = Agent::VideoSource(Box::new(wired.into_source()));
        LiveRecord::new(&words, agent, Time::ZERO..now, now, warnings, Vec::new())
            .map_err(|problems| LiveError::Record(problems.to_string()))
    }
}
