"""What was measured, for the terminal, as Markdown, as a page, as numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from rich.text import Text
from steadycast.folder import Json
from steadycast.report.markup import Html, element, joined

from papers.engine.experiment import Verdict
from papers.engine.read import ROOT
from papers.engine.sets import text
from papers.engine.suite import Part, Result
from papers.engine.verdict import Row

_STYLE = {
    Verdict.REPRODUCED: "green",
    Verdict.UNDECIDED: "yellow",
    Verdict.NOT_REPRODUCED: "bold red",
    Verdict.REFUTED: "red",
    Verdict.NOT_REPRODUCIBLE: "yellow",
    Verdict.REPORTED: "dim",
    Verdict.CERTAIN: "dim",
}
_CLASS = {Verdict.REPRODUCED: "ok", Verdict.NOT_REPRODUCED: "bad", Verdict.REFUTED: "bad"}
_BY_NUMBER = "The papers' figures and tables by their numbers"
_NOTE = (
    "Mean over the seeds ± half of its 95 % interval. The mean decides where the whole interval is on its side of the "
    "bound; else the statement is undecided."
)


def answer(result: Result) -> str:
    """Say the outcome in one sentence."""
    good, open, bad, wrong, never, certain, shown = (
        result.count(v)
        for v in (
            Verdict.REPRODUCED,
            Verdict.UNDECIDED,
            Verdict.NOT_REPRODUCED,
            Verdict.REFUTED,
            Verdict.NOT_REPRODUCIBLE,
            Verdict.CERTAIN,
            Verdict.REPORTED,
        )
    )
    said = (
        f"{good} of {good + open + bad + wrong + never} checked statements are reproduced, {open} undecided"
    )
    said += f", {bad + wrong} not reproduced"
    if wrong:
        said += f" ({wrong} of these shown to be wrong by a calculation)"
    if never:
        said += f", {never} can't be"
    if certain:
        said += f"; {certain} hold by construction and are not counted"
    return f"{said}; {shown} more numbers are reported beside the papers' without a bound."


def commit() -> str:
    """Return the commit of the program that ran."""
    from steadycast.run import commit as known

    return known() or "unknown"


def note(result: Result) -> str:
    """Say what the numbers are."""
    if not result.emulated:
        return _NOTE
    return (
        f"{_NOTE} Emulated: in real time, across this machine's kernel and its TCP; simulated: the same runs, "
        "as long and with the same seeds. The verdict is that of the emulation."
    )


def remarks(part: Part) -> list[str]:
    """Say what to know of an experiment's runs before their numbers are believed."""
    said = [part.warning] if part.warning else []
    if part.doubtful:
        said.append(
            "This machine was too busy for some runs, twice; their numbers are not trustworthy: "
            + "; ".join(part.doubtful)
            + "."
        )
    return said


def heads(result: Result) -> tuple[str, ...]:
    """Return what the columns are called."""
    worlds = ("simulated", "emulated") if result.emulated else ("measured",)
    return ("statement", "published", "asked", *worlds, "verdict", "why")


def cells(r: Row) -> tuple[str, ...]:
    """Return a statement's columns."""
    worlds = (r.said(),) if r.simulated is None else (r.simulated.said(), r.said())
    return (r.statement.text, r.statement.published, r.asked, *worlds, r.verdict.value, r.why)


def expected(result: Result) -> str:
    """Count what could be expected to come out: by statement, and by experiment."""
    rows = [r for r in result.rows if r.experiment.expects(r.statement)]
    if not rows:
        return ""
    good = [r for r in rows if r.verdict is Verdict.REPRODUCED]
    open = sum(r.verdict is Verdict.UNDECIDED for r in rows)
    experiments = {r.experiment.id for r in rows}
    whole = len(experiments - {r.experiment.id for r in rows if r.verdict is not Verdict.REPRODUCED})
    fall = sum(bool(r.turns) for r in good)
    return (
        f"Of the {len(rows)} statements that can be expected to come out (they need no lost figure, clip, panel or "
        f"hardware) {len(good)}, {100 * len(good) / len(rows):.0f} %, are reproduced, {open} undecided and "
        f"{len(rows) - len(good) - open} not reproduced; all are reproduced in {whole} of {len(experiments)} "
        f"experiments. {fall} of the {len(good)} fall with one of the changes that were tried."
    )


def _summary(result: Result) -> str:
    return f"{answer(result)} {expected(result)}".strip()


def heading(part: Part) -> str:
    """Experiment and medium."""
    e = part.experiment
    return f"{e.id}, {e.title} ({part.medium.label})"


# ---------------------------------------------------------------- terminal


def show(result: Result) -> None:
    """Print verdicts, a table per experiment, within 80 columns."""
    from rich.table import Table
    from steadycast.report.terminal import console

    out = console()
    for part in result.parts:
        out.print(Text(heading(part), style="bold"))
        out.print(Text(_short(part), style="dim"))
        for remark in remarks(part):
            out.print(Text(remark, style="bold red"))
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim", width=80)
        table.add_column("statement", overflow="fold", ratio=5)
        table.add_column("published", overflow="fold", ratio=3)
        table.add_column("asked", overflow="fold", ratio=3)
        table.add_column("measured", justify="right", overflow="fold", min_width=15)
        table.add_column("verdict", overflow="fold", min_width=12, max_width=12)
        for r in part.rows:
            table.add_row(
                Text(r.statement.text),
                Text(r.statement.published),
                Text(r.asked),
                Text(r.said()),
                Text(r.verdict.value, style=_STYLE[r.verdict]),
            )
        out.print(table)
        for r in part.rows:
            if r.verdict in (Verdict.NOT_REPRODUCED, Verdict.REFUTED, Verdict.UNDECIDED):
                out.print(Text(f"  {r.statement.text}: {r.why}"), style="dim")
        out.print()
    if len({part.experiment.id for part in result.parts}) == 1:
        out.print(Text("\n".join(["What each run sets", *_settings(result.parts[0])]), style="dim"))
        out.print()
    out.print(Text(note(result), style="dim"))
    out.print(Text(_summary(result), style="bold"))


def _settings(part: Part) -> list[str]:
    """Tell what each variant and each change sets, as the command line takes it; ranges stand for each number."""
    e = part.experiment
    lines = [
        f"  {v.title}: {' '.join(filter(None, (v.scenario, text(v.sets)))) or 'nothing'}" for v in e.variants
    ]
    return lines + [f"  with {c.name}: {text(c.sets)}" for c in e.changes]


def catalogue() -> None:
    """List the experiments: id, title, seconds that all of it takes, statements."""
    from rich.table import Table
    from steadycast.report.terminal import console

    from papers.engine.registry import FAMILIES

    out = console()
    for name, experiments in FAMILIES.items():
        out.print(Text(f"{name}: {experiments[0].paper}", style="bold"))
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim", width=80)
        table.add_column("id", min_width=4)
        table.add_column("title", overflow="fold", ratio=1)
        table.add_column("seconds", justify="right")
        table.add_column("statements", justify="right")
        for e in experiments:
            judged = sum(s.kind.judged for s in e.statements)
            seconds = f"{e.seconds:g}" if e.seconds else "–"
            table.add_row(e.id, Text(e.title), seconds, f"{judged} of {len(e.statements)}")
        out.print(table)
        out.print()
    out.print(
        Text(
            "seconds: about, of one core, with five seeds, where nothing is kept from an earlier time; statements: "
            "those with a bound, of all. Name experiments, families, or all (K to B).",
            style="dim",
        )
    )


# ---------------------------------------------------------------- Markdown


def markdown(result: Result) -> str:
    """All statements as Markdown tables."""
    return f"# Published, and measured here\n\n{headline(result)}\n{tables(result)}"


def headline(result: Result) -> str:
    """Say of which commit it is, what came out, and how many statements of each family."""
    lines = [f"Commit {commit()}, `{result.command}`. {answer(result)}", "", expected(result), ""]
    if _whole(result):
        names = [v.value for v in Verdict if v is not Verdict.REPORTED]
        lines += [f"| family | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
        for name, counts in _families(result).items():
            numbers = " | ".join(str(counts[v]) for v in Verdict if v is not Verdict.REPORTED)
            lines.append(f"| {name} | {numbers} |")
        lines.append("")
    return "\n".join([*lines, note(result), ""])


def answered(result: Result) -> str:
    """Say of which commit it is, and what came out."""
    return f"Commit {commit()}, `{result.command}`. {answer(result)}\n\n{expected(result)}"


def data(result: Result) -> list[tuple[str, str, list[str], list[list[str]]]]:
    """Return three tables with names, titles and headings: the statements, the families, the papers' numbers."""
    verdicts = [v for v in Verdict if v is not Verdict.REPORTED]
    families = [[name, *(str(c[v]) for v in verdicts)] for name, c in _families(result).items()]
    statements = []
    for part in result.parts:
        e = part.experiment
        title = heading(part).partition(", ")[2]
        about = [e.paper, e.id, title, e.section, _short(part), " ".join(remarks(part))]
        statements += [[*about, *cells(r)] for r in part.rows]
    told = ["paper", "experiment", "title", "section", "scenario", "remark", *heads(result)]
    places = [list(place) for place in _places(result)]
    return [
        ("reproduction", "The papers' statements, published and measured", told, statements),
        (
            "reproduction-families",
            "The verdicts, by family",
            ["family", *(v.value for v in verdicts)],
            families,
        ),
        (
            "reproduction-numbers",
            "The papers' figures and tables by their numbers",
            ["paper", "number", "where"],
            places,
        ),
    ]


def _families(result: Result) -> dict[str, Counter[Verdict]]:
    """Count verdicts, a family a line."""
    found: dict[str, Counter[Verdict]] = {}
    for r in result.rows:
        paper, _, title = r.experiment.paper.partition(": ")
        name = f"{r.experiment.id[0]}, {paper}: {title}"
        found.setdefault(name, Counter())[r.verdict] += 1
    return found


def tables(result: Result) -> str:
    """Return a table per experiment, and the place of each figure and table of the papers."""
    lines: list[str] = []
    paper = ""
    for part in result.parts:
        e = part.experiment
        if e.paper != paper:
            paper = e.paper
            lines += [f"Paper: {paper}.", ""]
        lines += [
            f"## {heading(part)}",
            "",
            f"Section {e.section}; `{_short(part)}`{_times(result, part)}.",
            "",
        ]
        for remark in remarks(part):
            lines += [f"**{remark}**", ""]
        names = heads(result)
        lines += [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
        for r in part.rows:
            lines.append("| " + " | ".join(c.replace("|", "\\|") or " " for c in cells(r)) + " |")
        lines.append("")
        if result.emulated:
            lines += [each for name in part.changed for each in (_with(name, part), "")]
    if aside := left_aside(result):
        lines += ["Left aside, since a kernel can't do it:", "", *(f"- {each}" for each in aside), ""]
    if _whole(result):
        lines += [
            f"## {_BY_NUMBER}",
            "",
            "| paper | number | where |",
            "|---|---|---|",
        ]
        lines += [
            f"| {paper.partition(':')[0]} | {number} | {place} |" for paper, number, place in _places(result)
        ]
        lines.append("")
    return "\n".join(lines)


def _with(change: str, part: Part) -> str:
    """Tell the numbers that a change comes to."""
    told = (f"{r.statement.text} {r.said(r.changed[change])}" for r in part.rows if change in r.changed)
    return f"With {change}: {'; '.join(told)}."


def left_aside(result: Result) -> list[str]:
    """List what the scenarios ask and the emulated world can't do, each once."""
    return list(dict.fromkeys(each for part in result.parts for each in part.left_aside))


def _times(result: Result, part: Part) -> str:
    """Say how often each run was made, where that differs from part to part."""
    if not result.emulated:
        return ""
    return "; each run once" if len(part.seeds) == 1 else f"; each run {len(part.seeds)} times"


def _whole(result: Result) -> bool:
    return "all" in (i.lower() for i in result.ids)


def _places(result: Result) -> list[tuple[str, str, str]]:
    from papers.engine.numbered import numbered

    return numbered(part.experiment for part in result.parts)


def _short(part: Part) -> str:
    return part.experiment.scenario.relative_to(ROOT).as_posix()


# ---------------------------------------------------------------- page


def page(result: Result) -> str:
    """All statements and figures as one page that loads nothing."""
    from steadycast.report import page as pages

    from papers.engine.draw import draw

    command = element("code", result.command)
    body = [
        element("h1", "Published, and measured here"),
        element("p", _summary(result), class_="answer"),
        element("p", f"Commit {commit()}. {note(result)} ", command, class_="small"),
        _overview(result),
    ]
    for number, part in enumerate(result.parts):
        e = part.experiment
        scenario = element("code", _short(part))
        times = _times(result, part)
        content = [
            element("p", f"{e.paper}, section {e.section}; ", scenario, times, class_="small"),
            pages.table(
                heads(result),
                [_cells(r) for r in part.rows],
                prose=(0, 1, len(heads(result)) - 2, len(heads(result)) - 1),
            ),
        ]
        content[1:1] = [element("p", remark, class_="nothing") for remark in remarks(part)]
        for figure in e.figures:
            if figure.pixels and not part.medium.pixels:
                continue
            if part.medium.name == "synthetic" and not figure.pixels:
                continue
            drawing = draw(figure, part, f"p{number}-{figure.number.split()[-1]}")
            if drawing:
                ranges = "mean and range of the seeds"
                spread = {
                    "rates": ranges,
                    "sweep": ranges,
                    "series": ranges,
                    "ranks": ranges,
                    "mos": "mean of the seeds",
                }.get(figure.kind, f"seed {part.seeds[0]}")
                caption = f"{figure.number} of the paper, {part.medium.label}; {spread}"
                content.append(
                    pages.figure(drawing, caption, f"steadycast reproduce {e.id}", f"{e.id}-{figure.number}")
                )
        if part.changed:
            content.append(pages.folded("What each open parameter changes", _sensitivity(part)))
        content.append(pages.folded("What each run sets", _listed(_settings(part))))
        body.append(pages.section(heading(part), joined(content, "\n")))
    if aside := left_aside(result):
        body.append(pages.section("Left aside, since a kernel can't do it", _listed(aside)))
    if _whole(result):
        table = pages.table(("paper", "number", "where"), _places(result), prose=(0, 1, 2))
        body.append(pages.section(_BY_NUMBER, table))
    return pages.wrap("Published, and measured here · Steadycast", joined(body, "\n"))


def _listed(lines: Iterable[str]) -> Html:
    return element("ul", *(element("li", line) for line in lines))


def _cells(r: Row) -> list[str]:
    kind = _CLASS.get(r.verdict, "small")
    *plain, verdict, why = cells(r)
    return [*plain, element("span", verdict, class_=kind), why]


def _overview(result: Result) -> Html:
    """Verdicts counted, an experiment a line."""
    from steadycast.report import page as pages

    rows = []
    for part in result.parts:
        counts = [sum(r.verdict is v for r in part.rows) for v in Verdict]
        rows.append([heading(part), *(str(c) if c else "" for c in counts)])
    return pages.table(("experiment", *(v.value for v in Verdict)), rows, prose=(0,))


def _sensitivity(part: Part) -> Html:
    """Statement by change: the number, and whether it keeps the bound."""
    from steadycast.report import page as pages

    judged = [r for r in part.rows if r.measured is not None]
    head = ("change", *(r.statement.text for r in judged))
    rows = [["none", *(r.said() for r in judged)]]
    for name in part.changed:
        cells = []
        for r in judged:
            m = r.changed.get(name)
            said = r.said(m) if m is not None else "–"
            bad = m is not None and r.statement.kind.judged and not m.holds
            cells.append(element("span", said, class_="bad") if bad else said)
        rows.append([name, *cells])
    return pages.table(head, rows, prose=(0,))


# ---------------------------------------------------------------- numbers


def numbers(result: Result) -> Json:
    """All that was measured, for programs."""
    from steadycast import _core

    return {
        "format": 1,
        "program": {"version": _core.__version__, "commit": commit()},
        "command": result.command,
        "seeds": list(result.seeds),
        "world": "emulated" if result.emulated else "simulated",
        "doubtful": [f"{part.experiment.id}: {each}" for part in result.parts for each in part.doubtful],
        "expected": expected(result),
        "statements": [_entry(r) for r in result.rows],
    }


def _entry(r: Row) -> dict[str, Any]:
    m, bound = r.measured, r.statement.bound
    beside = r.simulated.measured if r.simulated is not None else None
    return {
        "experiment": r.experiment.id,
        "statement": r.statement.id,
        "media": r.medium.name,
        "text": r.statement.text,
        "published": r.statement.published,
        "min": bound.least,
        "max": bound.most,
        "measured": None if m is None else m.spread,
        "simulated": None if beside is None else beside.spread,
        "verdict": r.verdict.value,
        "why": r.why,
        "seeds_without_value": 0 if m is None else m.runs - len(m.values),
        "changes": {name: c.spread for name, c in r.changed.items()},
    }
