//! The relay between the hosts. It passes the datagrams of their kernels through the network model.

use crate::datagram::Datagram;
use crate::kernel;
use crate::membership::{self, Change, Sources};
use crate::tap::Tap;
use crate::tcp_monitor::Streams;
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

/// A datagram is late if it is released more than this time after it was due.
pub const LATE: Span = Span::millis(1);

const MAX_PROGRAM_GROUPS: usize = 256;

/// Maximum number of datagrams that are read from one host before the other hosts are served.
const READ_BATCH: usize = 64;

/// Size of the largest IPv4 datagram, in bytes.
const MAX_DATAGRAM: usize = 65_536;

/// The node of a host, and the relay's end of the host's TUN device.
pub(crate) struct Gate {
    pub(crate) node: NodeIx,
    pub(crate) addr: Ipv4Addr,
    pub(crate) tun: OwnedFd,
}

/// How punctual the relay is.
#[derive(Clone, Debug, Default)]
pub struct Punctuality {
    /// Number of datagrams that were read from hosts.
    pub read: u64,
    /// Number of datagrams that were written to hosts.
    pub written: u64,
    /// Number of datagrams that the kernel rejected when they were written to a host.
    pub refused: u64,
    /// Number of datagrams that have no destination in this network.
    pub astray: u64,
    /// Number of datagrams that were written later than [`LATE`] after they were due.
    pub late: u64,
    /// How late datagrams were released.
    pub lateness: Spread,
}

/// A change of membership: a host joins or leaves a group of the network's multicast trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MembershipChange {
    pub(crate) group: u32,
    pub(crate) host: NodeIx,
    pub(crate) join: bool,
}

/// Lets another thread wake or stop a relay, or change a membership.
#[derive(Clone)]
pub(crate) struct RelayHandle {
    stop: Arc<AtomicBool>,
    event: Arc<OwnedFd>,
    membership_changes: mpsc::Sender<MembershipChange>,
}

impl RelayHandle {
    pub(crate) fn new() -> io::Result<(Self, Inbox)> {
        let (membership_changes, receiver) = mpsc::channel();
        let (stop, event) = (Arc::<AtomicBool>::default(), Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?));
        let inbox = Inbox { stop: Arc::clone(&stop), event: Arc::clone(&event), membership_changes: receiver };
        Ok((Self { stop, event, membership_changes }, inbox))
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
    }

    pub(crate) fn change_membership(&self, change: MembershipChange) {
        // Ignore an error: a relay that has ended needs no changes.
        let _ = self.membership_changes.send(change);
        self.ring();
    }

    fn ring(&self) {
        // Ignore an error. The write fails only if the counter is at its limit, and the relay then wakes anyway.
        let _ = write(&self.event, &1u64.to_ne_bytes());
    }
}

pub(crate) struct Inbox {
    stop: Arc<AtomicBool>,
    event: Arc<OwnedFd>,
    membership_changes: mpsc::Receiver<MembershipChange>,
}

/// A host that sends to or receives from one of the scenario's groups.
pub(crate) struct Member {
    pub(crate) group: u32,
    pub(crate) host: NodeIx,
    /// Whether the host is a member from the start.
    pub(crate) joined: bool,
}

pub(crate) struct Relay {
    network: Datagrams,
    clock: Clock,
    gates: Vec<Gate>,
    /// For each node, the index of its gate in `gates`.
    places: BTreeMap<NodeIx, usize>,
    hosts: BTreeMap<Ipv4Addr, NodeIx>,
    groups: Groups,
    inbox: Inbox,
    streams: Streams,
    tap: Option<Tap>,
    timing: Punctuality,
    /// Datagrams that are held to emulate send jitter. Each has the index of its gate. The key is the release time and
    /// the order in which the datagram was read.
    held: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
}

struct Groups {
    /// The groups of the scenario.
    own: BTreeMap<Ipv4Addr, u32>,
    /// Multicast groups that are not in the scenario. The key is the group's address and a sender. The value is the
    /// number of a group in the network that only this sender uses.
    others: BTreeMap<(Ipv4Addr, NodeIx), u32>,
    joined: BTreeMap<(Ipv4Addr, NodeIx), Sources>,
    /// Memberships that the scenario controls. IGMP messages about them are ignored.
    planned: BTreeSet<(Ipv4Addr, NodeIx)>,
}

pub(crate) struct Relayed {
    pub(crate) network: Datagrams,
    pub(crate) streams: Streams,
    pub(crate) tap: Option<Tap>,
    pub(crate) timing: Punctuality,
}

impl Relay {
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
            timing: Punctuality::default(),
            held: BTreeMap::new(),
        }
    }

    /// Runs the relay until it is stopped.
    pub(crate) fn run(mut self) -> io::Result<Relayed> {
        kernel::precise_waits();
        // Ask for real-time priority, which may be denied. Without it, releases on a busy machine are late by whole
        // scheduler time slices.
        kernel::set_realtime_priority(true);
        let mut buffer = vec![0; MAX_DATAGRAM];
        let mut ready: Vec<usize> = Vec::new();
        loop {
            let now = self.clock.now();
            self.release(now);
            while let Some(entry) = self.held.first_entry().filter(|e| e.key().0 <= now) {
                let (n, bytes) = entry.remove();
                self.pass(n, &bytes);
            }
            if self.inbox.stop.load(Ordering::Acquire) {
                let Self { network, streams, tap, timing, .. } = self;
                return Ok(Relayed { network, streams, tap, timing });
            }
            while let Ok(MembershipChange { group, host, join }) = self.inbox.membership_changes.try_recv() {
                let change = if join { Change::All } else { Change::Only(&[]) };
                self.groups.change(&mut self.network, now, group_address(group), host, change);
            }
            self.wait(&mut ready)?;
            for n in ready.drain(..) {
                self.take(n, &mut buffer)?;
            }
        }
    }

    /// Waits until a release is due or a descriptor is readable. Adds the indices of readable gates to `ready`.
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
            // Read the event, which resets its counter.
            let _ = read(&self.inbox.event, &mut [0; 8]);
        }
        Ok(())
    }

    fn take(&mut self, n: usize, buffer: &mut [u8]) -> io::Result<()> {
        // Limit the number of datagrams, so that a host that sends continuously does not delay the other hosts.
        for _ in 0..READ_BATCH {
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
        // Ignore datagrams that are not IPv4. Kernels also send datagrams by themselves, for example IPv6.
        let Some(datagram) = Datagram::read(bytes) else { return };
        let host = self.hosts.get(&datagram.to()).copied();
        self.timing.read += 1;
        match host.and_then(|to| self.streams.hold(self.clock.now(), &datagram, to)) {
            // Add the count to the key, so that datagrams with the same release time keep their order.
            Some(until) => drop(self.held.insert((until, self.timing.read), (n, bytes.to_vec()))),
            None => self.pass(n, bytes),
        }
    }

    fn pass(&mut self, n: usize, bytes: &[u8]) {
        let Some(datagram) = Datagram::read(bytes) else { return };
        let now = self.clock.now();
        // First let the datagrams that are due leave the network. Then this datagram enters it.
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
        let host = if let Some(Target::Host(host)) = target { Some(host) } else { None };
        self.streams.sent(now, &datagram, host);
        let ecn = datagram.ecn();
        let taken = target.and_then(|to| self.network.offer(now, from, to, ecn, bytes.to_vec()));
        self.timing.astray += u64::from(taken.is_none());
        if let (Some(tap), Some(number)) = (&mut self.tap, taken) {
            tap.sent(now, number, from, host, &datagram);
        }
        // Release again. If the path has neither rates nor delays, the datagram arrives immediately.
        self.release(now);
    }

    fn release(&mut self, now: Time) {
        let Self { network, gates, places, timing, streams, tap, clock, .. } = self;
        network.advance(now, |passed| {
            let DatagramEvent::Arrival(arrival) = passed else { return streams.sample() };
            let Some(gate) = places.get(&arrival.host).map(|n| &gates[*n]) else { return };
            // Check whether the network has changed the ECN field.
            let as_sent = arrival.bytes.get(1).is_none_or(|tos| Ecn::from_bits(*tos) == arrival.ecn);
            let written = if as_sent {
                write(&gate.tun, arrival.bytes)
            } else {
                let mut marked = arrival.bytes.to_vec();
                mark(&mut marked, arrival.ecn);
                write(&gate.tun, &marked)
            };
            // Measure the lateness after the system call, so that it is included.
            let late = clock.now().since(arrival.at);
            match written {
                Ok(_) => {
                    timing.written += 1;
                    timing.late += u64::from(late > LATE);
                    timing.lateness.add(late);
                    streams.arrived(&arrival);
                    if let Some(tap) = tap {
                        tap.arrived(&arrival);
                    }
                }
                Err(_) => timing.refused += 1,
            }
        });
    }
}

impl Groups {
    fn change(&mut self, network: &mut Datagrams, now: Time, group: Ipv4Addr, host: NodeIx, change: Change<'_>) {
        // Ignore the groups 224.0.0.x, because they are link-local and not forwarded (RFC 5771).
        if group.octets()[..3] == [224, 0, 0] {
            return;
        }
        let sources = self.joined.entry((group, host)).or_default();
        let before = sources.is_any();
        sources.apply(change);
        let join = sources.is_any();
        if !join {
            self.joined.remove(&(group, host));
        }
        // Stop if nothing has changed. Kernels repeat their reports, and send one report per source.
        if join == before {
            return;
        }
        if let Some(own) = self.own.get(&group) {
            // Add the host to the group's members first, because a program may join a group of the scenario.
            network.add_member(*own, host);
            network.set_membership(now, *own, host, join);
        }
        let all = (group, NodeIx(0))..=(group, NodeIx(u32::MAX));
        for (_, other) in self.others.range(all) {
            network.set_membership(now, *other, host, join);
        }
    }

    /// Returns the number of the group for this sender. The first datagram of a sender creates its multicast tree.
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
        if self.others.len() >= MAX_PROGRAM_GROUPS || group.octets()[..3] == [224, 0, 0] {
            return None;
        }
        let new = network.add_group(from)?;
        self.others.insert((group, from), new);
        // Add all hosts to the tree's routes, because any host may join later.
        gates.iter().for_each(|gate| network.add_member(new, gate.node));
        for ((_, host), _) in self.joined.range((group, NodeIx(0))..=(group, NodeIx(u32::MAX))) {
            network.set_membership(now, new, *host, true);
        }
        Some(new)
    }
}
