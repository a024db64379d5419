"""A client of WHIP (RFC 9725): posts a live sender's offer to a server, and ends the session there."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Self
from urllib.parse import SplitResult, urljoin, urlsplit

from steadycast import signals
from steadycast.core import core
from steadycast.errors import UserError, reason
from steadycast.exits import Exit
from steadycast.live import session
from steadycast.live.flow import WEB_CODECS

TOKEN = "STEADYCAST_WHIP_TOKEN"
"""Name of the environment variable that contains the bearer token."""
_SDP = "application/sdp"
_EXCHANGE_S = 10.0
"""Time limit for a request and its answer, in seconds."""
_END_S = 5.0
"""Time limit for the request that ends a session, in seconds."""
_MOST_BODY = 64 << 10
_MOST_REDIRECTS = 5
_MOST_SHOWN = 200
"""Messages show at most this number of characters from a server's text."""
_REFUSALS = {
    400: ("it does not take the offer", "see the server's log"),
    404: ("there is no WHIP endpoint at this path", "check the URL"),
    405: ("nothing can be posted to this path, so it is no WHIP endpoint", "check the URL"),
    406: ("it takes none of the offered formats", f"send another --codec: {', '.join(WEB_CODECS)}"),
    409: ("another publisher has this endpoint", "end that one first, or try again later"),
    415: ("it does not take offers (application/sdp), so it is no WHIP endpoint", "check the URL"),
    422: ("it does not take the offer", f"send another --codec: {', '.join(WEB_CODECS)}"),
    429: ("it has too many requests", "try again later"),
}
"""The problem and the remedy for each HTTP status with which a server refuses an offer."""


_LATER = frozenset((409, 429))
"""HTTP statuses below 500 with which a server refuses an offer now, but may accept it later."""


class ServerFailedError(UserError):
    """An error of the connection to a WHIP server that may succeed later.

    Its exit code is not that of wrong input, so that a service manager starts the command again.
    """

    code = Exit.FAILED


class Whip:
    """A WHIP server: `open` it, `offer` the session, and `close` it."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url, self._token = url, token
        self._origin = _origin(_parsed(url, url))
        self._connection: HTTPConnection | None = None
        self._place: str | None = None
        """URL of the session on the server. A DELETE request to it ends the session."""
        if token is not None and self._origin[0] == "http" and not _is_here(self._origin[1]):
            _tell("warning: the token is sent unencrypted, because the URL begins with http:")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> str:
        """Connect to the server. Return the local address that the connection uses."""
        self._connection = _connection(self.url, self.url)
        with _within(self.url, self._connection, _EXCHANGE_S):
            self._connection.connect()
            address = str(self._connection.sock.getsockname()[0])
        return address.partition("%")[0]

    def offer(self, sdp: str) -> str:
        """Post the offer, which is a session description.

        Return the server's answer, which is a session description, too.
        """
        response, body, url = self._ask("POST", self.url, _EXCHANGE_S, sdp.encode())
        if response.status != 201:
            raise self._refused(response, body)
        place = response.getheader("location")
        if not place:
            problem = "its answer has no Location, without which the session could not be ended"
            raise UserError(self.url, problem, "the server has to answer as RFC 9725 says: ask its operator")
        self._place = _joined(url, place)
        kind = response.getheader("content-type", "").partition(";")[0].strip().lower()
        if kind != _SDP:
            problem = f"its answer is {kind or 'of no type'}, and not {_SDP}"
            raise UserError(self.url, problem, "check that the URL is that of a WHIP endpoint")
        servers = [link for link in response.headers.get_all("link", []) if _is_ice(link)]
        if servers:
            named = ", ".join(re.findall(r"<([^>]*)>", ", ".join(servers)))
            _tell(
                f"the server names ICE servers ({_plain(named)}): they are not used, so its UDP must be reached"
            )
        try:
            return body.decode()
        except UnicodeDecodeError:
            raise UserError(self.url, "its answer is no text in UTF-8", "ask the server's operator") from None

    def close(self) -> None:
        """End the session if there is one.

        A failure is only a warning, because no media are sent any more.
        """
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        place, self._place = self._place, None
        if place is None:
            return
        with signals.held():
            try:
                response, _, _ = self._ask("DELETE", place, _END_S)
            except UserError as error:
                _tell(f"warning: the server was not told that the session has ended: {error}")
                return
        # Accept 404 and 410, because the server has then already ended the session itself.
        if response.status not in (200, 202, 204, 404, 410):
            _tell(f"warning: the server did not end the session: {response.status} {_plain(response.reason)}")

    def _ask(
        self, method: str, url: str, limit: float, body: bytes | None = None
    ) -> tuple[HTTPResponse, bytes, str]:
        """Send a request, and follow redirects (RFC 9725, section 4.5).

        Returns the answer, the body of the answer, and the URL of the last request.
        """
        for _ in range(_MOST_REDIRECTS + 1):
            connection, self._connection = self._connection, None
            if connection is None:
                connection = _connection(self.url, url)
            parts = urlsplit(url)
            headers = {"User-Agent": f"steadycast/{core.__version__}", "Connection": "close"}
            if body is not None:
                headers |= {"Content-Type": _SDP, "Accept": _SDP}
            # Send the token to the original server only, never to the target of a redirect to another origin.
            if self._token is not None and _origin(parts) == self._origin:
                headers["Authorization"] = f"Bearer {self._token}"
            with closing(connection), _within(url, connection, limit):
                connection.request(method, (parts.path or "/") + _query(parts), body, headers)
                response = connection.getresponse()
                found = response.read(_MOST_BODY + 1)
            if len(found) > _MOST_BODY:
                raise UserError(url, f"its answer is longer than {_MOST_BODY} bytes", "check the URL")
            if response.status not in (307, 308):
                return response, found, url
            url = self._redirected(url, response)
        raise UserError(
            self.url, f"it redirects more than {_MOST_REDIRECTS} times", "ask the server's operator"
        )

    def _redirected(self, url: str, response: HTTPResponse) -> str:
        place = response.getheader("location")
        if not place:
            raise UserError(
                url, f"it answers {response.status} without a Location", "ask the server's operator"
            )
        found = _joined(url, place)
        if _origin(_parsed(url, found))[0] == "http" and urlsplit(url).scheme == "https":
            raise UserError(
                url, f"it redirects to {_plain(found)}, which is not encrypted", "ask its operator"
            )
        return found

    def _refused(self, response: HTTPResponse, body: bytes) -> UserError:
        status = response.status
        if 200 <= status < 300:
            problem, remedy = "a WHIP endpoint answers 201", "check the URL"
        elif status in (300, 301, 302, 303):
            place = _plain(response.getheader("location") or "")
            problem = f"it redirects to {place or 'an unnamed place'}, which WHIP does only by 307 and 308"
            remedy = f"give {place} as the URL" if place else "check the URL"
        elif status in (401, 403):
            problem = "it wants a token" if self._token is None else "it does not accept the token"
            remedy = f"give the token by --whip-token-file FILE, or in {TOKEN}"
            if self._token is not None:
                remedy += ", and the URL without a redirect to another server"
        elif status >= 500:
            problem, remedy = "it has a problem of its own", "try again later"
        else:
            problem, remedy = _REFUSALS.get(status, ("it does not take the offer", "see the server's log"))
        later = response.getheader("retry-after") or ""
        if re.fullmatch(r"\d{1,6}", later) and "later" in remedy:
            remedy += f" (after {later} s, it says)"
        said = _plain(body.decode(errors="replace"))
        said = f" ({said})" if said else ""
        kind = ServerFailedError if status >= 500 or status in _LATER else UserError
        return kind(self.url, f"{status} {_plain(response.reason)}: {problem}{said}", remedy)


def read_token(path: Path | None) -> str | None:
    """Return the bearer token from a file that only its owner can read, or from the environment."""
    text = (
        session.read_secret(path, "token", "write the server's token into it")
        if path
        else os.environ.get(TOKEN)
    )
    token = (text or "").strip()
    place = str(path) if path else TOKEN
    if path and not token:
        raise UserError(place, "it is empty", "write the server's token into it")
    # The characters of a bearer token (RFC 6750, section 2.1).
    if token and not re.fullmatch(r"[A-Za-z0-9\-._~+/]+=*", token):
        raise UserError(
            place, "this is no bearer token", "it has letters, digits and -._~+/ alone, and = at the end"
        )
    return token or None


def _parsed(place: str, url: str) -> SplitResult:
    """Return the parts of a URL. Refuse user names and schemes other than HTTP and HTTPS."""
    remedy = "write it as https://HOST/PATH, as the server names it"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UserError(place, f"this is no URL ({error})", remedy) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise UserError(place, f"{_plain(url)} is no URL of a web server", remedy)
    if not url.isascii() or not url.isprintable() or " " in url:
        raise UserError(place, "the URL has characters that are no part of one", remedy)
    if parts.username is not None:
        remedy = f"give a token by --whip-token-file FILE, or in {TOKEN}"
        raise UserError(place.replace(parts.netloc, parts.hostname), "the URL has a user name", remedy)
    return parts


def _joined(url: str, place: str) -> str:
    """Return the absolute URL of ``place``.

    ``place`` is the Location header in the answer to a request for ``url``.
    """
    try:
        return urljoin(url, place)
    except ValueError as error:
        problem = f"its Location {_plain(place)} is no URL ({error})"
        raise UserError(url, problem, "ask the server's operator") from None


def _origin(parts: SplitResult) -> tuple[str, str, int]:
    """Return the origin of a URL: scheme, host and port (RFC 6454)."""
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def _query(parts: SplitResult) -> str:
    return f"?{parts.query}" if parts.query else ""


def _is_here(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _connection(place: str, url: str) -> HTTPConnection:
    scheme, host, port = _origin(_parsed(place, url))
    if scheme == "https":
        return HTTPSConnection(host, port, timeout=_EXCHANGE_S, context=ssl.create_default_context())
    return HTTPConnection(host, port, timeout=_EXCHANGE_S)


@contextmanager
def _within(place: str, connection: HTTPConnection, limit: float) -> Iterator[None]:
    """Abort an HTTP exchange after ``limit`` seconds. Raise its errors as `UserError`.

    A time-out of the socket is not enough, because it restarts with each received byte.
    """
    late = threading.Event()

    def break_off() -> None:
        late.set()
        sock = connection.sock
        if sock is not None:
            with suppress(OSError):
                # Do not call `SSLSocket.shutdown`. It would discard the TLS state that the waiting thread uses.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    timer = threading.Timer(limit, break_off)
    timer.daemon = True
    timer.start()
    try:
        yield
        if late.is_set():
            raise TimeoutError
    except ssl.SSLCertVerificationError as error:
        remedy = "use the name of its certificate; SSL_CERT_FILE names the certificate of a private authority"
        problem = f"its certificate is not valid ({error.verify_message})"
        raise UserError(place, problem, remedy) from None
    except (OSError, HTTPException, ValueError) as error:
        raise _failed(place, error, limit if late.is_set() else None) from None
    finally:
        timer.cancel()


def _failed(place: str, error: Exception, limit: float | None) -> UserError:
    if limit is not None or isinstance(error, TimeoutError):
        problem = f"it did not answer within {limit or _EXCHANGE_S:.0f} s"
        return ServerFailedError(place, problem, "see whether the server runs, and what stands between")
    if isinstance(error, socket.gaierror):
        # A name that does not exist is wrong input. Without a connection to a name server, it is not known whether the
        # name exists.
        problem = f"the name has no address ({error.strerror})"
        if error.errno == socket.EAI_NONAME:
            return UserError(place, problem, "check the name")
        return ServerFailedError(place, problem, "check the name, and the connection to the name server")
    if isinstance(error, ConnectionRefusedError):
        return ServerFailedError(
            place, "no server listens there", "check the URL, and whether the server runs"
        )
    if isinstance(error, ssl.SSLError):
        return UserError(
            place, f"it does not speak TLS ({error.reason or error})", "check the URL's scheme and port"
        )
    if isinstance(error, OSError):
        return ServerFailedError(
            place, f"it is not reached ({reason(error)})", "check the URL and the network"
        )
    return UserError(
        place, f"it does not speak HTTP ({_plain(repr(error))})", "check the URL's scheme and port"
    )


def _is_ice(link: str) -> bool:
    """Whether a Link header refers to an ICE server (RFC 9725, section 4.6)."""
    return re.search(r"""rel\s*=\s*["']?[^;"']*\bice-server\b""", link, re.IGNORECASE) is not None


def _plain(text: str) -> str:
    """Return a server's text as one line of printable characters, truncated to `_MOST_SHOWN`."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _MOST_SHOWN else line[:_MOST_SHOWN] + "…"


def _tell(line: str) -> None:
    # Ignore errors of a closed standard error, because they must not end the session.
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)
