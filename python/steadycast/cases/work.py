"""Executes one run of a case in a worker process, and returns its measures, and its series if it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from steadycast.cases.case import SUITES, cases, sets
from steadycast.progress import Silent
from steadycast.result import Run

_POINTS = 240
"""The most points of a drawn series."""


@dataclass(frozen=True)
class Task:
    """A run of a case."""

    case: str
    variant: str
    controller: str
    seed: int
    drawn: bool
    """Whether its series are returned."""
    emulated: bool = False
    """Whether it is emulated in real time, instead of simulated."""

    def __str__(self) -> str:
        return f"{self.case} {self.variant}".rstrip() + f", {self.controller}, seed {self.seed}"


@dataclass(frozen=True)
class Done:
    """The result of a run."""

    measures: dict[str, float | None] = field(default_factory=dict)
    values: list[float | None] = field(default_factory=list)
    """The value of each bound in the case's order, before the division by its reference variant."""
    converged: list[tuple[float, float | None]] = field(default_factory=list)
    """The begin of each segment, and the time in seconds until the rate converged."""
    record_sha256: str = ""
    trustworthy: bool = True
    """Whether the machine was fast enough for the emulation; always true for a simulation."""
    drawing: dict[str, Any] = field(default_factory=dict)


def begin(folder: Path) -> Callable[[Task], Done]:
    """Return the function that runs a task; the scenarios are in ``folder``."""
    known = {case.id: case for suite in SUITES for case in cases(suite)}

    def one(task: Task) -> Done:
        from steadycast.cases import measure

        case = known[task.case]
        variant = case.variant(task.variant)
        done = _run(task, folder / f"{variant.scenario}.toml", sets(variant, task.controller))
        facts = measure.Facts.of(done, case.links)
        found = measure.measured(facts)
        return Done(
            found,
            measure.values(case, facts, found),
            measure.convergence(facts),
            str(done.summary["record_sha256"]),
            bool(done.summary.get("emulation", {}).get("trustworthy", True)),
            _drawing(facts) if task.drawn else {},
        )

    return one


def _run(task: Task, scenario: Path, changes: list[str]) -> Run:
    if task.emulated:
        from steadycast.emulate import emulate

        return emulate(scenario, set=changes, seed=task.seed, quality=False, progress=Silent()).run
    from steadycast.run import run

    return run(scenario, set=changes, seed=task.seed, quality=False, progress=Silent())


def _drawing(facts: Any) -> dict[str, Any]:
    """Return the series of a run, reduced to the points of a figure, in kb/s and ms."""
    size = max(1, -(-len(facts.at) // _POINTS))
    steps = len(facts.at) // size * size

    def coarse(series: Any, scale: float) -> list[float | None]:
        rows = np.asarray(series[:steps], dtype=np.float64).reshape(-1, size)
        known = np.isfinite(rows)
        sums, counts = np.where(known, rows, 0.0).sum(axis=1), known.sum(axis=1)
        return [round(float(s / n / scale), 1) if n else None for s, n in zip(sums, counts, strict=True)]

    looks = {flow["name"]: flow for flow in facts.summary["flows"]}
    return {
        "t_s": [round(float(t + size * facts.step / 2), 2) for t in facts.at[:steps:size]],
        "flows": [
            {
                "name": flow.name,
                "kind": flow.kind,
                "controller": looks[flow.name].get("controller"),
                "congestion": looks[flow.name].get("congestion"),
                "rate_kbps": coarse(facts.received[flow.name], 1e3),
                "delay_ms": coarse(facts.delay[flow.name], 1.0) if flow.kind == "video" else [],
            }
            for flow in facts.flows
            if flow.kind in ("video", "tcp")
        ],
        "capacity_kbps": {name: coarse(series, 1e3) for name, series in facts.capacity.items()},
    }
