//! The members of a session (RFC 3550, sections 6.2.1, 6.3.3 to 6.3.7 and 8.2).

use std::collections::{BTreeMap, BTreeSet};
use steadycast_units::{Span, Time};

/// The number of members and the number of senders, from which the RTCP interval is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Census {
    /// The number of all members, including this participant.
    pub members: u32,
    /// The number of members that send media. It includes this participant if it sends media.
    pub senders: u32,
    /// Whether this participant sends media.
    pub we_sent: bool,
}

impl Census {
    /// Returns the census of a session in which this participant is alone and sends no media.
    pub const fn alone() -> Self {
        Self { members: 1, senders: 0, we_sent: false }
    }
}

/// The address of a host, without a port, as a number. Equal addresses have equal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin(pub u64);

/// A conflict in which two addresses use the same SSRC (RFC 3550, section 8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Another participant uses our SSRC. The caller has to ignore the packet, send a BYE and change our SSRC
    /// ([`Members::renew`]).
    WithUs,
    /// Our own packets are looped back to us. The packet is ignored.
    Loop,
    /// Two other participants use the same SSRC, or the packets of a member are looped back. The address that used the
    /// SSRC first keeps the SSRC.
    WithMember,
}

/// The status of a source after one of its packets was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceStatus {
    /// The source was already a member.
    Member,
    /// This packet has made the source a member.
    Joined,
    /// This was the first packet of the source. A second packet or a CNAME makes it a member (RFC 3550, section 6.2.1).
    Unproven,
    /// The source has sent a BYE. The packet was delayed and is ignored.
    Gone,
    /// The group is large, and the SSRC is not in the sample of SSRCs that are stored ([`Members::sampled`]).
    Unsampled,
    /// The table is full and a smaller sample would remove no entry, or the address already has
    /// [`Members::PER_ADDRESS`] entries.
    Refused,
    /// The packet is part of an SSRC conflict and is ignored.
    Conflict(Conflict),
}

#[derive(Clone, Debug)]
struct Member {
    /// The address from which the media of the source arrives. Before the first media packet, the address of the first
    /// packet.
    from: Origin,
    has_media: bool,
    /// When the last packet arrived. If the entry does not count as a member, this is when it stopped counting or was
    /// added.
    last_packet: Time,
    /// When the last media packet arrived. `None` if the source is not a sender.
    sent: Option<Time>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unproven,
    Proven,
    Gone,
}

/// A table of the members, whose size is limited.
///
/// If the table is full, it removes sources that are not members. These are sources that have sent only one packet, and
/// sources that have sent a BYE. If there are no such sources, the table halves its sample of the members (RFC 2762).
///
/// The number of entries per address is limited too. Otherwise, forged SSRCs would lengthen the report interval of all
/// members.
#[derive(Clone, Debug, Default)]
pub struct Members {
    own: u32,
    /// See [`Members::set_further_streams`].
    further_streams: u32,
    /// When we last sent media. `None` if we are not a sender.
    own_sent: Option<Time>,
    capacity: usize,
    /// The entries by SSRC. They are boxed because a B-tree node reserves room for eleven entries, and most tables have
    /// one entry.
    table: BTreeMap<u32, Box<Member>>,
    addresses: Addresses,
    /// The entries that do not count as members: sources on probation, and sources that have sent a BYE. The oldest
    /// entry is first.
    uncounted: BTreeSet<(Time, u32)>,
    /// Lower bounds of `last_packet` and of `sent` in all entries. [`Members::expire`] searches the table only if one
    /// of the bounds has timed out.
    earliest: (Time, Time),
    /// The number of members in the table. We ourselves are not in the table.
    proven: u32,
    /// The number of members in the table that send media. We ourselves are not in the table.
    senders: u32,
    /// The addresses that have used our SSRC. Each has the time at which its last packet arrived.
    conflicts: BTreeMap<Origin, Time>,
    sample: Sample,
    /// The SSRCs in the table that are not in the sample. An SSRC that is neither in this set nor in the sample is not
    /// in the table, so it needs no look-up.
    outside_sample: SmallSsrcSet,
    /// The source, the address and the arrival of the last media packet. This cache saves look-ups. It is written to
    /// the table before the table is read.
    last_media: Option<(u32, Origin, Time)>,
    /// The number of receivers that the source has announced (RFC 5760, section 7.1.12).
    reported_receivers: Option<u32>,
    /// See [`Members::authenticated`].
    authenticated: bool,
}

/// A sample of SSRCs, for groups that are larger than the member table (RFC 2762). In smaller groups it has all SSRCs.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    /// A member is stored if its SSRC equals this key in the lowest `bits` bits.
    key: u32,
    /// The number of bits that are compared. Each stored member represents 2^`bits` members.
    bits: u32,
    /// Set after the sample has been enlarged: a lower bound of the number of members, and the time until which it
    /// applies. By then, the members that are new in the sample have reported.
    held: Option<(u32, Time)>,
}

impl Sample {
    const MAX_BITS: u32 = 20;

    fn keeps(&self, ssrc: u32) -> bool {
        (ssrc ^ self.key) & ((1 << self.bits) - 1) == 0
    }
}

/// A set of SSRCs that stores at most four. If it has more, [`SmallSsrcSet::may_contain`] is always true.
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

/// Maximum number of stored addresses that have used our SSRC. They are needed to distinguish a loop from a collision.
const MAX_CONFLICTS: usize = 64;

#[derive(Clone, Copy)]
enum PacketKind {
    Rtp,
    Rtcp,
}

impl Members {
    /// Maximum number of entries per address. It is enough for the receivers on one host, or for those behind one NAT.
    pub const PER_ADDRESS: u32 = 64;

    /// Maximum number of members that count in the census per address.
    pub const COUNTED: u32 = 16;

    /// Creates the table of a session in which this participant is alone. `own` is its SSRC. The table has at most
    /// `capacity` entries, and sources that are not members count too.
    ///
    /// In a group larger than `capacity`, the table stores only a sample of the members (RFC 2762), and the number of
    /// members is an estimate. The estimate's relative standard error is between 1/√`capacity` and 1.6/√`capacity`.
    /// Senders are always stored. `key` has to be random and secret. Otherwise, forged SSRCs in the sample could
    /// represent many members.
    pub fn sampled(own: u32, key: u32, capacity: usize) -> Self {
        Self { own, capacity, sample: Sample { key, ..Sample::default() }, ..Self::default() }
    }

    /// Sets whether packets are authenticated. If they are, a source becomes a member with its first packet.
    #[must_use]
    pub fn authenticated(self, authenticated: bool) -> Self {
        Self { authenticated, ..self }
    }

    /// Sets the number of this participant's SSRCs for further streams such as audio, without its own SSRC. Each of
    /// them sends reports. So each counts as a member, and as a sender while this participant sends media (RFC 3550,
    /// section 6.2.1).
    pub fn set_further_streams(&mut self, further_streams: u32) {
        self.further_streams = further_streams;
    }

    /// Returns how many SSRCs of the census belong to this participant.
    pub const fn own_streams(&self) -> u32 {
        1 + self.further_streams
    }

    /// Handles the number of receivers that the source has announced (RFC 5760, section 7.1.12). Returns by how much
    /// the number of members in the census has decreased.
    pub fn on_group_size(&mut self, receivers: u32) -> u32 {
        let before = self.census().members;
        self.reported_receivers = Some(receivers);
        before.saturating_sub(self.census().members)
    }

    /// Returns the number of receivers that the source announced last.
    pub const fn reported_receivers(&self) -> Option<u32> {
        self.reported_receivers
    }

    /// Changes this participant's SSRC after a collision.
    pub fn renew(&mut self, own: u32) {
        self.forget(own);
        self.own = own;
    }

    /// Handles a media packet sent by this participant.
    pub fn on_own_rtp(&mut self, now: Time) {
        self.own_sent = Some(now);
    }

    /// Handles a media packet, which makes its source a member.
    pub fn on_rtp(&mut self, now: Time, ssrc: u32, from: Origin) -> SourceStatus {
        if let Some((playing, place, at)) = &mut self.last_media
            && (*playing, *place) == (ssrc, from)
        {
            *at = now;
            return SourceStatus::Member;
        }
        self.flush_last_media();
        let status = self.observe(now, ssrc, from, PacketKind::Rtp, true);
        if status == SourceStatus::Member {
            self.last_media = Some((ssrc, from, now));
        }
        status
    }

    /// Writes the arrival that is cached in `last_media` to the table.
    fn flush_last_media(&mut self) {
        if let Some((ssrc, _, at)) = self.last_media.take()
            && let Some(member) = self.table.get_mut(&ssrc)
        {
            member.last_packet = member.last_packet.max(at);
            member.sent = member.sent.max(Some(at));
        }
    }

    /// Handles a report, an APP packet or feedback that a source has sent.
    pub fn on_rtcp(&mut self, now: Time, ssrc: u32, from: Origin) -> SourceStatus {
        self.observe(now, ssrc, from, PacketKind::Rtcp, self.authenticated)
    }

    /// Handles a CNAME that a source has sent, which makes the source a member.
    pub fn on_cname(&mut self, now: Time, ssrc: u32, from: Origin) -> SourceStatus {
        self.observe(now, ssrc, from, PacketKind::Rtcp, true)
    }

    /// Returns whether `from` is the address of the source. Also returns true if the source is unknown.
    pub fn speaks_from(&self, ssrc: u32, from: Origin) -> bool {
        self.table.get(&ssrc).is_none_or(|member| member.from == from)
    }

    /// Handles a BYE. Returns true if the source was counted and the BYE came from the source's address. The caller
    /// then has to call [`Timer::on_bye`](crate::Timer::on_bye). Later packets of the source are ignored until it times
    /// out.
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
        // Keep the entry, so that a delayed packet does not make the source a member again (RFC 3550, section 6.2.1).
        member.state = State::Gone;
        member.sent = None;
        member.last_packet = now;
        self.uncounted.insert((now, ssrc));
        counted
    }

    /// Removes members that have been silent for longer than `member`. Senders that have sent no media for longer than
    /// `sender` become receivers (RFC 3550, section 6.3.5). [`Timer`](crate::Timer) returns both times. The caller has
    /// to call this method at least once per RTCP interval. Returns the number of counted members that were removed.
    pub fn expire(&mut self, now: Time, member: Span, sender: Span) -> u32 {
        self.flush_last_media();
        let before = self.census().members;
        let silent = |last: Time, limit: Span| now.since(last) > limit;
        let (uncounted, mut departed, mut retired) = (&mut self.uncounted, 0, 0);
        if silent(self.earliest.0, member) || silent(self.earliest.1, sender) {
            let (mut earliest_packet, mut earliest_media) = (now, now);
            let addresses = &mut self.addresses;
            self.table.retain(|&ssrc, it| {
                if it.sent.is_some_and(|at| silent(at, sender)) {
                    it.sent = None;
                    retired += 1;
                }
                let keep = !silent(it.last_packet, member);
                match it.state {
                    _ if keep => {
                        earliest_packet = earliest_packet.min(it.last_packet);
                        earliest_media = earliest_media.min(it.sent.unwrap_or(now));
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
            self.earliest = (earliest_packet, earliest_media);
        }
        self.proven -= departed;
        self.senders -= retired;
        self.adjust_sample(now, member, before);
        if self.own_sent.is_some_and(|at| silent(at, sender)) {
            self.own_sent = None;
        }
        // Forget a loop after ten RTCP intervals (RFC 3550, section 8.2). `member` is five intervals.
        self.conflicts.retain(|_, &mut at| !silent(at, member * 2));
        departed
    }

    /// Returns the census. If the group is sampled, the numbers are an estimate.
    pub fn census(&self) -> Census {
        let we_sent = self.own_sent.is_some();
        let counted = (self.proven - self.senders).saturating_sub(self.addresses.beyond);
        // Each member in the sample represents 2^bits members. Senders represent only themselves, because all senders
        // are in the table.
        let others = self.senders + (counted << self.sample.bits);
        let held = self.sample.held.map_or(0, |(members, _)| members);
        let told = self.reported_receivers.map_or(0, |receivers| receivers.saturating_add(self.senders));
        let own_senders = if we_sent { self.own_streams() } else { 0 };
        Census {
            members: (others + self.own_streams()).max(held).max(told),
            senders: self.senders + own_senders,
            we_sent,
        }
    }

    /// Returns whether `ssrc` is the SSRC of another member.
    pub fn contains(&self, ssrc: u32) -> bool {
        self.table.get(&ssrc).is_some_and(|member| member.state == State::Proven)
    }

    fn observe(&mut self, now: Time, ssrc: u32, from: Origin, kind: PacketKind, proves: bool) -> SourceStatus {
        if ssrc == self.own {
            return SourceStatus::Conflict(self.on_own_ssrc(now, from));
        }
        if matches!(kind, PacketKind::Rtcp) && !self.sample.keeps(ssrc) && !self.outside_sample.may_contain(ssrc) {
            return SourceStatus::Unsampled;
        }
        let Some(member) = self.table.get_mut(&ssrc) else {
            return self.admit(now, ssrc, from, kind, proves);
        };
        let media = matches!(kind, PacketKind::Rtp);
        // Ignore packets from a second address, because anyone who knows an SSRC could use it (RFC 3550, section 8.2).
        if member.from != from {
            if !media || member.has_media {
                return SourceStatus::Conflict(Conflict::WithMember);
            }
            // Let the first media packet determine the address, because RTCP is easy to forge.
            if member.state != State::Proven {
                self.uncounted.remove(&(member.last_packet, ssrc));
                member.state = State::Proven;
                self.proven += 1;
            }
            self.addresses.leave(member.from);
            self.addresses.enter(from);
            member.from = from;
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
            return SourceStatus::Refused;
        }
        loop {
            // Apply the sample only to sources of RTCP. Sampling never excludes a source of RTP, because receivers
            // report on it.
            if matches!(kind, PacketKind::Rtcp) && !self.sample.keeps(ssrc) {
                return SourceStatus::Unsampled;
            }
            if self.table.len() < self.capacity {
                break;
            }
            if let Some((_, earliest)) = self.uncounted.pop_first() {
                self.remove(earliest);
            } else if !self.halve_sample() {
                return SourceStatus::Refused;
            }
        }
        let has_media = matches!(kind, PacketKind::Rtp);
        let state = if proven { State::Proven } else { State::Unproven };
        let sent = has_media.then_some(now);
        self.senders += u32::from(sent.is_some());
        if !self.sample.keeps(ssrc) {
            self.outside_sample.push(ssrc);
        }
        self.addresses.enter(from);
        let member = Member { from, has_media, last_packet: now, sent, state };
        self.table.insert(ssrc, Box::new(member));
        if proven {
            self.proven += 1;
            return SourceStatus::Joined;
        }
        self.uncounted.insert((now, ssrc));
        SourceStatus::Unproven
    }

    /// Halves the sample and removes members that are no longer in it. Returns false if this would remove no member,
    /// which can happen if an attacker has chosen SSRCs that match the key. Also returns false if the sample has
    /// reached [`Sample::MAX_BITS`].
    fn halve_sample(&mut self) -> bool {
        let sample = Sample { bits: self.sample.bits + 1, ..self.sample };
        if sample.bits > Sample::MAX_BITS
            || self.table.iter().all(|(&ssrc, member)| sample.keeps(ssrc) || member.sent.is_some())
        {
            return false;
        }
        self.sample = sample;
        let mut left_out = 0;
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
        self.find_outside_sample();
        true
    }

    fn find_outside_sample(&mut self) {
        self.outside_sample = SmallSsrcSet::default();
        for ssrc in self.table.keys().filter(|ssrc| !self.sample.keeps(**ssrc)) {
            self.outside_sample.push(*ssrc);
        }
    }

    /// Enlarges the sample if the group has become smaller. `before` is the number of members before the last removals.
    /// Also removes members that are not in the sample and no longer send media.
    fn adjust_sample(&mut self, now: Time, member_timeout: Span, before: u32) {
        let sample = &mut self.sample;
        if sample.held.is_some_and(|(_, until)| now >= until) {
            sample.held = None;
        }
        let others = u64::from(self.proven - self.senders) << sample.bits;
        let room = self.capacity as u64 * 3 / 4;
        let fitting = (0..sample.bits).find(|&bits| others <= room << bits);
        // Do not enlarge the sample again while `held` is set, because the census is still incomplete.
        if let (Some(bits), None) = (fitting, sample.held) {
            // Wait two RTCP intervals. Within this time, the members that the larger sample adds send a report.
            // `member_timeout` is five intervals.
            sample.held = Some((before, now + member_timeout * 2 / 5));
            sample.bits = bits;
        }
        if sample.bits == 0 {
            // No SSRC is outside of the sample now.
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
        self.find_outside_sample();
    }

    fn on_own_ssrc(&mut self, now: Time, from: Origin) -> Conflict {
        if let Some(at) = self.conflicts.get_mut(&from) {
            *at = now;
            return Conflict::Loop;
        }
        // Bound the list, because addresses can be forged.
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

    fn remove(&mut self, ssrc: u32) -> Option<Box<Member>> {
        let member = self.table.remove(&ssrc)?;
        self.addresses.leave(member.from);
        Some(member)
    }
}

/// Counts the entries of the table per address.
#[derive(Clone, Debug, Default)]
struct Addresses {
    entries: BTreeMap<Origin, u32>,
    /// The number of entries that exceed [`Members::COUNTED`] at their address.
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
