"""`steadycast serve` and a real browser: Debian's chromium, driven by Playwright.

All tests have one browser and one server: what takes time is that each viewer's session begins and ends.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import needs_chromium
from tests.live.conftest import ports, steadycast

pytestmark = needs_chromium
PRESENT = "() => [...document.querySelectorAll('#viewers tbody tr:not(.gone)')].length"
STATES = "() => [...document.querySelectorAll('#viewers td:nth-child(2)')].map((each) => each.textContent)"


@dataclass
class Served:
    """A served test pattern, in a process of its own."""

    process: subprocess.Popen[str]
    page: str
    folder: Path

    @property
    def address(self) -> str:
        return self.page.partition("#")[0]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    pytest.importorskip("starlette", reason="the extra serve is not installed")
    folder = tmp_path_factory.mktemp("serve") / "viewers"
    listen, media = ports(2)
    words = steadycast("serve", "testsrc", "--size", "320x180", "--viewers", "2", "-o", folder)
    words += ["--listen", f"127.0.0.1:{listen}", "--media-ports", f"{media}-{media + 9}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Served(process, process.stdout.readline().strip(), folder)
        with suppress(ProcessLookupError):
            process.kill()


@pytest.fixture
def opened(served: Served, browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages, and watches that they say nothing on the console and ask no other host."""
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
    # Requests that are refused, or come to nobody any more, are noted by the browser itself.
    assert [text for text in said if not text.startswith("Failed to load resource")] == []
    assert [url for url in foreign if not url.startswith((served.address, "blob:", "data:"))] == []


def playing(page: Any) -> None:
    """Waits until pictures move."""
    page.wait_for_function("() => document.querySelector('video').videoWidth === 320")
    page.wait_for_function("() => document.querySelector('video').currentTime > 0.2")
    page.wait_for_function("() => document.querySelector('#status').textContent.startsWith('live, by')")


def test_a_browser_plays_and_its_page_says_why_the_rate_is_what_it_is(opened: Callable[..., Any]) -> None:
    page = opened()
    page.wait_for_function("() => /kb|Mb/.test(document.querySelector('#viewers tbody').textContent)")
    page.wait_for_function("() => document.querySelector('#why').textContent !== 'starting'")
    page.wait_for_function("() => /[1-9]\\d* decoded, /.test(document.querySelector('#numbers').textContent)")
    assert page.locator("#source").inner_text() == "testsrc, vp8"
    page.wait_for_function(f"() => ({STATES})()[0] === 'connected'")
    # The charts are drawn: more than a few colours stand on their canvas.
    for chart in ("rates", "rtt", "loss", "freezes"):
        drawn = page.eval_on_selector(
            f"#{chart} canvas",
            """(c) => new Set(new Uint32Array(
                c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size""",
        )
        assert drawn > 3, chart
    # Another controller is another session, and the one before ends by DELETE.
    page.select_option("#controller", "gcc")
    page.wait_for_function("() => document.querySelector('#status').textContent === 'live, by gcc'")
    page.wait_for_function("() => document.querySelectorAll('#viewers tr.gone').length === 1")
    page.reload()
    playing(page)
    page.wait_for_function("() => document.querySelectorAll('#viewers tr.gone').length === 2")
    page.wait_for_function(f"() => ({PRESENT})() === 1")


def test_viewers_have_sessions_of_their_own_and_one_too_many_is_told_so(opened: Callable[..., Any]) -> None:
    first = opened()
    # The one of the test before has closed its tab, which says DELETE.
    first.wait_for_function(f"() => ({PRESENT})() === 1")
    opened()
    first.wait_for_function(f"() => ({PRESENT})() === 2")
    third = opened(plays=False)
    third.wait_for_function(
        "() => document.querySelector('#notice').textContent.includes('places are taken')"
    )


def test_a_page_without_the_token_asks_for_it(opened: Callable[..., Any], served: Served) -> None:
    page = opened(served.address, plays=False)
    page.wait_for_selector("#ask-token[open]")
    page.fill("#token", served.page)
    page.click("#token-ok")
    playing(page)


def test_at_the_end_each_viewer_has_left_a_run_folder(opened: Callable[..., Any], served: Served) -> None:
    page = opened()
    page.wait_for_timeout(500)
    served.process.send_signal(signal.SIGINT)
    _, said = served.process.communicate(timeout=30)
    assert served.process.returncode == 0, said
    page.wait_for_function("() => document.querySelector('#status').className === 'wrong'")
    folders = sorted(served.folder.glob("viewer-*"))
    assert len(folders) >= 6
    for folder in folders:
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["complete"], folder
        assert summary["flows"][0]["controller"] in ("steady", "gcc")
    assert "watches from 127.0.0.1" in said
