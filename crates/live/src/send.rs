//! The session of a live sender, which runs in a separate thread.

use crate::Waker;
use crate::broadcast::{RungFeed, RungStatus};
use crate::browser::NegotiatedOffer;
use crate::entropy;
use crate::flow::{self, FLOW, FlowKeys, SOURCE};
use crate::handle::Shared;
use crate::live_record::{STEP, reported};
use crate::net::audio_address;
use crate::sdp::{
    AudioStream, Description, PacketFeedback, ParityStream, Retransmissions, Sources, default_payload_type,
};
use crate::{
    AudioQueue, Broadcast, Clock, Destination, EncoderQueue, Handle, LadderFeed, LiveError, LiveFeed, LiveRecord, Loop,
    MasterKey, Outbox, Pair, PairOptions, PayloadStore, Payloads, Peers, SharedRungs, SizeStats, SocketSource, Srtp,
    Steering, TempStore, ZeroPayloads, source_specific,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use steadycast_control::registry::Given;
use steadycast_control::{FeedbackFormat, Limit, Mode};
use steadycast_endpoints::{Agent, HostContext, RemotePeer, StoredRows, Supply, VideoPlan, VideoSource};
use steadycast_media::{AudioFeed, Feed, Ladder, SentFrames};
use steadycast_record::{flow as flow_figures, receiver};
use steadycast_scenario::{Loaded, Video};
use steadycast_session::AudioSettings;
use steadycast_units::{Bytes, Rate, Seed, Span, Time, counted};
use steadycast_web::State;
use steadycast_wire::payload::PayloadFormat;

/// The media that a session sends.
pub enum Medium {
    /// Zero bytes without end, at the full rate.
    Greedy,
    /// Frames from an encoder in another thread.
    Encoder {
        /// Payload format.
        format: PayloadFormat,
        /// Decoder configuration, for example parameter sets.
        config: Vec<u8>,
        /// Parameters of the encoder's rate control.
        steering: Steering,
    },
    /// A live source that is encoded once for all viewers.
    Broadcast {
        /// Payload format.
        format: PayloadFormat,
        /// Decoder configuration, for example parameter sets.
        config: Vec<u8>,
        /// The source that the frames come from.
        broadcast: Broadcast,
    },
    /// A clip that was encoded in advance with each quantizer.
    Ladder {
        /// Payload format.
        format: PayloadFormat,
        /// Decoder configuration, for example parameter sets.
        config: Vec<u8>,
        /// Sizes of the frames.
        ladder: Arc<Ladder>,
        /// Encoded frames of each quantizer.
        rungs: SharedRungs,
        /// Number of frames to send. If `None`, the clip is repeated without end.
        frames: Option<u32>,
    },
}

impl Medium {
    pub(crate) const fn format(&self) -> Option<PayloadFormat> {
        match self {
            Self::Greedy => None,
            Self::Encoder { format, .. } | Self::Broadcast { format, .. } | Self::Ladder { format, .. } => {
                Some(*format)
            }
        }
    }

    fn supply(&self) -> Supply {
        match self {
            Self::Greedy => Supply::Endless(None),
            Self::Encoder { .. } | Self::Broadcast { .. } => Supply::Encoder,
            Self::Ladder { ladder, .. } => Supply::Ladder(Arc::clone(ladder)),
        }
    }

    pub(crate) fn config(&self) -> Vec<u8> {
        match self {
            Self::Greedy => Vec::new(),
            Self::Encoder { config, .. } | Self::Broadcast { config, .. } | Self::Ladder { config, .. } => {
                config.clone()
            }
        }
    }
}

/// Minimum time for which packets are stored after they were sent, so that they can be sent again.
const MIN_CACHE_TIME: Span = Span::secs(1);

/// Options of a sender.
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// Keys of the flow, as in a scenario file. A key that is missing has the default of a live sender.
    pub flow: FlowKeys,
    /// The destination.
    pub to: Destination,
    /// Options of the sockets, if the destination is an address.
    pub pair: PairOptions,
    /// Canonical name (CNAME).
    pub cname: String,
    /// Size of the receivers' play-out buffer. It is written into the session description.
    pub buffer: Option<Bytes>,
    /// Rate at which this buffer drains.
    pub consume: Option<Rate>,
    /// The SRTP master key that protects media and reports.
    pub key: Option<MasterKey>,
}

/// A sender that is running.
pub struct Sending {
    shared: Arc<Shared>,
    /// Observes and stops the sender. Without a stop, the sender ends when its source ends.
    pub handle: Handle,
    /// Queue for the jobs and frames of the encoder, if there is an encoder.
    pub encoder_queue: Option<EncoderQueue>,
    /// Queue for the encoded audio, if the flow has audio.
    pub audio_queue: Option<AudioQueue>,
    /// Session description for receivers, answer to a browser, or offer to a server.
    pub sdp: String,
}

/// Lowest floor that the operator can set. If the floor was lower at the start, the lower floor is the limit.
const MIN_FLOOR: Rate = Rate::kbps(50);

/// Maximum delay that the pacer makes up for when it wakes late. A longer time would cause bursts.
const PACER_CREDIT: Span = Span::millis(4);

struct Prepared {
    feed: Option<Box<dyn Feed>>,
    payloads: Box<dyn Payloads>,
    encoder_queue: Option<EncoderQueue>,
    /// Picture sizes that the encoder may use.
    sizes: Vec<(u32, u32)>,
    /// A flag that is set after the last frame of a ladder or a broadcast.
    over: Option<Arc<AtomicBool>>,
    rung: Option<RungStatus>,
}

impl Prepared {
    /// Prepares a medium. If it is a broadcast, its feed wakes the loop of `waker` and adds audio packets to `audio`.
    fn of(medium: Medium, plan: &VideoPlan, clock: Clock, waker: Waker, audio: Option<&AudioQueue>) -> Self {
        let store = |format| PayloadStore::new(format, plan.payload() as usize);
        let without_feed = Self {
            feed: None,
            payloads: Box::new(ZeroPayloads),
            encoder_queue: None,
            sizes: Vec::new(),
            over: None,
            rung: None,
        };
        match medium {
            Medium::Broadcast { format, broadcast, .. } => {
                let (store, sizes) = (store(format), broadcast.sizes().to_vec());
                let mut feed = RungFeed::new(broadcast, store.clone());
                feed.attach(waker, audio.cloned());
                let status = feed.status();
                Self {
                    feed: Some(Box::new(feed)),
                    payloads: Box::new(store),
                    sizes,
                    over: Some(status.over()),
                    rung: Some(status),
                    ..without_feed
                }
            }
            Medium::Greedy => without_feed,
            Medium::Encoder { format, mut steering, .. } => {
                let (store, encoder_queue) = (store(format), EncoderQueue::default());
                steering.overhead = plan.headers();
                // Keep the picture size in paper mode, as the encoders of the reproduced publications do.
                if plan.mode() == Mode::Paper {
                    steering.sizes.truncate(1);
                }
                let sizes = steering.sizes.clone();
                let feed = LiveFeed::new(encoder_queue.clone(), store.clone(), steering, clock);
                Self {
                    feed: Some(Box::new(feed)),
                    payloads: Box::new(store),
                    encoder_queue: Some(encoder_queue),
                    sizes,
                    ..without_feed
                }
            }
            Medium::Ladder { format, ladder, rungs, frames, .. } => {
                let store = store(format);
                let feed = LadderFeed::new(plan.encoder(&ladder), store.clone(), rungs, frames);
                let over = Some(feed.over());
                Self { feed: Some(Box::new(feed)), payloads: Box::new(store), over, ..without_feed }
            }
        }
    }
}

impl Sending {
    /// Opens the sockets and starts to send.
    ///
    /// # Errors
    /// A key of the flow, an address or the medium can't be used. Nothing was sent.
    pub fn start(options: SendOptions, medium: Medium) -> Result<Self, LiveError> {
        let connection = match &options.to {
            Destination::Address(_) => None,
            Destination::Browser { offer, port, address, .. } => {
                let negotiated = NegotiatedOffer::of(offer, &medium, options.flow.has("audio"))?;
                let pair = negotiated.attach(port, *address)?;
                Some((negotiated, pair))
            }
            Destination::Server(_) => return Err(LiveError::unwritten("the offer is gone")),
        };
        Self::begin(options, medium, entropy::seed()?, connection)
    }

    /// Starts to send. `connection` contains the negotiated offer of a browser or server, and the sockets.
    fn begin(
        options: SendOptions,
        medium: Medium,
        seed: Seed,
        connection: Option<(NegotiatedOffer, Pair)>,
    ) -> Result<Self, LiveError> {
        let (clock, shared) = (Clock::start(), Arc::new(Shared::default()));
        let negotiated = connection.as_ref().map(|(negotiated, _)| negotiated);
        let (options, loaded, place) = options.resolved(&medium, clock, &shared, seed, negotiated)?;
        let (video, plan) = planned(&loaded, &medium, place)?;
        let session = session_number(clock);
        let (pair, sdp, browser) = if let Some((negotiated, pair)) = connection {
            let local = SocketAddr::new(options.to.ip(), pair.rtp().local().port());
            let sdp =
                negotiated.describe(local, &options.others(local), &plan, session, makes_key_frames(video, &medium));
            (pair, sdp, Some(negotiated.connection(&clock, local)?))
        } else {
            let (pair, sdp) = options.opened(video, &plan, &medium, session)?;
            (pair, sdp, None)
        };
        let mut driver = Loop::new(clock)?;
        let waker = driver.waker();
        let audio_queue = video.audio.map(|_| AudioQueue::default());
        let prepared = Prepared::of(medium, &plan, clock, waker.clone(), audio_queue.as_ref());
        let mut source = plan.source(FLOW, prepared.feed, None, Time::ZERO);
        TempStore::keep(source.stored_rows());
        // Keep few rows of frames, because a live sender does not learn what happens to each packet.
        source.frames = SentFrames::lean();
        // Replace the plan's audio, whose packets have no content, by the queue.
        source.audio = audio_queue.clone().map(|queue| Box::new(queue) as Box<dyn AudioFeed>);
        let mut wired = SocketSource::new(source, prepared.payloads);
        wired.audio.clone_from(&audio_queue);
        wired.peers = Some(Peers::new(clock.epoch(), plan.app()));
        wired.srtp = options.key.as_ref().map(Srtp::new);
        wired.orders = Some(shared.orders.clone());
        wired.browser = browser;
        let ix = driver.add(wired, pair)?;
        let (encoder_queue, sizes, over) = (prepared.encoder_queue, prepared.sizes, prepared.over);
        let rung = prepared.rung;
        // Let other threads wake the loop.
        if let Some(encoder_queue) = &encoder_queue {
            encoder_queue.wake_by(driver.waker());
        }
        if let Some(audio_queue) = &audio_queue {
            audio_queue.wake_by(driver.waker());
        }
        let session = Session {
            driver,
            ix,
            shared: Arc::clone(&shared),
            encoder_queue: encoder_queue.clone(),
            audio_queue: audio_queue.clone(),
            sizes,
            over,
            rung,
            options,
            loaded,
        };
        let handle = Handle::start("steadycast-send", Arc::clone(&shared), waker, move || session.run_to_end())?;
        Ok(Self { shared, handle, encoder_queue, audio_queue, sdp })
    }

    /// Checks the keys of a flow like [`Sending::start`], but opens no sockets.
    pub fn check(options: SendOptions, medium: &Medium) -> Result<(), LiveError> {
        let (clock, shared) = (Clock::start(), Arc::new(Shared::default()));
        let (_, loaded, place) = options.resolved(medium, clock, &shared, entropy::seed()?, None)?;
        planned(&loaded, medium, place).map(|_| ())
    }

    /// Ignores the reports of all receivers that have this canonical name.
    pub fn exclude(&self, name: &str) {
        self.shared.excluded.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
    }

    /// Accepts the reports of all receivers again.
    pub fn admit_all(&self) {
        self.shared.excluded.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.shared.orders.admit_all();
    }

    /// Sets the lower and the upper limit of the rate.
    pub fn limit(&self, floor: Option<Rate>, cap: Option<Rate>) {
        self.shared.orders.limit(floor, cap);
    }

    /// Returns the lower limit of the rate. Returns `None` in paper mode.
    pub fn floor(&self) -> Option<Rate> {
        self.shared.orders.floor()
    }
}

/// Returns a number for the session. It is the NTP time of the start in seconds, which is unique (RFC 8866, section
/// 5.2).
fn session_number(clock: Clock) -> u64 {
    clock.epoch().0 >> 32
}

impl SendOptions {
    /// Adds the defaults to the keys of the flow, and checks all keys by the rules for scenario files.
    fn resolved(
        self,
        medium: &Medium,
        clock: Clock,
        shared: &Shared,
        seed: Seed,
        negotiated: Option<&NegotiatedOffer>,
    ) -> Result<(Self, Loaded, HostContext), LiveError> {
        let to = self.to.ip();
        let apart = self.apart(medium, clock, shared);
        let (keys, apart) = match negotiated {
            Some(negotiated) => (negotiated.keys(self.flow)?, negotiated.apart(apart)),
            None => (self.flow, apart),
        };
        let flow = keys.of_sender(to, !matches!(medium, Medium::Greedy));
        let loaded = flow.scenario(&[], to.is_multicast(), Span::ZERO)?;
        let place = HostContext { seed, credit: PACER_CREDIT, mtu: flow::MTU, apart: Some(apart) };
        Ok((Self { flow, ..self }, loaded, place))
    }

    /// Returns further addresses of this end, for a browser.
    fn others(&self, local: SocketAddr) -> Vec<SocketAddr> {
        match &self.to {
            Destination::Browser { others, .. } => others.iter().map(|ip| SocketAddr::new(*ip, local.port())).collect(),
            Destination::Address(_) | Destination::Server(_) => Vec::new(),
        }
    }

    /// Opens the sockets that send to an address, and writes the session description.
    fn opened(
        &self,
        video: &Video,
        plan: &VideoPlan,
        medium: &Medium,
        session: u64,
    ) -> Result<(Pair, String), LiveError> {
        let Destination::Address(to) = &self.to else { return Err(LiveError::unwritten("the offer is gone")) };
        let mut pair = Pair::sender(*to, &self.pair)?;
        if video.audio.is_some() {
            // Use the two ports after the two ports of the video.
            let local = self.pair.local.and_then(|port| port.checked_add(2));
            let beside = PairOptions { local, ..self.pair.clone() };
            pair = pair.with_audio(Pair::sender(audio_address(*to)?, &beside)?);
        }
        let own = pair.rtp().local().ip();
        let described = describe(*to, self, video, plan, medium, own)?;
        Ok((pair, described.write(own, session)))
    }

    /// Returns the settings for a flow whose receivers run in another program.
    fn apart(&self, medium: &Medium, clock: Clock, shared: &Shared) -> RemotePeer {
        let to = self.to.ip();
        RemotePeer {
            // Set no peer for a group, because a group has no single peer.
            peer: (!to.is_multicast()).then(|| crate::socket_endpoint::host(to)),
            tag: self.key.as_ref().map_or(0, |key| key.profile().tag() as u64),
            floor: MIN_FLOOR,
            operator: shared.orders.clone(),
            ..flow::remote_peer(&self.cname, clock, default_payload_type(medium.format()))
        }
    }
}

fn planned<'l>(loaded: &'l Loaded, medium: &Medium, place: HostContext) -> Result<(&'l Video, VideoPlan), LiveError> {
    let video = flow::video(loaded)?;
    let plan = VideoPlan::supplied(&loaded.scenario.flows[0], video, medium.supply(), place)?;
    if video.feedback.is_coarse() {
        let what = "it is for simulated and emulated flows";
        return Err(LiveError::new("--feedback", what, "take own, rfc8888 or twcc"));
    }
    if video.ecn.is_capable() && plan.feedback() != FeedbackFormat::Rfc8888 {
        let what = "marks are known, and the path is checked, by reports of single packets that tell of them";
        return Err(LiveError::new("--ecn", what, "take --feedback rfc8888"));
    }
    Ok((video, plan))
}

/// An offer to a server (WHIP, RFC 9725), and the socket for it.
pub struct LocalOffer {
    options: SendOptions,
    seed: Seed,
    negotiated: NegotiatedOffer,
    pair: Pair,
    /// The offer as a session description.
    pub sdp: String,
}

impl LocalOffer {
    /// Opens a socket and creates the offer.
    pub fn new(options: SendOptions, medium: &Medium) -> Result<Self, LiveError> {
        let (clock, shared, seed) = (Clock::start(), Shared::default(), entropy::seed()?);
        let negotiated = NegotiatedOffer::to_server(medium, &options.flow)?;
        let (resolved, loaded, place) = options.clone().resolved(medium, clock, &shared, seed, Some(&negotiated))?;
        let (video, plan) = planned(&loaded, medium, place)?;
        let pair = Pair::to_server(resolved.to.ip(), &resolved.pair)?;
        let local = SocketAddr::new(resolved.to.ip(), pair.rtp().local().port());
        let (session, key_frames) = (session_number(clock), makes_key_frames(video, medium));
        let sdp = negotiated.describe(local, &[], &plan, session, key_frames);
        Ok(Self { options, seed, negotiated, pair, sdp })
    }

    /// Starts to send after the server has answered. The SSRCs are the same as in the offer, because they come from the
    /// same seed.
    pub fn start(self, answer: &str, medium: Medium) -> Result<Sending, LiveError> {
        let Self { options, seed, negotiated, pair, sdp } = self;
        let negotiated = negotiated.accepted(answer, &medium, options.to.ip())?;
        let mut sending = Sending::begin(options, medium, seed, Some((negotiated, pair)))?;
        sending.sdp = sdp;
        Ok(sending)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let _ = self.handle.finish();
    }
}

/// Returns whether the sender makes key frames on request.
fn makes_key_frames(video: &Video, medium: &Medium) -> bool {
    matches!(medium, Medium::Encoder { .. } | Medium::Broadcast { .. }) && video.mode != Mode::Paper
}

fn describe(
    to: SocketAddr,
    options: &SendOptions,
    video: &Video,
    plan: &VideoPlan,
    medium: &Medium,
    own: IpAddr,
) -> Result<Description, LiveError> {
    let media = plan.sender(SOURCE);
    let sources =
        |ssrc| Some(Sources { media: media.identity.ssrc, repair: ssrc, cname: media.identity.cname.clone() });
    let audio = |audio: AudioSettings| {
        let source = Some((audio.ssrc, media.identity.cname.clone()));
        Ok::<_, LiveError>(AudioStream { payload_type: audio.payload_type, port: audio_address(to)?.port(), source })
    };
    Ok(Description {
        // Include the source, because receivers need it to join a source-specific group.
        source: source_specific(to.ip()).then_some(own),
        ttl: options.pair.ttl,
        mux: options.pair.mux,
        secure: options.key.is_some(),
        payload_type: media.payload_type,
        config: medium.config(),
        bandwidth: Some(plan.cap()),
        feedback: PacketFeedback::of(plan.feedback()),
        ecn: video.ecn,
        key_frames: makes_key_frames(video, medium),
        repair: plan.repair(FLOW).map(|repair| Retransmissions {
            payload_type: repair.payload_type,
            kept: Some(MIN_CACHE_TIME),
            sources: sources(repair.ssrc),
        }),
        parity: plan
            .parity(FLOW)
            .map(|parity| ParityStream { payload_type: parity.payload_type, sources: sources(parity.ssrc) }),
        // Announce the SSRC, so that receivers reject packets of other sessions that use the same key.
        media: options.key.is_some().then(|| (media.identity.ssrc, media.identity.cname.clone())),
        audio: plan.audio(FLOW).map(audio).transpose()?,
        ours: ours(options, video, medium),
        ..Description::bare(to, medium.format())
    })
}

/// Returns the private values of the session description, which only receivers of this program read.
fn ours(options: &SendOptions, video: &Video, medium: &Medium) -> Vec<(String, String)> {
    let mode = if video.mode == Mode::Paper { "paper" } else { "repaired" };
    let mut all = vec![
        ("controller".to_owned(), video.controller.name().to_owned()),
        ("mode".to_owned(), mode.to_owned()),
        ("session-bw".to_owned(), video.rtcp.session_bw.as_bps().to_string()),
        ("packet".to_owned(), video.packet.get().to_string()),
    ];
    // Announce the largest size, because receivers scale all pictures to it.
    if let Medium::Encoder { steering, .. } = medium {
        all.extend(steering.sizes.first().map(|(width, height)| ("size".to_owned(), format!("{width}x{height}"))));
    }
    all.extend(options.buffer.map(|size| ("buffer".to_owned(), size.get().to_string())));
    all.extend(options.consume.map(|rate| ("consume".to_owned(), rate.as_bps().to_string())));
    all.extend(video.given().iter().map(|(key, value)| (format!("param.{key}"), to_text(value))));
    all
}

fn to_text(value: &Given) -> String {
    match value {
        Given::Number(n) => n.to_string(),
        Given::Text(text) => text.clone(),
        Given::Switch(on) => on.to_string(),
    }
}

struct Session {
    driver: Loop<SocketSource>,
    ix: crate::EndIx,
    shared: Arc<Shared>,
    encoder_queue: Option<EncoderQueue>,
    audio_queue: Option<AudioQueue>,
    /// Picture sizes of the encoder. [`SizeStats::now`] is an index into this list.
    sizes: Vec<(u32, u32)>,
    over: Option<Arc<AtomicBool>>,
    rung: Option<RungStatus>,
    options: SendOptions,
    /// The scenario at the start of the session.
    loaded: Loaded,
}

/// If no report on audio arrives after this number of audio packets, there is a warning. It corresponds to three
/// seconds.
const MIN_AUDIO_PACKETS: u64 = 150;

/// Maximum time for sending what the pacer contains, and again for sending the BYE.
const DRAIN_TIMEOUT: Span = Span::secs(2);

impl Session {
    fn run_to_end(mut self) -> Result<LiveRecord, LiveError> {
        let record = self.run().and_then(|()| self.finish());
        // Close the queues, so that the encoder's thread does not wait for jobs of a session that has ended.
        self.encoder_queue.iter().for_each(EncoderQueue::close);
        self.audio_queue.iter().for_each(AudioQueue::close);
        self.rung.iter().for_each(RungStatus::leave);
        record
    }

    fn run(&mut self) -> Result<(), LiveError> {
        let clock = self.driver.clock;
        self.call(SocketSource::start);
        let mut next = Time::ZERO + STEP;
        loop {
            let shared = Arc::clone(&self.shared);
            // A request from another thread ends the wait early.
            self.driver.run(next, |_| !shared.calls())?;
            let now = clock.now();
            // Sample each step that is due, so that the series has no gaps after a stall.
            while next <= now {
                self.call(|end, _, _| end.source.sample(next));
                next += STEP;
            }
            self.exclude();
            if let (Some(queue), Some(loss)) = (&self.audio_queue, self.audio_loss()) {
                queue.set_loss(loss);
            }
            self.shared.show(|| self.status(now));
            if self.shared.stopped() || self.ended() {
                break;
            }
        }
        // Send what the pacer still contains after the source has ended.
        let until = clock.now() + DRAIN_TIMEOUT;
        while !self.shared.stopped() && !self.is_alone() && clock.now() < until && self.backlog() > Bytes::ZERO {
            self.driver.run(clock.now() + STEP, |_| true)?;
        }
        self.call(SocketSource::stop);
        self.driver.run(clock.now() + DRAIN_TIMEOUT, |_| true)?;
        self.shared.show_now(self.status(clock.now()));
        Ok(())
    }

    /// Excludes receivers by their canonical names. The names are known only from SDES packets.
    fn exclude(&self) {
        let excluded = self.shared.excluded.lock().unwrap_or_else(PoisonError::into_inner);
        for (ssrc, peer) in self.end().peers.as_ref().into_iter().flat_map(Peers::iter) {
            if excluded.contains(&peer.cname) {
                self.shared.orders.exclude(ssrc);
            }
        }
    }

    fn audio_loss(&self) -> Option<f64> {
        self.end().source.session()?.audio_loss()
    }

    fn call(&mut self, what: impl FnOnce(&mut SocketSource, Time, &mut Outbox)) {
        self.driver.call(self.ix, what);
    }

    fn end(&self) -> &SocketSource {
        self.driver.end(self.ix)
    }

    fn backlog(&self) -> Bytes {
        self.end().source.session().map_or(Bytes::ZERO, |s| s.backlog().bytes)
    }

    /// Returns the statistics of picture sizes, and the present size.
    fn sizes(&self) -> Option<(SizeStats, (u32, u32))> {
        let sizes = match (&self.encoder_queue, &self.rung) {
            (Some(encoder_queue), _) => encoder_queue.sizes(),
            (None, Some(rung)) => rung.view().sizes,
            (None, None) => return None,
        };
        Some((sizes, *self.sizes.get(usize::from(sizes.now))?))
    }

    /// Returns two numbers of pictures that were not encoded: first because the encoder was slow, second because the
    /// backlog was too large.
    fn missing(&self) -> (u64, u64) {
        match (&self.encoder_queue, &self.rung) {
            (Some(encoder_queue), _) => (encoder_queue.left_out(), encoder_queue.no_room()),
            (None, Some(rung)) => (rung.view().left_out, 0),
            (None, None) => (0, 0),
        }
    }

    /// Returns the status of the rung that a viewer of a broadcast gets.
    fn rung(&self) -> Option<Value> {
        let view = self.rung.as_ref()?.view();
        Some(json!({
            "rung": view.rung, "rungs": view.rungs, "need_bps": view.need.as_bps_f64(),
            "finer_bps": view.finer.map(Rate::as_bps_f64), "why": view.why, "switches": view.switches,
            "abandoned": view.abandoned,
        }))
    }

    /// Returns whether the connection to the browser or server has ended.
    fn is_alone(&self) -> bool {
        self.end().browser.as_ref().is_some_and(|browser| browser.tunnel.state() == State::Ended)
    }

    /// Returns whether the source, or the connection to the browser or server, has ended.
    fn ended(&self) -> bool {
        self.is_alone()
            || self.encoder_queue.as_ref().is_some_and(EncoderQueue::over)
            || self.over.as_ref().is_some_and(|over| over.load(Ordering::Relaxed))
    }

    fn status(&self, now: Time) -> Value {
        let (end, source) = (self.end(), &self.end().source);
        let aside: BTreeMap<u32, &str> = self.shared.orders.aside().into_iter().collect();
        let peers: Vec<Value> = end
            .peers
            .as_ref()
            .into_iter()
            .flat_map(Peers::iter)
            .filter(|(ssrc, p)| source.session().is_none_or(|session| session.counts(now, *ssrc, p.last)))
            .map(|(ssrc, p)| {
                json!({
                    "ssrc": ssrc, "name": p.cname, "address": p.address.to_string(), "ours": p.ours, "left": p.left,
                    "aside": aside.get(&ssrc).copied().or_else(|| source.session()?.doubt(ssrc)),
                    "known_s": now.since(p.first).as_secs_f64(), "silent_s": now.since(p.last).as_secs_f64(),
                    "reports": p.reports, "packets": p.packets, "implausible": p.implausible,
                    "rtt_ms": p.rtt.map(|r| r.as_millis_f64()),
                    "loss_frac": p.block.map(|b| f64::from(b.block.fraction) / 256.0),
                    "jitter_ms": p.block.map(|b| f64::from(b.block.jitter) / 90.0),
                })
            })
            .collect();
        // Average over the last second, which has ten samples.
        let recent = source.samples.len().saturating_sub(10);
        let sent: u64 = source.samples[recent..].iter().map(|s| s.bytes).sum();
        let span = STEP * (source.samples.len() - recent).max(1) as u64;
        let decision = source.session().map(|s| s.decision().clone());
        let decided = decision.map(|d| {
            let limit = source.decisions.last().map_or("start", |row| source.limit(row));
            let by = d.why.by.and_then(|id| end.peers.as_ref()?.name(id.0)).map(str::to_owned);
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
            "packets": source.rtp_packets(), "bytes": source.sent_bytes.get(), "frames": source.frames.count(),
            "skipped_frames": source.skipped(),
            "left_out": self.missing().0,
            "ecn": source.ecn().map(|(path, counts)| json!({
                "path": path.name(), "failure": path.failure(), "sent": counts.sent, "marked": counts.marked,
            })),
            "no_room": self.missing().1,
            "rung": self.rung(),
            "size": self.sizes().map(|(sizes, (width, height))| json!({
                "width": width, "height": height, "smaller": sizes.now > 0,
                "smaller_frames": sizes.smaller, "changes": sizes.changes,
            })),
            "repair": source.repairs().map(|r| json!({
                "packets": r.packets, "parities": r.parities, "refused": r.refused, "stale": r.stale,
            })),
            "audio": self.audio_queue.as_ref().map(|_| json!({
                "packets": source.audio_packets, "loss_frac": self.audio_loss(),
            })),
            "padding": source.padding().map(|(packets, _)| packets), "key_frames": source.key_frames,
            "quantizer": last, "feedback": source.feedback().packets,
            "feedback_refused": source.feedback().refused,
            "floor_bps": self.shared.orders.floor().map(Rate::as_bps_f64), "refused": refused, "unsent": unsent,
            "unreadable": end.peers.as_ref().map_or(0, Peers::unreadable), "peers": peers,
            "last_heard": end.peers.as_ref().and_then(Peers::latest).map(|p| json!({
                "name": p.cname, "address": p.address.to_string(), "left": p.left, "at_s": p.last.as_secs_f64(),
            })),
            "browser": end.browser.as_ref().map(|browser| browser.status(now)),
        })
    }

    fn finish(&mut self) -> Result<LiveRecord, LiveError> {
        let clock = self.driver.clock;
        let now = clock.now();
        // Replace the loop by an empty one, because `into_ends` consumes the loop.
        let driver = std::mem::replace(&mut self.driver, Loop::new(clock)?);
        let late = driver.late.clone();
        let Some((mut wired, pair)) = driver.into_ends().pop() else {
            return Err(LiveError::unwritten("the sender is gone"));
        };
        // Read the rows in the temporary file back into memory, because the record needs them.
        wired.source.stored_rows().into_iter().try_for_each(StoredRows::recall)?;
        let sent = wired.source.sent_bytes.per(now.since(Time::ZERO));
        let none = Peers::new(clock.epoch(), *b"NONE");
        let (names, rows) = reported(wired.peers.as_ref().unwrap_or(&none));
        let rates: Vec<f64> = rows.iter().filter_map(|row| row.get(&receiver::THROUGHPUT)?.as_f64()).collect();
        let (left_out, no_room) = self.missing();
        let sizes = self.sizes().map(|(sizes, _)| sizes).unwrap_or_default();
        let coded = wired.source.frames.count();
        let key_frames = wired.source.key_frames;
        // Compute the throughput from the receivers' reports, because it is not known otherwise.
        let also = &mut wired.source.also;
        also.put(
            &flow_figures::THROUGHPUT,
            (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64),
        );
        also.put_list(&flow_figures::RECEIVERS, rows);
        also.put(&flow_figures::SENT_BPS, sent.as_bps_f64());
        also.put_spread(&flow_figures::PACING_LATE, &late);
        also.put(&flow_figures::CODED_FRAMES, coded);
        also.put(&flow_figures::LEFT_OUT_FRAMES, left_out);
        also.put(&flow_figures::NO_ROOM_FRAMES, no_room);
        also.put(&flow_figures::SMALLER_FRAMES, sizes.smaller);
        also.put(&flow_figures::SIZE_CHANGES, sizes.changes);
        also.put(&flow_figures::KEY_FRAMES, key_frames);
        let mut warnings = self.warnings(&wired.source, pair.rtp().failures());
        warnings.extend(
            wired
                .browser
                .as_ref()
                .and_then(|browser| browser.tunnel.why())
                .map(|why| format!("{}: {why}", self.options.to)),
        );
        warnings.extend(self.lacks_audio_reports(&wired));
        warnings.extend(wired.peers.as_ref().and_then(implausible_reports));
        if names.is_empty() {
            warnings.push("no receiver has reported: what arrived is not known".into());
        }
        let group = self.options.to.ip().is_multicast();
        // If the scenario can't be built with the receivers that have reported, use the scenario with which the session
        // started.
        let loaded = flow::ended(&self.loaded, &names, group, now.since(Time::ZERO)).unwrap_or_else(|error| {
            warnings.push(format!("the record's scenario is that of the start: {error}"));
            self.loaded.clone()
        });
        let agent = Agent::VideoSource(Box::new(wired.source));
        Ok(LiveRecord::new(loaded, agent, Time::ZERO..now, now, warnings, Vec::new()))
    }

    /// Returns a warning if audio was sent and no receiver has reported on it. There is a warning only if a receiver
    /// sends per-packet feedback or reports in the controller's own format. Other receivers may report on audio to the
    /// audio's port, which is not read.
    fn lacks_audio_reports(&self, end: &SocketSource) -> Option<String> {
        let reports = end.peers.as_ref()?.iter().any(|(_, peer)| peer.ours || peer.packets);
        let lacks = end.source.session()?.audio_loss().is_none() && end.source.audio_packets >= MIN_AUDIO_PACKETS;
        let port = match &self.options.to {
            Destination::Address(to) => format!("see that UDP reaches port {}, and ", audio_address(*to).ok()?.port()),
            Destination::Browser { .. } | Destination::Server(_) => "see ".to_owned(),
        };
        (reports && lacks).then(|| format!("no receiver has reported any sound: {port}that the receiver takes it"))
    }

    /// Returns warnings about the session. `refused` and `unsent` are numbers of packets.
    fn warnings(&self, source: &VideoSource, (refused, unsent): (u64, u64)) -> Vec<String> {
        let mut warnings = Vec::new();
        let (left_out, no_room) = self.missing();
        let sizes = self.sizes().map(|(sizes, _)| sizes).unwrap_or_default();
        let coded = source.frames.count();
        if refused > 0 {
            warnings.push(format!(
                "no program listened at {}: it refused {}",
                self.options.to,
                counted(refused, "packet")
            ));
        }
        if unsent > 0 {
            warnings.push(format!("{} could not leave this machine", counted(unsent, "packet")));
        }
        if left_out > 0 {
            warnings.push(format!("the encoder was too slow, and left {} out", counted(left_out, "picture")));
        }
        if let Some(failure) = source.ecn().and_then(|(path, _)| path.failure()) {
            warnings.push(format!("{failure}: packets left as not ECN-capable from then on"));
        }
        if no_room > 0 {
            warnings.push(format!(
                "the rate had no room for {}: take a higher --floor, or a smaller --size",
                counted(no_room, "picture")
            ));
        }
        if sizes.smaller > 0 && self.rung.is_none() {
            let (width, height) = self.sizes.first().copied().unwrap_or_default();
            warnings.push(format!(
                "the rate had no room for {width}x{height} in {} of {}, made smaller: take a \
                 higher --floor, or a smaller --size",
                sizes.smaller,
                counted(coded.into(), "frame")
            ));
        }
        warnings
    }
}

/// Returns a warning about receivers whose report blocks were ignored because they contained more losses than packets.
fn implausible_reports(peers: &Peers) -> Option<String> {
    let those: Vec<_> = peers.iter().map(|(_, peer)| peer).filter(|peer| peer.implausible > 0).collect();
    let (first, more) = those.split_first()?;
    let reports = those.iter().map(|peer| peer.implausible).sum();
    let others = counted(more.len() as u64, "other receiver");
    let others = if more.is_empty() { String::new() } else { format!(" and {others}") };
    Some(format!(
        "{} of {}{others} contained more losses than packets and were ignored: check how this program counts losses \
         (RFC 3550, A.3)",
        counted(reports, "report"),
        first.cname
    ))
}
