"""The compiled module: a thin shell around the Rust crates."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

__version__: str
__build__: str  # the compiler's version, and how far it optimized

def schema() -> str:
    """JSON Schema of the scenario format."""

def experiment_schema() -> str:
    """JSON Schema of the experiment format."""

def experiment(text: str, file: str) -> str:
    """Return the checked content of an experiment file as JSON; `file` is its name in messages. Raises Problems."""

def network(name: str, folder: Path, networks: Path) -> str:
    """Return a network as a table on one line of TOML: what its file says, and the flows that it adds."""

def controllers() -> list[dict[str, Any]]:
    """Return the registry: dicts with name, about, when, source, cast, feedback, colour, dashes, params."""

def promises() -> list[tuple[str, str]]:
    """Return the promises of the session, whichever controller runs in it, each with what is promised."""

def figures() -> list[dict[str, Any]]:
    """Return all figures: dicts with of, key, parts, by_flow, unit, about, short, better, when, shown."""

def flat(summary: str) -> str:
    """Return a summary's numbers by their paths; both are JSON."""

def call(place: str, file: bytes, controllers: list[str], options: dict[str, Any]) -> str:
    """Return what a call's event log or capture shows, in JSON.

    Args:
        place: the file's name in errors.
        file: its bytes.
        controllers: whose decisions on its reports are computed.
        options: ``stream`` by its SSRC; ``sender``, which side the file is of; ``other``, the bytes of the receiver's
            file of the same call; ``send_time_id``, the id of abs-send-time; ``beside``, whether the user named the
            others in its queue; ``key``, the text of its session's key file. Each but ``beside`` may be ``None``.

    Raises:
        UserError: it can't be read.

    """

def columns() -> list[dict[str, Any]]:
    """Return all columns of all tables: dicts with table, name, unit, about, measured."""

def freezes(slots: Sequence[bool], lasts_s: Sequence[float]) -> str:
    """Return freezes as figures of a receiver, in JSON.

    Of display slots, ``slots`` says whether a new picture appears, ``lasts_s`` how long each is shown.
    """

def median(values: Sequence[float]) -> float | None:
    """Return the median; `None` without values."""

def variation(values: Sequence[float]) -> float | None:
    """Return the coefficient of variation, by the sample's standard deviation.

    `None` for fewer than two values, or a mean of zero.
    """

def sources() -> tuple[str, dict[str, str]]:
    """Return SHA-256 of the compiled sources but the controllers', and of each controller's own by its name."""

def picture_psnr(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> float:
    """PSNR of two 2-D uint8 planes of one size, in dB; infinite for equal ones."""

def picture_ssim(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> float:
    """SSIM of two 2-D uint8 planes of one size."""

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
class Simulation:
    """A run of a scenario."""

    def __init__(
        self,
        scenario: Scenario,
        ladders: Mapping[str, Mapping[str, object]],
        controllers: Mapping[str, type | list[str]],
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
    """Check what a `Sender` of these would check, and open nothing; on Linux alone."""

def unused_reasons() -> list[str]:
    """Return the names of the reasons for which a receiver does not use a packet."""

def is_key_frame(codec: str, frame: bytes) -> bool:
    """Tell whether a decoder can begin with a frame; on Linux alone."""

def refusals(scenario: Scenario) -> list[dict[str, Any]]:
    """Say what a scenario asks that the emulated world can't give: dicts with file, line, key, what, remedy."""

@final
class Emulation:
    """A scenario in real time, across this machine's kernel."""

    def __init__(
        self,
        scenario: Scenario,
        ladders: Mapping[str, Mapping[str, object]],
        controllers: Mapping[str, type | list[str]],
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
    def want_frames(self) -> None: ...
    def frames(self, patience: float) -> list[Any] | None: ...

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
