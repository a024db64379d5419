"""The table of sharing: what it prints, what it keeps, and, with the claims, the emulated one whole."""

import os
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
from steadycast.progress import Silent

from papers.engine.runs import Job
from validation import fair, page, worlds
from validation.worlds import Seen, Work

SEEN = Seen(
    jain=0.99,
    video_bps=2.1e6,
    tcp_bps=1.7e6,
    fair_bps=2e6,
    loss=0.004,
    tcp_again=0.01,
    to_1mbps=2.0,
    cov=0.2,
    frames_damaged=None,
    psnr=None,
    bins=[1e6, 3e6, *[3.9e6] * 28],
    losses=[0.0, 0.02, *[0.0] * 28],
)
NAMES = [column.name for column in fair.BESIDE]


def cells(*runs: Seen) -> dict[str, str]:
    return {column.name: column.cell(runs) for column in fair.BESIDE}


def test_a_mean_beyond_its_bound_stands_in_brackets_and_the_spread_outside() -> None:
    good = cells(SEEN, replace(SEEN, jain=0.92))
    assert good["Jain"] == "0.955 (0.920…0.990)"
    assert good["TCP, Mb/s"] == "1.70"
    bad = cells(replace(SEEN, jain=0.94, tcp_bps=1.59e6, loss=0.011, to_1mbps=5.2))
    assert [bad[name] for name in NAMES] == ["[0.940]", "2.10", "[1.59]", "[1.10]", "1.00", "[5.2]", "0.20"]


def test_a_megabit_is_asked_only_of_who_has_more_as_its_share_and_never_is_not_soon() -> None:
    assert cells(SEEN, replace(SEEN, to_1mbps=None))["1 Mb/s after, s"] == "[–]"
    assert cells(replace(SEEN, to_1mbps=None, fair_bps=5e5))["1 Mb/s after, s"] == "–"


def test_alone_the_first_full_second_and_the_loss_until_then_count() -> None:
    assert [column.cell([SEEN]) for column in fair.ALONE] == ["3.0", "0.77", "3.90"]
    slow = replace(SEEN, bins=[1e6, 2e6, 3e6, *[3.9e6] * 27], losses=[0.05] * 30)
    assert [column.cell([slow]) for column in fair.ALONE] == ["[4.0]", "[5.00]", "3.90"]


def test_a_run_is_made_once_and_again_when_anything_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEADYCAST_CACHE", str(tmp_path))

    def twice(seed: int) -> list[Seen]:
        work = Work(Job(fair.SCENARIO, ("duration=3s",), seed, pixels=False), emulated=False)
        seen, kept = [], []
        for _ in range(2):
            with worlds.results([work, work], 1, Silent()) as found:
                seen.append(found[work].result())
            file = work.place.stat()
            kept.append((file.st_ino, file.st_mtime_ns))
        assert kept[0] == kept[1], "it was made and kept again"
        return seen

    first, again = twice(1)
    assert first == again
    assert len(list((tmp_path / "fair").glob("*.json"))) == 1
    assert twice(2)[0] != first
    assert len(list((tmp_path / "fair").glob("*.json"))) == 2


def test_a_run_that_is_not_to_be_trusted_is_made_again_and_never_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEADYCAST_CACHE", str(tmp_path))
    work = Work(Job(fair.SCENARIO, (), 1, pixels=False), emulated=True)
    answers = [replace(SEEN, trusted=False)] * 2 + [SEEN]
    monkeypatch.setattr(worlds, "ours", lambda _: answers.pop(0))
    assert worlds._run(work).tries == 3
    assert work.place.exists()
    work.place.unlink()
    answers = [replace(SEEN, trusted=False)] * worlds.MAX_ATTEMPTS
    assert not worlds._run(work).trusted
    assert not work.place.exists()
    known: Future[Seen] = Future()
    known.set_result(replace(SEEN, trusted=False, tries=worlds.MAX_ATTEMPTS))
    table = fair.Table(("with",), fair.BESIDE, (fair.Row(("asmp",), (work,)),))
    assert "(not trustworthy)" in table.show({work: known})[0][0]


@pytest.mark.claim
@pytest.mark.skipif(os.geteuid() != 0, reason="emulation needs root")
@pytest.mark.parametrize("queue", fair.QUEUES)
def test_beside_the_kernels_tcp_each_side_has_its_share(queue: str) -> None:
    """With RED the video's loss is its share's: what TCP itself sends again is the measure there."""
    todo = fair.tables(fair.arguments(["--emulated", *fair.CONTROLLERS, "--queues", queue]))[0]
    work = [work for row in todo.rows for work in row.work]
    with worlds.results(work, 8, Silent()) as found:
        rows = todo.show(found)
    assert len(rows) == 6
    judged = [column for column in fair.BESIDE if queue != "red" or column.name != "loss, %"]
    for row in todo.rows:
        runs = [found[work].result() for work in row.work]
        assert all(seen.trusted for seen in runs)
        said = [column.cell(runs) for column in judged]
        assert not [cell for cell in said if "[" in cell], row.cells
        lost = fair.mean([seen.loss for seen in runs])
        again = fair.mean([seen.tcp_again for seen in runs if seen.tcp_again is not None])
        assert 0 < lost < max(1.25 * again, 0.01)


def test_what_a_world_came_to_is_written_with_a_column_for_each_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page, "save", lambda name, title, made, command: saved.update({name: made}))
    saved: dict[str, page.Table] = {}
    beside = fair.Table(("x", "Mb/s", "RTT, ms", "queue", "TCP"), fair.BESIDE, (), "1 run")
    alone = fair.Table(("x",), fair.ALONE, (), "1 run")
    told = [column.cell([SEEN]) for column in fair.BESIDE]
    row = ["asmp", "4", "40", "red", "cubic", *told]
    args = fair.arguments(["--emulated"])
    fair.write(args, [(beside, [row]), (alone, [["asmp", "3.0", "0.77", "3.90"]])], "the command")
    assert set(saved) == {"sharing-emulated", "sharing-alone-emulated"} <= set(fair.TABLES)
    made = saved["sharing-emulated"]
    assert dict(zip(made.heads, made.rows[0], strict=True))["Jain"] == told[0]
    assert made.rows[0][:2] == ("1 run", "asmp")
    assert saved["sharing-alone-emulated"].heads[2:] == tuple(column.name for column in fair.ALONE)
