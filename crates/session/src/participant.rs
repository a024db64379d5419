//! What a sender and a receiver of a session have in common: an identity, and RTCP's timing and members.

use std::collections::VecDeque;
use steadycast_control::promise::WITHIN_MTU;
use steadycast_control::{Check, Wake};
use steadycast_rtcp::{
    Census, Conflict, Early, Expiry, Leave, Members, Origin, Profile, SourceStatus, Timer, TimerConfig,
};
use steadycast_units::{Bytes, Chance, Rate, Span, Time};
use steadycast_wire::IP_UDP_OVERHEAD;
use steadycast_wire::rtcp::{Compound, GroupSize, Packet, ReportBlock};

/// The names of a participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Synchronisation source (RFC 3550, section 3).
    pub ssrc: u32,
    /// Canonical name (RFC 3550, section 6.5.1).
    pub cname: String,
}

/// How RTCP is timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RtcpSettings {
    /// The rules of timing.
    pub profile: Profile,
    /// The session bandwidth, of which RTCP may take 5 %.
    pub session_bandwidth: Rate,
    /// Least interval; `None`: the profile's own.
    pub t_min: Option<Span>,
    /// Whether there can be more than one receiver.
    pub group: bool,
    /// Whether a group's receivers report to the sender alone, which tells them how many they are (RFC 5760, section
    /// 7): what source-specific multicast needs, and very large groups.
    pub summary: bool,
    /// Whether the other end has shown who it is: what comes of it makes it a member at once. Browsers give no names,
    /// and ask for a key frame in their first compound.
    pub authenticated: bool,
    /// The largest IP packet that the path carries.
    pub mtu: Bytes,
}

impl RtcpSettings {
    /// Settings for one receiver on a path of Ethernet's MTU, with the profile's own least interval.
    pub const fn new(profile: Profile, session_bandwidth: Rate) -> Self {
        let mtu = Bytes::new(1500);
        Self { profile, session_bandwidth, t_min: None, group: false, summary: false, authenticated: false, mtu }
    }

    /// The most bytes of a compound, without IP and UDP.
    fn largest_compound(&self) -> usize {
        (self.mtu.min(LARGEST_DATAGRAM).get() as usize).saturating_sub(IP_UDP_OVERHEAD)
    }
}

/// What a datagram has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Its largest IP size.
    pub(crate) datagram: Bytes,
    /// Bytes of a compound's packets, without those that each compound begins with.
    pub(crate) packets: usize,
}

/// No RTCP datagram is larger: every path of IPv6 carries it (RFC 8200, section 5), and so do nearly all of IPv4.
const LARGEST_DATAGRAM: Bytes = Bytes::new(1280);

/// Members that are known one by one; of larger groups a sample is kept (RFC 2762), so that many receivers fit one
/// machine.
const MEMBERS: usize = 256;
/// Where receivers report to the sender alone, it is the one who has to know them. Receivers believe in no larger
/// group.
const ALL_MEMBERS: usize = 1 << 17;
/// The largest size of a compound, and mean size of a group's, that counts: what a datagram carries on Ethernet.
const LARGEST: u16 = 1_472;
/// In a group, whose members say much the same, another's compound counts as so many times as large as our own at the
/// most.
const LARGER: usize = 4;
/// So many that were not known before become members by one compound: its author, and another SSRC of the same host.
/// What a mixer names takes no bandwidth of its own.
const NEWCOMERS: usize = 2;

/// What a compound has of a report, a name and some words of a controller's own.
const FIRST: usize = 84;

/// Over how many seconds RTCP's share is taken.
const SHARE_WINDOW: u64 = 30;

/// What a compound is good for, as far as who sent it is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// To be used.
    Good,
    /// It is of one who has left, who uses another's SSRC, or our own, come back: to be ignored.
    Ignored,
    /// Someone else uses our SSRC: to be ignored, and we take another.
    Collision,
}

impl Standing {
    pub(crate) const fn of(heard: SourceStatus) -> Self {
        match heard {
            SourceStatus::Conflict(Conflict::WithUs) => Self::Collision,
            SourceStatus::Conflict(_) | SourceStatus::Gone => Self::Ignored,
            _ => Self::Good,
        }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Collision, _) | (_, Self::Collision) => Self::Collision,
            (Self::Ignored, _) | (_, Self::Ignored) => Self::Ignored,
            _ => Self::Good,
        }
    }
}

/// How far a member's farewell is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// It stays.
    Stays,
    /// It wants to leave, and has not yet asked its timer when.
    Wanted,
    /// Its BYE waits its turn (RFC 3550, 6.3.7).
    Waits,
    /// It has left.
    Gone,
}

pub(crate) struct Participant {
    pub(crate) identity: Identity,
    pub(crate) members: Members,
    pub(crate) timer: Timer,
    pub(crate) farewell: Farewell,
    settings: RtcpSettings,
    /// Draws another SSRC after a collision.
    chance: Chance,
    /// SSRC given up after a collision, for which a BYE is to go.
    given_up: Option<u32>,
    /// Whether any compound was sent: a member that never sent has nothing to take back.
    spoke: bool,
    /// Our longest compound, or what a first one is taken to have.
    longest: usize,
    /// RTCP bytes heard and sent, second by second.
    heard: [u32; SHARE_WINDOW as usize],
    /// The second that `heard` was last brought up to.
    second: u64,
    started: Time,
    /// Compounds that are to leave before anything else: what did not fit into the one before them.
    outbox: VecDeque<Vec<u8>>,
    /// Packets of compounds that did not leave, since they fit into no datagram.
    refused: u64,
    /// The promise that what leaves is no larger than the path's MTU.
    mtu: Check,
}

impl Participant {
    /// `source`: it is the one that sends media.
    pub(crate) fn new(identity: Identity, settings: RtcpSettings, source: bool, chance: Chance, now: Time) -> Self {
        let mut config = TimerConfig::new(settings.profile, settings.session_bandwidth);
        if let Some(t_min) = settings.t_min {
            config = config.with_t_min(t_min);
        }
        if !settings.group {
            // RFC 3550, 6.2: in unicast all may use the reduced minimum.
            config = config.with_reduced_minimum(settings.session_bandwidth).point_to_point();
        }
        // Not the SSRC, which is public, nor the upper half of a draw, which is the SSRC after a collision.
        let key = chance.clone().bits64() as u32;
        let capacity = if source && settings.summary { ALL_MEMBERS } else { MEMBERS };
        let mut timer = Timer::with_config(config, chance.clone(), now);
        timer.on_source(now, source, &Census::alone());
        Self {
            members: Members::sampled(identity.ssrc, key, capacity).authenticated(settings.authenticated),
            identity,
            chance,
            timer,
            farewell: Farewell::Stays,
            given_up: None,
            spoke: false,
            longest: FIRST,
            settings,
            heard: [0; SHARE_WINDOW as usize],
            second: whole_seconds(now),
            started: now,
            outbox: VecDeque::new(),
            refused: 0,
            mtu: Check::new(&WITHIN_MTU),
        }
    }

    /// Whether there may be other receivers.
    pub(crate) const fn is_group(&self) -> bool {
        self.settings.group
    }

    /// Whether the group's size is told by the source.
    pub(crate) const fn summary(&self) -> bool {
        self.settings.summary
    }

    /// The source `ssrc` tells how large the group is, if it is who speaks there: whoever else could would silence the
    /// group.
    pub(crate) fn told(&mut self, now: Time, ssrc: u32, from: Origin, group: GroupSize) {
        if !(self.members.contains(ssrc) && self.members.speaks_from(ssrc, from)) {
            return;
        }
        let receivers = group.receivers.min(ALL_MEMBERS as u32);
        if self.members.on_group_size(receivers) > 0 {
            let census = self.census();
            self.timer.on_departures(now, &census);
        }
        // As the timer counts it: with IP and UDP.
        self.timer.on_told_size(f64::from(group.average.clamp(1, LARGEST)) + IP_UDP_OVERHEAD as f64);
    }

    /// What the group's members are told of it.
    pub(crate) fn group_size(&self) -> GroupSize {
        let average = (self.timer.avg_size() - IP_UDP_OVERHEAD as f64).clamp(0.0, f64::from(u16::MAX));
        GroupSize { average: average as u16, receivers: self.members.census().members.saturating_sub(1) }
    }

    pub(crate) fn census(&self) -> Census {
        self.members.census()
    }

    /// The deterministic interval Td (RFC 3550, 6.3.1) for a receiver of this session.
    pub(crate) fn interval(&self) -> Span {
        self.timer.inputs(&self.census()).deterministic()
    }

    /// Whether RTCP's own timer says that a compound goes now.
    pub(crate) fn rtcp_due(&mut self, now: Time) -> bool {
        self.expiry(now).is_some()
    }

    /// What RTCP's own timer says is to go now, if anything: a regular compound, or feedback alone.
    pub(crate) fn expiry(&mut self, now: Time) -> Option<Expiry> {
        while self.timer.next() <= now {
            self.expire_members(now);
            let census = self.census();
            match self.timer.on_expiry(now, &census) {
                Expiry::Rearm(_) | Expiry::Suppress => {}
                expiry => return Some(expiry),
            }
        }
        None
    }

    /// There is feedback that is of use for this time. False: it can't leave in time.
    pub(crate) fn request_early(&mut self, now: Time, useful: Span) -> bool {
        self.timer.request_early(now, useful) != Early::TooLate
    }

    /// As [`Participant::request_early`], of feedback that has waited for others to say the same.
    pub(crate) fn request_dithered(&mut self, now: Time, useful: Span) -> bool {
        self.timer.request_dithered(now, useful) != Early::TooLate
    }

    fn expire_members(&mut self, now: Time) {
        let census = self.census();
        let member = self.timer.member_timeout(&census);
        let sender = self.timer.sender_timeout();
        if self.members.expire(now, member, sender) > 0 {
            let census = self.census();
            self.timer.on_departures(now, &census);
        }
    }

    /// There is a source to report on from now on, or there is none any more.
    pub(crate) fn on_source(&mut self, now: Time, present: bool) {
        let census = self.census();
        self.timer.on_source(now, present, &census);
    }

    /// After how long of silence a member counts as gone.
    pub(crate) fn member_timeout(&self) -> Span {
        self.timer.member_timeout(&self.census())
    }

    pub(crate) fn wake(&self) -> Wake {
        Wake { at: self.timer.next(), why: "RTCP interval" }
    }

    /// A compound was sent, or heard of a member: it counts for the mean size and for RTCP's share.
    fn count(&mut self, now: Time, len: usize) {
        let most = if self.settings.group { self.longest * LARGER } else { LARGEST.into() };
        self.timer.on_rtcp(Bytes::new((len.min(most) + IP_UDP_OVERHEAD) as u64));
        let second = whole_seconds(now);
        for past in self.second + 1..=second.min(self.second + SHARE_WINDOW) {
            self.heard[(past % SHARE_WINDOW) as usize] = 0;
        }
        self.second = self.second.max(second);
        let bin = &mut self.heard[(self.second % SHARE_WINDOW) as usize];
        *bin = bin.saturating_add((len + IP_UDP_OVERHEAD) as u32);
    }

    /// RTCP's share of the session bandwidth over the last half minute.
    pub(crate) fn share(&self, now: Time) -> f64 {
        let window = now.since(self.started).min(Span::secs(SHARE_WINDOW)).max(Span::secs(5));
        // What is older than the window has not been overwritten when nothing was heard since.
        let silent = whole_seconds(now).saturating_sub(self.second).min(SHARE_WINDOW);
        let recent = (0..SHARE_WINDOW - silent).filter_map(|back| self.second.checked_sub(back));
        let bytes = recent.map(|second| u64::from(self.heard[(second % SHARE_WINDOW) as usize])).sum();
        Bytes::new(bytes).per(window).ratio(self.settings.session_bandwidth)
    }

    /// Members learn of each other from what they send, of `len` bytes. Returns whether the compound is to be used.
    pub(crate) fn learn(&mut self, now: Time, from: Origin, compound: &Compound, len: usize) -> Standing {
        let mut standing = Standing::Good;
        let (mut last, mut new, mut known) = (None, 0, false);
        let mut hear = |ssrc: u32, heard: &mut dyn FnMut(&mut Members) -> SourceStatus| {
            // A compound's packets are mostly of one source; what is left out of a sample stays so.
            if last == Some((ssrc, SourceStatus::Unsampled)) {
                return;
            }
            let again = last.is_some_and(|(before, _)| before == ssrc);
            if !again && new >= NEWCOMERS && !self.members.contains(ssrc) {
                return;
            }
            let heard = heard(&mut self.members);
            new += usize::from(!again && heard != SourceStatus::Member);
            known |= matches!(heard, SourceStatus::Member | SourceStatus::Joined | SourceStatus::Unsampled);
            standing = standing.and(Standing::of(heard));
            last = Some((ssrc, heard));
        };
        for packet in &compound.packets {
            match packet {
                Packet::SenderReport { ssrc, .. } | Packet::ReceiverReport { ssrc, .. } | Packet::App { ssrc, .. } => {
                    hear(*ssrc, &mut |members| members.on_rtcp(now, *ssrc, from));
                }
                Packet::Sdes { chunks } => {
                    for (ssrc, cname) in chunks {
                        hear(*ssrc, &mut |members| members.on_cname(now, *ssrc, from, cname));
                    }
                }
                _ => {}
            }
        }
        // Who is no member must not set the pace of those who are.
        if known && standing == Standing::Good {
            self.count(now, len);
        }
        standing
    }

    /// Someone else uses our SSRC: takes another (RFC 3550, 8.2). A BYE for the old one is to go: [`Self::given_up`].
    pub(crate) fn renew(&mut self) {
        let old = self.identity.ssrc;
        let mut new = self.chance.bits32();
        while new == old || self.members.contains(new) {
            new = self.chance.bits32();
        }
        self.identity.ssrc = new;
        self.members.renew(new);
        if self.spoke || self.members.census().we_sent {
            self.given_up = Some(old);
        }
    }

    /// What leaves before anything else: the rest of a compound that fit into no single datagram, or the BYE for an
    /// SSRC that was given up, which names the new one beside the old, so that all know who goes on.
    pub(crate) fn first_of_all(&mut self, now: Time) -> Option<Vec<u8>> {
        if let Some(rest) = self.outbox.pop_front() {
            return Some(rest);
        }
        let ssrc = self.given_up.take()?;
        let chunks = [ssrc, self.identity.ssrc].map(|of| (of, self.identity.cname.clone()));
        let packets = vec![
            Packet::ReceiverReport { ssrc, blocks: Vec::new() },
            Packet::Sdes { chunks: chunks.into() },
            Packet::Bye { ssrcs: vec![ssrc], reason: String::new() },
        ];
        Some(self.encode(now, packets))
    }

    /// Wants to leave.
    pub(crate) fn leave(&mut self) {
        if self.farewell == Farewell::Stays {
            self.farewell = Farewell::Wanted;
        }
    }

    /// Whether the BYE goes now. In a group of more than fifty it waits its turn, so that those who leave together do
    /// not flood the others (RFC 3550, 6.3.7). `sent_rtp`: whether media was ever sent.
    pub(crate) fn farewell_due(&mut self, now: Time, sent_rtp: bool) -> bool {
        let goes = match self.farewell {
            Farewell::Stays | Farewell::Gone => false,
            Farewell::Waits => self.rtcp_due(now),
            Farewell::Wanted => {
                let ssrc = self.identity.ssrc;
                let packets = vec![
                    Packet::ReceiverReport { ssrc, blocks: Vec::new() },
                    self.sdes(),
                    Packet::Bye { ssrcs: vec![ssrc], reason: String::new() },
                ];
                let size = Bytes::new((Compound { packets }.encoded_len() + IP_UDP_OVERHEAD) as u64);
                let census = self.census();
                match self.timer.leave(now, size, self.spoke || sent_rtp, &census) {
                    Leave::Now => true,
                    Leave::AtExpiry(_) => {
                        self.farewell = Farewell::Waits;
                        false
                    }
                    Leave::Silently => {
                        self.farewell = Farewell::Gone;
                        false
                    }
                }
            }
        };
        if goes {
            self.farewell = Farewell::Gone;
        }
        goes
    }

    /// When the BYE that waits is to be asked about again.
    pub(crate) fn farewell_wake(&self, now: Time) -> Option<Wake> {
        let at = self.timer.next().max(now + Span::nanos(1));
        (self.farewell == Farewell::Waits).then_some(Wake { at, why: "BYE in its turn" })
    }

    /// Who leaves with this compound of `len` bytes. A BYE is believed at the end of a compound that begins with a
    /// report (no session of ours allows RFC 5506's reduced size), of a source that reports in it, from where that
    /// source speaks.
    pub(crate) fn heard_byes(&mut self, now: Time, from: Origin, compound: &Compound, len: usize) -> Vec<u32> {
        let Some(Packet::Bye { .. }) = compound.packets.last() else { return Vec::new() };
        let reporter = |packet: &Packet| match packet {
            Packet::SenderReport { ssrc, .. } | Packet::ReceiverReport { ssrc, .. } => Some(*ssrc),
            _ => None,
        };
        if compound.packets.first().and_then(reporter).is_none() {
            return Vec::new();
        }
        let byes = compound.packets.iter().rev().map_while(|packet| match packet {
            Packet::Bye { ssrcs, .. } => Some(ssrcs),
            _ => None,
        });
        let mut left = Vec::new();
        for ssrc in byes.flatten().copied() {
            let reports = compound.packets.iter().any(|packet| reporter(packet) == Some(ssrc));
            if !reports || !self.members.speaks_from(ssrc, from) {
                continue;
            }
            if self.members.on_bye(now, ssrc, from) {
                let census = self.census();
                self.timer.on_bye(now, Bytes::new((len + IP_UDP_OVERHEAD) as u64), &census);
            }
            left.push(ssrc);
        }
        left
    }

    pub(crate) fn sdes(&self) -> Packet {
        Packet::Sdes { chunks: vec![(self.identity.ssrc, self.identity.cname.clone())] }
    }

    /// What a datagram has room for beside a report with one block and the SDES.
    pub(crate) fn room(&self) -> Room {
        let block = ReportBlock::default();
        let report = Packet::ReceiverReport { ssrc: self.identity.ssrc, blocks: vec![block] };
        let most = self.settings.largest_compound();
        let packets = most.saturating_sub(report.encoded_len() + self.sdes().encoded_len());
        Room { datagram: Bytes::new((most + IP_UDP_OVERHEAD) as u64), packets }
    }

    /// The packets, which begin with a report and the SDES, as a compound. What does not fit into one datagram follows
    /// in others, as [`Participant::first_of_all`] gives them; each of them begins with a report without blocks and the
    /// SDES (RFC 3550, section 6.1).
    pub(crate) fn encode(&mut self, now: Time, packets: Vec<Packet>) -> Vec<u8> {
        let most = self.settings.largest_compound();
        let mut compound = Compound { packets };
        if compound.encoded_len() <= most {
            return self.written(now, &compound);
        }
        let report = Packet::ReceiverReport { ssrc: self.identity.ssrc, blocks: Vec::new() };
        let head = [report, self.sdes()];
        let rest = compound.packets.split_off(head.len().min(compound.packets.len()));
        let mut first = None;
        for packet in rest {
            let fits = |compound: &Compound| compound.encoded_len() + packet.encoded_len() <= most;
            if !fits(&compound) {
                let next = Compound { packets: head.to_vec() };
                if !fits(&next) {
                    self.refused += 1;
                    continue;
                }
                let full = self.written(now, &std::mem::replace(&mut compound, next));
                match first {
                    None => first = Some(full),
                    Some(_) => self.outbox.push_back(full),
                }
            }
            compound.packets.push(packet);
        }
        let last = self.written(now, &compound);
        let Some(first) = first else { return last };
        self.outbox.push_back(last);
        first
    }

    fn written(&mut self, now: Time, compound: &Compound) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(compound.encoded_len());
        compound.encode(&mut bytes);
        self.spoke = true;
        self.longest = self.longest.max(bytes.len().min(LARGEST.into()));
        self.count(now, bytes.len());
        self.see_size(Bytes::new((bytes.len() + IP_UDP_OVERHEAD) as u64));
        bytes
    }

    /// IP bytes of the datagrams that wait behind the one that was just encoded.
    pub(crate) fn waiting(&self) -> Bytes {
        self.outbox.iter().map(|bytes| Bytes::new((bytes.len() + IP_UDP_OVERHEAD) as u64)).sum()
    }

    /// Packets of compounds that did not leave, since they fit into no datagram.
    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }

    /// A packet of this IP size leaves.
    pub(crate) fn see_size(&mut self, size: Bytes) {
        self.mtu.see(size <= self.settings.mtu);
    }

    /// The promise that no packet, of RTP or RTCP, is larger than the path's MTU.
    pub(crate) const fn mtu_check(&self) -> Check {
        self.mtu
    }
}

const fn whole_seconds(at: Time) -> u64 {
    at.as_nanos() / 1_000_000_000
}
