"""Pages that a command serves: who may ask, which headers answers have, and the server itself.

Whoever asks has to ask for the address that the request came to: a page of another name that leads here (DNS
rebinding) reads nothing. A page from elsewhere has another Origin.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from uvicorn.protocols.http.h11_impl import H11Protocol

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
"""How long a client may take for a request's head."""


def application(routes: list[BaseRoute]) -> Starlette:
    """Return an application that answers only who asks for it by its address, and adds the headers to each answer."""
    return Starlette(routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=_guarded)])


async def _guarded(request: Request, answer: RequestResponseEndpoint) -> Response:
    """Add the headers that keep the page to itself, to every answer."""
    meant = is_here(request)
    response = await answer(request) if meant else wrong(400, "ask for the address that was printed")
    response.headers.update(_HEADERS)
    return response


def here(request: Request) -> str:
    """Return the address of this machine that a request came to."""
    text = str((request.scope.get("server") or ("",))[0])
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return text
    # A socket for both families tells IPv4 in IPv6's words.
    return str(getattr(found, "ipv4_mapped", None) or found)


def is_here(request: Request) -> bool:
    """Whether a request names the address that it came to."""
    name, address = (request.url.hostname or "").strip("[]"), here(request)
    return name == address or (name == "localhost" and address in ("127.0.0.1", "::1"))


def is_own(request: Request) -> bool:
    """Whether a request comes from a page of this server, or from no page."""
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("host")


def is_token(given: str, token: str) -> bool:
    """Compare a token in constant time."""
    return hmac.compare_digest(given.encode(), token.encode())


async def body(request: Request, most: int) -> bytes | None:
    """Read a request's body; `None` when it has more bytes than that."""
    found = b""
    async for part in request.stream():
        found += part
        if len(found) > most:
            return None
    return found


def wrong(code: int, what: str, headers: Mapping[str, str] | None = None) -> Response:
    """Say what is wrong with a request."""
    return JSONResponse({"wrong": what}, code, headers=headers)


def file_routes(served: Mapping[str, tuple[str, str]]) -> list[BaseRoute]:
    """Serve files: for each path the package and the name of a file in its folder ``page``."""

    def route(path: str, package: str, name: str) -> Route:
        async def answer(_: Request) -> Response:
            content = styles(package, name) if name in _STYLED else page(package, name)
            return Response(content, headers={"content-type": _KINDS[name.rpartition(".")[2]]})

        return Route(path, answer, methods=["GET"])

    return [route(path, *place) for path, place in served.items()]


@cache
def page(package: str, name: str) -> bytes:
    """Return a file of a page."""
    return (files(package) / "page" / name).read_bytes()


@cache
def styles(package: str, name: str) -> bytes:
    """Return a page's styles: the report's colours, what pages share, and what is its own."""
    report = (files("steadycast.report") / "page.css").read_text(encoding="utf-8")
    colours = "\n".join(line for line in report.splitlines() if ":root{" in line and "--ink" in line)
    colours = colours.replace("LIGHT", "").replace("DARK", "")
    return b"\n".join([colours.encode(), page("steadycast.lab", "shared.css"), page(package, name)])


class _Timed(H11Protocol):
    """HTTP whose connections are closed when no whole head of a request comes in time."""

    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._limit = self.loop.call_later(_HEAD_S, transport.abort)

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
        if self._limit is not None:
            self._limit.cancel()


class _Server(uvicorn.Server):
    """A server that leaves signals to the loop."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens there.

    Raises:
        OSError: it can't.

    """
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError:
        found.close()
        raise
    found.listen(64)
    return found


async def serve(app: Starlette, at: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until a signal ends it; ``ready`` is called before the first request is taken."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
        http=_Timed,
    )
    server = _Server(config)
    if sys.platform != "win32":
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(each) is not signal.SIG_IGN:
                loop.add_signal_handler(each, setattr, server, "should_exit", True)
    ready()
    await server.serve(sockets=[at])
