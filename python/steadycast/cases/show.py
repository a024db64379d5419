"""Shows the results of the test cases: tables in a terminal, and a page with a figure per case and controller."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast import style
from steadycast.cases.case import SUITES, Bound, Case, Variant, sets
from steadycast.cases.suite import Judged, Suite, chosen_drawing, takes_part
from steadycast.files import write_text
from steadycast.progress import Progress, Silent
from steadycast.report import canvas, page, say, terminal
from steadycast.report.canvas import Label
from steadycast.report.cells import verdict
from steadycast.report.markup import Html, element, joined

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

_FEW = 24
"""The largest number of rows for which the terminal shows the measures as well."""


def _times(value: object) -> str:
    return say.seconds(value) if value is not None else "never"


COLUMNS: tuple[tuple[str, str, Callable[[object], str]], ...] = (
    ("use", "use", say.frac),
    ("delay p95", "delay_p95_ms", say.ms),
    ("loss", "loss", say.frac),
    ("steady", "converge_s", _times),
    ("fair 1 s", "fair_1s", say.frac),
    ("fair 5 s", "fair_5s", say.frac),
    ("fair 20 s", "fair_20s", say.frac),
)
"""The measures of a table: heading, name and formatter. The last three are shares of windows."""
ABOUT = (
    "use: what the bottleneck carried of what it could have carried for these flows · steady: the longest time until "
    "the videos' rate was steady after a change · fair: the share of windows of this length in which no "
    "video has more than three times what another has · bounds: how many held with every seed"
)
_HOW: dict[str, Callable[[object], str]] = {
    "use": say.frac,
    "loss": say.frac,
    "converge_s": _times,
    "finish_s": _times,
    "cov": say.plain,
    "ratio": say.plain,
    "whole": say.frac,
}


def how(measure: str) -> Callable[[object], str]:
    """Return the formatter of a measure."""
    if measure.startswith("fair_"):
        return say.frac
    if measure.endswith("_ms"):
        return say.ms
    return _HOW.get(measure, say.rate)


# ---------------------------------------------------------------- terminal


def tables(suite: Suite) -> list[Table]:
    """Return tables for a terminal of 80 columns: the number of bounds that held, and measures if they are few."""
    found = []
    rows = [
        (case, variant, name)
        for case in suite.cases
        for variant in case.variants
        for name in suite.controllers
    ]
    if len(suite.cases) > 1:
        found.append(_matrix(suite))
    if len(rows) <= _FEW:
        found.append(_measures(suite, rows))
    return found


def _matrix(suite: Suite) -> Table:
    table = terminal.plain("bounds held", *(case.id.replace("8869-", "lte ") for case in suite.cases))
    for column in table.columns[1:]:
        column.no_wrap = False
    table.padding = (0, 1, 0, 0)
    for name in suite.controllers:
        cells = (suite.verdict(case, name) for case in suite.cases)
        table.add_row(_short(name), *(f"{held}/{all_}" if all_ else say.NOTHING for held, all_ in cells))
    return table


def _measures(suite: Suite, rows: Sequence[tuple[Case, Variant, str]]) -> Table:
    table = terminal.plain("case", "", *(heading for heading, _, _ in COLUMNS[:4]), COLUMNS[-1][0], "bounds")
    table.columns[1].justify = "left"
    for case, variant, name in rows:
        if not takes_part(case, name):
            continue
        judged = [each for each in suite.judged(case, name) if each.variant is variant]
        held = f"{sum(each.holds for each in judged)}/{len(judged)}" if judged else say.NOTHING
        shown = [*COLUMNS[:4], COLUMNS[-1]]
        values = (how_(_mean(suite, case, variant, name, key)) for _, key, how_ in shown)
        table.add_row(f"{case.id} {variant.name}".rstrip(), _short(name), *values, held)
    return table


def _mean(suite: Suite, case: Case, variant: Variant, name: str, measure: str) -> float | None:
    found = suite.spread(case, variant, name, measure)
    return None if found is None else float(found["mean"])


def _short(name: str) -> str:
    return name.rpartition(":")[2]


# ---------------------------------------------------------------- page


def write_report(suite: Suite, progress: Progress | None = None) -> Path:
    """Write report.html into the suite's folder, and return its path."""
    assert suite.folder is not None
    told = progress or Silent()
    parts = [_head(suite), page.section("Bounds that held", _overview(suite))]
    for number, case in enumerate(suite.cases):
        told("figures", number, len(suite.cases))
        content = page.section(f"{case.id} {case.title}", _case(suite, case))
        parts.append(element("div", content, id=f"case-{case.id}"))
    told("figures", len(suite.cases), len(suite.cases))
    path = suite.folder / "report.html"
    write_text(path, page.wrap(f"{SUITES[suite.cases[0].suite][0]} · Steadycast", joined(parts, "\n")))
    return path


def _head(suite: Suite) -> Html:
    verdicts = [suite.verdict(case, name) for case in suite.cases for name in suite.controllers]
    held, bounds = sum(v[0] for v in verdicts), sum(v[1] for v in verdicts)
    program = suite.json()["program"]
    seeds = f"seed {suite.seeds[0]}" if len(suite.seeds) == 1 else f"{len(suite.seeds)} seeds"
    commit = f" · commit {program['commit']}" if program["commit"] else ""
    more = (
        f"{len(suite.controllers)} controllers, {seeds}, Steadycast {program['version']}{commit}. "
        f"{SUITES[suite.cases[0].suite][1]} Figures show the first variant with the "
        "first seed; tables have means with half of their 95 % interval."
    )
    words = [
        element("h1", f"{SUITES[suite.cases[0].suite][0]} · simulated"),
        element("p", f"{held} of {bounds} bounds hold with every seed.", class_="answer"),
        element("p", more, class_="more"),
        *(element("p", error, class_="nothing") for error in suite.errors[:5]),
    ]
    return joined(words, "\n")


def _overview(suite: Suite) -> Html:
    rows = []
    for name in suite.controllers:
        cells = [_verdict(*suite.verdict(case, name)) for case in suite.cases]
        rows.append([_key(name) + _short(name), *cells])
    heads = [element("a", case.id, href=f"#case-{case.id}") for case in suite.cases]
    return page.table(["controller", *heads], rows)


def _verdict(held: int, bounds: int) -> str:
    if not bounds:
        return say.NOTHING
    return element("span", f"{held}/{bounds}", class_="ok" if held == bounds else "bad")


def _key(name: str) -> Html:
    return page.key({"kind": "video", "controller": name})


def _case(suite: Suite, case: Case) -> Html:
    parts = [element("p", f"{case.rfc}: {case.expects}", class_="more")]
    names = [name for name in suite.controllers if takes_part(case, name)]
    if not names:
        return joined([*parts, element("p", "None of these controllers takes part in it.")], "\n")
    parts.append(_measured(suite, case, names))
    parts.append(element("p", ABOUT, class_="small"))
    parts.append(page.folded("bounds and values", _bounds(suite, case, names)))
    several = len(names) > 3
    for name in names:
        drawing = chosen_drawing(suite, case, name)
        if drawing:
            figure = _figure(suite, case, name, drawing)
            parts.append(page.folded(f"{name}: rate and delay", figure) if several else figure)
    return joined(parts, "\n")


def _measured(suite: Suite, case: Case, names: Sequence[str]) -> Html:
    several = any(variant.name for variant in case.variants)
    rows = []
    for variant in case.variants:
        for name in names:
            judged = [each for each in suite.judged(case, name) if each.variant is variant]
            held = sum(each.holds for each in judged)
            cells = [how_(suite.spread(case, variant, name, key)) for _, key, how_ in COLUMNS]
            first = [variant.name] if several else []
            rows.append([*first, _key(name) + _short(name), *cells, _verdict(held, len(judged))])
    heads = [
        *(["variant"] if several else []),
        "controller",
        *(heading for heading, _, _ in COLUMNS),
        "bounds",
    ]
    return page.table(heads, rows, prose=[1] if several else [])


def _bounds(suite: Suite, case: Case, names: Sequence[str]) -> Html:
    rows = []
    for name in names:
        for each in suite.judged(case, name):
            rows.append([_short(name), each.variant.name, *bound_cells(each)])
    return page.table(
        ["controller", "variant", "expected", "measure", "bound", "least", "most", ""], rows, prose=[2, 3]
    )


def bound_cells(each: Judged) -> list[str]:
    """Return a bound in words, its measure, its ends, its least and most value, and whether it held."""
    said = _said(each.bound)
    known = [value for value in each.values.values() if value is not None]
    source = f" ({each.bound.source})" if each.bound.source else ""
    mark = verdict(holds=each.holds, fails=f"{each.kept} of {len(each.values)} seeds")
    return [
        each.bound.why + source,
        described(each),
        ends(each.bound),
        said(min(known)) if len(known) == len(each.values) else said(None),
        said(max(known)) if known else said(None),
        mark,
    ]


def ends(bound: Bound) -> str:
    """Return the ends of a bound in words."""
    said = _said(bound)
    words = (("at least", bound.min), ("at most", bound.max))
    return ", ".join(f"{word} {said(end)}" for word, end in words if end is not None)


def _said(bound: Bound) -> Callable[[object], str]:
    return say.plain if bound.against is not None else how(bound.measure)


def described(each: Judged) -> str:
    """Return a measure with its flows, times and reference."""
    bound = each.bound
    words = [bound.measure]
    if bound.of:
        words.append(f"of {' and '.join(bound.of)}")
    if bound.than:
        words.append(f"to {' and '.join(bound.than)}")
    if bound.during:
        words.append(f"from {bound.during[0]:g} to {bound.during[1]:g} s")
    if bound.against:
        words.append(f"as a share of {bound.against}")
    return " ".join(words)


def _figure(suite: Suite, case: Case, name: str, drawing: dict[str, Any]) -> Html:
    variant = case.variants[0]
    label = f"case-{case.id.replace('.', '-')}-{_short(name)}"
    drawn = canvas.in_style(lambda: draw(drawing), label)
    assert drawn is not None
    # Coordinates are rounded to 0.01 points, because the page has many figures.
    drawn = re.sub(r"(\d\.\d\d)\d+", r"\1", drawn)
    words = ["steadycast", "run", f"scenarios/{variant.scenario}.toml"]
    for change in [*sets(variant, name), f"seed={suite.seeds[0]}"]:
        words += ["--set", change]
    title = f"{case.id}{f', {variant.name}' if variant.name else ''}: {name}"
    return page.figure(drawn, title, shlex.join(words), label)


def draw(drawing: dict[str, Any]) -> Figure:
    """Draw rate and delay of every flow over time, and the bottleneck's capacity, as in RFC 8867's figures."""
    figure, (upper, lower) = canvas.canvas(2, height=3.6, ratios=(3, 2))
    t, flows = drawing["t_s"], drawing["flows"]
    capacity = [[v for v in series if v is not None] for series in drawing["capacity_kbps"].values()]
    rates = [v for flow in flows for v in flow["rate_kbps"] if v is not None]
    top = max([*rates, 1.0])
    labels = []
    for name, series in drawing["capacity_kbps"].items():
        upper.step(t, _mega(series), where="mid", color=style.MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
        labels.append(Label(_last(_mega(series)), f"capacity ({name})", style.MUTED))
    videos = [flow["name"] for flow in flows if flow["kind"] == "video"]
    for flow in flows:
        look = style.look(flow)
        if flow["kind"] == "video" and len(videos) > 1:  # all have one controller
            look = style.Look(style.SPARE[videos.index(flow["name"]) % len(style.SPARE)])
        upper.plot(t, _mega(flow["rate_kbps"]), **look.line)
        if flow["kind"] == "video" or len(flows) < 5:
            labels.append(Label(_last(_mega(flow["rate_kbps"])), flow["name"], look.colour))
        if flow["delay_ms"]:
            lower.plot(t, [float("nan") if v is None else v for v in flow["delay_ms"]], **look.line)
    canvas.from_zero(upper, min(max(top, *map(max, filter(None, capacity)), 1.0), 2.5 * top) * 1.08 / 1e3)
    upper.set_xlim(0, t[-1])
    upper.set_ylabel("rate (Mb/s)")
    delays = [v for flow in flows for v in flow["delay_ms"] if v is not None]
    canvas.from_zero(lower, max(delays, default=1.0) * 1.08)
    lower.set_ylabel("delay (ms)")
    lower.set_xlabel("time (s)", loc="right")
    canvas.label_ends(upper, labels)
    return figure


def _mega(series: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value / 1e3 for value in series]


def _last(values: Sequence[float]) -> float:
    # At the very end flows have stopped.
    return next((v for v in reversed(values) if v == v and v > 0), 0.0)
