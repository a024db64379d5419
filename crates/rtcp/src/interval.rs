//! Decides when a member may send RTCP (RFC 3550, sections 6.2, 6.3 and A.7; RFC 4585, section 3.5).
//!
//! Call [`Timer::on_expiry`] at [`Timer::next`]. Every other method may change this time.

use crate::members::Census;
use steadycast_units::{Bytes, Chance, Rate, Span, Time};

/// The factor e − 3/2, by which reconsideration lengthens the mean interval (RFC 3550, section 6.3.1).
pub const COMPENSATION: f64 = std::f64::consts::E - 1.5;

/// The senders' share of the RTCP bandwidth, if at most this share of the members are senders.
const SENDER_SHARE: f64 = 0.25;
/// Maximum group size without delayed BYEs (RFC 3550, section 6.3.7).
const MAX_IMMEDIATE_BYE_MEMBERS: u32 = 50;

/// The minimum interval between two reports, so that they never have the same time.
const MIN_INTERVAL: Span = Span::millis(1);

/// The inputs of the RTCP interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IntervalInputs {
    /// The number of members, including this participant.
    pub members: u32,
    /// The number of members that send media.
    pub senders: u32,
    /// The bandwidth of the whole session's RTCP.
    pub rtcp_bw: Rate,
    /// Whether this participant sends media.
    pub we_sent: bool,
    /// Mean RTCP packet size in bytes, with IP and UDP headers.
    pub avg_size: f64,
    /// Whether no RTCP was sent yet, which halves `t_min`.
    pub initial: bool,
    /// The minimum interval.
    pub t_min: Span,
}

impl IntervalInputs {
    /// Returns the deterministic interval (RFC 3550, section 6.3.1), where n members share the bandwidth b:
    ///
    /// ```text
    ///             ⎛ avg_size · n         ⎞
    ///   Td  = max ⎜ ────────────, t_min  ⎟
    ///             ⎝      b               ⎠
    /// ```
    pub fn deterministic(&self) -> Span {
        let (mut n, mut share) = (self.members, 1.0);
        // If few members send, they share a separate part of the bandwidth, so that new receivers soon learn their
        // CNAMEs (RFC 3550, section 6.2).
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
    /// Returns the random interval T = Td · U(0.5, 1.5) / (e − 3/2).
    pub fn randomised(&self, chance: &mut Chance) -> Span {
        self.deterministic().scale(chance.between(0.5, 1.5) / COMPENSATION)
    }
}

/// The RTP profile, which determines when reports are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// RFC 3550: the interval is at least 5 s.
    Rfc3550,
    /// RFC 3550, but with a minimum interval of 1 s. The reaction times in the paper on the Adaptive Smooth Multicast
    /// Protocol (Bouras, Gkamas, Kioumourtzis 2009) imply this minimum.
    Asmp,
    /// RFC 4585: early feedback. There is no minimum interval, except 1 s before a group's first report.
    Avpf {
        /// The approximate time between full regular reports. With zero, no regular report is suppressed.
        t_rr_interval: Span,
    },
}

impl Profile {
    /// Returns the profile's minimum interval.
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
    /// The RTCP bandwidth of the whole session, by default 5 % of its bandwidth.
    pub rtcp_bw: Rate,
    /// The minimum interval. With AVPF, it applies only to groups: before the first report, and while there is no
    /// source.
    pub t_min: Span,
    /// Whether there are always two members. AVPF then sends the first report without delay, and does not dither.
    pub point_to_point: bool,
    /// The first packet's expected size with IP and UDP headers.
    pub first_size: Bytes,
    /// Whether the timer skips expiries at which `t_rr_interval` is certain to suppress the report. A live participant
    /// then wakes less often.
    pub skips_suppressed: bool,
}

impl TimerConfig {
    /// Creates a group's configuration for this session bandwidth, with the profile's defaults.
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
    /// Applies RFC 3550's reduced minimum (section 6.2) if shorter: 360 s divided by the session bandwidth in kbit/s.
    /// In a group, only active senders may use it.
    #[must_use]
    pub fn with_reduced_minimum(self, session_bw: Rate) -> Self {
        let reduced = Span::from_secs_f64(360_000.0 / session_bw.as_bps_f64());
        Self { t_min: self.t_min.min(reduced), ..self }
    }
    /// Declares that the session always has two members.
    #[must_use]
    pub fn point_to_point(self) -> Self {
        Self { point_to_point: true, ..self }
    }
}

/// The action at [`Timer::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Send a regular compound packet, with waiting feedback.
    Send,
    /// Send waiting feedback, reduced-size because no regular report is due (AVPF).
    SendFeedback,
    /// Send the BYE and leave.
    SendBye,
    /// Send nothing yet. The timer expires again at this time.
    Rearm(Time),
    /// Skip this regular report, because the previous one is too recent (AVPF).
    Suppress,
}

/// When requested feedback is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Early {
    /// Feedback is sent as an early packet at this time, unless other feedback makes it redundant.
    At(Time),
    /// Feedback is sent with the regular packet of this time.
    WithRegular(Time),
    /// Feedback is not sent, because it would be late.
    TooLate,
}

/// How a member leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Send the BYE now.
    Now,
    /// Send the BYE when the timer expires. Until then, the interval depends on the number of BYEs instead of members
    /// (RFC 3550, section 6.3.7).
    AtExpiry(Time),
    /// Leave without a BYE after never having sent.
    Silently,
}

/// This participant's RTCP transmission state (RFC 3550, section 6.3).
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
    /// The interval that led to `tn`.
    t_rr: Span,
    t_rr_last: Option<Time>,
    allow_early: bool,
    early: Option<Time>,
    feedback_waits: bool,
    /// Whether the session has no source to report on.
    idle: bool,
}

/// The minimum of the random share of T_rr_interval between two regular reports (RFC 4585, section 3.5.3).
const T_RR_SHARE_MIN: f64 = 0.5;
/// The maximum of this random share.
const T_RR_SHARE_MAX: f64 = 1.5;

/// The minimum interval in a group without a source, also under AVPF (RFC 3550, section 6.2).
const IDLE_MIN_INTERVAL: Span = Span::secs(5);

impl Timer {
    /// Creates the timer of a participant that joins now, with the profile's defaults.
    pub fn new(profile: Profile, session_bw: Rate, chance: Chance, now: Time) -> Self {
        Self::with_config(TimerConfig::new(profile, session_bw), chance, now)
    }

    /// Creates the timer of a participant that joins now.
    pub fn with_config(config: TimerConfig, chance: Chance, now: Time) -> Self {
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
        // No other member is known yet (RFC 3550, section 6.3.2).
        timer.t_rr = timer.draw(&Census::alone());
        timer.tn = now + timer.t_rr;
        timer
    }

    /// Returns when [`Timer::on_expiry`] is due.
    pub fn next(&self) -> Time {
        self.early.map_or(self.tn, |early| early.min(self.tn))
    }

    /// Handles the expiry at [`Timer::next`]. If the caller then sends a packet, it calls [`Timer::on_rtcp`].
    pub fn on_expiry(&mut self, now: Time, census: &Census) -> Expiry {
        if let Some(early) = self.early
            && early <= now
            && early <= self.tn
        {
            return self.send_early();
        }
        if now < self.tn {
            return Expiry::Rearm(self.next());
        }
        // Timer reconsideration, because many may have joined at once (RFC 3550, section 6.3.6).
        let census = self.counted(census);
        self.pmembers = census.members;
        let reconsidered = self.tp + self.draw(&census);
        if reconsidered > now {
            self.t_rr = reconsidered.since(self.tp);
            self.tn = reconsidered;
            return Expiry::Rearm(self.next());
        }
        if self.leaving.is_some() {
            (self.tn, self.early) = (Time::NEVER, None);
            return Expiry::SendBye;
        }
        self.on_regular(now, &census)
    }

    /// Handles the first source's arrival or the last one's departure. Without a source, later reports are at least 5 s
    /// apart.
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

    /// Handles a sent or received compound of `size` with IP and UDP headers. While leaving, only BYEs count
    /// ([`Timer::on_bye`]).
    pub fn on_rtcp(&mut self, size: Bytes) {
        if self.leaving.is_none() {
            self.average(size);
        }
    }

    /// Shrinks the interval after members have left (reverse reconsideration; RFC 3550, section 6.3.4). `census` no
    /// longer includes these members.
    pub fn on_departures(&mut self, now: Time, census: &Census) {
        let census = self.counted(census);
        // `on_expiry` handles a larger group.
        if self.leaving.is_some() || census.members >= self.pmembers {
            return;
        }
        let share = f64::from(census.members) / f64::from(self.pmembers);
        self.tn = now + self.tn.since(now).scale(share);
        self.tp = now.before(now.since(self.tp).scale(share));
        self.pmembers = census.members;
    }

    /// Handles a BYE of `size` with IP and UDP headers. `census` no longer includes the BYE's sources.
    pub fn on_bye(&mut self, now: Time, size: Bytes, census: &Census) {
        match &mut self.leaving {
            // A participant whose BYE waits counts other members' BYEs (RFC 3550, section 6.3.7).
            Some(leavers) => {
                *leavers = leavers.saturating_add(1);
                self.average(size);
            }
            None => self.on_departures(now, census),
        }
    }

    /// Begins to leave with a BYE of size `bye`; `sent_rtp` is whether media was ever sent.
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
        // The timer restarts with the state of a new member and counts only BYEs, so that many BYEs stay within RTCP's
        // bandwidth (RFC 3550, section 6.3.7).
        self.tp = now;
        self.pmembers = 1;
        self.initial = true;
        self.leaving = Some(1);
        self.early = None;
        self.avg_size = bye.as_f64();
        self.t_rr = self.draw(&Census::alone());
        self.tn = now + self.t_rr;
        Leave::AtExpiry(self.tn)
    }

    /// Requests feedback that is useless after the time `useful` (RFC 4585, section 3.5.2). With AVPF it may be sent
    /// before the next regular report, with other profiles only in that report.
    pub fn request_early(&mut self, now: Time, useful: Span) -> Early {
        self.request(now, useful, None)
    }

    /// Like [`Timer::request_early`] without dithering, for feedback whose suppression timer has expired (RFC 5401).
    pub fn request_dithered(&mut self, now: Time, useful: Span) -> Early {
        self.request(now, useful, Some(Span::ZERO))
    }

    fn request(&mut self, now: Time, useful: Span, dither: Option<Span>) -> Early {
        if self.leaving.is_some() || self.tn == Time::NEVER {
            return Early::TooLate;
        }
        // A scheduled packet also carries this request's feedback.
        if let Some(early) = self.early {
            return Early::At(early);
        }
        if self.feedback_waits {
            return Early::WithRegular(self.tn);
        }
        let is_avpf = matches!(self.config.profile, Profile::Avpf { .. });
        let longest = if self.config.point_to_point { Span::ZERO } else { self.t_rr / 2 };
        let dither = dither.unwrap_or(longest);
        // An early packet must be sent before the regular packet (RFC 4585, section 3.5.2).
        if !is_avpf || now + dither > self.tn {
            self.feedback_waits = true;
            return Early::WithRegular(self.tn);
        }
        // Each regular interval allows one early packet. Other feedback waits for the regular packet, or is dropped if
        // it would be useless by then (RFC 4585, section 3.5.2).
        if !self.allow_early {
            if self.tn.since(now) >= useful {
                return Early::TooLate;
            }
            self.feedback_waits = true;
            return Early::WithRegular(self.tn);
        }
        let at = now + dither.scale(self.chance.unit());
        self.early = Some(at);
        Early::At(at)
    }

    /// Cancels the requested feedback, because another member has sent it.
    pub fn cancel_early(&mut self) {
        self.early = None;
        self.feedback_waits = false;
    }

    /// Returns whether early feedback may be requested now.
    pub const fn allows_early(&self) -> bool {
        self.allow_early
    }

    /// Returns the silence after which a member times out: 5 · Td. Td is a receiver's interval with the full minimum
    /// (RFC 3550, section 6.3.5; RFC 4585, section 3.5.4).
    pub fn member_timeout(&self, census: &Census) -> Span {
        let t_min = match self.config.profile {
            Profile::Avpf { t_rr_interval } if !t_rr_interval.is_zero() => t_rr_interval,
            // Other members do not know our reduced minimum.
            profile => profile.minimum().max(self.config.t_min),
        };
        let t_min = if self.idle && self.slows_when_idle() { t_min.max(IDLE_MIN_INTERVAL) } else { t_min };
        let inputs = IntervalInputs { we_sent: false, initial: false, t_min, ..self.inputs(census) };
        inputs.deterministic() * 5
    }

    /// Returns the time without media after which a sender counts as a receiver: two report intervals. With AVPF it is
    /// at least 1 s, because two report intervals may be shorter than the time between two frames.
    pub fn sender_timeout(&self) -> Span {
        match self.config.profile {
            Profile::Avpf { .. } => (self.t_rr * 2).max(self.config.profile.minimum()),
            _ => self.t_rr * 2,
        }
    }

    /// Sets the mean RTCP packet size that the source announced, in bytes with IP and UDP headers (RFC 5760, section
    /// 9.2).
    pub fn on_told_size(&mut self, size: f64) {
        self.avg_size = size;
    }

    /// Returns the mean RTCP packet size in bytes, with IP and UDP headers.
    pub const fn avg_size(&self) -> f64 {
        self.avg_size
    }

    /// Returns the current inputs of the interval.
    pub fn inputs(&self, census: &Census) -> IntervalInputs {
        let census = self.counted(census);
        let avpf = matches!(self.config.profile, Profile::Avpf { .. });
        // AVPF's minimum of 1 s before a group's first report is not halved (RFC 4585, section 3.5.1).
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
        // A late call must not lengthen the time between reports.
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
        // A suppressed report allows early feedback, too (RFC 4585, section 3.5.3).
        self.allow_early = true;
        self.initial = false;
        self.tp = now;
        // The interval is drawn again, because intervals that pass reconsideration are biased (RFC 3550, appendix A.7).
        self.t_rr = self.draw(census);
        self.tn = now + self.t_rr;
        if let (Profile::Avpf { t_rr_interval }, Some(last), true) =
            (self.config.profile, self.t_rr_last, self.config.skips_suppressed)
        {
            // Before this time, even the smallest random share of `t_rr_interval` would suppress a report.
            self.tn = self.tn.max(last + t_rr_interval.scale(T_RR_SHARE_MIN));
        }
        expiry
    }

    fn send_early(&mut self) -> Expiry {
        self.early = None;
        self.allow_early = false;
        self.sent = true;
        // The next regular packet is skipped, so that early feedback does not raise the RTCP rate (RFC 4585, section
        // 3.5.3).
        let skipped = self.tn;
        self.tn = self.tp + self.t_rr * 2;
        self.tp = skipped;
        Expiry::SendFeedback
    }
}
