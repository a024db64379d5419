"""RFC 8867's test cases: their set-ups against the RFC's tables, the command, and what it writes."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from steadycast.cases import run_cases
from steadycast.cases.case import LONGEST_S, Case, cases, chosen, lasts_s, sets, write_scenarios
from steadycast.cases.radio import CELLS
from steadycast.cases.suite import takes_part
from steadycast.controllers import registry
from steadycast.loading import load

from tests.face.test_command_line import Say

CASES = {case.id: case for case in cases()}


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scenarios")
    write_scenarios(folder)
    return folder


def told(scenarios: Path, name: str) -> dict[str, Any]:
    return tomllib.loads((scenarios / f"{name}.toml").read_text())


def test_all_of_rfc_8867_and_the_cellular_part_of_rfc_8869_is_there() -> None:
    sections = [f"5.{n}" for n in range(1, 9)] + [f"6.{n}" for n in range(1, 4)]
    assert list(CASES) == [*sections, "8869-2.1", "8869-2.2"]
    assert CASES["5.1"].rfc == "RFC 8867, 5.1"
    assert CASES["8869-2.2"].rfc == "RFC 8869, 2.2"


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.id)
def test_every_variant_is_a_scenario_for_every_controller_that_takes_part(
    case: Case, scenarios: Path
) -> None:
    able = [entry.name for entry in registry() if takes_part(case, entry.name)]
    assert able == ["nada"] if case.id == "6.1" else len(able) == len(registry())
    for variant in case.variants:
        for name in able:
            loaded = load(scenarios / f"{variant.scenario}.toml", sets(variant, name))
            assert {video["controller"] for video in loaded.videos()} == {name}
            assert {video["media"] for video in loaded.videos()} == {"rfc8593"}


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
    name: str, first: float, forward: dict[int, float], back: dict[int, float], end: int, scenarios: Path
) -> None:
    scenario = told(scenarios, name)
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
def test_background_traffic_leaves_what_the_link_has_in_the_other_variant(name: str, scenarios: Path) -> None:
    by_link, by_udp = told(scenarios, name), told(scenarios, f"{name}-udp")
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


def test_background_traffic_is_no_part_of_what_is_measured(tmp_path: Path) -> None:
    suite = run_cases(["fixed"], case=["5.1"], out=tmp_path / "cases")
    (case,) = suite.cases
    # The video sends 1.5 Mb/s at a fixed rate: on 0.6 Mb/s of free capacity it uses all of it and loses the rest.
    by_variant = {variant.name: suite.spread(case, variant, "fixed", "use") for variant in case.variants}
    assert all(found is not None for found in by_variant.values())
    uses = {name: found["mean"] for name, found in by_variant.items() if found is not None}
    assert uses["UDP"] == pytest.approx(uses["50 ms"], abs=0.1), uses


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
    name: str, times: dict[int, tuple[int, int]], audio: int, scenarios: Path
) -> None:
    flows = told(scenarios, name)["flow"]
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


def test_delays_of_5_5_are_10_to_150_ms(scenarios: Path) -> None:
    scenario = told(scenarios, "5.5")
    extra = {link["name"]: int(link["delay"][:-2]) for link in scenario["link"]}
    delays = [10 + extra.get(f"video{n}.src-left", 0) for n in range(1, 6)]
    assert delays == [10, 25, 50, 100, 150]


def test_traces_are_the_same_every_time_and_what_their_cells_carry() -> None:
    for name, low, high in (("load", 1.0, 2.5), ("edge", 0.5, 1.5)):
        trace = CELLS[name].trace()
        assert trace == CELLS[name].trace()
        times = [int(line) for line in trace.splitlines()]
        assert times == sorted(times)
        assert times[-1] == 91_000
        assert low < len(times) * 12_000 / 91 / 1e6 < high
    holes = CELLS["edge"].rates()
    assert max(holes[140:145]) < min(200, max(holes))


def test_bounds_say_why_and_which_case_decides(scenarios: Path) -> None:
    for case in cases():
        assert case.expects
        assert case.bounds
        for bound in case.bounds:
            assert bound.why
            assert bound.min is not None or bound.max is not None
            judged = [variant for variant in case.variants if case.judges(bound, variant)]
            assert judged, f"{case.id}: {bound.measure} is judged in no variant"
            if bound.measure in ("rate", "ratio"):
                assert bound.during is not None
                assert bound.of
    references = [
        each.name for each in CASES["6.2"].variants if not CASES["6.2"].judges(CASES["6.2"].bounds[0], each)
    ]
    assert references == ["without"]


def test_a_run_of_two_controllers_has_measures_verdicts_and_a_page(tmp_path: Path) -> None:
    suite = run_cases(["gcc", "tfrcp"], case=["5.1"], seeds=[1, 2], out=tmp_path / "out")
    assert not suite.errors
    assert len(suite.runs) == 2 * 3 * 2
    case, good, bad = suite.cases[0], suite.verdict(CASES["5.1"], "gcc"), suite.verdict(CASES["5.1"], "tfrcp")
    assert good[1] == bad[1] == 12
    assert bad[0] < good[0]
    assert suite.failed
    use = suite.spread(case, case.variants[0], "gcc", "use")
    assert use is not None
    assert 0.5 < use["mean"] <= 1.0
    assert use["n"] == 2
    numbers = json.loads((tmp_path / "out" / "cases.json").read_text())
    first = numbers["cases"][0]["controllers"][0]
    assert (first["name"], first["held"], first["bounds"]) == ("gcc", *good)
    assert first["variants"][0]["measures"]["fair_20s"] is None, "one video is not compared with itself"
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<figure>") == 2
    assert "5.1 Variable capacity, one flow" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    again = run_cases(["gcc"], case=["5.1"], seeds=[2])
    key = ("5.1", "50 ms", "gcc", 2)
    shas = [
        next(
            done.record_sha256
            for task, done in each.runs.items()
            if (task.case, task.variant, task.controller, task.seed) == key and not isinstance(done, str)
        )
        for each in (suite, again)
    ]
    assert shas[0] == shas[1], "a run does not depend on those beside it"


def test_an_interruption_leaves_nothing_behind(tmp_path: Path) -> None:
    def stop(what: str, done: int, of: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as ended:
        run_cases(["gcc"], case=["5.1"], seeds=[1, 2], out=tmp_path / "out", progress=stop)
    assert ended.value.__notes__ == ["1 of 6 runs were done; none is kept"]
    assert not any(tmp_path.iterdir())
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "cases.json").write_text("{}")
    with pytest.raises(KeyboardInterrupt):
        run_cases(["gcc"], case=["5.1"], out=tmp_path / "out", force=True, progress=stop)
    assert [(path.name, path.read_text()) for path in tmp_path.rglob("*.*")] == [("cases.json", "{}")]


def test_ids_and_controllers_that_are_not_there_are_answered_with_those_that_are(say: Say) -> None:
    for words, problem in (
        (["rfc8868"], "write rfc8867"),
        (["rfc8867", "--case", "5.9"], "there are: 5.1, 5.2"),
        (["rfc8867", "--controllers", "gccc"], 'did you mean "gcc"?'),
        (["rfc8867", "--seeds", "5-1"], "this is not a range"),
        (["rfc8867", "--case", "6.1", "--controllers", "tfrc"], "none of these controllers takes part in it"),
    ):
        said = say("test-cases", *words)
        assert said.code == 2, said
        assert problem in said.err
        assert not Path("runs").exists() or not any(Path("runs").iterdir())


def test_the_command_shows_a_table_of_80_columns_and_says_by_its_code_whether_all_held(say: Say) -> None:
    said = say("test-cases", "rfc8867", "--controllers", "gcc", "--case", "5.6", "-o", "good")
    assert said.code == 0, said
    assert all(len(line) <= 80 for line in said.out.splitlines())
    assert "5.6 1000 ms" in said.out
    assert "3/3" in said.out
    said = say("test-cases", "rfc8867", "--controllers", "tfrcp", "--case", "5.1", "--json", code=1)
    assert json.loads(said.out)["cases"][0]["controllers"][0]["held"] < 8
    said = say("test-cases", "rfc8867", "--controllers", "gcc", "--case", "5.6", "-o", "good", code=2)
    assert "--force" in said.err
    assert len(chosen(["5.6"])) == 1


def test_emulated_are_the_cases_of_up_to_two_minutes() -> None:
    short = [case.id for case in cases() if lasts_s(case) <= LONGEST_S]
    assert short == ["5.1", "5.2", "5.3", "5.4", "5.6", "5.8", "6.1", "6.2", "8869-2.1", "8869-2.2"]
