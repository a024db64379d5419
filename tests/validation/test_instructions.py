"""The simulator's speed: instructions per packet-hop, counted under callgrind."""

from __future__ import annotations

import shutil

import pytest
from steadycast import _core

from validation import instructions

WITHIN = 0.02
"""Maximum relative difference from the count in the file, for the same build."""
OTHER_BUILD = 2.0
"""Maximum factor for another compiler, which generates other code."""


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_a_hop_takes_the_instructions_of_the_file() -> None:
    rows = instructions.written()
    level = _core.__build__.rpartition(", ")[2]
    same = [row for row in rows if row[2] == _core.__build__]
    like = [row for row in rows if row[2].endswith(level)] or rows[: len(instructions.SECONDS)]
    expected = {workload: float(per_hop) for workload, per_hop, _ in same or like}
    counted = instructions.count()
    assert counted.keys() == expected.keys()
    off = {name: counted[name] / expected[name] for name in expected}
    print(f"{_core.__build__}: {off} of the file's")
    if same:
        remedy = "a change of speed that is meant: python -m validation.instructions --write"
        assert all(abs(ratio - 1) <= WITHIN for ratio in off.values()), f"{counted}; {remedy}"
    else:
        assert all(1 / OTHER_BUILD <= ratio <= OTHER_BUILD for ratio in off.values()), counted
