"""Connections of unknown clients to the pages' server: limits on their number, time limits, and log lines."""

from __future__ import annotations

import logging
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from steadycast import web


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of one test does not count in another."""
    monkeypatch.setattr(web, "_sparing", web.Sparing())


class Connection:
    """The part of a connection that `Places` uses."""

    def __init__(self, *, idle: bool) -> None:
        self.is_idle, self.aborted, self.transport = idle, False, self

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize("seed", range(20))
def test_connections_keep_to_their_limits_and_one_with_a_request_ends_for_no_idle_one(seed: int) -> None:
    draw = random.Random(seed)
    total, of_one = draw.randint(8, 60), draw.randint(2, 12)
    places = web.Places(total, of_one)
    there: list[tuple[Connection, str]] = []
    for _ in range(400):
        address = f"192.0.2.{draw.randint(1, 12) if draw.random() < 0.5 else 1}"
        one = Connection(idle=draw.random() < 0.7)
        places.take(one, address)  # type: ignore[arg-type]
        there.append((one, address))
        before, there = there, [each for each in there if not each[0].aborted]
        assert len(there) <= total
        assert sum(its == address for _, its in there) <= of_one
        for gone, its in before:
            # A connection with a request is closed only if no connection under the same limit is idle. The newest one
            # is closed then.
            if gone.aborted and not gone.is_idle:
                own = sum(each == address for _, each in before) > of_one
                assert gone is one
                assert not any(each.is_idle for each, other in before if other == its or not own)
        if draw.random() < 0.3:
            left = there.pop(draw.randrange(len(there)))[0]
            places.leave(left)  # type: ignore[arg-type]
    assert places.closed > 0


def test_a_kind_of_line_is_logged_a_few_times_a_minute_and_then_counted() -> None:
    now = [0.0]
    sparing = web.Sparing(3, lambda: now[0])
    passed = [sparing.passes("broken") for _ in range(1000)]
    assert passed[:3] == ["", "", " (more of these are counted for a minute)"]
    assert passed[3:] == [None] * 997
    assert sparing.passes("another") == ""
    now[0] = 61.0
    assert sparing.passes("broken") == " (997 more before)"
    record = logging.LogRecord("x", logging.WARNING, "f", 1, "from %s", ("a stranger",), None)
    assert sparing.filter(record)
    assert record.getMessage() == "from a stranger"
    # Clients can't create an unlimited number of kinds.
    for n in range(10_000):
        _ = sparing.passes(str(n))
    assert len(sparing._seen) <= 64


@contextmanager
def serving(**places: int) -> Iterator[int]:
    """Serve one page in a thread."""

    async def answer(_: Request) -> Response:
        return PlainTextResponse("here")

    listener = web.listener("127.0.0.1", 0)
    app = web.application([Route("/", answer)])
    server = web.Background(app, listener, web.Places(**places))
    try:
        yield listener.getsockname()[1]
    finally:
        server.stop()


def get(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as one:
        one.sendall(b"GET / HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nconnection: close\r\n\r\n" % port)
        with one.makefile("rb") as answer:
            return answer.read()


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-le"])
def test_who_asks_is_answered_whatever_others_hold_open(
    said: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(total=40, of_one=20) as port, ExitStack() as stack:
        for _ in range(200):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            one.sendall(said)
        for _ in range(5):
            assert get(port).endswith(b"here")
    told = capfd.readouterr().err
    assert "Traceback" not in told
    assert 1 <= told.count("connections") <= 6


def test_broken_requests_fill_no_log(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with serving(total=40, of_one=20) as port:
        for _ in range(60):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as one:
                one.sendall(b"\x16\x03\x01 no HTTP\r\n\r\n")
                assert b"400" in one.recv(100)
        assert get(port).endswith(b"here")
    lines = capfd.readouterr().err + caplog.text
    assert lines.count("Invalid HTTP request") <= 10
