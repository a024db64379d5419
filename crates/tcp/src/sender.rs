use crate::config::{Config, Congestion, MAX_SEGMENTS, MAX_WINDOW};
use crate::cubic::Cubic;
use crate::hystart::{Advice, HystartState};
use crate::model::{Algorithm, Model, Outstanding, RecoveryState, Window};
use crate::offload::{Offload, SendState};
use crate::pacer::Pacer;
use crate::prague::AckSample;
use crate::rtt::RttEstimator;
use crate::scoreboard::{DUP_THRESH, Scoreboard};
use crate::whole_window::WholeWindow;
use crate::wire::{Ack, Segment};
use std::collections::VecDeque;
use steadycast_units::{Bytes, Ecn, Span, Time};

/// What the sender does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Send this segment, then poll again.
    Send(Segment),
    /// Send nothing until an acknowledgment arrives or the timer of [`Sender::wake`] expires.
    Wait {
        /// The time at which the timer expires.
        until: Option<Time>,
        /// The reason why nothing is sent.
        limit: SendLimit,
    },
    /// All data is acknowledged; see [`Sender::completed`].
    Done,
}

/// The reason why the sender sends nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendLimit {
    /// The congestion window is full.
    CongestionWindow,
    /// The receiver's window is full.
    ReceiverWindow,
    /// In recovery, the window has no room before the next acknowledgment.
    Recovery,
    /// All data is sent, but not all is acknowledged.
    AllSent,
    /// Pacing: the window has room, but the next segment is not due yet.
    Pacing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Fast recovery, until `recover` is acknowledged.
    Recovery,
    /// Loss recovery after a time-out, until `recover` is acknowledged.
    Loss,
}

/// The state of proportional rate reduction (PRR, RFC 6937) in the current recovery.
#[derive(Clone, Copy, Debug, Default)]
struct ProportionalRateReduction {
    /// The number of outstanding segments when recovery began (RecoverFS).
    recover_fs: u32,
    prr_delivered: u32,
    prr_out: u32,
}

impl ProportionalRateReduction {
    /// Returns how many segments may be sent after `fresh` more segments were delivered. `pipe` segments are in flight,
    /// and `goal` (ssthresh) is the window at the end of the recovery. `advanced` is true if the cumulative
    /// acknowledgment has advanced.
    fn segments_allowed(&mut self, pipe: u32, goal: u32, fresh: u32, advanced: bool) -> u32 {
        self.prr_delivered += fresh;
        let allowed = if pipe > goal {
            let share = u64::from(self.prr_delivered) * u64::from(goal);
            (share.div_ceil(u64::from(self.recover_fs.max(1))) as u32).saturating_sub(self.prr_out)
        } else {
            // If the pipe is below the goal, slow start raises it again, but only while the cumulative acknowledgment
            // advances (as in Linux's PRR-SSRB).
            let most = self.prr_delivered.saturating_sub(self.prr_out).max(fresh) + u32::from(advanced);
            most.min(goal - pipe)
        };
        // The first segment of a recovery is always sent: the fast retransmit.
        allowed.max(u32::from(self.prr_out == 0))
    }
}

/// The retransmissions of this recovery that have not arrived. As in RACK (RFC 8985), a retransmission is lost when a
/// segment that was sent after it has arrived. FIFO paths do not reorder, so there is no reordering window.
#[derive(Clone, Debug, Default)]
struct Retransmissions {
    /// The retransmissions in order of sending, each with the first new segment that was sent after it.
    sent: VecDeque<(u32, u32)>,
    /// The lost retransmissions, in the order of detection.
    lost: VecDeque<u32>,
}

impl Retransmissions {
    fn clear(&mut self) {
        self.sent.clear();
        self.lost.clear();
    }

    /// Updates the state after an acknowledgment.
    #[inline(never)]
    fn update(&mut self, scoreboard: &Scoreboard) {
        if self.sent.is_empty() && self.lost.is_empty() {
            return;
        }
        // Of the segments that have arrived, take the one that was sent last. Every segment that was sent before it,
        // new or retransmitted, has either arrived or is lost.
        let arrived = scoreboard.highest_arrived();
        let overtaken = self.sent.partition_point(|(_, after)| *after < arrived);
        let latest = self.sent.iter().rposition(|(seq, _)| scoreboard.has_arrived(*seq)).map_or(0, |n| n + 1);
        for (seq, _) in self.sent.drain(..overtaken.max(latest)) {
            if !scoreboard.has_arrived(seq) {
                self.lost.push_back(seq);
            }
        }
        self.lost.retain(|seq| !scoreboard.has_arrived(*seq));
    }
}

/// The sending end: congestion control, loss recovery and the retransmission timer.
///
/// Without SACK, window and retransmissions follow ns-2's Reno and NewReno step by step. These are RFC 5681 and RFC
/// 6582, with the window inflation as a separate count. With SACK the sender follows RFC 6675 and its pipe.
#[derive(Clone, Debug)]
pub struct Sender {
    config: Config,
    window: u32,
    initial_window: f64,
    /// One past the last segment to send.
    end: u32,
    /// The last segment of `Config::bytes`, which is shorter than the others, and its size.
    last_segment: (u32, Bytes),
    /// The time at which the last segment was sent.
    last_sent: Time,

    /// The first unacknowledged segment (SND.UNA).
    una: u32,
    /// The next segment to send. It is below `max` after a time-out without SACK.
    next: u32,
    /// One past the highest segment sent (SND.NXT of RFC 9293, `snd_max` in BSD).
    max: u32,

    state: State,
    /// The value of `max` at the last reduction of the window.
    recover: u32,
    /// If true, duplicate acknowledgments for data below `recover` do not start a new recovery (RFC 6582, section 3.2).
    ignores_dupacks: bool,
    /// Whether the last reduction answered an ECN mark. A loss in the same window then causes no further reduction.
    marked: bool,
    /// The number of duplicate acknowledgments since the last new one.
    dupacks: u32,
    /// The number of segments that have left the network during fast recovery. The window is inflated by this number.
    inflation: u32,
    /// Whether a partial acknowledgment has arrived in this recovery. With `Config::impatient` only the first one
    /// restarts the timer.
    partial_seen: bool,
    /// Whether the first unacknowledged segment is sent again next.
    retransmit_first: bool,
    /// The number of segments that may still be sent after the last partial acknowledgment; `u32::MAX` if it is not
    /// limited.
    burst_left: u32,
    scoreboard: Scoreboard,
    prr: ProportionalRateReduction,
    retransmissions: Retransmissions,
    offload: Option<Offload>,
    whole: WholeWindow,

    /// The congestion window in segments, without the inflation of fast recovery.
    pub cwnd: f64,
    /// The slow-start threshold in segments.
    pub ssthresh: f64,
    cubic: Cubic,
    hystart: HystartState,
    /// Whether the next new segment carries CWR, because a mark was answered.
    cwr: bool,
    model: Option<Box<Model>>,
    /// The time until which pacing holds a segment back.
    held: Option<Time>,

    rtt: RttEstimator,
    /// The segment that is timed for an RTT sample, and the time at which it was sent.
    timed: Option<(u32, Time)>,
    /// The time at which the retransmission timer expires, if it runs.
    timer: Option<Time>,
    /// The segment that the last time-out retransmitted.
    timed_out: Option<u32>,

    /// The time at which the last byte was acknowledged.
    pub completed: Option<Time>,
    /// The number of segments sent, retransmissions included.
    pub sent: u64,
    /// The number of retransmitted segments.
    pub retransmitted: u64,
    /// The number of retransmission time-outs.
    pub timeouts: u64,
    /// The number of fast recoveries.
    recoveries: u64,
    /// The number of invalid acknowledgments, which acknowledge data that was never sent.
    pub invalid_acks: u64,
    /// The window reductions in response to ECN marks.
    pub marks_answered: u64,
}

impl Sender {
    /// Creates a sender that has not sent anything. Call [`Sender::poll`] afterwards.
    pub fn new(config: &Config) -> Self {
        let config = &config.as_modelled();
        let payload = config.payload();
        let (data, last_len) = match config.bytes {
            Some(bytes) => {
                let segments = bytes.get().div_ceil(payload);
                let rest = bytes.get() - segments.saturating_sub(1) * payload;
                (segments, config.header + Bytes::new(rest))
            }
            None => (u64::from(MAX_SEGMENTS), config.packet),
        };
        let opening = u64::from(config.handshake && data > 0);
        // The SYN has a segment number of its own.
        let end = (data + opening).min(u64::from(MAX_SEGMENTS)) as u32;
        let window = config.window.clamp(1, MAX_WINDOW);
        let initial_window = f64::from(config.initial_window.clamp(1, MAX_WINDOW));
        let c = config;
        Self {
            window,
            initial_window,
            end,
            last_segment: (end.wrapping_sub(1), last_len),
            last_sent: Time::ZERO,
            una: 0,
            next: 0,
            max: 0,
            state: State::Open,
            recover: 0,
            ignores_dupacks: false,
            marked: false,
            dupacks: 0,
            inflation: 0,
            partial_seen: false,
            retransmit_first: false,
            burst_left: u32::MAX,
            scoreboard: Scoreboard::default(),
            prr: ProportionalRateReduction::default(),
            retransmissions: Retransmissions::default(),
            offload: config.offload.then(|| Offload::new(Bytes::new(payload))),
            whole: WholeWindow::default(),
            // Before the handshake is complete, only the SYN may be sent.
            cwnd: if config.handshake { 1.0 } else { initial_window.min(f64::from(window)) },
            ssthresh: f64::from(config.initial_ssthresh.unwrap_or(window).clamp(2, MAX_WINDOW)),
            cubic: Cubic::new(config.fast_convergence),
            hystart: HystartState::new(config.hystart),
            cwr: false,
            model: Model::new(config, initial_window.min(f64::from(window))).map(Box::new),
            held: None,
            rtt: RttEstimator::new(c.tick, c.tick_phase, c.init_rto, c.min_rto, c.max_rto, c.rto_floor),
            timed: None,
            timer: None,
            timed_out: None,
            completed: None,
            sent: 0,
            retransmitted: 0,
            timeouts: 0,
            recoveries: 0,
            invalid_acks: 0,
            marks_answered: 0,
            config: config.clone(),
        }
    }

    /// Adds `segments` full segments to send. Call [`Sender::poll`] afterwards. For an application-limited source,
    /// start with a `Config::bytes` of zero. With `None` (endless data) there is nothing to add.
    ///
    /// After an idle time longer than the time-out the window restarts at no more than [`Config::restart_window`]
    /// (RFC 5681, section 4.1).
    pub fn offer(&mut self, now: Time, segments: u32) {
        if segments == 0 || self.end == MAX_SEGMENTS {
            return;
        }
        // BBR restarts from idle by its own rules.
        let keeps = self.model.as_ref().is_some_and(|model| model.owns_window());
        if self.una == self.max && self.max > 0 && now.since(self.last_sent) > self.rtt.rto() && !keeps {
            // The path's state is unknown after an idle time (RFC 5681, section 4.1).
            let restart = self.config.restart_window.clamp(1, MAX_WINDOW);
            self.cwnd = self.cwnd.min(f64::from(restart));
            self.set_prague_window();
        }
        let opening = u32::from(self.config.handshake && self.end == 0);
        self.end = self.end.saturating_add(segments).saturating_add(opening).min(MAX_SEGMENTS);
        self.completed = None;
    }

    /// Returns what to do now. Call it until it returns `Wait` or `Done`, after [`Sender::new`], [`Sender::on_ack`],
    /// [`Sender::on_timer`] and [`Sender::offer`].
    // Inlined. Otherwise the segment is returned in memory, and the caller has to wait until it is written.
    #[inline(always)]
    pub fn poll(&mut self, now: Time) -> Poll {
        if self.una >= self.end {
            self.completed.get_or_insert(now);
            return Poll::Done;
        }
        if self.model.is_some() {
            // Pacing comes first: a segment that may not leave yet must not change the state of recovery.
            self.held = self.pacing_hold(now);
            if self.held.is_some() {
                return Poll::Wait { until: self.wake(), limit: SendLimit::Pacing };
            }
        }
        let seq = if self.config.uses_sack() { self.next_with_sack(now) } else { self.next_without_sack(now) };
        match seq {
            Ok(seq) => Poll::Send(self.transmit(seq, now)),
            Err(limit) => {
                if self.model.is_some() {
                    self.note_limit(limit);
                }
                Poll::Wait { until: self.timer, limit }
            }
        }
    }

    /// Processes an acknowledgment. An invalid acknowledgment, of data that was never sent, is counted and ignored. An
    /// old one is ignored.
    #[inline(always)]
    pub fn on_ack(&mut self, now: Time, ack: &Ack) {
        if ack.next > self.max {
            self.invalid_acks += 1;
            return;
        }
        // A reordered acknowledgment contains nothing new.
        if ack.next < self.una || self.una >= self.end {
            return;
        }
        // DCTCP and Prague respond to marks only after the number of arrived segments is known.
        let marked = ack.ece && self.config.ecn && self.model.is_none();
        if marked {
            self.on_ecn_mark(ack.next);
        }
        if self.config.uses_sack() {
            self.on_ack_with_sack(now, ack, marked);
        } else {
            self.on_ack_without_sack(now, ack, marked);
        }
        if self.una >= self.end {
            (self.timer, self.held) = (None, None);
            self.completed.get_or_insert(now);
        }
    }

    /// Handles a retransmission time-out if the timer of [`Sender::wake`] has expired at `now`.
    pub fn on_timer(&mut self, now: Time) {
        match self.timer {
            Some(due) if due <= now => {}
            _ => return,
        }
        self.timeouts += 1;
        if self.una == 0 {
            // The SYN was lost: the initial window is one segment (RFC 5681, section 3.1).
            self.initial_window = 1.0;
        }
        // Equation 4 of RFC 5681 applies to the first time-out of a segment only.
        let is_repeated = self.timed_out == Some(self.una);
        self.timed_out = Some(self.una);
        if !(is_repeated && self.config.hold_ssthresh) {
            // The window is used instead of RFC 5681's FlightSize, as in ns-2 and Linux.
            let window = self.cwnd.min(f64::from(self.window));
            self.ssthresh = match self.config.congestion {
                Congestion::Cubic => self.cubic.on_timeout(window),
                _ => (window / 2.0).trunc(),
            }
            .max(2.0);
            if self.config.whole_window {
                self.ssthresh = self.ssthresh.trunc();
            }
        }
        self.hystart.on_congestion();
        self.whole = WholeWindow::default();
        // After a time-out the window is one segment, the loss window (RFC 5681, section 3.1).
        let before = std::mem::replace(&mut self.cwnd, 1.0);
        self.state = State::Loss;
        self.recover = self.max;
        self.ignores_dupacks = true;
        self.marked = false;
        self.dupacks = 0;
        self.inflation = 0;
        self.retransmit_first = false;
        self.burst_left = u32::MAX;
        // Go-back-N: without SACK, all segments from `una` on are sent again.
        self.next = self.una;
        if self.config.uses_sack() {
            self.scoreboard.lose_all();
            self.retransmissions.clear();
        }
        if let Some(model) = &mut self.model {
            let window = model.on_timeout(now, before, self.scoreboard.pipe());
            if model.owns_window() {
                self.cwnd = window;
            }
        }
        self.rtt.back_off();
        self.timed = None;
        // The timer restarts with the doubled time-out (RFC 6298, section 5.6).
        self.timer = Some(now + self.rtt.rto());
    }

    /// Returns the time at which [`Sender::on_timer`] is due or the sender must be polled; `None` if nothing is
    /// outstanding.
    pub fn wake(&self) -> Option<Time> {
        match self.held {
            None => self.timer,
            Some(held) => Some(self.timer.map_or(held, |timer| timer.min(held))),
        }
    }

    /// Returns the pacing rate in segments per second, if the congestion control paces.
    pub fn pacing(&self) -> Option<f64> {
        self.model.as_ref()?.pacer.as_ref().map(Pacer::rate)
    }
    /// Returns the estimate alpha of the marked share of the data, if the congestion control has one.
    pub fn marked_share(&self) -> Option<f64> {
        self.model.as_ref()?.alpha()
    }
    /// Returns the state of BBR: "startup", "drain", "probe-bw-cruise" and so on.
    pub fn state_name(&self) -> Option<&'static str> {
        self.model.as_ref()?.state()
    }
    /// Returns the smoothed round-trip time once it is measured.
    pub fn srtt(&self) -> Option<Span> {
        self.rtt.srtt()
    }
    /// Returns the time-out of the next segment, back-off included.
    pub fn rto(&self) -> Span {
        self.rtt.rto()
    }
    /// Returns the number of segments in flight: the pipe with SACK, otherwise all segments sent since the last
    /// time-out.
    pub fn in_flight(&self) -> u32 {
        if self.config.uses_sack() { self.scoreboard.pipe() } else { self.next.saturating_sub(self.una) }
    }
    /// Returns the first unacknowledged segment.
    pub fn acknowledged(&self) -> u32 {
        self.una
    }
    /// Returns the number of segments that were offered and not sent yet.
    pub fn unsent(&self) -> u32 {
        self.end - self.max
    }
    /// Returns the number of fast recoveries.
    pub fn fast_recoveries(&self) -> u64 {
        self.recoveries
    }

    #[inline(always)]
    fn transmit(&mut self, seq: u32, now: Time) -> Segment {
        let idle = self.una == self.max;
        // CUBIC's epoch does not include the idle time.
        if idle {
            self.cubic.pause(now, now.since(self.last_sent));
        }
        let retransmission = seq < self.max;
        let mut cwr = false;
        if retransmission {
            self.retransmitted += 1;
        } else {
            self.max = seq + 1;
            self.scoreboard.on_sent_to(self.max);
            cwr = std::mem::take(&mut self.cwr);
            // Karn's rule: only segments that are sent exactly once are timed.
            self.timed.get_or_insert((seq, now));
        }
        self.sent += 1;
        self.last_sent = now;
        if self.state == State::Recovery {
            self.prr.prr_out += 1;
        }
        // RFC 6298, section 5.1: the timer starts with the first outstanding segment.
        if idle || self.timer.is_none() {
            self.timer = Some(now + self.rtt.rto());
        }
        let len = if seq == 0 && self.config.handshake {
            self.config.header
        } else if seq == self.last_segment.0 {
            self.last_segment.1
        } else {
            self.config.packet
        };
        // RFC 3168, section 6.1.5: retransmissions are not ECN-capable; nor is a SYN.
        let capable = self.config.ecn && !retransmission && !(seq == 0 && self.config.handshake);
        let mut ecn = if capable { Ecn::Ect0 } else { Ecn::NotEct };
        let push = self.offload.as_mut().is_some_and(|offload| offload.on_sent(now, retransmission));
        if let Some(model) = &mut self.model {
            if capable {
                ecn = model.ecn();
            }
            if let Some(window) = model.on_sent(now, seq, self.scoreboard.pipe(), self.cwnd) {
                self.cwnd = window.min(f64::from(self.window));
            }
        }
        Segment { seq, len, sent: now, retransmission, cwr, push, ecn }
    }

    // ---- interface to BBR, DCTCP and Prague

    /// Returns the time until which pacing holds back a segment that the window would allow.
    fn pacing_hold(&self, now: Time) -> Option<Time> {
        let until = self.model.as_ref()?.pacer.as_ref()?.held_until(now)?;
        // Pacing is only reported as the limit if it actually delays a segment.
        let some = self.retransmit_first || self.state != State::Open || self.max < self.end;
        (some && (self.retransmit_first || f64::from(self.in_flight()) < self.cwnd.trunc())).then_some(until)
    }

    fn note_limit(&mut self, limit: SendLimit) {
        let in_flight = self.in_flight();
        let Some(model) = &mut self.model else { return };
        match limit {
            SendLimit::CongestionWindow => model.on_window_limit(),
            SendLimit::AllSent if f64::from(in_flight) < self.cwnd => model.on_application_limit(in_flight),
            _ => {}
        }
    }

    /// Passes the new window to Prague, whose own window has fractions of a segment.
    fn set_prague_window(&mut self) {
        if let Some(Algorithm::Prague(prague)) = self.model.as_mut().map(|model| &mut model.algorithm) {
            prague.set(self.cwnd);
        }
    }

    /// Lets the congestion model process an acknowledgment. The acknowledgment reported `fresh` segments for the first
    /// time, and advanced the cumulative acknowledgment by `acked`.
    #[inline(never)]
    fn run_model(&mut self, now: Time, ack: &Ack, acked: u32, fresh: u32) {
        let Some(mut model) = self.model.take() else { return };
        let most = f64::from(self.window);
        // An acknowledgment that covers only the SYN ends the handshake, and gives the first RTT sample.
        let opens = self.config.handshake && acked > 0 && ack.next == acked;
        if opens {
            model.on_open(now, self.rtt.srtt());
        }
        let marked = if self.config.ecn { model.marked(ack, fresh) } else { 0 };
        match &mut model.algorithm {
            Algorithm::Bbr(_) | Algorithm::Bbr1(_) => {
                let phase = match self.state {
                    State::Open => RecoveryState::Open,
                    State::Recovery => RecoveryState::Recovery,
                    State::Loss => RecoveryState::Loss,
                };
                // BBR needs the recovery state, because it saves and restores the window itself.
                let sent = Outstanding { scoreboard: &self.scoreboard, again: self.retransmissions.lost.iter() };
                let window = Window { phase, cwnd: self.cwnd, most };
                self.cwnd = model.on_ack(now, ack, sent, &window, self.rtt.min_rtt);
            }
            Algorithm::Dctcp(dctcp) => {
                if let Some(factor) = dctcp.on_ack(self.una, self.max, fresh, marked)
                    && self.state == State::Open
                {
                    let window = self.cwnd.min(most);
                    let less = window * (1.0 - factor);
                    let less = if self.config.whole_window { less.trunc() } else { less };
                    self.cwnd = (window - less).max(2.0);
                    self.ssthresh = self.cwnd;
                    self.whole = WholeWindow::default();
                    self.marks_answered += 1;
                }
            }
            Algorithm::Prague(prague) => {
                let repairing = self.state != State::Open;
                let may_grow = self.state != State::Recovery && acked > 0 && !opens && self.is_cwnd_limited(acked);
                let srtt = self.rtt.srtt().unwrap_or(Span::millis(1));
                let sample = AckSample { now, una: self.una, max: self.max, fresh, marked, srtt, may_grow, repairing };
                if opens {
                    prague.set(self.cwnd);
                }
                if self.state == State::Recovery {
                    prague.set(self.ssthresh);
                }
                let (cwnd, threshold, cut) = prague.on_ack(&sample, self.cwnd, self.ssthresh, most);
                if self.state != State::Recovery {
                    self.cwnd = cwnd.clamp(1.0, most);
                }
                if cut {
                    self.ssthresh = threshold.max(2.0);
                    self.marks_answered += 1;
                }
            }
        }
        if let Algorithm::Prague(prague) = &model.algorithm {
            let (rate, quantum) = prague.pacing(self.cwnd, self.ssthresh, self.rtt.srtt());
            model.pace(rate, quantum);
        }
        self.model = Some(model);
    }

    // ---- choice of the next segment

    #[inline(never)]
    fn next_without_sack(&mut self, now: Time) -> Result<u32, SendLimit> {
        if std::mem::take(&mut self.retransmit_first) {
            return Ok(self.una);
        }
        // Limited transmit: each of the first two duplicates shows that a segment has left the network (RFC 3042).
        let early = self.dupacks > 0 && self.dupacks < DUP_THRESH;
        let limit = if early && self.config.limited_transmit {
            (self.cwnd + f64::from(self.dupacks)) as u32
        } else {
            self.cwnd as u32 + self.inflation
        };
        if self.next >= self.end {
            return Err(SendLimit::AllSent);
        }
        let allowed = limit.min(self.window);
        if self.next - self.una >= allowed || self.burst_left == 0 {
            return Err(if self.state == State::Recovery {
                SendLimit::Recovery
            } else if allowed < limit || limit == self.window {
                SendLimit::ReceiverWindow
            } else {
                SendLimit::CongestionWindow
            });
        }
        if self.next == self.max && !self.offload_admits(now, allowed - (self.next - self.una)) {
            return Err(SendLimit::CongestionWindow);
        }
        if self.burst_left != u32::MAX {
            self.burst_left -= 1;
        }
        let seq = self.next;
        self.next += 1;
        Ok(seq)
    }

    #[inline(always)]
    fn next_with_sack(&mut self, now: Time) -> Result<u32, SendLimit> {
        if self.state != State::Open || self.retransmit_first {
            return self.next_in_recovery(now);
        }
        // With limited transmit, the segments that have left the network give room for others (RFC 3042).
        let in_flight = if self.config.limited_transmit { self.scoreboard.pipe() } else { self.max - self.una };
        let cwnd = self.cwnd as u32;
        self.next_new(now, cwnd, in_flight).unwrap_or(Err(match self.max < self.end {
            false => SendLimit::AllSent,
            _ if in_flight < cwnd || cwnd >= self.window => SendLimit::ReceiverWindow,
            _ => SendLimit::CongestionWindow,
        }))
    }

    #[inline(never)]
    fn next_in_recovery(&mut self, now: Time) -> Result<u32, SendLimit> {
        if std::mem::take(&mut self.retransmit_first) {
            return Ok(self.retransmit(self.una));
        }
        let (cwnd, in_flight) = (self.cwnd as u32, self.scoreboard.pipe());
        let room = in_flight < cwnd;
        // Retransmissions that were lost are repeated first, because they fill the oldest holes.
        if room && let Some(seq) = self.retransmissions.lost.pop_front() {
            self.scoreboard.set_lost_retransmissions(self.retransmissions.lost.len());
            self.retransmissions.sent.push_back((seq, self.max));
            return Ok(seq);
        }
        if room && let Some(seq) = self.scoreboard.next_lost() {
            return Ok(self.retransmit(seq));
        }
        // NextSeg rule 2: new data is sent before holes that may still arrive.
        if let Some(new) = self.next_new(now, cwnd, in_flight) {
            return new;
        }
        // NextSeg rule 3: with room in the window and no new data, holes that are not yet lost are retransmitted.
        let hole =
            if room && self.state == State::Recovery { self.scoreboard.next_unretransmitted_hole() } else { None };
        hole.map(|seq| self.retransmit(seq)).ok_or(SendLimit::Recovery)
    }

    /// Returns the next new segment with `in_flight` in flight; `None` if a window is full or there is no data.
    #[inline(always)]
    fn next_new(&mut self, now: Time, cwnd: u32, in_flight: u32) -> Option<Result<u32, SendLimit>> {
        let may = in_flight < cwnd && self.max - self.una < self.window && self.max < self.end;
        may.then(|| {
            if self.offload_admits(now, cwnd - in_flight) { Ok(self.max) } else { Err(SendLimit::CongestionWindow) }
        })
    }

    /// Whether TSO lets a new segment leave. The window has room for `room` segments.
    #[inline]
    fn offload_admits(&mut self, now: Time, room: u32) -> bool {
        let Some(offload) = &mut self.offload else { return true };
        offload.continues_unit() || self.starts_unit(now, room)
    }

    #[inline(never)]
    fn starts_unit(&mut self, now: Time, room: u32) -> bool {
        let view = SendState {
            una: self.una,
            seq: self.max,
            room,
            unsent: self.end - self.max,
            cwnd: self.cwnd as u32,
            ssthresh: self.ssthresh,
            srtt: self.rtt.srtt(),
            min_rtt: self.rtt.min_rtt,
            repairing: self.state != State::Open,
        };
        self.offload.as_mut().is_none_or(|offload| offload.starts_unit(now, &view))
    }

    /// Records the retransmission of a hole.
    fn retransmit(&mut self, seq: u32) -> u32 {
        self.scoreboard.on_retransmit(seq);
        if self.config.repeat_repairs {
            self.retransmissions.sent.push_back((seq, self.max));
        }
        seq
    }

    // ---- acknowledgments without SACK

    #[inline(never)]
    fn on_ack_without_sack(&mut self, now: Time, ack: &Ack, marked: bool) {
        let acked = ack.next - self.una;
        if acked == 0 {
            // Duplicates count only while data is outstanding (RFC 5681, section 2).
            if self.una < self.max {
                self.on_duplicate(now);
            }
            return;
        }
        // All controls but Reno stay in recovery until `recover` is acknowledged: a partial acknowledgment reveals the
        // next loss.
        if self.state == State::Recovery && ack.next < self.recover && self.config.congestion != Congestion::Reno {
            self.on_partial(now, ack.next, acked);
            return;
        }
        if self.state == State::Recovery || ack.next >= self.recover {
            self.state = State::Open;
        }
        self.inflation = 0;
        self.dupacks = 0;
        self.burst_left = u32::MAX;
        self.advance(now, ack);
        self.restart_timer(now);
        self.next = self.next.max(self.una);
        if !marked {
            self.grow(now, ack, acked);
        }
        if self.model.is_some() {
            self.run_model(now, ack, acked, acked);
        }
    }

    fn on_duplicate(&mut self, now: Time) {
        self.dupacks += 1;
        if self.dupacks == DUP_THRESH {
            // Duplicate acknowledgments below `recover` may be caused by unnecessary retransmissions after a time-out,
            // so they do not start a recovery (RFC 6582, section 3.2).
            if !self.ignores_dupacks || self.una > self.recover {
                self.enter_recovery(now);
                self.inflation = DUP_THRESH;
            }
        } else if self.dupacks > DUP_THRESH && self.state == State::Recovery {
            // One segment has left the network, so another one may be sent (RFC 5681, section 3.2, step 4).
            self.inflation += 1;
        }
        if self.dupacks >= DUP_THRESH {
            self.limit_burst();
        }
    }

    /// Handles a partial acknowledgment (RFC 6582): the next segment is lost too. The acknowledgment gives no RTT
    /// sample, because only segments sent since the recovery began are timed.
    fn on_partial(&mut self, now: Time, una: u32, acked: u32) {
        // Partial window deflation (RFC 6582, section 3.2, step 3), as ns-2 computes it.
        if self.inflation > acked {
            self.inflation -= acked - 1;
        } else {
            self.cwnd = (self.cwnd - f64::from(acked - self.inflation)).max(1.0);
            self.inflation = 1;
        }
        self.una = una;
        self.scoreboard.advance(una);
        self.next = self.next.max(una);
        self.restart_timer_on_partial(now);
        self.retransmit_first = true;
        self.limit_burst();
    }

    fn limit_burst(&mut self) {
        let limit = self.config.recovery_burst;
        let applies = limit > 0 && self.config.congestion != Congestion::Reno;
        self.burst_left = if applies { limit } else { u32::MAX };
    }

    // ---- acknowledgments with SACK

    #[inline(always)]
    fn on_ack_with_sack(&mut self, now: Time, ack: &Ack, marked: bool) {
        let acked = ack.next - self.una;
        let fresh = if acked > 0 { self.advance(now, ack) } else { 0 };
        match self.state {
            _ if acked == 0 => {}
            State::Recovery if self.una < self.recover => self.restart_timer_on_partial(now),
            State::Recovery => {
                self.restart_timer(now);
                self.end_recovery();
                self.dupacks = 0;
                // PRR ends at ssthresh (RFC 6937, section 3).
                if self.config.proportional_reduction {
                    self.cwnd = self.ssthresh;
                }
            }
            _ => {
                self.restart_timer(now);
                self.dupacks = 0;
                if self.state == State::Loss && self.una >= self.recover {
                    self.end_recovery();
                }
                if !marked {
                    self.grow(now, ack, acked);
                }
            }
        }
        let sacked = self.scoreboard.apply_sacks(&ack.sacks);
        if sacked > 0 && acked == 0 {
            self.dupacks += 1;
        }
        if self.config.repeat_repairs && self.state != State::Open {
            self.retransmissions.update(&self.scoreboard);
            self.scoreboard.set_lost_retransmissions(self.retransmissions.lost.len());
        }
        // RFC 6675, section 5: recovery starts with three duplicates, or when the first hole is lost according to the
        // scoreboard.
        let lost = self.dupacks >= DUP_THRESH || self.scoreboard.is_first_lost();
        if self.state == State::Open && lost && self.una < self.max {
            self.enter_recovery(now);
        }
        if self.config.repeat_repairs && self.state == State::Recovery {
            // A hole below a SACKed segment is lost, because FIFO paths do not reorder.
            self.scoreboard.lose_below_highest_sack();
        }
        let delivered = fresh + sacked;
        if self.state == State::Recovery && self.config.proportional_reduction && delivered > 0 {
            let pipe = self.scoreboard.pipe();
            let allowed = self.prr.segments_allowed(pipe, self.ssthresh as u32, delivered, acked > 0);
            self.cwnd = f64::from(pipe + allowed).max(1.0);
        }
        if self.model.is_some() {
            self.run_model(now, ack, acked, delivered);
        }
    }

    // ---- common to both

    #[inline(never)]
    fn enter_recovery(&mut self, now: Time) {
        self.recoveries += 1;
        // A mark in the same window has already reduced the window (RFC 3168, section 6.1.2).
        if !(self.marked && self.una <= self.recover) {
            self.reduce(2.0);
        }
        self.marked = false;
        self.state = State::Recovery;
        self.recover = self.max;
        self.ignores_dupacks = true;
        self.partial_seen = false;
        self.retransmit_first = true;
        self.reset_retransmissions();
        self.prr = ProportionalRateReduction { recover_fs: self.max - self.una, prr_delivered: 0, prr_out: 0 };
        // Karn's rule: the timed segment may be among those that are retransmitted.
        self.timed = None;
        self.timer = Some(now + self.rtt.rto());
    }

    /// Resets the scoreboard and the retransmissions at the beginning or end of a recovery.
    #[inline(never)]
    fn reset_retransmissions(&mut self) {
        self.scoreboard.reset_retransmitted();
        self.retransmissions.clear();
    }

    /// Reduces the window. `least` is CUBIC's minimum window, in segments: 1 after a mark and 2 after a loss (RFC 9438,
    /// section 4.6).
    fn reduce(&mut self, least: f64) {
        // As after a time-out, the usable window is used instead of the FlightSize.
        let window = self.cwnd.min(f64::from(self.window));
        if self.model.as_ref().is_some_and(|model| model.owns_window()) {
            return;
        }
        if self.config.congestion == Congestion::Cubic {
            let threshold = self.cubic.on_congestion(window);
            let threshold = if self.config.whole_window { threshold.trunc() } else { threshold };
            self.ssthresh = threshold.max(2.0);
            self.cwnd = threshold.max(least);
        } else if self.config.congestion == Congestion::Prague {
            self.ssthresh = (window / 2.0).max(2.0);
            self.cwnd = self.ssthresh;
        } else {
            self.ssthresh = (window / 2.0).trunc().max(2.0);
            self.cwnd = (window / 2.0).max(1.0);
        }
        self.set_prague_window();
        self.whole = WholeWindow::default();
        self.hystart.on_congestion();
    }

    #[inline(never)]
    fn on_ecn_mark(&mut self, next: u32) {
        // At most one reduction per window of data (RFC 3168, section 6.1.2).
        let answered = self.ignores_dupacks || self.marked;
        if self.state != State::Open || answered && next <= self.recover {
            return;
        }
        self.reduce(1.0);
        self.marks_answered += 1;
        self.recover = self.max;
        self.marked = true;
        self.cwr = true;
    }

    /// Ends a recovery: everything that was outstanding when it began is acknowledged.
    fn end_recovery(&mut self) {
        self.state = State::Open;
        self.ignores_dupacks = false;
        self.reset_retransmissions();
    }

    /// Applies a cumulative acknowledgment. Returns the number of acknowledged segments that were not known to have
    /// arrived.
    #[inline(always)]
    fn advance(&mut self, now: Time, ack: &Ack) -> u32 {
        self.sample_rtt(now, ack);
        self.una = ack.next;
        self.scoreboard.advance(self.una)
    }

    /// Restarts the retransmission timer after new data was acknowledged (RFC 6298, section 5).
    #[inline]
    fn restart_timer(&mut self, now: Time) {
        self.timer = (self.una < self.max).then(|| now + self.rtt.rto());
    }

    #[inline(always)]
    fn sample_rtt(&mut self, now: Time, ack: &Ack) {
        let mut since = Some(ack.echo);
        if !self.config.timestamps {
            since = self.timed.take_if(|(seq, _)| *seq < ack.next).map(|(_, since)| since);
        }
        let Some(since) = since else { return };
        self.rtt.end_backoff();
        // A forged echo from the future would make an invalid RTT sample.
        if since <= now {
            self.rtt.sample(since, now);
        }
    }

    #[inline(never)]
    fn restart_timer_on_partial(&mut self, now: Time) {
        if !(self.config.impatient && self.partial_seen) {
            self.timer = Some(now + self.rtt.rto());
        }
        self.partial_seen = true;
    }

    /// Whether the window was the limit before `acked` segments were acknowledged, so that it may grow (RFC 7661).
    #[inline(always)]
    fn is_cwnd_limited(&self, acked: u32) -> bool {
        if !self.config.validated_growth {
            return true;
        }
        // A segment that waits for a larger unit counts as sent, so the window is the limit.
        let defers = self.offload.as_ref().is_some_and(Offload::defers);
        let was_out = f64::from(self.max - self.una + acked + u32::from(defers));
        // In slow start it suffices that half of the window is used, as in Linux (`tcp_is_cwnd_limited`).
        let used = if self.cwnd < self.ssthresh { 2.0 * was_out } else { was_out };
        used >= f64::from(self.cwnd as u32)
    }

    #[inline(always)]
    fn grow(&mut self, now: Time, ack: &Ack, acked: u32) {
        let most = f64::from(self.window);
        if self.config.handshake && ack.next == acked {
            // The SYN is acknowledged: the connection is open.
            self.cwnd = self.initial_window.min(most);
            return;
        }
        if matches!(self.config.congestion, Congestion::Bbr | Congestion::Bbr1 | Congestion::Prague) {
            // These congestion controls set the window in `run_model`.
            return;
        }
        // A window beyond the receiver's window could never be used, so it does not grow further.
        if self.cwnd >= most {
            self.cwnd = most;
            return;
        }
        if !self.is_cwnd_limited(acked) {
            return;
        }
        // Without byte counting an acknowledgment counts as one segment, as in ns-2.
        let mut counted = if self.config.byte_counting { f64::from(acked) } else { 1.0 };
        if self.cwnd < self.ssthresh {
            match self.hystart.on_ack(now, ack.next, self.max, now.since(ack.echo), self.cwnd) {
                Advice::Leave => self.ssthresh = self.cwnd.max(2.0),
                Advice::Grow(share) => {
                    counted = counted.min(self.hystart.limit());
                    // Only with byte counting can one acknowledgment raise the window beyond the threshold by more than
                    // one segment.
                    let room = if self.config.byte_counting { self.ssthresh - self.cwnd } else { f64::INFINITY };
                    let step = (counted * share).min(room);
                    self.cwnd += step;
                    counted -= step / share;
                }
            }
        }
        if counted > 0.0 {
            self.cwnd = match (self.config.congestion, self.config.whole_window) {
                (Congestion::Cubic, true) => {
                    let acks = self.cubic.acks_per_segment(now, self.cwnd, counted, self.rtt.min_rtt);
                    self.whole.grow(self.cwnd, counted, acks)
                }
                (Congestion::Cubic, false) => {
                    self.cubic.grow(now, self.cwnd, counted, self.rtt.srtt().unwrap_or(Span::ZERO))
                }
                (_, true) => self.whole.grow(self.cwnd, counted, self.cwnd),
                (_, false) => self.cwnd + counted / self.cwnd,
            };
        }
        self.cwnd = self.cwnd.min(most);
    }
}

#[cfg(test)]
mod tests;
