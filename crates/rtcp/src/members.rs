//! The members of a session (RFC 3550, sections 6.2.1, 6.3.3 to 6.3.7 and 8.2).

use std::collections::{BTreeMap, BTreeSet};
use steadycast_units::{Span, Time};

/// The numbers of members and senders. The RTCP interval is computed from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Census {
    /// The number of members, including this participant.
    pub members: u32,
    /// The number of members that send media, including this participant if it sends.
    pub senders: u32,
    /// Whether this participant sends media.
    pub we_sent: bool,
}

impl Census {
    /// Returns the census of a session whose only member is this participant, which has not sent media.
    pub const fn alone() -> Self {
        Self { members: 1, senders: 0, we_sent: false }
    }
}

/// A host's address, represented by a number that the owner of the sockets assigns. Equal addresses have equal numbers.
/// Ports are not part of the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin(pub u64);

/// A conflict: two addresses use the same SSRC (RFC 3550, section 8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Another participant uses our SSRC. The caller sends a BYE for this SSRC, chooses another one
    /// ([`Members::renew`]) and ignores the packet.
    WithUs,
    /// Our own packets are looped back. The caller ignores them.
    Loop,
    /// Two other participants use the same SSRC, or a member's packets are looped back. The first address keeps the
    /// SSRC.
    WithMember,
}

/// The status of a source after a packet from it has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceStatus {
    /// The source was a member before this packet.
    Member,
    /// The source has become a member by this packet.
    Joined,
    /// This is the source's first packet. One more packet or a CNAME makes it a member (RFC 3550, section 6.2.1).
    Unproven,
    /// The source has sent a BYE. The packet was delayed in the network and is ignored.
    Gone,
    /// The source is not in the sample that represents a large group ([`Members::sampled`]).
    Unsampled,
    /// The table is full of members, or already has [`Members::PER_ADDRESS`] entries of this address.
    Refused,
    /// The packet is part of an SSRC conflict and is not used.
    Conflict(Conflict),
}

#[derive(Clone, Debug)]
struct Member {
    /// The address from which the source's media arrives. For a source without media, it is the address of its first
    /// packet.
    from: Origin,
    /// Whether media has arrived from that address.
    has_media: bool,
    /// The time at which the last packet arrived. For an entry that is not counted, the time since which it is not
    /// counted.
    last_packet: Time,
    /// The arrival of the source's last media packet. `None` if it is not a sender.
    sent: Option<Time>,
    cname: Option<Box<str>>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unproven,
    Proven,
    Gone,
}

/// The member table, bounded in size.
///
/// A source from which only one packet has arrived is not counted, and neither is a source that has sent a BYE. When
/// the table is full, these entries are removed first, beginning with the oldest. A table that is full of members
/// refuses new sources. The number of entries per address is limited, because forged SSRCs would lengthen the report
/// interval of all members and could silence a group.
#[derive(Clone, Debug, Default)]
pub struct Members {
    /// Our own SSRC.
    own: u32,
    /// The time at which we last sent media. `None` if we are not a sender.
    own_sent: Option<Time>,
    /// The maximum number of entries.
    capacity: usize,
    /// The members by SSRC. They are boxed because a B-tree node has room for eleven entries, and most tables have only
    /// one.
    table: BTreeMap<u32, Box<Member>>,
    addresses: Addresses,
    /// Entries that are not counted, the oldest first: sources on probation and those that have sent a BYE.
    uncounted: BTreeSet<(Time, u32)>,
    /// Two lower bounds: the arrival of the last packet over all entries, and the arrival of the last media packet over
    /// all senders. While neither bound has timed out, no entry has timed out, so the table need not be scanned.
    earliest: (Time, Time),
    /// The number of members in the table, without ourselves.
    proven: u32,
    /// The number of senders among these members.
    senders: u32,
    /// The addresses that have used our own SSRC, each with the arrival of the last packet from it.
    conflicts: BTreeMap<Origin, Time>,
    /// The number of packets from sources for which the table had no room.
    refused: u64,
    sample: Option<Sample>,
    /// The SSRCs in the table that are outside the sample: senders, and entries that are not counted. The list may also
    /// contain some SSRCs that have been removed from the table. In a large group nearly every report is from a source
    /// outside the table, and this list avoids the look-up.
    outside_sample: SmallSsrcSet,
    /// The source of the last media packet, its address, and the arrival of the packet. Consecutive packets usually
    /// have the same source, so this cache avoids look-ups. The arrival is written to the table before the table is
    /// read.
    last_media: Option<(u32, Origin, Time)>,
    /// The number of receivers that the source distributes (RFC 5760, section 7.1.12).
    reported_receivers: Option<u32>,
    /// See [`Members::authenticated`].
    authenticated: bool,
}

/// SSRC sampling for groups larger than the member table (RFC 2762).
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Only members whose SSRC equals `key` in the lowest `bits` bits are kept. Each of them represents 2^`bits`
    /// members.
    key: u32,
    bits: u32,
    /// A lower bound of the census, and the time at which this bound ends. Lowering `bits` enlarges the sample, but its
    /// new members are counted only after they have sent a report. Until then the census does not fall below the count
    /// from before the change.
    held: Option<(u32, Time)>,
}

impl Sample {
    const MAX_BITS: u32 = 20;

    fn keeps(&self, ssrc: u32) -> bool {
        (ssrc ^ self.key) & ((1 << self.bits) - 1) == 0
    }
}

/// A set of up to four SSRCs. When more have been added, every SSRC counts as possibly in the set.
#[derive(Clone, Copy, Debug, Default)]
struct SmallSsrcSet {
    few: [u32; 4],
    n: u32,
}

impl SmallSsrcSet {
    fn push(&mut self, ssrc: u32) {
        if let Some(place) = self.few.get_mut(self.n as usize) {
            *place = ssrc;
        }
        self.n += 1;
    }

    /// Returns false only if `ssrc` is certainly not in the set.
    fn may_contain(&self, ssrc: u32) -> bool {
        self.few.get(..self.n as usize).is_none_or(|few| few.contains(&ssrc))
    }
}

/// The largest number of remembered addresses that have used our SSRC. They show whether a conflict is a loop or a
/// collision.
const MAX_CONFLICTS: usize = 64;

/// The kind of packet by which the presence of a source is observed.
#[derive(Clone, Copy)]
enum PacketKind {
    Rtp,
    Rtcp,
}

impl Members {
    /// Default capacity of the table.
    pub const CAPACITY: usize = 16_384;

    /// The largest number of entries per address. It is enough for the receivers of one host, or behind one NAT.
    pub const PER_ADDRESS: u32 = 64;

    /// The largest number of members that one address can add to the census.
    pub const COUNTED: u32 = 16;

    /// Creates the table of a session whose only member is this participant, with the SSRC `own`.
    pub fn new(own: u32) -> Self {
        Self::with_capacity(own, Self::CAPACITY)
    }

    /// Creates a table for up to `capacity` other sources, whether or not they are members.
    pub fn with_capacity(own: u32, capacity: usize) -> Self {
        Self { own, capacity, ..Self::default() }
    }

    /// Creates a table that counts a group larger than `capacity` by a sample (RFC 2762), instead of refusing members.
    ///
    /// The count is exact up to `capacity`. Above it, the standard error is 1/√`capacity` to 1.6 times that. Senders
    /// are always kept. `key` selects the sample, and has to be random and secret. With the key, an attacker could
    /// forge SSRCs that are all in the sample, and each of them would represent many members.
    pub fn sampled(own: u32, key: u32, capacity: usize) -> Self {
        let sample = Some(Sample { key, bits: 0, held: None });
        Self { sample, ..Self::with_capacity(own, capacity) }
    }

    /// Sets whether packets are authenticated by a key of the source. If they are, one packet is enough to make a
    /// source a member.
    #[must_use]
    pub fn authenticated(self, authenticated: bool) -> Self {
        Self { authenticated, ..self }
    }

    /// Handles the group size that the source distributes (RFC 5760, section 7.1.12). In such a session, receivers do
    /// not observe each other. Returns the number by which the census has shrunk.
    pub fn on_group_size(&mut self, receivers: u32) -> u32 {
        let before = self.census().members;
        self.reported_receivers = Some(receivers);
        before.saturating_sub(self.census().members)
    }

    /// Returns the last number of receivers that the source has distributed.
    pub const fn reported_receivers(&self) -> Option<u32> {
        self.reported_receivers
    }

    /// Returns the SSRC of this participant.
    pub const fn own(&self) -> u32 {
        self.own
    }

    /// Changes the SSRC of this participant to `own` after a collision.
    pub fn renew(&mut self, own: u32) {
        self.forget(own);
        self.own = own;
    }

    /// Handles a media packet that this participant has sent.
    pub fn on_own_rtp(&mut self, now: Time) {
        self.own_sent = Some(now);
    }

    /// Handles a media packet. If the source's sequence numbers have been validated (`valid`; RFC 3550, appendix A.1),
    /// the source becomes a member with its first packet.
    pub fn on_rtp(&mut self, now: Time, ssrc: u32, from: Origin, valid: bool) -> SourceStatus {
        if let Some((playing, place, at)) = &mut self.last_media
            && (*playing, *place) == (ssrc, from)
        {
            *at = now;
            return SourceStatus::Member;
        }
        self.flush_last_media();
        let status = self.observe(now, ssrc, from, PacketKind::Rtp, valid);
        if status == SourceStatus::Member {
            self.last_media = Some((ssrc, from, now));
        }
        status
    }

    /// Writes the cached arrival of the last media packet to the table.
    fn flush_last_media(&mut self) {
        if let Some((ssrc, _, at)) = self.last_media.take()
            && let Some(member) = self.table.get_mut(&ssrc)
        {
            member.last_packet = member.last_packet.max(at);
            member.sent = member.sent.max(Some(at));
        }
    }

    /// Handles a report, an APP packet or feedback from a source.
    pub fn on_rtcp(&mut self, now: Time, ssrc: u32, from: Origin) -> SourceStatus {
        self.observe(now, ssrc, from, PacketKind::Rtcp, self.authenticated)
    }

    /// Handles a CNAME, which makes its source a member. A CNAME of more than 255 bytes is cut.
    pub fn on_cname(&mut self, now: Time, ssrc: u32, from: Origin, cname: &str) -> SourceStatus {
        let status = self.observe(now, ssrc, from, PacketKind::Rtcp, true);
        if matches!(status, SourceStatus::Member | SourceStatus::Joined)
            && let Some(member) = self.table.get_mut(&ssrc)
        {
            // RTCP limits a CNAME to 255 bytes, and the cut must not split a character.
            let end = (0..=cname.len().min(255)).rev().find(|&end| cname.is_char_boundary(end));
            let cname = &cname[..end.unwrap_or(0)];
            if member.cname.as_deref() != Some(cname) {
                member.cname = Some(cname.into());
            }
        }
        status
    }

    /// Whether `from` is the address of the source `ssrc`, or this source is unknown.
    pub fn speaks_from(&self, ssrc: u32, from: Origin) -> bool {
        self.table.get(&ssrc).is_none_or(|member| member.from == from)
    }

    /// Handles a BYE. Returns true if the source was counted and the BYE is from the source's address
    /// ([`Members::speaks_from`]). In this case [`Timer::on_bye`](crate::Timer::on_bye) has to be called. Later packets
    /// of the source are ignored until it would have timed out.
    pub fn on_bye(&mut self, now: Time, ssrc: u32, from: Origin) -> bool {
        self.flush_last_media();
        if !self.speaks_from(ssrc, from) {
            return false;
        }
        let Some(member) = self.table.get_mut(&ssrc) else {
            return false;
        };
        let counted = member.state == State::Proven;
        match member.state {
            State::Proven => {
                self.proven -= 1;
                self.senders -= u32::from(member.sent.is_some());
            }
            State::Unproven | State::Gone => {
                self.uncounted.remove(&(member.last_packet, ssrc));
            }
        }
        // The SSRC stays in the table for the length of a time-out. Otherwise a packet that arrives after the BYE,
        // because the network delayed it, would make the source a member again (RFC 3550, section 6.2.1).
        member.state = State::Gone;
        member.sent = None;
        member.last_packet = now;
        self.uncounted.insert((now, ssrc));
        counted
    }

    /// Removes members from which no packet has arrived for the time `member`. Senders from which no media has arrived
    /// for the time `sender` become receivers (RFC 3550, section 6.3.5). Both times are the time-outs of
    /// [`Timer`](crate::Timer). The method has to be called at least once per RTCP interval. Returns the number of
    /// counted members that were removed.
    pub fn expire(&mut self, now: Time, member: Span, sender: Span) -> u32 {
        self.flush_last_media();
        let before = self.census().members;
        let silent = |last: Time, limit: Span| now.since(last) > limit;
        let (uncounted, mut departed, mut retired) = (&mut self.uncounted, 0, 0);
        if silent(self.earliest.0, member) || silent(self.earliest.1, sender) {
            // This pass over the table also computes the new lower bounds, so that the next calls need no pass.
            let (mut heard, mut sent) = (now, now);
            let addresses = &mut self.addresses;
            self.table.retain(|&ssrc, it| {
                if it.sent.is_some_and(|at| silent(at, sender)) {
                    it.sent = None;
                    retired += 1;
                }
                let keep = !silent(it.last_packet, member);
                match it.state {
                    _ if keep => {
                        heard = heard.min(it.last_packet);
                        sent = sent.min(it.sent.unwrap_or(now));
                    }
                    State::Proven => {
                        departed += 1;
                        retired += u32::from(it.sent.is_some());
                    }
                    State::Unproven | State::Gone => {
                        uncounted.remove(&(it.last_packet, ssrc));
                    }
                }
                if !keep {
                    addresses.leave(it.from);
                }
                keep
            });
            self.earliest = (heard, sent);
        }
        self.proven -= departed;
        self.senders -= retired;
        self.adjust_sample(now, member, before);
        if self.own_sent.is_some_and(|at| silent(at, sender)) {
            self.own_sent = None;
        }
        // By RFC 3550, section 8.2, a loop is forgotten after ten intervals. A member's time-out is five intervals.
        self.conflicts.retain(|_, &mut at| !silent(at, member * 2));
        departed
    }

    /// Returns the current census. It is an estimate if the group is sampled.
    pub fn census(&self) -> Census {
        let we_sent = self.own_sent.is_some();
        let bits = self.sample.map_or(0, |sample| sample.bits);
        let counted = (self.proven - self.senders).saturating_sub(self.addresses.beyond);
        // Each sampled member represents 2^bits members. All senders are in the table, so each of them counts once.
        let others = self.senders + (counted << bits);
        let held = self.sample.and_then(|sample| sample.held).map_or(0, |(members, _)| members);
        let told = self.reported_receivers.map_or(0, |receivers| receivers.saturating_add(self.senders));
        Census { members: (others + 1).max(held).max(told), senders: self.senders + u32::from(we_sent), we_sent }
    }

    /// Returns the SSRCs of the other members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.table.iter().filter(|(_, member)| member.state == State::Proven).map(|(&ssrc, _)| ssrc)
    }

    /// Whether `ssrc` is another member.
    pub fn contains(&self, ssrc: u32) -> bool {
        self.table.get(&ssrc).is_some_and(|member| member.state == State::Proven)
    }

    /// Returns the CNAME of a member.
    pub fn cname(&self, ssrc: u32) -> Option<&str> {
        self.table.get(&ssrc)?.cname.as_deref()
    }

    /// Returns the number of entries, whether or not they are members. It never exceeds the capacity.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether the table has no entries.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns the number of packets from sources for which the table had no room.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    fn observe(&mut self, now: Time, ssrc: u32, from: Origin, kind: PacketKind, proves: bool) -> SourceStatus {
        if ssrc == self.own {
            return SourceStatus::Conflict(self.on_own_ssrc(now, from));
        }
        if matches!(kind, PacketKind::Rtcp)
            && self.sample.is_some_and(|sample| !sample.keeps(ssrc))
            && !self.outside_sample.may_contain(ssrc)
        {
            return SourceStatus::Unsampled;
        }
        let Some(member) = self.table.get_mut(&ssrc) else {
            return self.admit(now, ssrc, from, kind, proves);
        };
        let media = matches!(kind, PacketKind::Rtp);
        // The address of the media is kept. If an RTCP packet or media from a second address could change it, anyone
        // who knows the SSRC could take the source over (RFC 3550, section 8.2).
        if member.from != from {
            if !media || member.has_media {
                return SourceStatus::Conflict(Conflict::WithMember);
            }
            // Until now only RTCP has arrived from this SSRC, and RTCP is easy to forge. The first media packet
            // therefore sets the source's address, and the CNAME from the earlier address is discarded.
            if member.state != State::Proven {
                self.uncounted.remove(&(member.last_packet, ssrc));
                member.state = State::Proven;
                self.proven += 1;
            }
            self.addresses.leave(member.from);
            self.addresses.enter(from);
            (member.from, member.cname) = (from, None);
        }
        member.has_media |= media;
        let status = match member.state {
            State::Gone => return SourceStatus::Gone,
            State::Proven => SourceStatus::Member,
            State::Unproven => {
                self.uncounted.remove(&(member.last_packet, ssrc));
                member.state = State::Proven;
                self.proven += 1;
                SourceStatus::Joined
            }
        };
        member.last_packet = now;
        if media {
            self.senders += u32::from(member.sent.is_none());
            member.sent = Some(now);
        }
        status
    }

    fn admit(&mut self, now: Time, ssrc: u32, from: Origin, kind: PacketKind, proven: bool) -> SourceStatus {
        if self.addresses.of(from) >= Self::PER_ADDRESS {
            self.refused += 1;
            return SourceStatus::Refused;
        }
        loop {
            // Senders are few, and receivers report on them, so sampling never excludes them.
            if matches!(kind, PacketKind::Rtcp) && self.sample.is_some_and(|sample| !sample.keeps(ssrc)) {
                return SourceStatus::Unsampled;
            }
            if self.table.len() < self.capacity {
                break;
            }
            if let Some((_, earliest)) = self.uncounted.pop_first() {
                self.remove(earliest);
            } else if !self.halve_sample() {
                self.refused += 1;
                return SourceStatus::Refused;
            }
        }
        let has_media = matches!(kind, PacketKind::Rtp);
        let state = if proven { State::Proven } else { State::Unproven };
        let sent = (has_media && proven).then_some(now);
        self.senders += u32::from(sent.is_some());
        if self.sample.is_some_and(|sample| !sample.keeps(ssrc)) {
            self.outside_sample.push(ssrc);
        }
        self.addresses.enter(from);
        let member = Member { from, has_media, last_packet: now, sent, cname: None, state };
        self.table.insert(ssrc, Box::new(member));
        if proven {
            self.proven += 1;
            return SourceStatus::Joined;
        }
        self.uncounted.insert((now, ssrc));
        SourceStatus::Unproven
    }

    /// Halves the sample. Returns false if there is no sample, if it can't be halved, or if halving would remove no
    /// member. Halving removes about half of random SSRCs. If it would remove none, the SSRCs were chosen to fit the
    /// key, and to double their weight would overestimate the group.
    fn halve_sample(&mut self) -> bool {
        let Some(sample) = self.sample.as_mut().filter(|sample| sample.bits < Sample::MAX_BITS) else {
            return false;
        };
        let halved = Sample { bits: sample.bits + 1, ..*sample };
        if self.table.iter().all(|(&ssrc, member)| halved.keeps(ssrc) || member.sent.is_some()) {
            return false;
        }
        *sample = halved;
        let (sample, mut left_out) = (halved, 0);
        let addresses = &mut self.addresses;
        self.table.retain(|&ssrc, member| {
            let keep = sample.keeps(ssrc) || member.sent.is_some();
            left_out += u32::from(!keep && member.state == State::Proven);
            if !keep {
                addresses.leave(member.from);
            }
            keep
        });
        self.uncounted.retain(|(_, ssrc)| self.table.contains_key(ssrc));
        self.proven -= left_out;
        self.find_outside_sample(sample);
        true
    }

    fn find_outside_sample(&mut self, sample: Sample) {
        self.outside_sample = SmallSsrcSet::default();
        for ssrc in self.table.keys().filter(|ssrc| !sample.keeps(**ssrc)) {
            self.outside_sample.push(*ssrc);
        }
    }

    /// Enlarges the sample if the group has shrunk, and removes senders outside the sample that have stopped sending.
    /// `before` is the census before members were removed.
    fn adjust_sample(&mut self, now: Time, member_timeout: Span, before: u32) {
        let Some(sample) = &mut self.sample else {
            return;
        };
        if sample.held.is_some_and(|(_, until)| now >= until) {
            sample.held = None;
        }
        let others = u64::from(self.proven - self.senders) << sample.bits;
        let room = self.capacity as u64 * 3 / 4;
        let fitting = (0..sample.bits).find(|&bits| others <= room << bits);
        // While the old count is used as a lower bound, the census of the present sample is not complete yet, so the
        // sample is not enlarged again.
        if let (Some(bits), None) = (fitting, sample.held) {
            // The time-out is five intervals. After two intervals, the members that are new in the larger sample have
            // sent a report.
            sample.held = Some((before, now + member_timeout * 2 / 5));
            sample.bits = bits;
        }
        if sample.bits == 0 {
            // The sample includes every SSRC.
            self.outside_sample = SmallSsrcSet::default();
            return;
        }
        let (sample, mut left_out) = (*sample, 0);
        let addresses = &mut self.addresses;
        self.table.retain(|&ssrc, member| {
            let keep = sample.keeps(ssrc) || member.sent.is_some() || member.state != State::Proven;
            left_out += u32::from(!keep);
            if !keep {
                addresses.leave(member.from);
            }
            keep
        });
        self.proven -= left_out;
        self.find_outside_sample(sample);
    }

    fn on_own_ssrc(&mut self, now: Time, from: Origin) -> Conflict {
        if let Some(at) = self.conflicts.get_mut(&from) {
            *at = now;
            return Conflict::Loop;
        }
        // The list is limited, because an attacker can forge any number of addresses.
        if self.conflicts.len() >= MAX_CONFLICTS {
            let oldest = self.conflicts.iter().min_by_key(|(_, at)| **at).map(|(&from, _)| from);
            oldest.map(|from| self.conflicts.remove(&from));
        }
        self.conflicts.insert(from, now);
        Conflict::WithUs
    }

    fn forget(&mut self, ssrc: u32) {
        self.flush_last_media();
        let Some(member) = self.remove(ssrc) else {
            return;
        };
        match member.state {
            State::Proven => {
                self.proven -= 1;
                self.senders -= u32::from(member.sent.is_some());
            }
            State::Unproven | State::Gone => {
                self.uncounted.remove(&(member.last_packet, ssrc));
            }
        }
    }

    /// Removes an entry from the table.
    fn remove(&mut self, ssrc: u32) -> Option<Box<Member>> {
        let member = self.table.remove(&ssrc)?;
        self.addresses.leave(member.from);
        Some(member)
    }
}

/// Counts the table's entries per address.
#[derive(Clone, Debug, Default)]
struct Addresses {
    entries: BTreeMap<Origin, u32>,
    /// The number of entries beyond the first [`Members::COUNTED`] entries of their address.
    beyond: u32,
}

impl Addresses {
    fn of(&self, from: Origin) -> u32 {
        self.entries.get(&from).copied().unwrap_or(0)
    }

    fn enter(&mut self, from: Origin) {
        let n = self.entries.entry(from).or_default();
        *n += 1;
        self.beyond += u32::from(*n > Members::COUNTED);
    }

    fn leave(&mut self, from: Origin) {
        let Some(n) = self.entries.get_mut(&from) else { return };
        self.beyond -= u32::from(*n > Members::COUNTED);
        *n -= 1;
        if *n == 0 {
            self.entries.remove(&from);
        }
    }
}
