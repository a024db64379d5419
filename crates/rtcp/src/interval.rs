//! Decides when a member may send RTCP (RFC 3550, sections 6.2, 6.3 and A.7; RFC 4585, section 3.5).
//!
//! The caller calls [`Timer::on_expiry`] at the time that [`Timer::next`] returns. A call of any other method may
//! change this time.

use crate::members::Census;
use steadycast_units::{Bytes, Chance, Rate, Span, Time};

/// The factor e − 3/2. Timer reconsideration makes the mean interval longer by this factor (RFC 3550, section 6.3.1).
pub const COMPENSATION: f64 = std::f64::consts::E - 1.5;

/// The share of the RTCP bandwidth that is reserved for senders, if at most this share of the members are senders.
const SENDER_SHARE: f64 = 0.25;
/// Maximum group size up to which a BYE is sent without delay (RFC 3550, section 6.3.7).
const MAX_IMMEDIATE_BYE_MEMBERS: u32 = 50;

/// Minimum interval between two reports. It ensures that two reports never have the same time.
const MIN_INTERVAL: Span = Span::millis(1);

/// The inputs from which the RTCP interval is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IntervalInputs {
    /// The number of members, including this participant.
    pub members: u32,
    /// The number of members that send media.
    pub senders: u32,
    /// The RTCP bandwidth of the whole session.
    pub rtcp_bw: Rate,
    /// Whether this participant sends media.
    pub we_sent: bool,
    /// Mean size of RTCP packets in bytes, including IP and UDP headers.
    pub avg_size: f64,
    /// Whether this participant has not sent RTCP yet. This halves `t_min`.
    pub initial: bool,
    /// The minimum interval.
    pub t_min: Span,
}

impl IntervalInputs {
    /// Returns the deterministic interval (RFC 3550, section 6.3.1). Here n is the number of members that share the
    /// bandwidth b:
    ///
    /// ```text
    ///             ⎛ avg_size · n         ⎞
    ///   Td  = max ⎜ ────────────, t_min  ⎟
    ///             ⎝      b               ⎠
    /// ```
    pub fn deterministic(&self) -> Span {
        let (mut n, mut share) = (self.members, 1.0);
        // If few members are senders, reserve a part of the bandwidth for them. New receivers then soon learn the
        // senders' CNAMEs (RFC 3550, section 6.2).
        if f64::from(self.senders) <= SENDER_SHARE * f64::from(self.members) {
            (n, share) = if self.we_sent {
                (self.senders, SENDER_SHARE)
            } else {
                (self.members.saturating_sub(self.senders), 1.0 - SENDER_SHARE)
            };
        }
        let shared = Span::from_secs_f64(self.avg_size * f64::from(n) / (self.rtcp_bw.as_bytes_per_s() * share));
        let t_min = if self.initial { self.t_min / 2 } else { self.t_min };
        shared.max(t_min).max(MIN_INTERVAL)
    }
    /// Returns the random interval T = Td · U(0.5, 1.5) / (e − 3/2), where Td is the deterministic interval.
    pub fn randomised(&self, chance: &mut Chance) -> Span {
        self.deterministic().scale(chance.between(0.5, 1.5) / COMPENSATION)
    }
}

/// The RTP profile, which determines when reports are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// RFC 3550. The interval is at least 5 s.
    Rfc3550,
    /// RFC 3550, but the interval is at least 1 s. The reaction times in the paper on the Adaptive Smooth Multicast
    /// Protocol (Bouras, Gkamas, Kioumourtzis 2009) imply this minimum.
    Asmp,
    /// RFC 4585, with early feedback. There is no minimum interval, except in a group: 1 s before the first report, and
    /// 5 s later on while there is no source.
    Avpf {
        /// The approximate time between full regular reports. If it is zero, no regular report is suppressed.
        t_rr_interval: Span,
    },
}

impl Profile {
    /// Returns the minimum interval of the profile.
    pub const fn minimum(self) -> Span {
        match self {
            Self::Rfc3550 => Span::secs(5),
            Self::Asmp | Self::Avpf { .. } => Span::secs(1),
        }
    }
}

/// The configuration of a session's RTCP timing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimerConfig {
    /// The RTP profile.
    pub profile: Profile,
    /// The RTCP bandwidth of the whole session. By default, it is 5 % of the session bandwidth.
    pub rtcp_bw: Rate,
    /// The minimum interval. With AVPF, it applies only in a group, and only before the first report or while the group
    /// has no source.
    pub t_min: Span,
    /// Whether the session always has exactly two members. With AVPF, the first report is then sent without delay, and
    /// feedback is not dithered.
    pub point_to_point: bool,
    /// The expected size of the first packet in bytes, including IP and UDP headers.
    pub first_size: Bytes,
    /// Whether the timer skips expiries at which `t_rr_interval` would certainly suppress the report. A live
    /// participant then wakes up less often.
    pub skips_suppressed: bool,
}

impl TimerConfig {
    /// Creates the configuration for a group. `session_bw` is the session bandwidth, of which RTCP gets 5 %. The
    /// minimum interval is the minimum of the profile.
    pub fn new(profile: Profile, session_bw: Rate) -> Self {
        let t_min = profile.minimum();
        Self {
            profile,
            rtcp_bw: session_bw.scale(0.05),
            t_min,
            point_to_point: false,
            first_size: Bytes::new(112),
            skips_suppressed: false,
        }
    }
    /// Sets the minimum interval.
    #[must_use]
    pub fn with_t_min(self, t_min: Span) -> Self {
        Self { t_min, ..self }
    }
    /// Applies the reduced minimum interval of RFC 3550 (section 6.2) if it is shorter. It is 360 s divided by the
    /// session bandwidth in kbit/s. In a group, only active senders may use it.
    #[must_use]
    pub fn with_reduced_minimum(self, session_bw: Rate) -> Self {
        let reduced = Span::from_secs_f64(360_000.0 / session_bw.as_bps_f64());
        Self { t_min: self.t_min.min(reduced), ..self }
    }
    /// Declares that the session always has exactly two members.
    #[must_use]
    pub fn point_to_point(self) -> Self {
        Self { point_to_point: true, ..self }
    }
}

/// What the caller has to do at the time that [`Timer::next`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Send a regular compound packet, together with the feedback that waits.
    Send,
    /// Send the feedback that waits, in a reduced-size packet. No regular report is due (AVPF).
    SendFeedback,
    /// Send the BYE and leave the session.
    SendBye,
    /// Send nothing yet. The timer expires again at the time that [`Timer::next`] returns.
    Rearm,
    /// Skip this regular report, because the previous one is too recent (AVPF).
    Suppress,
}

/// How a member leaves the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Send the BYE now.
    Now,
    /// Send the BYE when the timer expires. Until then, the interval depends on the number of BYEs instead of the
    /// number of members (RFC 3550, section 6.3.7).
    AtExpiry,
    /// Leave without a BYE, because this member has never sent a packet.
    Silently,
}

/// The state that determines when this participant sends RTCP (RFC 3550, section 6.3).
#[derive(Clone, Debug)]
pub struct Timer {
    config: TimerConfig,
    chance: Chance,
    /// When the previous regular packet was sent, skipped or suppressed.
    tp: Time,
    /// When the next packet is due, before timer reconsideration.
    tn: Time,
    /// The number of members when `tn` was computed.
    pmembers: u32,
    initial: bool,
    avg_size: f64,
    sent: bool,
    leaving: Option<u32>,
    /// The interval from which `tn` was computed.
    t_rr: Span,
    t_rr_last: Option<Time>,
    allow_early: bool,
    early: Option<Time>,
    feedback_waits: bool,
    /// Whether the session has no source at present, so that there is nothing to report on.
    idle: bool,
}

/// Minimum of the random share of T_rr_interval that must pass between two regular reports (RFC 4585, section 3.5.3).
const T_RR_SHARE_MIN: f64 = 0.5;
/// Maximum of this random share of T_rr_interval.
const T_RR_SHARE_MAX: f64 = 1.5;

/// Minimum interval in a group that has no source. It also applies with AVPF (RFC 3550, section 6.2).
const IDLE_MIN_INTERVAL: Span = Span::secs(5);

impl Timer {
    /// Creates the timer of a participant that joins now.
    pub fn new(config: TimerConfig, chance: Chance, now: Time) -> Self {
        let mut timer = Self {
            config,
            chance,
            tp: now,
            tn: now,
            pmembers: 1,
            initial: true,
            avg_size: config.first_size.as_f64(),
            sent: false,
            leaving: None,
            t_rr: Span::ZERO,
            t_rr_last: None,
            allow_early: true,
            early: None,
            feedback_waits: false,
            idle: false,
        };
        // Assume that there is no other member, because none is known yet (RFC 3550, section 6.3.2).
        timer.t_rr = timer.draw(&Census::alone());
        timer.tn = now + timer.t_rr;
        timer
    }

    /// Returns when [`Timer::on_expiry`] has to be called.
    pub fn next(&self) -> Time {
        self.early.map_or(self.tn, |early| early.min(self.tn))
    }

    /// Handles the expiry at the time that [`Timer::next`] returned. If the caller then sends a packet, it has to call
    /// [`Timer::on_rtcp`].
    pub fn on_expiry(&mut self, now: Time, census: &Census) -> Expiry {
        if let Some(early) = self.early
            && early <= now
            && early <= self.tn
        {
            return self.send_early();
        }
        if now < self.tn {
            return Expiry::Rearm;
        }
        // Reconsider the timer, because many members may have joined at the same time (RFC 3550, section 6.3.6).
        let census = self.counted(census);
        self.pmembers = census.members;
        let reconsidered = self.tp + self.draw(&census);
        if reconsidered > now {
            self.t_rr = reconsidered.since(self.tp);
            self.tn = reconsidered;
            return Expiry::Rearm;
        }
        if self.leaving.is_some() {
            (self.tn, self.early) = (Time::NEVER, None);
            return Expiry::SendBye;
        }
        self.on_regular(now, &census)
    }

    /// Handles that the first source has arrived (`present` is true), or that the last source has left. While there is
    /// no source, reports after the first one are at least 5 s apart.
    pub fn on_source(&mut self, now: Time, present: bool, census: &Census) {
        let rested = std::mem::replace(&mut self.idle, !present) && self.slows_when_idle();
        if present && rested && self.leaving.is_none() {
            self.t_rr = self.draw(census);
            self.tn = self.tn.min(now + self.t_rr);
        }
    }

    fn slows_when_idle(&self) -> bool {
        let avpf = matches!(self.config.profile, Profile::Avpf { .. });
        avpf && !self.config.point_to_point && !self.initial
    }

    /// Handles a compound packet that was sent or received. `size` includes IP and UDP headers. While this participant
    /// is leaving, only BYEs count (see [`Timer::on_bye`]).
    pub fn on_rtcp(&mut self, size: Bytes) {
        if self.leaving.is_none() {
            self.average(size);
        }
    }

    /// Shortens the interval after members have left (reverse reconsideration; RFC 3550, section 6.3.4). `census` must
    /// not include these members any more.
    pub fn on_departures(&mut self, now: Time, census: &Census) {
        let census = self.counted(census);
        // Do nothing if the group has not become smaller, because `on_expiry` handles a larger group.
        if self.leaving.is_some() || census.members >= self.pmembers {
            return;
        }
        let share = f64::from(census.members) / f64::from(self.pmembers);
        self.tn = now + self.tn.since(now).scale(share);
        self.tp = now.before(now.since(self.tp).scale(share));
        self.pmembers = census.members;
    }

    /// Handles a BYE that was received. `size` includes IP and UDP headers. `census` must not include the sources of
    /// the BYE any more.
    pub fn on_bye(&mut self, now: Time, size: Bytes, census: &Census) {
        match &mut self.leaving {
            // While our own BYE waits, count the BYEs of other members (RFC 3550, section 6.3.7).
            Some(leavers) => {
                *leavers = leavers.saturating_add(1);
                self.average(size);
            }
            None => self.on_departures(now, census),
        }
    }

    /// Begins to leave the session. `bye` is the size of the BYE packet. `sent_rtp` states whether this participant has
    /// ever sent media.
    pub fn leave(&mut self, now: Time, bye: Bytes, sent_rtp: bool, census: &Census) -> Leave {
        if !self.sent && !sent_rtp {
            self.tn = Time::NEVER;
            self.early = None;
            return Leave::Silently;
        }
        if self.counted(census).members <= MAX_IMMEDIATE_BYE_MEMBERS {
            self.tn = Time::NEVER;
            self.early = None;
            return Leave::Now;
        }
        // Restart the timer with the state of a new member, and count only BYEs. Many BYEs then stay within the RTCP
        // bandwidth (RFC 3550, section 6.3.7).
        self.tp = now;
        self.pmembers = 1;
        self.initial = true;
        self.leaving = Some(1);
        self.early = None;
        self.avg_size = bye.as_f64();
        self.t_rr = self.draw(&Census::alone());
        self.tn = now + self.t_rr;
        Leave::AtExpiry
    }

    /// Requests that feedback is sent. The feedback is useless once the time `useful` has passed (RFC 4585, section
    /// 3.5.2). With AVPF, it may be sent before the next regular report. With other profiles, it is sent in that
    /// report.
    ///
    /// Returns false if the feedback is not sent, because it would be too late to be useful, or because this
    /// participant leaves the session.
    pub fn request_early(&mut self, now: Time, useful: Span) -> bool {
        self.request(now, useful, None)
    }

    /// Requests that feedback is sent, like [`Timer::request_early`], but without dithering. This is for feedback whose
    /// suppression timer has expired (RFC 5401).
    pub fn request_dithered(&mut self, now: Time, useful: Span) -> bool {
        self.request(now, useful, Some(Span::ZERO))
    }

    fn request(&mut self, now: Time, useful: Span, dither: Option<Span>) -> bool {
        if self.leaving.is_some() || self.tn == Time::NEVER {
            return false;
        }
        // If a packet is already scheduled, it also carries this feedback.
        if self.early.is_some() || self.feedback_waits {
            return true;
        }
        let is_avpf = matches!(self.config.profile, Profile::Avpf { .. });
        let longest = if self.config.point_to_point { Span::ZERO } else { self.t_rr / 2 };
        let dither = dither.unwrap_or(longest);
        // Wait for the regular packet if an early packet could not be sent before it (RFC 4585, section 3.5.2).
        if !is_avpf || now + dither > self.tn {
            self.feedback_waits = true;
            return true;
        }
        // Only one early packet may be sent between two regular packets. Further feedback waits for the regular packet.
        // If it would be useless by then, it is dropped (RFC 4585, section 3.5.2).
        if !self.allow_early {
            self.feedback_waits = self.tn.since(now) < useful;
            return self.feedback_waits;
        }
        self.early = Some(now + dither.scale(self.chance.unit()));
        true
    }

    /// Cancels the feedback that was requested, because another member has sent it.
    pub fn cancel_early(&mut self) {
        self.early = None;
        self.feedback_waits = false;
    }

    /// Returns how long a member has to be silent until it times out. This is 5 · Td, where Td is the interval of a
    /// receiver with the full minimum interval (RFC 3550, section 6.3.5; RFC 4585, section 3.5.4).
    pub fn member_timeout(&self, census: &Census) -> Span {
        let t_min = match self.config.profile {
            Profile::Avpf { t_rr_interval } if !t_rr_interval.is_zero() => t_rr_interval,
            // Ignore a reduced minimum interval, because other members do not know it.
            profile => profile.minimum().max(self.config.t_min),
        };
        let t_min = if self.idle && self.slows_when_idle() { t_min.max(IDLE_MIN_INTERVAL) } else { t_min };
        let inputs = IntervalInputs { we_sent: false, initial: false, t_min, ..self.inputs(census) };
        inputs.deterministic() * 5
    }

    /// Returns how long a sender has to send no media until it counts as a receiver. This is two report intervals. With
    /// AVPF it is at least 1 s, because two report intervals may be shorter than the time between two frames.
    pub fn sender_timeout(&self) -> Span {
        match self.config.profile {
            Profile::Avpf { .. } => (self.t_rr * 2).max(self.config.profile.minimum()),
            _ => self.t_rr * 2,
        }
    }

    /// Sets the mean size of RTCP packets, which the source has announced (RFC 5760, section 9.2). `size` is in bytes
    /// and includes IP and UDP headers.
    pub fn on_told_size(&mut self, size: f64) {
        self.avg_size = size;
    }

    /// Returns the inputs from which the interval is computed at present.
    pub fn inputs(&self, census: &Census) -> IntervalInputs {
        let census = self.counted(census);
        let avpf = matches!(self.config.profile, Profile::Avpf { .. });
        // With AVPF, do not halve the minimum of 1 s before the first report in a group (RFC 4585, section 3.5.1).
        let t_min = match (avpf, self.config.point_to_point, self.initial) {
            _ if self.idle && self.slows_when_idle() => IDLE_MIN_INTERVAL.max(self.config.t_min),
            (true, true, _) | (true, _, false) => Span::ZERO,
            _ => self.config.t_min,
        };
        IntervalInputs {
            members: census.members,
            senders: census.senders,
            rtcp_bw: self.config.rtcp_bw,
            we_sent: census.we_sent,
            avg_size: self.avg_size,
            initial: self.initial && !avpf,
            t_min,
        }
    }

    fn draw(&mut self, census: &Census) -> Span {
        self.inputs(census).randomised(&mut self.chance)
    }

    fn counted(&self, census: &Census) -> Census {
        match self.leaving {
            Some(members) => Census { members, senders: 0, we_sent: false },
            None => Census { members: census.members.max(1), ..*census },
        }
    }

    fn average(&mut self, size: Bytes) {
        self.avg_size += (size.as_f64() - self.avg_size) / 16.0;
    }

    fn on_regular(&mut self, now: Time, census: &Census) -> Expiry {
        // Use the time at which the report was due, so that a late call does not lengthen the time between reports.
        let due = self.tn;
        let too_recent = match (self.config.profile, self.t_rr_last) {
            (Profile::Avpf { t_rr_interval }, Some(last)) if !t_rr_interval.is_zero() => {
                last + t_rr_interval.scale(self.chance.between(T_RR_SHARE_MIN, T_RR_SHARE_MAX)) > due
            }
            _ => false,
        };
        let waits = std::mem::take(&mut self.feedback_waits) || self.early.take().is_some();
        let expiry = match (too_recent, waits) {
            (false, _) => Expiry::Send,
            (true, true) => Expiry::SendFeedback,
            (true, false) => Expiry::Suppress,
        };
        if expiry == Expiry::Send {
            self.t_rr_last = Some(due);
        }
        self.sent |= expiry != Expiry::Suppress;
        // Allow early feedback after a suppressed report too (RFC 4585, section 3.5.3).
        self.allow_early = true;
        self.initial = false;
        self.tp = now;
        // Draw a new interval, because an interval that has passed reconsideration is biased (RFC 3550, appendix A.7).
        self.t_rr = self.draw(census);
        self.tn = now + self.t_rr;
        if let (Profile::Avpf { t_rr_interval }, Some(last), true) =
            (self.config.profile, self.t_rr_last, self.config.skips_suppressed)
        {
            // Do not expire before the smallest random share of `t_rr_interval` has passed since the last report,
            // because a report before that is always suppressed.
            self.tn = self.tn.max(last + t_rr_interval.scale(T_RR_SHARE_MIN));
        }
        expiry
    }

    fn send_early(&mut self) -> Expiry {
        self.early = None;
        self.allow_early = false;
        self.sent = true;
        // Skip the next regular packet, so that early feedback does not raise the RTCP rate (RFC 4585, section 3.5.3).
        let skipped = self.tn;
        self.tn = self.tp + self.t_rr * 2;
        self.tp = skipped;
        Expiry::SendFeedback
    }
}
