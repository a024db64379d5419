"""Compares the fairness, the delay and the picture quality of runs.

If a baseline and conditions are given, it decides whether a change made a run worse.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from steadycast import files
from steadycast.arguments import typed
from steadycast.errors import UserError
from steadycast.folder import Folder, Json, find, number, write_text
from steadycast.report import canvas, choice, film, over_time, page, run_comparison, say
from steadycast.report.answer import uncompared
from steadycast.report.cells import Cells, verdict
from steadycast.report.markup import Html, element, joined, plain
from steadycast.report.run_comparison import Run, quantities, sections
from steadycast.report.words import glossary, term

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_OVER = "# Over the network "
_MOST_VALUES = 3


@dataclass(frozen=True)
class Condition:
    """A limit for the change of a quantity from the baseline to a run (`--fail-if`).

    For example, `flows.tcp.share_of_fair<-10%` fails if the quantity decreases by more than 10 %.
    """

    text: str
    path: str
    below: bool
    change: float
    relative: bool

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a condition."""
        match = re.fullmatch(r"\s*([^<>\s]+)\s*([<>])\s*([+-]?[0-9]+(?:\.[0-9]+)?)\s*(%?)\s*", text)
        if match is None:
            raise UserError(
                f"--fail-if {text}",
                "this is not PATH<CHANGE or PATH>CHANGE",
                "write for example 'flows.tcp.share_of_fair<-10%' in quotes",
            )
        relative = match[4] == "%"
        return cls(text, match[1], match[2] == "<", float(match[3]) / (100 if relative else 1), relative)


@dataclass(frozen=True)
class Verdict:
    """The result of a condition for one run. The condition fails if the value of the baseline or the run is absent."""

    run: str
    condition: Condition
    was: float | None
    now: float | None

    @property
    def change(self) -> float | None:
        """The change from the baseline: a fraction of the baseline, or a difference in the quantity's unit."""
        if self.was is None or self.now is None:
            return None
        step = self.now - self.was
        if not self.condition.relative:
            return step
        if self.was == 0:
            return math.copysign(math.inf, step) if step else 0.0
        return step / abs(self.was)

    @property
    def fails(self) -> bool:
        """Whether the change is larger than the condition allows, or is unknown."""
        if self.change is None:
            return True
        # Add a tolerance, so that a change that equals the limit does not fail because of a rounding error.
        slack = 1e-12 * max(1.0, abs(self.condition.change))
        return (
            self.change < self.condition.change - slack
            if self.condition.below
            else self.change > self.condition.change + slack
        )


def read(paths: Sequence[Path]) -> list[Run]:
    """Read runs. If several folders have the same name, the runs get their paths as names."""
    runs = [run_comparison.read(path) for path in paths]
    names = [name for name, _ in {(run.name, run.path.resolve()) for run in runs}]
    return [Run(str(r.path), r.path, r.summary, r.folders) if names.count(r.name) > 1 else r for r in runs]


def doubts(runs: Sequence[Run], base: Run | None = None) -> list[str]:
    """Return the reasons why runs can't be compared, for example an interrupted run or another scenario.

    Keys that `--set` changes may differ, except name, network, clips, flows and duration.
    """
    every = with_base(runs, base)
    said = [
        f"{run.name} was interrupted: it holds the beginning of a run, not its result"
        for run in every
        if run.summary.get("complete") is False
    ]
    against = base or (every[0] if every else None)
    for run in every:
        if against is not None and (differences := _differences(run, against)):
            said.append(f"{run.name} is not a run of {against.name}'s scenario: {', '.join(differences)}")
    return said


def _differences(run: Run, against: Run) -> list[str]:
    def names(summary: Json) -> list[str]:
        return [str(flow.get("name")) for flow in summary.get("flows") or []]

    def clips(run: Run) -> list[Any]:
        return [(flow.get("media"), flow.get("clip")) for flow in run.folders[0].scenario.get("flow", [])]

    differences = []
    one, other = run.summary, against.summary
    mine, theirs = ((s.get("scenario") or {}).get("name") for s in (one, other))
    if mine != theirs:
        differences.append(f"{mine} instead of {theirs}")
    if _network(run)[0] != _network(against)[0]:
        differences.append("another network")
    if names(one) == names(other) and clips(run) != clips(against):
        differences.append("other clips")
    if names(one) != names(other):
        differences.append("other flows")
    # Do not compare the durations if a run was interrupted, because it is shorter.
    if one.get("complete") is not False and other.get("complete") is not False:
        ends = [number(s.get("to_s")) for s in (one, other)]
        if None not in ends and ends[0] != ends[1]:
            differences.append(f"{say.seconds(ends[0])} instead of {say.seconds(ends[1])}")
    return differences


def network_difference(run: Run, against: Run) -> str:
    """Describe in parentheses how the networks of two runs differ. Return an empty text if they do not differ."""
    (named, one), (other_named, other) = (_network(each) for each in (run, against))
    if named != other_named:
        return f" ({named or 'its own'} instead of {other_named or 'its own'})"
    differ = (
        []
        if not one or not other
        else [
            f"{key} {one.get(key, 'absent')} instead of {other.get(key, 'absent')}"
            for key in {**one, **other}
            if one.get(key) != other.get(key)
        ]
    )
    more = f", and {len(differ) - _MOST_VALUES} more values" if len(differ) > _MOST_VALUES else ""
    return f" ({', '.join(differ[:_MOST_VALUES])}{more})" if differ else ""


def _network(run: Run) -> tuple[str, dict[str, str]]:
    """Return the name of a run's network, and the values of its topology, links and events by key."""
    if not run.folders:
        return "", {}
    first = run.folders[0].scenario_text.partition("\n")[0]
    scenario = run.folders[0].scenario
    name = first.removeprefix(_OVER).removesuffix(".") if first.startswith(_OVER) else ""
    parts = {key: scenario.get(key) for key in ("topology", "link", "event")}
    return name, dict(_values("", parts))


def _values(at: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _values(f"{at}.{key}" if at else key, below)
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for n, below in enumerate(value, 1):
            name = below.get("name", n) if isinstance(below, dict) else n
            yield from _values(f"{at}.{name}", below)
    elif value is not None:
        yield at, str(value)


def judge(runs: Sequence[Run], base: Run, conditions: Sequence[Condition]) -> list[Verdict]:
    """Check each condition for each run."""
    return [
        Verdict(
            run.name,
            c,
            number(find(base.summary, c.path, place=str(base.path))),
            number(find(run.summary, c.path, place=str(run.path))),
        )
        for c in conditions
        for run in runs
    ]


def tables(runs: Sequence[Run], base: Run | None, verdicts: Sequence[Verdict]) -> list[Any]:
    """Build the tables for the terminal: the runs in rows, the quantities, and the results of the conditions."""
    from steadycast.report import terminal

    every = with_base(runs, base)
    found: list[Any] = [terminal.Fitted(*_lines(every), title=_marked(every))] if len(every) > 1 else []
    found.append(terminal.Fitted(*_quantities(every, base)))
    return [*found, terminal.filled(*_judged(verdicts))] if verdicts else found


def _lines(runs: Sequence[Run]) -> Cells:
    classes = {"best": ("ok", "▲"), "worst": ("bad", "▼")}

    def cell(column: run_comparison.Measure, n: int) -> str:
        said = str(column.how(column.values[n]))
        colour, sign = classes.get(column.marks()[n], ("", ""))
        return element("span", f"{said} {sign}", class_=colour) if sign else said

    columns = run_comparison.measures(runs)
    rows = [[run.name, *(cell(c, n) for c in columns)] for n, run in enumerate(runs)]
    return ["run", *(column.head for column in columns)], rows


def _quantities(runs: Sequence[Run], base: Run | None) -> Cells:
    return ["", *(run.name for run in runs)], [[row.head, *_cells(row, base)] for row in quantities(runs)]


def _judged(verdicts: Sequence[Verdict]) -> Cells:
    rows = []
    for v in verdicts:
        how = say.by_unit(v.condition.path)
        said = element("code", v.condition.text)
        rows.append([said, v.run, how(v.was), how(v.now), _change(v), verdict(holds=not v.fails)])
    return ["fails if", "run", "baseline", "now", "change", ""], rows


def _marked(runs: Sequence[Run]) -> str:
    """Explain the marks at the best and the worst value, or explain why there are no marks."""
    few = [run.name for run in runs if len(run.folders) <= 1]
    if not few:
        return "▲ best, ▼ worst; no mark: too close to call"
    return f"one seed {'each' if len(few) == len(runs) else f'of {say.listed(few)}'}, so nothing is marked"


def as_json(runs: Sequence[Run], base: Run | None, verdicts: Sequence[Verdict]) -> Json:
    """Return the comparison as JSON: the quantities of each run, and the verdicts."""
    every = with_base(runs, base)
    rows = quantities(every)
    return {
        "runs": [
            {
                "name": run.name,
                "path": str(run.path),
                **{plain(row.head): _json(row.values[i]) for row in rows},
            }
            for i, run in enumerate(every)
        ],
        "answer": answer(every),
        "verdict": chosen(every).as_json() if len(every) > 1 else None,
        "baseline": base.name if base is not None else None,
        "conditions": [
            {
                "run": v.run,
                "fail_if": v.condition.text,
                "was": v.was,
                "now": v.now,
                "change": v.change if v.change is not None and math.isfinite(v.change) else None,
                "ok": not v.fails,
            }
            for v in verdicts
        ],
    }


def notes(runs: Sequence[Run]) -> list[str]:
    """Return a warning for each video whose rate the network did not limit, with the name of its run."""
    return [f"{run.name}: {note}" for run in runs for note in uncompared(run.summary)]


def write_page(runs: Sequence[Run], base: Run | None, verdicts: Sequence[Verdict], path: Path) -> Path:
    """Write the HTML page that shows all runs on shared scales."""
    every = with_base(runs, base)
    command = (
        "steadycast compare "
        + " ".join(str(r.path) for r in runs)
        + (f" --baseline {base.path}" if base else "")
    )
    doubted = [f"{doubt}." for doubt in doubts(runs, base)]
    several = any(len(r.folders) > 1 for r in every)
    spread = " ± is half of the 95 % confidence interval of the mean." if several else ""
    median = ("Loss, delay and quality are the ", term("median"), " receiver's.")
    content = joined(
        (
            element("h1", " · ".join(run.name for run in every)),
            *(element("p", note, class_="nothing") for note in (*doubted, *notes(every))),
            element("p", answer(every), class_="answer") if len(every) > 1 else Html(),
            element("p", rule, class_="small") if (rule := said_rule(every)) else Html(),
            _line_table(every),
            page.table(*_judged(verdicts)) if verdicts else Html(),
            page.table(*_quantities(every, base)),
            element("p", *median, spread, class_="small"),
            page.section(*film.shown([run.folders[0] for run in every if len(run.folders) == 1])),
            sections(every, command),
        )
    )
    whole = page.wrap("Comparison · Steadycast", content + page.section("Words", glossary(content)))
    write_text(path, whole, "give another -o FILE")
    return path


def save_figures(runs: Sequence[Run], base: Run | None, folder: Path) -> list[Path]:
    """Save each figure with all runs on one axis, as PDF, SVG and PNG. Save its data as CSV."""
    every = with_base(runs, base)
    saved: list[Path] = []
    files.folder(folder)
    for name, draw, lines in _figures(every):
        drawing = canvas.drawn(draw)
        if drawing is None:
            continue
        for ending in (".pdf", ".svg", ".png"):
            saved.append(folder / f"{name}{ending}")
            drawing.save(saved[-1])
        saved.append(folder / f"{name}.csv")
        write_text(saved[-1], run_comparison.data(*lines()))
    if not saved:
        raise UserError("--figures", "none of these runs has a video over time", "leave --figures out")
    return saved


_Drawn = tuple[str, Callable[[], "Figure | None"], Callable[[], tuple[list[run_comparison.Seen], str]]]


def _figures(runs: Sequence[Run]) -> Iterator[_Drawn]:
    """Yield each figure's name, the function that draws it, and the function that returns its lines.

    Figures with one point per frame show only the first seed.
    """
    for name, (_, column, _, _) in run_comparison.FIGURES.items():
        yield (
            name,
            partial(run_comparison.together, runs, name),
            lambda column=column: (run_comparison.videos(runs, column), column),  # type: ignore[misc]
        )
    firsts = [(run.name, run.folders[0]) for run in runs]
    for quantity in over_time.QUANTITIES.values():
        yield (
            quantity.name,
            partial(over_time.draw, quantity, firsts),
            partial(_lines_over_time, quantity, firsts),
        )


def _lines_over_time(
    quantity: over_time.Quantity, runs: Sequence[tuple[str, Folder]]
) -> tuple[list[run_comparison.Seen], str]:
    lines = [
        run_comparison.Seen(f"{name}: {line.flow['name']}", line.flow, line.t.tolist(), line.values.tolist())
        for name, folder in runs
        for line in quantity.lines(folder)
    ]
    return lines, quantity.name


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """A comparison of runs, which notebooks can show."""

    runs: Sequence[Run]

    @property
    def answer(self) -> str:
        """A few sentences that recommend a run, with the reason and the costs."""
        return answer(self.runs, "python")

    @property
    def verdict(self) -> Json:
        """The recommendation as plain values: the recommended run, the decisive differences, and the rule."""
        return chosen(self.runs, "python").as_json()

    def plot(self, name: str = "videos") -> canvas.Drawing:
        """Draw the throughput ("videos") or the delay ("delays") of the videos of all runs on one axis.

        Raises:
            UserError: there is no figure of this name, or it has no data.

        """
        drawing = (
            canvas.drawn(lambda: run_comparison.together(self.runs, name))
            if name in run_comparison.FIGURES
            else None
        )
        if drawing is None:
            remedy = f"there are: {', '.join(run_comparison.FIGURES)}, of runs with a video"
            raise UserError(name, "there is no such figure of these runs", remedy)
        return drawing

    def save(self, path: Path | str) -> Path:
        """Write the page that `steadycast compare` writes, and return its path.

        Raises:
            UnwrittenError: the file can't be written.

        """
        return write_page(self.runs, None, [], Path(path))

    def __repr__(self) -> str:
        from steadycast.report import terminal

        console = terminal.console()
        with console.capture() as caught:
            console.print(terminal.Fitted(*_lines(self.runs), title=_marked(self.runs)))
        return f"{self.answer}\n\n{caught.get()}".rstrip()

    def _repr_html_(self) -> str:
        return element("p", self.answer) + _line_table(self.runs)


@typed
def compare(runs: Mapping[str, Any] | Sequence[Any]) -> Comparison:
    """Compare runs.

    Args:
        runs: results of `run`, or run folders (one seed or several); a mapping gives each run a name.

    Raises:
        UserError: there are fewer than two runs, or one value is not a run.

    """
    named = list(runs.items()) if isinstance(runs, Mapping) else [(None, each) for each in runs]
    if len(named) < 2:
        raise UserError("compare", f"{len(named)} run is nothing to compare", "give two or more")
    found = [_compared(name, each) for name, each in named]
    names = [run.name for run in found]
    return Comparison(
        [
            replace(run, name=f"{run.name} ({n})") if names.count(run.name) > 1 else run
            for n, run in enumerate(found, 1)
        ]
    )


def _compared(name: str | None, given: Any) -> Run:
    if isinstance(given, str | Path):
        run = run_comparison.read(Path(given))
        return run if name is None else replace(run, name=name)
    summary = getattr(given, "summary", None)
    if summary is None:
        raise UserError(f"{given!r:.60}", "this is not a run", "give what run(…) returned, or a run's folder")
    folder = given.held()
    steered = {str(flow["controller"]) for flow in summary["flows"] if flow.get("controller")}
    return Run(name or " and ".join(sorted(steered)) or folder.name, folder.path, summary, (folder,))


def with_base(runs: Sequence[Run], base: Run | None) -> list[Run]:
    """Return the baseline, followed by the other runs."""
    if base is None:
        return list(runs)
    return [base, *(run for run in runs if run.path.resolve() != base.path.resolve())]


def _cells(row: run_comparison.Row, base: Run | None) -> list[str]:
    cells = [row.how(v) for v in row.values]
    was = number(row.values[0])
    if base is None or was is None:
        return cells
    for i, value in enumerate(row.values[1:], 1):
        now = number(value)
        if now is None:
            continue
        if row.how in (say.db, say.score):  # a percentage of a logarithmic value has no meaning
            cells[i] += f" ({now - was:+.2f})"
        elif row.how is say.frac:  # percentage points
            points = 100 * (now - was)
            points = round(points) if abs(points) >= 10 else round(points, 1)
            cells[i] += f" ({points:+g} points)" if points else " (=)"
        elif was:
            share = round(100 * (now - was) / abs(was))
            cells[i] += f" ({share:+d} %)" if share else " (=)"
    return cells


def answer(runs: Sequence[Run], where: choice.Where = "compare") -> str:
    """Recommend a run in words, with the reason and the costs. Return an empty text for a single run."""
    return " ".join(chosen(runs, where).said)


def said_rule(runs: Sequence[Run]) -> str:
    """Return the rule by which a run is recommended. Return an empty text for a single run."""
    return choice.RULE if len(runs) > 1 else ""


def chosen(runs: Sequence[Run], where: choice.Where = "compare") -> choice.Verdict:
    """Choose the recommended run. The rule compares the runs seed by seed."""
    tested = choice.in_question([run.summary for run in runs])
    networks = [
        f"{run.name} ran over another network than {runs[0].name}{found}"
        for run in runs[1:]
        if (found := network_difference(run, runs[0]))
    ]
    candidates = [choice.candidate(run.name, _by_seed(run), tested) for run in runs]
    return choice.verdict(candidates, where, networks)


def _by_seed(run: Run) -> dict[int, Json]:
    """Return the summaries of a run by seed.

    If the run has no folder for each seed, the only summary is the run's own, which contains means.
    """
    summaries = [folder.summary for folder in run.folders] or [run.summary]
    return {choice.seed_of(summary, n): summary for n, summary in enumerate(summaries)}


def _line_table(runs: Sequence[Run]) -> Html:
    if len(runs) < 2:
        return Html()
    marked = _marked(runs)
    note = (
        "Each cell shows the flow that is worst off, with several receivers the median one. "
        f"{marked[0].upper()}{marked[1:]}."
    )
    return page.table(*_lines(runs)) + element("p", note, class_="small")


def _change(verdict: Verdict) -> str:
    change = verdict.change
    if change is None:
        return "no value"
    if math.isinf(change):
        return "from nothing"
    return f"{100 * change:+.1f} %" if verdict.condition.relative else f"{change:+.3g}"


def _json(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float | dict) else str(value)
