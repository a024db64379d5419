"""Live sessions."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from steadycast.cli import base
from steadycast.cli.base import AsJson, Force
from steadycast.errors import UserError
from steadycast.exits import Exit
from steadycast.live.flow import CODECS, OPTIONS, Flow

Record = Annotated[Path | None, typer.Option("-o", metavar="DIR", help="The folder for the record.")]
For = Annotated[
    str | None, typer.Option("--for", metavar="SPAN", help="End after this time, for example 30s.")
]
Mux = Annotated[bool, typer.Option("--mux", help="RTP and RTCP on one port.")]
Interface = Annotated[
    str | None, typer.Option("--interface", metavar="I", help="By its name or its address.")
]
Consume = Annotated[
    str | None,
    typer.Option("--consume", metavar="R", help="How fast it is emptied; else as the frames' times say."),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="ADDR:PORT",
        help="Serve metrics for Prometheus; a port alone serves this machine.",
    ),
]
Status = Annotated[
    str | None,
    typer.Option("--status", metavar="FILE", help="Append a JSON line every second; - is stdout."),
]
Events = Annotated[
    Path | None, typer.Option("--events", metavar="FILE", help="Append a JSON line for each change, and why.")
]


def _outlets(metrics: str | None, status: str | None, events: Path | None, *, as_json: bool) -> Any:
    if status == "-" and as_json:
        raise UserError("--status -", "--json has standard output", "give --status a file")
    return base.module("steadycast.live.outlets").Options(metrics, status, events)


def flow_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that are keys of a flow: it gets those that were typed as ``flow``."""

    @wraps(function)
    def command(**given: Any) -> None:
        flow = {name: given.pop(name) for name in OPTIONS}
        function(**given, flow={name: value for name, value in flow.items() if value})

    kinds = get_type_hints(function, include_extras=True)
    defaults = {each.name: each.default for each in signature(function).parameters.values()}
    del kinds["flow"], kinds["return"]
    kinds |= {name: _typed(name) for name in OPTIONS}
    named = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=kind)
        for name, kind in kinds.items()
    ]
    command.__signature__ = Signature(named)  # type: ignore[attr-defined]
    command.__annotations__ = kinds
    return command


def _typed(name: str) -> Any:
    option = OPTIONS[name]
    kind: Any = list[str] if name == "param" else str
    said = f"--{name.replace('_', '-')}"
    return Annotated[kind | None, typer.Option(said, metavar=option.metavar, help=option.help)]


@base.app.command(
    short_help="Send a source live, at the rate that the network allows.",
    epilog=base.examples(
        "steadycast send film.mkv --to 10.0.0.2:5004 --sdp film.sdp",
        "steadycast send testsrc --to 239.1.2.3:5004 --ttl 4 --interface eth0 --sdp test.sdp",
        "steadycast send greedy --to 10.0.0.2:5004 --controller tfrc --for 60s -o runs/live",
    ),
)
@flow_options
def send(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help='A video file, "testsrc", "greedy", "/dev/video0", or "-" for standard input.',
        ),
    ],
    to: Annotated[str, typer.Option("--to", metavar="A:P", help="A receiver's RTP address, or a group's.")],
    flow: Flow,
    sdp: Annotated[
        Path | None, typer.Option("--sdp", metavar="FILE", help="Write the session description here.")
    ] = None,
    interface: Interface = None,
    ttl: Annotated[
        int | None, typer.Option("--ttl", metavar="N", min=1, max=255, help="Time to live.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="P", min=1, max=65534, help="Own RTP port; RTCP comes to the next."),
    ] = None,
    mux: Mux = False,
    loop: Annotated[bool, typer.Option("--loop", help="Start the file again at its end.")] = False,
    ladder: Annotated[
        bool,
        typer.Option("--ladder", help="Encode the file at every quantizer before, not while it is sent."),
    ] = False,
    keep_size: Annotated[
        bool,
        typer.Option("--keep-size", help="Leave pictures out where the rate is too low for their size."),
    ] = False,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="CNAME", help="A receiver whose reports do not count. Repeatable."),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option("--key-file", metavar="FILE", help="Encrypt (SRTP) with the key in this file."),
    ] = None,
    buffer: Annotated[
        str | None,
        typer.Option("--buffer", metavar="SIZE", help="Its receivers' play-out buffer, for example 16KiB."),
    ] = None,
    consume: Consume = None,
    duration: For = None,
    metrics: Metrics = None,
    status: Status = None,
    events: Events = None,
    out: Record = None,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Send a source live, and show why the rate is what it is. Ctrl-C ends the session.

    The record is a run folder: report and compare work on it.
    """
    from steadycast.folder import free_or_force
    from steadycast.progress import Terminal

    if out is not None:
        free_or_force(out, force=force)
    live = base.module("steadycast.live.send")
    options = live.Options(
        source=source,
        to=to,
        flow=flow,
        sdp=sdp,
        interface=interface,
        ttl=ttl,
        port=port,
        mux=mux,
        loop=loop,
        ladder=ladder,
        keep_size=keep_size,
        exclude=exclude or (),
        key_file=key_file,
        duration=duration,
        out=out,
        force=force,
        buffer=buffer,
        consume=consume,
        outlets=_outlets(metrics, status, events, as_json=as_json),
    )
    with Terminal() as progress:
        summary = live.send(options, progress)
    base.finish(summary, as_json=as_json, report=base.write_report(out) if out is not None else None)


@base.app.command(
    short_help="Receive a live session.",
    epilog=base.examples(
        "steadycast receive film.sdp --out film.mkv",
        'steadycast receive film.sdp --play "ffplay -loglevel error -"',
        "steadycast receive 232.1.2.3:5004 --source 10.0.0.1 --interface eth0 --for 60s -o runs/received",
    ),
)
def receive(
    what: Annotated[str, typer.Argument(metavar="SDP|A:P", help="The sender's description, or an address.")],
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="ADDR", help="The only sender that is wanted from a group."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Write the stream: raw (.m4v .m2v .h263 .264 .265 .ivf) or a container.",
        ),
    ] = None,
    play: Annotated[
        str | None, typer.Option("--play", metavar="CMD", help="Pipe the stream into this command.")
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option("--reference", metavar="CLIP", help="Measure the pictures against this clip."),
    ] = None,
    duration: For = None,
    mux: Mux = False,
    interface: Interface = None,
    codec: Annotated[
        str | None, typer.Option("--codec", help=f"{CODECS[:-1]}, where no description says it.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="CNAME", help="What the sender's operator calls this receiver."),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option("--key-file", metavar="FILE", help="The key of an encrypted stream (SRTP)."),
    ] = None,
    buffer: Annotated[
        str | None,
        typer.Option("--buffer", metavar="SIZE", help="A play-out buffer, for example 16KiB."),
    ] = None,
    consume: Consume = None,
    latency: Annotated[
        str | None,
        typer.Option(
            "--latency", metavar="SPAN", help="How long lost packets are waited for; 300ms without it."
        ),
    ] = None,
    give_up: Annotated[
        str,
        typer.Option(
            "--give-up",
            metavar="SPAN",
            help="End when nothing comes any more for this time; never to wait on.",
        ),
    ] = "30s",
    metrics: Metrics = None,
    status: Status = None,
    events: Events = None,
    out: Record = None,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Receive a live session until the sender ends it, or Ctrl-C."""
    from steadycast.folder import free_or_force

    if out is not None:
        free_or_force(out, force=force)
    live = base.module("steadycast.live.receive")
    options = live.Options(
        what=what,
        source=source,
        out=file,
        play=play,
        reference=reference,
        duration=duration,
        mux=mux,
        interface=interface,
        codec=codec,
        name=name,
        key_file=key_file,
        folder=out,
        force=force,
        buffer=buffer,
        consume=consume,
        latency=latency,
        give_up=give_up,
        outlets=_outlets(metrics, status, events, as_json=as_json),
    )
    received = live.receive(options)
    base.finish(received.summary, as_json=as_json, report=base.write_report(out) if out is not None else None)
    if received.silent:
        base.tell(f"{what}: nothing ever came; see whether the sender sends here, and what stands between")
        raise typer.Exit(Exit.SILENT)
