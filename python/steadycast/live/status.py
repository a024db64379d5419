"""The status of a live session, as data classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self, TypeVar

Json = Mapping[str, Any]
T = TypeVar("T")
FATES = ("whole", "damaged", "missing", "undecodable")
"""The possible outcomes of a frame at a receiver."""


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _told(kind: type[T], status: Json, **own: Any) -> T:
    """Create a ``kind`` from the fields of the core's status that have the same names.

    ``own`` contains the remaining fields. If the core has no field ``NAME_s``, its field ``NAME_ms`` is converted.
    """
    names = [each.name for each in fields(kind) if each.name not in own]  # type: ignore[arg-type]
    spans = {name: f"{name.removesuffix('_s')}_ms" for name in names if name not in status}
    told = {name: _seconds(status[spans[name]]) if name in spans else status[name] for name in names}
    return kind(**told, **own)


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """The state of a receiver, as known from its last report to the sender."""

    name: str | None
    """The canonical name (CNAME, RFC 3550, section 6.5.1)."""
    address: str
    """The source address of the receiver's reports."""
    ssrc: int
    """The synchronisation source (RFC 3550, section 3)."""
    ours: bool
    """Whether the receiver reports in the format of the sender's congestion controller, not only in standard RTCP."""
    packets: bool
    """Whether the receiver sends per-packet feedback (RFC 8888 or TWCC). A single receiver does so by default."""
    aside: str | None
    """Why the sender ignores the receiver's reports, or `None` if it uses them.

    Either the sender's feedback filter or a call of `Sender.exclude` is the reason.
    """
    left: bool
    """Whether the receiver has sent a BYE."""
    reports: int
    """Number of reports that came from the receiver."""
    silent_s: float
    """The time since the receiver's last report, in seconds."""
    loss_frac: float | None
    """The loss rate between the receiver's last two reports, from 0 to 1."""
    jitter_s: float | None
    """The interarrival jitter (RFC 3550, section 6.4.1), in seconds."""
    rtt_s: float | None
    """The round-trip time, in seconds."""

    @classmethod
    def of(cls, status: Json) -> Self:
        """Convert the core's status of a peer."""
        return _told(cls, status, name=status["name"] or None)


@dataclass(frozen=True, slots=True)
class SenderStatus:
    """The status of a `Sender`. Counts start at 0 with the session. Rates include IP headers."""

    at_s: float
    """The time since the session's start, in seconds."""
    rate_bps: float
    """The sending rate over the last second, in bit/s."""
    target_bps: float | None
    """The controller's target rate, in bit/s."""
    limit: str | None
    """What limits the rate at present: "start", "network", "cap", "floor" or "encoder"."""
    rule: str | None
    """The name of the controller's rule that determined the target rate."""
    loss_frac: float | None
    """The loss rate that the controller used last, from 0 to 1."""
    rtt_s: float | None
    """The round-trip time that the controller used last, in seconds."""
    set_by: str | None
    """The receiver whose reports determine the rate."""
    floor_bps: float | None
    """The lower limit of the rate, in bit/s. `None` if `Sender` has ``mode="paper"``."""
    backlog_s: float
    """The time that the pacer needs to send its queue, in seconds."""
    packets: int
    """RTP packets sent, including sound and repair."""
    bytes: int
    """IP bytes sent."""
    frames: int
    """Pictures encoded."""
    skipped_frames: int
    """Encoded pictures that the pacer dropped because the rate had become lower."""
    left_out: int
    """Pictures that were not encoded. Either the encoder was too slow, or a leaky queue was full."""
    waiting: int
    """Pictures that wait for the encoder."""
    key_frames: int
    """Key frames that receivers requested."""
    size: tuple[int, int] | None
    """Width and height of the coded pictures.

    They are smaller than the source's pictures if the rate is too low for the source's size.
    """
    smaller_frames: int
    """Pictures that were coded at a smaller size than the source's."""
    quantizer: int | None
    """The quantizer of the last picture."""
    receivers: tuple[PeerStatus, ...]
    """The receivers that have reported."""

    @classmethod
    def of(cls, status: Json, *, waiting: int, left_out: int) -> Self:
        """Convert the core's status. ``waiting`` and ``left_out`` come from the queue of pictures."""
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
    """The status of a `Receiver`. Counts start at 0 with the session. Rates include IP headers."""

    at_s: float
    """The time since the session's start, in seconds."""
    rate_bps: float
    """The receiving rate over the last second, in bit/s."""
    loss_frac: float | None
    """The loss rate over the last second, from 0 to 1."""
    delay_s: float | None
    """The packets' one-way delay minus the smallest one-way delay so far, in seconds."""
    jitter_s: float | None
    """The interarrival jitter (RFC 3550, section 6.4.1), in seconds."""
    packets: int
    """RTP packets received, without duplicates."""
    expected_packets: int
    """RTP packets that the sender has sent, estimated from the sequence numbers of the received packets."""
    repaired_packets: int
    """Lost packets that a retransmission replaced (RFC 4588)."""
    whole_frames: int
    """Frames that arrived completely, with all their references."""
    damaged_frames: int
    """Frames of which only a part arrived."""
    missing_frames: int
    """Frames of which no packet arrived."""
    undecodable_frames: int
    """Frames that arrived but can't be decoded, because a frame that they refer to is missing."""
    unused: Mapping[str, int]
    """Received packets that were discarded. The keys are the reasons, the values are the numbers of packets."""
    unread: int
    """Pictures that were dropped because the receiver's queue of unread pictures was full."""
    silent_s: float | None
    """The time since the last packet arrived, in seconds. `None` before the first packet."""
    source: str | None
    """The address from which the stream comes."""
    ended_by: str | None
    """Why the stream has ended. `None` before its end."""

    @classmethod
    def of(cls, status: Json, *, unread: int) -> Self:
        """Convert the core's status. ``unread`` is the number of decoded pictures that the queue has dropped."""
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
