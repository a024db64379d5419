//! The two ends of a video session: the sender with an encoder, and the receiver with a frame assembly.

mod audio;
mod figures;
mod player;
mod repaired;

pub use audio::{AudioArrival, AudioPlayout};
pub use player::Player;
pub use repaired::Repaired;

use super::Out;
use crate::intake::{Digest, Intake};
use crate::{Activity, AgentIx, Arriving, Body, Fields, Row, Rows, Skew, StoredRows};
use player::ArrivedPacket;
use std::sync::Arc;
use steadycast_control::promise::LOSSES_COUNT;
use steadycast_control::registry::Factory;
use steadycast_control::{BufferLevel, Check, Decision, Limit, ReceiverId, Setup, Stream, View, Why, Window};
use steadycast_link::Ecn;
use steadycast_media::{Assembly, AudioFeed, Feed, PlayBuffer, SentFrames};
use steadycast_record::{Figures, Of, row};
use steadycast_session::{
    AudioPacket, Batchable, EcnCounts, EcnPath, FeedbackCounts, Frame, Media, MediaPacket, Origin, Output, Protected,
    Protection, Received, Receiver, Recovered, Repairs, Requests, Sender, SenderSettings, UnusedReason,
};
use steadycast_units::{Bytes, Chance, Offset, OneWay, Rate, Span, Time};
use steadycast_wire::IP_UDP_OVERHEAD;
use steadycast_wire::rtcp::{Compound, Packet};
use steadycast_wire::rtp::RtpHeader;

/// A decision of the controller, with the time from which it was valid.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecisionRow {
    /// The start of the decision's validity.
    pub at: Time,
    /// The decision, with its reason.
    pub decision: Decision,
    /// Whether the encoder's best quality needed less than the decided rate.
    pub by_encoder: bool,
}

impl Row for DecisionRow {
    fn pass(&mut self, by: &mut Fields<'_>) {
        let Decision { target, pacing, window, limit, why } = &mut self.decision;
        self.at.pass(by);
        target.pass(by);
        pacing.pass(by);
        // This code both writes and reads a row. To be read, the window has to be rebuilt from `bytes` and `free`.
        let (mut bytes, mut free) = match *window {
            None => (None, 0),
            Some(Window::Packets(free)) => (Some(false), u64::from(free)),
            Some(Window::Bytes(free)) => (Some(true), free.get()),
        };
        bytes.pass(by);
        if let Some(bytes) = bytes {
            free.pass(by);
            *window = Some(if bytes { Window::Bytes(Bytes::new(free)) } else { Window::Packets(free as u32) });
        }
        // The limit is stored as its index in this list.
        by.one_of(limit, &[Limit::Start, Limit::Network, Limit::Cap, Limit::Floor]);
        why.rule.pass(by);
        why.loss.pass(by);
        why.rtt.pass(by);
        let mut from = why.by.map(|id| id.0);
        from.pass(by);
        why.by = from.map(ReceiverId);
        self.by_encoder.pass(by);
    }
}

/// The state of a controller's receiver half when it wrote a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ViewRow {
    /// The time of the report.
    pub at: Time,
    /// The receiver half's state.
    pub view: View,
}

row!(ViewRow { at, view.rate, view.loss, view.rtt, view.state });

const SECOND: Span = Span::secs(1);

/// The time for which each cause limited the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitShares {
    /// The network.
    pub network: Span,
    /// The encoder, whose best quality needed less than the allowed rate.
    pub encoder: Span,
    /// The start phase.
    pub start: Span,
    /// The session's cap.
    pub cap: Span,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// The first frame's index.
    first: u32,
    at: Time,
    /// The first frame's due time on the encoder's clock.
    due: Span,
    /// The first audio packet's due time on the source's clock.
    audio: Span,
}

impl Epoch {
    /// Converts a time of the audio source's clock to the network's.
    fn audio_at(&self, at: Span) -> Time {
        if at == Span::MAX { Time::NEVER } else { self.at + at.saturating_sub(self.audio) }
    }
}

/// The sender of a video session, with its encoder.
pub struct VideoSource {
    settings: SenderSettings,
    make: Box<dyn Fn(SenderSettings, Time) -> Sender + Send>,
    sender: Option<Sender>,
    encoder: Option<Box<dyn Feed>>,
    /// The audio, if the session has any.
    pub audio: Option<Box<dyn AudioFeed>>,
    /// Whether the cap is the ladder's highest rate.
    capped_by_ladder: bool,
    /// The maximum rate that the source needs: the cap, or the best quality's mean rate.
    pub(crate) most: Rate,
    /// The periods of sending, each until a stop or the end of the data.
    pub(crate) sending: Activity,
    epochs: Vec<Epoch>,
    /// Whether a session is running.
    pub running: bool,
    finished: bool,
    /// When the session has to be polled again.
    until: Time,
    past_repairs: Repairs,
    /// Number of key frames that receivers requested.
    pub key_frames: u64,
    /// Whether the source is between its start and its stop.
    open: bool,
    /// All frames, with the packets of each.
    pub frames: SentFrames,
    keep_frames: bool,
    /// The IP bytes that a greedy source sends after each start, rounded up to full packets. `None` means no limit.
    pub(crate) amount: Option<Bytes>,
    /// The part of `amount` that is still to be sent.
    left: Option<Bytes>,
    /// The decisions with their times.
    pub decisions: Rows<DecisionRow>,
    /// The time for which each cause limited the rate.
    pub limits: LimitShares,
    /// The time up to which `limits` is complete.
    limits_since: Time,
    /// The end of the warm-up.
    means_from: Time,
    /// Number of RTP media packets sent.
    pub sent_packets: u64,
    /// Number of audio packets sent.
    pub audio_packets: u64,
    /// Each audio packet's departure, if recorded.
    pub(crate) audio_sent: Option<Rows<Time>>,
    /// The IP bytes of media, audio, repair and padding sent.
    pub sent_bytes: Bytes,
    /// `sent_bytes` at the last step of the series.
    last_bytes: Bytes,
    /// The IP bytes of RTCP sent.
    pub rtcp_bytes: Bytes,
    /// The bytes and rates in each step of the series.
    pub samples: Rows<SourcePoint>,
    /// RTCP's share of the session bandwidth per step ([`RTCP_SHARE`](steadycast_control::promise::RTCP_SHARE)).
    pub rtcp_shares: Rows<f64>,
    /// The counts of previous sessions.
    past_feedback: FeedbackCounts,
    past_ecn: EcnCounts,
    past_padding: (u64, Bytes),
    past_checks: Vec<Check>,
    past_skipped: u64,
    /// The time from a frame being ready to each packet's departure.
    pub backlog: steadycast_units::Spread,
    /// A digest of all packets and decisions with their times.
    pub digest: Digest,
    /// Further figures, set by the caller. They replace this source's figures of the same name.
    pub also: Figures,
}

/// One step of a video source's series.
#[derive(Clone, Copy, Debug, Default)]
pub struct SourcePoint {
    /// IP bytes of media sent in the step.
    pub bytes: u64,
    /// The target at the end of the step.
    pub target: Rate,
    /// The pacing rate at the end of the step.
    pub pacing: Rate,
}

row!(SourcePoint { bytes, target, pacing });

impl VideoSource {
    /// Creates a source. `chance` randomises the RTCP intervals.
    pub fn new(
        settings: SenderSettings,
        factory: Arc<dyn Factory>,
        setup: Setup,
        encoder: Option<Box<dyn Feed>>,
        capped_by_ladder: bool,
        chance: Chance,
        means_from: Time,
    ) -> Self {
        let reserved = settings.audio.map_or(Rate::ZERO, |audio| audio.rate);
        // Audio is sent in addition to the pictures at their best quality.
        let best = encoder.as_ref().and_then(|encoder| encoder.best()).map(|best| best + reserved);
        let most = setup.cap.min(best.unwrap_or(Rate::MAX));
        let make = move |settings, now| Sender::new(settings, factory.sender(&setup), chance.clone(), now);
        Self {
            settings,
            make: Box::new(make),
            sender: None,
            amount: None,
            left: None,
            keep_frames: encoder.is_some(),
            encoder,
            audio: None,
            capped_by_ladder,
            most,
            sending: Activity::default(),
            epochs: Vec::new(),
            past_feedback: FeedbackCounts::default(),
            past_ecn: EcnCounts::default(),
            past_padding: (0, Bytes::ZERO),
            past_checks: Vec::new(),
            past_skipped: 0,
            running: false,
            finished: false,
            until: Time::NEVER,
            past_repairs: Repairs::default(),
            key_frames: 0,
            open: false,
            frames: SentFrames::default(),
            decisions: Rows::default(),
            limits: LimitShares::default(),
            limits_since: Time::ZERO,
            means_from,
            sent_packets: 0,
            audio_packets: 0,
            audio_sent: None,
            sent_bytes: Bytes::ZERO,
            last_bytes: Bytes::ZERO,
            rtcp_bytes: Bytes::ZERO,
            samples: Rows::default(),
            rtcp_shares: Rows::default(),
            backlog: steadycast_units::Spread::default(),
            digest: Digest::default(),
            also: Figures::new(Of::Flow),
        }
    }

    /// Returns whether the path preserves the ECN field, with the ECN counts; `None` unless packets are ECN-capable.
    pub fn ecn(&self) -> Option<(EcnPath, EcnCounts)> {
        let (path, counts) = self.sender.as_ref().map(Sender::ecn).unwrap_or_default();
        self.settings.ecn.is_capable().then(|| (path, self.past_ecn + counts))
    }

    /// Returns the number of padding packets and their IP bytes; `None` without padding.
    pub fn padding(&self) -> Option<(u64, Bytes)> {
        let (packets, bytes) = self.sender.as_ref().and_then(Sender::padding).unwrap_or_default();
        self.settings.padding.then_some((self.past_padding.0 + packets, self.past_padding.1 + bytes))
    }

    /// Returns the counts of repair; `None` if disabled.
    pub fn repairs(&self) -> Option<Repairs> {
        let present = self.sender.as_ref().map(Sender::repairs).unwrap_or_default();
        (self.settings.repair.is_some() || self.settings.parity.is_some()).then(|| self.past_repairs + present)
    }

    /// Starts the source, also after a pause. In a simulcast, it then waits for the first receiver.
    pub fn start(&mut self, now: Time, out: &mut Out<'_>) {
        self.open = true;
        if self.settings.siblings.is_none() {
            self.begin(now, out);
        }
    }

    /// Begins a session, which continues the previous one's numbers.
    fn begin(&mut self, now: Time, out: &mut Out<'_>) {
        if self.running {
            return;
        }
        let mut sender = (self.make)(self.settings.clone(), now);
        if let Some(old) = &self.sender {
            // To receivers, both sessions are one stream.
            sender.continue_after(old);
            self.past_repairs = self.past_repairs + old.repairs();
            self.past_feedback = self.feedback();
            self.past_ecn = self.past_ecn + old.ecn().1;
            self.past_padding = self.padding().unwrap_or_default();
            self.past_checks = self.checks();
            self.past_skipped = self.skipped();
            if let Some(encoder) = &mut self.encoder {
                // A new session begins with an I frame, to which the encoder may skip.
                self.frames.skip_to(encoder.resume());
            }
        }
        self.sender = Some(sender);
        // A first frame of unknown time counts as due now.
        let due = self.encoder.as_ref().map(|e| e.due()).filter(|due| *due < Span::MAX).unwrap_or(Span::ZERO);
        let begins = |due: Span| if due < Span::MAX { due } else { Span::ZERO };
        let audio = self.audio.as_ref().map_or(Span::ZERO, |audio| begins(audio.due()));
        self.epochs.push(Epoch { first: self.frames.count(), at: now, due, audio });
        (self.limits_since, self.running, self.until) = (now, true, Time::NEVER);
        // Each start sends the whole amount again.
        self.left = self.amount;
        self.sending.begin(now);
        self.drain(now, out);
    }

    /// Stops with a BYE, which RTCP's rules delay in a large group.
    pub fn stop(&mut self, now: Time, out: &mut Out<'_>) {
        self.end(now);
        self.drain(now, out);
    }

    /// Ends the source's activity, before its BYE.
    fn end(&mut self, now: Time) {
        self.account(now);
        self.sending.end(now);
        (self.running, self.open) = (false, false);
        if let Some(sender) = &mut self.sender {
            sender.stop();
        }
    }

    /// Ends the session without a BYE, because no receiver is left.
    fn pause(&mut self, now: Time) {
        self.account(now);
        self.sending.end(now);
        (self.running, self.until) = (false, Time::NEVER);
        // Each sender of a simulcast announces the rates of all its senders. A rate of zero means a paused sender.
        if let Some(siblings) = &self.settings.siblings {
            siblings.set_rate(Rate::ZERO);
        }
        // No controller runs during the pause.
        let why = Why::rule("nobody is there: paused");
        let decision = Decision { target: Rate::ZERO, pacing: Rate::ZERO, window: None, limit: Limit::Start, why };
        self.decisions.push(DecisionRow { at: now, decision, by_encoder: false });
    }

    /// Returns whether the source is started but waits for a receiver.
    fn paused(&self) -> bool {
        self.settings.siblings.is_some() && self.open && !self.running
    }

    /// Returns when the source pauses, unless a receiver reports.
    fn deserted_at(&self) -> Time {
        let sender = self.sender.as_ref().filter(|_| self.settings.siblings.is_some() && self.running);
        sender.map_or(Time::NEVER, Sender::deserted_at)
    }

    /// Ends the run: encodes no more frames, but sends the pacer's backlog.
    pub fn finish(&mut self, now: Time) {
        self.account(now);
        (self.finished, self.open) = (true, false);
        // Without frames there is no backlog.
        self.running &= self.keep_frames;
    }

    /// Returns when [`VideoSource::on_wake`] is due.
    pub fn wake(&self) -> Time {
        match (self.running, self.finished) {
            (true, _) => self.frame_due().min(self.audio_due()).min(self.until).min(self.deserted_at()),
            // The BYE may still have to be sent.
            (false, false) => self.until,
            (false, true) => Time::NEVER,
        }
    }

    fn frame_due(&self) -> Time {
        let encoder = self.encoder.as_ref().filter(|_| !self.finished);
        encoder.zip(self.epochs.last()).map_or(Time::NEVER, |(e, epoch)| epoch.at + e.due().saturating_sub(epoch.due))
    }

    fn audio_due(&self) -> Time {
        let audio = self.audio.as_ref().filter(|_| !self.finished);
        audio.zip(self.epochs.last()).map_or(Time::NEVER, |(audio, epoch)| epoch.audio_at(audio.due()))
    }

    fn take_audio(&mut self, now: Time) {
        while self.running && self.audio_due() <= now {
            let (Some(audio), Some(sender)) = (&mut self.audio, &mut self.sender) else { return };
            let (Some(coded), Some(epoch)) = (audio.next(), self.epochs.last()) else { return };
            let (index, len, begins) = (coded.index, coded.len, coded.begins);
            sender.push_audio(AudioPacket { index, sampled: epoch.audio_at(coded.at), len, begins });
        }
    }

    /// Processes a datagram from the RTCP port.
    pub fn on_rtcp(&mut self, now: Time, from: AgentIx, bytes: &[u8], out: &mut Out<'_>) {
        // In a simulcast, a receiver's first report starts the session.
        if self.paused() && continues(bytes) {
            self.begin(now, out);
        }
        if let Some(sender) = self.sender.as_mut().filter(|_| self.running || !self.finished) {
            sender.on_rtcp(now, Origin(u64::from(from.0)), bytes);
            if sender.take_key_frame()
                && let Some(encoder) = &mut self.encoder
            {
                encoder.key_frame();
                self.key_frames += 1;
            }
            self.drain(now, out);
        }
    }

    /// Processes a due frame or a timer of the session.
    pub fn on_wake(&mut self, now: Time, out: &mut Out<'_>) {
        if self.deserted_at() <= now {
            self.pause(now);
        }
        self.take_audio(now);
        while self.running && self.frame_due() <= now {
            // The encoder has not delivered the frame yet. The next wake-up tries again.
            if !self.frame(now) {
                break;
            }
        }
        self.drain(now, out);
    }

    /// Encodes the due frame. Returns false if the encoder has not delivered it yet.
    fn frame(&mut self, now: Time) -> bool {
        self.account(now);
        let (Some(encoder), Some(sender)) = (&mut self.encoder, &mut self.sender) else { return false };
        let backlog = sender.backlog().bytes;
        let Some(coded) = encoder.next(sender.media_target(now), backlog) else { return false };
        let by_encoder = encoder.limited();
        // `by_encoder` may change between two decisions.
        if let Some(row) = self.decisions.last().filter(|row| row.by_encoder != by_encoder) {
            let decision = row.decision.clone();
            self.decisions.push(DecisionRow { at: now, decision, by_encoder });
        }
        self.frames.ready(now, coded);
        self.digest.add(u64::from(coded.quantizer) << 32 | u64::from(coded.index));
        let sampled = at_epoch(&self.epochs, coded.display, encoder.sampled_at(&coded));
        let frame = Frame { index: coded.index, kind: coded.kind, size: coded.size, sampled };
        sender.push_cut(now, &frame, encoder.parts());
        true
    }

    fn drain(&mut self, now: Time, out: &mut Out<'_>) {
        loop {
            // The paused session's sender must not be polled.
            if self.paused() {
                return;
            }
            let Some(sender) = &mut self.sender else { return };
            let output = sender.poll(now);
            if sender.take_change() {
                let decision = sender.decision().clone();
                if let Some(encoder) = &mut self.encoder {
                    // The encoder gets the target minus the share of repair.
                    encoder.on_rate(sender.media_target(now));
                }
                self.digest.add(now.as_nanos() ^ decision.target.as_bps() << 20);
                if self.running && !self.finished {
                    self.account(now);
                    let by_encoder = self.encoder.as_ref().is_some_and(|e| e.limited());
                    self.decisions.push(DecisionRow { at: now, decision, by_encoder });
                }
            }
            match output {
                Output::Media(media) => {
                    self.media(now, media, out);
                    // A source with a given amount ends with its last packet.
                    if self.running && self.left == Some(Bytes::ZERO) {
                        self.end(now);
                    }
                }
                Output::Rtcp(bytes) => {
                    self.rtcp_bytes += Bytes::new((bytes.len() + IP_UDP_OVERHEAD) as u64);
                    send_rtcp(bytes, out);
                }
                Output::Wait(wake) => {
                    self.until = wake.map_or(Time::NEVER, |w| w.at);
                    return;
                }
            }
        }
    }

    fn media(&mut self, now: Time, media: Media, out: &mut Out<'_>) {
        let ecn = media.ecn;
        self.sent_bytes += media.size;
        // Repair and padding do not count towards the amount.
        let original = media.stream == Stream::Media;
        self.sent_packets += u64::from(original);
        if media.stream == Stream::Audio {
            self.audio_packets += 1;
            if let Some(sent) = &mut self.audio_sent {
                sent.push(now);
            }
        }
        self.left = self.left.map(|left| if original { left.saturating_sub(media.size) } else { left });
        // Inverted, so that a repair's digest differs from an original's.
        let sign = if original { 0 } else { u64::MAX };
        self.digest.add(now.as_nanos() ^ media.seq << 44 ^ sign);
        if self.keep_frames && original {
            self.frames.sent(now, media.fragment);
            if let Some(frame) = self.frames.get(media.fragment.frame) {
                self.backlog.add(now.since(frame.ready));
            }
        }
        let sender = self.sender.as_ref().filter(|_| media.stream == Stream::Parity);
        // A simulated parity packet has no bytes that describe its coverage.
        let body = match sender.and_then(Sender::protection) {
            Some(protection) => Body::Parity(Box::new((media, protection.clone()))),
            None => Body::Rtp(Box::new(media)),
        };
        out.send(media.size, ecn, body);
    }

    /// Adds the time since the previous call to the cause that limited the rate.
    pub fn account(&mut self, now: Time) {
        // Like all means, the shares leave out the warm-up.
        let span = now.since(self.limits_since.max(self.means_from));
        self.limits_since = now;
        let Some(row) = self.decisions.last().filter(|_| self.running) else { return };
        let share = match self.limit(row) {
            "encoder" => &mut self.limits.encoder,
            "start" => &mut self.limits.start,
            "cap" => &mut self.limits.cap,
            _ => &mut self.limits.network,
        };
        *share += span;
    }

    /// Returns for each second how long the encoder's best quality or the cap limited the rate.
    pub(crate) fn self_limited(&self, now: Time) -> Vec<Span> {
        let mut seconds = vec![Span::ZERO; now.as_secs_f64().ceil() as usize];
        let ends = self.decisions.iter().skip(1).map(|next| next.at).chain([now]);
        for (row, until) in self.decisions.iter().zip(ends) {
            if !matches!(self.limit(row), "encoder" | "cap") {
                continue;
            }
            let first = (row.at.as_nanos() / SECOND.as_nanos()) as usize;
            for (n, second) in seconds.iter_mut().enumerate().skip(first) {
                let begin = Time::ZERO + Span::secs(n as u64);
                if begin >= until {
                    break;
                }
                *second += until.min(begin + SECOND).since(row.at.max(begin));
            }
        }
        seconds
    }

    /// Returns what limited the rate during a decision: network, floor, encoder, start or cap.
    pub fn limit(&self, row: &DecisionRow) -> &'static str {
        match row.decision.limit {
            _ if row.by_encoder => "encoder",
            Limit::Cap if self.capped_by_ladder => "encoder",
            limit => limit.word(),
        }
    }

    /// Returns when the frame with this display index was sampled.
    pub fn shown_at(&self, display: u32) -> Time {
        self.encoder.as_ref().map_or(Time::ZERO, |e| shown_at(&self.epochs, &**e, display))
    }

    /// Returns the session, once it has started.
    pub fn session(&self) -> Option<&Sender> {
        self.sender.as_ref()
    }

    /// Returns the counts of feedback.
    pub fn feedback(&self) -> FeedbackCounts {
        self.past_feedback + self.sender.as_ref().map(Sender::feedback).unwrap_or_default()
    }

    /// Returns the run-time checks of the present session and all past ones.
    pub(crate) fn checks(&self) -> Vec<Check> {
        let mut all = self.past_checks.clone();
        Check::gather(&mut all, self.sender.as_ref().map_or(&[][..], Sender::checks));
        let sender = self.sender.as_ref();
        Check::gather(&mut all, sender.and_then(Sender::repair_check).as_slice());
        Check::gather(&mut all, sender.map(Sender::mtu_check).as_slice());
        all
    }

    /// Returns the number of frames skipped because of the backlog.
    pub fn skipped(&self) -> u64 {
        self.past_skipped + self.sender.as_ref().map_or(0, |s| s.backlog().skipped)
    }

    /// Returns the frame period; zero without frames.
    pub fn frame_period(&self) -> Span {
        self.encoder.as_ref().map_or(Span::ZERO, |e| e.period())
    }

    /// Returns whether the flow paused after the frame with this display index.
    pub fn pauses_after(&self, display: u32) -> bool {
        // [`Epoch::first`] counts in coding order. Groups of pictures are closed, so the first frame after a pause has
        // the same index in display order.
        self.epochs.iter().skip(1).any(|epoch| epoch.first == display + 1)
    }

    /// Returns the index of the audio packet `seq` that arrived at `at`, if recorded.
    pub(crate) fn audio_index(&self, seq: u64, at: Time) -> Option<usize> {
        audio::index_of(self.audio_sent.as_ref()?, self.settings.audio?.first_seq, seq, at)
    }

    /// Returns the rows for the record.
    pub fn stored_rows(&mut self) -> Vec<&mut dyn StoredRows> {
        let mut all: Vec<&mut dyn StoredRows> = vec![&mut self.samples, &mut self.rtcp_shares, &mut self.decisions];
        all.extend(self.audio_sent.as_mut().map(|sent| sent as &mut dyn StoredRows));
        all
    }

    /// Appends the present time step to the series.
    pub fn sample(&mut self, now: Time) {
        let (target, pacing) = match self.sender.as_ref().filter(|_| self.running) {
            Some(sender) => {
                self.rtcp_shares.push(sender.rtcp_share(now));
                (sender.decision().target, sender.decision().pacing)
            }
            None => (Rate::ZERO, Rate::ZERO),
        };
        self.samples.push(SourcePoint { bytes: self.sent_bytes.saturating_sub(self.last_bytes).get(), target, pacing });
        self.last_bytes = self.sent_bytes;
    }
}

/// Returns when the frame with this display index was sampled.
fn shown_at(epochs: &[Epoch], encoder: &dyn Feed, display: u32) -> Time {
    at_epoch(epochs, display, encoder.shown_at(display))
}

/// Converts a time of the encoder's clock to the network's time, for the frame with display index `display`.
fn at_epoch(epochs: &[Epoch], display: u32, at: Span) -> Time {
    let epoch = epochs.iter().rev().find(|e| e.first <= display).or(epochs.first());
    epoch.map_or(Time::ZERO, |e| e.at + at.saturating_sub(e.due))
}

/// Returns whether the compound's sender stays in the session.
fn continues(rtcp: &[u8]) -> bool {
    Compound::parse(rtcp).is_ok_and(|c| !c.packets.iter().any(|p| matches!(p, Packet::Bye { .. })))
}

fn send_rtcp(bytes: Vec<u8>, out: &mut Out<'_>) {
    let size = Bytes::new((bytes.len() + IP_UDP_OVERHEAD) as u64);
    // A session's own unreadable RTCP is a bug.
    let Ok(parsed) = Compound::parse(&bytes) else {
        debug_assert!(false, "a session wrote RTCP that it can't read");
        return;
    };
    out.send(size, Ecn::NotEct, Body::Rtcp { bytes: bytes.into(), parsed: Arc::new(parsed) });
}

fn level_of(buffer: Option<&mut Box<PlayBuffer>>, now: Time) -> Option<BufferLevel> {
    buffer.map(|b| BufferLevel { level: b.level(now), size: b.size() })
}

/// The cumulative jitter of a frame: the one-way delay of its last packet, minus that of the first frame
/// (Multi-Evalvid-RA, equations 3 and 4).
#[derive(Clone, Copy, Debug, Default)]
pub struct CumulativeJitter {
    /// The first frame's SSRC and one-way delay. Another source has another clock.
    anchor: Option<(u32, OneWay)>,
    /// The highest value so far.
    pub max: Offset,
}

/// Creates the receiver for join number `n`, from 0.
pub type MakeReceiver = Box<dyn Fn(Time, u32) -> Receiver + Send>;

/// The receiver of a video session, with its frame assembly.
pub struct VideoSink {
    /// The SSRCs, one per join.
    pub ssrcs: Vec<u32>,
    make: MakeReceiver,
    receiver: Option<Receiver>,
    /// The packets expected before the latest join.
    past_expected: u64,
    past_checks: Vec<Check>,
    past_requests: Requests,
    /// [`VideoSink::untold`] in earlier sessions.
    past_untold: (u64, u64),
    /// Media packets that arrived in the present session, without repairs.
    media_packets: u64,
    /// Whether lost packets are requested or recovered from parity.
    pub repair: bool,
    /// The packets that only arrived as repairs.
    pub repaired: Repaired,
    /// Lost packets whose bytes are computable from parity.
    computable: Vec<Recovered>,
    /// The time of the first join.
    pub joined: Time,
    /// The periods from each join to the leave.
    stays: Vec<(Time, Time)>,
    /// The counts of arrived packets.
    pub intake: Intake,
    /// The assembly of frames, if there are frames.
    pub assembly: Option<Assembly>,
    /// The play-out buffer, if any.
    pub buffer: Option<Box<PlayBuffer>>,
    /// The play-out of audio, if any.
    pub audio: Option<Box<AudioPlayout>>,
    /// Arrivals of audio packets, if recorded.
    pub(crate) audio_arrivals: Option<Box<Rows<AudioArrival>>>,
    /// The player, which decides how long to wait for a frame.
    pub player: Player,
    first_seq: u64,
    /// The session's clock. All other times here are the network's.
    pub(crate) skew: Skew,
    /// When the receiver has to be polled again.
    until: Time,
    /// The IP bytes of RTCP sent.
    pub rtcp_bytes: Bytes,
    /// The number of RTCP compounds sent.
    pub rtcp_packets: u64,
    /// RTP packets by ECN field on arrival.
    pub by_ecn: [u64; 4],
    /// The cumulative jitter of the frames.
    pub jitter: CumulativeJitter,
    /// The controller's view at each report.
    pub views: Rows<ViewRow>,
    /// Whether views are recorded. In a large group they take too much memory.
    pub(crate) keep_views: bool,
    /// Further figures, set by the caller. They replace this sink's figures of the same name.
    pub also: Figures,
}

impl VideoSink {
    /// Creates a sink outside of the session.
    pub fn new(make: MakeReceiver, intake: Intake, frames: bool, first_seq: u16) -> Self {
        Self {
            ssrcs: Vec::new(),
            make,
            receiver: None,
            past_expected: 0,
            past_checks: Vec::new(),
            past_requests: Requests::default(),
            past_untold: (0, 0),
            media_packets: 0,
            repair: false,
            repaired: Repaired::default(),
            computable: Vec::new(),
            joined: Time::NEVER,
            stays: Vec::new(),
            intake,
            assembly: frames.then(Assembly::default),
            buffer: None,
            audio: None,
            audio_arrivals: None,
            player: Player::default(),
            first_seq: u64::from(first_seq),
            skew: Skew::default(),
            until: Time::NEVER,
            rtcp_bytes: Bytes::ZERO,
            rtcp_packets: 0,
            by_ecn: [0; 4],
            jitter: CumulativeJitter::default(),
            views: Rows::default(),
            keep_views: true,
            also: Figures::new(Of::Receiver),
        }
    }

    /// Returns the counts of requests and repaired packets; `None` without repair.
    pub fn requests(&self) -> Option<Requests> {
        let present = self.receiver.as_ref().map(Receiver::requests).unwrap_or_default();
        self.repair.then_some(self.past_requests + present)
    }

    /// Joins the session. Each further join is a new session with another SSRC.
    pub fn join(&mut self, now: Time) {
        // A new session counts from zero, but the totals continue.
        self.past_expected = self.expected();
        self.past_checks = self.checks();
        self.past_requests = self.requests().unwrap_or_default();
        self.past_untold = self.untold();
        self.media_packets = 0;
        self.repaired.restart();
        self.player.restart();
        if let Some(audio) = &mut self.audio {
            audio.restart();
        }
        let own = self.skew.own(now);
        let mut receiver = (self.make)(own, self.ssrcs.len() as u32);
        self.ssrcs.push(receiver.ssrc());
        // The RTCP timer starts with the join, before any packet.
        if let Output::Wait(Some(wake)) = receiver.poll(own) {
            self.until = self.skew.network(wake.at);
        }
        self.receiver = Some(receiver);
        self.joined = self.joined.min(now);
        self.end_stay(now);
        self.stays.push((now, Time::NEVER));
    }

    fn end_stay(&mut self, now: Time) {
        if let Some((_, until)) = self.stays.last_mut() {
            *until = now.min(*until);
        }
    }

    /// Returns whether the sink was in the session at this time. Otherwise packets are not expected.
    pub fn stayed(&self, at: Time) -> bool {
        self.stays.iter().any(|(from, until)| *from <= at && at < *until)
    }

    /// Leaves the session with a BYE.
    pub fn leave(&mut self, now: Time, out: &mut Out<'_>) {
        self.end_stay(now);
        if let Some(receiver) = &mut self.receiver {
            receiver.leave();
            self.drain(now, out);
        }
    }

    /// Returns whether the sink is leaving and its BYE is still scheduled.
    pub fn leaving(&self) -> bool {
        self.receiver.as_ref().is_some_and(Receiver::leaving)
    }

    /// Returns the number of unreported arrivals, and of messages that were too long for a datagram.
    pub(crate) fn untold(&self) -> (u64, u64) {
        let (packets, messages) = self.receiver.as_ref().map_or((0, 0), Receiver::untold);
        (self.past_untold.0 + packets, self.past_untold.1 + messages)
    }

    fn expected(&self) -> u64 {
        self.past_expected + self.receiver.as_ref().map_or(0, Receiver::expected)
    }

    /// Returns the run-time checks of the present session and all past ones.
    pub(crate) fn checks(&self) -> Vec<Check> {
        let mut all = self.past_checks.clone();
        Check::gather(&mut all, self.receiver.as_ref().map_or(&[][..], Receiver::checks));
        Check::gather(&mut all, self.receiver.as_ref().map(Receiver::mtu_check).as_slice());
        if let Some(receiver) = self.receiver.as_ref().filter(|_| self.repair) {
            Check::gather(&mut all, receiver.repair_check().as_slice());
            // Repairs must not count as received.
            let mut losses = Check::new(&LOSSES_COUNT);
            losses.see(receiver.received() == self.media_packets);
            Check::gather(&mut all, &[losses]);
        }
        all
    }

    /// Returns when [`VideoSink::on_wake`] is due.
    pub const fn wake(&self) -> Time {
        self.until
    }

    /// Processes a timer of the session.
    pub fn on_wake(&mut self, now: Time, out: &mut Out<'_>) {
        self.drain(now, out);
    }

    /// Returns which packets [`VideoSink::catch_up`] may deliver later.
    pub fn batchable(&self) -> Option<Batchable> {
        self.receiver.as_ref().filter(|_| self.buffer.is_none())?.batchable()
    }

    /// Delivers a packet that [`VideoSink::batchable`] accepted and that arrived at `at`.
    pub fn catch_up(&mut self, at: Time, packet: &Arriving<'_>) {
        match packet.body {
            Body::Rtp(media) => {
                self.take_media(at, packet, media);
            }
            Body::Rtcp { bytes, parsed } => self.take_rtcp(at, packet.from, parsed, bytes.len()),
            _ => {}
        }
        // Checks what `batchable` guarantees: no transmission, and no earlier timer.
        if cfg!(debug_assertions) {
            let (until, mut sent) = (self.until, Vec::new());
            self.drain(at, &mut Out { packets: &mut sent });
            debug_assert!(sent.is_empty() && self.until >= until, "it could not wait");
        }
    }

    /// Processes an RTP packet.
    pub fn on_media(&mut self, now: Time, packet: &Arriving<'_>, media: &Media, out: &mut Out<'_>) -> Received {
        let received = self.take_media(now, packet, media);
        self.drain(now, out);
        received
    }

    /// Forwards to [`Receiver::on_clock_gap`].
    pub fn on_clock_gap(&mut self, now: Time) {
        if let Some(receiver) = &mut self.receiver {
            receiver.on_clock_gap(self.skew.own(now));
        }
    }

    /// Forwards to [`Receiver::begin_run`].
    pub fn begin_run(&mut self, now: Time, from: AgentIx, header: &RtpHeader) {
        if let Some(receiver) = &mut self.receiver {
            receiver.begin_run(self.skew.own(now), Origin(u64::from(from.0)), header);
        }
    }

    fn take_media(&mut self, now: Time, packet: &Arriving<'_>, media: &Media) -> Received {
        let Some(receiver) = &mut self.receiver else { return Received::Unused(UnusedReason::Outside) };
        let from = Origin(u64::from(packet.from.0));
        let taken_apart = MediaPacket {
            header: &media.header,
            notice: media.notice.bytes(),
            transport: media.transport,
            repairs: media.repairs.map(|original| original as u16),
            size: media.size,
            ecn: packet.ecn,
            buffer: level_of(self.buffer.as_mut(), now),
        };
        let received = receiver.on_media(self.skew.own(now), from, &taken_apart);
        self.by_ecn[usize::from(packet.ecn.bits())] += u64::from(!matches!(received, Received::Unused(_)));
        if media.stream != Stream::Media {
            self.intake.add_repair(now, packet.size);
        }
        if let (Received::Audio(seq), Some(audio)) = (received, &mut self.audio) {
            // Figures of audio leave out the warm-up and the pauses.
            let counts = self.intake.counts(now);
            let gap = if counts { audio.on_packet(now, seq, now.since(packet.sent)) } else { Span::ZERO };
            if let Some(arrivals) = &mut self.audio_arrivals {
                arrivals.push(AudioArrival { at: now, seq, gap });
            }
        }
        let (fragment, ends, stamp) = (media.fragment, media.header.marker, Some(media.header.timestamp));
        if let (Received::Repaired(seq), Some(original)) = (received, media.repairs) {
            // Counted from the flow's first packet, as in the record of sent frames.
            let number = original - self.first_seq;
            self.repaired.insert(seq, now, fragment.frame);
            self.deliver(number, media.size, ArrivedPacket { now, sent: None, stamp, fragment, ends });
        }
        if let Received::New(seq) = received {
            self.media_packets += 1;
            self.intake.add(now, packet.size, packet.sent);
            let number = media.seq - self.first_seq;
            // An earlier repair has already been passed on.
            if !self.repaired.remove(media.header.ssrc, seq) {
                self.deliver(number, media.size, ArrivedPacket { now, sent: Some(packet.sent), stamp, fragment, ends });
            }
            if media.header.marker
                && let Some(stamp) = media.header.send_time
            {
                let way = OneWay::between(stamp.peer(None), now);
                let ssrc = media.header.ssrc;
                // The clocks may differ, so only differences from the first frame's delay count.
                let anchor = self.jitter.anchor.filter(|(of, _)| *of == ssrc).map_or(way, |(_, anchor)| anchor);
                self.jitter.anchor = Some((ssrc, anchor));
                self.jitter.max = self.jitter.max.max(way.variation_since(anchor));
            }
        }
        self.recover(now);
        received
    }

    /// Reports an authenticated packet without media.
    pub fn on_padding(
        &mut self,
        now: Time,
        header: &RtpHeader,
        transport: Option<u16>,
        size: Bytes,
        ecn: Ecn,
        out: &mut Out<'_>,
    ) {
        if let Some(receiver) = &mut self.receiver {
            let packet = MediaPacket { header, notice: &[], transport, repairs: None, size, ecn, buffer: None };
            receiver.on_padding(self.skew.own(now), &packet);
        }
        self.drain(now, out);
    }

    /// Processes a parity packet that covers the packets in `protection`.
    pub fn on_parity(
        &mut self,
        now: Time,
        packet: &Arriving<'_>,
        media: &Media,
        protection: &Protection,
        out: &mut Out<'_>,
    ) -> Received {
        let Some(receiver) = &mut self.receiver else { return Received::Unused(UnusedReason::Outside) };
        let buffer = level_of(self.buffer.as_mut(), now);
        let (header, transport, ecn) = (&media.header, media.transport, packet.ecn);
        let taken_apart = MediaPacket { header, notice: &[], transport, repairs: None, size: media.size, ecn, buffer };
        let from = Origin(u64::from(packet.from.0));
        let received = receiver.on_parity(self.skew.own(now), from, &taken_apart, protection);
        if let Received::New(_) = received {
            self.by_ecn[usize::from(ecn.bits())] += 1;
            self.intake.add_repair(now, packet.size);
        }
        self.recover(now);
        self.drain(now, out);
        received
    }

    /// Processes packets recovered from parity. A packet without known headers is stored for
    /// [`VideoSink::take_computable`], because only the caller has its bytes.
    fn recover(&mut self, now: Time) {
        let Some(receiver) = &mut self.receiver else { return };
        for recovered in receiver.take_recovered() {
            match recovered.packet {
                Some(packet) => self.on_recovered_as(now, recovered.seq, &packet),
                None => self.computable.push(recovered),
            }
        }
    }

    /// Returns the packets that became computable from parity since the last call.
    pub fn take_computable(&mut self) -> Vec<Recovered> {
        std::mem::take(&mut self.computable)
    }

    /// Processes a packet recovered from parity. `packet.seq` is the receiver's number, [`Recovered::seq`].
    pub fn on_recovered(&mut self, now: Time, packet: &Protected) {
        self.on_recovered_as(now, packet.seq, packet);
    }

    /// Processes a packet recovered from parity. `counted` is the receiver's number, [`Recovered::seq`]. `packet.seq`
    /// is the sender's number.
    pub fn on_recovered_as(&mut self, now: Time, counted: u64, packet: &Protected) {
        let Protected { seq, fragment, marker } = *packet;
        let number = seq.saturating_sub(self.first_seq);
        self.repaired.insert(counted, now, fragment.frame);
        let size = Bytes::new(fragment.len.into());
        self.deliver(number, size, ArrivedPacket { now, sent: None, stamp: None, fragment, ends: marker });
    }

    /// Passes an original or repaired packet on; `number` counts from the flow's first packet.
    fn deliver(&mut self, number: u64, size: Bytes, packet: ArrivedPacket) {
        let ArrivedPacket { now, fragment, .. } = packet;
        // What the play-out buffer has no room for does not reach the decoder.
        let kept = self.buffer.as_mut().is_none_or(|b| b.offer(now, size, fragment.frame));
        if let Some(assembly) = self.assembly.as_mut().filter(|_| kept) {
            assembly.on_packet(now, number, fragment);
        }
        // A constant play-out delay needs no measurement.
        if !self.player.adapts() {
            return;
        }
        let Some(receiver) = &mut self.receiver else { return };
        if let Some(delay) = self.player.on_packet(&packet, receiver.repair_time(self.skew.own(now))) {
            receiver.set_playout(delay);
            // The play-out delay decides which frames are late.
            self.intake.digest.add(delay.as_nanos());
        }
    }

    /// Tells the session whether the decoder needs a key frame: `Some(true)` after a join, `Some(false)` for another
    /// reason.
    pub fn lacks_key_frame(&mut self, now: Time, lacks: Option<bool>, out: &mut Out<'_>) {
        let own = self.skew.own(now);
        if let Some(receiver) = &mut self.receiver {
            match lacks {
                Some(joins) => receiver.needs_key_frame(own, joins),
                None => receiver.has_key_frame(),
            }
            self.drain(now, out);
        }
    }

    /// Processes an RTCP compound of `len` bytes.
    pub fn on_rtcp(&mut self, now: Time, from: AgentIx, compound: &Compound, len: usize, out: &mut Out<'_>) {
        self.take_rtcp(now, from, compound, len);
        self.drain(now, out);
    }

    fn take_rtcp(&mut self, now: Time, from: AgentIx, compound: &Compound, len: usize) {
        if let Some(receiver) = &mut self.receiver {
            receiver.on_compound(self.skew.own(now), Origin(u64::from(from.0)), compound, len);
        }
    }

    fn drain(&mut self, now: Time, out: &mut Out<'_>) {
        let Some(receiver) = &mut self.receiver else { return };
        let own = self.skew.own(now);
        // A report may depend on the buffer's level.
        if let Some(level) = level_of(self.buffer.as_mut(), now) {
            receiver.on_buffer(own, level);
        }
        loop {
            match receiver.poll(own) {
                Output::Rtcp(bytes) => {
                    self.rtcp_packets += 1;
                    self.rtcp_bytes += Bytes::new((bytes.len() + IP_UDP_OVERHEAD) as u64);
                    if self.keep_views {
                        self.views.push(ViewRow { at: now, view: receiver.view() });
                    }
                    send_rtcp(bytes, out);
                }
                Output::Wait(wake) => {
                    self.until = wake.map_or(Time::NEVER, |w| self.skew.network(w.at));
                    return;
                }
                Output::Media(_) => debug_assert!(false, "a receiver sends no media"),
            }
        }
    }

    /// Returns the present session, or the last one.
    pub fn session(&self) -> Option<&Receiver> {
        self.receiver.as_ref()
    }

    /// Returns the rows for the record.
    pub fn stored_rows(&mut self) -> Vec<&mut dyn StoredRows> {
        let mut all: Vec<&mut dyn StoredRows> = vec![&mut self.intake.samples, &mut self.views, self.repaired.rows()];
        all.extend(self.audio_arrivals.as_mut().map(|arrivals| &mut **arrivals as &mut dyn StoredRows));
        all
    }

    /// Appends the present time step to the series.
    pub fn sample(&mut self, now: Time) {
        let expected = self.expected();
        self.intake.sample(expected);
        let level = self.buffer.as_mut().map(|b| b.level(now));
        let playout = self.player.schedule.delay(now);
        if let Some(point) = self.intake.samples.last_mut() {
            (point.buffer, point.playout) = (level, playout);
        }
    }

    /// Returns the longest time from a frame being ready to its completion.
    pub fn playout_needed(&self, sent: &SentFrames) -> Option<Span> {
        let assembly = self.assembly.as_ref()?;
        let whole = sent.frames.iter().enumerate().filter_map(|(n, frame)| {
            let (_, last) = assembly.arrival(n as u32)?;
            Some(last.since(frame.ready))
        });
        whole.max()
    }
}
