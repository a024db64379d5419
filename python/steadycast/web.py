"""The web server of `serve`, `lab` and `--metrics`."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import signal
import socket
import ssl
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from steadycast.errors import UserError, reason

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "media-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_KINDS = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
}
_STYLED = ("lab.css", "serve.css")
_HEAD_S = 10.0
"""Time limit for receiving the header of a request, in seconds."""
_BODY_S = 30.0
"""Time limit for receiving the body of a request, in seconds."""
_MOST_HEAD = 16 << 10
"""Maximum size of a request's header, in bytes."""
_BACKLOG = 64
"""Maximum number of connections that wait in the kernel. asyncio accepts as many in one iteration of its loop."""
_OF_ONE = 64
"""Maximum number of connections from one client address.

A browser opens six connections, and several browsers may share the address of a NAT.
"""
_LINES = 5
"""Maximum number of lines of one kind that the log accepts in `_MINUTE_S`."""
_MINUTE_S = 60.0
"""Interval to which the limit `_LINES` applies, in seconds."""
_KINDS_OF_LINES = 64
"""Maximum number of kinds of log lines that are counted."""


_DEFAULT_PORTS = {"http": 80, "https": 443}


def origin_and_path(option: str, text: str) -> tuple[str, str]:
    """Split a URL into its origin (RFC 6454, section 6.1) and its path. The path ends in a slash.

    Raises:
        UserError: the text is not the URL of a page.

    """
    remedy = f"write for example {option} https://video.example.net"
    try:
        parts = urlsplit(text)
        port = parts.port
        host = (parts.hostname or "").encode("idna").decode()
    except ValueError as error:  # UnicodeError is a ValueError, too
        raise UserError(f"{option} {text}", f"this is not a URL ({error})", remedy) from None
    if parts.scheme not in _DEFAULT_PORTS or not host or parts.query or parts.fragment or "@" in parts.netloc:
        raise UserError(f"{option} {text}", "this is not the URL of a page", remedy)
    host = f"[{host}]" if ":" in host else host
    shown = "" if port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{port}"
    return f"{parts.scheme}://{host}{shown}", f"{parts.path.rstrip('/')}/"


@dataclass(frozen=True)
class Access:
    """Decides by the Host and Origin headers which requests are answered.

    To prevent DNS rebinding, Host must be the address at which the request arrived, or the address in the public URL.
    Pages of other origins can neither send requests nor read responses, unless ``origins`` contains their origin.
    """

    public: str | None = None
    """Origin of the public URL. `None` if the server is reached by its address."""
    origins: frozenset[str] = frozenset()
    """Other origins. Their pages may embed this server's page and use its API."""

    def is_here(self, request: Request) -> bool:
        """Whether the Host header of a request refers to this server."""
        if self.public is not None:
            scheme, _, authority = self.public.partition("://")
            return request.headers.get("host", "").lower() in (
                authority,
                f"{authority}:{_DEFAULT_PORTS[scheme]}",
            )
        name, address = (request.url.hostname or "").strip("[]"), here(request)
        return name == address or (name == "localhost" and address in ("127.0.0.1", "::1"))

    def is_own(self, request: Request) -> bool:
        """Whether the Origin header of a request is absent or refers to this server."""
        origin = request.headers.get("origin")
        own = self.public or f"{request.url.scheme}://{request.headers.get('host')}"
        return origin is None or origin == own

    def is_allowed(self, request: Request) -> bool:
        """Whether a request comes from this server's page, from a page of `origins`, or from no page."""
        return self.is_own(request) or request.headers.get("origin") in self.origins

    def headers(self, request: Request) -> dict[str, str]:
        """Return the headers of every response. They protect the page from other origins than `origins`."""
        found = dict(_HEADERS)
        if self.origins:
            ancestors = f"frame-ancestors {' '.join(sorted(self.origins))}"
            policy = found["content-security-policy"].replace("frame-ancestors 'none'", ancestors)
            found |= {"content-security-policy": policy, "vary": "origin"}
        origin = request.headers.get("origin")
        if origin in self.origins:
            found["access-control-allow-origin"] = origin
            found["access-control-expose-headers"] = "location, etag, retry-after"
        return found

    def refusal(self, request: Request) -> Response | None:
        """Return the response that refuses a request for another server.

        Returns `None` if the request is for this server.
        """
        if self.is_here(request):
            return None
        return wrong(
            400, f"its Host is not {self.public}" if self.public else "ask for the address that was printed"
        )

    def preflight(self, request: Request) -> Response | None:
        """Return the response to a CORS preflight request from a page of `origins`.

        Returns `None` for other requests.
        """
        asks = request.method == "OPTIONS" and "access-control-request-method" in request.headers
        is_named = request.headers.get("origin") in self.origins
        return Response(status_code=204, headers=_PREFLIGHT) if asks and is_named else None


_PREFLIGHT = {
    "access-control-allow-methods": "GET, POST, PATCH, DELETE",
    "access-control-allow-headers": "authorization, content-type, if-match",
    "access-control-max-age": "600",
}


BY_ADDRESS = Access()


def application(
    routes: list[BaseRoute],
    access: Access = BY_ADDRESS,
    refusal: Callable[[Request], Response | None] | None = None,
) -> Starlette:
    """Return an application that adds security headers. ``refusal`` replaces the method `refusal` of ``access``."""

    async def guarded(request: Request, answer: RequestResponseEndpoint) -> Response:
        """Answer a request, and add the headers to the response."""
        response = (refusal or access.refusal)(request) or access.preflight(request) or await answer(request)
        response.headers.update(access.headers(request))
        return response

    return Starlette(routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=guarded)])


def here(request: Request) -> str:
    """Return the local address at which a request has arrived."""
    text = str((request.scope.get("server") or ("",))[0])
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return text
    # Convert an IPv4-mapped IPv6 address, because a dual-stack socket reports IPv4 addresses in this form.
    return str(getattr(found, "ipv4_mapped", None) or found)


def is_token(given: str, token: str) -> bool:
    """Compare a token. This takes the same time whether it is right or wrong."""
    return hmac.compare_digest(given.encode(), token.encode())


async def body(request: Request, most: int) -> bytes | None:
    """Return the body of a request. Returns `None` if it exceeds ``most`` bytes or takes too long."""
    found = b""
    with suppress(TimeoutError):
        async with asyncio.timeout(_BODY_S):
            async for part in request.stream():
                found += part
                if len(found) > most:
                    return None
            return found
    return None


def wrong(code: int, what: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error response."""
    return JSONResponse({"wrong": what}, code, headers=headers)


def file_routes(served: Mapping[str, tuple[str, str]]) -> list[BaseRoute]:
    """Return routes for files.

    The keys of ``served`` are paths. The values are a package and a file in the package's folder ``page``.
    """

    def route(path: str, package: str, name: str) -> Route:
        async def answer(_: Request) -> Response:
            content = styles(package, name) if name in _STYLED else page(package, name)
            return Response(content, headers={"content-type": _KINDS[name.rpartition(".")[2]]})

        return Route(path, answer, methods=["GET"])

    return [route(path, *place) for path, place in served.items()]


@cache
def page(package: str, name: str) -> bytes:
    """Return the content of a file in the folder ``page`` of a package."""
    return (files(package) / "page" / name).read_bytes()


@cache
def styles(package: str, name: str) -> bytes:
    """Return the style sheet of a page.

    It contains the report's colours, the shared styles, and the page's own styles.
    """
    report = (files("steadycast.report") / "page.css").read_text(encoding="utf-8")
    colours = "\n".join(line for line in report.splitlines() if ":root{" in line and "--ink" in line)
    colours = colours.replace("LIGHT", "").replace("DARK", "")
    return b"\n".join([colours.encode(), page("steadycast.lab", "shared.css"), page(package, name)])


class Places:
    """The open connections of a server. Their number is limited, so that file descriptors do not run out.

    If a new connection exceeds a limit, the oldest idle connection is closed. So clients cannot block other clients. A
    connection is idle if it has no request, or if its client does not read.
    """

    def __init__(self, total: int | None = None, of_one: int = _OF_ONE) -> None:
        self.total = _descriptors() // 4 if total is None else total
        self.of_one = of_one
        self._all: dict[_Timed | _Handshake, str] = {}
        self.closed = 0
        """Number of connections that were closed because a limit was exceeded."""

    def take(self, one: _Timed | _Handshake, address: str) -> None:
        """Add a connection. If this exceeds a limit, close another connection."""
        self._all[one] = address
        own = [each for each, its in self._all.items() if its == address]
        if len(own) > self.of_one:
            self._close(own)
        elif len(self._all) > self.total:
            self._close([*self._all])

    def leave(self, one: _Timed | _Handshake) -> None:
        """Remove a connection that has ended."""
        self._all.pop(one, None)

    def _close(self, among: Sequence[_Timed | _Handshake]) -> None:
        """Close the oldest idle connection of ``among``. If none is idle, close the newest one."""
        one = next((each for each in among if each.is_idle), among[-1])
        self.leave(one)
        self.closed += 1
        what = f"more than {self.total} connections, or {self.of_one} of one address: the oldest idle one is closed"
        _sparing.tell("connections", what)
        one.transport.abort()


def _descriptors() -> int:
    try:
        import resource
    except ImportError:  # on Windows
        return 1024
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(soft, 1024) if soft > 0 else 1024


class _Timed(H11Protocol):
    """Closes a connection if the header of a request is not complete within the time limit."""

    _limit: asyncio.TimerHandle | None = None
    places: Places

    @property
    def is_idle(self) -> bool:
        """Whether the connection may be closed: it serves no request, or its client does not read the response."""
        in_progress = self.cycle is not None and not self.cycle.response_complete
        return not in_progress or self.transport.get_write_buffer_size() > 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._limit = self.loop.call_later(_HEAD_S, transport.abort)
        self.places.take(self, self.client[0] if self.client else "")

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self._limit is not None and self.cycle is not before:
            self._limit.cancel()
            self._limit = None
        elif self._limit is None and self.cycle is before and (before is None or before.response_complete):
            self._limit = self.loop.call_later(_HEAD_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.places.leave(self)
        if self._limit is not None:
            self._limit.cancel()


class _Handshake(asyncio.Protocol):
    """A TLS connection during its handshake. It counts against the limits of `Places`, and has a time limit."""

    is_idle = True
    transport: asyncio.Transport

    def __init__(self, protocol: _Timed, context: ssl.SSLContext) -> None:
        self._protocol, self._context = protocol, context
        self._task: asyncio.Task[None] | None = None
        self._early = b""
        self._lost = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        # Do not read yet, because the TLS handshake must read the first bytes.
        transport.pause_reading()
        self._protocol.places.take(self, (transport.get_extra_info("peername") or ("",))[0])
        self._task = asyncio.get_running_loop().create_task(self._encrypt())

    async def _encrypt(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            encrypted = await loop.start_tls(
                self.transport, self, self._context, server_side=True, ssl_handshake_timeout=_HEAD_S
            )
        except (OSError, ssl.SSLError):
            # The client has rejected the certificate, does not speak TLS, or has left.
            self.transport.abort()
            return
        finally:
            self._protocol.places.leave(self)
        if encrypted is None or self._lost:
            return
        encrypted.set_protocol(self._protocol)
        self._protocol.connection_made(encrypted)
        if self._early:
            self._protocol.data_received(self._early)

    def data_received(self, data: bytes) -> None:
        # Keep these bytes. A request may arrive together with the end of the handshake.
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._protocol.places.leave(self)


def tls(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS parameters of a server. Both files must be in PEM format.

    Raises:
        UserError: a file can't be used.

    """

    def no_password() -> str:
        raise UserError(
            f"--key {key}", "it has a password", "write it without: openssl pkey -in KEY -out PLAIN"
        )

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    remedy = "give the PEM files of a certificate and of its private key"
    for option, path in (("--certificate", certificate), ("--key", key)):
        try:
            path.read_bytes()
        except OSError as error:
            raise UserError(f"{option} {path}", f"it can't be read ({reason(error)})", remedy) from None
    # Check the permissions of users who are not in the file's group.
    if key.stat().st_mode & 0o007:
        raise UserError(f"--key {key}", "other users can read this key", f"run: chmod o= {key}")
    try:
        context.load_cert_chain(certificate, key, no_password)
    except ssl.SSLError as error:
        what = f"they are no certificate with its key ({reason(error)})"
        raise UserError(f"--certificate {certificate} --key {key}", what, remedy) from None
    return context


class Sparing(logging.Filter):
    """Limits the log to a few lines of each kind per minute. So remote clients can't fill it."""

    def __init__(self, most: int = _LINES, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._most, self._clock = most, clock
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def passes(self, kind: str) -> str | None:
        """Return the text to append to a line of this kind, or `None` if the line must be left out."""
        now = self._clock()
        since, count = self._seen.pop(kind, (now, 0))
        left_out = max(0, count - self._most)
        if now - since >= _MINUTE_S:
            since, count = now, 0
        else:
            left_out = 0
        self._seen[kind] = since, count + 1
        if len(self._seen) > _KINDS_OF_LINES:
            self._seen.popitem(last=False)
        if count >= self._most:
            return None
        if count + 1 == self._most:
            return " (more of these are counted for a minute)"
        return f" ({left_out} more before)" if left_out else ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Leave out a line of a logger if too many lines of its kind were written within a minute."""
        # Lines with the same format string are of one kind. Do not use the arguments, because a remote client may
        # choose them and could make each line a kind of its own.
        if (more := self.passes(str(record.msg))) is None:
            return False
        record.msg = f"{record.getMessage()}{more}"
        record.args, record.exc_info, record.exc_text = (), None, None
        return True

    def tell(self, kind: str, what: str) -> None:
        """Print a line on stderr unless it exceeds the limit."""
        if (more := self.passes(kind)) is not None:
            # Ignore errors of a closed standard error, because they must not end the server.
            with suppress(OSError):
                print(f"steadycast: {what}{more}", file=sys.stderr, flush=True)


_sparing = Sparing()


def _on_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an `OSError` as one line. For other exceptions, let asyncio print a traceback, but limit their number."""
    error = context.get("exception")
    what = f"{context['message']}: {reason(error)}" if isinstance(error, OSError) else ""
    if what:
        _sparing.tell(context["message"], what)
    elif _sparing.passes(f"{context['message']} {type(error).__name__}") is not None:
        loop.default_exception_handler(context)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens at this address.

    Raises:
        OSError: the address can't be used.

    """
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError:
        found.close()
        raise
    found.listen(_BACKLOG)
    return found


async def serve(
    app: Starlette,
    at: socket.socket,
    ready: Callable[[], None],
    *,
    signals: bool = True,
    places: Places | None = None,
    encrypted: ssl.SSLContext | None = None,
) -> None:
    """Serve requests. If ``signals`` is set, a signal ends the server.

    ``ready`` is called before the first request.
    """
    server = _server(app, places, encrypted)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_on_exception)
    if signals and sys.platform != "win32":
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Do not handle a signal that is ignored (`nohup`).
            if signal.getsignal(each) is not signal.SIG_IGN:
                loop.add_signal_handler(each, setattr, server, "should_exit", True)
    ready()
    await server.serve(sockets=[at])


class Background:
    """A server that runs in its own thread."""

    def __init__(self, app: Starlette, at: socket.socket, places: Places | None = None) -> None:
        self._at, self._server = at, _server(app, places)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True, name="web")
        self._thread.start()

    async def _run(self) -> None:
        asyncio.get_running_loop().set_exception_handler(_on_exception)
        await self._server.serve(sockets=[self._at])

    def stop(self) -> None:
        """Close the connections and the listening socket."""
        self._server.should_exit = True
        self._thread.join()
        self._at.close()


def _server(app: Starlette, places: Places | None, encrypted: ssl.SSLContext | None = None) -> _Server:
    protocol = type("_Timed", (_Timed,), {"places": places or Places()})

    def connection(**how: Any) -> asyncio.Protocol:
        made = protocol(**how)
        return made if encrypted is None else _Handshake(made, encrypted)

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=_MOST_HEAD,
        backlog=_BACKLOG,
        http=connection,  # type: ignore[arg-type]  # any callable that returns a protocol
    )
    logger = logging.getLogger("uvicorn.error")
    if not any(isinstance(each, Sparing) for each in logger.filters):
        logger.addFilter(_sparing)
    return _Server(config)
