//! Between the hosts: reads what their kernels send, has the network carry it, and writes it where it arrives.

use crate::datagram::Datagram;
use crate::kernel;
use crate::membership::{self, Change, Sources};
use crate::tap::Tap;
use crate::watch::Streams;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, write};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use steadycast_capture::mark;
use steadycast_link::Ecn;
use steadycast_live::Clock;
use steadycast_network::{DatagramEvent, Datagrams, Target, group_address};
use steadycast_scenario::NodeIx;

use steadycast_units::{Span, Spread, Time};

/// What is released later than this after its time counts as late.
pub const LATE: Span = Span::millis(1);

/// Groups that programs may bring along.
const GROUPS: usize = 256;

/// How many datagrams of one host are read before the others' turn.
const TURN: usize = 64;

/// The larger part of IPv4's largest datagram would never fit a link.
const LARGEST: usize = 65_536;

/// A host as the relay sees it.
pub(crate) struct Gate {
    pub(crate) node: NodeIx,
    pub(crate) addr: Ipv4Addr,
    pub(crate) tun: OwnedFd,
}

/// How well it kept the time.
#[derive(Clone, Debug, Default)]
pub struct Punctuality {
    /// Datagrams read from hosts.
    pub read: u64,
    /// Datagrams written to hosts.
    pub written: u64,
    /// Datagrams that a host did not take.
    pub refused: u64,
    /// Datagrams for nobody in this network.
    pub astray: u64,
    /// Of those written, how many later than [`LATE`].
    pub late: u64,
    /// By how much releases came after their time.
    pub lateness: Spread,
}

/// Something that the network is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Graft {
    pub(crate) group: u32,
    pub(crate) host: NodeIx,
    pub(crate) join: bool,
}

/// Wakes, tells or ends a relay from another thread.
#[derive(Clone)]
pub(crate) struct Bell {
    stop: Arc<AtomicBool>,
    event: Arc<OwnedFd>,
    grafts: mpsc::Sender<Graft>,
}

impl Bell {
    /// A bell, and what it rings for.
    pub(crate) fn new() -> io::Result<(Self, Inbox)> {
        let (grafts, told) = mpsc::channel();
        let (stop, event) = (Arc::<AtomicBool>::default(), Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?));
        let inbox = Inbox { stop: Arc::clone(&stop), event: Arc::clone(&event), grafts: told };
        Ok((Self { stop, event, grafts }, inbox))
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
    }

    pub(crate) fn graft(&self, graft: Graft) {
        // A relay that is gone needs to hear nothing.
        let _ = self.grafts.send(graft);
        self.ring();
    }

    fn ring(&self) {
        // Only a counter at its limit refuses, and that rings as well.
        let _ = write(&self.event, &1u64.to_ne_bytes());
    }
}

/// What reaches a relay from other threads.
pub(crate) struct Inbox {
    stop: Arc<AtomicBool>,
    event: Arc<OwnedFd>,
    grafts: mpsc::Receiver<Graft>,
}

/// A source or a receiver of one of the scenario's groups.
pub(crate) struct Member {
    pub(crate) group: u32,
    pub(crate) host: NodeIx,
    /// Whether it is in the group from the start.
    pub(crate) joined: bool,
}

pub(crate) struct Relay {
    network: Datagrams,
    clock: Clock,
    gates: Vec<Gate>,
    /// Each node's gate.
    places: BTreeMap<NodeIx, usize>,
    hosts: BTreeMap<Ipv4Addr, NodeIx>,
    groups: Groups,
    inbox: Inbox,
    streams: Streams,
    tap: Option<Tap>,
    told: Punctuality,
    /// What is held back, by its time and order: from which gate.
    held: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
}

/// Groups by address, and who has joined them.
struct Groups {
    /// Those of the scenario.
    own: BTreeMap<Ipv4Addr, u32>,
    /// Those of programs, each with its source.
    others: BTreeMap<(Ipv4Addr, NodeIx), u32>,
    joined: BTreeMap<(Ipv4Addr, NodeIx), Sources>,
    /// Whose membership is the scenario's business: their kernels are not asked.
    planned: BTreeSet<(Ipv4Addr, NodeIx)>,
}

/// What a relay leaves behind.
pub(crate) struct Relayed {
    pub(crate) network: Datagrams,
    pub(crate) streams: Streams,
    pub(crate) tap: Option<Tap>,
    pub(crate) told: Punctuality,
}

impl Relay {
    /// It carries nothing before it runs.
    pub(crate) fn new(
        network: Datagrams,
        clock: Clock,
        gates: Vec<Gate>,
        members: &[Member],
        inbox: Inbox,
        (streams, tap): (Streams, Option<Tap>),
    ) -> Self {
        let names = |member: &Member| (group_address(member.group), member.host);
        let own = (0..network.groups()).map(|g| (group_address(g), g)).collect();
        Self {
            places: gates.iter().enumerate().map(|(n, g)| (g.node, n)).collect(),
            hosts: gates.iter().map(|g| (g.addr, g.node)).collect(),
            groups: Groups {
                own,
                others: BTreeMap::new(),
                joined: members
                    .iter()
                    .filter(|member| member.joined)
                    .map(|member| (names(member), Sources::All))
                    .collect(),
                planned: members.iter().map(names).collect(),
            },
            network,
            clock,
            gates,
            inbox,
            streams,
            tap,
            told: Punctuality::default(),
            held: BTreeMap::new(),
        }
    }

    /// Relays until the bell rings.
    pub(crate) fn run(mut self) -> io::Result<Relayed> {
        kernel::precise_waits();
        kernel::first_in_line(true);
        let mut buffer = vec![0; LARGEST];
        let mut ready: Vec<usize> = Vec::new();
        loop {
            let now = self.clock.now();
            self.release(now);
            while let Some(entry) = self.held.first_entry().filter(|e| e.key().0 <= now) {
                let (n, bytes) = entry.remove();
                self.pass(n, &bytes);
            }
            if self.inbox.stop.load(Ordering::Acquire) {
                let Self { network, streams, tap, told, .. } = self;
                return Ok(Relayed { network, streams, tap, told });
            }
            while let Ok(Graft { group, host, join }) = self.inbox.grafts.try_recv() {
                let change = if join { Change::All } else { Change::Only(&[]) };
                self.groups.change(&mut self.network, now, group_address(group), host, change);
            }
            self.wait(&mut ready)?;
            for n in ready.drain(..) {
                self.take(n, &mut buffer)?;
            }
        }
    }

    /// Waits until something is due or there to be read.
    fn wait(&mut self, ready: &mut Vec<usize>) -> io::Result<()> {
        let held = self.held.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at);
        let until = self.network.next().min(held);
        let left = until.since(self.clock.now()).as_nanos();
        let timeout = Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
        let timeout = (until < Time::NEVER).then_some(&timeout);
        let mut polled: Vec<PollFd<'_>> = self.gates.iter().map(|g| PollFd::new(&g.tun, PollFlags::IN)).collect();
        polled.push(PollFd::new(&self.inbox.event, PollFlags::IN));
        match poll(&mut polled, timeout) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let rung = polled.last().is_some_and(|p| p.revents().contains(PollFlags::IN));
        let readable = |p: &PollFd<'_>| p.revents().contains(PollFlags::IN);
        ready.extend(polled.iter().take(self.gates.len()).enumerate().filter(|(_, p)| readable(p)).map(|(n, _)| n));
        if rung {
            // The count does not matter.
            let _ = read(&self.inbox.event, &mut [0; 8]);
        }
        Ok(())
    }

    /// Takes what a host has sent.
    fn take(&mut self, n: usize, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..TURN {
            match read(&self.gates[n].tun, &mut *buffer) {
                Ok(len) => self.offer(n, &buffer[..len]),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn offer(&mut self, n: usize, bytes: &[u8]) {
        // A kernel also speaks of itself: IPv6, for one.
        let Some(datagram) = Datagram::read(bytes) else { return };
        let host = self.hosts.get(&datagram.to()).copied();
        match host.and_then(|to| self.streams.hold(self.clock.now(), &datagram, to)) {
            Some(until) => {
                self.held.insert((until, self.told.read), (n, bytes.to_vec()));
                self.told.read += 1;
            }
            None => {
                self.told.read += 1;
                self.pass(n, bytes);
            }
        }
    }

    /// A datagram leaves its host.
    fn pass(&mut self, n: usize, bytes: &[u8]) {
        let Some(datagram) = Datagram::read(bytes) else { return };
        let now = self.clock.now();
        self.release(now);
        let (from, to) = (self.gates[n].node, datagram.to());
        if let Some(igmp) = datagram.igmp() {
            membership::changes(igmp, |group, change| {
                if self.groups.planned.contains(&(group, from)) {
                    return;
                }
                self.groups.change(&mut self.network, now, group, from, change);
            });
            return;
        }
        let target = if to.is_multicast() {
            self.groups.find(&mut self.network, now, to, from, &self.gates).map(Target::Group)
        } else {
            self.hosts.get(&to).map(|node| Target::Host(*node))
        };
        self.told.read += 1;
        let host = if let Some(Target::Host(host)) = target { Some(host) } else { None };
        self.streams.sent(now, &datagram, host);
        let ecn = datagram.ecn();
        let taken = target.and_then(|to| self.network.offer(now, from, to, ecn, bytes.to_vec()));
        self.told.astray += u64::from(taken.is_none());
        if let (Some(tap), Some(number)) = (&mut self.tap, taken) {
            tap.sent(now, number, from, host, &datagram);
        }
        // A link without rate and delay has carried it already.
        self.release(now);
    }

    /// Writes what is due.
    fn release(&mut self, now: Time) {
        let Self { network, gates, places, told, streams, tap, clock, .. } = self;
        network.advance(now, |passed| {
            let DatagramEvent::Arrival(arrival) = passed else { return streams.sample() };
            let Some(gate) = places.get(&arrival.host).map(|n| &gates[*n]) else { return };
            // What a queue has marked, or a link has cleared, leaves so.
            let as_sent = arrival.bytes.get(1).is_none_or(|tos| Ecn::from_bits(*tos) == arrival.ecn);
            let written = if as_sent {
                write(&gate.tun, arrival.bytes)
            } else {
                let mut marked = arrival.bytes.to_vec();
                mark(&mut marked, arrival.ecn);
                write(&gate.tun, &marked)
            };
            let late = clock.now().since(arrival.at);
            match written {
                Ok(_) => {
                    told.written += 1;
                    told.late += u64::from(late > LATE);
                    told.lateness.add(late);
                    streams.arrived(&arrival);
                    if let Some(tap) = tap {
                        tap.arrived(&arrival);
                    }
                }
                Err(_) => told.refused += 1,
            }
        });
    }
}

impl Groups {
    fn change(&mut self, network: &mut Datagrams, now: Time, group: Ipv4Addr, host: NodeIx, change: Change<'_>) {
        // 224.0.0.x is not forwarded (RFC 5771).
        if group.octets()[..3] == [224, 0, 0] {
            return;
        }
        let sources = self.joined.entry((group, host)).or_default();
        let before = sources.is_any();
        sources.hear(change);
        let join = sources.is_any();
        if !join {
            self.joined.remove(&(group, host));
        }
        // Kernels say it twice, and of each source.
        if join == before {
            return;
        }
        if let Some(own) = self.own.get(&group) {
            // A program may listen to a flow of the scenario as well.
            network.add_member(*own, host);
            network.set_membership(now, *own, host, join);
        }
        let all = (group, NodeIx(0))..=(group, NodeIx(u32::MAX));
        for (_, other) in self.others.range(all) {
            network.set_membership(now, *other, host, join);
        }
    }

    /// The group that a datagram of this sender goes to. One that nobody has sent to before gets a tree.
    fn find(
        &mut self,
        network: &mut Datagrams,
        now: Time,
        group: Ipv4Addr,
        from: NodeIx,
        gates: &[Gate],
    ) -> Option<u32> {
        if let Some(own) = self.own.get(&group).or_else(|| self.others.get(&(group, from))) {
            return Some(*own);
        }
        if self.others.len() >= GROUPS || group.octets()[..3] == [224, 0, 0] {
            return None;
        }
        let new = network.add_group(from)?;
        self.others.insert((group, from), new);
        gates.iter().for_each(|gate| network.add_member(new, gate.node));
        for ((_, host), _) in self.joined.range((group, NodeIx(0))..=(group, NodeIx(u32::MAX))) {
            network.set_membership(now, new, *host, true);
        }
        Some(new)
    }
}
