"""A sweep's rows equal those of single runs, also after interruptions and errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import steadycast as sc
from steadycast.folder import find
from steadycast.sweep import cluster, collect, store
from steadycast.sweep.plan import Plan, table
from steadycast.sweep.store import finished, rows
from steadycast.sweep.work import figures

from tests.conftest import SMALL, Say, command, no_room, ran, until
from tests.sweep.conftest import SLOW, alive, children

Begin = Callable[..., "subprocess.Popen[str]"]
CONTROLLER = "flow.video.controller"
RATE = "topology.bottleneck.rate"
OVER = {CONTROLLER: ["asmp", "tfrc"], RATE: ["500kbps", "1Mbps"]}


@pytest.fixture
def whole(small: Path, tmp_path: Path) -> sc.Sweep:
    """Two controllers, two rates, three seeds."""
    return sc.sweep(small, OVER, seeds=range(1, 4), out=tmp_path / "whole")


def told(results: pl.DataFrame) -> pl.DataFrame:
    """Rows without the columns that are measured by a clock."""
    return results.drop("cpu_s")


def slow(small: Path) -> Path:
    (small.parent / "slow.py").write_text(SLOW)
    small.write_text(SMALL.replace('"asmp"', '"slow.py:Slow"'))
    return small


# ---------------------------------------------------------------- rows


def test_each_row_is_the_single_run_s(small: Path, whole: sc.Sweep) -> None:
    assert whole.results.height == 12
    for row in whole.results.iter_rows(named=True):
        single = sc.run(
            small, seed=row["seed"], set={axis: row[axis] for axis in OVER}, quality=False
        ).summary
        assert row["record_sha256"] == single["record_sha256"]
        found = json.loads(figures(single))
        assert {k: v for k, v in row.items() if k in found} == found


def test_a_figure_s_name_is_the_path_that_finds_it(small: Path) -> None:
    summary = sc.run(small, quality=False).summary
    found = json.loads(figures(summary))
    assert {path: find(summary, path) for path in found} == found
    assert {
        "flows.video.receivers.video.dst1.delay_ms.p95",
        "links.bottleneck.back.drop_frac",
    } <= found.keys()


def test_rows_stand_seed_by_seed_and_are_the_same_by_one_process_and_by_many(
    small: Path, whole: sc.Sweep
) -> None:
    assert whole.results["seed"].to_list() == [1] * 4 + [2] * 4 + [3] * 4
    assert whole.results[CONTROLLER].to_list() == ["asmp", "asmp", "tfrc", "tfrc"] * 3
    again = sc.sweep(small, OVER, seeds=range(1, 4), jobs=1)
    assert told(again.results).equals(told(whole.results))


def test_a_sweep_of_an_object_is_that_of_its_file(small: Path, tmp_path: Path) -> None:
    pipe = sc.Pipe(rate="1Mbps", delay="10ms")
    made = sc.Scenario(
        name="made",
        duration="2s",
        topology=sc.Topology(shape="dumbbell", bottleneck=pipe),
        flows=[sc.Flow(name="tcp", kind="tcp")],
    )
    by_file = sc.sweep(made.save(tmp_path / "made.toml"), {RATE: ["500kbps", "1Mbps"]})
    by_object = sc.sweep(made, {RATE: ["500kbps", "1Mbps"]})
    assert by_object.results["record_sha256"].to_list() == by_file.results["record_sha256"].to_list()


def test_pixels_are_measured_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "pixels.toml"
    path.write_text(SMALL.replace("greedy", "synthetic").replace('"3s"', '"2s"'))
    plain, measured = (sc.sweep(path, seeds=[1], pixels=pixels) for pixels in (False, True))
    name = "flows.video.receivers.video.dst1.psnr_db.raw.y"
    assert name not in plain.results.columns
    assert (
        measured.results[name][0]
        == sc.run(path, seed=1).summary["flows"][0]["receivers"][0]["psnr_db"]["raw"]["y"]
    )
    assert plain.results["record_sha256"][0] == measured.results["record_sha256"][0]


# ---------------------------------------------------------------- going on


def test_a_finished_sweep_runs_nothing_again(small: Path, whole: sc.Sweep) -> None:
    again = sc.sweep(small, OVER, seeds=range(1, 4), out=whole.folder)
    assert again.ran == 0
    assert again.results.equals(whole.results)


def test_more_values_and_seeds_add_runs_and_keep_the_others(small: Path, whole: sc.Sweep) -> None:
    more = sc.sweep(small, {**OVER, CONTROLLER: ["asmp", "fixed"]}, seeds=range(1, 5), out=whole.folder)
    assert more.ran == 6 + 4  # fixed with three seeds more, then the fourth seed of two controllers
    assert more.results.height == 12 + 10
    kept = more.results.filter(pl.col("key").is_in(whole.results["key"].to_list()))
    assert kept["cpu_s"].sort().to_list() == whole.results["cpu_s"].sort().to_list()
    new = sc.sweep(small, {CONTROLLER: ["asmp", "tfrc", "fixed"], RATE: OVER[RATE]}, seeds=[1, 2, 3])
    both = more.results.join(new.results, on="key", suffix="_new")
    assert both.height == 18
    assert both["record_sha256"].equals(both["record_sha256_new"], check_names=False)


def test_a_killed_worker_loses_no_run(small: Path, tmp_path: Path, begin: Begin) -> None:
    words = ("sweep", slow(small), "--seeds", "1-12", "--jobs", "2", "-o", "killed")
    process = begin(*words)
    until(lambda: len(finished([tmp_path / "killed"])) >= 2)
    os.kill(children(process.pid)[0], signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, "12 runs in" in err) == (0, True), err
    found = pl.read_parquet(tmp_path / "killed" / "results.parquet")
    assert found["seed"].to_list() == list(range(1, 13))
    straight = sc.sweep(small, seeds=range(1, 13))
    assert told(found).equals(told(straight.results))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_parent_that_ends_early_leaves_its_finished_runs_and_no_process(
    small: Path, tmp_path: Path, begin: Begin, say: Say, number: signal.Signals
) -> None:
    words = ("sweep", slow(small), "--seeds", "1-20", "--jobs", "2", "-o", "early")
    process = begin(*words)
    until(lambda: len(finished([tmp_path / "early"])) >= 3)
    workers = children(process.pid)
    assert len(workers) >= 2
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    until(lambda: not any(map(alive, workers)))
    kept = finished([tmp_path / "early"])
    assert 3 <= len(kept) < 20
    if number != signal.SIGKILL:
        assert process.returncode == 130
        assert f"{len(kept)} of 20 runs are done and kept; repeat the command to continue" in err
    said = say(*words, code=0)
    assert said.err.startswith(f"{20 - len(kept)} runs in "), said.err
    assert set(pl.read_parquet(tmp_path / "early" / "results.parquet")["key"]) > kept
    assert not (tmp_path / "early" / "parts").exists()


def test_a_row_that_is_there_counts_as_kept_though_the_interrupt_came_while_the_disk_took_it(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupts = [KeyboardInterrupt]

    def sync(_: int) -> None:
        if interrupts:
            raise interrupts.pop()

    monkeypatch.setattr(store, "_SYNC_S", -1.0)
    monkeypatch.setattr("os.fsync", sync)
    with pytest.raises(KeyboardInterrupt) as stop:
        sc.sweep(small, seeds=range(1, 4), out=tmp_path / "early")
    assert len(finished([tmp_path / "early"])) == 1
    assert stop.value.__notes__ == ["1 of 3 runs are done and kept; repeat the command to continue"]


def test_a_row_that_was_cut_off_is_run_again(small: Path, whole: sc.Sweep) -> None:
    (whole.folder / "parts").mkdir()
    done = whole.results["key"].to_list()
    (whole.folder / "results.parquet").unlink()
    lines = [json.dumps({"key": key, "seed": 1, "complete": True}) for key in done[:3]]
    (whole.folder / "parts" / "1.jsonl").write_text("\n".join(lines)[:-5])
    assert finished([whole.folder]) == set(done[:2])
    assert sc.sweep(small, OVER, seeds=range(1, 4), out=whole.folder).ran == 10


# ---------------------------------------------------------------- shards


def test_shards_joined_are_the_whole(small: Path, whole: sc.Sweep, tmp_path: Path, say: Say) -> None:
    place = tmp_path / "parts of it"
    words = [f"--over={axis}={','.join(values)}" for axis, values in OVER.items()]
    for part in range(3):
        said = say("sweep", small, *words, "--seeds", "1-3", "--shard", f"{part}/3", "-o", place)
        assert (said.code, said.err.startswith("4 runs in ")) == (0, True), said.err
    said = say("sweep", "--collect", "-o", place, code=0)
    assert told(pl.read_parquet(place / "results.parquet")).equals(told(whole.results))
    assert (place / "sweep.html").exists()


def test_a_missing_shard_is_told(small: Path, tmp_path: Path, say: Say) -> None:
    assert say("sweep", small, "--seeds", "1-3", "--shard", "1/2", "-o", "some").code == 0
    said = say("sweep", "--collect", "-o", "some")
    assert (said.code, "1 in all, 0 failed, 2 missing" in said.err) == (1, True)


def test_shards_of_two_versions_are_not_joined(small: Path, tmp_path: Path) -> None:
    for part in (0, 1):
        sc.sweep(small, seeds=[1, 2], shard=(part, 2), out=tmp_path / "mixed")
    path = tmp_path / "mixed" / "shard-1-of-2" / "plan.json"
    path.write_text(path.read_text().replace('"steadycast ', '"steadycast 9'))
    with pytest.raises(sc.UserError, match=r"it holds runs of steadycast .*, this is steadycast 9"):
        collect(tmp_path / "mixed")


# ---------------------------------------------------------------- refusals


def test_a_folder_of_another_version_file_or_axis_is_refused(
    small: Path, whole: sc.Sweep, tmp_path: Path
) -> None:
    def refused(match: str, path: Path = small, over: Mapping[str, object] = OVER, **more: Any) -> None:
        with pytest.raises(sc.UserError, match=match) as caught:
            sc.sweep(path, over, seeds=[1], out=whole.folder, **more)
        assert "force=True" in caught.value.remedy

    other = tmp_path / "other.toml"
    other.write_text(SMALL)
    refused("it holds a sweep of small.toml, not of other.toml", other)
    refused("it varies .*, not flow.video.controller", over={CONTROLLER: ["asmp"]})
    refused("small.toml or its set was another", set=["duration=4s"])
    refused("its runs were made without pixels=True", pixels=True)
    small.write_text(SMALL.replace("10ms", "20ms"))
    refused("small.toml or its set was another")
    small.write_text(SMALL)
    plan = whole.folder / "plan.json"
    plan.write_text(plan.read_text().replace('"steadycast ', '"steadycast 9'))
    refused("it holds runs of steadycast 9")
    assert pl.read_parquet(whole.folder / "results.parquet").equals(whole.results)
    assert sc.sweep(small, OVER, seeds=[1], out=whole.folder, force=True).results.height == 4


def test_force_keeps_the_older_sweep_until_a_run_of_the_new_one_is_done(
    small: Path, whole: sc.Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(what: str, done: int, of: int) -> None:
        if what == "runs":
            raise KeyboardInterrupt

    def begun_anew(error: type[BaseException], match: str, **more: Any) -> None:
        with pytest.raises(error, match=match):
            sc.sweep(small, OVER, seeds=[1], out=whole.folder, force=True, **more)
        assert pl.read_parquet(whole.folder / "results.parquet").equals(whole.results)
        assert sorted(path.name for path in whole.folder.parent.iterdir()) == ["small.toml", "whole"]

    begun_anew(sc.UserError, "no run has this value", baseline=f"{RATE}=9Mbps")
    begun_anew(sc.UserError, "no run has this figure", metrics=["flows.video.nothing"])
    monkeypatch.setattr(cluster, "_REACH_S", 1)
    begun_anew(sc.UserError, "no scheduler answers", scheduler="tcp://127.0.0.1:1")
    begun_anew(KeyboardInterrupt, "^$", progress=stop)


def test_a_sweep_may_grow_in_the_current_folder_and_not_begin_anew_there(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for seed in (1, 2):
        assert sc.sweep(small, seeds=[seed], out=".").results.height == seed
    assert collect(".").results.height == 2
    with pytest.raises(sc.UserError, match="this is the current folder"):
        sc.sweep(small, seeds=[1], out=".", force=True)
    assert collect(".").results.height == 2


def test_a_controller_that_has_changed_is_refused(small: Path, tmp_path: Path) -> None:
    sc.sweep(slow(small), seeds=[1], out=tmp_path / "own")
    (tmp_path / "slow.py").write_text(SLOW.replace("200_000", "100_000"))
    with pytest.raises(sc.UserError, match="a file that its scenario names"):
        sc.sweep(small, seeds=[1, 2], out=tmp_path / "own")


def test_a_folder_with_other_results_is_refused(small: Path, tmp_path: Path) -> None:
    sc.run(small, out=tmp_path / "run", quality=False)
    with pytest.raises(sc.UserError, match="this folder holds other results"):
        sc.sweep(small, seeds=[1], out=tmp_path / "run")
    assert (tmp_path / "run" / "summary.json").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(sc.UserError, match="no results of this program"):
        sc.sweep(small, seeds=[1], out=tmp_path / "mine", force=True)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (
            ["--over", CONTROLLER],
            "this is not PATH=V1,V2; write for example --over flow.video.controller=asmp,tfrc",
        ),
        (["--over", f"{CONTROLLER}=asmp,,tfrc"], "a value between two commas is missing"),
        (["--over", f"{CONTROLLER}=asmp", "--over", f"{CONTROLLER}=tfrc"], "this path is given twice"),
        (["--over", "seed=1,2"], "this can't be varied so; give --seeds A-B"),
        (
            ["--over", f"{CONTROLLER}=asmp,tfrk"],
            f"--over {CONTROLLER}=tfrk: no such controller; did you mean",
        ),
        (["--over", f"{CONTROLLER}=asmpp,tfrk"], f"--over {CONTROLLER}: no such controller; did you mean"),
        (["--over", "flow.vidoe.controller=asmp"], "--over flow.vidoe.controller: "),
        (["--set", "duration"], "this is not PATH=VALUE"),
        (["--shard", "4/4", "-o", "x"], "this is not I/N with I from 0 to N - 1; write 0/4 to 3/4"),
        (["--shard", "0/4"], "-o: it is missing"),
        (["--collect"], "-o: it is missing"),
        (["--collect", "-o", "x"], "it runs nothing"),
        (["--seeds", "3-1"], "this is not a range"),
        (["--baseline", f"{CONTROLLER}=tfrc"], "this is not an axis of the sweep; vary it by --over"),
        (
            ["--over", f"{CONTROLLER}=asmp", "--baseline", f"{CONTROLLER}=tfrc"],
            "no run has this value; there are: asmp",
        ),
        (["--metric", "flows.video.share_of_fare"], 'did you mean "flows.video.share_of_fair"?'),
        (["--with", "none.csv"], "--with none.csv: can't be read"),
        (["--with", "bad.csv"], "--with bad.csv: row 1: the value of duration is empty; write a value there"),
        (["--with", "long.csv"], "row 1: it has another number of values (3) than the head has paths (2)"),
        (
            ["--with", "utf16.csv"],
            "utf16.csv: can't be read (it is a text in UTF-16); save it as UTF-8: iconv",
        ),
        (["--with", "latin1.csv"], "latin1.csv: can't be read (it is not text); name a CSV file"),
        (["--with", "twice.csv"], f"--with twice.csv: {CONTROLLER}: two columns have this path"),
        (["--with", "wrong.csv"], "--with wrong.csv: duration=20: 20 is not a time"),
        (["--with", "short.csv"], "--with short.csv: controller: no such key"),
        (
            ["--over", "duration=9s,20", "--over", f"{CONTROLLER}=asmp"],
            "--over duration=20: 20 is not a time",
        ),
        (
            ["--over", f"{CONTROLLER}=[asmp,tfrc]"],
            f"write several values without brackets, as {CONTROLLER}=asmp,tfrc",
        ),
    ],
)
def test_bad_options_are_told_with_their_remedy(
    small: Path, tmp_path: Path, say: Say, words: list[str], what: str
) -> None:
    (tmp_path / "bad.csv").write_text(f"{CONTROLLER},duration\nasmp,\n")
    (tmp_path / "long.csv").write_text(f"{CONTROLLER},duration\nasmp,9s,\n")
    (tmp_path / "utf16.csv").write_text(f"{CONTROLLER},duration\nasmp,9s\n", encoding="utf-16")
    (tmp_path / "latin1.csv").write_bytes(b"name,duration\n\xe9,9s\n")
    (tmp_path / "twice.csv").write_text(f"{CONTROLLER},{CONTROLLER}\nasmp,tfrc\n")
    (tmp_path / "wrong.csv").write_text(f"{CONTROLLER},duration\nasmp,9s\ntfrc,20\n")
    (tmp_path / "short.csv").write_text("controller,delay\nasmp,10ms\n")
    said = say("sweep", small, *words)
    assert (said.code, what in said.err) == (2, True), said.err
    assert "Traceback" not in said.err


def test_a_scenario_that_is_not_there_is_told(say: Say) -> None:
    said = say("sweep", "none.toml")
    assert (said.code, "no such file" in said.err) == (2, True)


@pytest.mark.parametrize(("seeds", "room"), [(30, 40_000), (2, 60_000)])
def test_a_full_disk_is_exit_code_4_and_keeps_what_is_finished(
    seeds: int, room: int, small: Path, tmp_path: Path, say: Say
) -> None:
    # A limit on the size of files simulates a full disk. Many runs fail while they are stored, two in their table.
    words = ("sweep", small, "--seeds", f"1-{seeds}", "--jobs", "1", "-o", "full")
    done = ran(command(*words), cwd=tmp_path, **no_room(room))
    assert (done.returncode, "repeat the command to continue" in done.stderr) == (4, True), done.stderr
    kept = len(finished([tmp_path / "full"]))
    assert kept == 2 if seeds == 2 else 1 <= kept < seeds
    assert say(*words).err.startswith(f"{seeds - kept} runs")


# ---------------------------------------------------------------- failures


def test_a_run_that_fails_is_a_row_with_its_error_and_the_others_go_on(
    small: Path, tmp_path: Path, say: Say
) -> None:
    # With a warm-up of 5 s, a run of 3 s measures nothing. The combination is wrong, not a single value.
    said = say(
        "sweep",
        small,
        "--over",
        "duration=3s,6s",
        "--over",
        "warmup=1s,5s",
        "--seeds",
        "1-2",
        "-o",
        "some",
        code=1,
    )
    assert "8 in all, 2 failed" in said.err
    found = pl.read_parquet(tmp_path / "some" / "results.parquet")
    wrong = found.filter(~pl.col("complete"))
    assert set(wrong.select("duration", "warmup").rows()) == {("3s", "5s")}
    assert all("warmup" in error for error in wrong["error"])
    assert found.filter("complete")["record_sha256"].null_count() == 0
    assert "2 failed" in (tmp_path / "some" / "sweep.html").read_text()


def test_a_controller_that_raises_fails_its_runs_alone(small: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(SLOW.replace("pass", "raise RuntimeError('no idea')"))
    done = sc.sweep(small, {CONTROLLER: ["asmp", "bad.py:Slow"]}, seeds=[1, 2])
    assert done.results["complete"].to_list() == [True, False, True, False]
    assert "no idea" in done.results["error"][1]
    assert done.failed == 2


def test_a_run_that_ends_its_process_twice_fails_and_the_others_go_on(small: Path, tmp_path: Path) -> None:
    end = SLOW.replace("time.sleep(0.1)", "import os; os._exit(9)")
    (tmp_path / "bad.py").write_text(end)
    done = sc.sweep(small, {CONTROLLER: ["asmp", "bad.py:Slow"]}, seeds=[1, 2], jobs=2)
    assert done.results["complete"].to_list() == [True, False, True, False]
    assert done.results["error"][1] == "its process ended 2 times (code 9)"


def test_failed_runs_are_tried_again(small: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(SLOW.replace("time.sleep(0.1)", "open('/proc/self/nothing')"))
    first = sc.sweep(small, {CONTROLLER: ["asmp", "bad.py:Slow"]}, seeds=[1], out=tmp_path / "some")
    again = sc.sweep(small, {CONTROLLER: ["asmp", "bad.py:Slow"]}, seeds=[1], out=tmp_path / "some")
    assert (first.ran, again.ran, again.results.height) == (2, 1, 2)


# ---------------------------------------------------------------- points


def test_a_table_s_rows_are_points_times_the_axes(small: Path, tmp_path: Path) -> None:
    (tmp_path / "design.csv").write_text(f"{RATE},duration\n1Mbps,2s\n500kbps,3s\n")
    done = sc.sweep(small, {CONTROLLER: ["asmp", "tfrc"]}, table=tmp_path / "design.csv", seeds=[1])
    assert done.results.select(RATE, "duration", CONTROLLER).rows() == [
        ("1Mbps", "2s", "asmp"),
        ("1Mbps", "2s", "tfrc"),
        ("500kbps", "3s", "asmp"),
        ("500kbps", "3s", "tfrc"),
    ]


def test_the_commands_that_run_a_point_again_take_its_seeds_and_no_others(whole: sc.Sweep) -> None:
    point = replace(whole.plan.points[0], seeds=(9, 1, 2, 3, 5))
    told = [words[-2:] for words in whole.plan.commands(point)]
    assert told == [["--seeds", "1-3"], ["--seed", "5"], ["--seed", "9"]]


def test_a_plan_is_read_as_it_was_written(whole: sc.Sweep) -> None:
    assert Plan.read(whole.folder) == whole.plan
    assert list(rows(whole.folder)) == []


def test_what_is_no_axis_and_no_seeds_is_told_and_one_value_is_an_axis(small: Path) -> None:
    for wrong in (3, "1-3"):
        with pytest.raises(sc.UserError, match=r"seeds .*: it is a (int|str).*; give Iterable\[int\]"):
            sc.sweep(small, {CONTROLLER: ["tfrc"]}, seeds=wrong)  # type: ignore[arg-type]
        with pytest.raises(sc.UserError, match=r"give Iterable\[int\]"):
            sc.run_seeds(small, seeds=wrong, quality=False)  # type: ignore[arg-type]
    with pytest.raises(sc.UserError, match=r"over .*: it is a list.*; give Mapping\[str, object\]"):
        sc.sweep(small, [CONTROLLER])  # type: ignore[arg-type]
    done = sc.sweep(small, {CONTROLLER: "tfrc", "flow.tcp.count": 2})
    assert done.results.select(CONTROLLER, "flow.tcp.count").rows() == [("tfrc", "2")]


@pytest.mark.parametrize("divider", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_table_of_points_may_come_from_any_spreadsheet(
    tmp_path: Path, divider: str, end: str, mark: str
) -> None:
    heads = [CONTROLLER, "topology.bottleneck.rate"]
    points = [("steady", "1Mbps"), ("tfrc", "2Mbps")]
    lines = [
        divider.join(f'"{cell}"' if divider == ";" else cell for cell in row) for row in (heads, *points)
    ]
    file = tmp_path / "points.csv"
    file.write_bytes((mark + end.join([*lines, ""])).encode())
    assert table(file) == (heads, points)
