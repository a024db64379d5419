"""All lines and texts have enough contrast on a light page and on a dark one."""

from __future__ import annotations

import itertools
import re

import pytest
from steadycast import style
from steadycast.controllers import registry
from steadycast.report import page
from steadycast.report.markup import Html

PAPERS = (style.PAPER, style.DARK_PAPER)
PALETTE = sorted({*(c.colour for c in registry()), *style.SPARE, *style.FATE.values(), style.INK})


@pytest.mark.parametrize("paper", PAPERS)
def test_every_line_has_a_contrast_of_at_least_4_5_with_its_paper(paper: str) -> None:
    for colour in PALETTE:
        drawn = style.readable(colour, paper)
        assert style.contrast(drawn, paper) >= style.LEAST_CONTRAST, (colour, drawn)
        # A colour that has enough contrast is not changed.
        assert style.contrast(colour, paper) < style.LEAST_CONTRAST or drawn == colour


def test_no_colour_of_a_lost_frame_is_that_of_a_score() -> None:
    assert len({*style.FATE.values(), *(colour for _, colour in style.MOS.values())}) == 8


def test_flows_that_look_alike_are_told_apart_and_each_can_be_read() -> None:
    flows = [{"kind": "tcp", "congestion": "cubic"}] * 4 + [{"kind": "video", "controller": "gcc"}] * 4
    looks = style.looks(flows)
    assert len({(look.colour, look.dashes) for look in looks}) == len(flows)
    assert all(style.contrast(look.colour, style.PAPER) >= style.LEAST_CONTRAST for look in looks)


def test_texts_on_areas_can_be_read() -> None:
    for grade, (_, colour) in style.MOS.items():
        ink = "#ffffff" if grade in (1, 5) else "#111111"
        assert style.contrast(ink, colour) >= style.LEAST_CONTRAST, grade
    for name, colour in style.LIMIT.items():
        assert style.contrast("#111111", colour) >= style.LEAST_CONTRAST, name


def test_what_a_page_writes_can_be_read_on_what_it_is_written_on() -> None:
    drawing = "".join(f"<i style='stroke: var(--c-{colour[1:]}, {colour})'></i>" for colour in PALETTE)
    text = page.wrap("", Html(drawing))
    schemes = [
        dict(re.findall(r"--([\w-]+):(#[0-9a-f]{3,6})\b", block))
        for block in re.findall(r":root\{([^}]*)\}", text)
    ]
    schemes = [
        {k: v if len(v) == 7 else "#" + "".join(c * 2 for c in v[1:]) for k, v in s.items()}
        for s in schemes
        if "ink" in s
    ]
    assert [scheme["paper"] for scheme in schemes] == ["#ffffff", style.DARK_PAPER]
    for scheme in schemes:
        inks = [
            name
            for name in scheme
            if name in ("ink", "muted", "accent", "warn", "ok") or name.startswith("c-")
        ]
        assert len(inks) > len(PALETTE)
        for name, on in itertools.product(inks, ("paper",)):
            assert style.contrast(scheme[name], scheme[on]) >= style.LEAST_CONTRAST, (name, scheme[name])
        for name, on in (("ink", "soft"), ("muted", "soft"), ("ink", "warnbg")):
            assert style.contrast(scheme[name], scheme[on]) >= style.LEAST_CONTRAST, (name, on)
