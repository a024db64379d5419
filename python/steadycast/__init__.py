"""Steadycast: video over RTP that shares the network fairly with TCP, and a laboratory for it.

    import steadycast as sc

    run = sc.run("scenarios/dumbbell.toml")
    run.rates.to_polars()

Everything is loaded when it is first used.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steadycast._core import ArrivedPacket, Report, ReportSlot, SentPacket, Setup, __version__
    from steadycast.agree import Agreement, agree
    from steadycast.compare import Comparison, compare
    from steadycast.controllers import controllers
    from steadycast.emulate import Emulated, Program, emulate
    from steadycast.errors import MissingError, UnwrittenError, UserError
    from steadycast.live.receiver import ReceivedFrame, Receiver
    from steadycast.live.sender import Sender
    from steadycast.live.status import PeerStatus, ReceiverStatus, SenderStatus
    from steadycast.result import Run
    from steadycast.run import run, run_seeds
    from steadycast.scenario import *
    from steadycast.sweep import Sweep, sweep
    from steadycast.table import Table

__all__ = [
    "Agreement",
    "Arq",
    "ArrivedPacket",
    "Buffer",
    "Change",
    "Clock",
    "Comparison",
    "Emulated",
    "Encode",
    "Event",
    "Expect",
    "Flow",
    "Jitter",
    "Leg",
    "Level",
    "Link",
    "Loss",
    "Map001",
    "MissingError",
    "Numbers",
    "PeerStatus",
    "Period",
    "Pipe",
    "Playout",
    "Policer",
    "Program",
    "Queue",
    "ReceivedFrame",
    "Receiver",
    "ReceiverStatus",
    "Record",
    "Reorder",
    "Report",
    "ReportSlot",
    "Rfc8593",
    "Rtcp",
    "Run",
    "Scenario",
    "Sender",
    "SenderStatus",
    "SentPacket",
    "Setup",
    "Simulcast",
    "Sweep",
    "Table",
    "Table2",
    "Topology",
    "Uniform",
    "UnwrittenError",
    "UserError",
    "__version__",
    "agree",
    "compare",
    "controllers",
    "emulate",
    "run",
    "run_seeds",
    "sweep",
]

_HOMES = {
    "steadycast._core": ("ArrivedPacket", "Report", "ReportSlot", "SentPacket", "Setup", "__version__"),
    "steadycast.agree": ("Agreement", "agree"),
    "steadycast.compare": ("Comparison", "compare"),
    "steadycast.controllers": ("controllers",),
    "steadycast.emulate": ("Emulated", "Program", "emulate"),
    "steadycast.errors": ("MissingError", "UnwrittenError", "UserError"),
    "steadycast.live.receiver": ("ReceivedFrame", "Receiver"),
    "steadycast.live.sender": ("Sender",),
    "steadycast.live.status": ("PeerStatus", "ReceiverStatus", "SenderStatus"),
    "steadycast.result": ("Run",),
    "steadycast.run": ("run", "run_seeds"),
    "steadycast.sweep": ("Sweep", "sweep"),
    "steadycast.table": ("Table",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOME.get(name, "steadycast.scenario")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__


class _Package(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        # Importing a module binds it here; functions that are called like their modules stay in sight.
        if not (isinstance(value, ModuleType) and name in __all__):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
