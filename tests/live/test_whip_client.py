"""`send --whip`: publishes to `serve whip`, and meets servers that refuse, redirect, lie or are silent."""

from __future__ import annotations

import json
import re
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
from steadycast.core import core
from steadycast.errors import UserError
from steadycast.exits import Exit
from steadycast.live import send, whip

from tests.conftest import ROOT, Said, bounded, needs_chromium, started, until
from tests.live.conftest import needs, ports, steadycast
from tests.live.test_https import NAME, made
from tests.live.test_whip import CONNECTION, HEARD, Served, playing, serving

TOKEN = "a-token+of/the.server=="
SMALL = {"size": "160x120", "fps": "10"}


@dataclass
class Request:
    """What a server was asked."""

    method: str
    path: str
    token: str | None
    kind: str | None
    body: str


@dataclass
class Reply:
    """What a server answers: status, headers and body."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def created(body: bytes | str = b"v=0\r\n", **headers: str) -> Reply:
    """The answer to an accepted offer."""
    given = {"location": "/session", "content-type": "application/sdp", **headers}
    body = body.encode() if isinstance(body, str) else body
    return Reply(201, {name: text for name, text in given.items() if text}, body)


class Server(ThreadingHTTPServer):
    """A server on loopback; ``reply`` makes its answers."""

    daemon_threads = True

    def __init__(self, reply: Callable[[Request], Reply | None]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.reply, self.asked = reply, list[Request]()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/whip"

    @property
    def methods(self) -> list[str]:
        return [each.method for each in self.asked]


class Handler(BaseHTTPRequestHandler):
    """Answers a request as its server says."""

    def answer(self) -> None:
        assert isinstance(self.server, Server)
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        token, kind = self.headers.get("authorization"), self.headers.get("content-type")
        request = Request(self.command, self.path, token, kind, body)
        self.server.asked.append(request)
        reply = self.server.reply(request)
        if reply is None:
            # A byte now and then, for ever.
            self.close_connection = True
            try:
                self.wfile.write(b"HTTP/1.1 201 Created\r\n")
                while True:
                    self.wfile.write(b"x")
                    time.sleep(0.05)
            except OSError:
                return
        self.send_response(reply.status)
        for name, text in reply.headers.items():
            self.send_header(name, text)
        self.send_header("content-length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    do_POST = do_DELETE = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def server(reply: Callable[[Request], Reply | None]) -> Iterator[Server]:
    """A server of the test."""
    with Server(reply) as found:
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            found.shutdown()


def offered(url: str, token: str | None = TOKEN) -> str:
    """The answer to an offer of one line; the session is ended."""
    with whip.Whip(url, token) as client:
        client.open()
        return client.offer("v=0\r\n")


def test_an_offer_is_posted_and_its_session_is_deleted() -> None:
    def reply(request: Request) -> Reply:
        return created("v=0\r\nanswer") if request.method == "POST" else Reply(200)

    with server(reply) as found:
        assert offered(found.url + "?key=1") == "v=0\r\nanswer"
        post, delete = found.asked
        assert (post.path, post.kind, post.body) == ("/whip?key=1", "application/sdp", "v=0\r\n")
        assert post.token == delete.token == f"Bearer {TOKEN}"
        assert (delete.method, delete.path, delete.body) == ("DELETE", "/session", "")
        offered(found.url, None)
        assert found.asked[-1].token is None


REFUSED = [
    (
        Reply(401, {"www-authenticate": "Bearer"}),
        "401 Unauthorized: it does not accept the token",
        "--whip-token-file",
    ),
    (Reply(403), "it does not accept the token", "STEADYCAST_WHIP_TOKEN"),
    (Reply(404), "no WHIP endpoint at this path", "check the URL"),
    (Reply(405), "nothing can be posted", "check the URL"),
    (Reply(406, {}, b'{"wrong": "no vp8"}'), '({"wrong": "no vp8"})', "--codec"),
    (Reply(409), "another publisher", "try again later"),
    (Reply(429), "too many requests", "try again later"),
    (Reply(415), "does not take offers (application/sdp)", "check the URL"),
    (Reply(418), "it does not take the offer", "log"),
    (Reply(500, {}, b"\x1b[31m" + b"x" * 300), "500 Internal Server Error: it has a problem", "…)"),
    (Reply(503, {"retry-after": "7"}), "503 Service Unavailable", "try again later (after 7 s, it says)"),
    (Reply(200), "a WHIP endpoint answers 201", "check the URL"),
    (Reply(302, {"location": "/other"}), "redirects to /other, which WHIP does only by 307", "give /other"),
    (Reply(307), "answers 307 without a Location", "operator"),
    (Reply(308, {"location": "/whip"}), "redirects more than 5 times", "operator"),
    (Reply(308, {"location": "http://[::1/"}), "its Location http://[::1/ is no URL", "operator"),
    (created(location="http://[::1/"), "its Location http://[::1/ is no URL", "operator"),
    (Reply(308, {"location": "ftp://127.0.0.1/"}), "no URL of a web server", "https://HOST/PATH"),
    (created(location=""), "has no Location", "RFC 9725"),
    (created(b"a" * 65_537), "longer than 65536 bytes", "check the URL"),
]


@pytest.mark.parametrize(
    ("reply", "problem", "remedy"), REFUSED, ids=lambda it: str(getattr(it, "status", ""))[:3]
)
def test_a_refusal_has_its_place_and_remedy(reply: Reply, problem: str, remedy: str) -> None:
    with server(lambda _: reply) as found, pytest.raises(UserError) as told:
        offered(found.url)
    assert told.value.place == found.url or told.value.place.endswith("/whip")
    assert problem in str(told.value)
    assert remedy in str(told.value)
    assert "\x1b" not in str(told.value)
    assert TOKEN not in str(told.value)
    # A service manager starts the command again after a failure, and not after wrong input.
    is_for_now = reply.status in {409, 429, 500, 503}
    assert told.value.code == (Exit.FAILED if is_for_now else Exit.MISUSED)
    # Without a Location, there is no session that could be ended.
    assert "DELETE" not in found.methods


@pytest.mark.parametrize("wrong", [{"content-type": "text/html"}, {"content-type": ""}, {}])
def test_a_session_whose_answer_is_no_description_is_deleted(wrong: dict[str, str]) -> None:
    def reply(request: Request) -> Reply:
        return created(b"\xff", **wrong) if request.method == "POST" else Reply(204)

    with server(reply) as found, pytest.raises(UserError, match="its answer is"):
        offered(found.url)
    assert found.methods == ["POST", "DELETE"]


def test_a_redirect_is_followed_and_another_origin_does_not_learn_the_token() -> None:
    def last(request: Request) -> Reply:
        return created() if request.method == "POST" else Reply(200)

    with server(last) as other:

        def first(request: Request) -> Reply:
            here = request.path == "/whip"
            return Reply(307 if here else 308, {"location": "there" if here else other.url})

        with server(first) as found:
            assert offered(found.url) == "v=0\r\n"
            assert [each.token for each in found.asked] == [f"Bearer {TOKEN}"] * 2
            assert [each.path for each in found.asked] == ["/whip", "/there"]
        # The session is at the other server, which was not named by the user.
        assert [(each.method, each.token, each.body) for each in other.asked] == [
            ("POST", None, "v=0\r\n"),
            ("DELETE", None, ""),
        ]


def test_ice_servers_are_named_as_unused(capfd: pytest.CaptureFixture[str]) -> None:
    link = '<turn:turn.example.net?transport=udp>; rel="ice-server"; username="u"; credential="secret"'
    with server(lambda _: created(link=link)) as found:
        offered(found.url)
    told = capfd.readouterr().err
    assert "names ICE servers (turn:turn.example.net?transport=udp): they are not used" in told
    assert "secret" not in told


def test_a_failed_end_is_a_warning(capfd: pytest.CaptureFixture[str]) -> None:
    for status, warned in ((404, False), (410, False), (500, True)):
        with server(lambda it: created() if it.method == "POST" else Reply(status)) as found:  # noqa: B023
            offered(found.url)
        assert ("warning: the server did not end the session" in capfd.readouterr().err) == warned, status


def test_what_is_no_whip_server_is_an_error_and_never_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whip, "_EXCHANGE_S", 1.0)
    with server(lambda _: None) as found, pytest.raises(UserError, match="did not answer within 1 s") as late:
        offered(found.url)
    assert late.value.code == Exit.FAILED
    # It accepts the connection, and is silent.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        for scheme in ("http", "https"):
            with pytest.raises(UserError, match="did not answer within 1 s"):
                offered(f"{scheme}://{place}/whip")
    for url, problem in [
        (f"http://{place}/", "no server listens"),
        ("http://name.invalid/", "the name has no address"),
        ("media.example/whip", "no URL of a web server"),
        ("http://127.0.0.1:99999/", "this is no URL"),
        ("http://[::1/", "this is no URL"),
        ("http://u:secret@127.0.0.1/", "the URL has a user name"),
        ("http://127.0.0.1/a b", "characters that are no part of one"),
        ("http://127.0.0.1/\r\nX: 1", "characters that are no part of one"),
    ]:
        with pytest.raises(UserError) as told:
            offered(url)
        assert problem in str(told.value), url
        assert "secret" not in str(told.value)
        # Without a name server, it is not known whether the name exists.
        if "name.invalid" not in url:
            is_down = problem == "no server listens"
            assert told.value.code == (Exit.FAILED if is_down else Exit.MISUSED), url


@pytest.mark.parametrize("number", [socket.EAI_NONAME, socket.EAI_AGAIN, socket.EAI_FAIL])
def test_a_name_that_does_not_exist_is_wrong_input_and_one_that_is_not_resolved_is_a_failure(
    number: int,
) -> None:
    error = whip._failed("http://name.invalid/", socket.gaierror(number, "no address"), None)
    assert error.code == (Exit.MISUSED if number == socket.EAI_NONAME else Exit.FAILED)


def test_a_server_that_is_down_at_the_start_ends_the_command_with_the_code_after_which_it_is_started_again(
    say: Callable[..., Said],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    said = say("send", "testsrc", "--whip", f"http://127.0.0.1:{port}/whip", code=1)
    assert "no server listens there" in said.err
    unit = (ROOT / "packaging" / "systemd" / "steadycast-send@.service").read_text(encoding="utf-8")
    (never,) = re.findall(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)
    assert str(Exit.FAILED.value) not in never.split()


def test_text_in_place_of_http_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"SSH-2.0-other\r\n")
                connection.recv(65_536)

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(UserError, match="does not speak HTTP"):
            offered(f"http://127.0.0.1:{other.getsockname()[1]}/")


@needs("openssl")
def test_https_is_checked_against_the_authorities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ssl

    pem = made(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem.certificate, pem.key)
    with server(lambda it: created() if it.method == "POST" else Reply(200)) as found:
        found.socket = context.wrap_socket(found.socket, server_side=True)
        url = found.url.replace("http:", "https:")
        with pytest.raises(UserError, match="certificate is not valid") as told:
            offered(url)
        assert "SSL_CERT_FILE" in told.value.remedy
        monkeypatch.setenv("SSL_CERT_FILE", str(pem.certificate))
        assert offered(url) == "v=0\r\n"
        with pytest.raises(UserError, match="certificate is not valid"):
            offered(url.replace("127.0.0.1", "localhost"))
        # Encrypted is not followed by unencrypted.
        found.reply = lambda _: Reply(307, {"location": f"http://{NAME}/"})
        with pytest.raises(UserError, match="which is not encrypted"):
            offered(url)


def test_the_token_is_read_from_a_file_of_its_owner_or_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(whip.TOKEN, raising=False)
    assert whip.read_token(None) is None
    monkeypatch.setenv(whip.TOKEN, "of-the-environment")
    assert whip.read_token(None) == "of-the-environment"
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o644)
    with pytest.raises(UserError, match="other users can read this token"):
        whip.read_token(file)
    file.chmod(0o600)
    assert whip.read_token(file) == TOKEN
    for text, problem in (
        ("", "it is empty"),
        ("two words", "no bearer token"),
        ("a\r\nX: 1", "no bearer token"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=problem):
            whip.read_token(file)


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"to": "127.0.0.1:5004"}, "--to"),
        ({"sdp": Path("a.sdp")}, "--sdp"),
        ({"flow": {"codec": "mpeg4"}}, "--codec mpeg4"),
        ({"flow": {"feedback": "own", **SMALL}}, "--feedback own"),
        ({"flow": {"controller": "asmp", **SMALL}}, ""),
        ({"source": "greedy"}, "greedy"),
    ],
)
def test_options_that_do_not_go_with_a_server_are_errors(more: dict[str, Any], place: str) -> None:
    with server(lambda _: Reply(500)) as found:
        with pytest.raises(UserError) as told:
            send.send(send.Options(**{"source": "testsrc", "whip": found.url, **more}))
        assert told.value.place.startswith(place)
        assert found.methods == ([] if place else found.methods)


def test_send_needs_one_destination() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "--to"),
        ({"to": "127.0.0.1:9", "whip_token_file": Path("t")}, "--whip-token-file"),
    ]
    for more, place in cases:
        with pytest.raises(UserError) as told:
            send.send(send.Options(source="testsrc", **more))
        assert told.value.place == place


class Answers:
    """Real answers of this program's receiver to offers, changed by `change`."""

    def __init__(self, change: Callable[[str], str]) -> None:
        self.change = change
        self.port = core.MediaPort(["127.0.0.1"], ports(1)[0])
        self.receivers: list[Any] = []

    def __call__(self, request: Request) -> Reply:
        if request.method != "POST":
            return Reply(200)
        media = self.port, ["127.0.0.1"]
        found = core.Receiver({"offer": request.body, "media": media, "audio": True, "cname": "it"})
        self.receivers.append(found)
        assert found.answer is not None
        return created(self.change(found.answer))

    def close(self) -> None:
        for each in self.receivers:
            each.stop()
            each.finish()


@contextmanager
def answering(change: Callable[[str], str]) -> Iterator[Server]:
    """A server that changes real answers."""
    answers = Answers(change)
    with server(answers) as found:
        yield found
    answers.close()


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda it: it.replace("VP8/90000", "VP9/90000"), "answer.codec"),
        (lambda it: re.sub(r"a=rtcp-fb:\d+ transport-cc\r\n", "", it), "answer.feedback"),
        (lambda it: it.replace("a=candidate", "a=x"), "answer.candidates"),
        (lambda it: it.replace("127.0.0.1", "::1"), "answer.candidates"),
        (lambda it: it.replace("m=video", "m=audio"), "answer.sections"),
        (lambda it: it.replace("a=setup:passive", "a=setup:actpass"), "answer.setup"),
        (lambda _: "hello", "answer.text"),
    ],
)
def test_an_answer_that_can_not_be_used_is_an_error_and_its_session_is_deleted(
    change: Callable[[str], str], place: str
) -> None:
    with answering(change) as found:
        with pytest.raises(UserError) as told:
            send.send(send.Options(source="testsrc", whip=found.url, flow=SMALL))
        assert told.value.place == place
        assert found.methods == ["POST", "DELETE"]


@pytest.mark.parametrize(
    ("change", "problem", "remedy"),
    [
        (
            lambda it: re.sub(
                r"a=fingerprint:sha-256 \S+", "a=fingerprint:sha-256 " + ":".join(["00"] * 32), it
            ),
            "the server's certificate is not the one of its answer",
            r"the program at 127\.0\.0\.1:\d+ is the server",
        ),
        pytest.param(
            lambda it: re.sub(r"a=ice-pwd:\S+", "a=ice-pwd:" + "x" * 24, it),
            r"no answer to ICE checks in 15 s from 127\.0\.0\.1:\d+",
            "UDP is not blocked",
            marks=pytest.mark.claim,
        ),
    ],
    ids=["certificate", "ICE"],
)
def test_a_server_to_which_no_connection_is_made_is_an_error_and_its_session_is_deleted(
    change: Callable[[str], str], problem: str, remedy: str
) -> None:
    with answering(change) as found:
        with pytest.raises(UserError, match=problem) as told:
            send.send(send.Options(source="testsrc", whip=found.url, flow=SMALL))
        assert (told.value.code, told.value.place) == (Exit.FAILED, found.url)
        assert re.search(remedy, told.value.remedy)
        assert found.methods == ["POST", "DELETE"]


@pytest.mark.parametrize(
    ("end", "why", "packets", "code"),
    [
        (None, None, 9, None),
        ("closed", None, 9, None),
        # The text is for readers, and the program must not depend on it.
        ("closed by peer", "it has ended the session", 9, None),
        ("closed by peer", "another text", 9, None),
        ("failed", "it has ended the session", 9, Exit.FAILED),
        ("failed", "127.0.0.1:9 has been silent for 30 s", 9, Exit.FAILED),
        ("failed", "no answer to ICE checks in 15 s from 127.0.0.1:9", 0, Exit.FAILED),
    ],
)
def test_a_server_that_vanishes_is_a_failure_and_one_that_ends_the_session_is_none(
    end: str | None, why: str | None, packets: int, code: Exit | None
) -> None:
    status = json.dumps({"browser": {"end": end, "why": why}, "packets": packets})
    with nullcontext() if code is None else pytest.raises(UserError) as told:
        send._check_connected(SimpleNamespace(status=lambda: status), "http://127.0.0.1/whip")
    if told is not None:
        assert (told.value.code, told.value.place) == (code, "http://127.0.0.1/whip")
        assert why in told.value.problem


def test_a_server_that_closes_the_connection_ends_the_session_regularly() -> None:
    answers = Answers(lambda it: it)
    with server(answers) as found:
        timer = threading.Timer(2.0, answers.close)
        timer.start()
        summary = send.send(send.Options(source="testsrc", whip=found.url, flow=SMALL, duration="20s"))
        timer.join()
    assert any("it has ended the session" in each for each in summary["warnings"])


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten seconds of a moving bar with a tone."""
    path = tmp_path_factory.mktemp("film") / "film.mkv"
    with av.open(str(path), "w") as target:
        video = target.add_stream("mpeg4", rate=25)
        video.width, video.height, video.pix_fmt = 320, 180, "yuv420p"
        sound = target.add_stream("flac", rate=48_000)
        for n in range(250):
            picture = np.full((180, 320, 3), n % 256, dtype=np.uint8)
            picture[:, (n * 4) % 280 : (n * 4) % 280 + 40] = 255
            target.mux(video.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            time_s = (np.arange(1920) + 1920 * n) / 48_000
            tone = (np.sin(time_s * 440 * 2 * np.pi) * 12_000).astype(np.int16).reshape(1, -1)
            frame = av.AudioFrame.from_ndarray(np.repeat(tone, 2, axis=1), format="s16", layout="stereo")
            frame.rate, frame.pts, frame.time_base = 48_000, 1920 * n, Fraction(1, 48_000)
            target.mux(sound.encode(frame))
        target.mux(video.encode(None))
        target.mux(sound.encode(None))
    return path


@pytest.mark.parametrize("sound", [True, False])
def test_a_server_that_refuses_the_sound_gets_the_pictures(
    film: Path, sound: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    def change(answer: str) -> str:
        return answer if sound else re.sub("m=audio [0-9]+", "m=audio 0", answer)

    with answering(change) as found:
        summary = send.send(send.Options(source=str(film), whip=found.url, flow=SMALL, duration="3s"))
    assert summary["flows"][0]["sent_bps"] > 0
    assert ("the server does not take the sound" in capfd.readouterr().err) is not sound
    assert found.methods == ["POST", "DELETE"]


def shown(served: Served) -> dict[str, Any]:
    """The publisher in the page's status."""
    page, _, token = served.page.partition("#")
    token = token.rpartition("=")[2]
    request = urllib.request.Request(page + "api/viewers", headers={"authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=10) as found:
        told: dict[str, Any] = json.load(found)["publisher"]
    return told


def published(served: Served, folder: Path, *more: str) -> list[str]:
    """The command that publishes to this server."""
    token = folder / "token"
    token.write_text(served.token)
    token.chmod(0o600)
    words = steadycast("send", "testsrc", "--whip", served.address + "whip", "--whip-token-file", token)
    return [*words, "--size", "320x180", *more]


@pytest.mark.parametrize("codec", ["vp8", "h264", "vp9", "av1"])
def test_pictures_arrive_at_our_server_until_ctrl_c(codec: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with serving() as served:
        words = published(served, tmp_path, "--codec", codec, "-o", str(out), "--max-rate", "1Mbps")
        with bounded(started(words)) as process:
            until(lambda: shown(served).get("pictures", 0) > 20, f"no picture of {codec} came")
            found = shown(served)
            assert (found["state"], found["codec"]) == ("connected", codec)
            # At a low rate pictures are coded smaller. The first bound was 320x180, which AV1 missed.
            assert found["size"]["width"] * 9 == found["size"]["height"] * 16
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=30)
            assert process.returncode == 0, told
            assert "warning: the server" not in told
        until(lambda: shown(served)["state"] == "ended")
    summary = json.loads((out / "summary.json").read_text())
    (flow,) = summary["flows"]
    assert flow["controller"] == "steady"
    assert 50_000 < flow["sent_bps"] <= 1_100_000


@needs_chromium
def test_what_send_publishes_plays_in_a_browser_with_sound(browser: Any, film: Path, tmp_path: Path) -> None:
    with serving() as served:
        viewer = browser.new_context().new_page()
        viewer.add_init_script(CONNECTION)
        viewer.goto(served.page)
        words = published(served, tmp_path)
        words[words.index("testsrc")] = str(film)
        with bounded(started([*words, "--loop"])) as process:
            playing(viewer)
            viewer.wait_for_function(HEARD)
            assert shown(served)["audio"] is True
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
            assert process.returncode == 0
        viewer.wait_for_function("() => document.querySelector('#status').textContent.includes('waiting')")
        viewer.context.close()
