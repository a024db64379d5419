"""Makes the papers' experiments: a page with all figures under build/, and the tables and pictures of docs/papers.

    .venv/bin/python scripts/reproduction.py         # a quarter of an hour on two cores, unless the runs are cached
    .venv/bin/python scripts/reproduction.py B       # of one paper, by its family; the others' rows stay as they are
    .venv/bin/python scripts/reproduction.py K FILE…     # with pictures of these clips in place of the synthetic film
    .venv/bin/python scripts/reproduction.py --sweep H   # searches other settings: docs/data/papers-*-sweep*.csv
    .venv/bin/python scripts/reproduction.py --sweep K-G FILE…   # of the experiments that the family's sweep left out
    .venv/bin/python scripts/reproduction.py --calculate [NAME…]  # checks of statements without the simulator
    .venv/bin/python scripts/reproduction.py --emulated [CLIP…]   # the testbeds in real time: docs/papers-live.md

The tables are docs/data/papers-*.csv and reproduction*.csv, the pictures docs/pictures/papers. In the pages, only the
text between the marks `answer`, `world`, `statements`, `tables`, `figures`, `sweep`, `sweeps` and `headline` is
generated.
"""

from __future__ import annotations

import csv
import os
import platform
import re
import resource
import sys
import tomllib
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from papers.engine.drawings import Formats
    from papers.engine.experiment import Figure, Verdict
    from papers.engine.suite import Part, Result
    from papers.engine.sweep import Search


@dataclass(frozen=True)
class Scale:
    """The extent of a sweep."""

    rows: int
    """Number of rows of the design."""
    seeds: tuple[int, ...]
    """The seeds of the first steps."""
    pictures: bool = True
    """Whether the statements that need decoded pictures are included."""
    without: tuple[str, ...] = ()
    """Ids of experiments that are left out because their runs take the longest."""
    only: tuple[str, ...] = ()
    """Ids of the searched experiments; all but `without` if empty. All of the paper's judge the best settings."""

    @property
    def words(self) -> str:
        """The extent in a few words."""
        if self.only:
            return f"{', '.join(self.only)}: {self.rows} rows, {self._seeds}"
        left = [*self.without, *(() if self.pictures else ("statements that need pictures",))]
        return f"{self.rows} rows, {self._seeds}{' without ' if left else ''}{', '.join(left)}"

    @property
    def _seeds(self) -> str:
        return f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"seeds {', '.join(map(str, self.seeds))}"

    @property
    def left_out(self) -> str:
        """What is left out, as a sentence with a space before it; empty if nothing is."""
        pictures = () if self.pictures else ("the statements that need pictures",)
        left = [*self.without, *pictures]
        *first, last = left or [""]
        named = f"{', '.join(first)} and {last}" if first else last
        return f" The sweep leaves out {named}, because their runs take too long." if left else ""


ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
BUILD = ROOT / "build" / "reproduction"
PICTURES = DOCS / "pictures" / "papers"
PAGES = {"K": "evalvid-ra", "M": "mpeg-tfrcp", "H": "receiver-buffer", "C": "many-tfrcs", "B": "asmp"}
"""Pages of docs/papers, by the family of their experiments."""
REAL_TIME = ("M", "H-L", "C-F")
SHOWN = (
    ("M-A", "UDP's throughput"),
    ("M-D", "QAI's throughput divided by TCP's"),
    ("M-F", "QAI-CL's throughput divided by TCP's"),
    ("H-L", "packets that overflowed the receiver's buffer"),
    ("C-F", "EAIO-TFRC's throughput divided by TFRC's"),
)
"""The statements in the table of docs/papers-live.md."""
SWEEPS = {
    "K": Scale(rows=16, seeds=(1,), pictures=False),
    "M": Scale(rows=32, seeds=(1, 2)),
    "H": Scale(rows=24, seeds=(1, 2)),
    "C": Scale(rows=4, seeds=(1,), without=("C-C", "C-D")),
    "B": Scale(rows=24, seeds=(1,), without=("B-G", "B-J", "B-K")),
    # Experiments left out above that have statements which do not hold.
    "K-G": Scale(rows=12, seeds=(1,), only=("K-G",)),
    "C-C": Scale(rows=8, seeds=(1,), only=("C-C",)),
    "B-G": Scale(rows=12, seeds=(1,), only=("B-G", "B-J", "B-K")),
}
"""The extent of each sweep, by the paper's family or by the sweep's first experiment."""


def main(words: list[str]) -> None:
    """Run the experiments that are not cached, and write the results."""
    # `papers` is not an installed package.
    sys.path.insert(0, str(ROOT))
    if words[:1] == ["--calculate"]:
        from papers.engine import calculate

        calculate.show(words[1:])
        return
    if words[:1] == ["--emulated"]:
        clips = [Path(word) for word in words[1:]]
        result, _ = _made(ROOT / "runs" / "papers-live", REAL_TIME, emulated=True, clips=clips)
        _live(result)
        return
    clips = [Path(word) for word in words if Path(word).is_file()]
    ids = [word for word in words if not Path(word).is_file()]
    if ids[:1] == ["--sweep"]:
        for name in ids[1:] or list(SWEEPS):
            _sweep(name, clips)
        return
    result, drawings = _made(BUILD, ids or ["all"], clips=clips)
    ran = [family for family in PAGES if any(part.experiment.id[0] == family for part in result.parts)]
    for family in ran:
        _paper(result, family, drawings)
    _together(result, ran)
    print(f"{DOCS.relative_to(ROOT)}/papers\n{(BUILD / 'reproduction.html').relative_to(ROOT)}")


def _made(place: Path, ids: Sequence[str], **how: Any) -> tuple[Result, Mapping[tuple[int, str], Formats]]:
    """Run experiments, write their page and numbers into a folder, and draw the figures."""
    from steadycast.folder import Draft
    from steadycast.progress import Terminal

    from papers.engine.drawings import draw_all
    from papers.engine.suite import MARK, reproduce, save

    with Draft(place, force=True, mark=MARK) as draft:
        with Terminal() as progress:
            result = reproduce(ids, progress=progress, **how)
        drawings = draw_all(result.parts, docs=True)
        save(result, draft, drawings)
    return result, drawings


def _live(result: Result) -> None:
    from papers.engine import write
    from validation import page

    text, title = DOCS / "papers-live.md", "The papers' testbeds in real time: published, simulated, emulated"
    heads, rows = write.everything(result)
    page.save("papers-live", title, page.table(heads, rows), "make papers-live", write.note(result))
    doubtful = sum(len(part.doubtful) for part in result.parts)
    said = (
        f"Commit {write.commit()}, {os.cpu_count()} cores, Linux {platform.release()}. {write.answer(result)}"
    )
    page.put(
        text,
        "answer",
        f"{said} The number of runs for which the machine was too busy twice (at first, and when the run was "
        f"repeated) is {doubtful}.",
    )
    shown = [n for n, head in enumerate(heads) if head not in ("bound", "other readings", "reason")]
    made = (dict(zip(heads, row, strict=True)) for row in rows)
    chosen = [list(row.values()) for row in made if (row["experiment"], row["statement"]) in SHOWN]
    picked = page.table([heads[n] for n in shown], [[row[n] for n in shown] for row in chosen])
    page.put(text, "numbers", picked)


def _paper(result: Result, family: str, drawings: Mapping[tuple[int, str], Formats]) -> None:
    from papers.engine import tables, write
    from validation import page

    parts = [part for part in result.parts if part.experiment.id[0] == family]
    text = DOCS / "papers" / f"{PAGES[family]}.md"
    title = f"{parts[0].experiment.paper}: its statements"
    made = page.table(*write.statements(result, family))
    page.save(f"papers-{PAGES[family]}", title, made, result.command, write.note(result))
    page.put(text, "world", write.world(family))
    page.put(text, "statements", write.brief(result, family))
    made_tables = [tables.markdown(t, part) for part in parts for t in part.experiment.tables]
    page.put(text, "tables", "\n\n".join(made_tables))
    page.put(text, "figures", "\n".join(_galleries(result, family, drawings)).strip())


def _together(result: Result, ran: list[str]) -> None:
    """Replace the rows of the papers that ran, and count the verdicts of all papers."""
    from papers.engine import write
    from papers.engine.experiment import Verdict
    from validation import page

    heads, rows = write.everything(result)
    with (page.DATA / "reproduction.csv").open(encoding="utf-8", newline="") as file:
        kept = list(csv.reader(file))
    # With other headings, the old verdicts have another meaning.
    rows += [row for row in kept[1:] if kept[0] == list(heads) and row[0][0] not in ran]
    rows.sort(key=lambda row: list(PAGES).index(row[0][0]))
    at = heads.index("as printed")
    verdicts = [(row[0][0], Verdict.of(row[-2]), _printed(row[at], Verdict.of(row[-2]))) for row in rows]
    counted = write.families((family, verdict) for family, verdict, _ in verdicts)
    note = f"{write.note(result)} The other papers' rows are of the commits that their own tables name."
    for name, title, made in (
        ("reproduction", "The papers' statements, published and measured", (heads, rows)),
        ("reproduction-families", "The verdicts in the joint setting, by paper", counted),
        ("reproduction-numbers", "The papers' figures and tables by their numbers", write.places()),
    ):
        page.save(name, title, page.table(*made), result.command, note)
    pairs = {family: [(v, p) for whose, v, p in verdicts if whose == family] for family in PAGES}
    pairs = {family: found for family, found in pairs.items() if found}
    linked = {f"[{PAGES[family]}](papers/{PAGES[family]}.md)": found for family, found in pairs.items()}
    page.put(DOCS / "reproduction.md", "headline", write.by_paper(linked))
    for family, found in pairs.items():
        name = PAGES[family]
        of = tomllib.loads((page.DATA / f"papers-{name}.toml").read_text(encoding="utf-8"))
        made = f"Commit {of['commit']} and this command gave the verdicts below: `{of['command']}`."
        said = f"{made}\n\n{write.outcome(found)}"
        table = f"Table: [every statement](../data/papers-{name}.csv)."
        page.put(DOCS / "papers" / f"{name}.md", "answer", f"{said}\n\n{table}")


def _printed(cell: str, verdict: Verdict) -> Verdict:
    """Return the verdict as printed.

    If it differs from the one in the joint setting, the cell has it after the number.
    """
    from papers.engine.experiment import Verdict

    _, _, other = cell.partition(": ")
    return Verdict.of(other) if other else verdict


def _sweep(name: str, clips: list[Path]) -> None:
    from steadycast.progress import Terminal

    from papers.engine import sweep
    from papers.engine.registry import FAMILIES

    scale = SWEEPS[name]
    without = [e.id for e in FAMILIES[name[0]] if e.id not in scale.only] if scale.only else scale.without
    with Terminal() as progress:
        found = sweep.search(
            name[0],
            scale.rows,
            scale.seeds,
            progress,
            pictures=scale.pictures,
            without=without,
            whole=bool(scale.only),
            clips=clips,
        )
    _write_sweep(name, found, clips)


def _write_sweep(name: str, found: Search, clips: Sequence[Path]) -> None:
    from papers.engine import sweep
    from papers.engine.registry import FAMILIES
    from validation import page

    sent = "".join(f" {clip.name}" for clip in clips)
    command = f".venv/bin/python scripts/reproduction.py --sweep {name}{sent}"
    note = "A statement holds where its mean keeps its bound and the mean without its event does not."
    made = page.table(sweep.HEADS, list(sweep.table(found)))
    page.save(_sweep_file(name), "Settings that the paper allows", made, command, note)
    text = DOCS / "papers" / f"{PAGES[name[0]]}.md"
    world = FAMILIES[name[0]][0].world
    adopted = False
    if world is not None and found.judged is not None:
        former, candidate = (each.tried.takes for each in found.judged)
        adopted = former != frozenset(world.takes) == candidate
    said = sweep.summary(found, f"../data/{_sweep_file(name)}.csv", adopted)
    told = " ".join([*filter(None, [SWEEPS[name].left_out.strip()]), said])
    page.put(text, "sweep" if name in PAGES else f"sweep {name}", f"```sh\n{command}\n```\n\n{told}")
    _overview()


def _sweep_file(name: str) -> str:
    """Return the name of a sweep's table: "papers-asmp-sweep", or "papers-asmp-sweep-b-g" of a few experiments."""
    of = "" if name in PAGES else f"-{name.lower()}"
    return f"papers-{PAGES[name[0]]}-sweep{of}"


def _overview() -> None:
    from papers.engine import sweep
    from validation import page

    tables = []
    for name, scale in SWEEPS.items():
        path = page.DATA / f"{_sweep_file(name)}.csv"
        if not path.is_file():
            continue
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        of = PAGES[name[0]]
        link = f"[{of}](papers/{of}.md#other-settings-that-the-paper-allows)"
        tables.append((f"{link}: {scale.words}", rows))
    page.put(DOCS / "reproduction.md", "sweeps", sweep.overview(tables))


def _galleries(result: Result, family: str, drawings: Mapping[tuple[int, str], Formats]) -> Iterator[str]:
    """Write a paper's figures as pictures, and yield the lines that show them, two per row."""
    from papers.engine import write

    numbered = [n for n, part in enumerate(result.parts) if part.experiment.id[0] == family]
    PICTURES.mkdir(parents=True, exist_ok=True)
    for _, media in groupby(numbered, key=lambda n: result.parts[n].experiment.id):
        of = list(media)
        e = result.parts[of[0]].experiment
        cells = []
        for n in of:
            for f in e.figures:
                drawing = drawings.get((n, f.number))
                if drawing is None or not drawing.png:
                    continue
                name = picture(result.parts[n], f)
                (PICTURES / f"{name}.png").write_bytes(drawing.png)
                differs = f"<br>{f.number}: {' '.join(f.differs.split())}" if f.differs else ""
                cells.append(f"![{f.number}](../pictures/papers/{name}.png){differs}")
        if cells:
            cells += [""] * (len(cells) % 2)
            rows = [f"| {a} | {b} |" for a, b in zip(cells[::2], cells[1::2], strict=True)]
            what = f"{write.caption(e)}. Command: `steadycast reproduce {e.id}`"
            yield from (what, "", "| | |", "|---|---|", *rows, "")


def picture(part: Part, figure: Figure) -> str:
    """Return the name of a figure's picture: "k-a-figure-3"."""
    return re.sub(r"[^a-z0-9]+", "-", f"{part.experiment.id} {figure.number}".lower()).strip("-")


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of its workers that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    main(sys.argv[1:])
    print(f"CPU time, without runs that were cached: {_cpu_s():.0f} s")
