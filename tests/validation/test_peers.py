"""Comparisons with other programs: our networks, and rows that are kept if a program is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from steadycast.errors import MissingError

from validation import page, peers


def test_a_row_is_near_within_a_tenth_and_each_network_is_ours() -> None:
    for row in peers.ROWS:
        short = replace(row, sets={**row.sets, "duration": "2s", "warmup": "1s"})
        assert set(peers.ours(short, 1)) == set(row.figures)
    pie = next(row for row in peers.ROWS if row.setup.startswith("PIE"))
    own = peers.ours(pie, 1)
    for factor, near in ((1.08, "yes"), (0.92, "yes"), (1.12, "no"), (0.88, "no")):
        theirs = {key: value * factor for key, value in own.items()}
        lines = peers.cells(replace(pie, program="once", theirs=theirs))
        assert [line[-1] for line in lines] == [near] * len(own)


def test_a_missing_program_is_said_and_its_rows_stay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: object) -> dict[str, float]:
        raise MissingError("ns-3", "it is not here", "install it")

    monkeypatch.setitem(peers.PROGRAMS, peers.NS3, missing)
    assert peers.main(["ns-3"]) == 0
    told = capsys.readouterr()
    assert told.err.count("it is not here") == 1
    stored = (page.DATA / f"{peers.NAME}.csv").read_text().splitlines()
    assert len(told.out.split("\n")) == len(stored) + 3
