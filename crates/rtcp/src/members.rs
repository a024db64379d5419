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

/// A transport address in numbers that whoever owns the sockets gives out: equal for equal addresses.
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
    /// The table is full of members.
    Refused,
    /// The packet must not be used.
    Conflict(Conflict),
}

#[derive(Clone, Debug)]
struct Member {
    heard: Time,
    /// Since when it is in this state.
    since: Time,
    sent: Option<Time>,
    rtp_from: Option<Origin>,
    rtcp_from: Option<Origin>,
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
/// forgotten, the earliest first. A table full of proven members refuses newcomers.
#[derive(Clone, Debug)]
pub struct Members {
    own: u32,
    own_sent: Option<Time>,
    capacity: usize,
    table: BTreeMap<u32, Member>,
    /// Whoever isn't counted, earliest first: the unproven and the gone.
    uncounted: BTreeSet<(Time, u32)>,
    proven: u32,
    senders: u32,
    /// Where our own SSRC was heard from, and when last.
    conflicts: BTreeMap<Origin, Time>,
    refused: u64,
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

    /// Only oneself, as `own`.
    pub fn new(own: u32) -> Self {
        Self::with_capacity(own, Self::CAPACITY)
    }

    /// Room for `capacity` other sources, members or not.
    pub fn with_capacity(own: u32, capacity: usize) -> Self {
        Self {
            own,
            own_sent: None,
            capacity,
            table: BTreeMap::new(),
            uncounted: BTreeSet::new(),
            proven: 0,
            senders: 0,
            conflicts: BTreeMap::new(),
            refused: 0,
        }
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

    /// One sent a packet of media oneself.
    pub fn on_own_rtp(&mut self, now: Time) {
        self.own_sent = Some(now);
    }

    /// A packet of media came. A source that the sequence numbers have proven already (`valid`) is a member at once.
    pub fn on_rtp(&mut self, now: Time, ssrc: u32, from: Origin, valid: bool) -> Heard {
        let heard = self.hear(now, ssrc, from, By::Rtp, valid);
        if matches!(heard, Heard::Member | Heard::Joined)
            && let Some(member) = self.table.get_mut(&ssrc)
        {
            self.senders += u32::from(member.sent.is_none());
            member.sent = Some(now);
        }
        heard
    }

    /// A report, APP or feedback of a source came.
    pub fn on_rtcp(&mut self, now: Time, ssrc: u32, from: Origin) -> Heard {
        self.hear(now, ssrc, from, By::Rtcp, false)
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

    /// A source said BYE. True when it was counted until now: [`Timer::on_bye`](crate::Timer::on_bye) wants to know.
    /// Stragglers of it are ignored until it would have timed out.
    pub fn on_bye(&mut self, now: Time, ssrc: u32, from: Origin) -> bool {
        let Some(member) = self.table.get_mut(&ssrc) else {
            return false;
        };
        if member.rtcp_from.is_some_and(|known| known != from) {
            return false;
        }
        let counted = member.state == State::Proven;
        match member.state {
            State::Proven => {
                self.proven -= 1;
                self.senders -= u32::from(member.sent.is_some());
            }
            State::Unproven | State::Gone => {
                self.uncounted.remove(&(member.since, ssrc));
            }
        }
        member.state = State::Gone;
        member.sent = None;
        (member.heard, member.since) = (now, now);
        self.uncounted.insert((now, ssrc));
        counted
    }

    /// Forgets whoever was silent for `member` and takes for a receiver whoever sent nothing for `sender`: the time-outs of
    /// [`Timer`](crate::Timer), to be applied at least once per RTCP interval. Returns how many members that were counted
    /// left this way.
    pub fn expire(&mut self, now: Time, member: Span, sender: Span) -> u32 {
        let silent = |last: Time, limit: Span| now.since(last) > limit;
        let (uncounted, mut departed, mut retired) = (&mut self.uncounted, 0, 0);
        self.table.retain(|&ssrc, it| {
            if it.sent.is_some_and(|at| silent(at, sender)) {
                it.sent = None;
                retired += 1;
            }
            let keep = !silent(it.heard, member);
            match it.state {
                _ if keep => {}
                State::Proven => {
                    departed += 1;
                    retired += u32::from(it.sent.is_some());
                }
                State::Unproven | State::Gone => {
                    uncounted.remove(&(it.since, ssrc));
                }
            }
            keep
        });
        self.proven -= departed;
        self.senders -= retired;
        if self.own_sent.is_some_and(|at| silent(at, sender)) {
            self.own_sent = None;
        }
        // A loop that has ended is forgotten after ten intervals in RFC 3550; a member's time-out is five.
        self.conflicts.retain(|_, &mut at| !silent(at, member * 2));
        departed
    }

    /// How many there are now.
    pub fn census(&self) -> Census {
        let we_sent = self.own_sent.is_some();
        Census { members: self.proven + 1, senders: self.senders + u32::from(we_sent), we_sent }
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
        if !self.table.contains_key(&ssrc) {
            return self.admit(now, ssrc, from, by, proves);
        }
        let Some(member) = self.table.get_mut(&ssrc) else {
            return Heard::Refused;
        };
        let known = match by {
            By::Rtp => &mut member.rtp_from,
            By::Rtcp => &mut member.rtcp_from,
        };
        if *known.get_or_insert(from) != from {
            return Heard::Conflict(Conflict::WithMember);
        }
        match member.state {
            State::Gone => return Heard::Gone,
            State::Proven => {
                member.heard = now;
                return Heard::Member;
            }
            State::Unproven => {}
        }
        member.heard = now;
        member.state = State::Proven;
        self.uncounted.remove(&(member.since, ssrc));
        self.proven += 1;
        Heard::Joined
    }

    fn admit(&mut self, now: Time, ssrc: u32, from: Origin, by: By, proven: bool) -> Heard {
        if self.table.len() >= self.capacity {
            let Some((_, earliest)) = self.uncounted.pop_first() else {
                self.refused += 1;
                return Heard::Refused;
            };
            self.table.remove(&earliest);
        }
        let (rtp_from, rtcp_from) = match by {
            By::Rtp => (Some(from), None),
            By::Rtcp => (None, Some(from)),
        };
        let state = if proven { State::Proven } else { State::Unproven };
        self.table.insert(ssrc, Member { heard: now, since: now, sent: None, rtp_from, rtcp_from, cname: None, state });
        if proven {
            self.proven += 1;
            return Heard::Joined;
        }
        self.uncounted.insert((now, ssrc));
        Heard::Unproven
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
        let Some(member) = self.table.remove(&ssrc) else {
            return;
        };
        match member.state {
            State::Proven => {
                self.proven -= 1;
                self.senders -= u32::from(member.sent.is_some());
            }
            State::Unproven | State::Gone => {
                self.uncounted.remove(&(member.since, ssrc));
            }
        }
    }
}
