"""The list of all experiments that `steadycast reproduce` knows."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from steadycast.errors import UserError

from papers.engine.experiment import Experiment
from papers.engine.read import PAPERS_FOLDER, family
from papers.engine.values import values

FAMILIES: dict[str, tuple[Experiment, ...]] = {
    name: family(PAPERS_FOLDER / name.lower(), [o for v in values(name) for o in v.others])
    for name in "KMHCBQ"
}
"""Each family's experiments."""

PAPERS: tuple[Experiment, ...] = tuple(e for name, each in FAMILIES.items() if name != "Q" for e in each)
"""The experiments of the papers, which "all" selects."""

EXPERIMENTS: tuple[Experiment, ...] = (*PAPERS, *FAMILIES["Q"])


def chosen(ids: Sequence[str]) -> list[Experiment]:
    """Return experiments by id: "K-A", "K" for a family, or "all" for the papers' experiments.

    The experiments are in the order of `EXPERIMENTS`, each once.

    Raises:
        UserError: there is no such experiment.

    """
    wanted: set[str] = set()
    for name in ids:
        found = [
            e.id for e in (PAPERS if name.upper() == "ALL" else EXPERIMENTS) if _names(name.upper(), e.id)
        ]
        if not found:
            known = [*FAMILIES, *(e.id for e in EXPERIMENTS)]
            near = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.5)
            hint = f'did you mean "{near[0]}"? ' if near else ""
            raise UserError(name, "no such experiment", f'{hint}"steadycast reproduce" lists all')
        wanted |= set(found)
    return [e for e in EXPERIMENTS if e.id in wanted]


def _names(name: str, id: str) -> bool:
    return name in ("ALL", id, id.partition("-")[0])
