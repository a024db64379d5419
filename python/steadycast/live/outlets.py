"""Outputs of a live session for other programs: metrics, status lines, events and notifications to systemd.

If an output can't be written, this is reported once, and the session continues.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from steadycast import units
from steadycast.core import core
from steadycast.errors import MissingError, UnwrittenError, UserError, reason
from steadycast.live import view
from steadycast.live.status import FATES

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

    from steadycast.web import Background

Json = dict[str, Any]

FORMAT = 1
PEERS = 50
"""Largest number of receivers that are listed in a status or in metrics. An attacker could invent any number."""
NAME = 64
"""A receiver's name is output up to this number of characters."""
EVERY_S = 1.0
"""The interval between status lines, in seconds."""
_STILL = 2.0
"""If a receiver gets no packet for this time, in seconds, its source counts as silent."""
_LAST_PORT = 65_535
_READERS = 16
"""The largest number of connections to the metrics server. More would slow down the session."""


@dataclass(frozen=True)
class Options:
    """The command line's options for these outputs."""

    metrics: str | None = None
    """Address of the metrics server: ADDR:PORT, or a port of the loopback interface."""
    status: str | None = None
    """The file for status lines. "-" means standard output."""
    events: Path | None = None


Samples = Iterable[tuple[Mapping[str, str], float | None]]
"""Pairs of labels and a value. The value is `None` if it is unknown."""


@dataclass(frozen=True)
class Metric:
    """A Prometheus metric. `read` extracts its samples from a status."""

    name: str
    kind: str
    """"gauge" or "counter". The exported name of a counter ends in _total."""
    about: str
    read: Callable[[Json], Samples]
    labels: tuple[str, ...] = ()


def _value(found: Any, path: str) -> float | None:
    """Return the number at a path in the status. Milliseconds are converted to seconds."""
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return None if found is None else float(found) * (1e-3 if path.endswith("_ms") else 1.0)


def _metric(kind: str, name: str, about: str, read: str | Callable[[Json], Samples], *labels: str) -> Metric:
    """Declare a metric. ``read`` is a function, or the path of the value in the status."""
    path = read if isinstance(read, str) else ""
    reads = (lambda status: [({}, _value(status, path))]) if isinstance(read, str) else read
    return Metric(f"steadycast_{name}", kind, about, reads, labels)


_gauge, _counter = partial(_metric, "gauge"), partial(_metric, "counter")


def _each(label: str, key: str, names: Mapping[str, str]) -> Callable[[Json], Samples]:
    def read(status: Json) -> Samples:
        found = status[key] if key else status
        return [({label: shown}, float(found[name])) for name, shown in names.items()]

    return read


def _peer(name: str, about: str, key: str) -> Metric:
    """Declare a gauge that has a sample for each listed receiver."""

    def read(status: Json) -> Samples:
        for peer in shown_peers(status)[0]:
            yield {"receiver": peer["name"], "ssrc": f"{peer['ssrc']:08x}"}, _value(peer, key)

    return _gauge(f"receiver_{name}", about, read, "receiver", "ssrc")


def _kinds(status: Json) -> Samples:
    peers = status["peers"]
    for kind in ("ours", "packets", "standard", "aside", "left"):
        yield {"kind": kind}, float(sum(view.kind(peer) == kind for peer in peers))


def _breaker(status: Json) -> Samples:
    yield {}, float(str((status["decision"] or {}).get("rule", "")).startswith("circuit breaker"))


def _unused(status: Json) -> Samples:
    for why in core.unused_reasons():
        yield {"reason": why}, float(status.get("unused", {}).get(why, 0))


def _ecn_failed(status: Json) -> Samples:
    if status["ecn"] is not None:
        yield {}, float(bool(status["ecn"]["failure"]))


LIMITS = ("start", "network", "encoder", "cap", "floor")
_FRAMES = {"frames": "coded", "skipped_frames": "skipped", "left_out": "left_out", "no_room": "no_room"}
_UPTIME = _gauge("uptime_seconds", "The time since the session began.", "at_s")
_UNREADABLE = _counter("unreadable", "Datagrams that could not be parsed or decrypted.", "unreadable")
SENDER = (
    _UPTIME,
    _gauge(
        "rate_bits_per_second",
        "The rate sent in the last second, in bits of IP packets per second.",
        "rate_bps",
    ),
    _gauge("target_bits_per_second", "The controller's target rate.", "decision.target_bps"),
    _gauge("floor_bits_per_second", "The lower limit of the rate.", "floor_bps"),
    _gauge("pacer_delay_seconds", "The time that the packets in the pacer take to be sent.", "backlog_ms"),
    _counter("packets", "RTP packets that were sent, including sound and repair.", "packets"),
    _counter("bytes", "Bytes of RTP packets that were sent, including IP headers.", "bytes"),
    _counter(
        "frames",
        "Frames by outcome: coded (encoded), skipped (the pacer's backlog was too large), left_out (the encoder was "
        "too slow) or no_room (the rate was too low even for the coarsest quantizer).",
        _each("fate", "", _FRAMES),
        "fate",
    ),
    _counter(
        "smaller_frames",
        "Frames that were encoded at a smaller size than the source's, because the rate was too low.",
        "size.smaller_frames",
    ),
    _gauge("picture_height", "The height of the encoded pictures, in lines.", "size.height"),
    _counter("feedback", "RTCP packets that were received.", "feedback"),
    _counter(
        "feedback_refused",
        "RTCP reports that were ignored: too many from one address, or not from the receiver.",
        "feedback_refused",
    ),
    _counter("ecn_marked", "Packets that receivers reported as ECN-marked.", "ecn.marked"),
    _gauge("ecn_failed", "1 if the path does not preserve the ECN field, else 0.", _ecn_failed),
    _UNREADABLE,
    _counter(
        "refused", "Packets for which an ICMP error came back: nothing listens at the destination.", "refused"
    ),
    _counter(
        "limited_seconds",
        "The time in which this limited the rate. Its rate() is a share of time.",
        _each("by", "limited_s", {limit: limit for limit in LIMITS}),
        "by",
    ),
    _gauge("breaker_open", "1 while the circuit breaker (RFC 8083) limits the rate, else 0.", _breaker),
    _gauge(
        "receivers",
        "Receivers by the kind of their reports: ours (the controller's own format), packets (per-packet feedback) or "
        "standard; or aside (the reports are ignored), or left (the receiver has left).",
        _kinds,
        "kind",
    ),
    _gauge(
        "receivers_untold",
        f"Receivers without metrics of their own, because only {PEERS} have them.",
        lambda status: [({}, float(shown_peers(status)[1]))],
    ),
    _peer("loss_ratio", "The share of packets lost between the receiver's last two reports.", "loss_frac"),
    _peer("rtt_seconds", "The round-trip time, from the receiver's reports.", "rtt_ms"),
    _peer("jitter_seconds", "Interarrival jitter (RFC 3550), from the receiver's reports.", "jitter_ms"),
    _peer("silent_seconds", "The time since the receiver's last report.", "silent_s"),
)
RECEIVER = (
    _UPTIME,
    _gauge(
        "received_rate_bits_per_second",
        "The rate received in the last second, in bits of IP packets per second.",
        "rate_bps",
    ),
    _gauge("loss_ratio", "The share of packets lost in the last second.", "loss_frac"),
    _gauge("delay_seconds", "The one-way delay above the smallest delay of the session.", "delay_ms"),
    _gauge("jitter_seconds", "Interarrival jitter (RFC 3550).", "jitter_ms"),
    _counter("packets_received", "RTP packets that were received, without duplicates.", "received"),
    _gauge("packets_expected", "RTP packets that were sent, by their sequence numbers.", "expected"),
    _counter(
        "frames_received",
        "Frames by outcome: whole, damaged, missing or undecodable.",
        _each("fate", "frames", {fate: fate for fate in FATES}),
        "fate",
    ),
    _gauge("silent_seconds", "The time since the last RTP packet arrived.", "silent_s"),
    _gauge("still_seconds", "The time since the last whole frame arrived.", "still_s"),
    _counter("reports", "RTCP packets that were sent.", "reports"),
    _UNREADABLE,
    _counter("unused_packets", "Packets that arrived but were not used, by reason.", _unused, "reason"),
    _gauge("buffer_bytes", "The fill level of the play-out buffer.", "buffer.level_bytes"),
)
VIEWERS = _gauge(
    "viewers",
    "The number of viewers. It has no label `session`. A server without viewers has no other metric.",
    lambda _: (),
)


def shown_peers(status: Json) -> tuple[list[Json], int]:
    """Return the listed receivers, and the number of other receivers. The receiver that limits the rate comes first."""
    order = [peer for peer in view.ordered(status) if not peer["left"]]
    told = [{**peer, "name": str(peer["name"] or "?")[:NAME]} for peer in order[:PEERS]]
    return told, len(order) - len(told)


class Outlets:
    """The outputs of a session that the user requested. They are open during the ``with`` block.

    ``session`` is the address to which the session sends, or at which it listens. If several sessions share the
    process, ``alone`` is false, and the session does not send its status to systemd.
    """

    def __init__(self, options: Options, command: str, session: str, *, alone: bool = True) -> None:
        self._command, self.session = command, session
        self._notify: Callable[[str], None] = _notify if alone else lambda _: None
        self._status: Json | None = None
        self._limited = dict.fromkeys(LIMITS, 0.0)
        self._seen_s = 0.0
        self._next = 0.0
        self._told_s = -1.0
        self._events = _Events()
        self._files: dict[str, _Lines] = {}
        self._server: Background | None = None
        if options.status is not None:
            self._files["status"] = _Lines(options.status)
        if options.events is not None:
            self._files["events"] = _Lines(str(options.events))
        try:
            if options.metrics is not None:
                self._server = _serve(options.metrics, lambda: [self], self.json)
        # Close the files that were opened before the error.
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> Self:
        return self

    def begun(self) -> None:
        """Notify systemd that the ports and files of the session are open."""
        self._notify("READY=1")

    def __exit__(self, *_: object) -> None:
        self._notify("STOPPING=1")
        if "events" in self._files:
            self._files["events"].write(self._line("event", {"event": "end"}))
        self._close()

    def _close(self) -> None:
        if self._server is not None:
            self._server.stop()
        for lines in self._files.values():
            lines.close()

    def look(self, status: Json | None) -> None:
        """Update all outputs with the current status. Raise no exceptions."""
        if not status:
            return
        status = dict(status)
        if self._command == "send":
            limit = (status["decision"] or {}).get("limit")
            if limit in self._limited:
                self._limited[limit] += max(status["at_s"] - self._seen_s, 0.0)
            self._seen_s = status["at_s"]
            status["limited_s"] = dict(self._limited)
        self._status = status
        if "events" in self._files:
            for event in self._events.of(self._command, status):
                self._files["events"].write(self._line("event", event))
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY_S
        if "status" in self._files:
            self._files["status"].write(self._line("status", self.told()))
        line = view.send_line if self._command == "send" else view.receive_line
        # Send WATCHDOG=1 only with a new status. If it is missing because the session hangs, systemd restarts the
        # service.
        alive = "\nWATCHDOG=1" if status["at_s"] > self._told_s else ""
        self._told_s = status["at_s"]
        self._notify(f"STATUS={line(status).strip()}{alive}")

    def told(self) -> Json:
        """Return the last status, with at most `PEERS` receivers."""
        if self._status is None:
            return {}
        if self._command != "send":
            return self._status
        peers, more = shown_peers(self._status)
        return {**self._status, "peers": peers, "more_peers": more}

    def metrics(self) -> Iterator[tuple[Metric, list[tuple[Mapping[str, str], float]]]]:
        """Yield each metric with its samples. Unknown values are left out."""
        status = self._status
        for metric in SENDER if self._command == "send" else RECEIVER:
            samples = metric.read(status) if status is not None else ()
            yield metric, [(labels, value) for labels, value in samples if value is not None]

    def _line(self, kind: str, content: Json) -> str:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        head = {"format": FORMAT, "at": at, "kind": kind, "command": self._command, "session": self.session}
        return json.dumps({**head, **content}, ensure_ascii=False)

    def json(self) -> str:
        """Return the current status as a line of JSON."""
        return self._line("status", self.told())


@contextmanager
def several(options: Options, sessions: Callable[[], Sequence[Outlets]]) -> Iterator[None]:
    """Serve the metrics of sessions that may come and go, and their number. Notify systemd for the whole process."""

    def status() -> str:
        return f"[{', '.join(each.json() for each in sessions())}]"

    server = None if options.metrics is None else _serve(options.metrics, sessions, status, count=True)
    _notify("READY=1")
    try:
        yield
    finally:
        _notify("STOPPING=1")
        if server is not None:
            server.stop()


class _Lines:
    """A file of lines. A write error is reported only once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._file: IO[str] | None
        if name == "-":
            self._file = sys.stdout
            return
        try:
            self._file = open(name, "a", encoding="utf-8")  # noqa: SIM115  (it stays open during the session)
        except OSError as error:
            raise UnwrittenError.of(name, error, "name another file") from error

    def write(self, line: str) -> None:
        if self._file is None:
            return
        try:
            print(line, file=self._file, flush=True)
        except (OSError, ValueError) as error:
            print(f"{self._name}: nothing more is written here ({reason(error)})", file=sys.stderr)
            self.close()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None and file is not sys.stdout:
            # Ignore errors, because closing flushes the buffer, which fails on a full disk.
            with suppress(OSError):
                file.close()


class _Events:
    """Derives events from the differences between consecutive statuses."""

    def __init__(self) -> None:
        self._decision: tuple[Any, ...] | None = None
        self._peers: dict[int, tuple[str, Json]] = {}
        """The kind of each receiver's last event, and the fields of an event that name the receiver."""
        self._silent = False
        self._source: str | None = None
        self._ecn: str | None = None
        self._size: Json | None = None

    def of(self, command: str, status: Json) -> Iterator[Json]:
        at = {"at_s": status["at_s"]}
        for event in self._sender(status) if command == "send" else self._receiver(status):
            yield {**at, **event}

    def _sender(self, status: Json) -> Iterator[Json]:
        decision = status["decision"]
        if decision and (decision["limit"], decision["rule"]) != self._decision:
            self._decision = (decision["limit"], decision["rule"])
            yield {"event": "decision", **decision, "rate_bps": status["rate_bps"]}
        ecn = status["ecn"]
        if ecn is not None and ecn["path"] != self._ecn:
            self._ecn = ecn["path"]
            yield {"event": "ecn", **ecn}
        size = status["size"] and {key: status["size"][key] for key in ("width", "height", "smaller")}
        if size != self._size:
            told, self._size = self._size, size
            # If the first size is the full size, report nothing, because the size has not changed.
            if told is not None or size["smaller"]:
                target = (decision or {}).get("target_bps")
                yield {"event": "size", **size, "quantizer": status["quantizer"], "target_bps": target}
        peers = {peer["ssrc"]: peer for peer in status["peers"]}
        known = {ssrc: (view.kind(peer), _named(peer)) for ssrc, peer in peers.items()}
        changed = [ssrc for ssrc, (kind, _) in known.items() if self._peers.get(ssrc, ("",))[0] != kind]
        gone = [ssrc for ssrc in self._peers if ssrc not in known]
        for ssrc in changed[:PEERS]:
            kind, named = known[ssrc]
            what = kind if kind in ("left", "aside") else "heard again" if ssrc in self._peers else "join"
            yield {"event": what, **named, **({"why": peers[ssrc]["aside"]} if what == "aside" else {})}
        for ssrc in gone[:PEERS]:
            yield {"event": "forgotten", **self._peers[ssrc][1]}
        more = max(len(changed) - PEERS, 0) + max(len(gone) - PEERS, 0)
        if more:
            yield {"event": "more receivers changed", "count": more}
        self._peers = known

    def _receiver(self, status: Json) -> Iterator[Json]:
        if status["from"] != self._source:
            self._source = status["from"]
            yield {"event": "source", "from": self._source}
        silent = status["silent_s"] is not None and status["silent_s"] > _STILL
        if silent != self._silent:
            self._silent = silent
            yield {"event": "silent" if silent else "heard again"}


def _named(peer: Json) -> Json:
    """Return the fields of an event that name a receiver."""
    return {
        "receiver": str(peer["name"] or "?")[:NAME],
        "ssrc": peer["ssrc"],
        "address": peer["address"],
    }


def _notify(state: str) -> None:
    """Send a state to systemd (sd_notify(3)) if the service requests notifications."""
    place = os.environ.get("NOTIFY_SOCKET")
    if not place:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        # "@" represents the zero byte at the beginning of an abstract socket's name.
        channel.sendto(state.encode(), f"\0{place[1:]}" if place.startswith("@") else place)


def address(option: str, text: str, port: int) -> tuple[str, int]:
    """Parse `9464`, `:9464`, `0.0.0.0:9464` or `[::1]:9464`. The default address is the loopback interface.

    Raises:
        UserError: the text has another form, or there is no such port; the remedy suggests ``port``.

    """
    host, _, given = text.rpartition(":")
    if (number := units.whole(given, 1, _LAST_PORT)) is None:
        problem = f"ports go from 1 to {_LAST_PORT}" if given.isdecimal() else "this is not ADDRESS:PORT"
        raise UserError(f"{option} {text}", problem, f"write for example 127.0.0.1:{port}")
    return host.strip("[]") or "127.0.0.1", number


def _index() -> str:
    links = (f'<p><a href="{path}">{path}</a></p>' for path in ("/metrics", "/status.json", "/healthz"))
    return f"<!doctype html><title>Steadycast</title>{''.join(links)}\n"


def _meant(asked: str, host: str) -> bool:
    """Whether a Host header is allowed for a server at ``host``. This check prevents DNS rebinding on the loopback."""
    name = asked.rpartition("]")[0].strip("[") or asked.partition(":")[0]
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback or name in ("", host, "localhost"):
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(name).is_loopback
    return False


def _serve(
    text: str,
    sessions: Callable[[], Sequence[Outlets]],
    status: Callable[[], str],
    *,
    count: bool = False,
) -> Background:
    """Serve /metrics, /status.json and /healthz in a thread.

    ``status`` returns the JSON document. If ``count`` is set, the number of sessions is a metric, too.
    """
    host, port = address("--metrics", text, 9464)
    try:
        import prometheus_client
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
        from starlette.responses import Response
        from starlette.routing import Route

        from steadycast import web
    except ImportError as error:
        package = str(error.name).partition(".")[0]
        raise MissingError.package(f"--metrics {text}", package, "steadycast[metrics]") from error

    kinds = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}

    class Collector:
        def collect(self) -> Iterator[Any]:
            families: dict[str, Any] = {}
            for session, (metric, samples) in (
                (each.session, told) for each in sessions() for told in each.metrics()
            ):
                if metric.name not in families:
                    family = kinds[metric.kind](metric.name, metric.about, labels=["session", *metric.labels])
                    families[metric.name] = family
                for labels, value in samples:
                    families[metric.name].add_metric(
                        [session, *(labels[name] for name in metric.labels)], value
                    )
            yield from families.values()
            if count:
                yield GaugeMetricFamily(VIEWERS.name, VIEWERS.about, value=len(sessions()))

    registry = prometheus_client.CollectorRegistry()
    registry.register(Collector())

    def route(path: str, kind: str, content: Callable[[], str], code: int = 200) -> Route:
        return Route(path, lambda _: Response(content(), code, media_type=f"{kind}; charset=utf-8"))

    def refusal(request: Request) -> Response | None:
        is_meant = _meant(request.headers.get("host", ""), host)
        return None if is_meant else Response(f"ask for {host}:{port}\n", 421, media_type="text/plain")

    routes: list[BaseRoute] = [
        Route("/metrics", _Application(prometheus_client.make_asgi_app(registry))),
        route("/", "text/html", _index),
        route("/status.json", "application/json", status),
        route("/healthz", "text/plain", lambda: "ok\n"),
        route("/{path:path}", "text/plain", lambda: "/metrics /status.json /healthz\n", 404),
    ]
    try:
        at = web.listener(host, port)
    except OSError as error:
        raise UserError(
            f"--metrics {text}", f"can't be listened at ({reason(error)})", "take another address or port"
        ) from None
    return web.Background(web.application(routes, refusal=refusal), at, web.Places(_READERS, _READERS))


class _Application:
    """An ASGI application that can be the endpoint of a route.

    It is a class, because Starlette would call a function with a request instead of scope, receive and send.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
