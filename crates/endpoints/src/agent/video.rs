//! The two ends of a video session. The sender has an encoder, and the receiver assembles frames.

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
use steadycast_media::{Assembly, AudioFeed, Feed, FrameFate, PlayBuffer, SentFrames};
use steadycast_record::{Figures, Of, row};
use steadycast_session::{
    AudioPacket, Batchable, EcnCounts, EcnPath, FeedbackCounts, Frame, Media, MediaPacket, Origin, Output, Protected,
    Protection, Received, Receiver, Recovered, Repairs, Requests, Sender, SenderSettings, UnusedReason,
};
use steadycast_units::{Bytes, Chance, Offset, OneWay, Rate, Span, Time, sums};
use steadycast_wire::IP_UDP_OVERHEAD;
use steadycast_wire::rtcp::{Compound, Packet};
use steadycast_wire::rtp::RtpHeader;

/// A decision of the controller, and since when it was valid.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecisionRow {
    /// Since when the decision was valid.
    pub at: Time,
    /// The decision and its reason.
    pub decision: Decision,
    /// Whether the encoder's best quality needed less than the rate that was decided.
    pub by_encoder: bool,
}

impl Row for DecisionRow {
    fn pass(&mut self, by: &mut Fields<'_>) {
        let Decision { target, pacing, window, limit, why } = &mut self.decision;
        self.at.pass(by);
        target.pass(by);
        pacing.pass(by);
        // This function writes or reads a row. When reading, rebuild the window from `bytes` and `free`.
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
        // Store the limit as its index in this list.
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

/// What a controller's receiver part had measured when it wrote a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ViewRow {
    /// When the report was written.
    pub at: Time,
    /// The measured values.
    pub view: View,
}

row!(ViewRow { at, view.rate, view.loss, view.rtt, view.state });

const SECOND: Span = Span::secs(1);

/// IP bytes of which the summary has mean rates.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CountedBytes {
    /// Bytes of the accepted compounds with a report.
    pub(crate) feedback: Bytes,
    /// Bytes of the retransmitted packets.
    pub(crate) repair: Bytes,
    /// Bytes of the parity packets.
    pub(crate) parity: Bytes,
    /// Bytes of the padding packets.
    pub(crate) padding: Bytes,
}

sums!(CountedBytes { feedback, repair, parity, padding });

/// How long each cause limited the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitShares {
    /// How long the network limited the rate.
    pub network: Span,
    /// How long the encoder limited the rate, because its best quality needed less than the allowed rate.
    pub encoder: Span,
    /// How long the controller was in its start phase.
    pub start: Span,
    /// How long the session's maximum rate limited the rate.
    pub cap: Span,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// Index of the first frame.
    first: u32,
    at: Time,
    /// When the first frame is due, on the encoder's clock.
    due: Span,
    /// When the first audio packet is due, on the audio source's clock.
    audio: Span,
}

impl Epoch {
    /// Converts a time on the audio source's clock to the network's time.
    fn audio_at(&self, at: Span) -> Time {
        if at == Span::MAX { Time::NEVER } else { self.at + at.saturating_sub(self.audio) }
    }
}

/// The sender of a video session, and its encoder.
pub struct VideoSource {
    settings: SenderSettings,
    make: Box<dyn Fn(SenderSettings, Time) -> Sender + Send>,
    sender: Option<Sender>,
    encoder: Option<Box<dyn Feed>>,
    /// The audio source. `None` if the session has no audio.
    pub audio: Option<Box<dyn AudioFeed>>,
    /// Whether the session's maximum rate is the highest rate of the encoder's ladder.
    capped_by_ladder: bool,
    /// The highest rate that the source can use. It is the session's maximum rate, or the best quality's mean rate if
    /// that is lower.
    pub(crate) most: Rate,
    /// The periods in which the source sends. A period ends when the source is stopped, pauses, or has sent all data.
    pub(crate) sending: Activity,
    epochs: Vec<Epoch>,
    /// Whether a session is currently running.
    pub running: bool,
    finished: bool,
    /// When the session must be polled again.
    until: Time,
    past_repairs: Repairs,
    /// Number of key frames that the receivers have requested.
    pub key_frames: u64,
    /// Whether the source has been started and not stopped since.
    open: bool,
    /// All frames, and the packets of each frame.
    pub frames: SentFrames,
    keep_frames: bool,
    /// Number of IP bytes that a source without frames sends after each start, rounded up to full packets. `None` means
    /// no limit.
    pub(crate) amount: Option<Bytes>,
    /// How much of `amount` has not been sent yet.
    left: Option<Bytes>,
    /// All decisions of the controller, with their times.
    pub decisions: Rows<DecisionRow>,
    /// How long each cause limited the rate.
    pub limits: LimitShares,
    /// Until when `limits` is complete.
    limits_since: Time,
    /// When the mean values begin. This is the end of the warm-up, or the start of the flow if that is later.
    means_from: Time,
    /// The bytes that were counted before the mean values begin. `None` until then.
    bytes_before: Option<CountedBytes>,
    /// Number of RTP media packets sent.
    pub sent_packets: u64,
    /// Number of audio packets sent.
    pub audio_packets: u64,
    /// When each audio packet was sent. `None` if this is not recorded.
    pub(crate) audio_sent: Option<Rows<Time>>,
    /// IP bytes sent for media, audio, repair and padding.
    pub sent_bytes: Bytes,
    /// The value of `sent_bytes` at the last step of the time series.
    last_bytes: Bytes,
    /// The value of `sent_packets` at the last step of the time series.
    last_packets: u64,
    /// IP bytes of the RTCP that was sent.
    pub rtcp_bytes: Bytes,
    /// Bytes and rates in each step of the time series.
    pub samples: Rows<SourcePoint>,
    /// RTCP's share of the session bandwidth in each step ([`RTCP_SHARE`](steadycast_control::promise::RTCP_SHARE)).
    pub rtcp_shares: Rows<f64>,
    /// Feedback counts of the previous sessions.
    past_feedback: FeedbackCounts,
    past_ecn: EcnCounts,
    past_padding: (u64, Bytes),
    past_checks: Vec<Check>,
    past_skipped: u64,
    /// How long packets wait: the time from when a frame is ready until each of its packets is sent.
    pub backlog: steadycast_units::Spread,
    /// A digest of all packets and decisions, and their times.
    pub digest: Digest,
    /// More figures, which the caller sets. They replace figures of this source that have the same name.
    pub also: Figures,
}

/// One step in the time series of a video source.
#[derive(Clone, Copy, Debug, Default)]
pub struct SourcePoint {
    /// IP bytes that were sent in the step.
    pub bytes: u64,
    /// Media packets that were sent in the step.
    pub packets: u32,
    /// Target rate at the end of the step.
    pub target: Rate,
    /// Pacing rate at the end of the step.
    pub pacing: Rate,
}

row!(SourcePoint { bytes, packets, target, pacing });

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
        // Add the rate of the audio, which is sent in addition to the pictures at their best quality.
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
            bytes_before: None,
            sent_packets: 0,
            audio_packets: 0,
            audio_sent: None,
            sent_bytes: Bytes::ZERO,
            last_bytes: Bytes::ZERO,
            last_packets: 0,
            rtcp_bytes: Bytes::ZERO,
            samples: Rows::default(),
            rtcp_shares: Rows::default(),
            backlog: steadycast_units::Spread::default(),
            digest: Digest::default(),
            also: Figures::new(Of::Flow),
        }
    }

    /// Returns two values: whether the path preserves the ECN field, and the ECN counts. Returns `None` if packets are
    /// not ECN-capable.
    pub fn ecn(&self) -> Option<(EcnPath, EcnCounts)> {
        let (path, counts) = self.sender.as_ref().map(Sender::ecn).unwrap_or_default();
        self.settings.ecn.is_capable().then(|| (path, self.past_ecn + counts))
    }

    /// Returns the number of RTP packets that were sent: media, audio, repair and padding.
    pub fn rtp_packets(&self) -> u64 {
        let repairs = self.repairs().map_or(0, |repairs| repairs.packets + repairs.parities);
        let padding = self.padding().map_or(0, |(packets, _)| packets);
        self.sent_packets + self.audio_packets + repairs + padding
    }

    /// Returns the number of padding packets and their IP bytes. Returns `None` if the session sends no padding.
    pub fn padding(&self) -> Option<(u64, Bytes)> {
        let (packets, bytes) = self.sender.as_ref().and_then(Sender::padding).unwrap_or_default();
        self.settings.padding.then_some((self.past_padding.0 + packets, self.past_padding.1 + bytes))
    }

    /// Returns the repair counts of all sessions. Returns `None` if the session does not repair losses.
    pub fn repairs(&self) -> Option<Repairs> {
        let present = self.sender.as_ref().map(Sender::repairs).unwrap_or_default();
        (self.settings.repair.is_some() || self.settings.parity.is_some()).then(|| self.past_repairs + present)
    }

    /// Returns the bytes that were counted since the mean values began.
    pub(crate) fn bytes_of_means(&self) -> CountedBytes {
        let bytes = self.counted_bytes();
        // If the measurement has not begun, nothing counts.
        let before = self.bytes_before.unwrap_or(bytes);
        CountedBytes {
            feedback: bytes.feedback.saturating_sub(before.feedback),
            repair: bytes.repair.saturating_sub(before.repair),
            parity: bytes.parity.saturating_sub(before.parity),
            padding: bytes.padding.saturating_sub(before.padding),
        }
    }

    fn counted_bytes(&self) -> CountedBytes {
        let repairs = self.repairs().unwrap_or_default();
        let (_, padding) = self.padding().unwrap_or_default();
        CountedBytes { feedback: self.feedback().bytes, repair: repairs.bytes, parity: repairs.parity_bytes, padding }
    }

    /// Saves the counts of bytes when the mean values begin. Must be called before each event that changes a count.
    fn begin_means(&mut self, now: Time) {
        if self.bytes_before.is_none() && now >= self.means_from {
            self.bytes_before = Some(self.counted_bytes());
        }
    }

    /// Starts the source. May be called again after a stop. In a simulcast, the source waits for its first receiver.
    pub fn start(&mut self, now: Time, out: &mut Out<'_>) {
        self.open = true;
        if self.settings.siblings.is_none() {
            self.begin(now, out);
        }
    }

    /// Begins a session. It continues the packet numbers of the previous session.
    fn begin(&mut self, now: Time, out: &mut Out<'_>) {
        if self.running {
            return;
        }
        self.begin_means(now);
        let mut sender = (self.make)(self.settings.clone(), now);
        if let Some(old) = &self.sender {
            // To receivers, the old and the new session are the same stream.
            sender.continue_after(old);
            self.past_repairs = self.past_repairs + old.repairs();
            self.past_feedback = self.feedback();
            self.past_ecn = self.past_ecn + old.ecn().1;
            self.past_padding = self.padding().unwrap_or_default();
            self.past_checks = self.checks();
            self.past_skipped = self.skipped();
            if let Some(encoder) = &mut self.encoder {
                // Skip to the next I frame, because a new session begins with one.
                self.frames.skip_to(encoder.resume());
            }
        }
        self.sender = Some(sender);
        // If it is unknown when the first frame is due, assume that it is due now.
        let due = self.encoder.as_ref().map(|e| e.due()).filter(|due| *due < Span::MAX).unwrap_or(Span::ZERO);
        let begins = |due: Span| if due < Span::MAX { due } else { Span::ZERO };
        let audio = self.audio.as_ref().map_or(Span::ZERO, |audio| begins(audio.due()));
        self.epochs.push(Epoch { first: self.frames.count(), at: now, due, audio });
        (self.limits_since, self.running, self.until) = (now, true, Time::NEVER);
        // Send the whole amount again after each start.
        self.left = self.amount;
        self.sending.begin(now);
        self.drain(now, out);
    }

    /// Stops the source and sends a BYE. In a large group, RTCP's rules delay the BYE.
    pub fn stop(&mut self, now: Time, out: &mut Out<'_>) {
        self.end(now);
        self.drain(now, out);
    }

    /// Ends the source's activity. The BYE is sent later.
    fn end(&mut self, now: Time) {
        self.begin_means(now);
        self.account(now);
        self.sending.end(now);
        (self.running, self.open) = (false, false);
        if let Some(sender) = &mut self.sender {
            sender.stop();
        }
    }

    /// Ends the session because it has no receiver. It sends no BYE.
    fn pause(&mut self, now: Time) {
        self.account(now);
        self.sending.end(now);
        (self.running, self.until) = (false, Time::NEVER);
        // Announce a rate of zero, which means that this sender is paused. Each sender of a simulcast announces the
        // rates of all senders.
        if let Some(siblings) = &self.settings.siblings {
            siblings.set_rate(Rate::ZERO);
        }
        // Record a decision for the pause, because no controller runs in it.
        let why = Why::rule("nobody is there: paused");
        let decision = Decision { target: Rate::ZERO, pacing: Rate::ZERO, window: None, limit: Limit::Start, why };
        self.decisions.push(DecisionRow { at: now, decision, by_encoder: false });
    }

    /// Returns whether the source has been started but waits for a receiver.
    fn paused(&self) -> bool {
        self.settings.siblings.is_some() && self.open && !self.running
    }

    /// Returns when the source will pause if no receiver reports until then. Returns `Time::NEVER` if it will not
    /// pause.
    fn deserted_at(&self) -> Time {
        let sender = self.sender.as_ref().filter(|_| self.settings.siblings.is_some() && self.running);
        sender.map_or(Time::NEVER, Sender::deserted_at)
    }

    /// Tells the source that the run ends. It encodes no more frames, but sends the packets that the pacer still has.
    pub fn finish(&mut self, now: Time) {
        self.begin_means(now);
        self.account(now);
        (self.finished, self.open) = (true, false);
        // A source without frames ends immediately, because its pacer has no backlog.
        self.running &= self.keep_frames;
    }

    /// Returns when [`VideoSource::on_wake`] is due.
    pub fn wake(&self) -> Time {
        match (self.running, self.finished) {
            (true, _) => self.frame_due().min(self.audio_due()).min(self.until).min(self.deserted_at()),
            // Wake up to send the BYE, if it has not been sent yet.
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
        self.begin_means(now);
        // In a simulcast, the first report of a receiver starts the session.
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

    /// Encodes a frame that is due, or handles the expiry of a timer of the session.
    pub fn on_wake(&mut self, now: Time, out: &mut Out<'_>) {
        self.begin_means(now);
        if self.deserted_at() <= now {
            self.pause(now);
        }
        self.take_audio(now);
        while self.running && self.frame_due() <= now {
            // Try again at the next wake-up if the encoder has not delivered the frame yet.
            if !self.frame(now) {
                break;
            }
        }
        self.drain(now, out);
    }

    /// Encodes the frame that is due. Returns false if the encoder has not delivered it yet.
    fn frame(&mut self, now: Time) -> bool {
        self.account(now);
        let (Some(encoder), Some(sender)) = (&mut self.encoder, &mut self.sender) else { return false };
        let backlog = sender.backlog().bytes;
        let Some(coded) = encoder.next(sender.media_target(now), backlog) else { return false };
        let by_encoder = encoder.limited();
        // Add a row if `by_encoder` has changed, because it may change between two decisions.
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
            // Do not poll the sender of a paused session.
            if self.paused() {
                return;
            }
            let Some(sender) = &mut self.sender else { return };
            let output = sender.poll(now);
            if sender.take_change() {
                let decision = sender.decision().clone();
                if let Some(encoder) = &mut self.encoder {
                    // Give the encoder the target rate minus the share that repair needs.
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
                    // End a source that has sent its whole amount.
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
        // Do not count repair and padding towards the amount.
        let original = media.stream == Stream::Media;
        self.sent_packets += u64::from(original);
        if media.stream == Stream::Audio {
            self.audio_packets += 1;
            if let Some(sent) = &mut self.audio_sent {
                sent.push(now);
            }
        }
        self.left = self.left.map(|left| if original { left.saturating_sub(media.size) } else { left });
        // Invert the value for a repair packet. Its digest then differs from the digest of an original packet.
        let sign = if original { 0 } else { u64::MAX };
        self.digest.add(now.as_nanos() ^ media.seq << 44 ^ sign);
        if self.keep_frames && original {
            self.frames.sent(now, media.fragment);
            if let Some(frame) = self.frames.get(media.fragment.frame).filter(|_| now >= self.means_from) {
                self.backlog.add(now.since(frame.ready));
            }
        }
        let sender = self.sender.as_ref().filter(|_| media.stream == Stream::Parity);
        // Attach the list of protected packets, because a simulated parity packet has no bytes that contain it.
        let body = match sender.and_then(Sender::protection) {
            Some(protection) => Body::Parity(Box::new((media, protection.clone()))),
            None => Body::Rtp(Box::new(media)),
        };
        out.send(media.size, ecn, body);
    }

    /// Adds the time since the previous call to `limits`, under the cause that limited the rate.
    pub fn account(&mut self, now: Time) {
        // Leave out the warm-up, as for all mean values.
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

    /// Returns, for each second of the run, how long the encoder's best quality or the session's maximum rate limited
    /// the rate.
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

    /// Returns what limited the rate while a decision was valid: network, floor, encoder, start or cap.
    pub fn limit(&self, row: &DecisionRow) -> &'static str {
        match row.decision.limit {
            _ if row.by_encoder => "encoder",
            Limit::Cap if self.capped_by_ladder => "encoder",
            limit => limit.word(),
        }
    }

    /// Returns when the frame with this display index was captured.
    pub fn shown_at(&self, display: u32) -> Time {
        self.encoder.as_ref().map_or(Time::ZERO, |e| shown_at(&self.epochs, &**e, display))
    }

    /// Returns the sender of the session. Returns `None` before the first start.
    pub fn session(&self) -> Option<&Sender> {
        self.sender.as_ref()
    }

    /// Returns the feedback counts of all sessions.
    pub fn feedback(&self) -> FeedbackCounts {
        self.past_feedback + self.sender.as_ref().map(Sender::feedback).unwrap_or_default()
    }

    /// Returns the results of the run-time checks in all sessions.
    pub(crate) fn checks(&self) -> Vec<Check> {
        let mut all = self.past_checks.clone();
        Check::gather(&mut all, self.sender.as_ref().map_or(&[][..], Sender::checks));
        let sender = self.sender.as_ref();
        Check::gather(&mut all, sender.and_then(Sender::repair_check).as_slice());
        Check::gather(&mut all, sender.map(Sender::mtu_check).as_slice());
        all
    }

    /// Returns the number of frames that were skipped because of the backlog.
    pub fn skipped(&self) -> u64 {
        self.past_skipped + self.sender.as_ref().map_or(0, |s| s.backlog().skipped)
    }

    /// Returns the time between two frames. Returns zero if the source has no frames.
    pub fn frame_period(&self) -> Span {
        self.encoder.as_ref().map_or(Span::ZERO, |e| e.period())
    }

    /// Returns whether the flow paused directly after the frame with this display index.
    pub fn pauses_after(&self, display: u32) -> bool {
        // Compare [`Epoch::first`], an index in coding order, with a display index. Groups of pictures are closed, so
        // the first frame after a pause has the same index in both orders.
        self.epochs.iter().skip(1).any(|epoch| epoch.first == display + 1)
    }

    /// Returns the index of the audio packet that has the sequence number `seq` and arrived at `at`. Returns `None` if
    /// audio packets are not recorded, or if no such packet was sent.
    pub(crate) fn audio_index(&self, seq: u64, at: Time) -> Option<usize> {
        audio::index_of(self.audio_sent.as_ref()?, self.settings.audio?.first_seq, seq, at)
    }

    /// Returns the rows that are kept in the store.
    pub fn stored_rows(&mut self) -> Vec<&mut dyn StoredRows> {
        let mut all: Vec<&mut dyn StoredRows> = vec![&mut self.samples, &mut self.rtcp_shares, &mut self.decisions];
        all.extend(self.audio_sent.as_mut().map(|sent| sent as &mut dyn StoredRows));
        all
    }

    /// Appends the current step to the time series.
    pub fn sample(&mut self, now: Time) {
        let (target, pacing) = match self.sender.as_ref().filter(|_| self.running) {
            Some(sender) => {
                self.rtcp_shares.push(sender.rtcp_share(now));
                (sender.decision().target, sender.decision().pacing)
            }
            None => (Rate::ZERO, Rate::ZERO),
        };
        let bytes = self.sent_bytes.saturating_sub(self.last_bytes).get();
        let packets = (self.sent_packets - self.last_packets) as u32;
        self.samples.push(SourcePoint { bytes, packets, target, pacing });
        (self.last_bytes, self.last_packets) = (self.sent_bytes, self.sent_packets);
    }
}

/// Returns when the frame with this display index was captured.
fn shown_at(epochs: &[Epoch], encoder: &dyn Feed, display: u32) -> Time {
    at_epoch(epochs, display, encoder.shown_at(display))
}

/// Converts a time on the encoder's clock to the network's time. `display` is the display index of the frame that the
/// time belongs to.
fn at_epoch(epochs: &[Epoch], display: u32, at: Span) -> Time {
    let epoch = epochs.iter().rev().find(|e| e.first <= display).or(epochs.first());
    epoch.map_or(Time::ZERO, |e| e.at + at.saturating_sub(e.due))
}

/// Returns whether the sender of this RTCP compound stays in the session.
fn continues(rtcp: &[u8]) -> bool {
    Compound::parse(rtcp).is_ok_and(|c| !c.packets.iter().any(|p| matches!(p, Packet::Bye { .. })))
}

fn send_rtcp(bytes: Vec<u8>, out: &mut Out<'_>) {
    let size = Bytes::new((bytes.len() + IP_UDP_OVERHEAD) as u64);
    // Ignore RTCP that can't be parsed. It would be a bug, because the session has written it itself.
    let Ok(parsed) = Compound::parse(&bytes) else {
        debug_assert!(false, "a session wrote RTCP that it can't read");
        return;
    };
    out.send(size, Ecn::NotEct, Body::Rtcp { bytes: bytes.into(), parsed: Arc::new(parsed) });
}

fn level_of(buffer: Option<&mut Box<PlayBuffer>>, now: Time) -> Option<BufferLevel> {
    buffer.map(|b| BufferLevel { level: b.level(now), size: b.size() })
}

/// The cumulative jitter of a frame. It is the one-way delay of the frame's last packet, minus the one-way delay of the
/// first frame's last packet (Multi-Evalvid-RA, equations 3 and 4).
#[derive(Clone, Copy, Debug, Default)]
pub struct CumulativeJitter {
    /// SSRC and one-way delay of the first frame. It is replaced when the SSRC changes, because another source has
    /// another clock.
    anchor: Option<(u32, OneWay)>,
    /// The highest value so far.
    pub max: Offset,
}

/// Creates the receiver for a join. The second argument is the number of the join, from 0.
pub type MakeReceiver = Box<dyn Fn(Time, u32) -> Receiver + Send>;

/// The receiver of a video session. It assembles the frames.
pub struct VideoSink {
    /// The SSRCs of the receiver. Each join has its own SSRC.
    pub ssrcs: Vec<u32>,
    make: MakeReceiver,
    receiver: Option<Receiver>,
    /// Number of packets that were expected before the latest join.
    past_expected: u64,
    past_checks: Vec<Check>,
    past_requests: Requests,
    /// The values of [`VideoSink::untold`] in earlier sessions.
    past_untold: (u64, u64),
    /// Result of the check in the current session that repaired packets do not count as received.
    losses: Check,
    /// Number of media packets that the current session has not used since the last packet that it has used, because
    /// their sequence numbers were far ahead. The session may count them later as received.
    strays: u64,
    /// Whether the session repairs losses: lost packets are requested by NACK or recovered from parity.
    pub repair: bool,
    /// The packets that arrived only as repairs.
    pub repaired: Repaired,
    /// Lost packets whose bytes can be computed from parity.
    computable: Vec<Recovered>,
    /// When the sink first joined.
    pub joined: Time,
    /// The periods of membership, each from a join to the leave.
    stays: Vec<(Time, Time)>,
    /// Counts of the arrived packets.
    pub intake: Intake,
    /// Assembles frames. `None` if the flow has no frames.
    pub assembly: Option<Assembly>,
    /// The play-out buffer. `None` if the receiver has none.
    pub buffer: Option<Box<PlayBuffer>>,
    /// The play-out of audio. `None` if the session has no audio.
    pub audio: Option<Box<AudioPlayout>>,
    /// The arrivals of audio packets. `None` if they are not recorded.
    pub(crate) audio_arrivals: Option<Box<Rows<AudioArrival>>>,
    /// The player. It decides how long to wait for a frame.
    pub player: Player,
    first_seq: u64,
    /// The receiver's clock. All other times in this struct are the network's time.
    pub(crate) skew: Skew,
    /// When the receiver must be polled again.
    until: Time,
    /// IP bytes of the RTCP that was sent.
    pub rtcp_bytes: Bytes,
    /// Number of RTCP compounds sent.
    pub rtcp_packets: u64,
    /// Number of RTP packets, by their ECN field on arrival.
    pub by_ecn: [u64; 4],
    /// The cumulative jitter of the frames.
    pub jitter: CumulativeJitter,
    /// What the controller had measured at each report.
    pub views: Rows<ViewRow>,
    /// Whether `views` is recorded. In a large group, it would take too much memory.
    pub(crate) keep_views: bool,
    /// More figures, which the caller sets. They replace figures of this sink that have the same name.
    pub also: Figures,
}

impl VideoSink {
    /// Creates a sink that has not joined the session yet.
    pub fn new(make: MakeReceiver, intake: Intake, frames: bool, first_seq: u16) -> Self {
        Self {
            ssrcs: Vec::new(),
            make,
            receiver: None,
            past_expected: 0,
            past_checks: Vec::new(),
            past_requests: Requests::default(),
            past_untold: (0, 0),
            losses: Check::new(&LOSSES_COUNT),
            strays: 0,
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

    /// Returns the counts of requests and of repaired packets. Returns `None` if losses are not repaired.
    pub fn requests(&self) -> Option<Requests> {
        let present = self.receiver.as_ref().map(Receiver::requests).unwrap_or_default();
        self.repair.then_some(self.past_requests + present)
    }

    /// Joins the session. Each further join begins a new session, which has another SSRC.
    pub fn join(&mut self, now: Time) {
        // Save the totals, because the new session counts from zero.
        self.past_expected = self.expected();
        self.past_checks = self.checks();
        self.past_requests = self.requests().unwrap_or_default();
        self.past_untold = self.untold();
        (self.losses, self.strays) = (Check::new(&LOSSES_COUNT), 0);
        self.repaired.restart();
        self.player.restart();
        if let Some(audio) = &mut self.audio {
            audio.restart();
        }
        let own = self.skew.own(now);
        let mut receiver = (self.make)(own, self.ssrcs.len() as u32);
        self.ssrcs.push(receiver.ssrc());
        // Poll at once, because the RTCP timer starts with the join, before any packet arrives.
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

    /// Returns whether the sink was a member of the session at the time `at`. Outside its membership, no packets are
    /// expected.
    pub fn stayed(&self, at: Time) -> bool {
        self.stays.iter().any(|(from, until)| *from <= at && at < *until)
    }

    /// Returns for each frame whether it counts for this sink. Frames that were ready outside its membership do not
    /// count. A frame that may still have been on its way when the sink left counts only if it arrived whole. The
    /// longest transfer of the membership says how long a frame may be on its way.
    pub(crate) fn counted(&self, sent: &SentFrames, fates: &[FrameFate]) -> Vec<bool> {
        let mut counted = vec![false; fates.len()];
        let whole = |n: usize| matches!(fates[n], FrameFate::Ok | FrameFate::Late);
        let transfer = |n: usize| Some(self.assembly.as_ref()?.arrival(n as u32)?.1.since(sent.frames[n].ready));
        for (from, until) in &self.stays {
            let there = |n: &usize| (*from..*until).contains(&sent.frames[*n].ready);
            let longest = (0..fates.len()).filter(there).filter(|n| whole(*n)).filter_map(transfer).max();
            for n in (0..fates.len()).filter(there) {
                let due = sent.frames[n].ready + longest.unwrap_or_default();
                counted[n] = whole(n) || due <= *until;
            }
        }
        counted
    }

    /// Leaves the session. Sends a BYE.
    pub fn leave(&mut self, now: Time, out: &mut Out<'_>) {
        self.end_stay(now);
        if let Some(receiver) = &mut self.receiver {
            receiver.leave();
            self.drain(now, out);
        }
    }

    /// Returns whether the sink is leaving, but has not sent its BYE yet.
    pub fn leaving(&self) -> bool {
        self.receiver.as_ref().is_some_and(Receiver::leaving)
    }

    /// Returns the number of arrivals that were not reported, and the number of messages that did not fit into a
    /// datagram.
    pub(crate) fn untold(&self) -> (u64, u64) {
        let (packets, messages) = self.receiver.as_ref().map_or((0, 0), Receiver::untold);
        (self.past_untold.0 + packets, self.past_untold.1 + messages)
    }

    fn expected(&self) -> u64 {
        self.past_expected + self.receiver.as_ref().map_or(0, Receiver::expected)
    }

    /// Returns the results of the run-time checks in all sessions.
    pub(crate) fn checks(&self) -> Vec<Check> {
        let mut all = self.past_checks.clone();
        Check::gather(&mut all, self.receiver.as_ref().map_or(&[][..], Receiver::checks));
        Check::gather(&mut all, self.receiver.as_ref().map(Receiver::mtu_check).as_slice());
        if let Some(receiver) = self.receiver.as_ref().filter(|_| self.repair) {
            Check::gather(&mut all, receiver.repair_check().as_slice());
            Check::gather(&mut all, &[self.losses]);
        }
        all
    }

    /// Returns when [`VideoSink::on_wake`] is due.
    pub const fn wake(&self) -> Time {
        self.until
    }

    /// Handles the expiry of a timer of the session.
    pub fn on_wake(&mut self, now: Time, out: &mut Out<'_>) {
        self.drain(now, out);
    }

    /// Returns which packets may be delivered later, by [`VideoSink::catch_up`].
    pub fn batchable(&self) -> Option<Batchable> {
        self.receiver.as_ref().filter(|_| self.buffer.is_none())?.batchable()
    }

    /// Delivers a packet that arrived at `at`. [`VideoSink::batchable`] must have accepted it.
    pub fn catch_up(&mut self, at: Time, packet: &Arriving<'_>) {
        match packet.body {
            Body::Rtp(media) => {
                self.take_media(at, packet, media);
            }
            Body::Rtcp { bytes, parsed } => self.take_rtcp(at, packet.from, parsed, bytes.len()),
            _ => {}
        }
        // Check what `batchable` guarantees: the packet causes no transmission, and no timer becomes due earlier.
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

    /// Calls [`Receiver::on_clock_gap`].
    pub fn on_clock_gap(&mut self, now: Time) {
        if let Some(receiver) = &mut self.receiver {
            receiver.on_clock_gap(self.skew.own(now));
        }
    }

    /// Calls [`Receiver::begin_run`].
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
        let before = receiver.received();
        let received = receiver.on_media(self.skew.own(now), from, &taken_apart);
        if self.repair {
            let counted = receiver.received().saturating_sub(before);
            self.check_losses(received, counted, media.stream);
        }
        self.by_ecn[usize::from(packet.ecn.bits())] += u64::from(!matches!(received, Received::Unused(_)));
        if media.stream != Stream::Media {
            self.intake.add_repair(now, packet.size);
        }
        if let (Received::Audio(seq), Some(audio), Some(sent)) = (received, &mut self.audio, packet.sent) {
            // Leave out the warm-up and the pauses, because the figures of audio do not include them.
            let counts = self.intake.counts(now);
            let gap = if counts { audio.on_packet(now, seq, now.since(sent)) } else { Span::ZERO };
            if let Some(arrivals) = &mut self.audio_arrivals {
                arrivals.push(AudioArrival { at: now, seq, gap });
            }
        }
        let (fragment, ends, stamp) = (media.fragment, media.header.marker, Some(media.header.timestamp));
        if let (Received::Repaired(seq), Some(original)) = (received, media.repairs) {
            // Count from the flow's first packet, as in the record of sent frames.
            let number = original - self.first_seq;
            self.repaired.insert(seq, now, fragment.frame);
            let packet = ArrivedPacket { now, sent: None, repaired: true, stamp, fragment, ends };
            self.deliver(number, media.size, packet);
        }
        if let Received::New(seq) = received {
            self.intake.add(now, packet.size, packet.sent);
            let number = media.seq - self.first_seq;
            // Do not deliver the packet again if an earlier repair was already delivered.
            if !self.repaired.remove(media.header.ssrc, seq) {
                let packet = ArrivedPacket { now, sent: packet.sent, repaired: false, stamp, fragment, ends };
                self.deliver(number, media.size, packet);
            }
            if media.header.marker
                && let Some(stamp) = media.header.send_time
            {
                let way = OneWay::between(stamp.peer(None), now);
                let ssrc = media.header.ssrc;
                // Compare delays only with the first frame's delay, because the clocks may differ.
                let anchor = self.jitter.anchor.filter(|(of, _)| *of == ssrc).map_or(way, |(_, anchor)| anchor);
                self.jitter.anchor = Some((ssrc, anchor));
                self.jitter.max = self.jitter.max.max(way.variation_since(anchor));
            }
        }
        self.recover(now);
        received
    }

    /// Checks that only media packets count as received. `counted` is the number of packets that the session has
    /// counted as received because of this packet.
    fn check_losses(&mut self, received: Received, counted: u64, stream: Stream) {
        match received {
            Received::New(_) if stream == Stream::Media => {
                // A packet after a gap of many numbers confirms the stray packets before it, so the session counts them
                // with this packet.
                self.losses.see((1..=1 + self.strays).contains(&counted));
                self.strays = 0;
            }
            _ => {
                self.losses.see(counted == 0);
                let is_far = received == Received::Unused(UnusedReason::FarNumber);
                // The other streams have their own sequence numbers.
                self.strays += u64::from(is_far && stream == Stream::Media);
            }
        }
    }

    /// Records an authenticated packet that contains no media.
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

    /// Processes a parity packet. `protection` lists the packets that it protects.
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
        let (from, before) = (Origin(u64::from(packet.from.0)), receiver.received());
        let received = receiver.on_parity(self.skew.own(now), from, &taken_apart, protection);
        let counted = receiver.received().saturating_sub(before);
        self.check_losses(received, counted, Stream::Parity);
        if let Received::New(_) = received {
            self.by_ecn[usize::from(ecn.bits())] += 1;
            self.intake.add_repair(now, packet.size);
        }
        self.recover(now);
        self.drain(now, out);
        received
    }

    /// Processes the packets that were recovered from parity. A packet whose headers are unknown is saved for
    /// [`VideoSink::take_computable`], because only the caller has its bytes.
    fn recover(&mut self, now: Time) {
        let Some(receiver) = &mut self.receiver else { return };
        for recovered in receiver.take_recovered() {
            match recovered.packet {
                Some(packet) => self.on_recovered(now, recovered.seq, &packet),
                None => self.computable.push(recovered),
            }
        }
    }

    /// Returns the packets that can be computed from parity, if they were not returned before.
    pub fn take_computable(&mut self) -> Vec<Recovered> {
        std::mem::take(&mut self.computable)
    }

    /// Processes a packet that was recovered from parity. `counted` is the number that the receiver uses,
    /// [`Recovered::seq`]. `packet.seq` is the number that the sender uses, or this number again.
    pub fn on_recovered(&mut self, now: Time, counted: u64, packet: &Protected) {
        let Protected { seq, fragment, marker } = *packet;
        let number = seq.saturating_sub(self.first_seq);
        self.repaired.insert(counted, now, fragment.frame);
        let size = Bytes::new(fragment.len.into());
        let packet = ArrivedPacket { now, sent: None, repaired: true, stamp: None, fragment, ends: marker };
        self.deliver(number, size, packet);
    }

    /// Delivers an original or repaired packet to the decoder and the player. `number` is its number, counted from the
    /// flow's first packet.
    fn deliver(&mut self, number: u64, size: Bytes, packet: ArrivedPacket) {
        let ArrivedPacket { now, fragment, .. } = packet;
        // Do not decode a packet for which the play-out buffer has no room.
        let kept = self.buffer.as_mut().is_none_or(|b| b.offer(now, size, fragment.frame));
        if let Some(assembly) = self.assembly.as_mut().filter(|_| kept) {
            assembly.on_packet(now, number, fragment);
        }
        // Stop here if the play-out delay is constant, because no measurement is needed then.
        if !self.player.adapts() {
            return;
        }
        let Some(receiver) = &mut self.receiver else { return };
        if let Some(delay) = self.player.on_packet(&packet, receiver.repair_time(self.skew.own(now))) {
            receiver.set_playout(delay);
            // Add the play-out delay to the digest, because it decides which frames are late.
            self.intake.digest.add(delay.as_nanos());
        }
    }

    /// Tells the session whether the decoder needs a key frame. `Some(true)` means that it needs one after a join, and
    /// `Some(false)` that it needs one for another reason. `None` means that it needs none.
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

    /// Processes an RTCP compound. `len` is its size in bytes.
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
        // Update the buffer level first, because a report may contain it.
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

    /// Returns the receiver of the current session, or of the last session.
    pub fn session(&self) -> Option<&Receiver> {
        self.receiver.as_ref()
    }

    /// Returns the rows that are kept in the store.
    pub fn stored_rows(&mut self) -> Vec<&mut dyn StoredRows> {
        let mut all: Vec<&mut dyn StoredRows> = vec![&mut self.intake.samples, &mut self.views, self.repaired.rows()];
        all.extend(self.audio_arrivals.as_mut().map(|arrivals| &mut **arrivals as &mut dyn StoredRows));
        all
    }

    /// Appends the current step to the time series.
    pub fn sample(&mut self, now: Time) {
        let expected = self.expected();
        self.intake.sample(expected);
        let level = self.buffer.as_mut().map(|b| b.level(now));
        let playout = self.player.schedule.delay(now);
        if let Some(point) = self.intake.samples.last_mut() {
            (point.buffer, point.playout) = (level, playout);
        }
    }

    /// Returns the longest time from when a frame was ready until its last packet arrived. Lost packets are ignored.
    pub fn playout_needed(&self, sent: &SentFrames) -> Option<Span> {
        let assembly = self.assembly.as_ref()?;
        let whole = sent.frames.iter().enumerate().filter_map(|(n, frame)| {
            let (_, last) = assembly.arrival(n as u32)?;
            Some(last.since(frame.ready))
        });
        whole.max()
    }
}
