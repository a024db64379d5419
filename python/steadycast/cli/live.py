"""Commands for live sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from steadycast.cli import base
from steadycast.cli.base import argument, option
from steadycast.errors import UserError
from steadycast.exits import Exit
from steadycast.live.flow import CODECS, OPTIONS, Flow

Record = Annotated[Path | None, option("-o DIR", "The folder for the record of the session.")]
For = Annotated[str | None, option("--for SPAN", "End after this time, for example 30s.")]
Mux = Annotated[bool, option("--mux", "Use one port for RTP and RTCP.")]
Interface = Annotated[str | None, option("--interface I", "The network interface, by its name or address.")]
Consume = Annotated[
    str | None,
    option("--consume R", "The rate at which the player empties the buffer; by default frame by frame."),
]
Metrics = Annotated[
    str | None,
    option(
        "--metrics ADDR:PORT",
        "Serve metrics for Prometheus at this address; with a port alone, for this machine only.",
    ),
]
Status = Annotated[
    str | None,
    option(
        "--status FILE",
        "Append the session's state to this file every second, as a line of JSON; - is stdout.",
    ),
]
Loop = Annotated[bool, option("--loop", "Start the file again at its end.")]
Ladder = Annotated[
    bool, option("--ladder", "Encode the file at every quantizer before the session, not during it.")
]
KeepSize = Annotated[
    bool, option("--keep-size", "Skip pictures instead of sending smaller ones if the rate is too low.")
]
NoAudio = Annotated[bool, option("--no-audio", "Send the pictures alone, without the file's sound.")]
Events = Annotated[
    Path | None, option("--events FILE", "Append each change and its reason to this file, as a line of JSON.")
]


def _options(kind: Any, given: Mapping[str, Any]) -> Any:
    """Create an object of the class ``kind``. Each field gets the value of the argument with the same name."""
    if given["status"] == "-" and given["as_json"]:
        raise UserError("--status -", "--json has standard output", "give --status a file")
    outlets = base.module("steadycast.live.outlets").Options(
        given["metrics"], given["status"], given["events"]
    )
    named = {each.name: given[each.name] for each in fields(kind) if each.name in given}
    return kind(**named, outlets=outlets)


def flow_options(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add options for the keys of a flow except ``without``. The command gets their values as the argument ``flow``."""
    names = [name for name in OPTIONS if name not in without]

    def given_them(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def command(**given: Any) -> None:
            flow = {name: given.pop(name) for name in names}
            function(**given, flow={name: value for name, value in flow.items() if value})

        kinds = get_type_hints(function, include_extras=True)
        defaults = {each.name: each.default for each in signature(function).parameters.values()}
        del kinds["flow"], kinds["return"]
        kinds |= {name: _typed(name) for name in names}
        named = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=kind)
            for name, kind in kinds.items()
        ]
        command.__signature__ = Signature(named)  # type: ignore[attr-defined]
        command.__annotations__ = kinds
        return command

    return given_them


def _typed(name: str) -> Any:
    kind: Any = list[str] if name == "param" else str
    return Annotated[
        kind | None, option(f"--{name.replace('_', '-')} {OPTIONS[name].metavar}", OPTIONS[name].help)
    ]


@base.command(
    "Send a source live, at the rate that the network allows.",
    "steadycast send film.mkv --to 10.0.0.2:5004 --sdp film.sdp",
    "steadycast send testsrc --to 239.1.2.3:5004 --ttl 4 --interface eth0 --sdp test.sdp",
    "steadycast send greedy --to 10.0.0.2:5004 --controller tfrc --for 60s -o runs/live",
    "steadycast send film.mkv --whip https://media.example/whip --whip-token-file token",
)
@flow_options()
def send(
    source: Annotated[
        str,
        argument(
            "SOURCE",
            'A video file, a clip\'s name, "testsrc", "greedy", "/dev/video0", or "-" for standard input.',
        ),
    ],
    flow: Flow,
    to: Annotated[
        str | None, option("--to A:P", "The RTP address and port of the receiver or the multicast group.")
    ] = None,
    whip: Annotated[
        str | None, option("--whip URL", "A WHIP server to which the source is published, in place of --to.")
    ] = None,
    whip_token_file: Annotated[
        Path | None,
        option(
            "--whip-token-file FILE",
            "A file with the bearer token of the WHIP server; or give it in STEADYCAST_WHIP_TOKEN.",
        ),
    ] = None,
    sdp: Annotated[
        Path | None, option("--sdp FILE", "Write the session description (SDP) to this file.")
    ] = None,
    interface: Interface = None,
    ttl: Annotated[
        int | None, option("--ttl N", "The packets' time to live, in hops.", min=1, max=255)
    ] = None,
    port: Annotated[
        int | None,
        option("--port P", "The sender's RTP port; RTCP uses the next port.", min=1, max=65534),
    ] = None,
    mux: Mux = False,
    loop: Loop = False,
    ladder: Ladder = False,
    keep_size: KeepSize = False,
    no_audio: NoAudio = False,
    exclude: Annotated[
        list[str] | None,
        option("--exclude CNAME", "The CNAME of a receiver whose reports are ignored. Repeatable."),
    ] = None,
    key_file: Annotated[
        Path | None, option("--key-file FILE", "Encrypt (SRTP) with the key in this file.")
    ] = None,
    buffer: Annotated[
        str | None, option("--buffer SIZE", "The size of the receivers' play-out buffer, for example 16KiB.")
    ] = None,
    consume: Consume = None,
    duration: For = None,
    metrics: Metrics = None,
    status: Status = None,
    events: Events = None,
    out: Record = None,
    as_json: base.AsJson = False,
    force: base.Force = False,
) -> None:
    """Send a source live, and show the reason for its rate. Ctrl-C ends the session.

    The record of the session is a run folder, which report and compare can read.
    """
    from steadycast.progress import Terminal

    live = base.module("steadycast.live.send")
    options = _options(live.Options, locals())
    warn = base.WarnOnce()
    with Terminal() as progress:
        summary = live.send(options, progress, warn)
    report = base.write_report(out) if out is not None else None
    base.finish(summary, as_json=as_json, report=report, warn=warn)


@base.command(
    "Send a source live to browsers, each at the rate that its network allows.",
    "steadycast serve film.mkv --loop",
    "steadycast serve testsrc --controller gcc --max-rate 3Mbps",
    "steadycast serve whip --size 1280x720",
    "steadycast serve film.mkv --ladder --viewers 20 --listen 10.0.0.1:8080 -o runs/viewers",
)
@flow_options("mode", "feedback", "ecn")
def serve(
    source: Annotated[
        str,
        argument(
            "SOURCE",
            'A video file, a clip\'s name, "testsrc", a camera ("/dev/video0"), or "whip" for what a browser or OBS '
            "publishes.",
        ),
    ],
    flow: Flow,
    listen: Annotated[
        str, option("--listen A:P", "The address and port of the page; the media use the same address.")
    ] = "127.0.0.1:8080",
    media_port: Annotated[
        int, option("--media-port P", "The UDP port of the media of all viewers.", min=1, max=65535)
    ] = 40_000,
    media_ports: Annotated[
        str | None, option("--media-ports A-B", "The former name of --media-port; its first port is used.")
    ] = None,
    media_address: Annotated[
        list[str] | None,
        option(
            "--media-address ADDR", "The IP address of the media, if it differs from the page's. Repeatable."
        ),
    ] = None,
    certificate: Annotated[
        Path | None, option("--certificate FILE", "Serve by HTTPS with this certificate (PEM).")
    ] = None,
    key: Annotated[Path | None, option("--key FILE", "The private key of the certificate (PEM).")] = None,
    public_url: Annotated[
        str | None,
        option(
            "--public-url URL",
            "The address by which browsers reach the page, if it is behind a proxy or has a --certificate.",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        option("--allow-origin URL", "Another site whose pages may embed the player. Repeatable."),
    ] = None,
    viewers: Annotated[
        int, option("--viewers N", "The maximum number of viewers at a time.", min=1, max=100)
    ] = 4,
    no_token: Annotated[
        bool, option("--no-token", "Let anyone who reaches the page watch; only at a loopback address.")
    ] = False,
    loop: Loop = False,
    ladder: Ladder = False,
    keep_size: KeepSize = False,
    no_audio: NoAudio = False,
    metrics: Metrics = None,
    status: Status = None,
    events: Events = None,
    out: Annotated[
        Path | None, option("-o DIR", "A folder for the viewers' records, each a run folder.")
    ] = None,
    force: base.Force = False,
) -> None:
    """Send a source live to web browsers, and show the reason for its rate on the page. Ctrl-C ends it.

    The command prints the address of the page, and with "whip" also the address and the token for a publisher. Other
    players can use WHEP at /whep/video. It needs the extra: pip install "steadycast[serve]".
    """
    from steadycast.progress import Terminal

    server = base.module("steadycast.serve.server")
    options = _options(base.module("steadycast.serve.viewers").Options, {**locals(), "as_json": False})
    with Terminal() as progress:
        server.serve(options, progress, lambda line: print(line, flush=True))


@base.command(
    "Receive a live session.",
    "steadycast receive film.sdp --out film.mkv",
    'steadycast receive film.sdp --play "ffplay -loglevel error -"',
    "steadycast receive 232.1.2.3:5004 --source 10.0.0.1 --interface eth0 --for 60s -o runs/received",
)
def receive(
    what: Annotated[
        str,
        argument("SDP|A:P", "The sender's session description (SDP), or the address and port of the stream."),
    ],
    source: Annotated[
        str | None,
        option("--source ADDR", "The only sender to accept from a group (source-specific multicast)."),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "--out FILE",
            "Write the stream: raw (.m4v .m2v .h263 .264 .265 .ivf) or a container. If FILE or FILE.part exists, the "
            "name gets a number: film-2.mkv.",
        ),
    ] = None,
    play: Annotated[str | None, option("--play CMD", "Pipe the stream into this command.")] = None,
    playout: Annotated[
        str | None,
        option(
            "--playout SPAN",
            "Pass each frame to the player at its play-out time, for example 500ms later; by default as it arrives.",
        ),
    ] = None,
    reference: Annotated[
        Path | None, option("--reference CLIP", "Measure the pictures against this clip.")
    ] = None,
    duration: For = None,
    mux: Mux = False,
    interface: Interface = None,
    codec: Annotated[str | None, option("--codec", f"The codec, if there is no SDP: {CODECS}")] = None,
    name: Annotated[
        str | None, option("--name CNAME", "The name of this receiver (RTCP CNAME), which the sender shows.")
    ] = None,
    key_file: Annotated[
        Path | None, option("--key-file FILE", "The key of an encrypted stream (SRTP).")
    ] = None,
    buffer: Annotated[
        str | None, option("--buffer SIZE", "The size of the play-out buffer, for example 16KiB.")
    ] = None,
    consume: Consume = None,
    latency: Annotated[
        str | None,
        option(
            "--latency SPAN",
            "The time for which the receiver waits for lost packets; by default 300ms, or 80ms without any repair.",
        ),
    ] = None,
    give_up: Annotated[
        str,
        option(
            "--give-up SPAN",
            "End the session if its sender is silent for this time. Before the first packet, and with never, the "
            "receiver waits without end.",
        ),
    ] = "30s",
    metrics: Metrics = None,
    status: Status = None,
    events: Events = None,
    folder: Record = None,
    as_json: base.AsJson = False,
    force: base.Force = False,
) -> None:
    """Receive a live session until the sender ends it, or Ctrl-C."""
    live = base.module("steadycast.live.receive")
    received = live.receive(_options(live.Options, locals()))
    base.finish(
        received.summary, as_json=as_json, report=base.write_report(folder) if folder is not None else None
    )
    if received.silent:
        if received.unused:
            base.tell(f"{what}: packets arrived, but none could be used: {'; '.join(received.unused)}")
        else:
            base.tell(
                f"{what}: no packet arrived; check that the sender sends to this address, and that no "
                "firewall blocks it"
            )
        raise typer.Exit(Exit.SILENT)
