"""Faults of a network and the rate's response, with upper and lower bounds, in short and in full form.

`python -m pytest tests/emulate/test_faults.py -m claim` prints the table of docs/faults.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import Claimed

from .conftest import marked_processes
from .faults import FAULTS, HEAD, Bounds, Fault, Outcome, row, suffer

_TOLD: dict[bool, dict[str, Future[Outcome]]] = {}
"""The outcome of each fault, in short and in full form."""


def suffered(full: bool) -> dict[str, Future[Outcome]]:
    """Start all faults in parallel, since they mostly wait. Returns their outcomes."""
    if full not in _TOLD:
        with ThreadPoolExecutor(len(FAULTS)) as pool:
            _TOLD[full] = {fault.name: pool.submit(suffer, fault, full) for fault in FAULTS}
    return _TOLD[full]


def result(full: bool, name: str) -> Outcome:
    """Return the effect of a fault."""
    return suffered(full)[name].result()


@pytest.fixture(scope="module", autouse=True)
def _table(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        for full, told in _TOLD.items():
            print(f"\n\n{'at full length' if full else 'in short'}\n\n{HEAD}")
            print(*(row(f, told[f.name].result()) for f in FAULTS if not told[f.name].exception()), sep="\n")


def within(value: float | None, bounds: Bounds | None, what: str) -> None:
    """Check a lower and an upper bound. Without bounds, there must be no value."""
    if bounds is None:
        assert value is None, f"{what}: {value}"
    else:
        assert value is not None, f"{what}: it has not"
        assert bounds[0] <= value <= bounds[1], f"{what}: {value} is not within {bounds}"


def held(claimed: Claimed, fault: Fault, full: bool) -> None:
    """Check that the rate is within its bounds, and that the record is complete."""
    told = result(full, fault.name)
    # These must hold even if the machine is busy.
    assert told.summary["complete"] is True
    assert (told.code or 0, told.failed) == (0, [])
    # A killed process leaves no record; all others do.
    assert told.folders == fault.records
    with claimed(trusted=told.trustworthy):
        within(told.before, fault.before, "before")
        within(told.during, fault.during, "during")
        within(told.after, fault.after, "after")
        within(told.falls_s, fault.falls_s, "time to fall")
        within(told.returns_s, fault.returns_s, "time to return")
        within(told.hit, fault.hit, "packets hit")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_the_rate_falls_and_returns(fault: Fault, claimed: Claimed) -> None:
    held(claimed, fault, full=False)


@pytest.mark.claim
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_the_rate_falls_and_returns_at_full_length(fault: Fault, claimed: Claimed) -> None:
    held(claimed, fault, full=True)


def asmp_by_clock(claimed: Claimed, full: bool, most: float) -> None:
    """A wrong clock of a receiver costs less than this share of the rate."""
    names = [fault.name for fault in FAULTS if "clock" in fault.name or "asmp" in fault.name]
    told = {name: result(full, name) for name in names}
    rates = {name: each.summary["flows"][0]["throughput_bps"] for name, each in told.items()}
    right = rates["no fault, asmp"]
    assert len(rates) == 3
    with claimed(trusted=all(each.trustworthy for each in told.values())):
        assert all(abs(rate / right - 1.0) < most for rate in rates.values()), rates


def test_a_clock_changes_the_rate_by_less_than_a_tenth(claimed: Claimed) -> None:
    # The bound was 1/20 until a run had a rate of 0.946. In this short form a single additional reduction is that
    # large.
    asmp_by_clock(claimed, full=False, most=0.1)


@pytest.mark.claim
def test_a_clock_changes_the_rate_by_less_than_a_twentieth_at_full_length(claimed: Claimed) -> None:
    asmp_by_clock(claimed, full=True, most=0.05)


def defended(claimed: Claimed, full: bool) -> None:
    """With its feedback filter, a group of 16 keeps four fifths of its rate.

    Without it, the rate falls to its minimum.
    """
    safe, trusting = result(full, "1 liar of 16, defended"), result(full, "1 liar of 16, trusted")
    with claimed(trusted=safe.trustworthy and trusting.trustworthy):
        # The rate may still be rising to the link's 1 Mb/s when the fault begins, from 0.7 Mb/s on.
        assert 0.8 <= safe.during / safe.before <= 1.45
        assert 0.03 <= trusting.during / trusting.before <= 0.25


def test_one_liar_of_sixteen_costs_a_defended_group_less_than_a_fifth(claimed: Claimed) -> None:
    defended(claimed, full=False)


@pytest.mark.claim
def test_one_liar_of_sixteen_costs_a_defended_group_less_than_a_fifth_at_full_length(
    claimed: Claimed,
) -> None:
    defended(claimed, full=True)


def test_what_an_address_sends_beyond_a_groups_share_is_refused_and_counted(claimed: Claimed) -> None:
    flood = result(False, "1000 lies a second under as many names, defended")
    with claimed(trusted=flood.trustworthy):
        # About 118 packets per second with ten false reports each, for 10 s. The sender accepts 195 reports per
        # second, one per packet, and a burst of 585.
        assert 5_000 <= flood.summary["flows"][0]["feedback_refused"] <= 12_000
    quiet = result(False, "1 liar of 16, defended")
    with claimed(trusted=quiet.trustworthy):
        assert quiet.summary["flows"][0]["feedback_refused"] == 0


def test_nothing_is_left_of_all_this() -> None:
    suffered(full=False)
    assert marked_processes(f"{os.getpid()}-") == []
    open_files = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            open_files.append(os.readlink(entry))
        except OSError:
            continue
    assert [name for name in open_files if name.startswith("net:") or name == "/dev/net/tun"] == []
