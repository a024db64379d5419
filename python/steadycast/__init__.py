"""Steadycast: video over RTP that shares the network fairly with TCP, and a laboratory for it.

    import steadycast as sc

    run = sc.run("scenarios/dumbbell.toml")
    run.rates.to_polars()

Each public name is imported when it is first used.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steadycast._core import ArrivedPacket as ArrivedPacket
    from steadycast._core import Decision as Decision
    from steadycast._core import Departure as Departure
    from steadycast._core import EncoderTarget as EncoderTarget
    from steadycast._core import MediaSender as MediaSender
    from steadycast._core import Probe as Probe
    from steadycast._core import Remote as Remote
    from steadycast._core import Report as Report
    from steadycast._core import ReportSlot as ReportSlot
    from steadycast._core import SentPacket as SentPacket
    from steadycast._core import Setup as Setup
    from steadycast._core import SwitchingInput as SwitchingInput
    from steadycast._core import TransportFeedbackRecorder as TransportFeedbackRecorder
    from steadycast._core import __version__ as __version__
    from steadycast.compare import Comparison as Comparison
    from steadycast.compare import compare as compare
    from steadycast.controllers import controllers as controllers
    from steadycast.emulate import Emulated as Emulated
    from steadycast.emulate import Program as Program
    from steadycast.emulate import emulate as emulate
    from steadycast.errors import MissingError as MissingError
    from steadycast.errors import UnwrittenError as UnwrittenError
    from steadycast.errors import UserError as UserError
    from steadycast.live.receiver import ReceivedFrame as ReceivedFrame
    from steadycast.live.receiver import Receiver as Receiver
    from steadycast.live.sender import Sender as Sender
    from steadycast.live.status import PeerStatus as PeerStatus
    from steadycast.live.status import ReceiverStatus as ReceiverStatus
    from steadycast.live.status import SenderStatus as SenderStatus
    from steadycast.result import Run as Run
    from steadycast.run import run as run
    from steadycast.run import run_seeds as run_seeds
    from steadycast.scenario import *
    from steadycast.sweep import Sweep as Sweep
    from steadycast.sweep import sweep as sweep
    from steadycast.table import Table as Table
    from steadycast.world_agreement import Agreement as Agreement
    from steadycast.world_agreement import agree as agree

PARTS = (
    "Arq Buffer Change Clock Encode Event Expect Flow Jitter Leg Level Link Loss Map001 Numbers Period Pipe Playout "
    "Policer Queue Record Reorder Rfc8593 Rtcp Shaper Simulcast Table2 Topology Uniform"
)
"""The names of the classes that describe a scenario's tables."""
_HOMES = {
    "steadycast._core": (
        *(
            "ArrivedPacket",
            "Decision",
            "Departure",
            "EncoderTarget",
            "MediaSender",
            "Probe",
            "Remote",
            "Report",
            "ReportSlot",
        ),
        *("SentPacket", "Setup", "SwitchingInput", "TransportFeedbackRecorder", "__version__"),
    ),
    "steadycast.world_agreement": ("Agreement", "agree"),
    "steadycast.compare": ("Comparison", "compare"),
    "steadycast.controllers": ("controllers",),
    "steadycast.emulate": ("Emulated", "Program", "emulate"),
    "steadycast.errors": ("MissingError", "UnwrittenError", "UserError"),
    "steadycast.live.receiver": ("ReceivedFrame", "Receiver"),
    "steadycast.live.sender": ("Sender",),
    "steadycast.live.status": ("PeerStatus", "ReceiverStatus", "SenderStatus"),
    "steadycast.result": ("Run",),
    "steadycast.run": ("run", "run_seeds"),
    "steadycast.scenario": ("Scenario", *PARTS.split()),
    "steadycast.sweep": ("Sweep", "sweep"),
    "steadycast.table": ("Table",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__


class _Package(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        # Ignore an imported submodule that has the name of a public function, because it would replace the function.
        if not (isinstance(value, ModuleType) and name in __all__):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
