"""Figures of the experiments."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from papers import EXPERIMENTS
from papers.engine import drawings
from papers.engine.draw import draw, drawing
from papers.engine.experiment import Curve, Figure, Line, Medium, Variant
from papers.engine.observe import Observed
from papers.engine.quantity import quantity
from papers.engine.suite import Part


def part_of(variants: list[str], flows: dict[str, dict[str, object]]) -> Part:
    experiment = replace(EXPERIMENTS[0], variants=tuple(Variant(v, v.upper(), {}) for v in variants))
    seen = {v: Observed({"flows": flows, "to_s": 4.0}) for v in variants}
    return Part(experiment, Medium("table2", "sizes", {}, pixels=False), (1, 2), (seen, seen), {}, ())


def test_a_sweep_takes_the_look_of_the_flow_that_its_curve_measures() -> None:
    part = part_of(["a", "b"], {"tcp": {"kind": "tcp", "congestion": "reno", "throughput_bps": 1e6}})
    curve = Curve("TCP", ((1.0, "a"), (2.0, "b")), quantity("tcp.rate"), 1e-6)
    made = draw(
        Figure("Figure 1", "over x", "sweep", ("a", "b"), curves=(curve,), axes=("x", "Mb/s")), part, "f"
    )
    assert made is not None
    assert "TCP" in made


def test_each_unit_of_a_figure_over_time_has_a_panel_with_its_name() -> None:
    video = {"kind": "video", "controller": "asmp", "step_s": 1.0}
    series = {"targets": [8e3, 12e3, None, 9e3], "losses": [0.0, 0.1, 0.0, 0.2]}
    part = part_of(["a"], {"video": {**video, **series}})
    lines = (Line("rate", "a", "video", "targets"), Line("loss", "a", "video", "losses"))
    made = draw(Figure("Figure 2", "both", "series", ("a",), lines=lines), part, "f")
    assert made is not None
    assert all(name in made for name in ("rate (kb/s)", "lost packets (%)", "time (s)"))


def test_lines_of_one_controller_have_colours_of_their_own_or_panels_and_end_where_they_are_told_to() -> None:
    video = {"kind": "video", "controller": "asmp", "step_s": 1.0, "targets": [8e3, 12e3, 10e3, 9e3]}
    part = part_of(["a", "b"], {"video": video})
    lines = (Line("one", "a", "video", "targets"), Line("two", "b", "video", "targets"))
    figure = Figure("Figure 3", "both", "series", ("a", "b"), lines=lines, until=2.0)
    made = drawing(figure, part)
    assert made is not None
    (axes,) = made.figure.axes
    assert len({line.get_color() for line in axes.lines if line.get_alpha() is None}) == 2
    assert axes.get_xlim() == (0, 2.0)
    apart = drawing(replace(figure, apart=True), part)
    assert apart is not None
    assert len(apart.figure.axes) == 2


@pytest.mark.parametrize("draw_seed", range(2))
def test_figures_are_the_same_whether_processes_draw_them_or_not(
    draw_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = random.Random(draw_seed)
    experiment = next(e for e in EXPERIMENTS if e.id == "K-A")

    def flow(**what: str) -> dict[str, object]:
        return {**what, "step_s": 1.0, "rates": [drawn.uniform(0, 4e6) for _ in range(8)]}

    def run() -> Observed:
        flows = {"video": flow(kind="video", controller="asmp"), "tcp": flow(kind="tcp", congestion="reno")}
        return Observed({"flows": flows, "to_s": 8.0})

    base = tuple({v.name: run() for v in experiment.variants} for _ in range(2))
    part = Part(experiment, Medium("table2", "sizes", {}, pixels=False), (1, 2), base, {}, ())
    here = drawings.draw_all([part, part], docs=True)
    monkeypatch.setattr(drawings, "_PER_PROCESS", 1)
    monkeypatch.setattr(drawings, "cores", lambda: 2)
    assert here == drawings.draw_all([part, part], docs=True)
    assert {place: bool(formats.png) for place, formats in here.items()} == {
        (n, f.number): True for n in range(2) for f in experiment.figures
    }
    first = experiment.figures[0]
    assert here[0, first.number].svg == draw(first, part, f"p0-{first.number.split()[-1]}")
