"""RFC 8867's test cases: their set-ups are compared with the RFC's tables, and the experiment runs them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from steadycast.controllers import registry
from steadycast.experiment import run_experiment
from steadycast.experiment.spec import BUILT_IN, Spec

from tests.conftest import ROOT
from tests.face.test_command_line import Say

SPEC = Spec.read("rfc8867")
FOLDER = Path(str(BUILT_IN)) / "rfc8867"


def told(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text())


def test_all_of_rfc_8867_and_the_cellular_part_of_rfc_8869_is_there() -> None:
    sections = [f"5.{n}" for n in range(1, 9)] + [f"6.{n}" for n in range(1, 4)]
    cases = [scenario.about["case"] for scenario in SPEC.scenarios.values()]
    assert list(dict.fromkeys(cases)) == [*sections, "8869-2.1", "8869-2.2"]


def test_all_controllers_take_part_and_in_6_1_those_with_priorities() -> None:
    everybody = {entry.name for entry in registry()}
    assert set(SPEC.variants) == everybody
    able = {entry.name for entry in registry() if any(param.name == "prio" for param in entry.params)}
    for scenario in SPEC.scenarios.values():
        assert set(scenario.variants) == (able if scenario.about["case"] == "6.1" else everybody)


def test_every_point_is_a_scenario_with_the_controller_in_all_its_videos() -> None:
    for point in SPEC.points():
        loaded = SPEC.scenarios[point.scenario].base.load(*point.sets)
        assert {video["controller"] for video in loaded.videos()} == {point.variant}
        assert {video["media"] for video in loaded.videos()} == {"rfc8593"}


def test_another_controller_takes_part_where_those_of_the_file_do() -> None:
    more = SPEC.beside(["exec:mine", "gcc"])
    assert list(more.variants) == [*SPEC.variants, "exec:mine"]
    assert all("exec:mine" in scenario.variants for scenario in more.scenarios.values())
    assert all("exec:mine" in bound.variants for bound in more.bounds if bound.variants)
    assert not more.whole, "the file's tables are of the file's controllers"


@pytest.mark.parametrize(
    ("name", "first", "forward", "back", "end"),
    [
        ("5.1", 1.0, {40: 2.5, 60: 0.6, 80: 1.0}, {}, 100),
        ("5.2", 4.0, {25: 2.0, 50: 3.5, 75: 1.0, 100: 2.0}, {}, 125),
        ("5.3", 2.0, {20: 1.0, 40: 0.5, 60: 2.0}, {35: 0.8, 70: 2.0}, 100),
        ("5.3-reference", 2.0, {20: 1.0, 40: 0.5, 60: 2.0}, {}, 100),
    ],
)
def test_capacities_change_as_the_tables_say(
    name: str, first: float, forward: dict[int, float], back: dict[int, float], end: int
) -> None:
    scenario = told(name)
    mbps = {"kbps": 1e-3, "Mbps": 1.0}

    def rate(text: str) -> float:
        return float(text[:-4]) * mbps[text[-4:]]

    assert rate(scenario["topology"]["bottleneck"]["rate"]) == first
    for direction, table in (("forward", forward), ("back", back)):
        changes = {
            int(event["at"][:-1]): rate(event["set"]["rate"])
            for event in scenario["event"]
            if event["set"]["direction"] == direction
        }
        assert changes == pytest.approx(table)
    assert scenario["duration"] == f"{end}s"


@pytest.mark.parametrize("name", ["5.1", "5.2", "5.3"])
def test_background_traffic_leaves_what_the_link_has_in_the_other_variant(name: str) -> None:
    by_link, by_udp = told(name), told(f"{name}-udp")
    mbps = {"kbps": 1e-3, "Mbps": 1.0}

    def rate(text: str) -> float:
        return float(text[:-4]) * mbps[text[-4:]]

    def udp(at: float, back: bool) -> float:
        flows = [flow for flow in by_udp["flow"] if flow["name"].startswith("udp")]
        return sum(
            rate(flow["rate"])
            for flow in flows
            if ("-back" in flow["name"]) == back and int(flow["start"][:-1]) <= at < int(flow["stop"][:-1])
        )

    bottleneck = by_link["topology"]["bottleneck"]
    for back in (False, True):
        first = bottleneck["back"]["rate"] if back else bottleneck["rate"]
        if first == "none":
            continue
        link = by_udp["topology"]["bottleneck"]
        assert rate(link["back"]["rate"] if back else link["rate"]) == 4.0
        direction = "back" if back else "forward"
        steps = {0: rate(first)} | {
            int(event["at"][:-1]): rate(event["set"]["rate"])
            for event in by_link["event"]
            if event["set"]["direction"] == direction
        }
        for at, capacity in steps.items():
            assert 4.0 - udp(at + 1.0, back) == pytest.approx(capacity), (direction, at)
    others = [flow for flow in by_udp["flow"] if not flow["name"].startswith("udp")]
    assert others == by_link["flow"]


@pytest.mark.parametrize(
    ("name", "times", "audio"),
    [
        ("5.4", {1: (0, 119), 2: (20, 119), 3: (40, 119)}, 3),
        ("5.5", {1: (0, 299), 2: (10, 299), 3: (20, 299), 4: (30, 299), 5: (40, 299)}, 5),
        ("5.6", {1: (5, 119)}, 1),
        ("5.7", {1: (5, 299), 2: (5, 299)}, 2),
        ("5.8", {1: (0, 119), 2: (0, 119), 3: (0, 119)}, 3),
        ("6.3", {1: (0, 299), 2: (0, 299), 3: (0, 299)}, 3),
    ],
)
def test_media_starts_and_ends_as_the_tables_say(
    name: str, times: dict[int, tuple[int, int]], audio: int
) -> None:
    flows = told(name)["flow"]
    found = {
        int(flow["name"].removeprefix("video")): (
            int(flow.get("start", "0s")[:-1]),
            int(flow["stop"][:-1]),
        )
        for flow in flows
        if flow["kind"] == "video"
    }
    assert found == times
    assert sum(flow["kind"] == "cbr" for flow in flows) == audio


def test_delays_of_5_5_are_10_to_150_ms() -> None:
    scenario = told("5.5")
    extra = {link["name"]: int(link["delay"][:-2]) for link in scenario["link"]}
    delays = [10 + extra.get(f"video{n}.src-left", 0) for n in range(1, 6)]
    assert delays == [10, 25, 50, 100, 150]


def test_background_traffic_is_no_part_of_what_is_measured(tmp_path: Path) -> None:
    done = run_experiment("rfc8867", only=["5.1", "fixed"], seeds=(1,), out=tmp_path / "out")
    # The video sends at a fixed rate of 1.5 Mb/s. With 0.6 Mb/s of free capacity, it uses all of that capacity, and its
    # other packets are lost.
    use = done.spec.measure("use")
    uses = {point.scenario: done.values(use, point)[1] for point in done.points}
    assert uses["5.1 UDP"] == pytest.approx(uses["5.1 50 ms"], abs=10), uses


def test_every_bound_is_of_each_seed_and_a_reference_has_none() -> None:
    assert {bound.over for bound in SPEC.bounds} == {"each"}
    judged = {name for bound in SPEC.bounds for name in bound.scenarios}
    assert set(SPEC.scenarios) - judged == {"5.3 reference", "6.2 without"}


def test_a_run_of_two_controllers_has_measures_verdicts_and_a_page(tmp_path: Path) -> None:
    def say(*only: str, seeds: tuple[int, ...] = (1, 2)) -> Any:
        return run_experiment("rfc8867", only=only, seeds=seeds, out=tmp_path / "out")

    done = say("5.1", "gcc", "tfrcp")
    assert done.runs.ran == 2 * 3 * 2
    held = {
        name: [each.outcome == "holds" for each in done.judgements if each.variant == name]
        for name in ("gcc", "tfrcp")
    }
    assert sum(held["tfrcp"]) < sum(held["gcc"])
    assert done.failed
    first = done.points[0]
    use = done.spread(done.spec.measure("use"), first)
    assert use is not None
    assert 50 < use["mean"] <= 100
    assert done.spread(done.spec.measure("fair in 20 s"), first) is None, (
        "one video is not compared with itself"
    )
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<figure>") == 2
    assert "Rate and delay: 5.1 50 ms, gcc" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert say("5.1", "gcc", seeds=(2,)).runs.ran == 1, "only the run whose figure is missing"
    assert say("5.1", "gcc", seeds=(2,)).runs.ran == 0


def test_a_class_of_the_users_takes_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text((ROOT / "examples" / "aimd.py").read_text())
    done = run_experiment("rfc8867", only=["5.1 50 ms", "mine.py:Aimd"], seeds=(1,), out=tmp_path / "out")
    assert not done.runs.errors
    [point] = done.points
    assert point.variant == "mine.py:Aimd"
    use = done.values(done.spec.measure("use"), point)[1]
    assert use is not None
    assert 5 < use <= 100


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["test-cases", "rfc8868"], "write rfc8867"),
        (["test-cases", "rfc8867", "--case", "5.9"], "neither a variant nor a scenario"),
        (["experiment", "rfc8867", "--only", "5.9"], "neither a variant nor a scenario"),
        (["experiment", "rfc8867", "--only", "gccc"], 'did you mean "gcc"?'),
        (["experiment", "rfc8867", "--seeds", "5-1"], "this is not a range"),
        (["experiment", "late-comers", "--with", "asmp"], "no list of controllers"),
    ],
)
def test_what_is_not_there_is_answered_with_what_is(words: list[str], problem: str, say: Say) -> None:
    said = say(*words)
    assert said.code == 2, said
    assert problem in said.err
    assert not Path("runs").exists() or not any(Path("runs").iterdir())


def test_the_older_command_runs_the_experiment_and_says_so(say: Say) -> None:
    said = say("test-cases", "rfc8867", "--controllers", "gcc", "--case", "5.6", "-o", "good", code=0)
    assert "steadycast experiment rfc8867 --only gcc --only 5.6" in said.err
    assert all(len(line) <= 80 for line in said.out.splitlines())
    assert "9/9" in said.out
    assert json.loads(Path("good/experiment.json").read_text())["bounds"][0]["outcome"] == "holds"
    said = say("test-cases", "rfc8867", "--controllers", "tfrcp", "--case", "5.1", "--json", code=1)
    assert any(each["outcome"] == "fails" for each in json.loads(said.out)["bounds"])
