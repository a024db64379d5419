"""Writes report.html. It contains the answer, the flows, figures, the receivers, and the settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from steadycast import record, style
from steadycast.folder import Folder, Json, number, write_text
from steadycast.lazy_import import pl
from steadycast.record import reach
from steadycast.report import canvas, cells, figures, film, say
from steadycast.report.answer import answer, counted, partly_competing, title, uncompared
from steadycast.report.figures import PLOTS
from steadycast.report.markup import Html, element, joined, text
from steadycast.report.rank import alike, ranked_receivers
from steadycast.report.series import banded
from steadycast.report.words import glossary, heading, term
from steadycast.style import INK, look, readable

_COLLAPSE_ABOVE = 20

_CSS, _SCRIPT = (
    resources.files("steadycast.report").joinpath(name).read_text(encoding="utf-8")
    for name in ("page.css", "page.js")
)


Drawings = Mapping[str, str | None]
"""Figures of a run as inline SVG. The keys are their names. A figure without data is `None`."""


def write_report(
    folder: Folder | Path | str, *, pictures: Html | None = None, drawings: Drawings | None = None
) -> Path:
    """Write DIR/report.html, and return its path.

    `pictures` is a section that `report.pictures` has built. `drawings` are figures that are already drawn.
    """
    folder = folder if isinstance(folder, Folder) else Folder.open(folder)
    path = folder.path / "report.html"
    write_text(path, page(folder, pictures=pictures, drawings=drawings))
    return path


def page(folder: Folder, *, pictures: Html | None = None, drawings: Drawings | None = None) -> str:
    """Return the report as HTML."""
    summary = folder.summary
    name = str(reach(summary, "scenario", "name") or folder.name)
    body = [
        _head(summary, name),
        expectations(summary),
        _flows(summary),
        simulcasts(summary),
        section(*film.shown([folder])),
        *_figures(folder, drawings),
        pictures,
        *_reasons(folder),
        *_receivers(summary),
        _links(summary),
        _notes(folder),
    ]
    content = joined((part for part in body if part), "\n")
    return wrap(f"{name} · Steadycast", content + section("Words", glossary(content)))


def wrap(heading: str, content: Html) -> str:
    """Return a whole HTML page that has this content."""
    used = canvas.colours(content)
    light = "".join(f"--c-{c}:{style.readable(f'#{c}')};" for c in used)
    dark = "".join(f"--c-{c}:{style.readable(f'#{c}', style.DARK_PAPER)};" for c in used)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"{element('title', heading)}"
        f"<style>{_CSS.replace('LIGHT', light).replace('DARK', dark)}</style></head>\n"
        f"<body><main>\n{text(content)}\n</main><script>{_SCRIPT}</script></body></html>\n"
    )


def prose(sentence: str) -> Html:
    """Convert a sentence to HTML. A number and its unit stay on the same line."""
    return text(re.sub(r"(?<=\d) (?=%|[kMG]?b/s|m?s\b|dB\b)", "\N{NO-BREAK SPACE}", sentence))


def section(heading: str, content: Html) -> Html:
    """Build a section that has this heading and content. It is empty if the content is empty."""
    return element("h2", heading) + "\n" + content if content else Html()


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, prose: Sequence[int] = ()) -> Html:
    """Build a table. Its cells are text or HTML. The columns in `prose` contain sentences."""

    def line(tag: str, row: Sequence[str]) -> Html:
        of = (element(tag, cell, class_="text" if i in prose else None) for i, cell in enumerate(row))
        return element("tr", *of)

    body = (element("thead", line("th", head)), element("tbody", *(line("td", row) for row in rows)))
    return element("div", element("table", *body), class_="wide")


def folded(words: str, content: Html) -> Html:
    """Hide content behind a line of words. A click on the line shows the content."""
    return element("details", element("summary", words), content)


def figure(drawing: str, caption: str, command: str, name: str, *, data: str | None = None) -> Html:
    """Build a figure from an SVG drawing.

    Below the drawing are the caption, the command that creates the figure, and buttons that save it as PNG or SVG. If
    ``data`` is given, it is offered as CSV.
    """
    saves = [
        element("button", f"save as {kind}", type="button", data_name=name, onclick=f"{kind.lower()}(this)")
        for kind in ("PNG", "SVG")
    ]
    if data is not None:
        source = f"data:text/csv;charset=utf-8,{quote(data)}"
        saves.append(element("a", "data as CSV", href=source, download=f"{name}.csv"))
    words = element("figcaption", element("span", caption), element("code", command), *saves)
    return element("figure", element("div", Html(drawing), class_="wide"), words)


def key(flow: Json) -> Html:
    """Draw a sample of a flow's line, as a legend does."""
    shape = look(flow)
    line = "dashed" if shape.dashes else "solid"
    return element("span", class_="key", style=f"border-color:{_css(shape.colour)};border-style:{line}")


def _css(colour: str) -> str:
    colour = readable(colour)
    return "var(--ink)" if colour == INK else f"var(--c-{colour[1:]}, {colour})"


def _head(summary: Json, name: str) -> Html:
    first, *rest = answer(summary) or ["No flow received anything."]
    warned = first in uncompared(summary) or summary.get("complete") is False
    parts = [element("h1", f"{name} · {summary.get('world', '')} · {_when(summary)}")]
    if warned:
        parts.append(element("p", prose(first), class_="nothing"))
        first, *rest = rest or [""]
    parts.append(element("p", prose(first), class_="answer"))
    parts += [element("p", prose(s), class_="more") for s in rest]
    return joined(parts, "\n")


def _when(summary: Json) -> str:
    start, end = summary.get("from_s") or 0.0, summary.get("to_s")
    span = f"{round(start, 1):g} to {round(float(end or 0.0), 1):g} s"
    # Leave the seed out for a live session, because a seed can't reproduce it.
    return span if summary.get("world") == "live" else f"{span} · seed {reach(summary, 'scenario', 'seed')}"


def expectations(summary: Json) -> Html:
    """Build the table of the scenario's expectations. It is empty if there are none."""
    heads, rows = cells.expectations(summary)
    return table(heads, rows) if rows else Html()


def simulcasts(summary: Json) -> Html:
    """Build a section for each simulcast, with its receivers. It is empty if there are none."""
    about = {name: record.figure("viewer", path).about for name, path in cells.VIEWER.items()}
    notes = [element("p", f"{name.capitalize()}: {text}", class_="small") for name, text in about.items()]
    return joined(
        section(title, table(heads, rows) + joined(notes))
        for title, (heads, rows) in cells.simulcasts(summary)
    )


def _flows(summary: Json) -> Html:
    columns = record.table("flows")
    rows = []
    for f in summary["flows"]:
        limits = f.get("limited_by_frac") or {}
        held = ", ".join(
            f"{k} {say.frac(v)}"
            for k, v in sorted(limits.items(), key=lambda e: -(number(e[1]) or 0.0))
            if (number(v) or 0.0) >= 0.005
        )
        rows.append([key(f) + counted(f), *say.flow_cells(columns, f), held or say.NOTHING])
    head = [term("flow"), *map(heading, columns), term("limited by")]
    several = any(len(f.get("receivers") or []) > 1 for f in summary["flows"])
    note = Html()
    if several:
        note += element(
            "p",
            "Loss, delay and quality of several receivers are their ",
            term("median"),
            ".",
            class_="small",
        )
    if number(summary.get("from_s")):
        begin = say.seconds(summary["from_s"])
        note += element("p", f"Means count from {begin} on, after the ", term("warm-up"), ".", class_="small")
    if (said := partly_competing(summary)) is not None:
        note += element("p", prose(said), class_="small")
    fairness = summary.get("fairness") or {}
    if number(fairness.get("jain")) is not None:
        means = f" {say.plain(fairness.get('jain'))} over the run, {say.plain(reach(fairness, 'jain_1s', 'mean'))}"
        note += element("p", term("Jain index"), means, " in the mean second.", class_="small")
    return table(head, rows, prose=[len(head) - 1]) + note


def drawings(folder: Folder) -> Drawings:
    """Return the figures of a run, by name."""
    return {
        plot.name: figures.drawn(plot, folder)
        for plot in PLOTS
        if plot.name not in ("rates", "delay") or folder.has("rates")
    }


def _figures(folder: Folder, drawn: Drawings | None) -> list[Html]:
    parts = []
    drawn = drawings(folder) if drawn is None else drawn
    for plot in PLOTS:
        drawing = drawn.get(plot.name)
        if drawing is not None:
            note = plot.note if not plot.ranges or banded(folder.summary["flows"]) else ""
            if plot.name == "quality" and " above " not in drawing:  # the drawing has no levels to explain
                note = ""
            command = f"steadycast report {folder.path} --figure {plot.name}"
            parts.append(section(plot.title, figure(drawing, note, command, f"{folder.name}-{plot.name}")))
    return parts


def _reasons(folder: Folder) -> list[Html]:
    if not folder.has("decisions"):
        return []
    parts = []
    decisions = figures.decided(folder)
    end = float(folder.summary.get("to_s") or 0.0)
    for flow in folder.summary["flows"]:
        mine = decisions.filter(pl.col("flow") == flow["name"])
        if not mine.height:
            continue
        # Compute how long each decision was in force: until the next decision or the end of the run.
        held = mine.with_columns(
            held=(pl.col("t_s").shift(-1).fill_null(end) - pl.col("t_s")).clip(0.0),
            step=pl.col("target_bps").diff(),
        )
        total = float(held["held"].sum()) or 1.0
        rules = (
            held.group_by("rule", "limit", maintain_order=True)
            .agg(pl.len(), pl.col("held").sum(), pl.col("step").mean())
            .sort("held", descending=True)
        )
        rows = [
            [
                str(r["rule"]),
                str(r["limit"]),
                say.frac(r["held"] / total),
                say.count(r["len"]),
                ("+" if (r["step"] or 0) > 0 else "") + say.rate(r["step"]),
            ]
            for r in rules.head(10).iter_rows(named=True)
        ]
        if (rest := rules[10:]).height:
            spent, times = say.frac(float(rest["held"].sum()) / total), say.count(rest["len"].sum())
            rows.append([f"{rest.height} more", "", spent, times, say.NOTHING])
        content = table(
            [
                term("rule"),
                term("limited by"),
                "share of time",
                "decisions",
                "mean change of " + term("target"),
            ],
            rows,
            prose=[1],
        )
        by = (
            held.filter(pl.col("by").is_not_null())
            .group_by("by", maintain_order=True)
            .agg(pl.col("held").sum())
            .sort("held", descending=True)
        )
        if by.height and len(flow.get("receivers") or []) > 1:
            who = ", ".join(
                f"{r['by']} {say.frac(r['held'] / total)}" for r in by.head(5).iter_rows(named=True)
            )
            more = f" and {by.height - 5} others" if by.height > 5 else ""
            said = f" the reports of: {who}{more} (share of time)."
            content += element("p", "Decided ", term("by"), said, class_="small")
        parts.append(section(f"{title(flow)}: its reasons", content))
    return parts


def _receivers(summary: Json) -> list[Html]:
    columns = record.table("receivers")
    parts = []
    for flow in summary["flows"]:
        order = ranked_receivers(flow)
        if flow.get("kind") != "video" or not order:
            continue
        rows = [[r["name"], *say.cells(columns, r)] for r in order]
        head = [term("receiver"), *map(heading, columns)]
        content = table(head, rows)
        same = len(order) > 1 and alike(order)
        how = ", which saw the same" if same else ", worst first" if len(order) > 1 else ""
        if same or len(order) > _COLLAPSE_ABOVE:
            few = table(head, rows[: 1 if same else 3])
            content = few + folded(f"all {len(order)} receivers{how}", content)
        parts.append(section(f"{title(flow)}: each receiver{how}", content))
    return parts


def _links(summary: Json) -> Html:
    links = summary.get("links") or []
    columns = record.table("links")
    rows = [
        [say.link(link["name"], link["direction"]), *say.cells(columns, link)]
        for link in sorted(links, key=lambda x: -(number(x.get("utilisation_frac")) or 0.0))
    ]
    if not rows:
        return Html()
    head = ["link", *map(heading, columns)]
    content = table(head, rows)
    if len(rows) > _COLLAPSE_ABOVE:
        content = table(head, rows[:5]) + folded(f"all {len(rows)} links, busiest first", content)
    return section("Links", content)


def _promises(promises: list[dict[str, Any]]) -> Html:
    """List the invariants that were violated. Invariants that hold are hidden behind a line that opens them."""

    def shown(some: list[dict[str, Any]]) -> Html:
        rows = [
            [
                one["id"],
                one.get("about") or "",
                say.count(one.get("checked")),
                element("span", say.count(one["broken"]), class_="bad") if number(one.get("broken")) else "0",
            ]
            for one in some
        ]
        return table([term("promise"), "what is promised", "checked", "broken"], rows)

    broken = [one for one in promises if number(one.get("broken"))]
    kept = [one for one in promises if one not in broken]
    parts = [shown(broken)] if broken else []
    if kept:
        parts.append(
            folded("1 promise was kept" if len(kept) == 1 else f"{len(kept)} promises were kept", shown(kept))
        )
    return section("Broken promises" if broken else "Promises", joined(parts))


def _notes(folder: Folder) -> Html:
    summary = folder.summary
    parts = []
    for above, what, columns, known in (
        ("TCP", "TCP", "tcp", "congestion"),
        ("Sources that pause", "source", "pauses", "active_frac"),
        ("Sessions", "session", "sessions", "feedback_packets"),
    ):
        flows = [f for f in summary["flows"] if f.get(known) is not None]
        rows = [[key(f) + title(f), *say.cells(record.table(columns), f)] for f in flows]
        parts.append(
            section(above, table([what, *map(heading, record.table(columns))], rows) if rows else Html())
        )
    warnings = summary.get("warnings") or []
    if warnings:
        parts.append(section("Warnings", element("ul", *(element("li", w) for w in warnings))))
    parts.append(_promises(summary.get("invariants") or []))
    if folder.scenario_text:
        parts.append(
            section(
                "The scenario",
                folded(
                    f"as it was run ({len(folder.scenario_text.splitlines())} lines)",
                    element("pre", folder.scenario_text),
                ),
            )
        )
    parts.append(_provenance(folder))
    return joined(parts, "\n")


def _provenance(folder: Folder) -> Html:
    summary: Json = folder.summary
    commit = reach(summary, "program", "commit")
    program = f"steadycast {reach(summary, 'program', 'version')}" + (f" ({commit})" if commit else "")
    hashes = {"scenario": reach(summary, "scenario", "sha256"), "record": summary.get("record_sha256")}
    rows = [["program", program]]
    rows += [[what, element("code", found)] for what, found in hashes.items() if found]
    rows += [
        [
            "packet-hops" if k == "packet_hops" else k.rsplit("_", 1)[0].replace("_", " "),
            say.by_unit(k, "cost")(v),
        ]
        for k, v in folder.cost.items()
        if number(v) is not None and k != "format"
    ]
    lines = (
        element("tr", element("td", a), element("td", b, class_="text", style="overflow-wrap:anywhere"))
        for a, b in rows
    )
    plain = element("div", element("table", *lines, class_="left"), class_="wide")
    return section("How to repeat this run, and what it cost", plain)
