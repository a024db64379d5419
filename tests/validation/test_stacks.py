"""The tables of means of the page about adapters."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from validation import page, stacks
from validation.stacks import ESTIMATORS, ROUNDS, Row

NETWORKS = [(name, beside) for some in ROUNDS for name in some for beside in (False, True)]


def made(seed: int) -> list[Row]:
    """Make a row for each estimator and network, some of them not trusted."""
    rng = random.Random(seed)
    return [
        Row(
            each,
            name,
            beside,
            {
                "throughput_bps": rng.uniform(0.1e6, each.cap_bps),
                "tcp_share_of_fair": rng.uniform(0.2, 2.0) if beside else None,
                "fair_bps": rng.uniform(0.5e6, 3e6) if beside else None,
                "delay_p95_ms": rng.uniform(20, 900),
                "freezes_per_min": rng.uniform(0, 40),
                "loss_frac": rng.uniform(0, 0.2),
            },
            "rtp",
            rng.random() < 0.55,
            "",
            "",
        )
        for each in ESTIMATORS
        for name, beside in NETWORKS
    ]


def common(rows: list[Row], stack: str) -> set[tuple[str, bool]]:
    """Return the networks on which no estimator of a stack has a cell that is not trusted."""
    bad = {(row.network, row.beside) for row in rows if row.estimator.stack == stack and not row.trusted}
    return set(NETWORKS) - bad


def test_means_are_over_the_networks_in_which_all_estimators_of_a_stack_are_trusted() -> None:
    for seed in range(5):
        rows = made(seed)
        rates, delays = stacks.summaries(rows)
        trusted = {each.stack: common(rows, each.stack) for each in ESTIMATORS}
        shown = [each for each in ESTIMATORS if len(trusted[each.stack]) >= stacks.FEWEST]
        assert 0 < len(shown) < len(ESTIMATORS), "the rows have both kinds of stacks"
        assert [cells[:2] for cells in rates.rows] == [(each.stack, each.name) for each in shown]
        assert [cells[:2] for cells in delays.rows] == [(each.stack, each.name) for each in shown]
        for estimator, rate, delay in zip(shown, rates.rows, delays.rows, strict=True):
            good = [
                row
                for row in rows
                if row.estimator == estimator and (row.network, row.beside) in trusted[estimator.stack]
            ]
            alone, beside = ([row for row in good if row.beside == wanted] for wanted in (False, True))
            assert rate[2] == f"{len(alone)} + {len(beside)}"
            for part, mbps, late in ((alone, rate[3], delay[2]), (beside, rate[4], delay[3])):
                if not part:
                    assert mbps == late == "–"
                    continue
                assert abs(float(mbps) - fmean(r.figures["throughput_bps"] or 0 for r in part) / 1e6) <= 0.006
                assert abs(float(late) - fmean(r.figures["delay_p95_ms"] or 0 for r in part)) <= 0.51


def test_rows_of_the_file_are_kept_unless_a_trusted_cell_is_newer(tmp_path: Path) -> None:
    old = made(1)
    page.store("stacks", page.table(stacks.HEADS, [row.cells() for row in old]), {}, tmp_path)
    read = list(stacks.kept(tmp_path / "stacks.csv"))
    assert [row.cells() for row in read] == [row.cells() for row in old]
    assert [(row.cell, row.trusted) for row in read] == [(row.cell, row.trusted) for row in old]
    new = [replace(row, commit="new", trusted=row.network != "lte") for row in made(2)[: len(old) // 2]]
    states = {row.cell: row.trusted for row in old}
    for row in stacks.best([*read, *new]):
        newer = next((each for each in new if each.cell == row.cell), None)
        expected = newer is not None and (newer.trusted or not states[row.cell])
        assert (row.commit == "new") == expected


def test_the_page_has_the_tables_that_the_program_writes_and_a_phone_can_show_them() -> None:
    text = (page.DOCS / "adapters-compared.md").read_text(encoding="utf-8")
    shown = text.partition("<!-- stacks: begin -->")[2].partition("<!-- stacks: end -->")[0]
    rows = made(0)
    for made_table in (*stacks.summaries(rows), stacks.verdicts(rows)):
        assert page.head(made_table.heads) in shown
        assert len(made_table.heads) <= 6


@pytest.mark.parametrize("seed", range(4))
def test_each_missed_bound_that_is_counted_is_listed(seed: int) -> None:
    rows = made(seed)
    counted = [cell.split(":")[0].split(" of ") for row in stacks.verdicts(rows).rows for cell in row[1:]]
    assert sum(int(of) - int(kept) for kept, of in counted) == len(stacks.misses(rows).rows)
