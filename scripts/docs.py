"""Makes the parts of docs/ that come from the program.

The glossary, the exit codes and the reference (`scripts/site_reference.py`) are built with the site; a checkout has
stubs. The README's figure and table, the manual page and the controllers' figures are files of the checkout:

    .venv/bin/python scripts/docs.py                 # all of them
    .venv/bin/python scripts/docs.py demo            # only the README's; the others are listed at the end of this file

Figures and columns come from `crates/record`, as do their headings in the glossary. Its other words come from
`python/steadycast/report/words.py`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import reference_pages
import reference_python
from steadycast.exits import Exit
from steadycast.report import canvas
from steadycast.report.words import GLOSSARY
from steadycast.style import GRID, INK, MUTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from steadycast import record
    from steadycast.folder import Folder

ROOT = Path(__file__).resolve().parent.parent
MANUAL = ROOT / "packaging" / "wheel" / "data" / "share" / "man" / "man1" / "steadycast.1"
PICTURES = ROOT / "docs" / "pictures"
CONTROLLERS = PICTURES / "controllers"
FIGURE = PICTURES / "demo-rates.png"
README = ROOT / "README.md"
WIDE = 5.8
"""Width of a page's figures in inches. On a phone they are half as wide, and still legible."""
STILLS = [PICTURES / f"demo-film-{number}.jpg" for number in (1, 2)]
ABOUT = "A video under steady; a download starts at 12 s"
HEAD = """# Glossary

The words of reports and tables. Made with the site from the lists that the reports themselves use: headings of
figures from `crates/record/src/figures.rs`, other words from `python/steadycast/report/words.py`; change them there.

| word | what it means |
|---|---|
"""


EXITS_HEAD = """# Exit codes

How each command ends, for scripts and pipelines. Made with the site from the list that the commands themselves use
(`python/steadycast/exits.py`); change it there.

| code | what it means |
|---|---|
"""
EXITS_TAIL = """
- With 1 all results are complete. "Not reproduced" and "not near" are results, with code 0.
- With 2, 3 and 4 stderr has one line: the place, the problem, the remedy. If the reader of a pipe closes it (`| head`),
  the code is 4, without a line.
- After 4 no incomplete file looks complete: a file gets its name when it is complete, and an unfinished run folder
  keeps the name DIR.part.
- `receive` writes its record before it ends with 5. If a file could not be written, the code is 4 instead.
- `send` and `receive` end with 0 when a signal ends the session and the record is written. The first signal ends the
  session, a second one changes nothing, a third one aborts it, with 130.
- `emulate --in HOST -- COMMAND` ends with the command's own code, or 128 and the number of the signal that ended it.
"""


def exits() -> str:
    """Return the page of exit codes."""
    return EXITS_HEAD + "".join(f"| {code.value} | {code.about} |\n" for code in Exit) + EXITS_TAIL


def pages() -> dict[str, str]:
    """Return the pages that are generated with the site, by path below docs/ without `.md`."""
    return {
        "reference/scenario": reference_pages.scenario_page(),
        "reference/commands": reference_pages.commands_page(),
        "reference/controllers": reference_pages.controllers_page(),
        "reference/metrics": reference_pages.metrics_page(),
        "reference/python": reference_python.python_page(),
        "record": record(),
        "exit-codes": exits(),
        "glossary": glossary(),
    }


STUB = """# {title}

This page is made from the program when the site is built: `make docs`, then open `build/site/{name}.html`. {instead}
"""
INSTEAD = {
    "reference/scenario": "In a terminal: `steadycast check --explain KEY`.",
    "reference/commands": "In a terminal: `steadycast --help`, `steadycast COMMAND --help`, or `man steadycast`.",
    "reference/controllers": "In a terminal: `steadycast controllers NAME`.",
    "reference/metrics": "A live session with `--metrics` exports each metric with its description.",
    "reference/python": "In Python: `help(steadycast)`.",
    "record": "The figures are listed in `crates/record/src/figures.rs`, the columns in `column.rs`.",
    "exit-codes": "In a terminal: `steadycast --help`; the list is in `python/steadycast/exits.py`.",
    "glossary": "The report of a run explains its terms. All terms are in `python/steadycast/report/words.py`.",
}


def stubs() -> None:
    """Write the stubs that a checkout has in place of the generated pages."""
    for name, text in pages().items():
        title = text.partition("\n")[0].removeprefix("# ")
        place = ROOT / "docs" / f"{name}.md"
        place.parent.mkdir(exist_ok=True)
        place.write_text(STUB.format(title=title, name=name, instead=INSTEAD[name]), encoding="utf-8")


def glossary() -> str:
    """Return the glossary page, in alphabetical order."""
    rows = (
        f"| **{word}** | {text} |\n" for word, text in sorted(GLOSSARY.items(), key=lambda e: e[0].lower())
    )
    return HEAD + "".join(rows)


RECORD_HEAD = """# Figures and columns of a run

Every key of `summary.json` and every column of every table, with its unit and its meaning. Made with the site from
the lists by which the program itself writes, checks and shows them (`crates/record/src/figures.rs` and `column.rs`);
change them there.

A figure is a path of keys: `flows.NAME.share_of_fair`, `flows.NAME.receivers.NODE.delay_ms.p95`,
`links.NAME.back.drop_frac` (without `back`, the forward direction is meant),
`simulcasts.NAME.receivers.NODE.share_of_fair`. Expectations (`[[expect]]`) and `compare --fail-if` name numbers by
such paths. A number that is not known is null. Keys and columns change only with a line in the
[changelog](../CHANGELOG.md).

Over several seeds (`seeds.json`) each number becomes `{"mean", "ci95", "min", "max", "n"}`: `ci95` is half of the 95 %
confidence interval of the mean, by Student's t.
"""
OWNERS = {
    "run": "The run: `summary.json` itself",
    "flow": "A flow: `flows.NAME`",
    "receiver": "A receiver of a flow: `flows.NAME.receivers.NODE`",
    "link": "A direction of a link: `links.NAME.forward` or `links.NAME.back`",
    "simulcast": "A simulcast: `simulcasts.NAME`",
    "viewer": "A receiver of a simulcast: `simulcasts.NAME.receivers.NODE`",
    "invariant": "A promise that the run has checked: `invariants.ID`",
    "expectation": "An expectation: an element of `expect`",
    "cost": "What the run cost: `cost.json`",
}
TABLES = {
    "rates": "Per interval of the record: a row for each source (what it sent) and for each receiver (what arrived).",
    "decisions": "What each controller decided, and what each receiver's half reported, as it happened.",
    "frames": "What became of each frame at each receiver.",
    "missing": "Which bytes of damaged frames did not arrive; written where there are some.",
    "audio": "What became of each audio packet at each receiver, if `[record] audio` is true.",
    "links": "Per interval of the record, for each direction of a link that was offered a packet.",
    "tcp": "Per interval of the record, for each TCP source.",
    "moves": "Moves of a simulcast's receivers; written where there are some.",
    "wire": "Datagrams of the hosts that `emulate(…, tap=…)` names, one by one; written where there are some.",
    "packets": "Packets one by one, of the flows that `[record] packets` names.",
}


def record() -> str:
    """Return the page of figures and columns."""
    from steadycast import record as told

    lines = [RECORD_HEAD]
    for of, heading in OWNERS.items():
        figures = [f for f in told.FIGURES if f.of == of]
        lines.append(f"\n## {heading}\n\n| key | unit | meaning |\n|---|---|---|\n")
        lines += [f"| `{_path(f)}` | {f.unit} | {_meaning(f)} |\n" for f in figures]
        if of == "invariant":
            lines += _promises()
    lines.append(
        "\n## Tables\n\nParquet files of a run folder, and `run.table(NAME)` in Python. "
        "Times are seconds from the start of the run.\n"
    )
    for name, about in TABLES.items():
        lines.append(f"\n### {name}\n\n{about}\n\n| column | unit | meaning |\n|---|---|---|\n")
        for column in (c for c in told.COLUMNS if c.table == name):
            pixels = " Null where no pictures were measured." if column.measured else ""
            lines.append(f"| `{column.name}` | {column.unit} | {column.about}{pixels} |\n")
    return "".join(lines)


def _promises() -> list[str]:
    """Return the lines of the session's invariants; those of controllers are with their parameters."""
    from steadycast.core import core

    lines = [
        "\nA promise that was broken is a warning of the run. Those of the controllers are listed with their",
        " [parameters](reference/controllers.md); these are the session's, whichever controller runs in it:\n",
        "\n| promise | what is promised |\n|---|---|\n",
    ]
    return lines + [f"| `{name}` | {about} |\n" for name, about in core.promises()]


def _path(figure: record.Figure) -> str:
    if figure.by_flow:
        return f"{figure.key}.FLOW"
    return f"{figure.key}.{{{','.join(figure.parts)}}}" if figure.parts else figure.key


def _meaning(figure: record.Figure) -> str:
    return figure.about + (f" *Of {figure.when}.*" if figure.when else "")


def demo() -> None:
    """Run the demo; draw its figure, and put its table into the README."""
    from rich.console import Console
    from steadycast.folder import Folder
    from steadycast.report import figures, terminal
    from steadycast.run import run

    # `validation` is not an installed package.
    sys.path.insert(0, str(ROOT))
    from validation import page

    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "demo"
        summary = run(ROOT / "scenarios" / "demo.toml", out=place, film=True).summary
        figures.save(Folder.open(place), "rates", FIGURE)
        seconds = stills(Folder.open(place))
    console = Console(width=80, color_system=None)
    with console.capture() as said:
        console.print(terminal.flows(summary))
    table = "\n".join(line.rstrip() for line in said.get().rstrip().splitlines())
    pictures = "\n".join(
        f"![{what}]({path.relative_to(ROOT)})" for what, path in zip(STILL, STILLS, strict=True)
    )
    caption = (
        f"*{ABOUT}: `steadycast demo`. The table covers the time from 12 s on; *of fair* is the rate in"
        " per cent of the fair share, and the [scores](docs/viewing-score.md) go from 1 (bad) to 5 (excellent). The"
        f" pictures show the film at {seconds}: on the left the original, on the right what the viewer saw.*"
    )
    shown = f"![{ABOUT}]({FIGURE.relative_to(ROOT)})\n\n{pictures}\n\n```\n{table}\n```\n\n{caption}"
    page.put(README, "demo", shown)
    print(FIGURE, README, sep="\n")


STILL = (
    "A person signing, while the download takes its share",
    "The worst picture, just after the download started",
)
SIGNS = 150
"""Pictures with a person who signs, out of each 400 of the synthetic clip."""


def stills(folder: Folder) -> str:
    """Save two pictures of a run's film: the worst one with the signing person, and the worst of all.

    Returns their times.
    """
    import io

    import av
    import polars as pl

    assert folder.film is not None, "the demo has a film"
    facts, data = folder.film
    frames = folder.table("frames").filter(pl.col("psnr_y_db").is_not_null())
    frames = frames.filter(pl.col("due_s").is_between(facts["from_s"], facts["to_s"] - 0.5)).sort("psnr_y_db")
    first = folder.table("frames").filter(pl.col("due_s") >= facts["from_s"])["display"].min()
    with av.open(io.BytesIO(data)) as container:
        pictures = [frame.to_image() for frame in container.decode(video=0)]
    shown = []
    signs = frames.filter(pl.col("display") % 400 < SIGNS)
    for row, path in ((signs[0], STILLS[0]), (frames[0], STILLS[1])):
        pictures[min(len(pictures) - 1, row["display"][0] - first)].save(path, quality=88)
        shown.append(f"{row['due_s'][0]:.1f} s")
    return " and ".join(shown)


def controllers() -> None:
    """Draw how each controller behaves in scenarios/controllers.toml."""
    from steadycast.controllers import registry
    from steadycast.folder import Folder
    from steadycast.run import run

    CONTROLLERS.mkdir(parents=True, exist_ok=True)
    for entry in registry():
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / entry.name
            sets = [f"flow.video.controller={entry.name}"]
            run(ROOT / "scenarios" / "controllers.toml", set=sets, out=place)
            shown = Folder.open(place)
            path = CONTROLLERS / f"{entry.name}.svg"
            canvas.save_drawing(lambda shown=shown: glance(shown), path)  # type: ignore[misc]
        print(path)


def glance(folder: Folder) -> Figure:
    """Draw the rates of the video and of TCP, and the delay of both."""
    from steadycast.report.series import draw_series, series

    figure, panels = canvas.canvas(2, height=3.8)
    for axes, column, scale, title, top in (
        (panels[0], "throughput_bps", 1e6, "Throughput (Mb/s) on a link of 2 Mb/s", 2.6),
        (panels[1], "delay_ms", 1.0, "One-way delay (ms), of which 30 are the path's", 260.0),
    ):
        lines = series(folder, column)
        axes.set_xlim(0, 100)
        axes.set_ylim(0, top)
        labels = draw_series(axes, lines, scale)
        axes.axvspan(30, 60, color=GRID, zorder=0, linewidth=0)
        axes.axvline(75, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
        for start, what in ((1, "alone"), (31, "beside a TCP"), (61, "alone"), (76, "2 % of packets lost")):
            axes.text(start, 0.97 * top, what, va="top", fontsize=8, color=INK)
        axes.set_title(title)
        canvas.label_ends(axes, labels)
    panels[-1].set_xlabel("time (s)", loc="right", labelpad=1)
    return figure


def manual() -> None:
    """Write the manual page that the wheel installs."""
    MANUAL.write_text(reference_pages.man_page(), encoding="utf-8")


PARTS = {"stubs": stubs, "manual": manual, "demo": demo, "controllers": controllers}

if __name__ == "__main__":
    canvas.WIDTH = WIDE
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
