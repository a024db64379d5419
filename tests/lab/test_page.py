"""The lab's page in a real browser: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import bounded, needs_chromium
from tests.lab.conftest import SCENARIO, Lab, start, stop
from tests.lab.test_watch import sent

pytestmark = needs_chromium
RATE = '[data-key="Network/topology.bottleneck.rate"]'


@pytest.fixture
def opened(lab: Lab, browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages, and checks that they write nothing to the console and contact no other host."""
    contexts: list[Any] = []
    said: list[str] = []
    foreign: list[str] = []
    # A refused text is a refused request, which the browser logs.
    expected = ["status of 422"]

    def page(address: str = lab.page, *, context: Any = None, expects: str = "", **how: Any) -> Any:
        expected.extend([expects] if expects else [])
        if context is None:
            context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **how})
            context.grant_permissions(["clipboard-read", "clipboard-write"])
            contexts.append(context)
        found = context.new_page()
        found.on("console", lambda message: said.append(message.text))
        found.on("pageerror", lambda error: said.append(str(error)))
        found.on("request", lambda asked: foreign.append(asked.url))
        found.goto(address)
        found.wait_for_selector("#numbers table")
        return found

    yield page
    for context in contexts:
        context.close()
    assert [text for text in said if not any(each in text for each in expected)] == []
    assert [url for url in foreign if not url.startswith((lab.address, "blob:", "data:"))] == []


def text_of(page: Any) -> str:
    found = page.locator("#text").input_value()
    assert isinstance(found, str)
    return found


def slide(page: Any, knob: str, value: int) -> None:
    page.eval_on_selector(
        knob, "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }", value
    )


def first_cells(page: Any) -> list[str]:
    found = page.eval_on_selector_all(
        "#numbers tbody tr td:nth-child(2)", "(all) => all.map((each) => each.textContent)"
    )
    assert isinstance(found, list)
    return found


def settled(page: Any) -> None:
    page.wait_for_function(
        "() => document.querySelector('#status').textContent.includes('pictures measured')"
    )


def test_a_slider_changes_the_text_the_charts_and_the_numbers(opened: Callable[..., Any]) -> None:
    page = opened()
    settled(page)
    before = first_cells(page)
    slide(page, RATE, 160)
    page.wait_for_function("() => !document.querySelector('#text').value.includes('600kbps')")
    rate = re.search(r'rate = "([0-9.]+Mbps)"', text_of(page))
    assert rate is not None
    assert text_of(page) == SCENARIO.replace("600kbps", rate[1])
    assert page.locator("#groups .knob.rate output").inner_text() == rate[1].replace("Mbps", " Mb/s")
    settled(page)
    assert first_cells(page) != before
    # The charts are drawn if their canvas has more than a few colours.
    for chart in ("rates", "delay", "queue", "loss"):
        drawn = page.eval_on_selector(
            f"#{chart} canvas",
            """(c) => new Set(new Uint32Array(
                c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size""",
        )
        assert drawn > 20, chart


def test_the_charts_follow_a_slider_while_it_moves_and_end_where_it_ends(opened: Callable[..., Any]) -> None:
    page = opened()
    settled(page)
    painted = page.eval_on_selector(
        RATE,
        """async (slider) => {
            let painted = 0;
            new MutationObserver(() => { painted += 1; }).observe(
                document.querySelector('#numbers'), { childList: true });
            for (let value = 60; value <= 180; value += 1) {
                slider.value = value;
                slider.dispatchEvent(new Event('input'));
                await new Promise((done) => setTimeout(done, 20));
            }
            return painted;
        }""",
    )
    assert painted >= 1
    page.wait_for_function(
        """() => {
            const [, text] = /rate = "([^"]+)bps"/.exec(document.querySelector('#text').value);
            return document.querySelector('#groups .knob.rate output').textContent.replace(' ', '') === `${text}b/s`;
        }"""
    )
    settled(page)


def test_the_text_moves_the_sliders(opened: Callable[..., Any]) -> None:
    page = opened()
    page.fill(
        "#text",
        SCENARIO.replace("600kbps", "2Mbps").replace("asmp", "tfrc").replace("count = 1", "count = 4"),
    )
    page.wait_for_function(
        "() => document.querySelector('#groups .knob.rate output').textContent === '2 Mb/s'"
    )
    assert page.locator("#side-a .which select").input_value() == "tfrc"
    assert page.locator("#groups .knob.whole output").first.inner_text() == "4"
    page.wait_for_function("() => document.querySelectorAll('#numbers tbody tr').length === 10")


def test_a_bad_text_is_told_at_its_line_and_the_old_charts_stay_marked(opened: Callable[..., Any]) -> None:
    page = opened()
    settled(page)
    before = first_cells(page)
    page.fill("#text", SCENARIO.replace('delay = "15ms"', 'delay = "15"').replace('"asmp"', '"asmq"'))
    page.wait_for_selector("#problems li")
    assert page.locator("#problems li").count() == 2
    assert 'did you mean "asmp"?' in page.locator("#problems").inner_text()
    assert page.eval_on_selector_all("#colours b", "(all) => all.map((each) => each.textContent)") == [
        "10",
        "15",
    ]
    assert page.locator("#old").is_visible()
    assert "stale" in (page.locator("#seen").get_attribute("class") or "")
    assert first_cells(page) == before
    page.get_by_role("button", name="line 15").click()
    chosen = page.eval_on_selector("#text", "(box) => box.value.slice(box.selectionStart, box.selectionEnd)")
    assert chosen == 'controller = "asmq"'
    page.fill("#text", SCENARIO)
    page.wait_for_selector("#old", state="hidden")
    assert page.locator("#problems li").count() == 0


def test_b_is_another_controller_its_own_problem_or_nothing(opened: Callable[..., Any]) -> None:
    page = opened()
    rows = page.locator("#numbers tbody tr")
    assert rows.count() == 4
    page.select_option("#b", "pgmcc")
    page.wait_for_function("() => document.querySelector('#numbers').textContent.includes('B video (pgmcc)')")
    page.fill("#text", SCENARIO.replace('playout = "400ms"', "receivers = 3"))
    page.wait_for_function("() => document.querySelector('#numbers').textContent.includes('→ 3')")
    page.select_option("#b", "tfrc")
    page.wait_for_selector("#side-b .about.wrong")
    assert rows.count() == 2
    page.select_option("#b", "")
    page.wait_for_selector("#side-b .about:not(.wrong)", state="attached")
    assert page.locator("#report-b").is_disabled()


def test_the_decision_and_its_why_stand_under_the_pointer(opened: Callable[..., Any]) -> None:
    page = opened()
    settled(page)
    box = page.locator("#rates .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    page.wait_for_function("() => document.querySelector('#pointer .t')")
    said = page.locator("#pointer").inner_text()
    assert re.match(r"(5\.9|6\.0|6\.1) s\n", said)
    assert re.search(r"A video \(asmp\) ?[\d.]+ [kM]b/s, limited by (network|encoder|start|floor)", said)
    assert re.search(r"B video \(tfrc\) ?[\d.]+ [kM]b/s, limited by", said)
    assert re.search(r"A: [IPB] frame, quantizer \d+, (shown|late|lost|undecodable)", said)


def test_two_tabs_keep_their_scenarios_and_neither_ends_the_others_run(opened: Callable[..., Any]) -> None:
    one = opened()
    two = opened(context=one.context)
    for step in range(6):
        slide(one, RATE, 100 + step)
        slide(two, RATE, 200 + step)
    for page in (one, two):
        settled(page)
    assert text_of(one) != text_of(two)
    rates = [page.locator("#groups .knob.rate output").inner_text() for page in (one, two)]
    assert rates[0].endswith("Mb/s")
    assert float(rates[0].split()[0]) < float(rates[1].split()[0])


def test_a_killed_process_costs_nothing_but_time(lab: Lab, opened: Callable[..., Any]) -> None:
    page = opened()
    settled(page)
    workers = lab.workers()
    assert workers
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    before = first_cells(page)
    slide(page, RATE, 170)
    settled(page)
    page.wait_for_function(
        "(before) => document.querySelector('#numbers td:nth-child(2)').textContent !== before", arg=before[0]
    )
    assert page.locator("#problems li").count() == 0


def test_all_is_reached_and_moved_by_the_keyboard_alone(opened: Callable[..., Any]) -> None:
    page = opened(reduced_motion="reduce")
    settled(page)
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("() => document.activeElement.id || document.activeElement.tagName"))
        if reached[-1] == "text":
            break
    assert {"link", "toml", "report-a", "b", "time", "make-film", "reset", "text"} <= set(reached)
    assert sum(name.startswith("k-") for name in reached) >= 6
    page.focus(RATE)
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("() => !document.querySelector('#text').value.includes('600kbps')")
    assert page.evaluate("() => document.activeElement.dataset.key") == "Network/topology.bottleneck.rate"
    page.focus("#time")
    page.keyboard.press("Home")
    page.keyboard.press("PageUp")
    assert page.locator("#pointer .t").inner_text().endswith(" s")


def test_every_control_has_a_name(opened: Callable[..., Any]) -> None:
    page = opened()
    page.evaluate("() => document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('input, select, textarea, button, video')].filter((each) =>
             each.checkVisibility() && !(each.labels && each.labels.length) && !each.getAttribute('aria-label')
             && !each.textContent.trim()).map((each) => each.outerHTML)"""
    )
    assert nameless == []


@pytest.mark.parametrize("width", [400, 768, 1280])
def test_nothing_is_wider_than_the_window(opened: Callable[..., Any], width: int) -> None:
    page = opened(viewport={"width": width, "height": 800})
    settled(page)
    assert page.evaluate("() => document.documentElement.scrollWidth") == width
    for part in ("#side-a", "#rates", "#numbers", "#make-film", "#text"):
        box = page.locator(part).bounding_box()
        assert box is not None, part
        assert box["x"] >= 0, part
        assert box["x"] + box["width"] <= width, part


def test_long_lines_of_the_text_are_wrapped_and_their_colours_lie_on_them(opened: Callable[..., Any]) -> None:
    page = opened(viewport={"width": 400, "height": 800})
    page.fill("#text", SCENARIO + "# " + "a long line " * 30)
    page.wait_for_function("() => document.querySelector('#colours').textContent.includes('a long line')")
    # The whole text is reached by scrolling down, and the coloured copy is as high as the input.
    assert page.eval_on_selector("#text", "(box) => box.scrollWidth - box.clientWidth") == 0
    heights = [page.eval_on_selector(each, "(box) => box.scrollHeight") for each in ("#text", "#colours")]
    assert abs(heights[0] - heights[1]) <= 1
    last = (
        "(box) => box.lastChild.getBoundingClientRect().height / parseFloat(getComputedStyle(box).lineHeight)"
    )
    # 362 characters in a box of at most 400 px. A character takes 7 to 9 px.
    assert 7 <= page.eval_on_selector("#colours", last) <= 12
    # A number with two digits is also on one line.
    number = last.replace("lastChild", "lastChild.firstChild")
    assert page.eval_on_selector("#colours", number) <= 1


def test_a_link_carries_the_scenario_to_another_browser(lab: Lab, opened: Callable[..., Any]) -> None:
    page = opened()
    page.select_option("#b", "pgmcc")
    changed = SCENARIO.replace("600kbps", "777kbps").replace("# the way in", "# the way in: é ∑")
    page.fill("#text", changed)
    settled(page)
    page.click("#link")
    page.wait_for_function("() => location.hash.startsWith('#s=')")
    link = page.evaluate("() => location.href")
    assert page.evaluate("() => navigator.clipboard.readText()") == link
    assert lab.token not in link
    other = opened(f"{lab.page}&{link.partition('#')[2]}")
    assert text_of(other) == changed
    assert other.locator("#b").input_value() == "pgmcc"
    # The same browser opens the link with the changes.
    assert text_of(opened(link, context=page.context)) == changed


def test_a_page_without_the_token_asks_for_it(lab: Lab, browser: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(lab.address)
    page.wait_for_selector("#ask-token[open]")
    page.fill("#token", lab.page)
    page.click("#token-ok")
    page.wait_for_selector("#numbers table")
    assert text_of(page) == SCENARIO
    context.close()


def test_the_film_moves_and_the_pointer_follows_it(opened: Callable[..., Any]) -> None:
    page = opened()
    settled(page)
    page.click("#make-film")
    page.wait_for_selector("#video", state="visible")
    page.wait_for_function("() => document.querySelector('#video').readyState >= 2")
    video = page.evaluate(
        "() => { const v = document.querySelector('#video'); return [v.videoWidth, v.videoHeight, v.duration]; }"
    )
    assert video[:2] == [3 * 176, 144]
    assert 11 < video[2] < 12.1
    captions = page.locator(".captions span").all_inner_texts()
    assert captions == ["original", "A asmp", "B tfrc"]
    page.evaluate("() => document.querySelector('#video').play()")
    page.wait_for_function("() => document.querySelector('#video').currentTime > 0.3")
    page.wait_for_function("() => parseFloat(document.querySelector('#pointer .t').textContent) > 0.2")
    page.evaluate("() => document.querySelector('#video').pause()")
    # A click on the frames goes to their time.
    strip = page.locator("#strips canvas").first
    box = strip.bounding_box()
    assert box is not None
    strip.click(position={"x": box["width"] * 0.75, "y": 8})
    page.wait_for_function("() => Math.abs(document.querySelector('#video').currentTime - 9) < 0.2")


def test_what_is_saved_is_what_is_shown(opened: Callable[..., Any]) -> None:
    page = opened()
    slide(page, RATE, 130)
    settled(page)
    with page.expect_download() as saved:
        page.click("#toml")
    assert saved.value.suggested_filename == "small.toml"
    assert saved.value.path().read_text(encoding="utf-8") == text_of(page)
    with page.expect_download() as saved:
        page.click("#report-b")
    assert saved.value.suggested_filename == "small-b.html"
    assert "video (tfrc)" in saved.value.path().read_text(encoding="utf-8")


def test_a_lab_that_has_ended_is_told_and_the_page_stays(opened: Callable[..., Any]) -> None:
    page = opened(expects="net::ERR_FAILED")
    settled(page)
    before = first_cells(page)
    page.route("**/api/**", lambda route: route.abort())
    slide(page, RATE, 120)
    page.wait_for_selector("#notice:not([hidden])")
    assert "The lab has ended" in page.locator("#notice").inner_text()
    assert first_cells(page) == before
    page.unroute("**/api/**")
    slide(page, RATE, 121)
    page.wait_for_selector("#notice", state="hidden")


def test_a_call_that_was_read_is_a_beside_a_controller_on_its_path(browser: Any, tmp_path: Path) -> None:
    from steadycast import call
    from steadycast.run import run

    text = (
        SCENARIO.partition("[[flow]] # a download")[0]
        .replace('"asmp"', '"gcc"')
        .replace('"synthetic"', '"rfc8593"')
    )
    (tmp_path / "net.toml").write_text(
        text.replace('encode = { size = "176x144", q = "4-10" }', 'feedback = "twcc"')
    )
    run(
        tmp_path / "net.toml",
        set=['record.pcap=["video.src-left"]', "duration=20s"],
        out=tmp_path / "run",
        quality=False,
    )
    call.write(call.read(tmp_path / "run"), tmp_path / "call")
    lab = start(tmp_path, str(tmp_path / "call"), file=False)
    said: list[str] = []
    with bounded(lab.process):
        with closing(browser.new_page(viewport={"width": 400, "height": 800})) as page:
            page.on("pageerror", lambda error: said.append(str(error)))
            page.goto(lab.page)
            page.wait_for_selector("#numbers table >> nth=1")
            assert page.locator("#side-a .which").inner_text() == "the recorded call"
            assert page.locator("#report-a").is_disabled()
            before = page.locator("#numbers").inner_text()
            page.select_option("#b", "scream")
            page.wait_for_function("() => document.querySelector('#numbers').innerText.includes('scream')")
            after = page.locator("#numbers").inner_text()
            assert before.splitlines()[:2] == after.splitlines()[:2], "the record stays"
            assert said == []
        assert stop(lab) == 0


def test_a_live_session_is_shown_as_it_goes_on(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "sent.jsonl"
    file.write_text("".join(sent(float(n)) for n in range(1, 20)))
    lab = start(tmp_path, "--watch", str(file), file=False)
    said: list[str] = []
    with bounded(lab.process):
        with closing(browser.new_page(viewport={"width": 900, "height": 800})) as page:
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.goto(lab.page)
            page.wait_for_function(
                "() => document.querySelector('#says').textContent.includes('after 19.0 s')"
            )
            assert page.locator("#text").is_hidden()
            assert (
                "limited by network: least of the receivers' rates" in page.locator("#pointer").inner_text()
            )
            with file.open("a") as opened:
                opened.write(sent(20.0, 900_000.0))
            page.wait_for_function(
                "() => document.querySelector('#says').textContent.includes('sending 900 kb/s after 20.0 s')"
            )
            page.wait_for_function("() => document.querySelector('#pointer .t').textContent === '20.0 s'")
            assert said == []
        assert stop(lab) == 0
