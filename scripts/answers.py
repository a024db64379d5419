"""The figures of docs/answers.md, from the runs behind them.

.venv/bin/python scripts/answers.py           # all of them: minutes, unless the runs are kept
.venv/bin/python scripts/answers.py Q-1       # one question's
"""

from __future__ import annotations

import sys
from pathlib import Path

from steadycast.progress import Terminal

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"


def main(ids: list[str]) -> None:
    """Draw each figure of some questions; one that nothing can be drawn for is told."""
    # The laboratory is a package of the checkout, not an installed one.
    sys.path.insert(0, str(ROOT))
    from papers.engine.draw import save
    from papers.engine.suite import reproduce

    PICTURES.mkdir(exist_ok=True)
    with Terminal() as progress:
        result = reproduce(ids, progress=progress)
    for part in result.parts:
        for figure in part.experiment.figures:
            path = PICTURES / f"answers-{part.experiment.id.lower()}.svg"
            print(path if save(figure, part, path) else f"{figure.number}: nothing to draw")


if __name__ == "__main__":
    main(sys.argv[1:] or ["Q"])
