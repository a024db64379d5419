//! The parts that a session's sender and receiver have in common: identity, timing of RTCP, and the member table.

use std::collections::VecDeque;
use steadycast_control::promise::WITHIN_MTU;
use steadycast_control::{Check, Wake};
use steadycast_rtcp::{Census, Conflict, Expiry, Leave, Members, Origin, Profile, SourceStatus, Timer, TimerConfig};
use steadycast_units::{Bytes, Chance, Rate, Span, Time};
use steadycast_wire::IP_UDP_OVERHEAD;
use steadycast_wire::rtcp::{Compound, GroupSize, Packet, ReportBlock};

/// The identity of a participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The SSRC, which identifies a synchronisation source (RFC 3550, section 3).
    pub ssrc: u32,
    /// The CNAME, a canonical name (RFC 3550, section 6.5.1).
    pub cname: String,
}

/// Settings for the timing of RTCP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RtcpSettings {
    /// The timing rules.
    pub profile: Profile,
    /// The session bandwidth. RTCP can use 5 % of it.
    pub session_bandwidth: Rate,
    /// The minimum interval between reports. With `None`, the profile's minimum interval is used.
    pub t_min: Option<Span>,
    /// Whether there can be more than one receiver.
    pub group: bool,
    /// Whether receivers report only to the sender, and the sender announces the group's size (RFC 5760, section 7).
    pub summary: bool,
    /// Whether packets are authenticated. If so, the first packet of a participant makes it a member. Browsers need
    /// this, because they start with a key-frame request and send no CNAME.
    pub authenticated: bool,
    /// Whether the session runs in real time and not in a simulation. In real time a source wakes up less often
    /// ([`TimerConfig::skips_suppressed`]).
    pub real_time: bool,
    /// The MTU of the path.
    pub mtu: Bytes,
}

impl RtcpSettings {
    /// Returns settings for a unicast session on a path that has an MTU of 1500 bytes.
    pub const fn new(profile: Profile, session_bandwidth: Rate) -> Self {
        Self {
            profile,
            session_bandwidth,
            t_min: None,
            group: false,
            summary: false,
            authenticated: false,
            real_time: false,
            mtu: Bytes::new(1500),
        }
    }

    /// Returns the maximum size of a compound in bytes. IP and UDP headers are not included.
    fn largest_compound(&self) -> usize {
        (self.mtu.min(MAX_DATAGRAM).get() as usize).saturating_sub(IP_UDP_OVERHEAD)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// The maximum IP size of a datagram.
    pub(crate) datagram: Bytes,
    /// The bytes in a compound that are left for feedback after the report and the SDES.
    pub(crate) packets: usize,
}

/// The IP size that every IPv6 path supports (RFC 8200, section 5).
pub(crate) const MAX_DATAGRAM: Bytes = Bytes::new(1280);

/// Maximum size of the member table. In a larger group, a sample of the members is stored (RFC 2762).
const MAX_SAMPLED_MEMBERS: usize = 256;
/// Maximum size of the sender's member table in sessions where receivers report only to the sender. It is also the
/// maximum group size that an announcement can contain.
const MAX_MEMBERS: usize = 1 << 17;
/// Maximum size of a compound, in bytes, that the timing of RTCP assumes. It is the size of an Ethernet datagram.
const MAX_COUNTED_COMPOUND: u16 = 1_472;
/// In a group, the timing of RTCP limits the size of each compound to this multiple of this participant's longest
/// compound.
const MAX_SIZE_RATIO: usize = 4;
/// Maximum number of new members from one compound: its author and another SSRC on the same host.
const MAX_NEW_MEMBERS: usize = 2;

/// The assumed size of a compound before the first one is sent: a report, the SDES and a controller's APP packet.
const INITIAL_COMPOUND_SIZE: usize = 84;

/// The time, in seconds, over which RTCP's share of the bandwidth is measured.
const SHARE_WINDOW: u64 = 30;

/// Whether a compound is accepted. It depends on the [`SourceStatus`] of the compound's sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Good,
    /// The sender has left the session, or uses the SSRC of another member, or is this participant itself (a loop).
    Ignored,
    /// Another participant uses the SSRC of this participant. This participant then changes its SSRC.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Farewell {
    Stays,
    Wanted,
    /// The BYE waits until the RTCP timer expires (RFC 3550, section 6.3.7).
    Waits,
    Gone,
}

pub(crate) struct Participant {
    pub(crate) identity: Identity,
    pub(crate) members: Members,
    pub(crate) timer: Timer,
    pub(crate) farewell: Farewell,
    settings: RtcpSettings,
    /// Random numbers for a new SSRC after a collision.
    chance: Chance,
    /// The SSRC that was given up after a collision, if its BYE has not been sent yet.
    given_up: Option<u32>,
    /// Whether this participant has sent RTCP. If not, it needs no BYE when it leaves.
    has_sent: bool,
    /// The size of the longest compound that was sent. At the start it is an assumed size.
    longest: usize,
    /// The RTCP bytes that were received and sent, in bins of one second.
    rtcp_bytes: [u32; SHARE_WINDOW as usize],
    /// The newest second for which `rtcp_bytes` has a bin.
    second: u64,
    started: Time,
    /// Datagrams with the parts of the previous compound that did not fit into its first datagram.
    outbox: VecDeque<Vec<u8>>,
    /// Number of RTCP packets that do not fit into any datagram.
    refused: u64,
    mtu: Check,
}

impl Participant {
    pub(crate) fn new(identity: Identity, settings: RtcpSettings, source: bool, chance: Chance, now: Time) -> Self {
        let mut config = TimerConfig::new(settings.profile, settings.session_bandwidth);
        // Let only a source skip expiries of the timer, because a receiver sends its feedback when the timer expires.
        config.skips_suppressed = settings.real_time && source;
        if let Some(t_min) = settings.t_min {
            config = config.with_t_min(t_min);
        }
        if !settings.group {
            // Use the reduced minimum interval, which is allowed in unicast sessions (RFC 3550, section 6.2).
            config = config.with_reduced_minimum(settings.session_bandwidth).point_to_point();
        }
        // Keep the key of the SSRC sampling (RFC 2762) secret. A new SSRC is public and uses the upper half of the same
        // random number, so use the lower half as the key.
        let key = chance.clone().bits64() as u32;
        let capacity = if source && settings.summary { MAX_MEMBERS } else { MAX_SAMPLED_MEMBERS };
        let mut timer = Timer::new(config, chance.clone(), now);
        timer.on_source(now, source, &Census::alone());
        Self {
            members: Members::sampled(identity.ssrc, key, capacity).authenticated(settings.authenticated),
            identity,
            chance,
            timer,
            farewell: Farewell::Stays,
            given_up: None,
            has_sent: false,
            longest: INITIAL_COMPOUND_SIZE,
            settings,
            rtcp_bytes: [0; SHARE_WINDOW as usize],
            second: whole_seconds(now),
            started: now,
            outbox: VecDeque::new(),
            refused: 0,
            mtu: Check::new(&WITHIN_MTU),
        }
    }

    pub(crate) const fn is_authenticated(&self) -> bool {
        self.settings.authenticated
    }

    pub(crate) const fn is_group(&self) -> bool {
        self.settings.group
    }

    /// Returns whether the source announces the group's size to the receivers.
    pub(crate) const fn summary(&self) -> bool {
        self.settings.summary
    }

    /// Applies the group size that the source announced. Announcements by other hosts are ignored, because they could
    /// stop the reports of the group.
    pub(crate) fn on_group_size(&mut self, now: Time, ssrc: u32, from: Origin, group: GroupSize) {
        if !(self.members.contains(ssrc) && self.members.speaks_from(ssrc, from)) {
            return;
        }
        let receivers = group.receivers.min(MAX_MEMBERS as u32);
        // A smaller group means that the next report is due earlier (reverse reconsideration, RFC 3550, section 6.3.4).
        if self.members.on_group_size(receivers) > 0 {
            let census = self.census();
            self.timer.on_departures(now, &census);
        }
        // Add the IP and UDP headers, because the timer's sizes include them.
        self.timer.on_told_size(f64::from(group.average.clamp(1, MAX_COUNTED_COMPOUND)) + IP_UDP_OVERHEAD as f64);
    }

    pub(crate) fn group_size(&self) -> GroupSize {
        let census = self.census();
        let average = (self.timer.inputs(&census).avg_size - IP_UDP_OVERHEAD as f64).clamp(0.0, f64::from(u16::MAX));
        // Subtract the source's streams, because they are no receivers.
        GroupSize { average: average as u16, receivers: census.members.saturating_sub(self.members.own_streams()) }
    }

    pub(crate) fn census(&self) -> Census {
        self.members.census()
    }

    /// Returns the deterministic interval Td of a receiver (RFC 3550, section 6.3.1).
    pub(crate) fn interval(&self) -> Span {
        self.timer.inputs(&self.census()).deterministic()
    }

    pub(crate) fn rtcp_due(&mut self, now: Time) -> bool {
        self.expiry(now).is_some()
    }

    /// Returns which compound is due by the RTCP timer, or `None` if no compound is due.
    pub(crate) fn expiry(&mut self, now: Time) -> Option<Expiry> {
        while self.timer.next() <= now {
            // Remove silent members once per interval (RFC 3550, section 6.3.5).
            self.expire_members(now);
            let census = self.census();
            match self.timer.on_expiry(now, &census) {
                Expiry::Rearm | Expiry::Suppress => {}
                expiry => return Some(expiry),
            }
        }
        None
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

    /// Sets whether there is a source about which this participant reports.
    pub(crate) fn on_source(&mut self, now: Time, present: bool) {
        let census = self.census();
        self.timer.on_source(now, present, &census);
    }

    /// Returns the time of silence after which a member is removed.
    pub(crate) fn member_timeout(&self) -> Span {
        self.timer.member_timeout(&self.census())
    }

    pub(crate) fn wake(&self) -> Wake {
        Wake { at: self.timer.next(), why: "RTCP interval" }
    }

    /// Adds a compound of `len` bytes to the mean size and to RTCP's share of the bandwidth.
    fn count(&mut self, now: Time, len: usize) {
        // Limit the size, so that forged large compounds cannot slow down the group's RTCP.
        let most = if self.settings.group { self.longest * MAX_SIZE_RATIO } else { MAX_COUNTED_COMPOUND.into() };
        self.timer.on_rtcp(Bytes::new((len.min(most) + IP_UDP_OVERHEAD) as u64));
        let second = whole_seconds(now);
        // Clear the bins of seconds without RTCP, because they still contain the bytes of half a minute ago.
        for past in self.second + 1..=second.min(self.second + SHARE_WINDOW) {
            self.rtcp_bytes[(past % SHARE_WINDOW) as usize] = 0;
        }
        self.second = self.second.max(second);
        let bin = &mut self.rtcp_bytes[(self.second % SHARE_WINDOW) as usize];
        *bin = bin.saturating_add((len + IP_UDP_OVERHEAD) as u32);
    }

    /// Returns the share of the session bandwidth that RTCP used in the last half minute.
    pub(crate) fn share(&self, now: Time) -> f64 {
        // Use a window of at least 5 s. In a shorter window, a single compound would be a large share.
        let window = now.since(self.started).min(Span::secs(SHARE_WINDOW)).max(Span::secs(5));
        // Leave out the bins of silent seconds since the last compound, because they contain older bytes.
        let silent = whole_seconds(now).saturating_sub(self.second).min(SHARE_WINDOW);
        let recent = (0..SHARE_WINDOW - silent).filter_map(|back| self.second.checked_sub(back));
        let bytes = recent.map(|second| u64::from(self.rtcp_bytes[(second % SHARE_WINDOW) as usize])).sum();
        Bytes::new(bytes).per(window).ratio(self.settings.session_bandwidth)
    }

    /// Updates the member table with a compound of `len` bytes. Returns whether the compound is accepted.
    pub(crate) fn learn(&mut self, now: Time, from: Origin, compound: &Compound, len: usize) -> Standing {
        let mut standing = Standing::Good;
        let (mut last, mut new, mut known) = (None, 0, false);
        let mut hear = |ssrc: u32, heard: &mut dyn FnMut(&mut Members) -> SourceStatus| {
            // Do not look up a source outside of the sample again for each packet.
            if last == Some((ssrc, SourceStatus::Unsampled)) {
                return;
            }
            let again = last.is_some_and(|(before, _)| before == ssrc);
            if !again && new >= MAX_NEW_MEMBERS && !self.members.contains(ssrc) {
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
                    for (ssrc, _) in chunks {
                        hear(*ssrc, &mut |members| members.on_cname(now, *ssrc, from));
                    }
                }
                _ => {}
            }
        }
        // Count only compounds of members, because others must not affect the RTCP interval.
        if known && standing == Standing::Good {
            self.count(now, len);
        }
        standing
    }

    /// Changes the SSRC after a collision. The BYE for the old SSRC is sent later (RFC 3550, section 8.2).
    pub(crate) fn renew(&mut self) {
        let old = self.identity.ssrc;
        let mut new = self.chance.bits32();
        // Do not use an SSRC that another member has, because it would collide again.
        while new == old || self.members.contains(new) {
            new = self.chance.bits32();
        }
        self.identity.ssrc = new;
        self.members.renew(new);
        // Send no BYE for the old SSRC if nothing was sent with it (RFC 3550, section 6.3.7).
        if self.has_sent || self.members.census().we_sent {
            self.given_up = Some(old);
        }
    }

    /// Returns the next datagram of a split compound, or else the BYE for a former SSRC.
    pub(crate) fn pending_datagram(&mut self, now: Time) -> Option<Vec<u8>> {
        if let Some(rest) = self.outbox.pop_front() {
            return Some(rest);
        }
        let ssrc = self.given_up.take()?;
        // Send both SSRCs with the same CNAME, so that receivers see that they belong to the same participant.
        let chunks = [ssrc, self.identity.ssrc].map(|of| (of, self.identity.cname.clone()));
        let packets = vec![
            // A compound must begin with a report (RFC 3550, section 6.1).
            Packet::ReceiverReport { ssrc, blocks: Vec::new() },
            Packet::Sdes { chunks: chunks.into() },
            Packet::Bye { ssrcs: vec![ssrc], reason: String::new() },
        ];
        Some(self.encode(now, packets))
    }

    pub(crate) fn leave(&mut self) {
        if self.farewell == Farewell::Stays {
            self.farewell = Farewell::Wanted;
        }
    }

    /// Returns whether the BYE is due now. It is delayed if the group has more than fifty members (RFC 3550, section
    /// 6.3.7). `sent_rtp` is whether this participant has sent media.
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
                // For a delayed BYE, its size replaces the mean size (RFC 3550, section 6.3.7).
                let size = Bytes::new((Compound { packets }.encoded_len() + IP_UDP_OVERHEAD) as u64);
                let census = self.census();
                match self.timer.leave(now, size, self.has_sent || sent_rtp, &census) {
                    Leave::Now => true,
                    Leave::AtExpiry => {
                        self.farewell = Farewell::Waits;
                        false
                    }
                    // Send no BYE if this participant has sent nothing (RFC 3550, section 6.3.7).
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

    pub(crate) fn farewell_wake(&self, now: Time) -> Option<Wake> {
        let at = self.timer.next().max(now + Span::nanos(1));
        (self.farewell == Farewell::Waits).then_some(Wake { at, why: "BYE in its turn" })
    }

    /// Returns the sources that leave the session with this compound of `len` bytes. A source leaves only if the
    /// compound contains a report by this source and was sent from the source's address.
    pub(crate) fn read_byes(&mut self, now: Time, from: Origin, compound: &Compound, len: usize) -> Vec<u32> {
        // The BYE must be the last packet (RFC 3550, section 6.1).
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
            // Require a report and the right address. Otherwise any host could remove a member with a forged BYE.
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

    /// Returns the room for feedback in a datagram that also contains the SDES and a report with one block.
    pub(crate) fn room(&self) -> Room {
        let block = ReportBlock::default();
        let report = Packet::ReceiverReport { ssrc: self.identity.ssrc, blocks: vec![block] };
        let most = self.settings.largest_compound();
        // Do not reserve room for a second block, which audio needs. It may cause a further datagram.
        let packets = most.saturating_sub(report.encoded_len() + self.sdes().encoded_len());
        Room { datagram: Bytes::new((most + IP_UDP_OVERHEAD) as u64), packets }
    }

    /// Encodes `packets` as a compound. They must begin with a report and the SDES.
    ///
    /// Packets that do not fit are sent in further datagrams ([`Participant::pending_datagram`]). Each of these begins
    /// with an empty report and the SDES (RFC 3550, section 6.1).
    pub(crate) fn encode(&mut self, now: Time, packets: Vec<Packet>) -> Vec<u8> {
        let most = self.settings.largest_compound();
        let mut compound = Compound { packets };
        if compound.encoded_len() <= most {
            return self.written(now, &compound);
        }
        let report = Packet::ReceiverReport { ssrc: self.identity.ssrc, blocks: Vec::new() };
        let head = [report, self.sdes()];
        // Keep the report and the SDES of `packets` in the first datagram.
        let rest = compound.packets.split_off(head.len().min(compound.packets.len()));
        let mut first = None;
        for packet in rest {
            let fits = |compound: &Compound| compound.encoded_len() + packet.encoded_len() <= most;
            if !fits(&compound) {
                let next = Compound { packets: head.to_vec() };
                // Drop a packet that does not even fit into a datagram with the shortest report.
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
        self.has_sent = true;
        self.longest = self.longest.max(bytes.len().min(MAX_COUNTED_COMPOUND.into()));
        self.count(now, bytes.len());
        self.check_size(Bytes::new((bytes.len() + IP_UDP_OVERHEAD) as u64));
        bytes
    }

    /// Returns the total IP size of the datagrams that are still to be sent.
    pub(crate) fn waiting(&self) -> Bytes {
        self.outbox.iter().map(|bytes| Bytes::new((bytes.len() + IP_UDP_OVERHEAD) as u64)).sum()
    }

    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }

    pub(crate) fn check_size(&mut self, size: Bytes) {
        self.mtu.see(size <= self.settings.mtu);
    }

    /// Returns the result of the check that no RTP or RTCP packet is larger than the path's MTU.
    pub(crate) const fn mtu_check(&self) -> Check {
        self.mtu
    }
}

const fn whole_seconds(at: Time) -> u64 {
    at.as_nanos() / 1_000_000_000
}
