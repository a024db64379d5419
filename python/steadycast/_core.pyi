"""The compiled module: a thin shell around the Rust crates."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

__version__: str
__build__: str  # the compiler's version, and how far it optimized

def schema() -> str:
    """JSON Schema of the scenario format."""

def experiment_schema() -> str:
    """JSON Schema of the experiment format."""

def experiment(text: str, file: str, seed: int | None = None, count: int | None = None) -> str:
    """Return the checked content of an experiment file as JSON; `file` is its name in messages.

    `seed` and `count` replace the seed and the number of the file's random draws. Raises Problems.
    """

def network(name: str, folder: Path, networks: Path) -> str:
    """Return a named network, with its topology, events and added flows, as a TOML table on one line."""

def controllers() -> list[dict[str, Any]]:
    """Return all controllers as dicts with name, about, when, source, cast, feedback, colour, dashes, params."""

def promises() -> list[tuple[str, str]]:
    """Return the names and descriptions of a session's invariants, which hold with every controller."""

def figures() -> list[dict[str, Any]]:
    """Return all metrics of summaries: dicts with of, key, parts, by_flow, unit, about, short, better, when, shown."""

def flat(summary: str) -> str:
    """Return the numbers of a summary (JSON) as a JSON object that maps their paths to them."""

def call(place: str, file: bytes, controllers: list[str], options: dict[str, Any]) -> str:
    """Return the analysis of a call's event log or capture, as JSON.

    Args:
        place: the file's name in errors.
        file: its bytes.
        controllers: the controllers whose decisions on the call's reports are computed.
        options: ``stream``, the SSRC of the call's stream; ``sender``, whether the file is the sender's; ``other``, the
            bytes of the receiver's file of the same call; ``send_time_id``, the identifier of abs-send-time;
            ``beside``, whether the user named other flows in the queue; ``key``, the text of the session's key file.
            Each except ``beside`` may be ``None``.

    Raises:
        UserError: the file can't be read.

    """

def datagrams(
    place: str, file: bytes
) -> tuple[list[tuple[int, str, str, int, int | None, tuple[int, int] | None, int]], list[str]]:
    """Return the UDP datagrams of a capture, and notes on what is left out.

    Each tuple contains the time in ns since 1970, the source and the destination, the size of the IP packet in bytes,
    the IPv4 identification, the SSRC and RTP sequence number, and a digest of the payload's first bytes.

    Raises:
        UserError: the file can't be read.

    """

def columns() -> list[dict[str, Any]]:
    """Return all columns of all tables: dicts with table, name, unit, about, measured."""

def freezes(slots: Sequence[bool], lasts_s: Sequence[float]) -> str:
    """Return a receiver's freeze metrics as JSON.

    For each display slot, ``slots`` says whether a new picture appears, and ``lasts_s`` is its duration in seconds.
    """

def median(values: Sequence[float]) -> float | None:
    """Return the median; `None` without values."""

def variation(values: Sequence[float]) -> float | None:
    """Return the coefficient of variation, computed with the sample standard deviation.

    `None` for fewer than two values, or a mean of zero.
    """

def sources() -> tuple[str, dict[str, str]]:
    """Return SHA-256 of the compiled sources without the controllers, and of each controller's source by its name."""

def picture_psnr(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> float:
    """PSNR of two 2-D uint8 planes of equal size, in dB; infinite if they are identical."""

def picture_ssim(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> float:
    """SSIM of two 2-D uint8 planes of equal size."""

@final
class Scenario:
    """A checked scenario."""

    def __init__(
        self,
        path: str,
        sets: Sequence[str],
        text: str | None = None,
        json: bool = False,
        networks: Path | None = None,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def sha256(self) -> str: ...
    @property
    def flows(self) -> int: ...
    @property
    def duration_s(self) -> float: ...
    def toml(self) -> str: ...
    def warnings(self) -> list[str]: ...
    def expectations(self) -> list[tuple[str, float | None, float | None]]: ...
    def captured(self) -> list[str]: ...
    def videos(self) -> list[dict[str, Any]]: ...

@final
class Decision:
    """A controller's decision, with its reason."""

    @property
    def target_bps(self) -> float:
        """The target rate in bit/s of IP packets, including headers."""
    @property
    def pacing_bps(self) -> float:
        """The pacing rate, at which packets are sent, in bit/s of IP packets."""
    @property
    def window_bytes(self) -> int | None:
        """The number of IP bytes that may be sent before the next report; `None` if there is no limit."""
    @property
    def limit(self) -> str:
        """The limit of the rate: ``start``, ``network``, ``cap`` or ``floor``."""
    @property
    def why(self) -> str:
        """The rule that set the rate."""

@final
class Remote:
    """A controller whose sender and receiver parts both run at the sender, for programs that have their own pacer.

    Times are seconds of the program's clock, sizes are bytes of IP packets, and rates are bit/s of IP packets.
    """

    def __init__(
        self,
        controller: str = "steady",
        *,
        floor_bps: float,
        cap_bps: float,
        parameters: Mapping[str, float | str | bool] | None = None,
        packet_bytes: int = 1200,
        seed: int = 0,
        probes: bool = False,
        late: bool = False,
        interval_s: float = 0.0,
        acknowledged: bool = False,
    ) -> None:
        """Create a controller by its name in ``steadycast controllers``.

        Args:
            controller: its name.
            floor_bps: the lower limit of the rate.
            cap_bps: the upper limit.
            parameters: values over its defaults.
            packet_bytes: size of a full packet.
            seed: the seed of the controller's random numbers.
            probes: whether the program sends the probes that ``probe`` returns.
            late: whether the program reports each packet only together with its feedback, not when it is sent.
            interval_s: the longest interval between two feedback messages in seconds; 0 if it is unknown. A controller
                that needs feedback more often is refused.
            acknowledged: whether all packets of a feedback message have one arrival time, as with QUIC.

        Raises:
            UserError: the controller or a parameter does not exist, or the controller can't work with this feedback.
                The methods raise it for times that are negative or not finite.

        """

    def sent(
        self,
        at_s: float,
        size_bytes: int,
        *,
        first: bool = False,
        last: bool = False,
        data_limited: bool = False,
        covered: bool = True,
    ) -> int:
        """Record a media packet that was sent; return its number among the packets of all streams.

        ``first`` and ``last`` mark the first and the last packet of a frame. ``data_limited`` means that no packet
        waits behind this one. If ``covered`` is false, feedback will not report the packet.
        """
    def sent_extra(self, at_s: float, size_bytes: int, stream: str, *, covered: bool = True) -> int:
        """Record a packet of the stream ``repair``, ``parity``, ``padding`` or ``audio``, as `sent` does for media.

        Raises UserError for another stream.
        """
    def feedback(self, at_s: float, fates: Sequence[tuple[int, float | None]]) -> float | None:
        """Process feedback; return the round-trip time in seconds, if the feedback shows it.

        Each fate is a packet's number and its arrival time in seconds of the receiver's clock. The time is `None` if
        the packet did not arrive, and NaN if it arrived at an unknown time.
        """
    def forget(self, number: int) -> None:
        """Declare that no feedback will cover a packet."""
    def number(self, low: int) -> int | None:
        """Return the newest packet number with these low 16 bits."""
    def queued(self, at_s: float, waiting_bytes: int, age_s: float, frame_bytes: int | None = None) -> None:
        """Report the queue of the program's pacer: its bytes and the age of its oldest packet in seconds."""
    @property
    def decision(self) -> Decision:
        """The current decision."""
    def probe(self) -> Probe | None:
        """Return the probe to send; `None` if there is none. Each ``id`` is sent once."""
    @property
    def wake_s(self) -> float | None:
        """The time of the next call of ``timer``; `None` if no timer runs."""
    def timer(self, now_s: float) -> None:
        """Handle the timers that have expired."""

@final
class Probe:
    """Packets to send at a rate of their own, which measure the path.

    They are media, or padding if there is too little, and are recorded by ``sent`` or ``sent_extra``.
    """

    @property
    def id(self) -> int:
        """The identifier."""
    @property
    def rate_bps(self) -> float:
        """The rate at which the packets are sent, in bit/s."""
    @property
    def packets(self) -> int:
        """The minimum number of packets. The probe ends when both minimums are reached."""
    @property
    def size_bytes(self) -> int:
        """The minimum number of IP bytes."""
    @property
    def within_pacing(self) -> bool:
        """Whether sending pauses after the probe until the average is back at the pacing rate."""

@final
class EncoderTarget:
    """The task of an encoder for its next frame."""

    @property
    def rate_bps(self) -> float:
        """The rate of the stream, in bit/s of IP packets."""
    @property
    def skip(self) -> bool:
        """Whether the next frame should be skipped, because the pacer's backlog is too large."""
    @property
    def key_frame(self) -> bool:
        """Whether the next frame has to be a key frame. Each request is returned once."""

@final
class Departure:
    """A packet that has to be sent now."""

    @property
    def stream(self) -> int: ...
    @property
    def id(self) -> int:
        """The packet's identifier from ``push``. Retransmissions and padding have that of their original."""
    @property
    def seq(self) -> int:
        """The RTP sequence number of the packet, or of its original."""
    @property
    def number(self) -> int:
        """The number among the packets of all streams. A transport-wide header extension has its low 16 bits."""
    @property
    def kind(self) -> str:
        """``media``, ``repair``, ``parity`` or ``padding``."""
    @property
    def size_bytes(self) -> int:
        """The packet's size in bytes, including IP headers."""

@final
class MediaSender:
    """A sender around a controller, with a pacer for all streams of a session, for programs that make RTP packets.

    Audio is sent immediately; retransmissions, parity and video are sent at the pacing rate, in this order. The program
    keeps the packets' bytes. Times are seconds of the program's clock, sizes are bytes of IP packets, and rates are
    bit/s of IP packets.

    A method that takes a stream's number raises UserError if no stream has it. Adding a stream raises UserError if
    another stream has its SSRC, except for the SSRC 0, which is for transports without RTP. It also raises UserError if
    the stream could never be sent, for example because its minimum is above the cap.
    """

    def __init__(
        self,
        controller: str = "steady",
        *,
        floor_bps: float,
        cap_bps: float,
        parameters: Mapping[str, float | str | bool] | None = None,
        packet_bytes: int = 1200,
        seed: int = 0,
        feedback: str = "twcc",
        retransmissions_covered: bool = False,
        padding: bool = False,
        max_backlog_s: float = 1.0,
        credit_s: float = 0.02,
    ) -> None:
        """Create a sender around a controller; the first arguments are those of `Remote`.

        Args:
            controller: its name.
            floor_bps: the lower limit of the rate.
            cap_bps: the upper limit.
            parameters: values over its defaults.
            packet_bytes: size of a full packet.
            seed: the seed of the controller's random numbers.
            feedback: the format that ``on_rtcp`` reads: ``twcc``, ``rfc8888``, or ``joined`` if the program itself
                matches feedback with packets.
            retransmissions_covered: whether feedback covers retransmissions.
            padding: whether the program can send padding. The kit sends it in probes, and while a layer is paused.
            max_backlog_s: the longest backlog of the pacer, in seconds at the pacing rate; above it frames are skipped.
            credit_s: the longest delay of a ``poll``, in seconds, for which the pacer makes up by sending faster.

        Raises:
            UserError: the controller, a parameter or the format does not exist.

        """

    def add_audio(self, ssrc: int, rate_bps: float, *, covered: bool = True) -> int:
        """Add an audio stream, and reserve this rate for it; return the stream's number."""
    def add_video(
        self, ssrc: int, *, retransmission: bool = True, least_bps: float = 0.0, most_bps: float | None = None
    ) -> int:
        """Add a video stream; return its number. Rates are allocated in the order in which streams were added."""
    def add_parity(self, ssrc: int, rate_bps: float) -> int:
        """Add a stream of parity packets, and reserve this rate for it; return the stream's number."""
    def encoder(self, now_s: float, stream: int) -> EncoderTarget:
        """Return the target of a stream's encoder for its next frame."""
    def frame(self, now_s: float, stream: int, role: str) -> bool:
        """Begin a frame; return whether it may be sent. The role is ``key``, ``reference`` or ``disposable``.

        Raises UserError for another role.
        """
    def push(
        self,
        now_s: float,
        stream: int,
        id: int,
        size_bytes: int,
        seq: int,
        *,
        first: bool = True,
        last: bool = True,
    ) -> bool:
        """Add a packet of the current frame to the pacer; return whether it is accepted.

        ``id`` is the program's identifier of the packet, and ``seq`` its RTP sequence number.
        """
    def poll(self, now_s: float) -> list[Departure]:
        """Return the packets that have to be sent now. Call it after each call of another method, and at ``wake_s``."""
    @property
    def wake_s(self) -> float | None:
        """The time of the next call of ``poll``; `None` if ``poll`` is needed only after calls of other methods."""
    def take_dropped(self) -> list[tuple[int, int]]:
        """Return the stream and identifier of each packet that is not sent, because a key frame replaced its frame.

        Each packet is returned once.
        """
    def on_rtcp(self, now_s: float, datagram: bytes) -> bool:
        """Process an RTCP compound packet: feedback, NACKs, PLI and FIR. Return whether it is RTCP."""
    def feedback(self, now_s: float, fates: Sequence[tuple[int, float | None]]) -> None:
        """Process feedback that the program has matched with packet numbers, as `Remote.feedback` does."""
    def resend(self, now_s: float, stream: int, seq: int) -> bool:
        """Request the retransmission of a packet; return whether it will be retransmitted."""
    def request_key_frame(self, stream: int) -> None:
        """Request a key frame of a stream."""
    def sent_as(
        self,
        number: int,
        *,
        transport: int | None = None,
        rtp: tuple[int, int] | None = None,
        own: int | None = None,
    ) -> None:
        """Set the identifier by which feedback names a packet.

        It is a transport-wide number, an SSRC and RTP sequence number, or your own number. Raises UserError unless
        exactly one is given.
        """
    def number(
        self, *, transport: int | None = None, rtp: tuple[int, int] | None = None, own: int | None = None
    ) -> int | None:
        """Return the number of the packet with this identifier. Raises UserError unless exactly one is given."""
    def forget(self, number: int) -> None:
        """Declare that no feedback will cover a packet."""
    @property
    def decision(self) -> Decision:
        """The controller's current decision."""
    @property
    def backlog_bytes(self) -> int:
        """The number of bytes in the pacer."""
    @property
    def skipped_frames(self) -> int:
        """The number of frames that were skipped so far."""
    @property
    def retransmissions(self) -> int:
        """The number of packets that were retransmitted so far."""

@final
class TransportFeedbackRecorder:
    """The receiver's side of transport-wide feedback, for programs that read RTP packets themselves.

    It records arrivals, and makes the reports that Steadycast's own receiver would send. Times are seconds of the
    program's clock.
    """

    def __init__(self, ssrc: int, bandwidth_bps: float) -> None:
        """Create a recorder that reports as ``ssrc``.

        Reports use 5 % of ``bandwidth_bps``, the session bandwidth, or 5 % of the arriving rate if that is higher.

        Raises:
            UserError: the bandwidth is not a rate.

        """

    def on_packet(self, now_s: float, ssrc: int, number: int, size_bytes: int, *, last: bool = False) -> None:
        """Record the arrival of an RTP packet. Duplicates are recorded, too.

        Args:
            now_s: the time of the arrival.
            ssrc: the packet's SSRC.
            number: the transport-wide sequence number, 0 to 65535.
            size_bytes: the packet's size, including IP headers.
            last: whether the packet is the last one of its frame.

        """
    @property
    def due_s(self) -> float | None:
        """The time of the next report; `None` while no packet has arrived since the last report."""
    def report(self, now_s: float) -> list[bytes]:
        """Return the report as datagrams of reduced-size RTCP (RFC 5506); an empty list before the report is due."""

@final
class Simulation:
    """A run of a scenario."""

    def __init__(
        self,
        scenario: Scenario,
        ladders: Mapping[str, Mapping[str, object]],
        guests: Mapping[str, type | list[str]],
    ) -> None: ...
    def capture(self, folder: Path) -> None: ...
    def run(self, progress: Callable[[float, float], None] | None) -> bool: ...
    def run_to(self, until_s: float) -> bool: ...
    def figures(self, complete: bool) -> tuple[str, str]: ...
    def summary(self, complete: bool) -> str: ...
    def logs(self) -> list[tuple[str, bytes]]: ...
    def table(self, name: str) -> list[tuple[str, str, Any]]: ...
    @property
    def hops(self) -> int: ...

def check_sender(options: Mapping[str, Any], medium: Mapping[str, Any]) -> None:
    """Check the arguments as `Sender` would, without opening anything. Only on Linux."""

def unused_reasons() -> list[str]:
    """Return the names of the reasons for which a receiver discards a packet."""

def is_key_frame(codec: str, frame: bytes) -> bool:
    """Return whether a decoder can begin with this frame. Only on Linux."""

def refusals(scenario: Scenario) -> list[dict[str, Any]]:
    """Return the keys of a scenario that can't be emulated: dicts with file, line, key, what, remedy."""

@final
class Emulation:
    """A scenario that runs in real time, with the kernel's network stack."""

    def __init__(
        self,
        scenario: Scenario,
        ladders: Mapping[str, Mapping[str, object]],
        guests: Mapping[str, type | list[str]],
        program: tuple[str, Sequence[str]] | None = None,
        only: bool = False,
        tap: Sequence[str] = (),
    ) -> None: ...
    def capture(self, folder: Path) -> None: ...
    def run(self, progress: Callable[[float, float], None] | None) -> bool: ...
    def summary(self, complete: bool) -> str: ...
    def logs(self) -> list[tuple[str, bytes]]: ...
    def table(self, name: str) -> list[tuple[str, str, Any]]: ...
    @property
    def hops(self) -> int: ...
    @property
    def code(self) -> int | None: ...

class Session:
    """The common part of a live sender and a live receiver."""

    @property
    def done(self) -> bool: ...
    def status(self) -> str: ...
    def wait(self, patience: float) -> bool: ...
    def stop(self) -> None: ...
    def finish(self) -> LiveRecord: ...

@final
class Offer:
    """The offer of a sender that publishes to a WHIP server."""

    def __init__(self, options: Mapping[str, Any], medium: Mapping[str, Any]) -> None: ...
    @property
    def sdp(self) -> str: ...
    def accept(self, answer: str, medium: Mapping[str, Any]) -> Sender: ...

@final
class MediaPort:
    """A UDP port for the media of all browsers."""

    def __init__(self, addresses: Sequence[str], port: int) -> None: ...
    @property
    def port(self) -> int: ...
    def dropped(self) -> dict[str, int]: ...

@final
class EncodedLadder:
    """A ladder that was encoded in advance, which any number of senders share."""

    def __init__(
        self, table: Mapping[str, object], rungs: Sequence[tuple[int, object, object, bytes]]
    ) -> None: ...

@final
class Broadcast:
    """A live source that is encoded once for all its viewers."""

    def __init__(self, options: Mapping[str, object]) -> None: ...
    def next_job(
        self, patience: float
    ) -> tuple[int, bool, list[tuple[int, int]]] | Literal[False] | None: ...
    def push(self, picture: int, units: Sequence[tuple[int, bytes]]) -> None: ...
    def push_audio(self, at_s: float, begins: bool, data: bytes, patience: float) -> bool | None: ...
    @property
    def audio_loss(self) -> float: ...
    def passed(self, pictures: int) -> None: ...
    def end(self) -> None: ...
    def close(self) -> None: ...
    def wait(self, patience: float) -> bool: ...
    def status(self) -> tuple[list[tuple[float, int, int]], int, int]: ...

@final
class Sender(Session):
    """A live session that sends, in a separate thread."""

    def __init__(self, options: Mapping[str, object], medium: Mapping[str, object]) -> None: ...
    @property
    def sdp(self) -> str: ...
    def exclude(self, name: str) -> None: ...
    def admit_all(self) -> None: ...
    @property
    def floor(self) -> int | None: ...
    def limit(self, floor: int | None = None, cap: int | None = None) -> None: ...
    def next_job(self, patience: float) -> Any: ...
    def push(self, picture: int, kind: int, quantizer: int, data: bytes) -> None: ...
    def push_audio(self, at_s: float, begins: bool, data: bytes, patience: float) -> bool | None: ...
    @property
    def has_audio(self) -> bool: ...
    @property
    def audio_loss(self) -> float: ...
    def passed(self, pictures: int) -> None: ...
    def end(self) -> None: ...

@final
class Receiver(Session):
    """A live session that receives, in a separate thread."""

    def __init__(self, options: Mapping[str, object]) -> None: ...
    @property
    def codec(self) -> str | None: ...
    @property
    def config(self) -> bytes: ...
    @property
    def address(self) -> str: ...
    @property
    def size(self) -> tuple[int, int] | None: ...
    @property
    def controller(self) -> str | None: ...
    @property
    def offered(self) -> str | None: ...
    @property
    def other_clock(self) -> tuple[str, int, str] | None: ...
    @property
    def answer(self) -> str | None: ...
    @property
    def has_audio(self) -> bool: ...
    def want_frames(self) -> None: ...
    def frames(self, patience: float) -> list[Any] | None: ...
    def audio(self) -> list[Any]: ...

@final
class LiveRecord:
    """The record of a live session."""

    @property
    def silent(self) -> bool: ...
    @property
    def toml(self) -> str: ...
    def summary(self, complete: bool) -> str: ...
    def table(self, name: str) -> list[tuple[str, str, Any]]: ...

@final
class Setup:
    """The arguments of a new controller."""

    @property
    def packet_bytes(self) -> int: ...
    @property
    def floor_bps(self) -> float: ...
    @property
    def cap_bps(self) -> float: ...
    @property
    def session_bandwidth_bps(self) -> float: ...
    @property
    def group(self) -> bool: ...
    @property
    def seed(self) -> int: ...

@final
class Report:
    """A report that has reached the sender."""

    @property
    def at_s(self) -> float: ...
    @property
    def receiver(self) -> int: ...
    @property
    def receivers(self) -> int: ...
    @property
    def rtt_s(self) -> float | None: ...
    @property
    def expected_packets(self) -> int: ...
    @property
    def lost_packets(self) -> int: ...
    @property
    def loss_frac(self) -> float: ...
    @property
    def received_bps(self) -> float | None: ...
    @property
    def queueing_s(self) -> float | None: ...
    @property
    def jitter_s(self) -> float | None: ...
    @property
    def body(self) -> bytes | None: ...
    @property
    def packets(self) -> list[tuple[int, float, int, float | None, int | None]]: ...

@final
class SentPacket:
    """A packet that has left."""

    @property
    def at_s(self) -> float: ...
    @property
    def number(self) -> int: ...
    @property
    def seq(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def data_limited(self) -> bool: ...

@final
class ArrivedPacket:
    """A packet that has reached a receiver."""

    @property
    def at_s(self) -> float: ...
    @property
    def seq(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def sent_s(self) -> float: ...
    @property
    def ce(self) -> bool: ...
    @property
    def frame_end(self) -> bool: ...

@final
class SwitchingInput:
    """A stream at a key frame, for a switching rule."""

    @property
    def at_s(self) -> float: ...
    @property
    def rung(self) -> int | None: ...
    @property
    def recent_bps(self) -> list[float]: ...
    @property
    def worst_bps(self) -> list[float]: ...
    @property
    def rate_bps(self) -> float: ...
    @property
    def backlog_bytes(self) -> int: ...
    @property
    def group_s(self) -> float: ...

@final
class ReportSlot:
    """An opportunity to report."""

    @property
    def at_s(self) -> float: ...
    @property
    def expected_packets(self) -> int: ...
    @property
    def lost_packets(self) -> int: ...
    @property
    def members(self) -> int: ...
