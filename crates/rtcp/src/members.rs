//! Who is in the session (RFC 3550, sections 6.2.1, 6.3.3 to 6.3.7 and 8.2).

use std::collections::{BTreeMap, BTreeSet};
use steadycast_units::{Span, Time};

/// How many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Census {
    /// Members, oneself included.
    pub members: u32,
    /// Those of them that send media, oneself included if so.
    pub senders: u32,
    /// Whether one sends oneself.
    pub we_sent: bool,
}

impl Census {
    /// Nobody but oneself, who hasn't sent.
    pub const fn alone() -> Self {
        Self { members: 1, senders: 0, we_sent: false }
    }
}

/// A host's address as a number that the owner of the sockets gives out: equal for equal addresses, whatever the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin(pub u64);

/// Two at one SSRC (RFC 3550, section 8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Someone uses our SSRC: send a BYE for it, take another ([`Members::renew`]), and ignore the packet.
    WithUs,
    /// Our own packets come back to us: ignore them.
    Loop,
    /// Someone uses the SSRC of another member, or a member's packets come back: keep to whom we heard first.
    WithMember,
}

/// What hearing from a source meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A member.
    Member,
    /// A member from now on.
    Joined,
    /// Heard for the first time. One more packet, or a CNAME, makes it a member.
    Unproven,
    /// It has said BYE: a straggler, to be ignored.
    Gone,
    /// A member, or one to be, outside the sample that stands for a group too large to be kept: see
    /// [`Members::sampled`].
    Unsampled,
    /// The table is full of members, or its address has [`Members::PER_ADDRESS`] in it.
    Refused,
    /// The packet must not be used.
    Conflict(Conflict),
}

#[derive(Clone, Debug)]
struct Member {
    /// Where its media comes from; of one that sends none, where it was first heard from.
    from: Origin,
    /// Media has come from there.
    plays: bool,
    /// Last heard; of the uncounted, since when they are.
    heard: Time,
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

/// The table of members, which never holds more than it was made for.
///
/// A source that was heard once isn't counted; nor is one that said BYE; when room is needed, such sources are
/// forgotten, the earliest first. A table full of proven members refuses newcomers. One address has a bounded number of
/// entries: made-up names lengthen the reporting interval of all others, which would silence a group.
#[derive(Clone, Debug, Default)]
pub struct Members {
    own: u32,
    own_sent: Option<Time>,
    capacity: usize,
    /// Boxed, since a map makes room for eleven, and most members of a large group know one.
    table: BTreeMap<u32, Box<Member>>,
    addresses: Addresses,
    /// Members that are not counted, earliest first: the unproven and the gone.
    uncounted: BTreeSet<(Time, u32)>,
    /// Nobody in the table was heard last before the first of these, and no sender sent last before the second: as long
    /// as neither is too long ago, nobody needs to be looked at.
    earliest: (Time, Time),
    proven: u32,
    senders: u32,
    /// Where our own SSRC was heard from, and when last.
    conflicts: BTreeMap<Origin, Time>,
    refused: u64,
    sample: Option<Sample>,
    /// All in the table that the sample does not keep, and perhaps some that have left it: senders, and members that
    /// are not counted. In a large group nearly every report is of one that is not in the table, and is to cost no look
    /// into it.
    strays: Strays,
    /// The member whose media came last, from where and when: packet after packet is of the same one, and is to cost no
    /// look into the table. What is told here is entered there before anyone asks.
    playing: Option<(u32, Origin, Time)>,
    /// How many receivers there are, where the source tells it.
    told: Option<u32>,
    /// See [`Members::authenticated`].
    authenticated: bool,
}

/// Which members are kept of a group that is too large for the table (RFC 2762).
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Members are kept whose SSRC equals this in the lowest `bits` bits, so each stands for 2^`bits`.
    key: u32,
    bits: u32,
    /// The count before `bits` was last lowered, and until when nothing below it is believed: those who belong to the
    /// larger sample have yet to be heard.
    held: Option<(u32, Time)>,
}

impl Sample {
    const MAX_BITS: u32 = 20;

    fn keeps(&self, ssrc: u32) -> bool {
        (ssrc ^ self.key) & ((1 << self.bits) - 1) == 0
    }
}

/// A few SSRCs, or too many to be told apart here.
#[derive(Clone, Copy, Debug, Default)]
struct Strays {
    few: [u32; 4],
    n: u32,
}

impl Strays {
    fn push(&mut self, ssrc: u32) {
        if let Some(place) = self.few.get_mut(self.n as usize) {
            *place = ssrc;
        }
        self.n += 1;
    }

    /// False only when it is none of them.
    fn may_contain(&self, ssrc: u32) -> bool {
        self.few.get(..self.n as usize).is_none_or(|few| few.contains(&ssrc))
    }
}

/// Addresses that used our SSRC, remembered to tell a loop from a collision.
const MAX_CONFLICTS: usize = 64;

/// How a source was heard.
#[derive(Clone, Copy)]
enum By {
    Rtp,
    Rtcp,
}

impl Members {
    /// Room for the groups that Steadycast is made for.
    pub const CAPACITY: usize = 16_384;

    /// Entries of one address: room for the receivers of one host, and for those behind one address translator that
    /// still fit the allowance of reports of one address.
    pub const PER_ADDRESS: u32 = 64;

    /// As so many members one address counts at the most.
    pub const COUNTED: u32 = 16;

    /// Only oneself, as `own`.
    pub fn new(own: u32) -> Self {
        Self::with_capacity(own, Self::CAPACITY)
    }

    /// Room for `capacity` other sources, members or not.
    pub fn with_capacity(own: u32, capacity: usize) -> Self {
        Self { own, capacity, ..Self::default() }
    }

    /// As [`Members::with_capacity`], but a group that is larger than the table is counted by a sample (RFC 2762)
    /// instead of refused: exact up to `capacity`, above with a standard error of 1/√`capacity` to
    /// 1.6 times that. Senders are always kept. This is what keeps ten thousand simulated members from holding ten
    /// thousand entries each. `key` says which members are of the sample. It is to be random and known to nobody else:
    /// whoever knows it can make up SSRCs that are all of the sample, each of which stands for many.
    pub fn sampled(own: u32, key: u32, capacity: usize) -> Self {
        let sample = Some(Sample { key, bits: 0, held: None });
        Self { sample, ..Self::with_capacity(own, capacity) }
    }

    /// What comes is of whom it says that it is, by a key that is nobody else's: a source that is heard once is a
    /// member.
    #[must_use]
    pub fn authenticated(self, authenticated: bool) -> Self {
        Self { authenticated, ..self }
    }

    /// The source has told how many receivers there are (RFC 5760, section 7.1.12): they are not heard oneself. Returns
    /// by how many the group is smaller than it was thought to be.
    pub fn on_told(&mut self, receivers: u32) -> u32 {
        let before = self.census().members;
        self.told = Some(receivers);
        before.saturating_sub(self.census().members)
    }

    /// How many receivers there are, where the source has told it.
    pub const fn told(&self) -> Option<u32> {
        self.told
    }

    /// One's own SSRC.
    pub const fn own(&self) -> u32 {
        self.own
    }

    /// Goes on as `own`, after a collision.
    pub fn renew(&mut self, own: u32) {
        self.forget(own);
        self.own = own;
    }

    /// The member itself has sent a packet of media.
    pub fn on_own_rtp(&mut self, now: Time) {
        self.own_sent = Some(now);
    }

    /// A packet of media came. A source that the sequence numbers have proven already (`valid`) is a member at once.
    pub fn on_rtp(&mut self, now: Time, ssrc: u32, from: Origin, valid: bool) -> Heard {
        if let Some((playing, place, at)) = &mut self.playing
            && (*playing, *place) == (ssrc, from)
        {
            *at = now;
            return Heard::Member;
        }
        self.note_playing();
        let heard = self.hear(now, ssrc, from, By::Rtp, valid);
        if heard == Heard::Member {
            self.playing = Some((ssrc, from, now));
        }
        heard
    }

    /// Enters into the table when media was last heard.
    fn note_playing(&mut self) {
        if let Some((ssrc, _, at)) = self.playing.take()
            && let Some(member) = self.table.get_mut(&ssrc)
        {
            member.heard = member.heard.max(at);
            member.sent = member.sent.max(Some(at));
        }
    }

    /// A report, APP or feedback of a source came.
    pub fn on_rtcp(&mut self, now: Time, ssrc: u32, from: Origin) -> Heard {
        self.hear(now, ssrc, from, By::Rtcp, self.authenticated)
    }

    /// A source was named, which makes it a member. Names are cut to 255 bytes.
    pub fn on_cname(&mut self, now: Time, ssrc: u32, from: Origin, cname: &str) -> Heard {
        let heard = self.hear(now, ssrc, from, By::Rtcp, true);
        if matches!(heard, Heard::Member | Heard::Joined)
            && let Some(member) = self.table.get_mut(&ssrc)
        {
            let end = (0..=cname.len().min(255)).rev().find(|&end| cname.is_char_boundary(end));
            let cname = &cname[..end.unwrap_or(0)];
            if member.cname.as_deref() != Some(cname) {
                member.cname = Some(cname.into());
            }
        }
        heard
    }

    /// Whether packets of `ssrc` may come from there, as far as is known: from where its media comes, or else its RTCP.
    pub fn speaks_from(&self, ssrc: u32, from: Origin) -> bool {
        self.table.get(&ssrc).is_none_or(|member| member.from == from)
    }

    /// A source said BYE. True when it was counted until now, and spoke itself ([`Members::speaks_from`]):
    /// [`Timer::on_bye`](crate::Timer::on_bye) wants to know. Stragglers of it are ignored until it would have timed
    /// out.
    pub fn on_bye(&mut self, now: Time, ssrc: u32, from: Origin) -> bool {
        self.note_playing();
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
                self.uncounted.remove(&(member.heard, ssrc));
            }
        }
        member.state = State::Gone;
        member.sent = None;
        member.heard = now;
        self.uncounted.insert((now, ssrc));
        counted
    }

    /// Forgets members that were silent for `member`, and takes those that sent no media for `sender` for receivers:
    /// the time-outs of [`Timer`](crate::Timer), to be applied at least once per RTCP interval. Returns how many
    /// members that were counted left this way.
    pub fn expire(&mut self, now: Time, member: Span, sender: Span) -> u32 {
        self.note_playing();
        let before = self.census().members;
        let silent = |last: Time, limit: Span| now.since(last) > limit;
        let (uncounted, mut departed, mut retired) = (&mut self.uncounted, 0, 0);
        if silent(self.earliest.0, member) || silent(self.earliest.1, sender) {
            let (mut heard, mut sent) = (now, now);
            let addresses = &mut self.addresses;
            self.table.retain(|&ssrc, it| {
                if it.sent.is_some_and(|at| silent(at, sender)) {
                    it.sent = None;
                    retired += 1;
                }
                let keep = !silent(it.heard, member);
                match it.state {
                    _ if keep => {
                        heard = heard.min(it.heard);
                        sent = sent.min(it.sent.unwrap_or(now));
                    }
                    State::Proven => {
                        departed += 1;
                        retired += u32::from(it.sent.is_some());
                    }
                    State::Unproven | State::Gone => {
                        uncounted.remove(&(it.heard, ssrc));
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
        // A loop that has ended is forgotten after ten intervals in RFC 3550; a member's time-out is five.
        self.conflicts.retain(|_, &mut at| !silent(at, member * 2));
        departed
    }

    /// How many there are now, as far as is known: an estimate once a group is sampled.
    pub fn census(&self) -> Census {
        let we_sent = self.own_sent.is_some();
        let bits = self.sample.map_or(0, |sample| sample.bits);
        let counted = (self.proven - self.senders).saturating_sub(self.addresses.beyond);
        let others = self.senders + (counted << bits);
        let held = self.sample.and_then(|sample| sample.held).map_or(0, |(members, _)| members);
        let told = self.told.map_or(0, |receivers| receivers.saturating_add(self.senders));
        Census { members: (others + 1).max(held).max(told), senders: self.senders + u32::from(we_sent), we_sent }
    }

    /// The members other than oneself, in the order of their SSRCs.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.table.iter().filter(|(_, member)| member.state == State::Proven).map(|(&ssrc, _)| ssrc)
    }

    /// Whether `ssrc` is a member other than oneself.
    pub fn contains(&self, ssrc: u32) -> bool {
        self.table.get(&ssrc).is_some_and(|member| member.state == State::Proven)
    }

    /// The name of a member.
    pub fn cname(&self, ssrc: u32) -> Option<&str> {
        self.table.get(&ssrc)?.cname.as_deref()
    }

    /// Entries in the table, members or not: never above its capacity.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether nobody else was heard.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Packets of sources for which there was no room.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    fn hear(&mut self, now: Time, ssrc: u32, from: Origin, by: By, proves: bool) -> Heard {
        if ssrc == self.own {
            return Heard::Conflict(self.on_own_ssrc(now, from));
        }
        if matches!(by, By::Rtcp)
            && self.sample.is_some_and(|sample| !sample.keeps(ssrc))
            && !self.strays.may_contain(ssrc)
        {
            return Heard::Unsampled;
        }
        let Some(member) = self.table.get_mut(&ssrc) else {
            return self.admit(now, ssrc, from, by, proves);
        };
        let media = matches!(by, By::Rtp);
        if member.from != from {
            if !media || member.plays {
                return Heard::Conflict(Conflict::WithMember);
            }
            // Its media tells where it is: whoever spoke in its name before was another one, and nothing of that
            // counts.
            if member.state != State::Proven {
                self.uncounted.remove(&(member.heard, ssrc));
                member.state = State::Proven;
                self.proven += 1;
            }
            self.addresses.leave(member.from);
            self.addresses.enter(from);
            (member.from, member.cname) = (from, None);
        }
        member.plays |= media;
        let heard = match member.state {
            State::Gone => return Heard::Gone,
            State::Proven => Heard::Member,
            State::Unproven => {
                self.uncounted.remove(&(member.heard, ssrc));
                member.state = State::Proven;
                self.proven += 1;
                Heard::Joined
            }
        };
        member.heard = now;
        if media {
            self.senders += u32::from(member.sent.is_none());
            member.sent = Some(now);
        }
        heard
    }

    fn admit(&mut self, now: Time, ssrc: u32, from: Origin, by: By, proven: bool) -> Heard {
        if self.addresses.of(from) >= Self::PER_ADDRESS {
            self.refused += 1;
            return Heard::Refused;
        }
        loop {
            // Senders are few, and what they send is about them: they are never left out.
            if matches!(by, By::Rtcp) && self.sample.is_some_and(|sample| !sample.keeps(ssrc)) {
                return Heard::Unsampled;
            }
            if self.table.len() < self.capacity {
                break;
            }
            if let Some((_, earliest)) = self.uncounted.pop_first() {
                self.remove(earliest);
            } else if !self.halve_sample() {
                self.refused += 1;
                return Heard::Refused;
            }
        }
        let plays = matches!(by, By::Rtp);
        let state = if proven { State::Proven } else { State::Unproven };
        let sent = (plays && proven).then_some(now);
        self.senders += u32::from(sent.is_some());
        if self.sample.is_some_and(|sample| !sample.keeps(ssrc)) {
            self.strays.push(ssrc);
        }
        self.addresses.enter(from);
        let member = Member { from, plays, heard: now, sent, cname: None, state };
        self.table.insert(ssrc, Box::new(member));
        if proven {
            self.proven += 1;
            return Heard::Joined;
        }
        self.uncounted.insert((now, ssrc));
        Heard::Unproven
    }

    /// Keeps half as many members. False when there is no sample, nothing is left to halve, or nobody would be left
    /// out: of SSRCs that are random half are, and to count those that were chosen twice would be no estimate.
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
        self.find_strays(sample);
        true
    }

    fn find_strays(&mut self, sample: Sample) {
        self.strays = Strays::default();
        for ssrc in self.table.keys().filter(|ssrc| !sample.keeps(**ssrc)) {
            self.strays.push(*ssrc);
        }
    }

    /// Takes a larger sample when the group has shrunk, and leaves out senders outside of it that have stopped.
    /// `before`: the census before those who left were taken off.
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
        if let (Some(bits), None) = (fitting, sample.held) {
            // Two intervals, of which the time-out has five: by then those of the larger sample have been heard.
            sample.held = Some((before, now + member_timeout * 2 / 5));
            sample.bits = bits;
        }
        if sample.bits == 0 {
            // All are of the sample.
            self.strays = Strays::default();
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
        self.find_strays(sample);
    }

    fn on_own_ssrc(&mut self, now: Time, from: Origin) -> Conflict {
        if let Some(at) = self.conflicts.get_mut(&from) {
            *at = now;
            return Conflict::Loop;
        }
        if self.conflicts.len() >= MAX_CONFLICTS {
            let oldest = self.conflicts.iter().min_by_key(|(_, at)| **at).map(|(&from, _)| from);
            oldest.map(|from| self.conflicts.remove(&from));
        }
        self.conflicts.insert(from, now);
        Conflict::WithUs
    }

    fn forget(&mut self, ssrc: u32) {
        self.note_playing();
        let Some(member) = self.remove(ssrc) else {
            return;
        };
        match member.state {
            State::Proven => {
                self.proven -= 1;
                self.senders -= u32::from(member.sent.is_some());
            }
            State::Unproven | State::Gone => {
                self.uncounted.remove(&(member.heard, ssrc));
            }
        }
    }

    /// Takes an entry out of the table.
    fn remove(&mut self, ssrc: u32) -> Option<Box<Member>> {
        let member = self.table.remove(&ssrc)?;
        self.addresses.leave(member.from);
        Some(member)
    }
}

/// Entries of the table by the address that they speak from.
#[derive(Clone, Debug, Default)]
struct Addresses {
    entries: BTreeMap<Origin, u32>,
    /// How many there are beyond [`Members::COUNTED`] of their address.
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
