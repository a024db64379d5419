"""`steadycast send`: sends a source to a receiver, a group or a WHIP server, at the rate that the network allows."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steadycast import signals
from steadycast.controllers import default
from steadycast.errors import UserError
from steadycast.files import write_text
from steadycast.folder import Draft, Json
from steadycast.live import outlets, session, view
from steadycast.live.flow import WEB_CODECS, Flow, encoding, keys, named
from steadycast.live.source import plan
from steadycast.live.whip import ServerFailedError, Whip, read_token
from steadycast.progress import Progress

Warn = Callable[[Iterable[object]], None]
"""Prints warnings."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of the command line."""

    source: str
    to: str | None = None
    whip: str | None = None
    """URL of a WHIP server. It replaces ``to``."""
    whip_token_file: Path | None = None
    flow: Flow = field(default_factory=dict)
    """Options for the flow that the session sends. Their names are the keys of `flow.OPTIONS`."""
    sdp: Path | None = None
    interface: str | None = None
    ttl: int | None = None
    port: int | None = None
    mux: bool = False
    loop: bool = False
    ladder: bool = False
    keep_size: bool = False
    no_audio: bool = False
    exclude: Sequence[str] | None = None
    key_file: Path | None = None
    duration: str | None = None
    out: Path | None = None
    force: bool = False
    buffer: str | None = None
    consume: str | None = None
    outlets: outlets.Options = field(default_factory=outlets.Options)


def _warn(warnings: Iterable[object]) -> None:
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)


def send(options: Options, progress: Progress | None = None, warn: Warn = _warn) -> Json:
    """Send until the source ends, the time is over, or a signal ends the session.

    Returns the summary. ``warn`` prints the source's warnings at the start.
    """
    with Draft(options.out, force=options.force) if options.out is not None else nullcontext() as draft:
        length = session.span(options.duration, "--for") if options.duration else None
        server = None
        if options.whip is None:
            options = _to_address(options)
        else:
            options, server = _to_server(options)
        flow = options.flow
        settings = settings_of(options)
        planned = plan(
            options.source,
            **encoding(flow),
            loop=options.loop,
            ladder=options.ladder,
            keep_size=options.keep_size,
            audio=not options.no_audio,
            progress=progress,
        )
        with outlets.Outlets(options.outlets, "send", _place(options)) as told, server or nullcontext():
            sender = (
                begun(settings, flow, planned)
                if server is None
                else _published(settings, flow, planned, server)
            )
            return _begin(sender, planned, options, length, draft, told, warn)


def _place(options: Options) -> str:
    return options.whip or options.to or ""


def _to_address(options: Options) -> Options:
    if options.to is None:
        raise UserError(
            "--to", "there is no destination", "give a receiver by --to A:P, or a server by --whip URL"
        )
    if options.whip_token_file is not None:
        raise UserError("--whip-token-file", "there is no WHIP server", "give it by --whip URL")
    to, interface = session.resolved(options.to, options.interface)
    flow = {"controller": default_controller(to, options.flow.get("mode")), **options.flow}
    return replace(options, to=to, interface=interface, flow=flow)


def _to_server(options: Options) -> tuple[Options, Whip]:
    assert options.whip is not None
    for name in ("to", "sdp", "key_file", "interface", "buffer", "consume", "exclude"):
        if getattr(options, name):
            raise UserError(
                f"--{name.replace('_', '-')}", "it can't be combined with --whip", "leave one of the two out"
            )
    if options.source == "greedy":
        raise UserError(options.source, "there are no pictures", 'take a file, "testsrc" or a camera')
    flow = {
        "controller": default_controller("", options.flow.get("mode")),
        "codec": WEB_CODECS[0],
        **options.flow,
    }
    if flow["codec"] not in WEB_CODECS:
        raise UserError(
            f"--codec {flow['codec']}", "WebRTC does not have it", f"take {', '.join(WEB_CODECS)}"
        )
    server = Whip(options.whip, read_token(options.whip_token_file))
    return replace(options, mux=True, flow=flow), server


def _published(settings: Json, flow: Flow, planned: Any, server: Whip) -> Any:
    settings = {**settings, "server": server.open()}
    with named(flow):
        offer = session.live_core().Offer(_with_flow(settings, flow, planned), planned.medium)
    sender = offer.accept(server.offer(offer.sdp), planned.medium)
    if planned.audio is not None and not sender.has_audio:
        print("warning: the server does not take the sound: the pictures are sent alone", file=sys.stderr)
    return sender


def default_controller(to: str, mode: object = "repaired") -> str:
    """Return the name of the default controller for the destination ``to``."""
    return default(group=session.is_group(to), paper=mode == "paper")


def settings_of(options: Options) -> Json:
    """Return the transport options in the core's format."""
    return {
        "to": options.to,
        "interface": options.interface,
        "ttl": options.ttl,
        "source": None,
        "mux": options.mux,
        "local": options.port,
        "cname": session.own_name(),
        "key": session.read_key(options.key_file),
        **session.play_out(options.buffer, options.consume),
    }


def begun(settings: Json, flow: Flow, planned: Any) -> Any:
    """Start a core `Sender` of this flow, and return it."""
    with named(flow):
        return session.live_core().Sender(_with_flow(settings, flow, planned), planned.medium)


def checked(settings: Json, flow: Flow, planned: Any) -> None:
    """Check the options of this flow. No socket is opened.

    Raises:
        UserError: an option can't be used.

    """
    with named(flow):
        session.live_core().check_sender(_with_flow(settings, flow, planned), planned.medium)


def _with_flow(settings: Json, flow: Flow, planned: Any) -> Json:
    said = keys(flow, planned.clip)
    if planned.audio is not None or planned.sound_is_shared:
        from steadycast.live.audio import RATE

        said["audio"] = RATE
    return {**settings, "flow": json.dumps(said, default=str)}


def _begin(
    sender: Any,
    planned: Any,
    options: Options,
    length: float | None,
    draft: Draft | None,
    told: outlets.Outlets,
    warn: Warn,
) -> Json:
    if options.sdp is not None:
        try:
            write_text(options.sdp, sender.sdp, "name another file")
        except UserError:
            sender.stop()
            raise
    print(
        f"sending {options.source} to {_place(options)} by {options.flow['controller']}"
        + (f", described in {options.sdp}" if options.sdp else "")
        + (
            "; encrypted"
            if options.key_file or options.whip
            else "; the stream is open: anybody on the way can watch it (--key-file)"
        ),
        file=sys.stderr,
    )
    warn(planned.warnings)
    told.begun()
    return _follow(sender, planned, options, length, draft, told)


_LEAST_FLOOR = 10_000


def _obey(sender: Any, keys: str, status: Json | None) -> None:
    """Execute key presses: a digit excludes a receiver, `a` admits all, `+` and `-` change the floor."""
    for key in keys:
        shown = view.ordered(status) if status else []
        if key.isdecimal() and 0 < int(key) <= len(shown):
            sender.exclude(shown[int(key) - 1]["name"])
        elif key == "a":
            sender.admit_all()
        elif key in "+-" and sender.floor is not None:
            sender.limit(floor=max(round(sender.floor * (1.25 if key == "+" else 0.8)), _LEAST_FLOOR))


def own_port(options: Options) -> int | None:
    """Return the port at which this sender receives RTCP, or `None` if the system chose it.

    With `mux`, it is the RTP port. Otherwise it is the next higher port. In an any-source multicast group, the sender's
    RTP port is the port of the group's address.
    """
    port, to = options.port, options.to or ""
    if session.is_group(to) and not session.is_source_specific(to):
        port = int(to.rpartition(":")[2])
    return None if port is None else port + (0 if options.mux else 1)


def _follow(
    sender: Any,
    planned: Any,
    options: Options,
    length: float | None,
    draft: Draft | None,
    told: outlets.Outlets,
) -> Json:
    worker = working(sender, planned)
    until = time.monotonic() + length if length is not None else float("inf")
    port, place = own_port(options), _place(options)
    watch = view.Watch(
        view.send_line,
        lambda status: view.send_view(status, place, port),
        lambda status: view.hints(status, place, port),
    )
    for name in options.exclude or ():
        sender.exclude(name)
    # Ctrl-C is the regular way to end a session, so it is not an error.
    with suppress(KeyboardInterrupt), suppress(OSError), watch, view.Keys() as keys:

        def shown(status: Json | None) -> None:
            watch.show(status)
            _obey(sender, keys.pressed(), status)

        watch.follow(sender, until, told.look, shown)
    with signals.held():
        summary = recorded(sender, planned, worker, draft)
    if options.whip is not None:
        _check_connected(sender, options.whip)
    return summary


def _check_connected(sender: Any, url: str) -> None:
    status = json.loads(sender.status()) or {}
    connection = status.get("browser") or {}
    # Accept that the server closes the connection, because this is a regular end, as a BYE is.
    if connection.get("end") != "failed":
        return
    why = connection["why"]
    if not status["packets"]:
        remedy = "see that UDP is not blocked, and that the server names addresses that are reached"
        if connection.get("address"):
            remedy = f"see that the program at {connection['address']} is the server that has answered"
        raise ServerFailedError(url, why, remedy)
    problem = f"the connection was lost: {why}"
    raise ServerFailedError(url, problem, "see that the server runs, then send again")


def working(sender: Any, planned: Any) -> threading.Thread | None:
    """Start the threads that encode the source. Return the thread that encodes pictures, or `None` if there is none."""
    if planned.audio is not None:
        threading.Thread(target=planned.audio, args=(sender,), daemon=True, name="audio").start()
    if planned.work is None:
        return None
    worker = threading.Thread(target=planned.work, args=(sender,), daemon=True, name="encoder")
    worker.start()
    return worker


def recorded(sender: Any, planned: Any, worker: threading.Thread | None, draft: Draft | None) -> Json:
    """Wait for the end of a session, write its record, and return the summary."""
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
