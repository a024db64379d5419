"""`steadycast serve`: a page, and WHEP for it and for other players (draft-ietf-wish-whep-04).

A viewer's browser posts its offer and receives an answer; media are then sent over UDP, without this server. The sender
is ICE-lite and has no late candidates, so that PATCH is not supported.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from steadycast.errors import MissingError, UserError, reason
from steadycast.folder import Json
from steadycast.live import outlets, session
from steadycast.progress import Progress
from steadycast.serve.viewers import FullError, Options, Viewers

try:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    from steadycast import web
except ImportError as error:
    name = (error.name or "starlette").partition(".")[0]
    raise MissingError.package("serve", name, "steadycast[serve]") from None

STREAM = "/whep/video"
_SDP = "application/sdp"
_MOST_BODY = 64 << 10
_POSTS = 10
"""The most offers that are processed per second."""
_LATER = {"retry-after": "5"}
_FILES = {
    "/": ("steadycast.serve", "serve.html"),
    "/serve.js": ("steadycast.serve", "serve.js"),
    "/freezes.js": ("steadycast.serve", "freezes.js"),
    "/serve.css": ("steadycast.serve", "serve.css"),
    "/shared.js": ("steadycast.lab", "shared.js"),
    "/uPlot.js": ("steadycast.lab", "uPlot.js"),
    "/uPlot.css": ("steadycast.lab", "uPlot.css"),
}
_PORTS = re.compile(r"(\d+)-(\d+)")


class Serving:
    """The HTTP handlers for pages and players."""

    def __init__(self, viewers: Viewers, ports: str, token: str | None) -> None:
        self.viewers, self.ports, self.token = viewers, ports, token
        self._posts: deque[float] = deque(maxlen=_POSTS)

    def app(self) -> Starlette:
        """Return the application."""
        routes = web.file_routes(_FILES)
        routes += [
            Route(STREAM, self.offer, methods=["POST"]),
            Route(STREAM, _told("GET, HEAD, OPTIONS, POST"), methods=["GET", "OPTIONS"]),
            Route(STREAM + "/{viewer}", self.end, methods=["DELETE"]),
            Route(STREAM + "/{viewer}", _told("DELETE, GET, HEAD, OPTIONS"), methods=["GET", "OPTIONS"]),
            Route("/api/viewers", self.shown, methods=["GET"]),
        ]
        return web.application(routes)

    def _refused(self, request: Request) -> Response | None:
        if not web.is_own(request):
            return web.wrong(403, "this request comes from another page")
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if self.token is not None and not (kind.lower() == "bearer" and web.is_token(given, self.token)):
            return web.wrong(401, "the token is not this server's", {"www-authenticate": "Bearer"})
        return None

    async def offer(self, request: Request) -> Response:
        """Answer a browser's SDP offer, and start to send to it."""
        if (refused := self._refused(request)) is not None:
            return refused
        now = time.monotonic()
        if len(self._posts) == _POSTS and now - self._posts[0] < 1.0:
            return web.wrong(429, f"at most {_POSTS} offers are looked at in a second", _LATER)
        self._posts.append(now)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _SDP:
            return web.wrong(415, f"an offer is {_SDP}", {"accept-post": _SDP})
        body = await web.body(request, _MOST_BODY)
        if body is None:
            return web.wrong(413, f"an offer has at most {_MOST_BODY} bytes")
        controller = request.query_params.get("controller")
        try:
            # The browser can reach the address at which its request arrived, so media use it, too.
            media = f"{_bracketed(web.here(request))}:{self.ports}"
            viewer = await asyncio.to_thread(self.viewers.offer, body.decode(), media, controller)
        except UnicodeDecodeError:
            return web.wrong(400, "an offer is a text in UTF-8")
        except FullError as error:
            return web.wrong(503, str(error), _LATER)
        except UserError as error:
            return web.wrong(406 if error.place == "offer.codec" else 400, str(error))
        headers = {"location": f"{STREAM}/{viewer.id}", "etag": f'"{viewer.id}"', "content-type": _SDP}
        return Response(viewer.core.sdp, 201, headers=headers)

    async def end(self, request: Request) -> Response:
        """End a viewer's session."""
        if (refused := self._refused(request)) is not None:
            return refused
        if not self.viewers.end(request.path_params["viewer"]):
            return web.wrong(404, "there is no such viewer")
        return Response(status_code=200)

    async def shown(self, request: Request) -> Response:
        """Return the status of each viewer's session."""
        if (refused := self._refused(request)) is not None:
            return refused
        viewers = self.viewers
        told: Json = {
            "source": viewers.options.source,
            "codec": viewers.options.flow["codec"],
            "places": viewers.options.viewers,
            "controller": viewers.default,
            "controllers": viewers.controllers,
            "viewers": [viewer.shown() for viewer in viewers],
        }
        return JSONResponse(told)


def _told(allowed: str) -> Callable[[Request], Any]:
    """Return a handler for OPTIONS. Players recognise a WHEP endpoint by the accepted content type."""

    async def answer(_: Request) -> Response:
        more = {"accept-post": _SDP, "content-type": _SDP} if "POST" in allowed else {}
        return Response(headers={"allow": allowed, **more})

    return answer


def _bracketed(host: str) -> str:
    """Return an address for use before a port, with brackets around IPv6."""
    return f"[{host}]" if ":" in host else host


def _media_ports(text: str) -> str:
    found = _PORTS.fullmatch(text)
    if found is None or not 0 < int(found[1]) <= int(found[2]) < 65536:
        raise UserError(f"--media-ports {text}", "this is no range of ports", "write for example 40000-40099")
    return text


def serve(options: Options, progress: Progress | None = None, told: Callable[[str], None] = print) -> None:
    """Serve a source until a signal ends it; ``told`` is called with the address of the page.

    Raises:
        UserError: the source, an address or an option can't be used.

    """
    session.live_core()
    host, port = outlets.address("--listen", options.listen, 8080)
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        remedy = "browsers ask for an address: write for example 127.0.0.1:8080"
        raise UserError(f"--listen {options.listen}", f"{host} is a name", remedy) from None
    ports = _media_ports(options.media_ports)
    if options.no_token and not loopback:
        what = "whoever reaches this address could watch"
        raise UserError("--no-token", what, "leave it away, or listen at 127.0.0.1")
    token = None if options.no_token else secrets.token_urlsafe(24)
    with ExitStack() as stack:
        try:
            listener = stack.enter_context(web.listener(host, port))
        except OSError as error:
            remedy = "take another address or port"
            raise UserError(
                f"--listen {options.listen}", f"can't be listened at ({reason(error)})", remedy
            ) from None
        viewers = Viewers(options, progress)
        stack.callback(viewers.close)
        stack.enter_context(outlets.several(options.outlets, viewers.told))
        app = Serving(viewers, ports, token).app()
        asyncio.run(web.serve(app, listener, lambda: _ready(host, port, loopback, token, told)))


def _ready(host: str, port: int, loopback: bool, token: str | None, told: Callable[[str], None]) -> None:
    reached = _reached(host) if ipaddress.ip_address(host).is_unspecified else host
    shown = _bracketed(reached)
    told(f"http://{shown}:{port}/" + (f"#token={token}" if token else ""))
    if not loopback:
        told(f"whoever has this address and reaches {shown} can watch; the page itself is not encrypted")


def _reached(host: str) -> str:
    """Return the address at which others can reach this machine, if it listens on all addresses."""
    kind, far = (socket.AF_INET6, "2001:db8::1") if ":" in host else (socket.AF_INET, "192.0.2.1")
    with socket.socket(kind, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((far, 9))  # a UDP connect sends no packet, but selects the local address
            return str(probe.getsockname()[0])
        except OSError:
            return "::1" if ":" in host else "127.0.0.1"
