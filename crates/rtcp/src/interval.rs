//! When a member may send RTCP (RFC 3550, sections 6.2, 6.3 and A.7; RFC 4585, section 3.5).
//!
//! A [`Timer`] is told the time at [`Timer::next`] and answers whether a packet goes now. Everything else it learns (a
//! packet's size, a departure, a wish for early feedback) may move that time: ask for it again after each call.

use crate::members::Census;
use steadycast_units::{Bytes, Chance, Rate, Span, Time};

/// e − 3/2: timer reconsideration makes the mean interval longer than the one drawn by this much (RFC 3550, section
/// 6.3.1).
pub const COMPENSATION: f64 = std::f64::consts::E - 1.5;

/// Share of the RTCP bandwidth for senders while they are at most this share of the members.
const SENDER_SHARE: f64 = 0.25;
/// Above this many members a BYE waits its turn (RFC 3550, section 6.3.7).
const BYE_AT_ONCE: u32 = 50;

/// No interval is shorter, whatever the bandwidth: after a report time goes on before the next one.
const LEAST: Span = Span::millis(1);

/// What the interval depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IntervalInputs {
    /// Members of the session, oneself included.
    pub members: u32,
    /// Those of them that send.
    pub senders: u32,
    /// What all RTCP of the session may take together.
    pub rtcp_bw: Rate,
    /// Whether one is a sender oneself.
    pub we_sent: bool,
    /// Mean size of an RTCP packet in bytes, with IP and UDP.
    pub avg_size: f64,
    /// Whether nothing was sent yet: `t_min` counts half.
    pub initial: bool,
    /// The shortest interval.
    pub t_min: Span,
}

impl IntervalInputs {
    /// The interval without its randomness (RFC 3550, section 6.3.1), where n counts those who share the bandwidth b:
    ///
    /// ```text
    ///             ⎛ avg_size · n         ⎞
    ///   Td  = max ⎜ ────────────, t_min  ⎟
    ///             ⎝      b               ⎠
    /// ```
    pub fn deterministic(&self) -> Span {
        let (mut n, mut share) = (self.members, 1.0);
        if f64::from(self.senders) <= SENDER_SHARE * f64::from(self.members) {
            (n, share) = if self.we_sent {
                (self.senders, SENDER_SHARE)
            } else {
                (self.members.saturating_sub(self.senders), 1.0 - SENDER_SHARE)
            };
        }
        let shared = Span::from_secs_f64(self.avg_size * f64::from(n) / (self.rtcp_bw.as_bytes_per_s() * share));
        let t_min = if self.initial { self.t_min / 2 } else { self.t_min };
        shared.max(t_min).max(LEAST)
    }
    /// T = Td · U(0.5, 1.5) / (e − 3/2).
    pub fn randomised(&self, chance: &mut Chance) -> Span {
        self.deterministic().scale(chance.between(0.5, 1.5) / COMPENSATION)
    }
}

/// The rules of timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// RFC 3550: at least 5 s.
    Rfc3550,
    /// RFC 3550 with a minimum of 1 s, which the published reaction times of ASMP imply.
    Asmp,
    /// RFC 4585: no minimum (1 s before the first report in a group), and early feedback. Unless it is zero, regular
    /// reports keep about `t_rr_interval` between them.
    Avpf {
        /// Spacing of full regular reports.
        t_rr_interval: Span,
    },
}

impl Profile {
    /// The shortest interval it knows.
    pub const fn minimum(self) -> Span {
        match self {
            Self::Rfc3550 => Span::secs(5),
            Self::Asmp | Self::Avpf { .. } => Span::secs(1),
        }
    }
}

/// How a session times its RTCP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimerConfig {
    /// The rules of timing.
    pub profile: Profile,
    /// What all RTCP of the session may take: 5 % of the session bandwidth unless said otherwise.
    pub rtcp_bw: Rate,
    /// The shortest interval; the profile says how far it applies.
    pub t_min: Span,
    /// Whether the session has two members for good: AVPF then neither waits before the first report nor dithers.
    pub point_to_point: bool,
    /// Expected size of the first packet, with IP and UDP.
    pub first_size: Bytes,
}

impl TimerConfig {
    /// The profile's own numbers, for a group with this session bandwidth.
    pub fn new(profile: Profile, session_bw: Rate) -> Self {
        let t_min = profile.minimum();
        Self { profile, rtcp_bw: session_bw.scale(0.05), t_min, point_to_point: false, first_size: Bytes::new(112) }
    }
    /// The same with another shortest interval.
    #[must_use]
    pub fn with_t_min(self, t_min: Span) -> Self {
        Self { t_min, ..self }
    }
    /// The same with the reduced minimum of RFC 3550, section 6.2, where that is shorter: 360 s divided by the session
    /// bandwidth in kbit/s. In a group it is meant for active senders only; receivers keep theirs.
    #[must_use]
    pub fn with_reduced_minimum(self, session_bw: Rate) -> Self {
        let reduced = Span::from_secs_f64(360_000.0 / session_bw.as_bps_f64());
        Self { t_min: self.t_min.min(reduced), ..self }
    }
    /// The same for a session that always has two members.
    #[must_use]
    pub fn point_to_point(self) -> Self {
        Self { point_to_point: true, ..self }
    }
}

/// What to do at [`Timer::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Send a regular compound, with the feedback that waits.
    Send,
    /// Send the feedback that waits; the reduced-size form will do. A regular report isn't due (AVPF).
    SendFeedback,
    /// Send the BYE and be gone.
    SendBye,
    /// Send nothing yet, and wait until this time.
    Rearm(Time),
    /// A regular report was due and is left out, since the previous one is too recent (AVPF).
    Suppress,
}

/// When feedback that was asked for is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Early {
    /// In a packet of its own at this time, unless overheard feedback makes it superfluous.
    At(Time),
    /// With the regular packet of this time.
    WithRegular(Time),
    /// Not at all: it would come too late to be of use.
    TooLate,
}

/// How a member leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Send the BYE now.
    Now,
    /// When the timer, which now counts BYEs only, says so.
    AtExpiry(Time),
    /// Leave without a BYE: a member that never sent has nothing to take back.
    Silently,
}

/// The RTCP transmission state of one member.
#[derive(Clone, Debug)]
pub struct Timer {
    config: TimerConfig,
    chance: Chance,
    /// When the previous packet was sent, or would have been.
    tp: Time,
    /// When the next one is due, before reconsideration.
    tn: Time,
    /// Members when `tn` was last computed.
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
    /// There is no source to report on.
    idle: bool,
}

/// RFC 3550's minimum (section 6.2), which holds in a group under AVPF as well while there is no source: nobody is
/// served by reports.
const IDLE: Span = Span::secs(5);

impl Timer {
    /// The timer of a member that joins now, with the profile's own numbers.
    pub fn new(profile: Profile, session_bw: Rate, chance: Chance, now: Time) -> Self {
        Self::with_config(TimerConfig::new(profile, session_bw), chance, now)
    }

    /// The timer of a member that joins now.
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
        timer.t_rr = timer.draw(&Census::alone());
        timer.tn = now + timer.t_rr;
        timer
    }

    /// When [`Timer::on_expiry`] is to be called.
    pub fn next(&self) -> Time {
        self.early.map_or(self.tn, |early| early.min(self.tn))
    }

    /// The time [`Timer::next`] has come. After [`Expiry::Send`] and its like a packet must go, and its size be told to
    /// [`Timer::on_rtcp`].
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

    /// There is a source to report on from now on, or there is none any more. Only what comes after the first report is
    /// held back; it is drawn again when a source comes.
    pub fn on_source(&mut self, now: Time, present: bool, census: &Census) {
        let rested = std::mem::replace(&mut self.idle, !present) && self.rests_when_idle();
        if present && rested && self.leaving.is_none() {
            self.t_rr = self.draw(census);
            self.tn = self.tn.min(now + self.t_rr);
        }
    }

    fn rests_when_idle(&self) -> bool {
        let avpf = matches!(self.config.profile, Profile::Avpf { .. });
        avpf && !self.config.point_to_point && !self.initial
    }

    /// A compound was sent or received, of this size with IP and UDP. Its like while leaving are counted by
    /// [`Timer::on_bye`] only.
    pub fn on_rtcp(&mut self, size: Bytes) {
        if self.leaving.is_none() {
            self.average(size);
        }
    }

    /// Members have left or timed out: the census counts them no longer. The interval shrinks with the group (reverse
    /// reconsideration, RFC 3550, section 6.3.4).
    pub fn on_departures(&mut self, now: Time, census: &Census) {
        let census = self.counted(census);
        if self.leaving.is_some() || census.members >= self.pmembers {
            return;
        }
        let share = f64::from(census.members) / f64::from(self.pmembers);
        self.tn = now + self.tn.since(now).scale(share);
        self.tp = now.before(now.since(self.tp).scale(share));
        self.pmembers = census.members;
    }

    /// A BYE came, of this size with IP and UDP, and the census counts its sources no longer.
    pub fn on_bye(&mut self, now: Time, size: Bytes, census: &Census) {
        match &mut self.leaving {
            // A member that waits to leave counts the others that leave (section 6.3.7).
            Some(leavers) => {
                *leavers = leavers.saturating_add(1);
                self.average(size);
            }
            None => self.on_departures(now, census),
        }
    }

    /// This member wants to leave, with a BYE of this size. `sent_rtp`: whether it ever sent a packet of media.
    pub fn leave(&mut self, now: Time, bye: Bytes, sent_rtp: bool, census: &Census) -> Leave {
        if !self.sent && !sent_rtp {
            self.tn = Time::NEVER;
            self.early = None;
            return Leave::Silently;
        }
        if self.counted(census).members <= BYE_AT_ONCE {
            self.tn = Time::NEVER;
            self.early = None;
            return Leave::Now;
        }
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

    /// Something happened that is worth feedback before the next regular report (RFC 4585, section 3.5.2). It stays of
    /// use for `useful`. Under the profiles without early feedback it waits for the regular report.
    pub fn request_early(&mut self, now: Time, useful: Span) -> Early {
        self.request(now, useful, None)
    }

    /// As [`Timer::request_early`], of a wish that has waited for a time of its own already, by which members that wish
    /// the same suppress each other (RFC 5401): it goes at once.
    pub fn request_dithered(&mut self, now: Time, useful: Span) -> Early {
        self.request(now, useful, Some(Span::ZERO))
    }

    fn request(&mut self, now: Time, useful: Span, dither: Option<Span>) -> Early {
        if self.leaving.is_some() || self.tn == Time::NEVER {
            return Early::TooLate;
        }
        // What is already on its way takes this along.
        if let Some(early) = self.early {
            return Early::At(early);
        }
        if self.feedback_waits {
            return Early::WithRegular(self.tn);
        }
        let is_avpf = matches!(self.config.profile, Profile::Avpf { .. });
        let longest = if self.config.point_to_point { Span::ZERO } else { self.t_rr / 2 };
        let dither = dither.unwrap_or(longest);
        if !is_avpf || now + dither > self.tn {
            self.feedback_waits = true;
            return Early::WithRegular(self.tn);
        }
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

    /// Another member's feedback says all that ours would have said: ours is not sent.
    pub fn cancel_early(&mut self) {
        self.early = None;
        self.feedback_waits = false;
    }

    /// Whether early feedback may be asked for now.
    pub const fn allows_early(&self) -> bool {
        self.allow_early
    }

    /// Silence after which a member no longer counts: 5 · Td, with the whole minimum and as if oneself were no sender
    /// (RFC 3550, section 6.3.5; RFC 4585, section 3.5.4).
    pub fn member_timeout(&self, census: &Census) -> Span {
        let t_min = match self.config.profile {
            Profile::Avpf { t_rr_interval } if !t_rr_interval.is_zero() => t_rr_interval,
            // A reduced minimum of ours isn't known to the others.
            profile => profile.minimum().max(self.config.t_min),
        };
        let t_min = if self.idle && self.rests_when_idle() { t_min.max(IDLE) } else { t_min };
        let inputs = IntervalInputs { we_sent: false, initial: false, t_min, ..self.inputs(census) };
        inputs.deterministic() * 5
    }

    /// Silence after which a sender counts as a receiver: 2 · T; with AVPF at least its first second, since two
    /// intervals can be shorter there than the pause between two frames.
    pub fn sender_timeout(&self) -> Span {
        match self.config.profile {
            Profile::Avpf { .. } => (self.t_rr * 2).max(self.config.profile.minimum()),
            _ => self.t_rr * 2,
        }
    }

    /// The source has told the mean size of the group's RTCP packets, in bytes with IP and UDP (RFC 5760, section 9.2).
    pub fn on_told_size(&mut self, size: f64) {
        self.avg_size = size;
    }

    /// Mean size of the RTCP packets sent and received, in bytes with IP and UDP.
    pub const fn avg_size(&self) -> f64 {
        self.avg_size
    }

    /// What the interval would be computed from at this moment.
    pub fn inputs(&self, census: &Census) -> IntervalInputs {
        let census = self.counted(census);
        let avpf = matches!(self.config.profile, Profile::Avpf { .. });
        // AVPF's second before the first report isn't halved (RFC 4585, section 3.5.1).
        let t_min = match (avpf, self.config.point_to_point, self.initial) {
            _ if self.idle && self.rests_when_idle() => IDLE.max(self.config.t_min),
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
        let due = self.tn;
        let too_recent = match (self.config.profile, self.t_rr_last) {
            (Profile::Avpf { t_rr_interval }, Some(last)) if !t_rr_interval.is_zero() => {
                last + t_rr_interval.scale(self.chance.between(0.5, 1.5)) > due
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
        self.allow_early = true;
        self.initial = false;
        self.tp = now;
        // Drawn afresh: the interval that passed reconsideration is biased by having passed (RFC 3550, A.7).
        self.t_rr = self.draw(census);
        self.tn = now + self.t_rr;
        expiry
    }

    fn send_early(&mut self) -> Expiry {
        self.early = None;
        self.allow_early = false;
        self.sent = true;
        // One regular packet is skipped, so that early feedback costs no more than regular would have.
        let skipped = self.tn;
        self.tn = self.tp + self.t_rr * 2;
        self.tp = skipped;
        Expiry::SendFeedback
    }
}
