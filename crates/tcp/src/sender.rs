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

/// What the caller of [`Sender::poll`] has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Send this segment and call [`Sender::poll`] again.
    Send(Segment),
    /// Send nothing until an acknowledgment arrives or the timer of [`Sender::wake`] expires.
    Wait {
        /// When the timer expires.
        until: Option<Time>,
        /// Why nothing is sent.
        limit: SendLimit,
    },
    /// All data has been acknowledged. See [`Sender::completed`].
    Done,
}

/// Why the sender sends nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendLimit {
    /// The congestion window is full.
    CongestionWindow,
    /// The receiver's window is full.
    ReceiverWindow,
    /// The sender is in recovery, and the window has no room until the next acknowledgment arrives.
    Recovery,
    /// All data has been sent, but not all of it has been acknowledged.
    AllSent,
    /// The window has room, but the next segment is not due yet.
    Pacing,
}

/// Proportional rate reduction (RFC 6937) in the current recovery.
#[derive(Clone, Copy, Debug, Default)]
struct ProportionalRateReduction {
    /// RecoverFS: the number of outstanding segments when recovery began.
    recover_fs: u32,
    prr_delivered: u32,
    prr_out: u32,
}

impl ProportionalRateReduction {
    /// Returns how many segments may be sent after an acknowledgment. `fresh` segments were newly delivered, and `pipe`
    /// segments are in flight. `goal` is ssthresh. `advanced` means that the cumulative acknowledgment has advanced.
    fn segments_allowed(&mut self, pipe: u32, goal: u32, fresh: u32, advanced: bool) -> u32 {
        self.prr_delivered += fresh;
        let allowed = if pipe > goal {
            let share = u64::from(self.prr_delivered) * u64::from(goal);
            (share.div_ceil(u64::from(self.recover_fs.max(1))) as u32).saturating_sub(self.prr_out)
        } else {
            // Below the goal, follow Linux's PRR-SSRB. Slow start applies while the cumulative acknowledgment advances.
            let most = self.prr_delivered.saturating_sub(self.prr_out).max(fresh) + u32::from(advanced);
            most.min(goal - pipe)
        };
        // Always allow the fast retransmit.
        allowed.max(u32::from(self.prr_out == 0))
    }
}

/// The retransmissions that have not arrived yet. A retransmission is regarded as lost once a segment that was sent
/// later has arrived. This is RACK (RFC 8985) without a reordering window.
#[derive(Clone, Debug, Default)]
struct Retransmissions {
    /// The retransmissions that may still arrive, in the order of sending. Each is stored with the number of the first
    /// new segment that was sent after it.
    sent: VecDeque<(u32, u32)>,
    /// The retransmissions that were lost, in the order of detection.
    lost: VecDeque<u32>,
}

impl Retransmissions {
    fn clear(&mut self) {
        self.sent.clear();
        self.lost.clear();
    }

    #[inline(never)]
    fn update(&mut self, scoreboard: &Scoreboard) {
        if self.sent.is_empty() && self.lost.is_empty() {
            return;
        }
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

/// The sending end of a TCP connection: congestion control, loss recovery and the retransmission timer.
///
/// Without SACK, it behaves like ns-2's Reno and NewReno (RFC 5681, RFC 6582). With SACK, it follows RFC 6675.
#[derive(Clone, Debug)]
pub struct Sender {
    config: Config,
    window: u32,
    initial_window: f64,
    /// One past the last segment that is to be sent.
    end: u32,
    /// Number and size of the last segment of `Config::bytes`.
    last_segment: (u32, Bytes),
    last_sent: Time,

    /// SND.UNA: the first unacknowledged segment.
    una: u32,
    /// The next segment to send. After a time-out without SACK, it is below `max`.
    next: u32,
    /// One past the highest segment that was sent (SND.NXT, RFC 9293).
    max: u32,

    state: RecoveryState,
    /// The value of `max` at the last window reduction.
    recover: u32,
    /// Whether duplicate acknowledgments below `recover` are ignored, so that they start no recovery (RFC 6582,
    /// section 3.2).
    ignores_dupacks: bool,
    /// Whether an ECN mark caused the last window reduction. A loss in the same window then causes no second reduction.
    marked: bool,
    dupacks: u32,
    /// Number of segments that have left the network during fast recovery. The window is inflated by this number.
    inflation: u32,
    /// Whether a partial acknowledgment has arrived in this recovery.
    partial_seen: bool,
    retransmit_first: bool,
    /// Number of segments that may still be sent after the last partial acknowledgment. [`u32::MAX`] means that there
    /// is no limit.
    burst_left: u32,
    scoreboard: Scoreboard,
    prr: ProportionalRateReduction,
    retransmissions: Retransmissions,
    offload: Option<Offload>,
    whole: WholeWindow,

    /// The congestion window in segments, without the inflation during fast recovery.
    pub cwnd: f64,
    /// The slow-start threshold in segments.
    pub ssthresh: f64,
    cubic: Cubic,
    hystart: HystartState,
    /// Whether the next new segment carries CWR.
    cwr: bool,
    model: Option<Box<Model>>,
    held: Option<Time>,

    rtt: RttEstimator,
    /// The number and the send time of the segment whose RTT is measured.
    timed: Option<(u32, Time)>,
    timer: Option<Time>,
    /// The segment that the last time-out retransmitted.
    timed_out: Option<u32>,

    /// When the last byte was acknowledged. It is `None` before that.
    pub completed: Option<Time>,
    /// Number of segments sent, including retransmissions.
    pub sent: u64,
    /// Number of retransmissions sent.
    pub retransmitted: u64,
    /// Number of retransmission time-outs.
    pub timeouts: u64,
    recoveries: u64,
    /// Number of acknowledgments for data that was never sent.
    pub invalid_acks: u64,
    /// Number of window reductions that ECN marks caused.
    pub marks_answered: u64,
}

impl Sender {
    /// Creates a sender. Call [`Sender::poll`] afterwards.
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
        let opening = u64::from(data > 0);
        // The SYN also has a segment number.
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
            state: RecoveryState::Open,
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
            cwnd: 1.0,
            ssthresh: f64::from(config.initial_ssthresh.unwrap_or(window).clamp(2, MAX_WINDOW)),
            cubic: Cubic::default(),
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

    /// Adds `segments` full segments to send. Call [`Sender::poll`] afterwards. If the application limits the rate,
    /// start with a `Config::bytes` of zero and call this function for new data.
    ///
    /// After an idle time longer than the time-out, the window is reduced to [`Config::restart_window`] if it is larger
    /// (RFC 5681, section 4.1).
    pub fn offer(&mut self, now: Time, segments: u32) {
        if segments == 0 || self.end == MAX_SEGMENTS {
            return;
        }
        // Do not reduce BBR's window here, because BBR has its own rules for a restart.
        let keeps = self.model.as_ref().is_some_and(|model| model.owns_window());
        if self.una == self.max && self.max > 0 && now.since(self.last_sent) > self.rtt.rto() && !keeps {
            let restart = self.config.restart_window.clamp(1, MAX_WINDOW);
            self.cwnd = self.cwnd.min(f64::from(restart));
            self.set_prague_window();
        }
        let opening = u32::from(self.end == 0);
        self.end = self.end.saturating_add(segments).saturating_add(opening).min(MAX_SEGMENTS);
        self.completed = None;
    }

    /// Returns what to do now. Call this function after [`Sender::new`], [`Sender::on_ack`], [`Sender::on_timer`] and
    /// [`Sender::offer`], until it returns `Wait` or `Done`.
    // Inline the function, so that the segment is not returned through memory.
    #[inline(always)]
    pub fn poll(&mut self, now: Time) -> Poll {
        if self.una >= self.end {
            self.completed.get_or_insert(now);
            return Poll::Done;
        }
        if self.model.is_some() {
            // Return before the recovery code runs, because a segment that pacing holds back must not change its state.
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

    /// Processes an acknowledgment. Old and invalid acknowledgments are ignored, but invalid acknowledgments are
    /// counted.
    #[inline(always)]
    pub fn on_ack(&mut self, now: Time, ack: &Ack) {
        if ack.next > self.max {
            self.invalid_acks += 1;
            return;
        }
        // Ignore a reordered acknowledgment, because it contains nothing new.
        if ack.next < self.una || self.una >= self.end {
            return;
        }
        // Exclude DCTCP and Prague. `run_model` processes their marks, because they need the number of newly arrived
        // segments.
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

    /// Handles a retransmission time-out. Does nothing if the timer has not expired at `now`.
    pub fn on_timer(&mut self, now: Time) {
        match self.timer {
            Some(due) if due <= now => {}
            _ => return,
        }
        self.timeouts += 1;
        if self.una == 0 {
            // The SYN was lost, so start with a window of one segment (RFC 5681, section 3.1).
            self.initial_window = 1.0;
        }
        // Equation 4 of RFC 5681 applies only to the first time-out of a segment.
        let is_repeated = self.timed_out == Some(self.una);
        self.timed_out = Some(self.una);
        if !(is_repeated && self.config.hold_ssthresh) {
            // Use the window instead of FlightSize, as ns-2 and Linux do.
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
        // Start again with the loss window of one segment (RFC 5681, section 3.1).
        let before = std::mem::replace(&mut self.cwnd, 1.0);
        self.state = RecoveryState::Loss;
        self.recover = self.max;
        self.ignores_dupacks = true;
        self.marked = false;
        self.dupacks = 0;
        self.inflation = 0;
        self.retransmit_first = false;
        self.burst_left = u32::MAX;
        // Send everything again from the first unacknowledged segment (go-back-N). With SACK, `next` is not used.
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
        // Restart the timer with the doubled time-out (RFC 6298, section 5.6).
        self.timer = Some(now + self.rtt.rto());
    }

    /// Returns when to call [`Sender::on_timer`] or [`Sender::poll`]. Returns `None` if nothing is outstanding.
    pub fn wake(&self) -> Option<Time> {
        match self.held {
            None => self.timer,
            Some(held) => Some(self.timer.map_or(held, |timer| timer.min(held))),
        }
    }

    /// Returns the pacing rate in segments per second. Returns `None` if the congestion control does not pace.
    pub fn pacing(&self) -> Option<f64> {
        self.model.as_ref()?.pacer.as_ref().map(Pacer::rate)
    }
    /// Returns alpha, the estimated fraction of marked segments. Returns `None` if the congestion control does not
    /// estimate it.
    pub fn marked_share(&self) -> Option<f64> {
        self.model.as_ref()?.alpha()
    }
    /// Returns BBR's state, for example "startup" or "probe-bw-cruise". Returns `None` for other congestion controls.
    pub fn state_name(&self) -> Option<&'static str> {
        self.model.as_ref()?.state()
    }
    /// Returns the smoothed round-trip time. Returns `None` before it is measured.
    pub fn srtt(&self) -> Option<Span> {
        self.rtt.srtt()
    }
    /// Returns the retransmission time-out, including back-off.
    pub fn rto(&self) -> Span {
        self.rtt.rto()
    }
    /// Returns the number of segments in flight. With SACK, this is RFC 6675's pipe. Without SACK, it counts the
    /// unacknowledged segments that were sent since the last time-out.
    pub fn in_flight(&self) -> u32 {
        if self.config.uses_sack() { self.scoreboard.pipe() } else { self.next.saturating_sub(self.una) }
    }
    /// Returns the number of the first unacknowledged segment.
    pub fn acknowledged(&self) -> u32 {
        self.una
    }
    /// Returns the number of segments that were offered but have not been sent yet.
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
        // Exclude the idle time from CUBIC's epoch.
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
            // Measure the RTT only of segments that were sent once (Karn's rule).
            self.timed.get_or_insert((seq, now));
        }
        self.sent += 1;
        self.last_sent = now;
        if self.state == RecoveryState::Recovery {
            self.prr.prr_out += 1;
        }
        // Start the timer if it is not running (RFC 6298, section 5.1).
        if idle || self.timer.is_none() {
            self.timer = Some(now + self.rtt.rto());
        }
        let len = if seq == 0 {
            self.config.header
        } else if seq == self.last_segment.0 {
            self.last_segment.1
        } else {
            self.config.packet
        };
        // Retransmissions and SYNs are not ECN-capable (RFC 3168, section 6.1.5).
        let capable = self.config.ecn && !retransmission && seq != 0;
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

    // ---- BBR, DCTCP and Prague

    /// Returns the time until which pacing delays the next segment. Returns `None` if pacing does not delay it, or if
    /// the window does not allow it anyway.
    fn pacing_hold(&self, now: Time) -> Option<Time> {
        let until = self.model.as_ref()?.pacer.as_ref()?.held_until(now)?;
        // Check that there is a segment that pacing delays. Otherwise pacing is not the limit.
        let some = self.retransmit_first || self.state != RecoveryState::Open || self.max < self.end;
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

    /// Copies the window to Prague, which has its own window with fractions of a segment.
    fn set_prague_window(&mut self) {
        if let Some(Algorithm::Prague(prague)) = self.model.as_mut().map(|model| &mut model.algorithm) {
            prague.set(self.cwnd);
        }
    }

    /// Passes an acknowledgment to the congestion control's model. `fresh` is the number of segments that it reports
    /// for the first time. `acked` is the number of segments by which the cumulative acknowledgment advances.
    #[inline(never)]
    fn run_model(&mut self, now: Time, ack: &Ack, acked: u32, fresh: u32) {
        let Some(mut model) = self.model.take() else { return };
        let most = f64::from(self.window);
        // The first acknowledgment ends the handshake, because only the SYN was sent before it.
        let opens = acked > 0 && ack.next == acked;
        if opens {
            model.on_open(now, self.rtt.srtt());
        }
        let marked = if self.config.ecn { model.marked(ack, fresh) } else { 0 };
        match &mut model.algorithm {
            Algorithm::Bbr(_) | Algorithm::Bbr1(_) => {
                // Pass the window in every phase, because BBR saves and restores it itself.
                let sent = Outstanding { scoreboard: &self.scoreboard, again: self.retransmissions.lost.iter() };
                let window = Window { phase: self.state, cwnd: self.cwnd, most };
                self.cwnd = model.on_ack(now, ack, sent, &window, self.rtt.min_rtt);
            }
            Algorithm::Dctcp(dctcp) => {
                if let Some(factor) = dctcp.on_ack(self.una, self.max, fresh, marked)
                    && self.state == RecoveryState::Open
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
                let repairing = self.state != RecoveryState::Open;
                let may_grow =
                    self.state != RecoveryState::Recovery && acked > 0 && !opens && self.is_cwnd_limited(acked);
                let srtt = self.rtt.srtt().unwrap_or(Span::millis(1));
                let sample = AckSample { now, una: self.una, max: self.max, fresh, marked, srtt, may_grow, repairing };
                if opens {
                    prague.set(self.cwnd);
                }
                if self.state == RecoveryState::Recovery {
                    prague.set(self.ssthresh);
                }
                let (cwnd, threshold, cut) = prague.on_ack(&sample, self.cwnd, self.ssthresh, most);
                if self.state != RecoveryState::Recovery {
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

    // ---- the next segment

    #[inline(never)]
    fn next_without_sack(&mut self, now: Time) -> Result<u32, SendLimit> {
        if std::mem::take(&mut self.retransmit_first) {
            return Ok(self.una);
        }
        // Limited transmit (RFC 3042): allow one segment for each of the first two duplicates, because each shows that
        // a segment has arrived.
        let limit = if self.dupacks > 0 && self.dupacks < DUP_THRESH {
            (self.cwnd + f64::from(self.dupacks)) as u32
        } else {
            self.cwnd as u32 + self.inflation
        };
        if self.next >= self.end {
            return Err(SendLimit::AllSent);
        }
        let allowed = limit.min(self.window);
        if self.next - self.una >= allowed || self.burst_left == 0 {
            return Err(if self.state == RecoveryState::Recovery {
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
        if self.state != RecoveryState::Open || self.retransmit_first {
            return self.next_in_recovery(now);
        }
        // Limited transmit (RFC 3042): subtract the segments that have arrived, so that they make room for new
        // segments.
        let in_flight = self.scoreboard.pipe();
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
        // Repeat lost retransmissions first, because they fill the oldest holes.
        if room && let Some(seq) = self.retransmissions.lost.pop_front() {
            self.scoreboard.set_lost_retransmissions(self.retransmissions.lost.len());
            self.retransmissions.sent.push_back((seq, self.max));
            return Ok(seq);
        }
        if room && let Some(seq) = self.scoreboard.next_lost() {
            return Ok(self.retransmit(seq));
        }
        // NextSeg rule 2: send new data before holes that may still arrive.
        if let Some(new) = self.next_new(now, cwnd, in_flight) {
            return new;
        }
        // NextSeg rule 3: without new data, retransmit holes even if they are not regarded as lost yet.
        let hole = if room && self.state == RecoveryState::Recovery {
            self.scoreboard.next_unretransmitted_hole()
        } else {
            None
        };
        hole.map(|seq| self.retransmit(seq)).ok_or(SendLimit::Recovery)
    }

    /// Returns the next new segment. Returns `None` if a window is full or there is no data to send.
    #[inline(always)]
    fn next_new(&mut self, now: Time, cwnd: u32, in_flight: u32) -> Option<Result<u32, SendLimit>> {
        let may = in_flight < cwnd && self.max - self.una < self.window && self.max < self.end;
        may.then(|| {
            if self.offload_admits(now, cwnd - in_flight) { Ok(self.max) } else { Err(SendLimit::CongestionWindow) }
        })
    }

    /// Returns whether TSO lets a new segment leave now. `room` is how many segments the window still allows.
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
            repairing: self.state != RecoveryState::Open,
        };
        self.offload.as_mut().is_none_or(|offload| offload.starts_unit(now, &view))
    }

    fn retransmit(&mut self, seq: u32) -> u32 {
        self.scoreboard.on_retransmit(seq);
        if self.config.repeat_repairs {
            self.retransmissions.sent.push_back((seq, self.max));
        }
        seq
    }

    // ---- without SACK

    #[inline(never)]
    fn on_ack_without_sack(&mut self, now: Time, ack: &Ack, marked: bool) {
        let acked = ack.next - self.una;
        if acked == 0 {
            // Count a duplicate only while data is outstanding (RFC 5681, section 2).
            if self.una < self.max {
                self.on_duplicate(now);
            }
            return;
        }
        // A partial acknowledgment reveals the next loss, so stay in recovery. Reno ends its recovery here instead.
        if self.state == RecoveryState::Recovery
            && ack.next < self.recover
            && self.config.congestion != Congestion::Reno
        {
            self.on_partial(now, ack.next, acked);
            return;
        }
        if self.state == RecoveryState::Recovery || ack.next >= self.recover {
            self.state = RecoveryState::Open;
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
            // Ignore duplicates below `recover`, because unnecessary retransmissions may have caused them (RFC 6582,
            // section 3.2).
            if !self.ignores_dupacks || self.una > self.recover {
                self.enter_recovery(now);
                self.inflation = DUP_THRESH;
            }
        } else if self.dupacks > DUP_THRESH && self.state == RecoveryState::Recovery {
            // The duplicate shows that one segment has left the network (RFC 5681, section 3.2, step 4).
            self.inflation += 1;
        }
        if self.dupacks >= DUP_THRESH {
            self.limit_burst();
        }
    }

    /// Handles a partial acknowledgment. It shows that the next segment was lost as well (RFC 6582).
    fn on_partial(&mut self, now: Time, una: u32, acked: u32) {
        // Deflate the window partially (RFC 6582, section 3.2, step 3), as ns-2 does.
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

    // ---- with SACK

    #[inline(always)]
    fn on_ack_with_sack(&mut self, now: Time, ack: &Ack, marked: bool) {
        let acked = ack.next - self.una;
        let fresh = if acked > 0 { self.advance(now, ack) } else { 0 };
        match self.state {
            _ if acked == 0 => {}
            RecoveryState::Recovery if self.una < self.recover => self.restart_timer_on_partial(now),
            RecoveryState::Recovery => {
                self.restart_timer(now);
                self.end_recovery();
                self.dupacks = 0;
                // Set the window to ssthresh at the end of recovery (RFC 6937, section 3).
                if self.config.proportional_reduction {
                    self.cwnd = self.ssthresh;
                }
            }
            _ => {
                self.restart_timer(now);
                self.dupacks = 0;
                if self.state == RecoveryState::Loss && self.una >= self.recover {
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
        if self.config.repeat_repairs && self.state != RecoveryState::Open {
            self.retransmissions.update(&self.scoreboard);
            self.scoreboard.set_lost_retransmissions(self.retransmissions.lost.len());
        }
        // Recovery starts after three duplicates, or when the scoreboard shows that a hole is lost (RFC 6675,
        // section 5).
        let lost = self.dupacks >= DUP_THRESH || self.scoreboard.is_first_lost();
        if self.state == RecoveryState::Open && lost && self.una < self.max {
            self.enter_recovery(now);
        }
        if self.config.repeat_repairs && self.state == RecoveryState::Recovery {
            // Treat all lower holes as lost, because FIFO paths do not reorder packets.
            self.scoreboard.lose_below_highest_sack();
        }
        let delivered = fresh + sacked;
        if self.state == RecoveryState::Recovery && self.config.proportional_reduction && delivered > 0 {
            let pipe = self.scoreboard.pipe();
            let allowed = self.prr.segments_allowed(pipe, self.ssthresh as u32, delivered, acked > 0);
            self.cwnd = f64::from(pipe + allowed).max(1.0);
        }
        if self.model.is_some() {
            self.run_model(now, ack, acked, delivered);
        }
    }

    // ---- with and without SACK

    #[inline(never)]
    fn enter_recovery(&mut self, now: Time) {
        self.recoveries += 1;
        // Do not reduce the window again if a mark has already reduced it (RFC 3168, section 6.1.2).
        if !(self.marked && self.una <= self.recover) {
            self.reduce(2.0);
        }
        self.marked = false;
        self.state = RecoveryState::Recovery;
        self.recover = self.max;
        self.ignores_dupacks = true;
        self.partial_seen = false;
        self.retransmit_first = true;
        self.reset_retransmissions();
        self.prr = ProportionalRateReduction { recover_fs: self.max - self.una, prr_delivered: 0, prr_out: 0 };
        // Stop measuring the RTT, because the timed segment may be retransmitted (Karn's rule).
        self.timed = None;
        self.timer = Some(now + self.rtt.rto());
    }

    #[inline(never)]
    fn reset_retransmissions(&mut self) {
        self.scoreboard.reset_retransmitted();
        self.retransmissions.clear();
    }

    /// Reduces the window. `least` is CUBIC's minimum window in segments. It is 1 after a mark and 2 after a loss
    /// (RFC 9438, section 4.6).
    fn reduce(&mut self, least: f64) {
        // Use the usable window instead of FlightSize.
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
        // Reduce the window at most once per window of data (RFC 3168, section 6.1.2).
        let answered = self.ignores_dupacks || self.marked;
        if self.state != RecoveryState::Open || answered && next <= self.recover {
            return;
        }
        self.reduce(1.0);
        self.marks_answered += 1;
        self.recover = self.max;
        self.marked = true;
        self.cwr = true;
    }

    fn end_recovery(&mut self) {
        self.state = RecoveryState::Open;
        self.ignores_dupacks = false;
        self.reset_retransmissions();
    }

    /// Advances the cumulative acknowledgment. Returns how many of the acknowledged segments were not known to have
    /// arrived.
    #[inline(always)]
    fn advance(&mut self, now: Time, ack: &Ack) -> u32 {
        self.sample_rtt(now, ack);
        self.una = ack.next;
        self.scoreboard.advance(self.una)
    }

    /// Restarts the retransmission timer, or stops it if nothing is outstanding (RFC 6298, section 5).
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
        // Ignore a forged echo that lies in the future.
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

    /// Returns whether the congestion window limited the sender before `acked` segments were acknowledged (RFC 7661).
    #[inline(always)]
    fn is_cwnd_limited(&self, acked: u32) -> bool {
        if !self.config.validated_growth {
            return true;
        }
        // A segment that TSO delays counts as sent.
        let defers = self.offload.as_ref().is_some_and(Offload::defers);
        let was_out = f64::from(self.max - self.una + acked + u32::from(defers));
        // In slow start, the sender is limited if it used at least half of the window (Linux, `tcp_is_cwnd_limited`).
        let used = if self.cwnd < self.ssthresh { 2.0 * was_out } else { was_out };
        used >= f64::from(self.cwnd as u32)
    }

    #[inline(always)]
    fn grow(&mut self, now: Time, ack: &Ack, acked: u32) {
        let most = f64::from(self.window);
        if ack.next == acked {
            // The acknowledgment is for the SYN. Open the initial window.
            self.cwnd = self.initial_window.min(most);
            return;
        }
        if matches!(self.config.congestion, Congestion::Bbr | Congestion::Bbr1 | Congestion::Prague) {
            // `run_model` sets the window of these congestion controls.
            return;
        }
        // Limit the window to the receiver's window, because a larger window can't be used.
        if self.cwnd >= most {
            self.cwnd = most;
            return;
        }
        if !self.is_cwnd_limited(acked) {
            return;
        }
        // Without byte counting, each acknowledgment counts as one segment, as in ns-2.
        let mut counted = if self.config.byte_counting { f64::from(acked) } else { 1.0 };
        if self.cwnd < self.ssthresh {
            match self.hystart.on_ack(now, ack.next, self.max, now.since(ack.echo), self.cwnd) {
                Advice::Leave => self.ssthresh = self.cwnd.max(2.0),
                Advice::Grow(share) => {
                    counted = counted.min(self.hystart.limit());
                    // Only byte counting could exceed the threshold by more than a segment, so limit the step.
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
