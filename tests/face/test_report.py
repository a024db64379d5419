from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from steadycast import record
from steadycast.errors import UserError
from steadycast.folder import Folder
from steadycast.report import canvas, figures, say, series, terminal
from steadycast.report import page as page_module
from steadycast.report.answer import answer, nothing_compared
from steadycast.report.page import write_report
from steadycast.report.run_comparison import write_seeds_report
from steadycast.run import run

from tests.conftest import ROOT
from tests.face.made_up import make


class Page(HTMLParser):
    """Collects what a browser would load, the targets of links, and the anchors that exist."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {k: v or "" for k, v in attrs}
        if tag in ("link", "iframe", "object", "embed") or (
            tag in ("script", "img", "source") and "src" in values
        ):
            self.loads.append(values.get("src") or values.get("href") or tag)
        if tag == "a":
            self.links.append(values.get("href", ""))
        if "id" in values:
            self.ids.append(values["id"])
        if tag not in ("meta", "br", "img", "link", "hr", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(run_folder: Path) -> str:
    return write_report(run_folder).read_text(encoding="utf-8")


def test_the_page_loads_nothing_and_is_well_formed(page: str) -> None:
    read = Page(page)
    assert read.open == []
    assert read.loads == []
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_every_word_that_is_linked_is_in_the_glossary_and_ids_are_unique(page: str) -> None:
    read = Page(page)
    words = [link for link in read.links if link.startswith("#w-")]
    assert len(words) > 20
    assert {w[1:] for w in words} <= set(read.ids)
    assert len(read.ids) == len(set(read.ids))


def test_all_figures_are_there_and_name_the_command_that_makes_them(page: str) -> None:
    assert page.count('<svg role="img"') == len(figures.PLOTS)
    for plot in figures.PLOTS:
        assert f"--figure {plot.name}</code>" in page


def test_bands_and_ranks_are_spoken_of_where_there_are_several_receivers(page: str, tmp_path: Path) -> None:
    make(tmp_path / "one", receivers=1, seconds=10)
    one = write_report(tmp_path / "one").read_text()
    notes = ("Band: from the lowest to the highest receiver.", "Receivers ranked by their mean score.")
    assert [page.count(note) for note in notes] == [2, 1]
    assert [one.count(note) for note in notes] == [0, 0]
    assert "The background colour shows what limited the rate." in one


def test_no_line_of_the_first_sentences_ends_between_a_number_and_its_unit(page: str) -> None:
    (first,) = re.findall(r'<p class="answer">(.*?)</p>', page)
    assert re.search(r"\d\N{NO-BREAK SPACE}(%|[kM]b/s)", first)
    assert not re.search(r"\d (%|[kM]?b/s|ms|dB)", first)
    assert (
        page_module.prose("5 seconds & 3 %, 20 ms")
        == "5 seconds &amp; 3\N{NO-BREAK SPACE}%, 20\N{NO-BREAK SPACE}ms"
    )


def test_the_same_folder_gives_the_same_page(run_folder: Path, page: str) -> None:
    assert write_report(run_folder).read_text(encoding="utf-8") == page


def test_more_than_twenty_receivers_are_folded_away_worst_first(page: str) -> None:
    assert "<details><summary>all 25 receivers, worst first</summary>" in page
    table = page[page.index("each receiver") :]
    assert table.index("video.dst9<") < table.index("video.dst1<")  # dst9 is the one on bad Wi-Fi


def test_an_encoder_limited_run_says_first_that_it_compares_nothing(tmp_path: Path) -> None:
    make(tmp_path / "run", receivers=1, seconds=62, encoder_limited=True)
    text = write_report(tmp_path / "run").read_text(encoding="utf-8")
    first = re.search(r"<p class=\"(\w+)\">(.*?)</p>", text)
    assert first is not None
    assert first[1] == "nothing"
    assert (
        first[2]
        .replace("\N{NO-BREAK SPACE}", " ")
        .startswith(
            "This run does not compare controllers: for 77 % of the time video (asmp) was limited by its"
        )
    )


@pytest.mark.parametrize("late", [0, 5])
@pytest.mark.parametrize("waited_ms", [20.0, 672.0])
def test_late_pictures_that_waited_at_an_idle_links_sender_are_explained(late: int, waited_ms: float) -> None:
    flow = {
        "name": "video",
        "kind": "video",
        "controller": "steady",
        "limited_by_frac": {"network": 0.0, "encoder": 1.0, "start": 0.0, "cap": 0.0},
        "backlog_ms": {"p50": waited_ms / 2, "p95": waited_ms},
        "receivers": [{"frames": {"sent": 12, "late": late}}],
    }
    said = nothing_compared(flow) or ""
    assert "encoder's best quality" in said
    explained = late > 0 and waited_ms > 100
    assert (
        "42 % of the pictures were late. At the sender 5 % of the packets waited for 672 ms" in said
    ) == explained
    assert ('vbr = "frame"' in said) == explained


def test_a_live_session_is_not_told_to_compare_and_shows_nothing_that_it_has_not(tmp_path: Path) -> None:
    make(tmp_path / "run", receivers=1, seconds=62, encoder_limited=True)
    path = tmp_path / "run" / "summary.json"
    summary = json.loads(path.read_text())
    summary |= {"world": "live", "from_s": 0.0, "to_s": 61.97566}
    summary["program"]["commit"] = summary["scenario"]["sha256"] = None
    path.write_text(json.dumps(summary))
    text = write_report(path.parent).read_text(encoding="utf-8")
    assert "does not compare" not in text
    (head,) = re.findall("<h1>(.*?)</h1>", text)
    assert head.endswith(" · live · 0 to 62 s")
    end = text[text.index("How to repeat this run") : text.index(">Words<")]
    assert "steadycast " in end
    assert "None" not in end


def test_a_network_limited_run_opens_with_who_got_what(run_folder: Path) -> None:
    first = answer(Folder.open(run_folder).summary)[0]
    assert re.fullmatch(
        r"video \(asmp\) got \S+ Mb/s, \d+ % of its fair share; "
        r"tcp \(newreno\) got \S+ Mb/s, \d+ % of its fair share\.",
        first,
    )


@pytest.mark.parametrize(
    ("encoder", "rate", "says"),
    [
        (0.0, 1e6, "video ran at a fixed rate: it did not react to the network."),
        (1.0, 1e6, "video sent at the rate of its encoder's best quality: it did not react to the network."),
        (0.0, 0.0, "video (fixed) got 0 b/s."),
    ],
)
def test_what_answers_to_nothing_is_called_fixed_only_when_it_was(
    encoder: float, rate: float, says: str
) -> None:
    shares = {"network": 0.0, "encoder": encoder, "start": 0.0, "cap": 1.0 - encoder}
    flow = {"name": "video", "kind": "video", "controller": "fixed", "throughput_bps": rate}
    assert answer({"flows": [flow | {"limited_by_frac": shares}]})[0] == says


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        ({"network": 0.2, "encoder": 0.0, "start": 0.8, "cap": 0.0}, "still in its start phase for 80 %"),
        ({"network": 0.4, "encoder": 0.3, "start": 0.3, "cap": 0.0}, "the network limited it for only 40 %"),
        ({"network": 0.0, "encoder": 0.0, "start": 0.0, "cap": 1.0}, "was at its cap for 100 %"),
    ],
)
def test_what_else_held_the_rate_is_said_first(shares: dict[str, float], says: str) -> None:
    flow = {
        "name": "video",
        "kind": "video",
        "controller": "asmp",
        "throughput_bps": 1e6,
        "limited_by_frac": shares,
    }
    assert says in answer({"flows": [flow]})[0]


@pytest.mark.parametrize(
    ("arrived_loss", "reports", "says"),
    [
        (
            [1.0],
            0,
            "no packet of video (asmp) arrived. Check the rate and the loss of the links from its sender",
        ),
        ([1.0, 0.5], 0, "no report reached the sender of video (asmp). Make the run longer, or check"),
        ([0.0], 0, "no report reached the sender of video (asmp). Make the run longer, or check"),
        ([None], 0, "no report reached the sender of video (asmp). Make the run longer, or check"),
        ([0.0], 1, "still in its start phase"),
    ],
)
def test_a_path_that_carries_nothing_is_no_start_phase_that_is_too_short(
    arrived_loss: list[float | None], reports: int, says: str
) -> None:
    flow = {
        "name": "video",
        "kind": "video",
        "controller": "asmp",
        "limited_by_frac": {"start": 1.0},
        "feedback_packets": reports,
        "receivers": [{"loss_frac": loss} for loss in arrived_loss],
    }
    said = nothing_compared(flow)
    assert said is not None
    assert says in said


EVENTS = """
format = 1
name = "events"
duration = "12s"
warmup = "2s"

[topology]
shape = "dumbbell"
bottleneck = { rate = "1Mbps", delay = "10ms", back = { rate = "200kbps", queue = "fq-codel" } }

[[flow]]
name = "video"
kind = "video"
controller = "tfmcc"
cast = "multicast"
receivers = 2
media = "greedy"
floor = "500kbps"

[[flow]]
name = "other"
kind = "video"
controller = "tfrc"
media = "greedy"
start = "0s"

[[flow]]
name = "upload"
kind = "tcp"
from = "right"
to = "left"

[[event]]
at = "3s"
set = { link = ["bottleneck"], delay = "20ms" }

[[event]]
at = "4s"
leave = ["video.dst1"]

[[event]]
at = "6s"
stop = ["video", "other"]

[[event]]
at = "9s"
start = ["other"]
"""


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    path = tmp_path_factory.mktemp("events")
    (path / "events.toml").write_text(EVENTS)
    run(path / "events.toml", out=path / "run")
    return Folder.open(path / "run")


def test_events_are_labelled_with_names_and_not_with_lists(eventful: Folder) -> None:
    assert [text for _, text in series.events(eventful)] == [
        "bottleneck: 20ms",
        "video.dst1 leaves",
        "video and other stop",
        "other starts",
    ]


def test_the_shares_of_limits_in_the_figure_are_those_of_the_table(eventful: Folder) -> None:
    for flow in eventful.summary["flows"][:2]:
        decisions = figures.decided(eventful).filter(pl.col("flow") == flow["name"])
        periods = figures.limit_periods(eventful, flow["name"], decisions)
        shares = figures.limit_shares(periods, eventful.summary["from_s"])
        if "floor" in shares:
            shares["network"] = shares.get("network", 0.0) + shares.pop("floor")
        told = {limit: share for limit, share in flow["limited_by_frac"].items() if share}
        assert shares == pytest.approx(told, abs=0.01)


def test_the_capacity_in_the_figure_names_its_direction(eventful: Folder) -> None:
    busiest = series.capacity(eventful)
    assert busiest is not None
    assert busiest[0] == "bottleneck, back"


def test_a_run_without_pixels_has_no_quality_but_a_report(tmp_path: Path) -> None:
    make(tmp_path / "run", receivers=2, seconds=62, pixels=False)
    text = write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert "its pictures were not measured)" in text
    assert "--figure mos" not in text
    assert "--figure quality" in text  # even without pixels, there are frames' fates and quantizers


def test_a_bare_summary_without_tables_still_makes_a_report(tmp_path: Path) -> None:
    make(tmp_path / "run", receivers=2, seconds=62)
    for table in (tmp_path / "run").glob("*.parquet"):
        table.unlink()
    (tmp_path / "run" / "scenario.toml").unlink()
    (tmp_path / "run" / "cost.json").unlink()
    text = write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert Page(text).open == []
    assert "each receiver" in text


def test_a_broken_promise_is_said_with_its_name_and_what_was_promised(tmp_path: Path) -> None:
    summary = make(tmp_path / "run", seconds=70)
    kept, broken = (
        summary["invariants"][0],
        {"id": "a.b", "about": "it never <does>", "checked": 7, "broken": 2},
    )
    summary["invariants"] = [kept, broken]
    (tmp_path / "run" / "summary.json").write_text(json.dumps(summary))
    text = write_report(tmp_path / "run").read_text()
    assert (
        text.index("Broken promises") < text.index("it never &lt;does&gt;") < text.index("1 promise was kept")
    )
    assert kept["about"] in text


def test_names_are_text_and_never_markup(tmp_path: Path) -> None:
    make(tmp_path / "run", receivers=1, seconds=62, controller="<script>alert(1)</script>.py:Mine")
    text = write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_a_damaged_table_is_told_not_skipped(run_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(run_folder, tmp_path / "run")
    path = tmp_path / "run" / "rates.parquet"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(UserError, match="the table is damaged"):
        write_report(tmp_path / "run")


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_figure_alone_can_be_saved(run_folder: Path, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"rates.{ending}"
    figures.save(Folder.open(run_folder), "rates", path)
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml", b"%PDF-")


def test_labels_at_line_ends_never_overlap() -> None:
    _, (axes,) = canvas.canvas()
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 10)
    canvas.label_ends(axes, [canvas.Label(5.0 + i / 100, f"line {i}", "#000000") for i in range(5)])
    heights = sorted(text.xy[1] for text in axes.texts)  # type: ignore[attr-defined]
    inches = axes.get_position().height * 3.0
    gaps = [(b - a) / 10 * inches * 72 for a, b in pairwise(heights)]
    assert min(gaps) >= 8.5  # points: the labels' size


@pytest.mark.parametrize("words", [1, 3, 6, 12])
def test_a_label_of_any_length_stays_on_the_drawing_and_keeps_its_words(words: int) -> None:
    figure, (axes,) = canvas.canvas()
    text = " ".join(("fair", "share,", "downloads", "1.25", "Mb/s", "WWW") * 2)[: 7 * words].strip()
    canvas.label_ends(axes, [canvas.Label(0.5, text, "#000000")])
    (written,) = axes.texts
    assert written.get_text().split() == text.split()
    assert written.get_window_extent().x1 <= figure.bbox.x1


def test_several_seeds_have_a_page_with_their_spread(seeds_folder: Path) -> None:
    text = write_seeds_report(seeds_folder).read_text(encoding="utf-8")
    assert Page(text).open == []
    assert re.search(r"video \(asmp\) got [\d.]+ ± [\d.]+ Mb/s", text)
    assert 'href="seed-2/report.html"' in text


@pytest.mark.parametrize(
    ("how", "value", "said"),
    [
        (say.rate, 1.61e6, "1.61 Mb/s"),
        (say.rate, 999_999.0, "1.00 Mb/s"),
        (say.rate, 64_000, "64.0 kb/s"),
        (say.rate, 12, "12.0 b/s"),
        (say.frac, 0.001, "0.1 %"),
        (say.frac, 0.98, "98 %"),
        (say.ms, 12_000.0, "12.0 s"),
        (say.count, 15800, "15 800"),
        (say.db, None, "–"),
        (say.rate, {"mean": 1.61e6, "ci95": 4.1e4, "min": 1e6, "max": 2e6, "n": 5}, "1.610 ± 0.041 Mb/s"),
        (say.frac, {"mean": 0.86, "ci95": 0.0091, "min": 0.8, "max": 0.9, "n": 5}, "86.00 ± 0.91 %"),
        (say.ms, {"mean": 119.2, "ci95": 23.4, "min": 1.0, "max": 2.0, "n": 5}, "119 ± 23 ms"),
        (say.rate, {"mean": 1e6, "ci95": 0.0, "min": 1e6, "max": 1e6, "n": 5}, "1.00 ± 0 Mb/s"),
        (say.frac, {"mean": 0.0, "ci95": 0.0, "min": 0.0, "max": 0.0, "n": 5}, "0 ± 0 %"),
        (say.score, {"mean": 4.2, "ci95": None, "min": 4.2, "max": 4.2, "n": 1}, "4.20"),
    ],
)
def test_numbers_are_said_with_unit_and_spread(how: object, value: object, said: str) -> None:
    assert how(value) == said


def test_every_column_of_every_table_says_what_stands_in_it() -> None:
    for where in ("terminal", "flows", "compare", "runs", "receivers", "links", "tcp", "pauses", "sessions"):
        for column in record.table(where):
            value = "pictures" if column.figure.unit == "text" else 0.75
            assert say.how(column.figure)(value) != say.NOTHING, (where, column.heading)


def test_the_reasons_of_a_flow_take_all_of_its_time(run_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(run_folder, path)
    decisions = pl.read_parquet(path / "decisions.parquet").with_row_index()
    rules = pl.concat_str(pl.lit("rule "), pl.col("index") % 23)
    decisions.with_columns(rule=rules).drop("index").write_parquet(path / "decisions.parquet")
    reasons = page_module.page(Folder.open(path)).partition("its reasons")[2].partition("<h2")[0]
    shares = [float(share) for share in re.findall(r"<td>([0-9.]+) %", reasons)]
    assert len(shares) == 11
    assert sum(shares) == pytest.approx(100, abs=0.5 * len(shares)), "each is rounded"


def test_a_window_is_drawn_while_its_flow_sends(run_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(run_folder, path)
    table = pl.read_parquet(path / "tcp.parquet")
    table.with_columns(cwnd_packets=7.0, srtt_ms=40.0).write_parquet(path / "tcp.parquet")
    for panel in figures.drawing(Folder.open(path), "tcp").figure.axes:
        drawn = [np.asarray(line.get_xdata()) for line in panel.lines if line.get_label() == "tcp (newreno)"]
        assert [(min(t), max(t)) for t in drawn] == [(8.0, 69.0)], "it starts at 8 s"


def test_many_flows_are_drawn_as_one_band_per_kind() -> None:
    flows: list[dict[str, Any]] = [
        {"name": f"{kind}-{n}", "kind": "tcp" if kind == "cubic" else "video", how: kind, "receivers": [{}]}
        for kind, how in (("cubic", "congestion"), ("tfrc", "controller"))
        for n in range(6)
    ]
    lines = [series.Series(f, [0.5, 1.5], [i, i], [i, i], [i, i]) for i, f in enumerate(flows)]
    joined = series.grouped(lines)
    assert [series.flow_label(one.flow) for one in joined] == ["6 × cubic\nmedian", "6 × tfrc\nmedian"]
    assert (joined[1].low, joined[1].high) == ([6, 6], [11, 11])
    assert series.grouped(lines[:3]) == lines[:3]


def test_the_first_sentences_say_what_was_missed_and_which_play_out_would_have_done() -> None:
    frames = {"sent": 100, "ok": 53, "lost": 5, "late": 40, "undecodable": 2}
    receiver = {
        "name": "video.dst1",
        "frames": frames,
        "frozen_frac": 0.055,
        "playout_needed_ms": 634.0,
        "picture_score": 3.85,
        "rate_score": 3.1,
        "mos": {"mean": 3.85, "share": {}},
        "psnr_db": {"raw": {"y": 33.8}},
    }
    flow = {
        "name": "video",
        "kind": "video",
        "controller": "asmp",
        "throughput_bps": 5e5,
        "receivers": [receiver],
    }
    seen = answer({"complete": True, "flows": [flow]})[-1]
    assert "47 % of the frames were not shown whole and in time" in seen
    assert "the picture was frozen for 5.5 % of the time" in seen
    assert "a play-out delay of 634 ms would have been enough" in seen
    frames.update(ok=100, lost=0, late=0, undecodable=0)
    assert "frames" not in answer({"complete": True, "flows": [flow]})[-1]


def test_a_simulcast_is_shown_with_the_rate_and_the_groups_of_each_receiver(tmp_path: Path) -> None:
    sets = ["duration=30s", "warmup=10s"]
    done = run(
        ROOT / "papers" / "scenarios" / "q-4-plain.toml", set=sets, out=tmp_path / "run", quality=False
    )
    [simulcast] = done.summary["simulcasts"]
    content = page_module.page(Folder.open(tmp_path / "run"))
    console = terminal.console()
    with console.capture() as printed:
        console.print(*terminal.simulcasts(done.summary))
    shown = printed.get()
    for viewer in simulcast["receivers"]:
        said = [say.rate(viewer["throughput_bps"]), say.frac(viewer["share_of_fair"])]
        said += [say.frac(part) for part in viewer["time_frac"].values()]
        assert re.search("".join(f"<td>{cell}</td>.*" for cell in (viewer["name"], *said)), content)
        assert all(cell in shown for cell in (viewer["name"], *said))
    least = min(simulcast["receivers"], key=lambda viewer: viewer["share_of_fair"])
    opening = (
        f"got {say.frac(simulcast['utilisation_frac'])} of their fair shares together; {least['name']} got"
    )
    assert any(opening in sentence for sentence in answer(done.summary))
