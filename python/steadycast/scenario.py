"""Scenarios from Python: the same keys as in a scenario file, checked by the same core.

Values are written as in the file: rates "4Mbps", spans "10ms", sizes "1018B", queue limits "50p". What is
None is not written, and takes the file's default. `steadycast check --explain flow.playout` says what a key means.

    Scenario(
        name="dumbbell",
        duration="80s",
        topology=Topology(shape="dumbbell", bottleneck=Pipe(rate="4Mbps", delay="10ms")),
        flows=[Flow(name="video", kind="video", controller="asmp"), Flow(name="tcp", kind="tcp")],
    )
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steadycast.files import write_text

Value = str | int | float | bool | Sequence["Value"] | Mapping[str, "Value"]


@dataclass(kw_only=True)
class Part:
    """Anything that is written as a table of keys."""

    extra: Mapping[str, Value] = field(default_factory=dict)
    """Keys that have no field here, as they are written in a file."""

    def plain(self) -> dict[str, Any]:
        """Return the keys and values as a scenario file has them."""
        result: dict[str, Any] = {}
        for one in dataclasses.fields(self):
            value = getattr(self, one.name)
            if (
                one.name == "extra"
                or value is None
                or (not isinstance(value, Part) and value in ((), [], {}))
            ):
                continue
            result[one.metadata.get("key", one.name)] = _plain(value)
        return {**result, **{k: _plain(v) for k, v in self.extra.items()}}


# The classes from here on are made by `make python-schema`: change the schema instead.


@dataclass(kw_only=True)
class Uniform(Part):
    """A start drawn from the seed."""

    uniform: tuple[str, str]


@dataclass(kw_only=True)
class Jitter(Part):
    """A random addition to each packet's delay."""

    mean: str
    dist: str | None = None
    reorder: bool | None = None


@dataclass(kw_only=True)
class Arq(Part):
    """Link-layer retransmission: loss becomes delay."""

    tries: int
    per_try: str


@dataclass(kw_only=True)
class Loss(Part):
    """Which packets get lost, apart from the queue."""

    kind: str
    direction: str | None = None
    loss_bad: float | None = None
    loss_good: float | None = None
    mean: str | None = None
    p: float | None = None
    p_bad: float | None = None
    p_good: float | None = None
    packets: Sequence[int] = ()


@dataclass(kw_only=True)
class Reorder(Part):
    """Which packets come so late that others overtake them."""

    p: float
    by: str | None = None


@dataclass(kw_only=True)
class Policer(Part):
    """A token bucket before the queue, which drops what does not conform (RFC 2697, with one bucket)."""

    rate: str
    burst: str


@dataclass(kw_only=True)
class Queue(Part):
    """What waits; default drop-tail with 50 packets."""

    kind: str | None = None
    alpha: float | None = None
    beta: float | None = None
    ce_threshold: str | None = None
    classic_share: float | None = None
    ecn: bool | None = None
    flows: int | None = None
    gentle: bool | None = None
    interval: str | None = None
    k: float | None = None
    limit: str | None = None
    mark_ecnth: float | None = None
    max: str | None = None
    max_burst: str | None = None
    max_p: float | None = None
    mean_packet: str | None = None
    min: str | None = None
    min_th: str | None = None
    preset: str | None = None
    quantum: str | None = None
    range: str | None = None
    t_update: str | None = None
    target: str | None = None
    th_len: int | None = None
    weight: float | None = None


@dataclass(kw_only=True)
class Pipe(Part):
    """A link's behaviour, in both directions unless `back` says otherwise."""

    arq: Arq | None = None
    back: Pipe | None = None
    delay: str | None = None
    duplicate: float | None = None
    jitter: Jitter | None = None
    loop: bool | None = None
    loss: Loss | None = None
    mtu: str | None = None
    policer: str | Policer | None = None
    queue: Queue | None = None
    rate: str | None = None
    reorder: Reorder | None = None
    trace: str | Path | None = None


@dataclass(kw_only=True)
class Link(Pipe):
    """A link."""

    between: tuple[str, str]
    name: str | None = None


@dataclass(kw_only=True)
class Leg(Pipe):
    """Links of a star or chain that are alike."""

    name: str | None = None
    count: int | None = None


@dataclass(kw_only=True)
class Level(Pipe):
    """Links of one level of a tree."""

    fanout: int


@dataclass(kw_only=True)
class Topology(Part):
    """A ready-made network."""

    shape: str
    access: Pipe | None = None
    bottleneck: Pipe | None = None
    hops: Sequence[Pipe] = ()
    legs: Sequence[Pipe] = ()
    levels: Sequence[Level | Mapping[str, Value]] = ()


@dataclass(kw_only=True)
class Encode(Part):
    """How pictures are encoded."""

    bframes: int | None = None
    codec: str | None = None
    fps: str | float | None = None
    gop: int | None = None
    q: str | int | None = None
    size: str | None = None


@dataclass(kw_only=True)
class Buffer(Part):
    """The receiver's buffer, for controllers that look at it."""

    size: str
    consume: str | None = None


@dataclass(kw_only=True)
class Playout(Part):
    """A play-out delay that is more than a time."""

    kind: str
    least: str | None = None
    most: str | None = None


@dataclass(kw_only=True)
class Rtcp(Part):
    """RTCP's timing."""

    profile: str | None = None
    reports: str | None = None
    session_bw: str | None = None
    t_min: str | None = None


@dataclass(kw_only=True)
class Period(Part):
    """Length of the periods with data."""

    dist: str
    mean: str
    shape: float | None = None


@dataclass(kw_only=True)
class Clock(Part):
    """Its receivers' clocks; default: the sender's."""

    ahead: str | None = None
    behind: str | None = None
    drift: float | None = None


@dataclass(kw_only=True)
class Numbers(Part):
    """Where its packets' numbers begin; default: from the seed."""

    seq: int | None = None
    timestamp: int | None = None


@dataclass(kw_only=True)
class Table2(Part):
    """How paper 000's Table 2 becomes frames."""

    vary: float | None = None
    weights: Sequence[float] = ()


@dataclass(kw_only=True)
class Map001(Part):
    """How paper 001's rates become frames."""

    exponent: float | None = None
    intra: float | None = None


@dataclass(kw_only=True)
class Rfc8593(Part):
    """RFC 8593's synthetic codec; its frame rate is encode.fps, here 30 by default."""

    abrupt: float | None = None
    k_b: str | None = None
    k_d: int | None = None
    model: str | None = None
    r_max: str | None = None
    r_min: str | None = None
    scale_b: float | None = None
    scale_t: float | None = None
    skip_frames: int | None = None
    tau_v: str | None = None


@dataclass(kw_only=True)
class Flow(Part):
    """What is sent, from where, to whom."""

    name: str
    kind: str
    bucket: float | None = None
    buffer: Buffer | None = None
    bytes: str | None = None
    cap: str | None = None
    cast: str | None = None
    clip: str | Path | Sequence[str | Path] | None = None
    clock: Clock | None = None
    congestion: str | None = None
    controller: str | None = None
    count: int | None = None
    defences: bool | None = None
    delayed_ack: bool | None = None
    ecn: str | bool | None = None
    emit: str | None = None
    encode: Encode | None = None
    feedback: str | None = None
    floor: str | None = None
    from_: str | None = field(default=None, metadata={"key": "from"})
    hystart: bool | str | None = None
    init_rto: str | None = None
    initial_window: str | None = None
    map001: Map001 | None = None
    max_rto: str | None = None
    media: str | None = None
    min_rto: str | None = None
    mode: str | None = None
    nominal: float | None = None
    off: Period | None = None
    on: Period | None = None
    packet: str | None = None
    padding: bool | None = None
    params: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    playout: str | Playout | None = None
    preset: str | None = None
    rate: str | None = None
    receivers: int | None = None
    repair: str | None = None
    rfc8593: Rfc8593 | None = None
    room: float | None = None
    rtcp: Rtcp | None = None
    rtp: Numbers | None = None
    sack: bool | None = None
    send_jitter: str | None = None
    start: str | Uniform | None = None
    stop: str | None = None
    table2: Table2 | None = None
    tick: str | None = None
    timestamps: bool | None = None
    to: str | Sequence[str] | None = None
    trace: str | Path | None = None
    vbr: str | None = None
    wait: str | None = None
    window: str | None = None


@dataclass(kw_only=True)
class Change(Part):
    """A change of links."""

    link: str | Sequence[str]
    delay: str | None = None
    direction: str | None = None
    duplicate: float | None = None
    loop: bool | None = None
    loss: Loss | None = None
    rate: str | None = None
    reorder: Reorder | None = None
    trace: str | None = None


@dataclass(kw_only=True)
class Event(Part):
    """Something that happens: exactly one of join, leave, start, stop, set."""

    at: str
    join: str | Sequence[str] | None = None
    leave: str | Sequence[str] | None = None
    set: Change | Mapping[str, Value] | None = None
    start: str | Sequence[str] | None = None
    stop: str | Sequence[str] | None = None


@dataclass(kw_only=True)
class Record(Part):
    """What is recorded beside the summary."""

    interval: str | None = None
    packets: str | Sequence[str] | None = None
    pcap: str | Sequence[str] | None = None


@dataclass(kw_only=True)
class Simulcast(Part):
    """Groups that carry the same video at different rates."""

    name: str
    flows: str | Sequence[str]
    hold: str | None = None
    up: float | None = None


@dataclass(kw_only=True)
class Expect(Part):
    """What must hold at the end: exit code 1 and a table when it does not."""

    that: str
    max: float | None = None
    min: float | None = None


@dataclass(kw_only=True)
class _File(Part):
    """A Steadycast scenario: a network, the flows on it, and what happens on the way."""

    name: str
    duration: str
    events: Sequence[Event] = field(default=(), metadata={"key": "event"})
    expect: Sequence[Expect] = ()
    flows: Sequence[Flow] = field(default=(), metadata={"key": "flow"})
    format: int = 1
    join_latency: str | None = None
    leave_latency: str | None = None
    links: Sequence[Link] = field(default=(), metadata={"key": "link"})
    nodes: Sequence[str] = ()
    record: Record | None = None
    seed: int | None = None
    simulcasts: Sequence[Simulcast] = field(default=(), metadata={"key": "simulcast"})
    topology: Topology | None = None
    warmup: str | None = None


# The classes end here.


@dataclass(kw_only=True)
class Scenario(_File):
    """Everything that a run needs to know."""

    def to_toml(self) -> str:
        """Write it as a scenario file."""
        return _toml(self.plain())

    def to_json(self) -> str:
        """Write it as JSON, with the same keys."""
        return json.dumps(self.plain(), ensure_ascii=False, allow_nan=False)

    def save(self, path: Path | str) -> Path:
        """Write it to a file, and return its path."""
        path = Path(path)
        write_text(path, self.to_toml())
        return path


def _plain(value: Any) -> Any:
    if isinstance(value, Part):
        return value.plain()
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, Path):
        return str(value)
    return [_plain(v) for v in value]


def _toml(table: Mapping[str, Any]) -> str:
    """Write the top level's plain keys first, then its tables, then its arrays of tables."""
    lines = [f"{_bare(k)} = {_inline(v)}" for k, v in table.items() if not _is_table(v) and not _is_tables(v)]
    for key, value in table.items():
        for each in [value] if _is_table(value) else value if _is_tables(value) else []:
            head = f"[[{_bare(key)}]]" if _is_tables(value) else f"[{_bare(key)}]"
            lines += ["", head, *(f"{_bare(k)} = {_inline(v)}" for k, v in each.items())]
    return "\n".join(lines) + "\n"


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def _bare(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_bare(k)} = {_inline(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_inline(v) for v in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for DEL, which TOML wants written out.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
