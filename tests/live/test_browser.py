"""`steadycast serve` and a real browser: Debian's chromium, driven by Playwright.

All tests share one browser, and most share one server, because starting and ending each viewer's session takes time.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from steadycast.core import core

from tests.conftest import CHROMIUM, bounded, needs_chromium, started, until
from tests.live.conftest import ports, steadycast

pytestmark = needs_chromium
PRESENT = "() => [...document.querySelectorAll('#viewers tbody tr:not(.gone)')].length"
BUSY_S = 3.0
"""Seconds that other work of the machine may add to a real-time bound, for polls of the page and for a new session."""
STATES = "() => [...document.querySelectorAll('#viewers td:nth-child(2)')].map((each) => each.textContent)"


@dataclass
class Served:
    """A served test pattern in a separate process."""

    process: subprocess.Popen[str]
    page: str
    folder: Path

    @property
    def address(self) -> str:
        return self.page.partition("#")[0]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving("127.0.0.1", tmp_path_factory.mktemp("serve") / "viewers") as found:
        yield found


@contextmanager
def serving(host: str, folder: Path, *more: str, source: str = "testsrc") -> Iterator[Served]:
    """Serves at this address with additional options."""
    pytest.importorskip("starlette", reason="the extra serve is not installed")
    listen, media = ports(2)
    words = steadycast("serve", source, "--size", "320x180", "--viewers", "2", "-o", folder, *more)
    words += ["--listen", f"{host}:{listen}", "--media-port", str(media)]
    with bounded(started(words)) as process:
        assert process.stdout is not None
        yield Served(process, process.stdout.readline().strip(), folder)


@pytest.fixture
def opened(served: Served, browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages, and checks that they write nothing to the console and contact no other host.

    All places are free at the beginning. A page's own list of viewers can't show this, because it may be older than the
    page's session.
    """
    until(lambda: present(served) == 0, "the viewers of the previous test have not left")
    contexts: list[Any] = []
    said: list[str] = []
    foreign: list[str] = []

    def page(address: str = served.page, *, plays: bool = True) -> Any:
        contexts.append(browser.new_context(viewport={"width": 1280, "height": 900}))
        found = contexts[-1].new_page()
        found.on("console", lambda told: said.append(told.text))
        found.on("pageerror", lambda error: said.append(str(error)))
        found.on("request", lambda asked: foreign.append(asked.url))
        found.goto(address)
        if plays:
            playing(found)
        return found

    yield page
    for context in contexts:
        context.close()
    # The browser itself logs requests that are refused, or whose server has ended.
    assert [text for text in said if not text.startswith("Failed to load resource")] == []
    assert [url for url in foreign if not url.startswith((served.address, "blob:", "data:"))] == []


def playing(page: Any) -> None:
    """Waits until pictures move. Their size is not tested: the picture of the coarsest rung may be smaller."""
    from playwright.sync_api import TimeoutError as LateError

    try:
        page.wait_for_function("() => document.querySelector('video').videoWidth > 0")
        page.wait_for_function("() => document.querySelector('video').currentTime > 0.2")
        page.wait_for_function("() => document.querySelector('#status').textContent.startsWith('live, by')")
    except LateError as error:
        said = [page.text_content(name) for name in ("#status", "#notice", "#numbers", "#viewers")]
        raise AssertionError(f"no pictures move: {said}") from error


def test_a_browser_plays_and_its_page_says_why_the_rate_is_what_it_is(opened: Callable[..., Any]) -> None:
    page = opened()
    page.wait_for_function("() => /kb|Mb/.test(document.querySelector('#viewers tbody').textContent)")
    page.wait_for_function("() => document.querySelector('#why').textContent !== 'starting'")
    page.wait_for_function("() => /[1-9]\\d* decoded, /.test(document.querySelector('#numbers').textContent)")
    assert re.fullmatch(r"testsrc, vp8, (\d of )?\d rungs?", page.locator("#source").inner_text())
    # The page names the rung, and why it is that one.
    page.wait_for_function(
        "() => /Yours is number \\d from the finest/.test(document.querySelector('#rung').textContent)"
    )
    page.wait_for_function(f"() => ({STATES})()[0] === 'connected'")
    # On a narrow screen, no column of the viewers is out of sight.
    size = page.viewport_size
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.eval_on_selector(".wide", "(box) => box.scrollWidth - box.clientWidth") == 0
    page.set_viewport_size(size)
    # The charts are drawn if their canvas has more than a few colours.
    for chart in ("rates", "rtt", "loss", "freezes"):
        drawn = page.eval_on_selector(
            f"#{chart} canvas",
            """(c) => new Set(new Uint32Array(
                c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size""",
        )
        assert drawn > 3, chart
    # A change of the controller starts a new session, and DELETE ends the one before.
    page.select_option("#controller", "gcc")
    page.wait_for_function("() => document.querySelector('#status').textContent === 'live, by gcc'")
    page.wait_for_function("() => document.querySelectorAll('#viewers tr.gone').length === 1")
    page.reload()
    playing(page)
    page.wait_for_function("() => document.querySelectorAll('#viewers tr.gone').length === 2")
    page.wait_for_function(f"() => ({PRESENT})() === 1")


def test_the_page_and_the_record_count_freezes_by_the_formula_of_the_w3c(opened: Callable[..., Any]) -> None:
    chance = np.random.default_rng(1)
    # Arrivals have an even mean interval, but single pictures are late, and several arrive together after a late one.
    spans = [
        (chance.choice([0.0, 33.0, 67.0, 200.0, 400.0], 300, p=weights) + chance.random(300)).tolist()
        for weights in chance.dirichlet([2, 6, 6, 1, 1], 20)
    ]
    counted = opened(plays=False).evaluate(
        """async (runs) => {
            const { freezes } = await import('/freezes.js');
            return runs.map((spans) => {
                const all = freezes();
                let at = 0;
                all.shown(at);
                for (const span of spans) all.shown(at += span);
                return [all.count, all.time];
            });
        }""",
        spans,
    )
    found = 0
    for run, (count, time_s) in zip(spans, counted, strict=True):
        means = [sum(run[max(0, n - 29) : n + 1]) / min(n + 1, 30) for n in range(len(run))]
        frozen = [span for span, mean in zip(run, means, strict=True) if span >= max(3 * mean, mean + 150)]
        told = json.loads(core.freezes([True] * len(run), (np.array(run) / 1e3).tolist()))
        assert count == told["freeze_count"] == len(frozen)
        assert time_s == pytest.approx(told["freeze_s"]) == pytest.approx(sum(frozen) / 1e3)
        found += len(frozen)
    assert found > 100


def test_a_page_that_the_server_does_not_answer_says_that_there_is_no_video(
    opened: Callable[..., Any],
) -> None:
    page = opened()
    page.route("**/api/viewers", lambda route: route.abort())
    page.reload()
    page.wait_for_function("() => document.querySelector('#status').textContent === 'no video'")
    assert page.locator("#notice").inner_text()


def test_viewers_have_sessions_of_their_own_and_one_too_many_is_told_so(opened: Callable[..., Any]) -> None:
    first = opened()
    opened()
    first.wait_for_function(f"() => ({PRESENT})() === 2")
    third = opened(plays=False)
    third.wait_for_function(
        "() => document.querySelector('#notice').textContent.includes('places are taken')"
    )


def test_a_page_without_the_token_asks_for_it(opened: Callable[..., Any], served: Served) -> None:
    page = opened(served.address, plays=False)
    page.wait_for_selector("#ask-token[open]")
    assert page.locator("#token-wrong").is_hidden()
    page.fill("#token", "another")
    page.click("#token-ok")
    page.wait_for_selector("#token-wrong:not([hidden])")
    page.fill("#token", served.page)
    page.click("#token-ok")
    playing(page)


BASELINE = """
const add = RTCPeerConnection.prototype.addTransceiver;
RTCPeerConnection.prototype.addTransceiver = function (...all) {
  const made = add.apply(this, all);
  if (all[0] !== "video") return made;
  const { codecs } = RTCRtpReceiver.getCapabilities("video");
  made.setCodecPreferences(codecs.filter((each) => /=42e01f/.test(each.sdpFmtpLine) || /rtx/.test(each.mimeType)));
  return made;
};
"""


CONNECTION = (
    "const add = RTCPeerConnection; window.RTCPeerConnection = function () { return window.pc = new add(); }"
)
"""Keeps the page's connection, so that a test can read its statistics."""


def watching(browser: Any, served: Served, script: str = "") -> Any:
    """Open a page that keeps its connection, after running a script in it; return it when pictures move."""
    page = browser.new_page()
    page.add_init_script(script)
    page.add_init_script(CONNECTION)
    page.goto(served.page)
    playing(page)
    return page


def sounding(path: Path, seconds: int = 4) -> Path:
    """Write a film of this length whose left channel has a tone, and return its path."""
    with (
        av.open(str(path), "w") as target,
        av.open(f"testsrc2=size=320x180:rate=25:duration={seconds}", format="lavfi") as pattern,
    ):
        film = target.add_stream("mpeg4", rate=25)
        film.width, film.height, film.pix_fmt = 320, 180, "yuv420p"
        sound = target.add_stream("pcm_s16le", rate=48_000, layout="stereo")
        for n, picture in enumerate(pattern.decode(video=0)):
            frame = picture.reformat(format="yuv420p")
            frame.pts, frame.time_base = n, Fraction(1, 25)
            target.mux(film.encode(frame))
            tone = np.sin(2 * np.pi * 440 * (n / 25 + np.arange(1_920) / 48_000)) * 9_000
            samples = np.stack([tone, 0 * tone], axis=1).astype(np.int16).reshape(1, -1)
            heard = av.AudioFrame.from_ndarray(samples, format="s16", layout="stereo")
            heard.rate, heard.pts, heard.time_base = 48_000, n * 1_920, Fraction(1, 48_000)
            target.mux(sound.encode(heard))
        target.mux(film.encode(None))
        target.mux(sound.encode(None))
    return path


STATS = """async () => {
    const found = {};
    for (const each of (await window.pc.getStats()).values())
        if (/inbound-rtp|remote-outbound-rtp/.test(each.type)) found[`${each.type} ${each.kind}`] = each;
    return found;
}"""
HEARD = f"""async () => {{
    const found = await ({STATS})(), sound = found['inbound-rtp audio'];
    const synchronised = ['audio', 'video'].every((kind) => found[`inbound-rtp ${{kind}}`]?.estimatedPlayoutTimestamp);
    return synchronised && sound.audioLevel > 0 && sound.totalSamplesReceived > 48000
        && found['remote-outbound-rtp audio'] && found['remote-outbound-rtp video'] && true;
}}"""
LEVELS = """async () => {
    const context = new AudioContext();
    await context.resume();
    const split = context.createChannelSplitter(2);
    context.createMediaStreamSource(document.querySelector('video').srcObject).connect(split);
    const seen = [0, 1].map((channel) => {
        const meter = context.createAnalyser();
        split.connect(meter, channel);
        return meter;
    });
    await new Promise((done) => setTimeout(done, 500));
    return seen.map((meter) => {
        const samples = new Float32Array(meter.fftSize);
        meter.getFloatTimeDomainData(samples);
        return Math.max(...samples.map(Math.abs));
    });
}"""


def apart_ms(page: Any) -> float:
    """Return the difference in ms between the film times of the sound and the picture that are played now."""
    return abs(ahead_ms(page))


def ahead_ms(page: Any) -> float:
    """Return by how many ms the film time of the sound that is played now is ahead of that of the picture.

    Both times are from one snapshot, in whole ms. Between two pictures, the browser continues the picture's time.
    """
    found = page.evaluate(STATS)
    heard, seen = (found[f"inbound-rtp {kind}"]["estimatedPlayoutTimestamp"] for kind in ("audio", "video"))
    return float(heard - seen)


def test_a_film_is_heard_in_sync_and_its_pictures_stay_whole(browser: Any, tmp_path: Path) -> None:
    film = sounding(tmp_path / "film.mkv")
    with serving("127.0.0.1", tmp_path / "viewers", "--loop", source=str(film)) as served:
        page = watching(browser, served)
        assert page.eval_on_selector("video", "(video) => video.muted"), "a page may not begin with sound"
        page.click("#sound")
        assert not page.eval_on_selector("video", "(video) => video.muted")
        assert page.inner_text("#sound") == "mute"
        until(lambda: page.evaluate(HEARD))
        left, right = page.evaluate(LEVELS)
        assert left > 0.05 > 10 * right, "both channels are decoded"
        page.wait_for_function("() => /0 packets lost/.test(document.querySelector('#numbers').textContent)")
        # Sound and picture that are played now have the same film time; sound 125 ms late is noticed (ITU-R BT.1359).
        # The browser moves them together in steps of 80 ms per second, which may take some seconds. (The first
        # version measured immediately; on a busy machine the difference was 494 ms then.)
        until(lambda: apart_ms(page) < 125)
        found = page.evaluate(STATS)
        sound, pictures = found["inbound-rtp audio"], found["inbound-rtp video"]
        assert sound["packetsReceived"] > 50
        # No packet of the picture was lost or requested again, and no frame was skipped for the sound.
        assert [pictures[name] for name in ("packetsLost", "nackCount", "pliCount")] == [0, 0, 0]
        (viewer,) = told(served)
        assert viewer["skipped"] == 0
        # Chromium reports sound once in five seconds; before, its loss is unknown.
        assert viewer["audio"]["loss_frac"] in (None, 0.0)
        assert viewer["audio"]["packets"] > 50
        page.click("#sound")
        assert page.eval_on_selector("video", "(video) => video.muted")
        page.close()


@pytest.mark.claim
def test_sound_and_picture_stay_in_sync_for_ten_minutes(browser: Any, tmp_path: Path) -> None:
    film = sounding(tmp_path / "film.mkv")
    with serving("127.0.0.1", tmp_path / "viewers", "--loop", source=str(film)) as served:
        page = watching(browser, served)
        page.click("#sound")
        until(lambda: page.evaluate(HEARD))
        # The browser moves the two together in steps of 80 ms per second.
        until(lambda: apart_ms(page) <= 40)
        ahead, loads = [], []
        for _ in range(600):
            page.wait_for_timeout(1_000)
            ahead.append(ahead_ms(page))
            loads.append(os.getloadavg()[0])
        (viewer,) = told(served)
        found = np.abs(ahead)
        print(f"apart: median {np.median(found):.1f} ms, most {max(found):.1f} ms; {viewer['audio']}")
        far = [(n, ms, loads[n]) for n, ms in enumerate(ahead) if abs(ms) > 30]
        print(f"load {min(loads)} to {max(loads)}; more than 30 ms (second, ms ahead, load): {far}")
        # On an overloaded machine (two cores, load 8 to 12), 2 of 600 samples broke this bound: 50 and 125 ms. While
        # pictures were coded when they were due, the most was 48 ms on a calm one.
        assert max(found) <= 40
        assert viewer["audio"]["loss_frac"] == 0.0
        page.close()


@pytest.mark.parametrize("more", [("testsrc",), ("film", "--no-audio")])
def test_without_sound_the_audio_section_is_rejected_and_there_is_no_button(
    browser: Any, tmp_path: Path, more: tuple[str, ...]
) -> None:
    source = str(sounding(tmp_path / "film.mkv")) if more[0] == "film" else more[0]
    with serving("127.0.0.1", tmp_path / "viewers", *more[1:], source=source) as served:
        page = watching(browser, served)
        sections = page.evaluate("() => window.pc.remoteDescription.sdp.split('m=').slice(1)")
        heads = [section.split(" ")[:2] for section in sections]
        assert [(kind, port == "0") for kind, port in heads] == [("video", False), ("audio", True)]
        assert page.locator("#sound").is_hidden()
        assert "inbound-rtp audio" not in page.evaluate(STATS)
        (viewer,) = told(served)
        assert viewer["audio"] is None
        page.close()


@pytest.mark.parametrize(
    ("host", "codec", "script", "fmtp"),
    [("[::1]", "av1", "", "profile=0"), ("127.0.0.1", "h264", BASELINE, "profile-level-id=42")],
)
def test_what_each_browser_can_decode_comes_over_both_families(
    browser: Any, tmp_path: Path, host: str, codec: str, script: str, fmtp: str
) -> None:
    # This takes seconds: each server has one codec, and the server of the other tests has VP8.
    with serving(host, tmp_path / "viewers", "--codec", codec) as served:
        page = watching(browser, served, script)
        stats = page.evaluate("async () => [...(await window.pc.getStats()).values()]")
        (found,) = (each for each in stats if each["type"] == "codec")
        assert fmtp in found["sdpFmtpLine"]
        page.close()


@pytest.mark.parametrize(
    "codec", ["vp8", *(pytest.param(codec, marks=pytest.mark.claim) for codec in ("h264", "vp9", "av1"))]
)
def test_a_film_that_was_encoded_at_every_quantizer_plays(browser: Any, tmp_path: Path, codec: str) -> None:
    film = sounding(tmp_path / "film.mkv", seconds=1)
    with serving(
        "127.0.0.1", tmp_path / "viewers", "--ladder", "--loop", "--codec", codec, source=str(film)
    ) as served:
        pages = [watching(browser, served) for _ in range(2)]
        for page in pages:
            page.click("#sound")
        until(lambda: all(page.evaluate(HEARD) for page in pages))
        for page in pages:
            page.close()


class Firefox:
    """Firefox, driven by its own protocol Marionette: JSON preceded by its length."""

    def __init__(self, port: int) -> None:
        until = time.monotonic() + 60
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", port))
                break
            except OSError:
                assert time.monotonic() < until, "Firefox does not listen"
                time.sleep(0.2)
        self.file = self.socket.makefile("rb")
        self.read()

    def read(self) -> Any:
        digits = b""
        while (digit := self.file.read(1)) != b":":
            digits += digit
        return json.loads(self.file.read(int(digits)))

    def ask(self, name: str, **more: Any) -> Any:
        told = json.dumps([0, 1, f"WebDriver:{name}", more]).encode()
        self.socket.sendall(b"%d:%s" % (len(told), told))
        _, _, wrong, found = self.read()
        assert wrong is None, wrong
        return found


@pytest.mark.claim
@pytest.mark.skipif(shutil.which("firefox-esr") is None, reason="needs firefox-esr")
@pytest.mark.parametrize("codec", ["vp8", "vp9", "av1"])
def test_firefox_plays(tmp_path: Path, codec: str) -> None:
    # Firefox can't reach a loopback address, so the page is at this machine's own address.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        host = probe.getsockname()[0]
    (port,) = ports(1)
    (tmp_path / "user.js").write_text(f'user_pref("marionette.port", {port});')
    words = ["firefox-esr", "--headless", "--marionette", "--no-remote", "--profile", str(tmp_path)]
    with serving(host, tmp_path / "viewers", "--codec", codec) as served, subprocess.Popen(words) as process:
        try:
            firefox = Firefox(port)
            firefox.ask("NewSession", capabilities={})
            firefox.ask("Navigate", url=served.page)
            plays = "return document.querySelector('video').currentTime > 1"
            until = time.monotonic() + 30
            while not firefox.ask("ExecuteScript", script=plays, args=[])["value"]:
                assert time.monotonic() < until
                time.sleep(0.2)
        finally:
            process.terminate()


def test_at_the_end_each_viewer_has_left_a_run_folder(opened: Callable[..., Any], served: Served) -> None:
    # If other test processes ran the tests before this one, they have the viewers.
    opened()
    page = opened()
    page.wait_for_timeout(500)
    served.process.send_signal(signal.SIGINT)
    _, said = served.process.communicate(timeout=30)
    assert served.process.returncode == 0, said
    page.wait_for_function("() => document.querySelector('#status').className === 'wrong'")
    folders = sorted(served.folder.glob("viewer-*"))
    assert len(folders) >= 2
    for folder in folders:
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["complete"], folder
        assert summary["flows"][0]["controller"] in ("steady", "gcc")
    assert "watches from 127.0.0.1" in said


def told(served: Served) -> list[Any]:
    """Return the server's list of viewers."""
    asked = urllib.request.Request(f"{served.address}api/viewers")
    asked.add_header("authorization", f"Bearer {served.page.partition('token=')[2]}")
    with urllib.request.urlopen(asked, timeout=10) as answer:
        found: list[Any] = json.load(answer)["viewers"]
    return found


def present(served: Served) -> int:
    """Return the number of taken places."""
    return sum(each["state"] != "ended" for each in told(served))


def connected(served: Served) -> int:
    """Return the number of connected viewers."""
    return sum(each["state"] == "connected" for each in told(served))


def test_the_place_of_a_browser_that_was_killed_is_free_within_five_seconds(
    browser: Any, tmp_path: Path
) -> None:
    with serving("127.0.0.1", tmp_path / "viewers", "--viewers", "1") as served:
        # Without a debugging port it would load the page and exit.
        words = [str(CHROMIUM), "--headless", "--no-sandbox", "--remote-debugging-port=0"]
        words += [f"--user-data-dir={tmp_path / 'profile'}", served.page]
        # Its processes are a group, so that all are killed together and none closes its session.
        with subprocess.Popen(
            words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as killed:
            try:
                until(lambda: connected(served) == 1)
                page = browser.new_page()
                page.goto(served.page)
                full = "() => document.querySelector('#notice').textContent.includes('places are taken')"
                page.wait_for_function(full)
            finally:
                os.killpg(killed.pid, signal.SIGKILL)
        died = time.monotonic()
        page.wait_for_function(f"() => ({STATES})()[0] === 'silent'", timeout=8_000)
        # The start of the picture does not count: it took a busy machine five seconds.
        assert time.monotonic() - died < 5.0 + BUSY_S
        page.click("#again")
        page.wait_for_function("() => document.querySelector('video').currentTime > 0.2")
        page.close()
