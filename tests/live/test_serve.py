"""WHEP as implemented by `steadycast serve`, with a session that only records its calls."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from steadycast.errors import UserError
from steadycast.live import outlets, send, source
from steadycast.live.encoder import Encoder
from steadycast.live.flow import encoding
from steadycast.media.clip import Clip
from steadycast.media.ladder import codec_of, encode_ladder

pytest.importorskip("starlette", reason="the extra serve is not installed")
from starlette.requests import Request
from steadycast import web
from steadycast.serve import broadcast, capacity, server, viewers

from tests.conftest import until
from tests.live.conftest import ports
from tests.live.test_flood import resident

HOST = ("192.0.2.1", 8080)
TOKEN = "the-token"
OFFER = b"v=0\r\n"
REFUSED = {
    "no codec": UserError("offer.codec", "a browser plays vp8", "take --codec vp8"),
    "no ice": UserError("offer.ice-ufrag", "there is none", "send a whole offer"),
}


class Port:
    """A stand-in for the core's media port, with the parts that the server uses."""

    port = 40_000

    def dropped(self) -> dict[str, int]:
        return {"unknown_user": 3}


PORT = Port()


class Session:
    """A stand-in for a core sender, with the parts that viewers use."""

    sdp = "v=0\r\na=answer\r\n"

    def __init__(self, settings: dict[str, Any], flow: dict[str, Any]) -> None:
        if (problem := REFUSED.get(settings["offer"])) is not None:
            raise problem
        self.settings, self.flow = settings, flow
        self.ended = threading.Event()

    @property
    def done(self) -> bool:
        return self.ended.is_set()

    def status(self) -> str:
        return "null"

    def wait(self, patience: float) -> bool:
        return self.ended.wait(patience)

    def stop(self) -> None:
        self.ended.set()

    end = stop

    def next_job(self, patience: float) -> bool | None:
        return False if self.ended.wait(patience) else None

    def finish(self) -> Any:
        return self

    def summary(self, _: bool) -> str:
        return '{"warnings": []}'


@dataclass
class Answer:
    code: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Served:
    app: Any
    all: viewers.Viewers
    scheme: str = "http"

    def ask(self, method: str, path: str = server.STREAM, body: bytes = b"", **headers: str | None) -> Answer:
        """Sends a request as a browser does; a header of `None` is left out."""
        plain = {
            "host": "192.0.2.1:8080",
            "authorization": f"Bearer {TOKEN}",
            "content-type": "application/sdp",
        }
        named = {**plain, **{name.replace("_", "-"): value for name, value in headers.items()}}
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": self.scheme,
            "path": path,
            "query_string": query.encode(),
            "server": HOST,
            "headers": [
                (name.encode(), value.encode()) for name, value in named.items() if value is not None
            ],
        }
        sent: list[dict[str, Any]] = []

        async def asked() -> None:
            waits = iter([{"type": "http.request", "body": body, "more_body": False}])

            async def receive() -> dict[str, Any]:
                return next(waits, {"type": "http.disconnect"})

            async def answers(message: dict[str, Any]) -> None:
                sent.append(message)

            await self.app(scope, receive, answers)

        asyncio.run(asked())
        head = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], head, b"".join(each.get("body", b"") for each in sent[1:]))

    def offer(self, path: str = server.STREAM, body: bytes = OFFER, **headers: str | None) -> Answer:
        return self.ask("POST", path, body, **headers)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(send, "begun", lambda settings, flow, planned: Session(settings, flow))
    monkeypatch.setattr(server, "_POSTS", 1_000)
    options = viewers.Options(source="testsrc", viewers=2, flow={"size": "64x64"})
    all_of_them = viewers.Viewers(options)
    yield Served(server.Serving(all_of_them, PORT, TOKEN).app(), all_of_them)
    all_of_them.close()


def test_an_offer_is_answered_and_its_session_ends_by_delete(served: Served) -> None:
    answer = served.offer(server.STREAM + "?controller=gcc", content_type="Application/SDP; charset=utf-8")
    assert (answer.code, answer.headers["content-type"]) == (201, "application/sdp")
    assert answer.body.decode() == Session.sdp
    place = answer.headers["location"]
    assert place.startswith(server.STREAM + "/")
    assert answer.headers["etag"].startswith('"')
    (viewer,) = served.all
    # The id has 128 bits; the address is the one that the browser has reached.
    assert len(viewer.id) == 22
    assert place.endswith(viewer.id)
    assert viewer.core.settings["media"] == (PORT, ["192.0.2.1"])
    assert viewer.core.settings["offer"] == OFFER.decode()
    assert "to" not in viewer.core.settings
    assert viewer.core.flow["controller"] == "gcc"
    told = json.loads(served.ask("GET", "/api/viewers").body)
    assert [(each["name"], each["state"]) for each in told["viewers"]] == [("viewer-1", "checking")]
    assert told["media"] == {"port": 40_000, "dropped": {"unknown_user": 3}}
    assert served.ask("DELETE", place).code == 200
    assert viewer.core.done
    assert viewer.thread is not None
    viewer.thread.join(10)
    assert served.ask("DELETE", place).code == 404
    assert [each.shown()["state"] for each in served.all] == ["ended"]


def test_what_is_no_offer_of_a_viewer_of_ours_has_the_codes_of_whep(served: Served) -> None:
    found = {
        "type": served.offer(content_type="application/json").code,
        "no type": served.offer(content_type=None).code,
        "size": served.offer(body=b"a" * 65_537).code,
        "no text": served.offer(body=b"\xff").code,
        "controller": served.offer(server.STREAM + "?controller=bbr9").code,
        "codec": served.offer(body=b"no codec").code,
        "offer": served.offer(body=b"no ice").code,
        "token": served.offer(authorization="Bearer other").code,
        "no token": served.offer(authorization=None).code,
        "kind": served.offer(authorization=f"Basic {TOKEN}").code,
        "host": served.offer(host="example.net:8080").code,
        "origin": served.offer(origin="http://example.net").code,
        "trickle": served.ask("PATCH", server.STREAM + "/x", b"a=candidate").code,
        "list": served.ask("GET", "/api/viewers", authorization=None).code,
        "page": served.ask("GET", "/", authorization=None).code,
        "place": served.ask("DELETE", server.STREAM + "/x").code,
    }
    assert found == {
        **{
            "type": 415,
            "no type": 415,
            "size": 413,
            "no text": 400,
            "controller": 400,
            "codec": 406,
            "offer": 400,
        },
        **{
            "token": 401,
            "no token": 401,
            "kind": 401,
            "host": 400,
            "origin": 403,
            "trickle": 405,
        },
        **{"list": 401, "page": 200, "place": 404},
    }
    assert list(served.all) == []
    options = served.ask("OPTIONS", authorization=None, origin="http://example.net")
    assert (options.code, options.headers["accept-post"]) == (200, "application/sdp")
    for method in ("GET", "HEAD"):
        asked = served.ask(method, authorization=None)
        assert (asked.code, asked.headers["content-type"], asked.body) == (200, "application/sdp", b"")
    # Pages of other origins can't read an answer.
    assert not any(name.startswith("access-control") for name in options.headers)
    assert "default-src 'none'" in options.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("reached", "host", "answered"),
    [
        ("127.0.0.1", "localhost:9", True),
        ("::1", "localhost:9", True),
        ("192.0.2.1", "localhost:9", False),
        ("192.0.2.1", "192.0.2.2:9", False),
        ("2001:db8::1", "[2001:db8::1]:9", True),
        ("::ffff:192.0.2.1", "192.0.2.1:9", True),
        ("192.0.2.1", "192.0.2.1.example.net:9", False),
    ],
)
def test_who_asks_has_to_name_the_address_that_was_reached(reached: str, host: str, answered: bool) -> None:
    scope = {"type": "http", "scheme": "http", "path": "/", "query_string": b"", "server": (reached, 9)}
    request = Request({**scope, "headers": [(b"host", host.encode())]})
    assert web.BY_ADDRESS.is_here(request) == answered


def test_more_viewers_than_places_are_told_to_come_later(served: Served) -> None:
    assert [served.offer().code for _ in range(2)] == [201, 201]
    full = served.offer()
    assert (full.code, full.headers["retry-after"]) == (503, "5")
    assert b"places are taken" in full.body
    first = next(iter(served.all))
    first.core.stop()
    assert served.offer().code == 201


def test_viewers_are_told_if_others_are_connecting_although_places_are_free(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steadycast.serve.viewers.UNFINISHED", 1)
    assert served.offer().code == 201
    full = served.offer()
    assert (full.code, full.headers["retry-after"]) == (503, "5")
    assert b"are connecting at this moment" in full.body
    assert b"places are taken" not in full.body


def test_ten_offers_a_second_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    serving = server.Serving(
        viewers.Viewers(viewers.Options(source="testsrc", flow={"size": "64x64"})), PORT, None
    )
    now = [0.0]
    monkeypatch.setattr("steadycast.serve.server.time.monotonic", lambda: now[0])
    served = Served(serving.app(), serving.viewers)
    asked = [served.offer(content_type="text/plain", authorization=None).code for _ in range(12)]
    assert asked == [415] * 10 + [429] * 2
    now[0] = 1.0
    assert served.offer(content_type="text/plain").code == 415


@dataclass
class Named:
    """A served source with a public URL and an origin that may embed it."""

    served: Served
    origin: str = "https://video.example.net"
    friend: str = "https://ops.example.org:8443"


@pytest.fixture
def named(served: Served) -> Named:
    url, friend = "https://Video.Example.net:443/cam", "https://ops.example.org:8443/page"
    options = viewers.Options(
        source="testsrc", public_url=url, allow_origin=[friend], media_address=["203.0.113.5"]
    )
    public = server._public(options)
    assert (public.access.public, public.path, public.media) == (
        "https://video.example.net",
        "/cam/",
        ("203.0.113.5",),
    )
    app = server.Serving(served.all, PORT, TOKEN, public).app()
    # A proxy connects by HTTP, and forwards the host name that the browser used.
    return Named(Served(app, served.all))


def test_behind_a_proxy_host_and_origin_are_those_of_the_public_url(named: Named) -> None:
    ask = named.served
    codes = {
        host: ask.ask("GET", "/", host=host, authorization=None).code
        for host in ("video.example.net", "VIDEO.example.net:443", "192.0.2.1:8080", "video.example.net:80")
    }
    codes |= {"evil": ask.ask("GET", "/", host="video.example.net.evil.org").code}
    assert codes == {
        "video.example.net": 200,
        "VIDEO.example.net:443": 200,
        "192.0.2.1:8080": 400,
        "video.example.net:80": 400,
        "evil": 400,
    }
    made = ask.offer(host="video.example.net", origin=named.origin)
    assert made.code == 201
    assert made.headers["location"].startswith("/cam/whep/video/")
    (viewer,) = ask.all
    assert viewer.core.settings["media"] == (PORT, ["203.0.113.5"])
    for origin in (
        "http://video.example.net",
        "https://video.example.net:8443",
        "https://example.net",
        "null",
    ):
        assert ask.offer(host="video.example.net", origin=origin).code == 403, origin


def test_a_page_of_a_named_origin_may_ask_and_embed_and_no_other_one(named: Named) -> None:
    ask, host = named.served, "video.example.net"
    wants: dict[str, Any] = {
        "access_control_request_method": "POST",
        "access_control_request_headers": "authorization",
    }
    asked = ask.ask("OPTIONS", host=host, authorization=None, origin=named.friend, **wants)
    assert asked.code == 204
    assert asked.headers["access-control-allow-origin"] == named.friend
    assert "authorization" in asked.headers["access-control-allow-headers"]
    made = ask.offer(host=host, origin=named.friend)
    assert (made.code, made.headers["access-control-allow-origin"]) == (201, named.friend)
    assert "location" in made.headers["access-control-expose-headers"]
    assert made.headers["vary"] == "origin"
    page = ask.ask("GET", "/", host=host, authorization=None)
    assert f"frame-ancestors {named.friend}" in page.headers["content-security-policy"]
    assert "access-control-allow-origin" not in page.headers
    for origin in ("https://ops.example.org", "http://ops.example.org:8443", "https://evil.example.org"):
        refused = ask.ask("OPTIONS", host=host, authorization=None, origin=origin, **wants)
        assert not any(name.startswith("access-control") for name in refused.headers)
        assert ask.offer(host=host, origin=origin).code == 403
    # The token is needed as well.
    assert ask.offer(host=host, origin=named.friend, authorization=None).code == 401


def test_of_its_own_https_server_the_origin_has_the_scheme(served: Served) -> None:
    served.scheme = "https"
    host = "192.0.2.1:8080"
    codes = [
        served.offer(origin=f"{scheme}://{host}", content_type="text/plain").code
        for scheme in ("https", "http")
    ]
    assert codes == [415, 403]


def test_the_media_of_a_name_are_at_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"video.example.net": ["2001:db8::5", "203.0.113.5", "203.0.113.5"]}

    def getaddrinfo(name: str, *_: object, **__: object) -> list[Any]:
        if name not in found:
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", (each, 0)) for each in found[name]]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    options = viewers.Options(source="testsrc", public_url="https://video.example.net")
    assert server._public(options).media == ("203.0.113.5", "2001:db8::5")
    with pytest.raises(UserError) as told:
        server._public(viewers.Options(source="testsrc", public_url="https://other.example.net"))
    assert (told.value.place, "--media-address" in told.value.remedy) == ("--public-url", True)


@pytest.mark.parametrize(
    ("host", "media", "bound"),
    [
        ("127.0.0.1", (), ["127.0.0.1"]),
        ("::1", (), ["::1"]),
        ("0.0.0.0", (), ["0.0.0.0"]),
        ("::", (), ["0.0.0.0", "::"]),
        ("127.0.0.1", ("127.0.0.1",), ["127.0.0.1"]),
        ("127.0.0.1", ("203.0.113.5",), ["0.0.0.0"]),
        ("127.0.0.1", ("203.0.113.5", "2001:db8::5"), ["0.0.0.0", "::"]),
        ("::1", ("127.0.0.1", "127.0.0.2"), ["0.0.0.0"]),
    ],
)
def test_media_are_at_the_address_of_this_machine_that_browsers_are_told(
    host: str, media: tuple[str, ...], bound: list[str]
) -> None:
    assert server._bound(host, media) == bound


def test_the_former_range_of_ports_gives_its_first_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert server._media_port(viewers.Options(source="testsrc", media_port=41_000)) == 41_000
    assert capsys.readouterr().err == ""
    assert server._media_port(viewers.Options(source="testsrc", media_ports="40010-40099")) == 40_010
    assert "--media-port, one for all viewers: 40010 is used" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"listen": "localhost"}, "--listen"),
        ({"listen": "127.0.0.1:0"}, "--listen"),
        ({"listen": "localhost:8080"}, "--listen"),
        ({"listen": "::1:8080x"}, "--listen"),
        ({"listen": "0.0.0.0:8080", "no_token": True}, "--no-token"),
        ({"media_ports": "40000"}, "--media-ports"),
        ({"media_ports": "40099-40000"}, "--media-ports"),
        ({"certificate": Path("/nosuch")}, "--certificate"),
        ({"key": Path("/nosuch")}, "--key"),
        ({"certificate": Path("/nosuch"), "key": Path("/nosuch")}, "--certificate /nosuch"),
        ({"public_url": "video.example.net"}, "--public-url"),
        ({"public_url": "https://"}, "--public-url"),
        ({"public_url": "https://video.example.net:port"}, "--public-url"),
        ({"public_url": "https://video.example.net?a=1"}, "--public-url"),
        ({"public_url": "https://a@video.example.net"}, "--public-url"),
        ({"public_url": "https://127.0.0.1", "no_token": True}, "--no-token"),
        ({"allow_origin": ["*"]}, "--allow-origin"),
        ({"media_address": ["video.example.net"]}, "--media-address"),
        ({"flow": {"codec": "mpeg4"}}, "--codec"),
        ({"source": "greedy"}, "greedy"),
        ({"source": "-"}, "standard input"),
        ({"flow": {"controller": "steddy"}}, "--controller steddy"),
        ({"flow": {"param": ["nosuch=1"]}}, "--param nosuch"),
        ({"flow": {"mode": "fast"}}, "--mode"),
        ({"flow": {"max_rate": "fast"}}, "--max-rate"),
        ({"flow": {"floor": "3M", "max_rate": "2M"}}, "--max-rate"),
        ({"flow": {"packet": "20"}}, "--packet"),
        ({"flow": {"feedback": "twice"}}, "--feedback"),
        ({"flow": {"ecn": "yes"}}, "--ecn"),
        ({"flow": {"repair": "hope"}}, "--repair"),
        ({"flow": {"gop": "0"}}, "--gop"),
    ],
)
def test_what_cannot_be_served_is_told_before_anybody_comes(wrong: dict[str, Any], place: str) -> None:
    options = viewers.Options(**{"source": "testsrc", "listen": "127.0.0.1:18080", **wrong})
    with pytest.raises(UserError) as told:
        server.serve(options)
    assert told.value.place.startswith(place)
    if "flow" in wrong and "codec" not in wrong["flow"]:
        # `send` has the same message for this mistake.
        with pytest.raises(UserError) as sent:
            send.send(send.Options(source="testsrc", to="127.0.0.1:9", duration="100ms", flow=wrong["flow"]))
        assert str(sent.value) == str(told.value)


def connected(silent_s: float, *, silent: bool) -> str:
    told = {
        "state": "connected",
        "why": None,
        "address": "192.0.2.7:9",
        "silent_s": silent_s,
        "is_silent": silent,
    }
    return json.dumps({"browser": told})


def looked(served: Served) -> None:
    """Wait until the list shows the status of the sessions."""
    until(lambda: all(each.status is not None for each in served.all))


def test_the_list_tells_no_id_that_ends_a_session(served: Served) -> None:
    places = [served.offer().headers["location"] for _ in range(2)]
    shown = json.loads(served.ask("GET", "/api/viewers").body)["viewers"]
    told = {text for each in shown for text in map(str, each.values())}
    assert all(
        served.ask("DELETE", f"{server.STREAM}/{text}").code == 404 for text in told if "/" not in text
    )
    assert not any(viewer.core.done for viewer in served.all)
    # Each browser recognizes its own viewer by the first characters.
    ids = [place.rpartition("/")[2] for place in places]
    assert all(sum(each.startswith(viewer["id"]) for each in ids) == 1 for viewer in shown)
    assert all(len(each) - len(viewer["id"]) >= 18 for each in ids for viewer in shown)
    assert [served.ask("DELETE", place).code for place in places] == [200, 200]


def test_a_new_viewer_has_the_place_of_the_one_that_is_silent_for_longest_and_of_no_live_one(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlets.Outlets, "look", lambda *_: None)
    first, second = served.offer(), served.offer()
    assert (first.code, second.code) == (201, 201)
    one, other = sorted(served.all, key=lambda each: each.number)
    for viewer in (one, other):
        monkeypatch.setattr(viewer.core, "status", lambda: connected(3.0, silent=False))
    looked(served)
    assert served.offer().code == 503
    monkeypatch.setattr(one.core, "status", lambda: connected(4.2, silent=True))
    monkeypatch.setattr(other.core, "status", lambda: connected(9.0, silent=True))
    until(lambda: one.is_silent and other.is_silent)
    states = {
        each["name"]: each["state"] for each in json.loads(served.ask("GET", "/api/viewers").body)["viewers"]
    }
    assert states == {"viewer-1": "silent", "viewer-2": "silent"}
    assert served.offer().code == 201
    assert (one.core.done, other.core.done) == (False, True)
    assert other.why == "it was silent for 9 s, and its place was wanted"
    # Without a new viewer, a silent one stays until its consent expires.
    assert one.is_silent


def test_the_operator_reads_at_the_end_what_belonged_to_no_viewer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert server._dropped(PORT) == "datagrams at UDP port 40000 that belonged to no viewer: unknown_user 3"
    monkeypatch.setattr(Port, "dropped", lambda _: {"unknown_user": 0})
    assert server._dropped(PORT) is None


@pytest.mark.parametrize("encoding", [0.0, 0.05, 0.4, 1.5])
@pytest.mark.parametrize("count", [1.0, 2.0, 16.0])
def test_as_many_viewers_are_expected_as_the_encoders_leave_room_for(count: float, encoding: float) -> None:
    expected = capacity.Capacity(count, encoding, rungs=3, sound=0.01)
    assert expected.viewers is not None
    room = capacity.USED * count - encoding - 0.01
    if room > 0:
        assert expected.viewers * capacity.SENDING_CORES <= room + 1e-9
        assert room < (expected.viewers + 1) * capacity.SENDING_CORES
    else:
        assert expected.viewers == 0
    assert f"carry {expected.viewers} viewer" in expected.told(1)
    for admitted in (max(expected.viewers, 1), expected.viewers + 1):
        assert ("--ladder" in expected.told(admitted)) == (admitted > expected.viewers)


def test_a_ladder_leaves_sending_and_an_unmeasured_encoder_is_unknown() -> None:
    done = capacity.Capacity(2.0, 0.0)
    assert done.viewers == int(capacity.USED * 2.0 / capacity.SENDING_CORES)
    assert "--ladder" not in done.told(100)
    unknown = capacity.Capacity(2.0, None, 1)
    assert unknown.viewers is None
    assert "unknown" in unknown.told(4)


@pytest.mark.parametrize("cost_s", [1e-5, 1e-3, 4e-3, 2e-2, 1.0])
@pytest.mark.parametrize("count", [0.5, 2.0, 16.0])
def test_as_many_rungs_are_encoded_as_their_part_of_the_cores_allows(
    cost_s: float, count: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "cores", lambda: count)
    rungs = capacity.rungs_for(cost_s, 30.0)
    assert 1 <= rungs <= capacity.MOST_RUNGS
    budget = capacity.ENCODING * count
    assert rungs == 1 or rungs * cost_s * 30.0 <= budget
    assert rungs == capacity.MOST_RUNGS or (rungs + 1) * cost_s * 30.0 > budget


def test_all_viewers_share_one_broadcast_which_ends_with_the_last_and_begins_again(served: Served) -> None:
    places = [served.offer().headers["location"] for _ in range(2)]
    one, other = served.all
    assert one.planned is other.planned
    broadcast = one.planned.medium["broadcast"]
    told = json.loads(served.ask("GET", "/api/viewers").body)
    assert (len(told["rungs"]), told["rungs_at_start"]) == (served.all.capacity.rungs,) * 2
    assert served.ask("DELETE", places[0]).code == 200
    until(lambda: one.thread is not None and not one.thread.is_alive())
    assert not broadcast.wait(0.0)
    assert served.ask("DELETE", places[1]).code == 200
    assert broadcast.wait(10.0)
    until(lambda: other.thread is not None and not other.thread.is_alive())
    assert served.offer().code == 201
    assert next(iter(served.all)).planned.medium["broadcast"] is not broadcast


class Jobs:
    """A core broadcast with one viewer, reduced to the parts that the encoders' loop uses."""

    def __init__(self, rungs: int, jobs: int, gop: int) -> None:
        self.left, self.gop, self.rungs = jobs, gop, rungs
        self.pushed: list[tuple[int, list[tuple[int, bytes]]]] = []
        self.given_up, self.ended = 0, False

    def next_job(self, _: float) -> Any:
        if self.left == 0:
            return False
        self.left -= 1
        number = len(self.pushed)
        # One rung is given up at the second key frame.
        self.given_up = int(number >= self.gop)
        rungs = [(20 + 10 * rung, rung % 2) for rung in range(self.given_up, self.rungs)]
        return number, number % self.gop == 0, rungs

    def push(self, picture: int, units: list[tuple[int, bytes]], sampled_s: float | None) -> None:
        assert sampled_s is None, "the pictures of a test pattern have no pace of their own"
        self.pushed.append((picture, units))

    def status(self) -> tuple[list[tuple[float, int, int]], int, int]:
        return [(1e6, 64, 64)] * (self.rungs - self.given_up), self.given_up, 0

    def passed(self, _: int) -> None:
        raise AssertionError("no picture was skipped")

    def end(self) -> None:
        self.ended = True


def test_each_picture_is_encoded_at_all_rungs_and_the_operator_reads_which_are_given_up() -> None:
    pictures, _ = source.pictures_of("testsrc", "128x128", "25", loop=False)
    kind = codec_of("vp8")
    encoders = broadcast._Encoders(lambda: Encoder(kind, pictures.shape, 6), pictures, 3)
    jobs = Jobs(3, 12, 6)
    told: list[str] = []
    encoders(jobs, told.append)
    assert encoders.failed is None
    assert jobs.ended
    assert [picture for picture, _ in jobs.pushed] == list(range(12))
    for picture, units in jobs.pushed:
        assert len(units) == (3 if picture < 6 else 2)
        # Key frames are common to all rungs.
        assert {kind for kind, _ in units} == {0 if picture % 6 == 0 else 1}
        sizes = {len(data) for _, data in units}
        assert len(sizes) == len(units), "the quantizers differ"
    assert len(told) == 1
    assert "2 of 3 rungs are left" in told[0]


def test_senders_of_one_encoded_film_share_its_bytes(tmp_path: Path) -> None:
    film = tmp_path / "noise.mkv"
    chance = np.random.default_rng(1)
    with av.open(str(film), "w") as target:
        stream = target.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = 352, 288, "yuv420p"
        stream.codec_context.qmin = stream.codec_context.qmax = 1
        for _ in range(12):
            noise = chance.integers(0, 255, (288 * 3 // 2, 352), dtype=np.uint8)
            target.mux(stream.encode(av.VideoFrame.from_ndarray(noise, format="yuv420p")))
        target.mux(stream.encode(None))
    plan = source.plan(str(film), **encoding({"codec": "mpeg4"}), loop=True, ladder=True)
    # The second call reads the result of the plan's own call from the cache.
    encoded = encode_ladder(Clip.of(film), "mpeg4", gop=12, bframes=0)
    size = sum(rung.data.nbytes for rung in encoded.rungs)

    def begun() -> Any:
        settings = send.settings_of(send.Options(source=str(film), to=f"127.0.0.1:{ports(1)[0]}"))
        return send.begun(settings, {"controller": "fixed", "codec": "mpeg4"}, plan)

    senders = [begun()]
    before = resident(os.getpid())
    senders += [begun() for _ in range(8)]
    grown = resident(os.getpid()) - before
    for sender in senders:
        sender.stop()
    assert all(sender.wait(10) for sender in senders)
    assert grown < 2 * size, (grown, size)


def test_threads_that_encode_yield_to_the_threads_that_send() -> None:
    found: list[int] = []

    def encoding() -> None:
        broadcast.yield_to_senders()
        inherits = threading.Thread(target=lambda: found.append(os.getpriority(os.PRIO_PROCESS, 0)))
        inherits.start()
        inherits.join()

    before = os.getpriority(os.PRIO_PROCESS, 0)
    thread = threading.Thread(target=encoding)
    thread.start()
    thread.join()
    assert found == [min(before + broadcast.NICER, 19)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_what_all_browsers_share_of_h264_is_the_baseline() -> None:
    options = viewers.Options(source="testsrc", flow={"size": "64x64", "codec": "h264"})
    live = viewers.Viewers(options).live
    assert live is not None
    sps = live.checked().medium["config"].split(b"\0\0\0\1")[1]
    assert (sps[0] & 0x1F, sps[1]) == (7, 66)


def test_the_encoder_is_measured_at_the_start(served: Served) -> None:
    small = served.all.capacity
    large = viewers.Viewers(viewers.Options(source="testsrc", flow={"size": "640x360"})).capacity
    assert small.encoding is not None
    assert large.encoding is not None
    # The large pictures have 56 times the samples.
    assert 0 < small.encoding < large.encoding
    told = json.loads(served.ask("GET", "/api/viewers").body)
    assert told["expected_viewers"] == small.viewers


@pytest.mark.parametrize(
    ("returned", "line"),
    [
        (
            False,
            "the encoders fall behind: 2 of 3 rungs are left, up to 1.2 Mb/s. Serve a smaller --size or --fps",
        ),
        (True, "the encoders are on time again: 2 of 3 rungs are encoded, up to 1.2 Mb/s"),
    ],
)
def test_the_operator_reads_of_rungs_that_are_given_up_and_of_rungs_that_return(
    returned: bool, line: str
) -> None:
    class Core:
        def status(self) -> tuple[list[tuple[float, int, int]], int, int]:
            return [(1.2e6, 320, 180), (1e5, 160, 90)], 1, 9

    assert broadcast.changed(Core(), returned=returned) == line
