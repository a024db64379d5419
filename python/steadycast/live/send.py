"""`steadycast send`: a source to one receiver or to a group, at the rate that the network allows."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast import signals
from steadycast.errors import UserError
from steadycast.files import write_text
from steadycast.folder import Draft
from steadycast.live import outlets, session, view
from steadycast.live.source import plan

if TYPE_CHECKING:
    from steadycast.progress import Progress

Json = dict[str, Any]
PACKETS = (100, 1500)
"""Least and largest IP size of a full packet, in bytes: what a scenario allows, over its links' default MTU."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """As the command line has them."""

    source: str
    to: str
    controller: str | None = None
    params: Sequence[str] = ()
    mode: str = "repaired"
    sdp: Path | None = None
    interface: str | None = None
    ttl: int | None = None
    port: int | None = None
    mux: bool = False
    max_rate: str | None = None
    floor: str | None = None
    loop: bool = False
    ladder: bool = False
    codec: str = "mpeg4"
    size: str = "clip"
    fps: str = "clip"
    gop: int = 12
    keep_size: bool = False
    packet: int = 1018
    exclude: Sequence[str] = ()
    key_file: Path | None = None
    duration: str | None = None
    out: Path | None = None
    force: bool = False
    buffer: str | None = None
    consume: str | None = None
    feedback: str = "own"
    ecn: str = "off"
    repair: str = "auto"
    outlets: outlets.Options = field(default_factory=outlets.Options)


def send(options: Options, progress: Progress | None = None) -> Json:
    """Send until the source ends, the time is over, or a signal ends the session; return the summary.

    Raises:
        UserError: an option, an address or the source can't be used.
        UnwrittenError: the description or the record could not be written.

    """
    with Draft(options.out, force=options.force) if options.out is not None else nullcontext() as draft:
        length = session.span(options.duration, "--for") if options.duration else None
        to, interface = session.resolved(options.to, options.interface)
        controller = options.controller or default_controller(to, options.mode)
        options = replace(options, to=to, interface=interface, controller=controller)
        settings = settings_of(options)
        planned = plan(
            options.source,
            codec=options.codec,
            size=options.size,
            fps=options.fps,
            gop=options.gop,
            loop=options.loop,
            ladder=options.ladder,
            keep_size=options.keep_size,
            progress=progress,
        )
        with outlets.Outlets(options.outlets, "send", options.to) as told:
            return _begin({**settings, "clip": planned.clip}, planned, options, length, draft, told)


def default_controller(to: str, mode: str = "repaired") -> str:
    """Name the controller of a session that names none: `steady` towards one receiver, `asmp` towards a group.

    In a group `asmp` holds the slowest member's share where `steady` does not (docs/steady.md, row G). A paper's mode
    takes a paper's controller.
    """
    return "asmp" if mode == "paper" or session.is_group(to) else "steady"


def settings_of(options: Options) -> Json:
    """Return the options as the core takes them, but for the clip.

    Raises:
        UserError: one can't be used.

    """
    if options.mode not in ("repaired", "paper"):
        raise UserError(f"--mode {options.mode}", "there is no such mode", "take repaired or paper")
    if not PACKETS[0] <= options.packet <= PACKETS[1]:
        raise UserError(
            f"--packet {options.packet}",
            f"a link of {PACKETS[1]} B takes no such packet",
            f"take {PACKETS[0]} to {PACKETS[1]} bytes",
        )
    cap = session.rate(options.max_rate, "--max-rate") if options.max_rate else 1_000_000_000
    floor = session.rate(options.floor, "--floor") if options.floor else min(50_000, cap)
    if floor > cap:
        raise UserError(f"--floor {options.floor}", f"above --max-rate {options.max_rate}", "take less")
    return {
        "to": options.to,
        "controller": options.controller,
        "mode": options.mode,
        "params": session.params(options.params),
        "interface": options.interface,
        "ttl": options.ttl,
        "source": None,
        "mux": options.mux,
        "local": options.port,
        "packet": options.packet,
        "floor_bps": floor,
        "cap_bps": cap,
        "session_bps": 2_000_000,
        "cname": session.own_name(),
        "key": session.read_key(options.key_file),
        **session.play_out(options.buffer, options.consume),
        "feedback": options.feedback,
        "ecn": options.ecn,
        "repair": options.repair,
    }


def _begin(
    settings: Json,
    planned: Any,
    options: Options,
    length: float | None,
    draft: Draft | None,
    told: outlets.Outlets,
) -> Json:
    with session.refusals():
        sender = session.core().Sender(settings, planned.medium)
    if options.sdp is not None:
        try:
            write_text(options.sdp, sender.sdp, "name another file")
        except UserError:
            sender.stop()
            raise
    print(
        f"sending {options.source} to {options.to} by {options.controller}"
        + (f", described in {options.sdp}" if options.sdp else "")
        + (
            "; encrypted"
            if options.key_file
            else "; the stream is open: anybody on the way can watch it (--key-file)"
        ),
        file=sys.stderr,
    )
    for warning in planned.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    told.begun()
    return _follow(sender, planned, options, length, draft, told)


_LEAST_FLOOR = 10_000


def _obey(sender: Any, keys: str, status: Json | None) -> None:
    """Do what the operator's keys ask for.

    A receiver's number excludes it, `a` hears all again, `+` and `-` move the floor.
    """
    for key in keys:
        shown = view.ordered(status) if status else []
        if key.isdecimal() and 0 < int(key) <= len(shown):
            sender.exclude(shown[int(key) - 1]["name"])
        elif key == "a":
            sender.admit_all()
        elif key in "+-" and sender.floor is not None:
            sender.limit(floor=max(round(sender.floor * (1.25 if key == "+" else 0.8)), _LEAST_FLOOR))


def own_port(options: Options) -> int | None:
    """Return the port at which this sender hears RTCP; `None` where the system has chosen it.

    A group that takes any source has one port for all: that of its address, or the one after it. Towards one receiver,
    or a group of one source, reports come to the sender's own port.
    """
    port = options.port
    if session.is_group(options.to) and not session.is_source_specific(options.to):
        port = int(options.to.rpartition(":")[2])
    return None if port is None else port + (0 if options.mux else 1)


def _follow(
    sender: Any,
    planned: Any,
    options: Options,
    length: float | None,
    draft: Draft | None,
    told: outlets.Outlets,
) -> Json:
    worker = None
    if planned.work is not None:
        worker = threading.Thread(target=planned.work, args=(sender,), daemon=True, name="encoder")
        worker.start()
    until = time.monotonic() + length if length is not None else float("inf")
    port = own_port(options)
    watch = view.Watch(
        view.send_line,
        lambda status: view.send_view(status, options.to, port),
        lambda status: view.hints(status, options.to, port),
    )
    for name in options.exclude:
        sender.exclude(name)
    # An interrupt is the operator's way to end a session: the record is whole all the same.
    # A terminal that is gone ends none.
    with suppress(KeyboardInterrupt), suppress(OSError), watch, view.Keys() as keys:
        while not sender.done and time.monotonic() < until:
            time.sleep(max(0.0, min(watch.period_s, until - time.monotonic())))
            status = json.loads(sender.status())
            told.look(status)
            with suppress(OSError):
                watch.show(status)
                _obey(sender, keys.pressed(), status)
    with signals.held():
        return _record(sender, planned, worker, draft)


def _record(sender: Any, planned: Any, worker: threading.Thread | None, draft: Draft | None) -> Json:
    """Write what there is."""
    with session.refusals():
        record = sender.finish()
    if worker is not None:
        worker.join(5.0)
    summary = session.summary_of(record)
    summary["warnings"] += planned.warnings
    if draft is not None:
        session.write(record, summary, draft, sdp=sender.sdp)
    if worker is not None and planned.work.failed is not None:
        raise planned.work.failed
    return summary
