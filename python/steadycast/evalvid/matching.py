"""Matches sent packets with received packets. Counts the unmatched packets by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from steadycast.errors import UserError
from steadycast.evalvid.packets import Event, PacketTrace, Step

NOT_RECEIVED = "not received"
_MOST_HOPS = 16
"""The largest number of lines that a trace may have about one sent packet."""


class SentPacket(NamedTuple):
    """A packet that was sent, and when it arrived."""

    time_ns: int
    size: int | None
    arrival_ns: int | None
    lost: str
    """Why the packet did not arrive. It is empty if the packet arrived."""


@dataclass(frozen=True)
class Exchange:
    """The packets of a flow from its sender to one receiver, in the order of sending."""

    packets: list[SentPacket]
    matched_by: str
    """The packet property by which the two traces were matched."""
    unmatched: Counter[str] = field(default_factory=Counter)
    """Number of packets by reason, for packets that are not in `packets` or are duplicates."""
    notes: tuple[str, ...] = ()

    @property
    def lost(self) -> Counter[str]:
        """The number of lost packets by reason."""
        return Counter(packet.lost for packet in self.packets if packet.lost)

    @property
    def delays_ns(self) -> list[int]:
        """The delays of packets that arrived, in ns. They may be negative if the clocks of the two hosts differ."""
        return [p.arrival_ns - p.time_ns for p in self.packets if p.arrival_ns is not None]


def exchange(
    sent: PacketTrace,
    received: PacketTrace | None,
    *,
    flow: str | None = None,
    receiver: str | None = None,
    clock_offset_ns: int = 0,
) -> Exchange:
    """Match the sent and the received packets of two traces, or of one trace that contains both ends.

    Args:
        sent: the trace of the sender or of the whole network.
        received: the trace of the receiver. It is `None` if ``sent`` contains both ends.
        flow: a part of the flow's name. It is needed if there are several flows.
        receiver: the node of the receiver. It is needed if there are several receivers.
        clock_offset_ns: the receiver's clock minus the sender's clock.

    Raises:
        UserError: the flow, the receiver or the packets are ambiguous.

    """
    if received is None and not sent.has_steps:
        what = f"a trace of the form {sent.form} has one end"
        raise UserError(str(sent.path), what, "give the receiver's as well: --received FILE")
    first = _of_flow(sent, flow, "--sent")
    departures = [event for event in first if event.step in (None, Step.SENT)]
    if received is None:
        last, where = first, sent
    else:
        last, where = _of_flow(received, flow, "--received"), received
    arrivals = _arrivals(last, where, receiver)
    if not departures:
        raise UserError(str(sent.path), "nothing of the flow is sent in it", "give the sender's trace")
    drops = [event for event in first if event.step is Step.DROPPED]
    unmatched: Counter[str] = Counter()
    departures, arrivals = _of_one_source(departures, arrivals, unmatched)
    matched_by, keys = _identity((departures, arrivals, drops), sent)
    order = sorted(range(len(departures)), key=lambda n: departures[n].time_ns)
    place: dict[Hashable, int] = {}
    for n in order:
        first_at = place.setdefault(keys[0][n], n)
        # Count only a second entry at the same node as a retransmission, because a network's trace lists a packet at
        # each hop.
        unmatched["sent again"] += first_at != n and departures[first_at].node == departures[n].node
    dropped = {key: event.node for key, event in zip(keys[2], drops, strict=True)}
    came: dict[Hashable, int] = {}
    for n in sorted(range(len(arrivals)), key=lambda n: arrivals[n].time_ns):
        key = keys[1][n]
        if key not in place:
            unmatched["received and never sent"] += 1
        elif key in came:
            unmatched["received again"] += 1
        else:
            came[key] = arrivals[n].time_ns - clock_offset_ns
    packets = []
    for key, n in place.items():
        at_node = dropped.get(key)
        why = NOT_RECEIVED if at_node is None else f"dropped at node {at_node}" if at_node else "dropped"
        event = departures[n]
        packets.append(SentPacket(event.time_ns, event.size, came.get(key), "" if key in came else why))
    notes = [f"{t.path}: {note}" for t in {id(t): t for t in (sent, where)}.values() for note in _notes(t)]
    return Exchange(packets, matched_by, +unmatched, tuple(notes))


def _notes(trace: PacketTrace) -> list[str]:
    left = [f"left out: {count} {why}" for why, count in trace.skipped.most_common()]
    return [*trace.notes, *left]


def _of_flow(trace: PacketTrace, flow: str | None, option: str) -> list[Event]:
    known = Counter(event.flow for event in trace.events)
    # If the trace has only one flow, ignore the flow's name. A network address translator may have changed it.
    chosen = [name for name in known if len(known) == 1 or flow is None or flow in name]
    if len(chosen) != 1:
        several = "; ".join(f"{name or 'without a name'} ({n} lines)" for name, n in known.most_common(8))
        what = f"of its flows {len(chosen)} are meant by {flow!r}" if flow else f"it has {len(known)} flows"
        raise UserError(
            f"{option} {trace.path}", f"{what}: {several}", "name one by a part of its name: --flow PART"
        )
    return [event for event in trace.events if event.flow == chosen[0]]


def _arrivals(events: Sequence[Event], trace: PacketTrace, receiver: str | None) -> list[Event]:
    """Return the arrivals at the receiver. The receiver is the node that receives the flow and does not forward it."""
    if not trace.has_steps:
        return list(events)
    arrivals = [event for event in events if event.step is Step.RECEIVED]
    nodes = dict.fromkeys(event.node for event in arrivals)
    forward = {event.node for event in events if event.step is Step.SENT}
    if receiver is not None:
        ends = [node for node in nodes if node == receiver]
    else:
        ends = [node for node in nodes if node not in forward or not node]
    if not arrivals and receiver is None:
        return []
    if len(ends) != 1:
        listed = ", ".join(nodes) or "none"
        what = f"{len(ends)} receivers are possible; nodes that receive the flow: {listed}"
        raise UserError(str(trace.path), what, "name one: --receiver NODE")
    return [event for event in arrivals if event.node == ends[0]]


def _of_one_source(
    departures: list[Event], arrivals: list[Event], unmatched: Counter[str]
) -> tuple[list[Event], list[Event]]:
    """Remove RTCP packets and packets of other sources that share the ports of an RTP stream (RFC 5761)."""
    sources = Counter(event.rtp[0] for event in departures if event.rtp)
    if not sources or sources.total() * 2 < len(departures):
        return departures, arrivals
    (main, _), *_others = sources.most_common(1)
    ends = []
    for end in (departures, arrivals):
        kept = [event for event in end if event.rtp and event.rtp[0] == main]
        unmatched["RTCP, or of another RTP source"] += len(end) - len(kept)
        ends.append(kept)
    return ends[0], ends[1]


def _identity(ends: Sequence[Sequence[Event]], sent: PacketTrace) -> tuple[str, list[list[Hashable]]]:
    """Return the name of the property that identifies packets, and its value for each departure, arrival and drop.

    The property is the RTP sequence number, the number in the trace or in the IP header, or the payload. All packets
    must have it. If several properties are possible, the one with the most distinct values is used.
    """
    rtp = [[None if event.rtp is None else event.rtp[1] for event in end] for end in ends]
    ids = [[event.id for event in end] for end in ends]
    digests: list[list[Hashable]] = [[event.digest for event in end] for end in ends]
    number = "packet number" if sent.wraps is None else "IP identification"
    candidates: dict[str, list[list[Hashable]]] = {}
    for name, numbers, wraps in (("RTP sequence number", rtp, 1 << 16), (number, ids, sent.wraps)):
        if all(value is not None for end in numbers for value in end):
            candidates[name] = _unwrapped(numbers, wraps)
    if all(value is not None for end in digests for value in end):
        candidates["payload"] = digests
    # If several candidates have equally many distinct values, `max` returns the first of them.
    best = max(candidates, key=lambda name: len(set(candidates[name][0])), default=None)
    if best is None or len(set(candidates[best][0])) * _MOST_HOPS < len(ends[0]):
        what = "nothing tells its packets apart: neither RTP numbers nor IP identifications nor payloads"
        raise UserError(
            str(sent.path), what, "give two captures (.pcap), or traces with the packets' numbers"
        )
    return best, candidates[best]


def _unwrapped(ends: Sequence[Sequence[int | None]], wraps: int | None) -> list[list[Hashable]]:
    """Unwrap numbers that restart after ``wraps``. Assume that the receiver's first number is near the sender's."""
    known = [[number for number in end if number is not None] for end in ends]
    # Do not unwrap numbers that all differ, because they may be random.
    if wraps is None or len(set(known[0])) == len(known[0]):
        return [list(end) for end in known]
    unwrapped: list[list[Hashable]] = []
    for numbers in known:
        last, keys = known[0][0], list[Hashable]()
        for number in numbers:
            # Take the value that is nearest to `last` among those that equal `number` modulo `wraps`.
            key = last + (number - last + wraps // 2) % wraps - wraps // 2
            keys.append(key)
            last = max(last, key)
        unwrapped.append(keys)
    return unwrapped
