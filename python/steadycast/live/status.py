"""How a live session goes, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self, TypeVar

Json = Mapping[str, Any]
T = TypeVar("T")
FATES = ("whole", "damaged", "missing", "undecodable")
"""What becomes of frames at a receiver."""


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _told(kind: type[T], status: Json, **own: Any) -> T:
    """Take each field from the core's status by its name, spans from milliseconds; ``own`` are the others."""
    names = [each.name for each in fields(kind) if each.name not in own]  # type: ignore[arg-type]
    spans = {name: f"{name.removesuffix('_s')}_ms" for name in names if name not in status}
    told = {name: _seconds(status[spans[name]]) if name in spans else status[name] for name in names}
    return kind(**told, **own)


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """A receiver, as its last report tells its sender."""

    name: str | None
    """Its canonical name (CNAME, RFC 3550, section 6.5.1)."""
    address: str
    """Where its reports come from."""
    ssrc: int
    """Its synchronisation source (RFC 3550, section 3)."""
    ours: bool
    """It sends the controller's own reports, and not only standard ones."""
    packets: bool
    """It tells of single packets (RFC 8888, transport-wide feedback), as the default towards one receiver has it."""
    aside: str | None
    """Why it is not heard: set aside by the sender's defences, or excluded."""
    left: bool
    """It has said BYE."""
    reports: int
    """How many of its reports have come."""
    silent_s: float
    """Since it was last heard."""
    loss_frac: float | None
    """Lost between its last two reports."""
    jitter_s: float | None
    """Interarrival jitter (RFC 3550, section 6.4.1)."""
    rtt_s: float | None
    """Round trip."""

    @classmethod
    def of(cls, status: Json) -> Self:
        """Read it from the core's."""
        return _told(cls, status, name=status["name"] or None)


@dataclass(frozen=True, slots=True)
class SenderStatus:
    """How a `Sender` goes. Counts are since its start; rates are of IP packets."""

    at_s: float
    """Since its start."""
    rate_bps: float
    """Sent, over the last second."""
    target_bps: float | None
    """What the controller allows."""
    limit: str | None
    """What limits the rate: start, network, cap, floor or encoder."""
    rule: str | None
    """The controller's rule for its decision."""
    loss_frac: float | None
    """The loss that went into the decision."""
    rtt_s: float | None
    """The round trip that went into the decision."""
    set_by: str | None
    """The receiver that the decision follows."""
    floor_bps: float | None
    """The rate's lower limit; none in paper mode."""
    backlog_s: float
    """How long what waits in the pacer takes to leave."""
    packets: int
    """RTP packets that were sent."""
    bytes: int
    """Their IP bytes."""
    frames: int
    """Pictures that were encoded."""
    skipped_frames: int
    """Encoded pictures that the pacer left out: the rate had fallen."""
    left_out: int
    """Pictures that were not encoded: the encoder was too slow, or a leaky queue was full."""
    waiting: int
    """Pictures that wait for the encoder."""
    key_frames: int
    """Key frames that receivers have asked for."""
    size: tuple[int, int] | None
    """Width and height at which pictures are coded: smaller than the source's where the rate has no room for that."""
    smaller_frames: int
    """Pictures that were coded at a smaller size than the source's."""
    quantizer: int | None
    """The last picture's."""
    receivers: tuple[PeerStatus, ...]
    """Who has reported."""

    @classmethod
    def of(cls, status: Json, *, waiting: int, left_out: int) -> Self:
        """Read it from the core's, and what its queue has."""
        decision, size = status["decision"] or {}, status["size"]
        return _told(
            cls,
            status,
            target_bps=decision.get("target_bps"),
            limit=decision.get("limit"),
            rule=decision.get("rule"),
            loss_frac=decision.get("loss"),
            rtt_s=_seconds(decision.get("rtt_ms")),
            set_by=decision.get("by"),
            backlog_s=_seconds(status["backlog_ms"]) or 0.0,
            left_out=status["left_out"] + left_out,
            waiting=waiting,
            size=(size["width"], size["height"]) if size else None,
            smaller_frames=size["smaller_frames"] if size else 0,
            receivers=tuple(PeerStatus.of(peer) for peer in status["peers"]),
        )


@dataclass(frozen=True, slots=True)
class ReceiverStatus:
    """How a `Receiver` goes. Counts are since its start; rates are of IP packets."""

    at_s: float
    """Since its start."""
    rate_bps: float
    """Received, over the last second."""
    loss_frac: float | None
    """Lost, over the last second."""
    delay_s: float | None
    """One way, above the least that was seen."""
    jitter_s: float | None
    """Interarrival jitter (RFC 3550, section 6.4.1)."""
    packets: int
    """RTP packets that came, repeats left out."""
    expected_packets: int
    """RTP packets by their sequence numbers."""
    repaired_packets: int
    """Packets that were lost, and came when they were sent again (RFC 4588)."""
    whole_frames: int
    """Frames that came with all that they depend on."""
    damaged_frames: int
    """Frames of which something is missing."""
    missing_frames: int
    """Frames of which nothing came."""
    undecodable_frames: int
    """Frames that came without something that they depend on."""
    unused: Mapping[str, int]
    """Packets that came and were not used, by reason."""
    unread: int
    """Pictures that left the queue before anybody read them."""
    silent_s: float | None
    """Since the last packet; `None` before the first one."""
    source: str | None
    """From which address the stream comes."""
    ended_by: str | None
    """What ended the stream; `None` while it goes on."""

    @classmethod
    def of(cls, status: Json, *, unread: int) -> Self:
        """Read it from the core's, and what its queue has lost."""
        return _told(
            cls,
            status,
            packets=status["received"],
            expected_packets=status["expected"],
            repaired_packets=(status["repair"] or {}).get("repaired", 0),
            unused=dict(status.get("unused", {})),
            unread=status["overrun"] + unread,
            source=status["from"],
            **{f"{fate}_frames": status["frames"][fate] for fate in FATES},
        )
