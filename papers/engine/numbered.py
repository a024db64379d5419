"""Lists every numbered figure and table of the papers, and where its content is found."""

from __future__ import annotations

from collections.abc import Iterable

from papers.engine.experiment import Experiment
from papers.engine.registry import FAMILIES

_PAPER = {name: each[0].paper for name, each in FAMILIES.items()}
_NETWORK = "a network: papers/scenarios/"
_DRAWING = "a drawing of how the system works; no data"

# Figures and tables without an experiment: drawings of networks or programs, and tables that are statements.
_OTHERS: dict[str, dict[str, str]] = {
    _PAPER["K"]: {
        "Figure 1": "a drawing of the tool chain; here: docs/toolchain.md",
        "Figure 2": f"{_NETWORK}k-a.toml",
        "Figure 7": "a drawing of equations 3 and 4, on which K-C rests",
        "Figure 13": "a drawing of the play-out limit that K-E sets",
        "Table 1": "PSNR to opinion score: docs/glossary.md",
        "Table 2": "the ladder of rates: media `table2`",
    },
    _PAPER["M"]: {
        "Figure 1": _DRAWING,
        "Figure 2": "the map from quantizer to rate: media `map001`, in docs/deviations.md",
        "Figure 4": f"{_NETWORK}m-a.toml",
        "Figure 5": _DRAWING,
        "Table I": "M-G, its statements",
    },
    _PAPER["H"]: {
        "Figure 2": _DRAWING,
        "Figure 3": _DRAWING,
        "Figure 5": "the states: docs/controllers/rbuf.md",
        "Figure 16": "photographs; H-L has what can be measured",
        "Table 1": "H-C, its statements",
    },
    _PAPER["C"]: {
        "Figure 1": _DRAWING,
        "Figure 2": f"{_NETWORK}c-a.toml",
        "Table 1": "C-F, its statements",
    },
    _PAPER["B"]: {
        "Figure 1": "a flow chart: docs/controllers/asmp.md",
        "Figure 2": "a flow chart: docs/controllers/asmp.md",
        "Figure 3": f"{_NETWORK}b-a.toml",
        "Figure 11": f"{_NETWORK}b-c.toml",
        "Figure 14": f"{_NETWORK}b-e.toml",
        "Figure 21": f"{_NETWORK}b-f.toml",
        "Figure 23": f"{_NETWORK}b-g2.toml",
        "Figure 25": f"{_NETWORK}b-h.toml",
        "Figure 29": f"{_NETWORK}b-i.toml",
        "Figure 32": f"{_NETWORK}b-j.toml",
        "Table I": "B-E, its statements",
        "Table II": "B-E, its statements",
    },
}

COUNTS: dict[str, tuple[int, tuple[str, ...]]] = {
    _PAPER["K"]: (21, ("1", "2")),
    _PAPER["M"]: (12, ("I",)),
    _PAPER["H"]: (16, ("1",)),
    _PAPER["C"]: (3, ("1",)),
    _PAPER["B"]: (34, ("I", "II", "III")),
}
"""For each paper, its number of figures and the numbers of its tables."""


def numbered(experiments: Iterable[Experiment]) -> list[tuple[str, str, str]]:
    """Return paper, number and place of every numbered figure and table; the place is empty if it is not reproduced."""
    drawn: dict[tuple[str, str], list[str]] = {}
    for e in experiments:
        for figure in e.figures:
            number = figure.number.partition(",")[0].partition("(")[0].strip()
            places = drawn.setdefault((e.paper, number), [])
            if e.id not in places:
                places.append(e.id)
    return [
        (paper, number, ", ".join(drawn.get((paper, number), [])) or _OTHERS[paper].get(number, ""))
        for paper, (figures, tables) in COUNTS.items()
        for number in [*(f"Figure {n}" for n in range(1, figures + 1)), *(f"Table {n}" for n in tables)]
    ]
