"""The tables of the papers' open questions (docs/data/q-*.csv) and the figures of docs/answers.md.

.venv/bin/python scripts/answers.py           # all of them: half an hour, unless the runs are kept
.venv/bin/python scripts/answers.py Q-2 Q-7   # of these questions
.venv/bin/python scripts/answers.py --from results/reproduction.json
                                              # the tables alone, from what `steadycast reproduce Q-1 -o results` left
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from steadycast.folder import Json
from steadycast.progress import Terminal

if TYPE_CHECKING:
    from validation import page

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
COMMAND = ".venv/bin/python scripts/answers.py"
ALL = ["Q"]

# ---------------------------------------------------------------- numbers


@dataclass(frozen=True)
class Form:
    """How a statement's number is written: times a factor, with so many decimals, with its interval or without."""

    factor: float = 1.0
    decimals: int = 2
    interval: bool = True

    def write(self, found: Json | None) -> str:
        """Write it. Of fewer than five seeds it is the least and the greatest; nothing is "never"."""
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


# ---------------------------------------------------------------- tables

Cell = tuple[str, Form] | str
"""A statement's name and how it is written, or a text."""


@dataclass(frozen=True)
class Table:
    """A table: docs/data/NAME.csv."""

    name: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell | tuple[Cell, ...], ...], ...]
    """A cell of several is written with what stands between them."""


def _crossed(
    rows: Sequence[tuple[str, ...]],
    columns: Sequence[tuple[str, Form]],
    lacking: frozenset[str] = frozenset(),
) -> tuple[tuple[Cell, ...], ...]:
    """Cross rows with columns: a row's first word in a column's name ("{}-rate"), after its other words."""
    content = []
    for each in rows:
        names = [(column.format(each[0]), form) for column, form in columns]
        content.append((*each[1:], *("" if name in lacking else (name, form) for name, form in names)))
    return tuple(content)


GROUP_SIZES = (10, 100, 1_000, 10_000)
GROUPS = {
    "asmp": "ASMP",
    "tfmcc": "TFMCC",
    "pgmcc-off": "PGMCC, no suppression",
    "pgmcc": "PGMCC, suppression",
    "quantile": 'ASMP without the lowest 2 % (`agg = "quantile"`)',
    "fraction": 'ASMP, loss over eight reports (`loss_mode = "fraction"`)',
    "hear": "ASMP, all hear all, suppression",
    "hear-off": "ASMP, all hear all, no suppression",
}
SMALLER = ("pgmcc-off", "hear", "hear-off")
"""Those that 10,000 receivers were not tried with."""


def _of_groups(what: str, form: Form, head: str) -> Table:
    lacking = frozenset(f"{name}-10000-{what}" for name in SMALLER)
    columns = [(f"{{}}-{size}-{what}", form) for size in GROUP_SIZES]
    heads = (head, *(f"{size:,}" for size in GROUP_SIZES))
    return Table(
        f"q-1-{what}",
        f"1. What do thousands of receivers do? {what.capitalize()}",
        heads,
        _crossed(list(GROUPS.items()), columns, lacking),
    )


STEERED = {
    "rbuf-type1": "type-I",
    "rbuf-type2": "type-II",
    "tfrc": "TFRC",
    "e-multfrc": "E-MULTFRC",
    "eaio-tfrc": "EAIO-TFRC",
    "no-control": "no control",
}
AIR = {"radio": "radio loss", "arq": "link-layer retransmission"}
PICTURE = (
    ("{}-rate", RATE),
    ("{}-psnr", TENTH),
    ("{}-ssim", THIRD),
    ("{}-freezes", WHOLE),
    ("{}-frozen", PERCENT),
    ("{}-lost", PERCENT_2),
)

WHEN = ("before", "long", "after")
SESSIONS = {"tfrcp-qai-cl": "TFRCP-QAI-CL", "tfrcp-qai": "TFRCP-QAI", "tfrc": "TFRC"}

CASTS = {
    "1": "single rate",
    "2": "2 groups",
    "3": "3 groups",
    "4": "4 groups",
    "at once": "4 groups, leaves at once",
    "own": "a session for each",
}


def _casts(network: str, columns: Sequence[tuple[str, Form]]) -> tuple[tuple[Cell, ...], ...]:
    rows = [
        (f"{network} {law}-{cast}", f"{law.upper()}, {label}" if cast == "1" else label)
        for law in ("asmp", "tfmcc")
        for cast, label in CASTS.items()
    ]
    lacking = frozenset(
        column.format(f"{network} {law}-{cast}")
        for law in ("asmp", "tfmcc")
        for cast in ("1", "own")
        for column, _ in columns
        if column.rpartition("-")[2] in ("moves", "unused", "most", "least")
    )
    return _crossed(rows, columns, lacking)


AIRS = {
    "radio 1": "1 % of radio loss, never full",
    "radio 3": "3 % of radio loss, never full",
    "jitter": "1 % and 5 ms of jitter, never full",
    "congestion": "congestion alone",
    "both": "congestion and 1 % of radio loss",
}
INDICATORS = ("repaired", "loss", "paper")

BESIDE = {"cubic": "CUBIC", "cbr": "CBR 2 Mb/s", "onoff": "on/off 3 Mb/s"}
LOSSES = {"bernoulli": "independent", "run": "run-length", "gilbert": "Gilbert–Elliott"}
GAMMAS = ("0.2", "0.6", "1")

TABLES = (
    _of_groups("rate", RATE, "rate from 60 to 120 s, Mb/s"),
    _of_groups("feedback", WHOLE, "feedback, packets per second, mean of 160 s"),
    _of_groups("reaction", TENTH, "from the fall to at most 400 kb/s sent, s"),
    Table(
        "q-2",
        "2. Who shows the better picture over wireless?",
        (
            "",
            "link",
            "rate, Mb/s",
            "luma PSNR, dB",
            "SSIM",
            "freezes",
            "frozen, % of time",
            "packets lost, %",
        ),
        _crossed(
            [(f"{name}-{air}", label, link) for air, link in AIR.items() for name, label in STEERED.items()],
            PICTURE,
        ),
    ),
    Table(
        "q-3",
        "3. Many sessions that come and go, and a varying round trip",
        (
            "",
            "20 ms: session / TCP, Mb/s",
            "ratio",
            "120 ms",
            "ratio",
            "20 ms again",
            "ratio",
            "loss, %",
            "Jain of the sessions",
        ),
        tuple(
            (
                label,
                *(
                    cell
                    for when in WHEN
                    for cell in (
                        (
                            (f"{name}-{when}", RATE_ALONE),
                            " / ",
                            (f"{name}-{when}-tcp", RATE_ALONE),
                        ),
                        (f"{name}-{when}-ratio", NUMBER),
                    )
                ),
                (f"{name}-lost", PERCENT_1_ALONE),
                (f"{name}-jain", NUMBER),
            )
            for name, label in SESSIONS.items()
        ),
    ),
    Table(
        "q-4-plain",
        "4. What more than one rate brings: four links of 0.5 to 4 Mb/s",
        (
            "links of 0.5 to 4 Mb/s: rate of each receiver, Mb/s",
            *("0.5", "1", "2", "4"),
            "of what the links carry, %",
            "source's link, Mb/s",
            "moves of a receiver in a minute",
            "left over on the links, %",
        ),
        _casts(
            "plain",
            [
                *((f"{{}}-r{place}", RATE) for place in (1, 2, 3, 4)),
                ("{}-used", PERCENT),
                ("{}-first", RATE),
                ("{}-moves", TENTH),
                ("{}-unused", PERCENT_1),
            ],
        ),
    ),
    Table(
        "q-4-b-h",
        "4. What more than one rate brings: B-H's network",
        (
            "B-H's network",
            "mean of the receivers, Mb/s",
            "who gains most, over single rate",
            "who gains least",
            "the far one, Mb/s",
            "a TCP, Mb/s",
            "source's link, Mb/s",
            "moves of a receiver in a minute",
        ),
        _casts(
            "b-h",
            [
                ("{}-mean", RATE),
                ("{}-most", NUMBER),
                ("{}-least", NUMBER),
                ("{}-far", RATE),
                ("{}-tcp", RATE),
                ("{}-first", RATE),
                ("{}-moves", TENTH),
            ],
        ),
    ),
    Table(
        "q-5-states",
        "5. Does ASMP's indicator tell congestion from radio loss? Reports",
        ('reports that say "congested", %', "ASMP", "as printed"),
        tuple(
            (label, *((f"{how}-{air}-states", PERCENT) for how in ("repaired", "paper")))
            for air, label in AIRS.items()
        ),
    ),
    Table(
        "q-5-rate",
        "5. Does ASMP's indicator tell congestion from radio loss? Rates",
        ("rate, Mb/s (loss, %)", "ASMP", "loss-only", "as printed"),
        tuple(
            (
                label,
                *(
                    ((f"{how}-{air}-rate", RATE), " (", (f"{how}-{air}-lost", PERCENT_1_ALONE), ")")
                    for how in INDICATORS
                ),
            )
            for air, label in AIRS.items()
        ),
    ),
    Table(
        "q-6",
        "6. What smoothing does to others",
        ("beside", "loss", "γ", "ASMP, Mb/s", "CoV", "loss, %", "other, Mb/s", "CoV", "loss, %"),
        _crossed(
            [
                (f"{other}-{loss}-{gamma}", label, kind, gamma)
                for other, label in BESIDE.items()
                for loss, kind in LOSSES.items()
                for gamma in GAMMAS
            ],
            [
                ("{}-rate", RATE),
                ("{}-cov", NUMBER),
                ("{}-lost", PERCENT_2),
                ("{}-other", RATE),
                ("{}-other-cov", NUMBER),
                ("{}-other-lost", PERCENT_2),
            ],
        ),
    ),
    Table(
        "q-6-web",
        "6. What smoothing does to web transfers",
        (
            "beside 45 web transfers, loss",
            "γ",
            "ASMP, Mb/s",
            "CoV",
            "loss, %",
            "median transfer, s",
            "95th percentile, s",
        ),
        _crossed(
            [(f"web-{loss}-{gamma}", kind, gamma) for loss, kind in LOSSES.items() for gamma in GAMMAS],
            [
                ("{}-rate", RATE),
                ("{}-cov", NUMBER),
                ("{}-lost", PERCENT_2),
                ("{}-time", NUMBER),
                ("{}-slow", NUMBER),
            ],
        ),
    ),
    Table(
        "q-7",
        "7. Do many EAIO-TFRC on one link settle?",
        (
            "streams",
            "Jain",
            "link used, %",
            "n",
            "CoV of n",
            "RTT, ms",
            "without radio loss: n",
            "RTT, ms",
            "Jain",
        ),
        (
            *_crossed(
                [(count, count) for count in ("2", "8", "16")],
                [
                    ("jain-{}", NUMBER),
                    ("used-{}", PERCENT),
                    ("n-{}", NUMBER),
                    ("wander-{}", NUMBER_ALONE),
                    ("rtt-{}", WHOLE),
                    ("clean-n-{}", NUMBER),
                    ("clean-rtt-{}", WHOLE_ALONE),
                    ("clean-jain-{}", NUMBER),
                ],
            ),
            (
                "16, all from 0 s on",
                ("together-jain", NUMBER),
                "",
                ("together-n", NUMBER),
                *("" for _ in range(5)),
            ),
        ),
    ),
    Table(
        "q-7-mixed",
        "7. EAIO-TFRC in company",
        ("two of each together", "rate of one, Mb/s", "n"),
        (
            ("EAIO-TFRC", ("mixed-eaio", RATE), ("mixed-n-eaio", NUMBER)),
            ("MULTFRC (n adapts, from 2)", ("mixed-multfrc", RATE), ("mixed-n-multfrc", NUMBER)),
            ("TFRC", ("mixed-tfrc", RATE), "1"),
        ),
    ),
)


def written(table: Table, found: Mapping[str, Json | None]) -> page.Table:
    """Fill a table.

    Raises:
        KeyError: a statement of this name was not measured.

    """
    from validation import page

    def cell(content: object) -> str:
        if isinstance(content, str):
            return content
        assert isinstance(content, tuple)
        if len(content) == 2 and isinstance(content[1], Form):
            return content[1].write(found[content[0]])
        return "".join(cell(part) for part in content)

    return page.table(table.heads, (map(cell, row) for row in table.rows))


def fill(question: str, found: Mapping[str, Json | None]) -> None:
    """Fill a question's tables."""
    from validation import page

    for table in TABLES:
        if table.name == question or table.name.startswith(f"{question}-"):
            page.save(table.name, table.title, written(table, found), COMMAND)


def main() -> None:
    """Fill the tables of some questions and draw their figures; a figure that nothing can be drawn for is told."""
    parser = argparse.ArgumentParser(description="Make the tables and figures of docs/answers.md.")
    parser.add_argument("questions", nargs="*", default=ALL, help='as "Q-2"; by default all')
    parser.add_argument(
        "--from", dest="left", type=Path, help="a reproduction.json: make the tables alone, from it"
    )
    args = parser.parse_args()
    # The laboratory is a package of the checkout, not an installed one.
    sys.path.insert(0, str(ROOT))
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
