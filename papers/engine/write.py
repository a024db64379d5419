"""Writes the measurements for the terminal, as Markdown, as a page, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text
from steadycast.core import program
from steadycast.folder import Json
from steadycast.report.markup import Html, element, joined

from papers.engine.experiment import Experiment, Verdict
from papers.engine.read import ROOT
from papers.engine.registry import chosen
from papers.engine.sets import text
from papers.engine.suite import Part, Result
from papers.engine.verdict import Row

if TYPE_CHECKING:
    from papers.engine.drawings import Formats

_STYLE = {
    Verdict.COMES_OUT: "green",
    Verdict.FAILS: "bold red",
    Verdict.WOULD: "bold red",
    Verdict.UNTESTED: "yellow",
    Verdict.UNJUDGED: "yellow",
    Verdict.REPORTED: "dim",
    Verdict.CERTAIN: "dim",
}
_COUNTED = {
    Verdict.COMES_OUT: (
        "comes out: our result is within the statement's bound",
        "come out: our results are within the statements' bounds",
    ),
    Verdict.FAILS: ("does not come out", "do not come out"),
    Verdict.WOULD: (
        "would come out only with a change that is not in the paper",
        "would come out only with a change that is not in the paper",
    ),
    Verdict.UNTESTED: (
        "can't be tested, because its bound also holds in runs without the event that the statement is about",
        "can't be tested, because their bounds also hold in runs without the events that the statements are about",
    ),
    Verdict.UNJUDGED: (
        "can't be judged, because our runs can't decide it",
        "can't be judged, because our runs can't decide them",
    ),
}
"""Texts for the verdicts that are counted, in singular and plural."""
_CLASS = {Verdict.COMES_OUT: "ok", Verdict.FAILS: "bad", Verdict.WOULD: "bad"}
_BY_NUMBER = "The papers' figures and tables by their numbers"
_NOTE = (
    "Values are means over the seeds ± half of the 95 % interval. A verdict needs the whole interval on one side of "
    "the bound; statements that five seeds leave undecided are run with twenty. The joint setting is a single "
    "setting of all values, allowed by the paper's words, in which most of its statements hold; it was chosen on "
    "seeds 1 to 5, and is judged on others. The setting as printed has the paper's values, and our "
    "own choice where the paper has none."
)


def answer(result: Result) -> str:
    """Summarize the outcome in a sentence or two."""
    return counted((r.verdict, r.printed.verdict if r.printed else None) for r in result.rows)


def counted(rows: Iterable[tuple[Verdict, Verdict | None]]) -> str:
    """Count verdicts, and summarize them in a sentence or two.

    Args:
        rows: each statement's verdict in the joint setting, and its verdict as printed if there is a joint setting.

    """
    found = list(rows)
    counts = Counter(verdict for verdict, _ in found)
    checked = sum(n for v, n in counts.items() if v in _COUNTED)
    said = [_number(counts[v], *forms) for v, forms in _COUNTED.items() if counts[v]]
    worlds = any(printed is not None for _, printed in found)
    whole = [f"{_number(checked, 'statement is', 'statements are') if checked else 'No statement is'} judged"]
    if worlds:
        whole[0] += f" in the joint setting of {'their' if checked > 1 else 'its'} paper"
    if said:
        whole += [f"{'Of these statements, ' if checked > 1 else ''}{said[0]}", *said[1:]]
    if worlds and checked:
        whole.append(_as_printed(found))
    return " ".join(f"{sentence}." for sentence in [*whole, *_not_counted(counts)])


def outcome(rows: Iterable[tuple[Verdict, Verdict]]) -> str:
    """Return the counts of a paper's verdicts as a Markdown table.

    Args:
        rows: each statement's verdict in the joint setting, and its verdict as printed.

    """
    found = list(rows)
    counts = Counter(verdict for verdict, _ in found)
    counted = {verdict: counts[verdict] for verdict in _COUNTED if counts[verdict]}
    lines = [
        "| verdict in the joint setting | statements |",
        "|---|---|",
        *(f"| {_COUNTED[verdict][0]} | {count} |" for verdict, count in counted.items()),
        f"| all judged statements | {sum(counted.values())} |",
        "",
        " ".join(f"{sentence}." for sentence in (_as_printed(found), *_not_counted(counts))),
    ]
    return "\n".join(lines)


def by_paper(papers: Mapping[str, Sequence[tuple[Verdict, Verdict]]]) -> str:
    """Return the counts of the verdicts of several papers as a Markdown table.

    Args:
        papers: the verdicts in the joint setting and as printed, by the paper's link.

    """
    heads = {
        Verdict.COMES_OUT: "come out",
        Verdict.FAILS: "do not come out",
        Verdict.WOULD: "would come out only with a change",
        Verdict.UNTESTED: "can't be tested",
        Verdict.UNJUDGED: "can't be judged",
    }
    named = ["paper", "judged statements", *heads.values(), "come out “as printed”"]
    lines = [f"| {' | '.join(named)} |", "|---" * len(named) + "|"]
    every = [pair for found in papers.values() for pair in found]
    for name, found in (*papers.items(), ("all", every)):
        counts = Counter(verdict for verdict, _ in found)
        cells = [sum(counts[v] for v in heads), *(counts[v] for v in heads), _printed_well(found)]
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    rest = _not_counted(Counter(verdict for verdict, _ in every))
    return "\n".join([*lines, "", *(f"{sentence}." for sentence in rest)])


def _printed_well(found: Sequence[tuple[Verdict, Verdict | None]]) -> int:
    """Return how many of the judged statements come out as printed."""
    return sum(printed is Verdict.COMES_OUT for verdict, printed in found if verdict in _COUNTED)


def _as_printed(found: Sequence[tuple[Verdict, Verdict | None]]) -> str:
    count = _printed_well(found)
    within = f"the {'bound' if count == 1 else 'bounds'} of {_number(count, 'statement', 'statements')}"
    return f"With the printed values (setting “as printed”), our results are within {within}"


def _not_counted(counts: Mapping[Verdict, int]) -> list[str]:
    """Return a sentence on the statements that are not judged, if there are any."""
    certain = ("statement that is true by construction", "statements that are true by construction")
    reported = ("number that was measured, but has no bound", "numbers that were measured, but have no bound")
    aside = [
        _number(counts[verdict], *forms)
        for verdict, forms in ((Verdict.CERTAIN, certain), (Verdict.REPORTED, reported))
        if counts[verdict]
    ]
    return [f"These counts leave out {', and '.join(aside)}"] if aside else []


def _number(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def commit() -> str:
    """Return the commit id of the running program."""
    return program()["commit"] or "unknown"


def note(result: Result) -> str:
    """Return the note that explains the numbers."""
    if not result.emulated:
        return _NOTE
    return (
        f"{_NOTE} Emulated runs are made in real time with this machine's kernel and its TCP. Simulated are the same "
        "runs, with the same duration and seeds. The verdict is that of the emulated runs."
    )


def remarks(part: Part) -> list[str]:
    """Return the caveats for an experiment's runs."""
    said = [part.warning] if part.warning else []
    if part.doubtful:
        said.append(
            "This machine was too busy for some runs, twice; their numbers are not trustworthy: "
            + "; ".join(part.doubtful)
            + "."
        )
    return said


def heads(result: Result) -> tuple[str, ...]:
    """Return the headings of the columns."""
    worlds = ("simulated", "emulated") if result.emulated else ("joint setting", "as printed")
    return ("statement", "published", "bound", *worlds, "verdict", "reason")


def cells(r: Row) -> tuple[str, ...]:
    """Return the cells of a statement's row."""
    worlds = (r.said(), as_printed(r)) if r.simulated is None else (r.simulated.said(), r.said())
    s = r.statement
    return (s.text, s.published, r.statement.asked, *worlds, r.words, r.why)


def as_printed(r: Row) -> str:
    """Return a statement's number as printed, with its verdict if that differs from the one in the joint setting."""
    if r.printed is None:
        return ""
    other = f": {r.printed.verdict.value}" if r.printed.verdict is not r.verdict else ""
    return f"{r.said(r.printed.measured)}{other}"


def heading(part: Part) -> str:
    """Return the heading of a part: experiment and medium."""
    e = part.experiment
    return f"{e.id}, {e.title} ({part.medium.label})"


# ---------------------------------------------------------------- terminal


def show(result: Result) -> None:
    """Print the verdicts as one table per experiment, at most 80 columns wide."""
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
        table.add_column("bound", overflow="fold", ratio=3)
        table.add_column("joint setting", justify="right", overflow="fold", min_width=15)
        table.add_column("verdict", overflow="fold", min_width=12, max_width=12)
        for r in part.rows:
            table.add_row(
                Text(r.statement.text),
                Text(r.statement.published),
                Text(r.statement.asked),
                Text(r.said()),
                Text(r.verdict.value, style=_STYLE[r.verdict]),
            )
        out.print(table)
        for r in part.rows:
            if r.verdict not in (Verdict.COMES_OUT, Verdict.CERTAIN, Verdict.REPORTED):
                printed = f"as printed {as_printed(r)}" if r.printed else ""
                reasons = ". ".join(filter(None, (r.words, printed, r.why)))
                out.print(Text(f"  {r.statement.text}: {reasons}"), style="dim")
        out.print()
    if len({part.experiment.id for part in result.parts}) == 1:
        out.print(Text("\n".join(["What each run sets", *_settings(result.parts[0])]), style="dim"))
        out.print()
    out.print(Text(note(result), style="dim"))
    out.print(Text(answer(result), style="bold"))


def _settings(part: Part) -> list[str]:
    """List the settings of each variant and each change, as command-line arguments with ranges."""
    e = part.experiment
    lines = [
        f"  {v.title}: {' '.join(filter(None, (v.scenario, text(v.sets)))) or 'nothing'}" for v in e.variants
    ]
    scenario = e.scenario_of(e.variants[0])
    world = {key: value for c in e.in_world for key, value in c.sets_in(scenario).items()}
    if e.world is not None:
        lines.append(f"  in the joint setting also: {text(world) or 'nothing'}")
    return lines + [
        f"  {'' if c in e.placebos else 'with '}{c.name}: {text(sets)}"
        for c in (*e.placebos, *e.changes)
        if (sets := c.sets_in(scenario))
    ]


def catalogue() -> None:
    """List the experiments: id, title, CPU seconds for all of it, and statements."""
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
            "seconds: approximate CPU time with five seeds, if no finished run is cached; statements: number of those "
            "with a bound, of all. Name experiments, families, or all (K to B).",
            style="dim",
        )
    )


def list_values(ids: Sequence[str]) -> None:
    """Print each value of the families' scenarios with the paper's sentence or our range.

    Raises:
        UserError: there is no such family.

    """
    from rich.table import Table
    from steadycast.report.terminal import console

    from papers.engine.values import values

    out = console()
    for family in dict.fromkeys(e.id[0] for e in chosen(ids or ["all"])):
        table = Table(
            box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim", width=80, title=family
        )
        table.add_column("value", overflow="fold", ratio=3)
        table.add_column("here", overflow="fold", ratio=3)
        table.add_column("source and range", overflow="fold", ratio=6)
        for v in values(family):
            whose = f"From the paper: {v.given}" if v.given else f"Our choice: {v.ours}"
            tried = f"Tried: {'; '.join(other.name for other in v.others)}." if v.others else ""
            kept = f"Not varied: {v.kept}." if v.kept else ""
            about = " ".join(filter(None, (whose, v.range and f"Range: {v.range}.", tried, kept)))
            table.add_row(Text(v.name), Text(v.here or "–"), Text(about))
        out.print(table)
        out.print()


# ---------------------------------------------------------------- Markdown


def markdown(result: Result) -> str:
    """Return all statements as Markdown tables."""
    return f"# Published, and measured here\n\n{headline(result)}\n{tables(result)}"


def headline(result: Result) -> str:
    """Return the commit, the outcome, and the number of statements of each family."""
    lines = [f"Commit {commit()}, `{result.command}`. {answer(result)}", ""]
    if _whole(result):
        heads, rows = families((r.experiment.id[0], r.verdict) for r in result.rows)
        lines += [f"| {' | '.join(each)} |" for each in (heads, ["---"] * len(heads), *rows)]
        lines.append("")
    return "\n".join([*lines, note(result), ""])


Rows = list[list[str]]


def statements(result: Result, family: str) -> tuple[list[str], Rows]:
    """Return headings and rows of the statements of a paper that have a verdict."""
    rows = [r for r in result.rows if r.experiment.id[0] == family and r.verdict is not Verdict.REPORTED]
    first = ["experiment", "statement", "paper's sentence", "published", "bound", "width of the bound"]
    results = ["joint setting", "as printed", "verdict as printed", "without the event"]
    return [*first, *results, "verdict", "reason"], [
        [
            *(
                r.experiment.id,
                r.statement.text,
                r.statement.says,
                r.statement.published,
                r.statement.asked,
                r.width,
            ),
            *(r.said(), r.said(r.printed.measured) if r.printed else ""),
            *(
                r.printed.verdict.value if r.printed else "",
                r.said(r.judged.placebo) if r.judged.placebo else "",
            ),
            *(r.words, r.why),
        ]
        for r in rows
    ]


_BRIEF = {
    Verdict.COMES_OUT: "comes out",
    Verdict.FAILS: "does not come out",
    Verdict.UNTESTED: "can't be tested",
    Verdict.UNJUDGED: "can't be judged",
    Verdict.CERTAIN: "by construction",
}


def brief(result: Result, family: str) -> str:
    """Return a paper's statements as its page shows them: one table per experiment."""
    lines: list[str] = []
    for part in result.parts:
        rows = [r for r in part.rows if r.verdict is not Verdict.REPORTED]
        if part.experiment.id[0] != family or not rows:
            continue
        lines += [caption(part.experiment), ""]
        lines += ["| statement | published | joint setting | as printed | verdict |", "|---|---|---|---|---|"]
        for r in rows:
            said = f": “{r.statement.says}”" if r.statement.says else ""
            row = (
                f"{r.statement.text}{said}",
                r.statement.published,
                r.said(),
                as_printed(r),
                verdict_of(r),
            )
            lines.append(
                "| " + " | ".join(" ".join(c.split()).replace("|", "\\|") or " " for c in row) + " |"
            )
        lines.append("")
    return "\n".join(lines).strip()


def caption(e: Experiment) -> str:
    """Return the line above an experiment's statements or figures: its title, and the place in the paper."""
    sections = "sections" if " and " in e.section.split(",")[0] else "section"
    return f"**Experiment {e.id}: {e.title}** (the paper's {sections} {e.section})"


def verdict_of(r: Row) -> str:
    """Return a verdict in a few words, with the changes that would make the statement hold."""
    return _BRIEF.get(r.verdict) or f"would come out with {r.words.partition(' with ')[2]}"


def world(family: str) -> str:
    """List the values and readings of a paper's joint setting.

    Each has the sentence that allows it, or our reason and the range.
    """
    from papers.engine.registry import FAMILIES
    from papers.engine.values import values

    chosen_world = FAMILIES[family][0].world
    if chosen_world is None:
        return ""
    listed = {o.name: (v, o) for v in values(family) for o in v.others}
    read = {o.name: o.says for e in FAMILIES[family] for s in e.statements for o in s.others}
    lines = [" ".join(chosen_world.why.split()), ""]
    for name in chosen_world.takes:
        if name in read:
            lines.append(f"- **{name}**: {' '.join(read[name].split())}")
            continue
        value, other = listed[name]
        # If the paper has no sentence that allows the value, the text describes the value that it replaces.
        why = other.says or f"{value.ours} The paper's words allow this range: {value.range}."
        lines.append(f"- **{name}**{':' if other.says else '.'} {' '.join(why.split())}")
    return "\n".join(lines).strip()


def everything(result: Result) -> tuple[list[str], Rows]:
    """Return headings and rows of all numbers, including numbers without a bound and, if emulated, with each change."""
    changes = list(dict.fromkeys(name for r in result.rows for name in r.changed if result.emulated))
    emulated = [f"emulated, {name}" for name in changes]
    rows = [
        [
            r.experiment.id,
            *said[:-2],
            *(r.said(r.changed[n]) if n in r.changed else "" for n in changes),
            *said[-2:],
        ]
        for r in result.rows
        for said in [cells(r)]
    ]
    first = heads(result)
    return ["experiment", *first[:-2], *emulated, *first[-2:]], rows


def families(rows: Iterable[tuple[str, Verdict]]) -> tuple[list[str], Rows]:
    """Return headings and rows with the counts of verdicts, one row per paper.

    The input is pairs of family and verdict.
    """
    from papers.engine.registry import FAMILIES

    verdicts = [v for v in Verdict if v is not Verdict.REPORTED]
    counts: dict[str, Counter[Verdict]] = {}
    for family, verdict in rows:
        paper, _, title = FAMILIES[family][0].paper.partition(": ")
        counts.setdefault(f"{family}, {paper}: {title}", Counter())[verdict] += 1
    return ["paper", *(v.value for v in verdicts)], [
        [n, *(str(c[v]) for v in verdicts)] for n, c in counts.items()
    ]


def places() -> tuple[list[str], Rows]:
    """Return headings and rows of the papers' figures and tables, with where each is found."""
    from papers.engine.numbered import numbered
    from papers.engine.registry import EXPERIMENTS

    return ["paper", "figure or table", "place"], [list(place) for place in numbered(EXPERIMENTS)]


def tables(result: Result) -> str:
    """Return one table per experiment, and the place of each figure and table of the papers."""
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
        lines += ["Left out, because a kernel does not support it:", "", *(f"- {each}" for each in aside), ""]
    if _whole(result):
        lines += [
            f"## {_BY_NUMBER}",
            "",
            "| paper | figure or table | place |",
            "|---|---|---|",
        ]
        lines += [
            f"| {paper.partition(':')[0]} | {number} | {place} |" for paper, number, place in places()[1]
        ]
        lines.append("")
    return "\n".join(lines)


def _with(change: str, part: Part) -> str:
    """List the numbers that are measured with a change."""
    listed = (f"{r.statement.text} {r.said(r.changed[change])}" for r in part.rows if change in r.changed)
    return f"With {change}: {'; '.join(listed)}."


def left_aside(result: Result) -> list[str]:
    """List the settings of the scenarios that an emulation does not support, each once."""
    return list(dict.fromkeys(each for part in result.parts for each in part.left_aside))


def _times(result: Result, part: Part) -> str:
    """Return a phrase on how often each run was made; empty if the runs are simulated."""
    if not result.emulated:
        return ""
    return "; each run once" if len(part.seeds) == 1 else f"; each run {len(part.seeds)} times"


def _whole(result: Result) -> bool:
    return "all" in (i.lower() for i in result.ids)


def _short(part: Part) -> str:
    return part.experiment.scenario.relative_to(ROOT).as_posix()


# ---------------------------------------------------------------- page


def page(result: Result, drawings: Mapping[tuple[int, str], Formats] | None = None) -> str:
    """Return all statements and figures as one page that loads no other files.

    Args:
        result: what was measured.
        drawings: the figures by the index of the part and their number; `None`: they are drawn here.

    """
    from steadycast.report import page as pages

    from papers.engine.drawings import draw_all

    drawings = draw_all(result.parts) if drawings is None else drawings
    command = element("code", result.command)
    body = [
        element("h1", "Published, and measured here"),
        element("p", answer(result), class_="answer"),
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
                prose=(0, 1, *range(len(heads(result)) - 3, len(heads(result)))),
            ),
        ]
        content[1:1] = [element("p", remark, class_="nothing") for remark in remarks(part)]
        for figure in e.figures:
            drawing = drawings.get((number, figure.number))
            if drawing is not None and drawing.svg:
                spread = {
                    "rates": f"seed {part.seeds[0]}, others faint",
                    "series": f"seed {part.seeds[0]}, others faint",
                    "sweep": "mean and range of the seeds",
                    "ranks": "mean and range of the seeds",
                    "mos": "mean of the seeds",
                }.get(figure.kind, f"seed {part.seeds[0]}")
                caption = (
                    f"{figure.number} of the paper, {part.medium.label}; {spread}. {figure.differs}".strip()
                )
                content.append(
                    pages.figure(
                        drawing.svg, caption, f"steadycast reproduce {e.id}", f"{e.id}-{figure.number}"
                    )
                )
        if part.changed:
            content.append(
                pages.folded("With changes that the paper's words do not allow", _sensitivity(part))
            )
        content.append(pages.folded("What each run sets", _listed(_settings(part))))
        body.append(pages.section(heading(part), joined(content, "\n")))
    if aside := left_aside(result):
        body.append(pages.section("Left out, because a kernel does not support it", _listed(aside)))
    if _whole(result):
        table = pages.table(*places(), prose=(0, 1, 2))
        body.append(pages.section(_BY_NUMBER, table))
    return pages.wrap("Published, and measured here · Steadycast", joined(body, "\n"))


def _listed(lines: Iterable[str]) -> Html:
    return element("ul", *(element("li", line) for line in lines))


def _cells(r: Row) -> list[str]:
    kind = _CLASS.get(r.verdict, "small")
    *plain, verdict, why = cells(r)
    return [*plain, element("span", verdict, class_=kind), why]


def _overview(result: Result) -> Html:
    """Return the counts of the verdicts, one row per experiment."""
    from steadycast.report import page as pages

    rows = []
    for part in result.parts:
        counts = [sum(r.verdict is v for r in part.rows) for v in Verdict]
        rows.append([heading(part), *(str(c) if c else "" for c in counts)])
    return pages.table(("experiment", *(v.value for v in Verdict)), rows, prose=(0,))


def _sensitivity(part: Part) -> Html:
    """Return a table of statements by change: the number, and whether it keeps the bound."""
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
    """Return all measured numbers as JSON."""
    return {
        "format": 1,
        "program": program(),
        "command": result.command,
        "seeds": list(result.seeds),
        "world": "emulated" if result.emulated else "simulated",
        "doubtful": [f"{part.experiment.id}: {each}" for part in result.parts for each in part.doubtful],
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
        "as_printed": r.printed.measured.spread if r.printed and r.printed.measured else None,
        "without_event": r.judged.placebo.spread if r.judged.placebo else None,
        "verdict": r.words,
        "why": r.why,
        "seeds_without_value": 0 if m is None else m.runs - len(m.values),
        "changes": {name: c.spread for name, c in r.changed.items()},
    }
