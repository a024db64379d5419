"""A sweep on a Dask cluster gives the rows that this machine gives, also when a worker is killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import steadycast as sc
from steadycast.errors import UserError
from steadycast.scenario import Flow, Pipe, Topology
from steadycast.sweep import cluster
from steadycast.sweep import plan as planning

from tests.conftest import SMALL, Say
from tests.sweep.conftest import SLOW

distributed = pytest.importorskip("distributed", reason="distributed is not installed")

CONTROLLER = "flow.video.controller"
RATE = "topology.bottleneck.rate"


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Four worker processes of one thread each, in a separate folder with a separate cache."""
    home = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEADYCAST_CACHE", str(home / "cache"))
        with distributed.LocalCluster(
            n_workers=4,
            threads_per_worker=1,
            dashboard_address=None,
            worker_dashboard_address=None,
            local_directory=home,
        ) as cluster:
            # The workers have their settings already; this process has a separate cache.
            patch.undo()
            yield cluster


def test_a_cluster_s_rows_are_those_of_this_machine_with_its_controller_and_clip_sent_there(
    four: Any, tmp_path: Path
) -> None:
    scenario = tmp_path / "small.toml"
    scenario.write_text(SMALL.replace('"greedy"', '"synthetic"'))
    (tmp_path / "slow.py").write_text(SLOW)
    over = {CONTROLLER: ["asmp", "slow.py:Slow"], RATE: ["500kbps", "1Mbps"]}
    here = sc.sweep(scenario, over, seeds=[1, 2])
    there = sc.sweep(scenario, over, seeds=[1, 2], scheduler=four.scheduler_address)
    assert here.failed == 0
    assert there.results.drop("cpu_s").equals(here.results.drop("cpu_s"))


def test_files_that_a_scenario_in_python_names_are_found_where_they_were_unpacked(
    four: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "link.mahi").write_text("".join(f"{10 * n}\n" for n in range(1, 101)))
    scenario = sc.Scenario(
        name="small",
        duration="2s",
        topology=Topology(shape="dumbbell", bottleneck=Pipe(trace="link.mahi", loop=True, delay="10ms")),
        flows=[Flow(name="video", kind="video", controller="slow.py:Slow", media="greedy")],
    )
    monkeypatch.chdir(tmp_path)
    here = sc.sweep(scenario, seeds=[1, 2])
    with distributed.Client(four.scheduler_address, set_as_default=False) as client:
        before = client.run(os.getcwd)
        client.run(os.chdir, "/")
        try:
            there = sc.sweep(scenario, seeds=[1, 2], scheduler=client)
        finally:
            for worker, folder in before.items():
                client.run(os.chdir, folder, workers=[worker])
    assert there.results["error"].drop_nulls().to_list() == []
    assert there.results.drop("cpu_s").equals(here.results.drop("cpu_s"))


NETWORK = """
about = "a"
source = "a"
licence = "a"
kind = "synthetic"
[topology]
shape = "dumbbell"
bottleneck = { trace = "link.mahi", loop = true, delay = "10ms" }
"""


@pytest.mark.parametrize("said", ["file", "change", "axis"])
def test_a_network_that_is_a_path_is_sent_with_its_trace(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "link.mahi").write_text("10\n20\n")
    (tmp_path / "nets" / "own.toml").write_text(NETWORK)
    name = "nets/own.toml+cubic"
    scenario = tmp_path / "small.toml"
    # A topology in the scenario would override the network.
    flows = f'network = "{name}"\nduration = "3s"\n' + SMALL[SMALL.index("[[flow]]") :]
    scenario.write_text(flows if said == "file" else SMALL)
    base = planning.Base.of(scenario, [f"network={name}"] if said == "change" else [])
    sets = ["network='leo'", f'network="{name}"'] if said == "axis" else ["seed=1"]
    scenarios = [base.load(change) for change in sets]
    assert sorted(cluster.pack(base, False, scenarios, [], sets).files) == ["nets/link.mahi", "nets/own.toml"]


def test_a_killed_worker_loses_no_run(four: Any, small: Path) -> None:
    (small.parent / "slow.py").write_text(SLOW)
    small.write_text(SMALL.replace('"asmp"', '"slow.py:Slow"'))
    with distributed.Client(four.scheduler_address, set_as_default=False) as client:
        victim = next(iter(client.run(os.getpid).values()))
    killed: list[int] = []

    def told(what: str, done: int, of: int) -> None:
        if what == "runs" and 0 < done < of and not killed:
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)

    there = sc.sweep(
        small,
        {RATE: ["500kbps", "1Mbps"]},
        seeds=range(1, 13),
        scheduler=four.scheduler_address,
        progress=told,
    )
    assert killed == [victim]
    assert (there.results.height, there.failed, there.missing) == (24, 0, 0)
    here = sc.sweep(small, {RATE: ["500kbps", "1Mbps"]}, seeds=[1, 12])
    wanted = here.results["record_sha256"].to_list()
    assert wanted == there.results.filter(there.results["seed"].is_in([1, 12]))["record_sha256"].to_list()


def test_a_result_that_was_lost_with_its_worker_is_waited_for(
    four: Any, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = distributed.as_completed.__next__
    lost: list[str] = []

    def lose_the_first(self: Any) -> object:
        future = ended(self)
        if not lost:
            lost.append(future.key)
            future._state.lose()
            threading.Timer(0.3, self.loop.add_callback, [future._state.finish]).start()
        return future

    monkeypatch.setattr(distributed.as_completed, "__next__", lose_the_first)
    there = sc.sweep(small, seeds=range(1, 4), scheduler=four.scheduler_address)
    assert len(lost) == 1
    assert (there.results.height, there.failed, there.missing) == (3, 0, 0)


def test_workers_of_another_program_are_refused_by_name(
    four: Any, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "program", lambda: "steadycast 0.0.1")
    with pytest.raises(UserError, match=r"tcp://\S+ has steadycast .* here is steadycast 0.0.1"):
        sc.sweep(small, scheduler=four.scheduler_address)


def test_where_no_scheduler_answers_one_line_says_so(
    small: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_REACH_S", 1)
    with pytest.raises(UserError, match="no scheduler answers"):
        sc.sweep(small, scheduler="tcp://127.0.0.1:9")
    said = say("sweep", small, "--scheduler", "nowhere", "--jobs", "2")
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert "--jobs" in said.err


def test_a_file_beside_no_scenario_is_not_sent(
    four: Any, small: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    away = tmp_path_factory.mktemp("away") / "slow.py"
    away.write_text(SLOW)
    with pytest.raises(UserError, match="would not find it; copy it there"):
        sc.sweep(small, {CONTROLLER: [f"{away}:Slow"]}, scheduler=four.scheduler_address)
