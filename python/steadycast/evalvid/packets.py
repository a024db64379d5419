"""Reads packet traces of networks outside Steadycast.

The formats are EvalVid's traces of the sender (sd) and the receiver (rd), ns-2, ns-3, tcpdump, captures, and tables
with a heading.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from steadycast.core import core
from steadycast.errors import UserError, reason
from steadycast.files import contents

_MOST_BYTES = 1 << 30
_LATER = "later fragments, which have no ports"
_NO_ID = "packets without an identification"


class Step(Enum):
    """What happened to a packet."""

    SENT = "sent"
    RECEIVED = "received"
    DROPPED = "dropped"


class Event(NamedTuple):
    """A line of a trace, or a packet of a capture."""

    step: Step | None
    """What happened to the packet.

    It is `None` in the trace of one host, which has either only sent or only received packets.
    """
    time_ns: int
    node: str
    """The name of the node. It is empty if the trace has only one node."""
    flow: str
    id: int | None
    """The packet's number in the trace or in the IP header. It is `None` if the packet has no number."""
    size: int | None
    """The size in bytes, with the headers that this kind of trace includes."""
    rtp: tuple[int, int] | None = None
    """The RTP source (SSRC) and sequence number."""
    digest: int | None = None
    """A hash of the first bytes of the payload."""


@dataclass
class PacketTrace:
    """The packets that a trace file contains."""

    path: Path
    form: str
    wraps: int | None
    """Packet numbers restart after this number of values. It is `None` if they never restart."""
    events: list[Event] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    """The number of skipped lines and packets, by reason."""
    notes: list[str] = field(default_factory=list)

    @property
    def has_steps(self) -> bool:
        """Whether the trace says for each packet whether it was sent or received."""
        return any(event.step is not None for event in self.events)


Lines = Iterator[tuple[int, str]]


class _Form(NamedTuple):
    name: str
    first: re.Pattern[str]
    """A pattern for the first line of a trace in this format."""
    read: Callable[[PacketTrace, Lines], None]
    wraps: int | None


def read_packets(path: Path) -> PacketTrace:
    """Read a packet trace. Detect its format by its first line or its first bytes.

    Raises:
        UserError: the file can't be read, has no known format, or a line of it is damaged.

    """
    try:
        data = contents(path, _MOST_BYTES)
    except OSError as error:
        raise UserError(str(path), f"can't be read ({reason(error)})", "check the path") from error
    # These are the magic numbers of pcapng and of pcap, with micro- and nanoseconds in both byte orders.
    if data[:4] in (
        b"\x0a\x0d\x0d\x0a",
        b"\xa1\xb2\xc3\xd4",
        b"\xd4\xc3\xb2\xa1",
        b"\xa1\xb2\x3c\x4d",
        b"\x4d\x3c\xb2\xa1",
    ):
        return _capture(path, data)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(str(path), "it is neither text nor a capture", _FORMS_READ) from error
    lines = [
        (number, line)
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith(("#", "%"))
    ]
    if not lines:
        raise UserError(str(path), "it has no packet", "give a trace with at least one")
    for number, line in lines[:20]:
        for form in _FORMS:
            if form.first.match(line):
                trace = PacketTrace(path, form.name, form.wraps)
                form.read(trace, (each for each in lines if each[0] >= number))
                if not trace.events:
                    left = ", ".join(f"{count} {why}" for why, count in trace.skipped.most_common())
                    raise UserError(str(path), f"no packet of it can be used: {left}", _FORMS_READ)
                return trace
    raise UserError(f"{path}:{lines[0][0]}", "this line is of no format that is read", _FORMS_READ)


def _ns(path: Path, number: int, text: str) -> int:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e10:
        raise UserError(f"{path}:{number}", f"{text[:40]!r} is not a time in seconds", "restore this line")
    whole, _, part = text.partition(".")
    if whole.isdecimal() and part.isdecimal():
        return int(whole) * 1_000_000_000 + int(part[:9].ljust(9, "0"))
    return round(seconds * 1e9)


_EVALVID = re.compile(r"\s*([\d.eE+-]+)\s+id\s+(\d+)\s+udp\s+(\d+)(\s|$)")


def _evalvid(trace: PacketTrace, lines: Lines) -> None:
    """Read lines ``time id N udp BYTES``. Further columns (EvalVid's ns-2 agents, Evalvid-RA) are allowed."""
    for number, line in lines:
        if not (found := _EVALVID.match(line)):
            raise UserError(
                f"{trace.path}:{number}",
                "this is no line of the form: time id N udp BYTES",
                "restore this line",
            )
        time = _ns(trace.path, number, found[1])
        trace.events.append(Event(None, time, "", "", int(found[2]), int(found[3])))


_NS2 = re.compile(r"[+\-rde] \S+ \S+ \S+ \S+ \d+ \S+ -?\d+ \S+ \S+ -?\d+ \d+(\s|$)")
_NS2_STEPS = {"+": Step.SENT, "r": Step.RECEIVED, "d": Step.DROPPED, "e": Step.DROPPED}


def _ns2(trace: PacketTrace, lines: Lines) -> None:
    """Read ns-2's lines ``event time from to type size flags flow source destination number id``.

    With ``+``, the packet enters the queue of a link at ``from``, with ``-`` it leaves the queue. With ``r`` it arrives
    at ``to``, and with ``d`` or ``e`` it is dropped.
    """
    for number, line in lines:
        if not _NS2.match(line):
            # A line is damaged if it begins like an event, but has other columns.
            if line[0] in "+-rde" and line[1:2] == " ":
                remedy = "a line has 12 columns (wired trace, trace-all); restore it"
                raise UserError(f"{trace.path}:{number}", "this line is damaged", remedy)
            trace.skipped["lines of other kinds"] += 1
            continue
        step, time, source, target, kind, size, _, flow, sent_from, sent_to, _, ident = line.split()[:12]
        if step == "-":
            continue
        if kind in ("tcp", "ack"):
            trace.skipped["TCP packets"] += 1
            continue
        node = target if step == "r" else source
        label = f"{sent_from}>{sent_to} {kind} fid {flow}"
        at = _ns(trace.path, number, time)
        trace.events.append(Event(_NS2_STEPS[step], at, node, label, int(ident), int(size)))


_NS3 = re.compile(r"[+\-drt] [\d.e+-]+ (/NodeList/(\d+)/\S* )?(ns3::|Payload|$)")
_NS3_IP = re.compile(
    r"ns3::Ipv4Header \(.*?\bid (\d+) protocol (\d+) offset \(bytes\) (\d+) .*?length: (\d+) ([\d.]+) > ([\d.]+)\)"
)
_NS3_UDP = re.compile(r"ns3::UdpHeader \(length: \d+ (\d+) > (\d+)\)")
_NS3_STEPS = {"+": Step.SENT, "t": Step.SENT, "r": Step.RECEIVED, "d": Step.DROPPED}


def _ns3(trace: PacketTrace, lines: Lines) -> None:
    """Read ns-3's ascii traces. ``+`` means queued, ``t`` sent, ``r`` received, and ``d`` dropped."""
    for number, line in lines:
        if not (head := _NS3.match(line)):
            raise UserError(
                f"{trace.path}:{number}", "this is no line of an ascii trace of ns-3", "restore this line"
            )
        step = line[0]
        if step == "-":
            continue
        ip = _NS3_IP.search(line)
        if ip is None or ip[2] != "17":
            trace.skipped["packets other than UDP over IPv4"] += 1
            continue
        udp = _NS3_UDP.search(line)
        if udp is None:
            trace.skipped[_LATER] += 1
            continue
        flow = f"{ip[5]}:{udp[1]}>{ip[6]}:{udp[2]}"
        at = _ns(trace.path, number, line.split(" ", 2)[1])
        trace.events.append(Event(_NS3_STEPS[step], at, head[2] or "", flow, int(ip[1]), int(ip[4])))


_TCPDUMP = re.compile(r"(\d+\.\d+) (?:\S+ +(?:In|Out|B|M|P) +)?(IP6? |ARP|[\d.]+ > )")
_TCPDUMP_IP = re.compile(r"\bid (\d+), offset (\d+).*?\bproto (\S+) \(\d+\), length (\d+)[^)]*\)(.*)")
_TCPDUMP_OLD = re.compile(r"(\S+) > (\S+): .*\bid (\d+)\b.*\blen (\d+)\)")
_ENDS = re.compile(r"\s*([\d.]+)\.(\d+) > ([\d.]+)\.(\d+):")


def _tcpdump(trace: PacketTrace, lines: Lines) -> None:
    """Read the output of ``tcpdump -tt -n -v``. The ports are on a second line, except in EvalVid's version."""
    heads: list[tuple[int, str]] = []
    for number, line in lines:
        if line[0].isspace() and heads:
            heads[-1] = heads[-1][0], f"{heads[-1][1]} {line.strip()}"
        else:
            heads.append((number, line))
    for number, line in heads:
        start = _TCPDUMP.match(line)
        if start is None:
            if re.match(r"\d\d:\d\d:\d\d", line):
                remedy = "record it by tcpdump -tt -n -v, or as a capture by -w FILE"
                raise UserError(f"{trace.path}:{number}", "its times are those of a day", remedy)
            trace.skipped["lines of other kinds"] += 1
            continue
        if new := _TCPDUMP_IP.search(line):
            ident, offset, protocol, size, rest = new.groups()
            if protocol != "UDP":
                trace.skipped["packets other than UDP over IPv4"] += 1
                continue
        elif old := _TCPDUMP_OLD.search(line):
            ident, offset, size, rest = old[3], "0", old[4], f"{old[1]} > {old[2]}:"
        else:
            is_udp = "UDP" in line and start[2] != "IP6 "
            trace.skipped[_NO_ID if is_udp else "packets other than UDP over IPv4"] += 1
            continue
        ends = _ENDS.match(rest)
        # Skip later fragments of an IP packet, because only the first fragment has the UDP header with the ports.
        if ends is None or offset != "0":
            trace.skipped[_LATER] += 1
            continue
        flow = f"{ends[1]}:{ends[2]}>{ends[3]}:{ends[4]}"
        trace.events.append(Event(None, _ns(trace.path, number, start[1]), "", flow, int(ident), int(size)))


_COLUMNS = {
    "time": ("time", "time_s", "t", "t_s", "timestamp"),
    "id": ("id", "packet", "packet_id", "seq", "uid", "number"),
    "size": ("size", "bytes", "size_bytes", "length"),
    "step": ("event", "dir", "step"),
    "node": ("node",),
    "flow": ("flow",),
}
_STEPS = {
    **dict.fromkeys(("s", "sent", "send", "tx", "+"), Step.SENT),
    **dict.fromkeys(("r", "received", "recv", "rx"), Step.RECEIVED),
    **dict.fromkeys(("d", "dropped", "drop"), Step.DROPPED),
}
_HEADING = re.compile(
    r"(?=.*\b(?:time|time_s|t|t_s|timestamp)\b)(?=.*\b(?:id|packet|packet_id|seq|uid|number)\b)[\w ,;\t]+$",
    re.I,
)


def _table(trace: PacketTrace, lines: Lines) -> None:
    """Read a table with a heading: time in seconds, packet number, and optionally bytes, event, node and flow."""
    _, heading = next(lines)
    split = re.compile(r"\s*[,;\t]\s*|\s+")
    names = [name.lower() for name in split.split(heading.strip())]
    place = {
        key: next((names.index(name) for name in known if name in names), None)
        for key, known in _COLUMNS.items()
    }
    for number, line in lines:
        # Split at blanks only if a split at other separators gives a wrong number of columns.
        row = re.split(r"\s*[,;\t]\s*", line.strip())
        row = row if len(row) == len(names) else split.split(line.strip())
        if len(row) != len(names):
            raise UserError(
                f"{trace.path}:{number}", f"{len(row)} columns in place of {len(names)}", "restore this line"
            )
        told = {key: row[at] if at is not None else "" for key, at in place.items()}
        if not told["id"].isdecimal() or (told["size"] and not told["size"].isdecimal()):
            raise UserError(
                f"{trace.path}:{number}",
                "the packet's number or bytes are no whole number",
                "restore this line",
            )
        step = _STEPS.get(told["step"].lower())
        if told["step"] and step is None:
            known = ", ".join(_STEPS)
            raise UserError(
                f"{trace.path}:{number}", f"event {told['step'][:20]!r} is unknown", f"take one of {known}"
            )
        at = _ns(trace.path, number, told["time"])
        size = int(told["size"]) if told["size"] else None
        trace.events.append(Event(step, at, told["node"], told["flow"], int(told["id"]), size))


# `1 << 16` is for formats that number packets by IP's identification field, which has 16 bits.
_FORMS = (
    _Form("EvalVid", _EVALVID, _evalvid, None),
    _Form("ns-3", _NS3, _ns3, 1 << 16),
    _Form("ns-2", _NS2, _ns2, None),
    _Form("tcpdump", re.compile(rf"(?:{_TCPDUMP.pattern}|\d\d:\d\d:\d\d\.\d+ )"), _tcpdump, 1 << 16),
    _Form("table", _HEADING, _table, None),
)
_FORMS_READ = (
    "give EvalVid's sd or rd (time id N udp BYTES), a wired trace of ns-2, an ascii trace of ns-3, the text of "
    "tcpdump -tt -n -v, a capture (.pcap, .pcapng), or a table whose heading has time and id"
)


def _capture(path: Path, data: bytes) -> PacketTrace:
    trace = PacketTrace(path, "capture", 1 << 16)
    found, trace.notes = core.datagrams(str(path), data)
    for at, sent_from, sent_to, size, ident, rtp, digest in found:
        trace.events.append(Event(None, at, "", f"{sent_from}>{sent_to}", ident, size, rtp, digest))
    if not found:
        raise UserError(str(path), "it has no UDP datagram", "capture where the video passes")
    return trace
