"""Scenarios from Python: the same keys as in a scenario file, checked by the same core.

Values are written as in the file: rates "4Mbps", spans "10ms", sizes "1018B", queue limits "50p". What is
None is not written, and takes the file's default.

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


def _key(name: str) -> Any:
    return field(default=None, metadata={"key": name})


@dataclass(kw_only=True)
class Uniform(Part):
    """A moment drawn from the seed, between two."""

    uniform: tuple[str, str]


@dataclass(kw_only=True)
class Jitter(Part):
    """Random addition to each packet's delay."""

    mean: str
    dist: str = "exponential"
    reorder: bool | None = None


@dataclass(kw_only=True)
class Arq(Part):
    """Link-layer retransmission: loss becomes delay."""

    tries: int
    per_try: str


@dataclass(kw_only=True)
class Loss(Part):
    """Loss: bernoulli (p), run (mean), gilbert (p_bad, p_good, loss_good, loss_bad) or list (packets)."""

    kind: str
    p: float | None = None
    mean: str | None = None
    p_bad: float | None = None
    p_good: float | None = None
    loss_good: float | None = None
    loss_bad: float | None = None
    packets: Sequence[int] | None = None
    direction: str | None = None


@dataclass(kw_only=True)
class Queue(Part):
    """Drop-tail or RED; preset "ns2" or "classic" in place of RED's parameters."""

    kind: str | None = None
    limit: str | None = None
    preset: str | None = None
    min: str | None = None
    max: str | None = None
    max_p: float | None = None
    weight: float | None = None
    gentle: bool | None = None
    ecn: bool | None = None


@dataclass(kw_only=True)
class Pipe(Part):
    """What a link does to packets."""

    rate: str | None = None
    trace: str | Path | None = None
    loop: bool | None = None
    delay: str | None = None
    jitter: Jitter | None = None
    arq: Arq | None = None
    loss: Loss | None = None
    queue: Queue | None = None
    mtu: str | None = None
    back: Pipe | None = None
    """What differs in the other direction."""


@dataclass(kw_only=True)
class Link(Pipe):
    """A link between two nodes; a range of nodes gives a link to each."""

    between: tuple[str, str]
    name: str | None = None


@dataclass(kw_only=True)
class Topology(Part):
    """A shape: dumbbell (bottleneck, access), star (legs), chain or parking-lot (hops), tree (levels)."""

    shape: str
    bottleneck: Pipe | None = None
    access: Pipe | None = None
    legs: Sequence[Pipe] = ()
    hops: Sequence[Pipe] = ()
    levels: Sequence[Mapping[str, Value]] = ()


@dataclass(kw_only=True)
class Encode(Part):
    """How pictures are encoded."""

    codec: str | None = None
    size: str | None = None
    fps: float | str | None = None
    gop: int | None = None
    bframes: int | None = None
    q: str | None = None


@dataclass(kw_only=True)
class Buffer(Part):
    """A receiver's buffer."""

    size: str
    consume: str | None = None


@dataclass(kw_only=True)
class Rtcp(Part):
    """RTCP's timing."""

    profile: str | None = None
    session_bw: str | None = None
    t_min: str | None = None
    reports: str | None = None


@dataclass(kw_only=True)
class Period(Part):
    """How long an on/off source is on, or off."""

    dist: str
    mean: str
    shape: float | None = None


@dataclass(kw_only=True)
class Flow(Part):
    """A flow: video, tcp, cbr or onoff."""

    name: str
    kind: str
    from_: str | None = _key("from")
    to: Sequence[str] | None = None
    receivers: int | None = None
    cast: str | None = None
    start: str | Uniform | None = None
    stop: str | None = None
    send_jitter: str | None = None
    controller: str | None = None
    mode: str | None = None
    params: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    media: str | None = None
    clip: str | Path | Sequence[str | Path] | None = None
    encode: Encode | None = None
    vbr: str | None = None
    emit: str | None = None
    packet: str | None = None
    playout: str | None = None
    buffer: Buffer | None = None
    rtcp: Rtcp | None = None
    congestion: str | None = None
    preset: str | None = None
    bytes: str | None = None
    rate: str | None = None
    on: Period | None = None
    off: Period | None = None
    ecn: bool | None = None


@dataclass(kw_only=True)
class Event(Part):
    """Something that happens at a moment: exactly one of join, leave, start, stop, set."""

    at: str
    join: str | None = None
    leave: str | None = None
    start: str | None = None
    stop: str | None = None
    set: Mapping[str, Value] | None = None


@dataclass(kw_only=True)
class Record(Part):
    """What is written down."""

    interval: str | None = None
    packets: str | Sequence[str] | None = None
    pcap: Sequence[str] | None = None


@dataclass(kw_only=True)
class Simulcast(Part):
    """Groups that carry the same video at different rates, the lowest first; receivers choose between them."""

    name: str
    flows: Sequence[str]
    up: float | None = None
    hold: str | None = None


@dataclass(kw_only=True)
class Expect(Part):
    """A bound on a number of summary.json."""

    that: str
    min: float | None = None
    max: float | None = None


@dataclass(kw_only=True)
class Scenario(Part):
    """Everything that a run needs to know."""

    name: str
    duration: str
    format: int = 1
    warmup: str | None = None
    seed: int | None = None
    nodes: Sequence[str] = ()
    topology: Topology | None = None
    links: Sequence[Link] = field(default=(), metadata={"key": "link"})
    flows: Sequence[Flow] = field(default=(), metadata={"key": "flow"})
    simulcasts: Sequence[Simulcast] = field(default=(), metadata={"key": "simulcast"})
    events: Sequence[Event] = field(default=(), metadata={"key": "event"})
    record: Record | None = None
    expect: Sequence[Expect] = ()

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
