//! The relay between hosts: passes their kernels' datagrams through the network model.

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

/// The lateness beyond which a datagram's release counts as late.
pub const LATE: Span = Span::millis(1);

const MAX_PROGRAM_GROUPS: usize = 256;

/// Maximum number of datagrams read from one host before the others are served.
const READ_BATCH: usize = 64;

/// The largest IPv4 datagram.
const MAX_DATAGRAM: usize = 65_536;

/// A host's node and the relay's end of its TUN device.
pub(crate) struct Gate {
    pub(crate) node: NodeIx,
    pub(crate) addr: Ipv4Addr,
    pub(crate) tun: OwnedFd,
}

/// The relay's timing.
#[derive(Clone, Debug, Default)]
pub struct Punctuality {
    /// Datagrams read from hosts.
    pub read: u64,
    /// Datagrams written to hosts.
    pub written: u64,
    /// Datagrams that a host's kernel rejected.
    pub refused: u64,
    /// Datagrams without a destination in this network.
    pub astray: u64,
    /// Datagrams written later than [`LATE`] after they were due.
    pub late: u64,
    /// Lateness of releases.
    pub lateness: Spread,
}

/// A host joins or leaves a group of the network's multicast trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MembershipChange {
    pub(crate) group: u32,
    pub(crate) host: NodeIx,
    pub(crate) join: bool,
}

/// Wakes, informs or stops a relay from another thread.
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
        // A relay that has ended needs no changes.
        let _ = self.membership_changes.send(change);
        self.ring();
    }

    fn ring(&self) {
        // This fails only if the counter is at its limit; the relay then wakes anyway.
        let _ = write(&self.event, &1u64.to_ne_bytes());
    }
}

pub(crate) struct Inbox {
    stop: Arc<AtomicBool>,
    event: Arc<OwnedFd>,
    membership_changes: mpsc::Receiver<MembershipChange>,
}

/// A source or receiver of one of the scenario's groups.
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
    /// The index of each node's gate.
    places: BTreeMap<NodeIx, usize>,
    hosts: BTreeMap<Ipv4Addr, NodeIx>,
    groups: Groups,
    inbox: Inbox,
    streams: Streams,
    tap: Option<Tap>,
    timing: Punctuality,
    /// The datagrams that are held to emulate send jitter, each with the index of its gate. The keys are the release
    /// time and the order of arrival.
    held: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
}

struct Groups {
    /// The scenario's groups.
    own: BTreeMap<Ipv4Addr, u32>,
    /// The groups that programs have joined and that are not in the scenario, one per source.
    others: BTreeMap<(Ipv4Addr, NodeIx), u32>,
    joined: BTreeMap<(Ipv4Addr, NodeIx), Sources>,
    /// Memberships that the scenario controls, so that IGMP messages about them are ignored.
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

    /// Runs until it is stopped.
    pub(crate) fn run(mut self) -> io::Result<Relayed> {
        kernel::precise_waits();
        // Without real-time priority, which may be denied, a busy machine delays releases by whole scheduler slices.
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

    /// Waits until a release is due or a descriptor is readable.
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
            // The read resets the event's counter.
            let _ = read(&self.inbox.event, &mut [0; 8]);
        }
        Ok(())
    }

    fn take(&mut self, n: usize, buffer: &mut [u8]) -> io::Result<()> {
        // A host that sends continuously must not delay the others.
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
        // Kernels also send datagrams by themselves, for example IPv6.
        let Some(datagram) = Datagram::read(bytes) else { return };
        let host = self.hosts.get(&datagram.to()).copied();
        self.timing.read += 1;
        match host.and_then(|to| self.streams.hold(self.clock.now(), &datagram, to)) {
            // The count keeps datagrams with the same release time in order.
            Some(until) => drop(self.held.insert((until, self.timing.read), (n, bytes.to_vec()))),
            None => self.pass(n, bytes),
        }
    }

    fn pass(&mut self, n: usize, bytes: &[u8]) {
        let Some(datagram) = Datagram::read(bytes) else { return };
        let now = self.clock.now();
        // Datagrams that are due leave the network before this one enters it.
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
        // Without rates or delays on the path, the datagram arrives immediately.
        self.release(now);
    }

    fn release(&mut self, now: Time) {
        let Self { network, gates, places, timing, streams, tap, clock, .. } = self;
        network.advance(now, |passed| {
            let DatagramEvent::Arrival(arrival) = passed else { return streams.sample() };
            let Some(gate) = places.get(&arrival.host).map(|n| &gates[*n]) else { return };
            // The network may have marked or cleared the ECN field.
            let as_sent = arrival.bytes.get(1).is_none_or(|tos| Ecn::from_bits(*tos) == arrival.ecn);
            let written = if as_sent {
                write(&gate.tun, arrival.bytes)
            } else {
                let mut marked = arrival.bytes.to_vec();
                mark(&mut marked, arrival.ecn);
                write(&gate.tun, &marked)
            };
            // The lateness includes the system call.
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
        // Groups 224.0.0.x are link-local and not forwarded (RFC 5771).
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
        // Kernels repeat their reports, and send one per source.
        if join == before {
            return;
        }
        if let Some(own) = self.own.get(&group) {
            // A program may also join a group of the scenario.
            network.add_member(*own, host);
            network.set_membership(now, *own, host, join);
        }
        let all = (group, NodeIx(0))..=(group, NodeIx(u32::MAX));
        for (_, other) in self.others.range(all) {
            network.set_membership(now, *other, host, join);
        }
    }

    /// Returns the group's number for this sender, whose first datagram creates the tree.
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
        // Any host may join later, so the tree needs routes to all.
        gates.iter().for_each(|gate| network.add_member(new, gate.node));
        for ((_, host), _) in self.joined.range((group, NodeIx(0))..=(group, NodeIx(u32::MAX))) {
            network.set_membership(now, new, *host, true);
        }
        Some(new)
    }
}
