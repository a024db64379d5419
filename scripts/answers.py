"""The tables of the papers' open questions (docs/data/q-*.csv) and the figures of docs/answers.md and answers-flows.md.

.venv/bin/python scripts/answers.py           # all of them: half an hour, unless the runs are cached
.venv/bin/python scripts/answers.py Q-2 Q-7   # of these questions
.venv/bin/python scripts/answers.py --from results/reproduction.json
                                              # the tables alone, from what `steadycast reproduce Q-1 -o results` left
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from steadycast.folder import Json
from steadycast.progress import Terminal

if TYPE_CHECKING:
    from validation import page

ROOT = Path(__file__).resolve().parent.parent
# `papers` is not an installed package.
sys.path.insert(0, str(ROOT))

from papers.engine.matrix import Value  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
COMMAND = ".venv/bin/python scripts/answers.py"
ALL = ["Q"]


@dataclass(frozen=True)
class Form:
    """How a statement's number is written: a factor, a number of decimals, and whether its interval is shown."""

    factor: float = 1.0
    decimals: int = 2
    interval: bool = True

    def write(self, found: Json | None) -> str:
        """Format a statement's numbers: minimum and maximum with fewer than five seeds, "never" if missing."""
        if found is None:
            return "never"
        if found["n"] < 5:
            return " to ".join(dict.fromkeys(self._one(found[end]) for end in ("min", "max")))
        mean = self._one(found["mean"])
        return f"{mean} ± {self._one(found['ci95'])}" if self.interval else mean

    def _one(self, value: float) -> str:
        return f"{self.factor * value:,.{self.decimals}f}"


RATE = Form(1e-6)
RATE_ALONE = Form(1e-6, interval=False)
NUMBER = Form()
NUMBER_ALONE = Form(interval=False)
THIRD = Form(decimals=3)
TENTH = Form(decimals=1)
WHOLE = Form(decimals=0)
WHOLE_ALONE = Form(decimals=0, interval=False)
PERCENT = Form(100.0, 0)
PERCENT_1 = Form(100.0, 1)
PERCENT_1_ALONE = Form(100.0, 1, interval=False)
PERCENT_2 = Form(100.0)


Cell = tuple[str, Form] | str
"""A statement's name with its format, or a text; both may name values of the axes."""


@dataclass(frozen=True)
class Table:
    """A table: docs/data/NAME.csv."""

    name: str
    title: str
    heads: tuple[str, ...]
    over: tuple[Sequence[Value], ...]
    """The table has a row for each combination of the axes' values."""
    cells: tuple[Cell | tuple[Cell, ...], ...]
    """The cells of a row. A cell can be joined from several parts, of which some are texts."""
    more: tuple[tuple[Cell, ...], ...] = ()
    """Additional rows after those of the axes."""


def axis(question: str, name: str) -> list[Value]:
    """Return the values of an axis from the experiment's file."""
    told = tomllib.loads((ROOT / "papers" / "q" / f"{question}.toml").read_text(encoding="utf-8"))
    values = next(each["values"] for each in told["axis"] if each["name"] == name)
    return [Value({"axis": name, **value}) for value in values]


def given(name: str, values: Mapping[str, str]) -> list[Value]:
    """Return an axis that is in no experiment file, from names and titles."""
    return [Value({"axis": name, "name": value, "title": title}) for value, title in values.items()]


SIZES = axis("q-1", "size")


def _of_groups(what: str, form: Form, head: str) -> Table:
    cells = tuple((f"{{who}}-{size}-{what}", form) for size in SIZES)
    heads = (head, *(f"{int(size['name']):,}" for size in SIZES))
    title = f"1. What do thousands of receivers do? {what.capitalize()}"
    return Table(f"q-1-{what}", title, heads, (axis("q-1", "who"),), ("{who.title}", *cells))


STEERED = {
    "rbuf-type1": "type-I",
    "rbuf-type2": "type-II",
    "tfrc": "TFRC",
    "e-multfrc": "E-MULTFRC",
    "eaio-tfrc": "EAIO-TFRC",
    "no-control": "no control",
}
SESSIONS = {"tfrcp-qai-cl": "TFRCP-QAI-CL", "tfrcp-qai": "TFRCP-QAI", "tfrc": "TFRC"}
WHEN = ("before", "long", "after")
AIRS = {
    "radio 1": "1 % of radio loss, spare capacity",
    "radio 3": "3 % of radio loss, spare capacity",
    "jitter": "1 % and 5 ms of jitter, spare capacity",
    "congestion": "congestion without radio loss",
    "both": "congestion and 1 % of radio loss",
}


def _casts(network: str, title: str, columns: Mapping[str, tuple[str, Form]]) -> Table:
    cells = tuple((f"{network} {{law}}-{{{network}}}-{of}", form) for of, form in columns.values())
    over = (axis("q-4", "law"), axis("q-4", network))
    heads = ("groups", *columns)
    label = f"{{law.title}}, {{{network}.title}}"
    name = f"4. What more than one rate brings: {title}"
    return Table(f"q-4-{network}", name, heads, over, (label, *cells))


TABLES = (
    _of_groups("rate", RATE, "rate from 60 to 120 s, Mb/s"),
    _of_groups("feedback", WHOLE, "feedback, packets per second, mean of 160 s"),
    _of_groups("reaction", TENTH, "from the fall to at most 400 kb/s sent, s"),
    Table(
        "q-2",
        "2. Who shows the better picture over wireless?",
        (
            *("controller", "link", "rate, Mb/s", "luma PSNR, dB", "SSIM"),
            *("freezes", "frozen, % of time", "packets lost, %"),
        ),
        (given("air", {"radio": "radio loss", "arq": "link-layer retransmission"}), given("who", STEERED)),
        (
            "{who.title}",
            "{air.title}",
            ("{who}-{air}-rate", RATE),
            ("{who}-{air}-psnr", TENTH),
            ("{who}-{air}-ssim", THIRD),
            ("{who}-{air}-freezes", WHOLE),
            ("{who}-{air}-frozen", PERCENT),
            ("{who}-{air}-lost", PERCENT_2),
        ),
    ),
    Table(
        "q-3",
        "3. Many sessions that come and go, and a varying round trip",
        (
            *("controller", "20 ms: session / TCP, Mb/s", "ratio", "120 ms", "ratio"),
            *("20 ms again", "ratio", "loss, %", "Jain of the sessions"),
        ),
        (given("who", SESSIONS),),
        (
            "{who.title}",
            *(
                cell
                for when in WHEN
                for cell in (
                    ((f"{{who}}-{when}", RATE_ALONE), " / ", (f"{{who}}-{when}-tcp", RATE_ALONE)),
                    (f"{{who}}-{when}-ratio", NUMBER),
                )
            ),
            ("{who}-lost", PERCENT_1_ALONE),
            ("{who}-jain", NUMBER),
        ),
    ),
    _casts(
        "plain",
        "four links of 0.5 to 4 Mb/s",
        {
            **{
                f"behind {rate} Mb/s, Mb/s": (f"r{n}", RATE)
                for n, rate in enumerate(("0.5", "1", "2", "4"), 1)
            },
            "of what the links carry, %": ("used", PERCENT),
            "source's link, Mb/s": ("first", RATE),
            "moves of a receiver in a minute": ("moves", TENTH),
            "left over on the links, %": ("unused", PERCENT_1),
        },
    ),
    _casts(
        "b-h",
        "B-H's network",
        {
            "mean of the receivers, Mb/s": ("mean", RATE),
            "who gains most, over single rate": ("most", NUMBER),
            "who gains least": ("least", NUMBER),
            "the far one, Mb/s": ("far", RATE),
            "a TCP, Mb/s": ("tcp", RATE),
            "source's link, Mb/s": ("first", RATE),
            "moves of a receiver in a minute": ("moves", TENTH),
        },
    ),
    Table(
        "q-5-states",
        "5. Does ASMP's indicator tell congestion from radio loss? Reports",
        ('reports that say "congested", %', "ASMP", "as printed"),
        (given("air", AIRS),),
        ("{air.title}", ("repaired-{air}-states", PERCENT), ("paper-{air}-states", PERCENT)),
    ),
    Table(
        "q-5-rate",
        "5. Does ASMP's indicator tell congestion from radio loss? Rates",
        ("rate, Mb/s (loss, %)", "ASMP", "loss-only", "as printed"),
        (given("air", AIRS),),
        (
            "{air.title}",
            *(
                ((f"{how}-{{air}}-rate", RATE), " (", (f"{how}-{{air}}-lost", PERCENT_1_ALONE), ")")
                for how in ("repaired", "loss", "paper")
            ),
        ),
    ),
    Table(
        "q-6",
        "6. What smoothing does to others",
        ("beside", "loss", "γ", "ASMP, Mb/s", "CoV", "loss, %", "other, Mb/s", "CoV", "loss, %"),
        (axis("q-6", "other"), axis("q-6", "loss"), axis("q-6", "gamma")),
        (
            *("{other.title}", "{loss.title}", "{gamma}"),
            ("{other}-{loss}-{gamma}-rate", RATE),
            ("{other}-{loss}-{gamma}-cov", NUMBER),
            ("{other}-{loss}-{gamma}-lost", PERCENT_2),
            ("{other}-{loss}-{gamma}-other", RATE),
            ("{other}-{loss}-{gamma}-other-cov", NUMBER),
            ("{other}-{loss}-{gamma}-other-lost", PERCENT_2),
        ),
    ),
    Table(
        "q-6-web",
        "6. What smoothing does to web transfers",
        (
            *("beside 45 web transfers, loss", "γ", "ASMP, Mb/s", "CoV", "loss, %"),
            *("median transfer, s", "95th percentile, s"),
        ),
        (axis("q-6", "loss"), axis("q-6", "gamma")),
        (
            *("{loss.title}", "{gamma}"),
            ("web-{loss}-{gamma}-rate", RATE),
            ("web-{loss}-{gamma}-cov", NUMBER),
            ("web-{loss}-{gamma}-lost", PERCENT_2),
            ("web-{loss}-{gamma}-time", NUMBER),
            ("web-{loss}-{gamma}-slow", NUMBER),
        ),
    ),
    Table(
        "q-7",
        "7. Do many EAIO-TFRC on one link settle?",
        (
            *("streams", "Jain", "link used, %", "n", "CoV of n", "RTT, ms"),
            *("without radio loss: n", "RTT, ms", "Jain"),
        ),
        (given("count", {"2": "2", "8": "8", "16": "16"}),),
        (
            "{count}",
            ("jain-{count}", NUMBER),
            ("used-{count}", PERCENT),
            ("n-{count}", NUMBER),
            ("wander-{count}", NUMBER_ALONE),
            ("rtt-{count}", WHOLE),
            ("clean-n-{count}", NUMBER),
            ("clean-rtt-{count}", WHOLE_ALONE),
            ("clean-jain-{count}", NUMBER),
        ),
        (
            (
                *("16, all from 0 s on", ("together-jain", NUMBER), "", ("together-n", NUMBER)),
                *("" for _ in range(5)),
            ),
        ),
    ),
    Table(
        "q-7-mixed",
        "7. EAIO-TFRC beside other flows",
        ("two of each together", "rate of one, Mb/s", "n"),
        (),
        ("EAIO-TFRC", ("mixed-eaio", RATE), ("mixed-n-eaio", NUMBER)),
        (
            ("MULTFRC (n adapts, from 2)", ("mixed-multfrc", RATE), ("mixed-n-multfrc", NUMBER)),
            ("TFRC", ("mixed-tfrc", RATE), "1"),
        ),
    ),
)


def written(table: Table, found: Mapping[str, Json | None]) -> page.Table:
    """Fill a table; a cell whose statement the experiment does not have is empty."""
    from validation import page

    def cell(content: object, values: Mapping[str, Value]) -> str:
        if isinstance(content, str):
            return content.format(**values)
        assert isinstance(content, tuple)
        if len(content) == 2 and isinstance(content[1], Form):
            name = content[0].format(**values)
            return content[1].write(found[name]) if name in found else ""
        return "".join(cell(part, values) for part in content)

    rows = [
        [cell(content, {value["axis"]: value for value in values}) for content in table.cells]
        for values in product(*table.over)
    ]
    rows += [[cell(content, {}) for content in row] for row in table.more]
    return page.table(table.heads, rows)


def fill(question: str, found: Mapping[str, Json | None]) -> None:
    """Fill the tables of a question."""
    from validation import page

    for table in TABLES:
        if table.name == question or table.name.startswith(f"{question}-"):
            page.save(table.name, table.title, written(table, found), COMMAND)


def main() -> None:
    """Fill the tables of some questions and draw their figures; report a figure without data."""
    parser = argparse.ArgumentParser(description="Make the tables and figures of docs/answers.md.")
    parser.add_argument("questions", nargs="*", default=ALL, help='as "Q-2"; by default all')
    parser.add_argument(
        "--from", dest="left", type=Path, help="a reproduction.json: make the tables alone, from it"
    )
    args = parser.parse_args()
    from papers.engine.draw import save
    from papers.engine.suite import reproduce

    if args.left is not None:
        told = json.loads(args.left.read_text(encoding="utf-8"))["statements"]
        for question in dict.fromkeys(each["experiment"] for each in told):
            found = {each["statement"]: each["measured"] for each in told if each["experiment"] == question}
            fill(question.lower(), found)
        return
    PICTURES.mkdir(exist_ok=True)
    with Terminal() as progress:
        result = reproduce(args.questions, progress=progress)
    for part in result.parts:
        question = part.experiment.id.lower()
        fill(question, {row.statement.id: row.measured and row.measured.spread for row in part.rows})
        for figure in part.experiment.figures:
            path = PICTURES / f"answers-{question}.svg"
            print(path if save(figure, part, path) else f"{figure.number}: nothing to draw")


if __name__ == "__main__":
    main()
