"""`steadycast serve`: a page, and WHEP for the page and for other players (draft-ietf-wish-whep-04).

A viewer's browser posts its offer and receives an answer. Then media are sent over UDP. PATCH is not supported for
viewers, because the sender is ICE-lite. A publisher posts its offer in the same way (WHIP, RFC 9725).
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import secrets
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from steadycast.errors import MissingError, UserError, reason
from steadycast.folder import Json
from steadycast.live import outlets, session
from steadycast.progress import Progress
from steadycast.serve.publisher import BusyError, Publisher, Publishers
from steadycast.serve.viewers import FullError, Options, Viewers, say

try:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    from steadycast import web
except ImportError as error:
    name = (error.name or "starlette").partition(".")[0]
    raise MissingError.package("serve", name, "steadycast[serve]") from None

if TYPE_CHECKING:
    import ssl

STREAM = "/whep/video"
WHIP = "/whip"
_SDP = "application/sdp"
_FRAGMENT = "application/trickle-ice-sdpfrag"
_MOST_BODY = 64 << 10
_POSTS = 10
"""Maximum number of offers that are processed per second."""
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


@dataclass(frozen=True)
class Public:
    """How browsers can reach the page and the media."""

    access: web.Access = web.BY_ADDRESS
    path: str = "/"
    """Path of the page in the public URL."""
    media: tuple[str, ...] = ()
    """Addresses at which media are exchanged.

    If it is empty, the address is used at which a viewer's request arrived.
    """


class Serving:
    """The HTTP handlers for pages and players."""

    def __init__(
        self,
        viewers: Viewers,
        port: Any,
        token: str | None,
        public: Public | None = None,
        *,
        publish_token: str | None = None,
    ) -> None:
        self.viewers, self.token, self.public = viewers, token, public or Public()
        self.publish_token = publish_token
        """Token that publishers must have. Viewers do not know it."""
        self.port = port
        """The core's `MediaPort`."""
        # Times of the last `_POSTS` offers. They limit the number of offers per second.
        self._posts: deque[float] = deque(maxlen=_POSTS)

    def app(self) -> Starlette:
        """Return the web application."""
        routes = web.file_routes(_FILES)
        routes += [
            Route(STREAM, self.offer, methods=["POST"]),
            Route(STREAM, _told("GET, HEAD, OPTIONS, POST"), methods=["GET", "OPTIONS"]),
            Route(STREAM + "/{viewer}", self.end, methods=["DELETE"]),
            Route(STREAM + "/{viewer}", _told("DELETE, GET, HEAD, OPTIONS"), methods=["GET", "OPTIONS"]),
            Route("/api/viewers", self.shown, methods=["GET"]),
        ]
        if self.viewers.publishers is not None:
            routes += [
                Route(WHIP, self.publish, methods=["POST"]),
                Route(WHIP, _told("GET, HEAD, OPTIONS, POST"), methods=["GET", "OPTIONS"]),
                Route(WHIP + "/{publisher}", self.end_publisher, methods=["DELETE"]),
                Route(WHIP + "/{publisher}", self.trickle, methods=["PATCH"]),
                Route(
                    WHIP + "/{publisher}",
                    _told("DELETE, GET, HEAD, OPTIONS, PATCH"),
                    methods=["GET", "OPTIONS"],
                ),
            ]
        return web.application(routes, self.public.access)

    def _refused(self, request: Request) -> Response | None:
        return self._refused_without(request, self.token, "the token is not this server's")

    def _refused_without(self, request: Request, token: str | None, what: str) -> Response | None:
        if not self.public.access.is_allowed(request):
            return web.wrong(403, "this request comes from another page")
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if token is not None and not (kind.lower() == "bearer" and web.is_token(given.strip(), token)):
            return web.wrong(401, what, {"www-authenticate": "Bearer"})
        return None

    def _refused_publisher(self, request: Request) -> Response | None:
        what = "the token is not the one for publishers, which serve prints at its start"
        return self._refused_without(request, self.publish_token, what)

    async def offer(self, request: Request) -> Response:
        """Answer a viewer's SDP offer, and start to send to it."""
        if (refused := self._refused(request)) is not None:
            return refused
        controller = request.query_params.get("controller")
        return await self._answered(request, STREAM, lambda sdp, media: self._view(sdp, media, controller))

    def _view(self, sdp: str, media: Any, controller: str | None) -> tuple[str, str]:
        viewer = self.viewers.offer(sdp, media, controller)
        return viewer.id, viewer.core.sdp

    def _publishers(self) -> Publishers:
        assert self.viewers.publishers is not None
        return self.viewers.publishers

    async def publish(self, request: Request) -> Response:
        """Answer a publisher's SDP offer, and start to receive from it (RFC 9725, section 4.2)."""
        if (refused := self._refused_publisher(request)) is not None:
            return refused

        def begin(sdp: str, media: Any) -> tuple[str, str]:
            found = self._publishers().offer(sdp, media)
            return found.id, found.core.answer

        return await self._answered(request, WHIP, begin)

    async def _answered(
        self, request: Request, place: str, begin: Callable[[str, Any], tuple[str, str]]
    ) -> Response:
        """Start a session, and return the response. ``begin`` returns the ID of the session and the SDP answer."""
        now = time.monotonic()
        if len(self._posts) == _POSTS and now - self._posts[0] < 1.0:
            return web.wrong(429, f"at most {_POSTS} offers are looked at in a second", _LATER)
        self._posts.append(now)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _SDP:
            return web.wrong(415, f"an offer is {_SDP}", {"accept-post": _SDP})
        body = await web.body(request, _MOST_BODY)
        if body is None:
            return web.wrong(413, f"an offer has at most {_MOST_BODY} bytes")
        try:
            # Use the address at which the request arrived, because the browser can reach it.
            media = self.port, list(self.public.media) or [web.here(request)]
            name, answer = await asyncio.to_thread(begin, body.decode(), media)
        except UnicodeDecodeError:
            return web.wrong(400, "an offer is a text in UTF-8")
        except BusyError as error:
            return web.wrong(409, str(error), _LATER)
        except FullError as error:
            return web.wrong(503, str(error), _LATER)
        except UserError as error:
            return web.wrong(406 if error.place == "offer.codec" else 400, str(error))
        location = f"{self.public.path}{place.removeprefix('/')}/{name}"
        headers = {"location": location, "etag": _tag(name), "content-type": _SDP}
        return Response(answer, 201, headers=headers)

    async def end(self, request: Request) -> Response:
        """End a viewer's session."""
        if (refused := self._refused(request)) is not None:
            return refused
        if not self.viewers.end(request.path_params["viewer"]):
            return web.wrong(404, "there is no such viewer")
        return Response(status_code=200)

    def _publisher(self, request: Request) -> Publisher | None:
        return self._publishers().named(request.path_params["publisher"])

    async def end_publisher(self, request: Request) -> Response:
        """End the session of a publisher. The request's entity tag is ignored (RFC 9725, section 4.3.1)."""
        if (refused := self._refused_publisher(request)) is not None:
            return refused
        if (found := self._publisher(request)) is None:
            return web.wrong(404, "there is no such publisher")
        found.core.stop()
        return Response(status_code=200)

    async def trickle(self, request: Request) -> Response:
        """Accept candidates that a publisher sends late (RFC 9725, section 4.3.2). ICE-lite does not need them."""
        if (refused := self._refused_publisher(request)) is not None:
            return refused
        if (found := self._publisher(request)) is None:
            return web.wrong(404, "there is no such publisher")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FRAGMENT:
            return web.wrong(415, f"candidates are {_FRAGMENT}", {"accept-patch": _FRAGMENT})
        body = await web.body(request, _MOST_BODY)
        if body is None:
            return web.wrong(413, f"a fragment has at most {_MOST_BODY} bytes")
        try:
            fragment = body.decode()
        except UnicodeDecodeError:
            return web.wrong(400, "a fragment is a text in UTF-8")
        if found.is_restart(fragment):
            return web.wrong(422, "ICE is not restarted here: send DELETE, and then a new offer by POST")
        matched = request.headers.get("if-match")
        if matched is None:
            return web.wrong(428, "give the answer's ETag as If-Match")
        if matched.strip() not in ("*", _tag(found.id)):
            return web.wrong(412, "the entity tag is not that of this session")
        return Response(status_code=204)

    async def shown(self, request: Request) -> Response:
        """Return the source, the codec, and the status of each viewer's session as JSON."""
        if (refused := self._refused(request)) is not None:
            return refused
        viewers = self.viewers
        told: Json = {
            "source": viewers.options.source,
            "codec": viewers.options.flow["codec"],
            "places": viewers.options.viewers,
            "expected_viewers": viewers.capacity.viewers,
            "controller": viewers.default,
            "controllers": viewers.controllers,
            "viewers": [viewer.shown() for viewer in viewers],
            **({} if viewers.live is None else viewers.live.shown()),
            # Count the datagrams that belong to no session.
            "media": {"port": self.port.port, "dropped": self.port.dropped()},
        }
        return JSONResponse(told)


def _tag(name: str) -> str:
    """Return the entity tag for the ICE credentials of a session."""
    return f'"{name}"'


def _told(allowed: str) -> Callable[[Request], Any]:
    """Return a handler for OPTIONS and GET.

    Players recognise an endpoint by the content type that it accepts.
    """

    async def answer(_: Request) -> Response:
        more = {"accept-post": _SDP, "content-type": _SDP} if "POST" in allowed else {}
        return Response(headers={"allow": allowed, **more})

    return answer


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _media_port(options: Options) -> int:
    """Return the media port.

    If the former option `--media-ports` is used, it is the first port of the option's range.
    """
    if options.media_ports is None:
        return options.media_port
    found = _PORTS.fullmatch(options.media_ports)
    if found is None or not 0 < int(found[1]) <= int(found[2]) < 65536:
        remedy = "write one port for all viewers: --media-port 40000"
        raise UserError(f"--media-ports {options.media_ports}", "this is not a range of ports", remedy)
    print(
        f"--media-ports is now --media-port, one for all viewers: {found[1]} is used",
        file=sys.stderr,
    )
    return int(found[1])


def _resolved(option: str, name: str) -> tuple[str, ...]:
    """Return the addresses of a name. IPv4 addresses come first, because fewer networks support IPv6."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        remedy = "check the name, or give the media's address by --media-address"
        raise UserError(option, f"{name} has no address ({reason(error)})", remedy) from None
    addresses = dict.fromkeys(str(each[4][0]) for each in found)
    return tuple(sorted(addresses, key=lambda each: ":" in each))


def _public(options: Options) -> Public:
    origins = frozenset(web.origin_and_path("--allow-origin", each)[0] for each in options.allow_origin or ())
    media = []
    for text in options.media_address or ():
        try:
            media.append(str(ipaddress.ip_address(text)))
        except ValueError:
            remedy = "write for example 203.0.113.5"
            raise UserError(f"--media-address {text}", "this is not an address", remedy) from None
    if options.public_url is None:
        return Public(web.Access(None, origins), "/", tuple(media))
    origin, path = web.origin_and_path("--public-url", options.public_url)
    name = urlsplit(origin).hostname or ""
    return Public(web.Access(origin, origins), path, tuple(media) or _resolved("--public-url", name))


def _is_local(address: str) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _bound(host: str, media: tuple[str, ...]) -> list[str]:
    """Return the local addresses to which the sockets for media are bound. There is at most one per address family."""
    found = []
    for family, every in (("4", "0.0.0.0"), ("6", "::")):
        # If HTTP listens at [::], use both families, because such a socket accepts IPv4, too.
        of_host = [host] if host != "::" else ["::", every]
        own = [each for each in media or of_host if (":" in each) == (family == "6")]
        # If this machine does not have the address, a NAT may have it. Then bind to all local addresses of the family.
        # Do the same if the family has several addresses.
        found += own if len(own) == 1 and _is_local(own[0]) else [every] if own else []
    return found


def _opened(host: str, port: int, media: tuple[str, ...]) -> Any:
    try:
        return session.live_core().MediaPort(_bound(host, media), port)
    except UserError as error:
        remedy = "take another port by --media-port"
        raise UserError(f"--media-port {port}", f"{error.place}: {error.problem}", remedy) from None


def _encryption(options: Options) -> ssl.SSLContext | None:
    if options.certificate is None and options.key is None:
        return None
    if options.certificate is None or options.key is None:
        given, missing = (
            ("--key", "--certificate") if options.certificate is None else ("--certificate", "--key")
        )
        raise UserError(given, f"{missing} is missing", "give both: --certificate FILE --key FILE")
    return web.tls(options.certificate, options.key)


def serve(options: Options, progress: Progress | None = None, told: Callable[[str], None] = print) -> None:
    """Serve a source until a signal ends the program. ``told`` is called with the address of the page.

    Raises:
        UserError: the source, an address or an option can't be used.

    """
    session.live_core()
    host, port = outlets.address("--listen", options.listen, 8080)
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        remedy = "give an address, for example 127.0.0.1:8080; --public-url takes a name"
        raise UserError(f"--listen {options.listen}", f"{host} is a name", remedy) from None
    number, encrypted, public = _media_port(options), _encryption(options), _public(options)
    if options.no_token and not (loopback and public.access.public is None):
        what = "anyone who can reach this address could watch"
        raise UserError(
            "--no-token", what, "leave --no-token out, or listen at 127.0.0.1 without --public-url"
        )
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
        media = _opened(host, number, public.media)
        stack.callback(viewers.close)
        stack.enter_context(outlets.several(options.outlets, viewers.told))
        publish_token = None if options.no_token else secrets.token_urlsafe(24)
        app = Serving(viewers, media, token, public, publish_token=publish_token).app()
        # Do not limit the connections per address behind a proxy, because all of them come from the proxy's address.
        proxied = public.access.public is not None and encrypted is None
        places = web.Places(of_one=sys.maxsize) if proxied else web.Places()
        shown = _shown(public, host, port, encrypted is not None)

        def ready() -> None:
            told(f"{shown}#token={token}" if token else shown)
            if not (loopback and public.access.public is None):
                told(_reach(shown))
            if viewers.publishers is not None:
                by = "without a token" if publish_token is None else f"with the bearer token {publish_token}"
                told(f"publish by WHIP at {shown.rstrip('/')}{WHIP} {by}")
            say(viewers.capacity.told(viewers.options.viewers))

        asyncio.run(web.serve(app, listener, ready, places=places, encrypted=encrypted))
        if line := _dropped(media):
            say(line)


def _dropped(port: Any) -> str | None:
    """Return a line for the operator about datagrams that belonged to no viewer.

    Returns `None` if there were none.
    """
    counts = ", ".join(f"{reason} {count}" for reason, count in port.dropped().items() if count)
    return f"datagrams at UDP port {port.port} that belonged to no viewer: {counts}" if counts else None


def _shown(public: Public, host: str, port: int, encrypted: bool) -> str:
    if public.access.public is not None:
        return f"{public.access.public}{public.path}"
    reached = _reached(host) if ipaddress.ip_address(host).is_unspecified else host
    return f"http{'s' if encrypted else ''}://{_bracketed(reached)}:{port}/"


def _reach(shown: str) -> str:
    what = f"whoever has this address and reaches {urlsplit(shown).hostname} can watch"
    return what if shown.startswith("https:") else f"{what}; the page itself is not encrypted"


def _reached(host: str) -> str:
    """Return an address at which others can reach this machine. It is for a server that listens on all addresses."""
    kind, far = (socket.AF_INET6, "2001:db8::1") if ":" in host else (socket.AF_INET, "192.0.2.1")
    with socket.socket(kind, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((far, 9))  # a UDP connect sends no packet, but selects the local address
            return str(probe.getsockname()[0])
        except OSError:
            return "::1" if ":" in host else "127.0.0.1"
