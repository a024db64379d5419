"""C4's scenarios as test cases: their conversion, that each can be run, and one complete run."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from steadycast.experiment import run_experiment
from steadycast.experiment.spec import BUILT_IN, Spec

from tests.conftest import script

c4 = script("c4")
converted = c4.converted
SPEC = Spec.read("c4")
FOLDER = Path(str(BUILT_IN)) / "c4"

TRANSFER = """main_cc_algo: bbr
main_start_time: 500000
main_scenario_text: =b1:*1:397:2896000;
nb_connections: 2
background_cc_algo: c4
background_start_time: 0
background_scenario_text: =b1:*1:397:1448000;
main_target_time: 7000000
data_rate_in_gbps: 0.004
latency: 25000
queue_delay_max: 60000
link_scenario: drop_and_back"""
FRAMES = """main_cc_algo: c4
main_scenario_text: =a1:d50:p2:S:n100:72;=vlow:s25:p4:S:n75:1000:G3:I9000;
main_target_time: 8000000
media_stats_start: 300000
media_latency_average: 40000
media_latency_max: 90000
link_scenario: 2000000:U0.001:D0.01:L10000:Q50000;3000000:U0.001:D0.0:L20000:Q80000"""


def test_a_transfer_becomes_flows_a_link_that_changes_and_a_time_to_be_there() -> None:
    told, case = (tomllib.loads(text) for text in converted("pair", TRANSFER))
    link = told["topology"]["bottleneck"]
    assert (link["rate"], link["delay"]) == ("4Mbps", "25ms")
    assert link["queue"]["limit"] == "30000B", "60 ms at 4 Mb/s"
    changes = [(event["at"], event["set"]["rate"]) for event in told["event"]]
    assert changes == [("1.5s", "2Mbps"), ("3.5s", "4Mbps")]
    flows = {flow["name"]: flow for flow in told["flow"]}
    assert list(flows) == ["video", "tcp", "video-rival", "tcp-rival"], "C4's part is anybody's"
    assert (flows["tcp"]["start"], flows["tcp"]["bytes"]) == ("0.5s", "2896000B")
    assert flows["video-rival"]["bytes"] == "1500000B", "1000 segments of 1448 bytes"
    assert told["duration"] == "14s"
    (case,) = case["scenario"]
    (bound,) = case["bound"]
    assert (bound["value"], bound["max"]) == ("first(arrived(3000000, video), arrived(3000000, tcp1))", 7.0)
    assert case["variant"] == ["bbr"]


def test_frames_become_a_flow_for_each_layer_and_bounds_of_their_delay() -> None:
    told, case = (tomllib.loads(text) for text in converted("media", FRAMES))
    link = told["topology"]["bottleneck"]
    assert (link["rate"], link["back"]["rate"], link["queue"]["limit"]) == ("10Mbps", "1Mbps", "100000B")
    outage = {"rate": "0bps", "delay": "20ms"}
    again = {"rate": "10Mbps", "delay": "10ms"}
    changes = [(event["at"], event["set"]) for event in told["event"]]
    assert changes == [
        (at, {"link": "bottleneck", **new}) for at, new in (("2s", outage), ("5s", again), ("7s", outage))
    ]
    audio, video = told["flow"]
    assert (audio["rate"], audio["packet"], audio["stop"]) == ("40000bps", "100B", "2s")
    assert (video["trace"], video["encode"]["fps"], video["stop"]) == ("vlow-3.csv", 25, "3s")
    (case,) = case["scenario"]
    bounds = {bound["value"]: bound["max"] for bound in case["bound"]}
    assert bounds == {"frames(mean, 0.3, 8.0, video)": 40.0, "frames(max, 0.3, 8.0, video)": 90.0}
    assert case["variant"] == list(c4.MEDIA)


FADES = """2000000:U0.004:D0.004:L25000:J999:Q60000:S0:W;\
1000000:U0.004:D0.004:L25000:J12000:B2:P20:Q60000:W;9000000:U0.004:D0.004:L25000:J999:Q60000:W"""


@pytest.mark.parametrize(
    ("line", "first", "then"),
    [
        ("jitter: 7000\nwifi_jitter: 1", 7, [("1.5s", None, None), ("3.5s", None, None)]),
        ("link_scenario: wifi_fade", 0.999, [("1s", 12, None), ("3s", 0.999, None)]),
        (f"link_scenario: {FADES}", 0.999, [("2s", 12, 0.05), ("3s", 0.999, 0)]),
    ],
)
def test_wifi_jitter_is_the_links_in_each_part_of_its_life(
    line: str, first: float, then: list[tuple[str, float | None, float | None]]
) -> None:
    scenario, _ = converted("pair", f"{TRANSFER}\n{line}")
    told = tomllib.loads(scenario)
    wifi = {ms: {"mean": f"{ms}ms", "dist": "wifi"} for ms in (0.999, 7, 12)}
    loss = {0.05: {"kind": "gilbert", "p_bad": 0.05, "p_good": 0.5}, 0: {"kind": "none"}}
    assert told["topology"]["bottleneck"]["jitter"] == wifi[first]
    changes = [(e["at"], e["set"].get("jitter"), e["set"].get("loss")) for e in told["event"]]
    assert changes == [(at, ms and wifi[ms], None if p is None else loss[p]) for at, ms, p in then]


@pytest.mark.parametrize("line", ["media_stats_start: 200000", "main_cc_algo: dcubic"])
def test_what_no_key_can_say_is_left_out_with_a_reason(line: str) -> None:
    scenario, reason = converted("pair", f"{TRANSFER}\n{line}")
    assert not scenario
    assert reason.startswith("no ")


@pytest.mark.parametrize(
    ("layer", "frame", "first", "group"),
    [("vlow", 3750, 37500, 30), ("vmid", 6250, 62500, 30), ("high-150", 8000, 64000, 150)],
)
def test_a_layer_has_a_group_of_frames_of_which_the_first_is_an_i(
    layer: str, frame: int, first: int, group: int
) -> None:
    # sim_specs/c4_media.txt has groups of 30 pictures, sim_specs/repro_c4_media_wf.txt groups of 150.
    rows = [line.split(",") for line in (FOLDER / f"{layer}.csv").read_text().splitlines()[1:]]
    assert rows == [[str(n), "P" if n else "I", "1", str(frame if n else first)] for n in range(group)]


def test_every_case_is_a_scenario_for_all_that_take_part() -> None:
    assert len(SPEC.scenarios) == 49
    for point in SPEC.points():
        SPEC.scenarios[point.scenario].base.load(*point.sets)


def test_an_amount_takes_as_long_as_the_link_needs_and_what_it_takes_to_begin(tmp_path: Path) -> None:
    # 10 MB are 6907 packets of 1500 bytes: 4.144 s at 20 Mb/s. Before them is a handshake of 80 ms. Slow start goes
    # from 10 segments to the 133 segments of a round trip, and idles for at most four round trips. The last
    # acknowledgment arrives after 80 ms. After a single loss, the queue of 80 ms compensates for half of the window.
    done = run_experiment("c4", only=["c4_alone", "cubic", "gcc"], seeds=(1,), out=tmp_path / "out")
    assert not done.runs.errors
    (bound,) = (each for each in done.spec.bounds if "c4_alone" in each.scenarios)
    at = {point.variant: done.values(done.spec.measure(bound.measure), point)[1] for point in done.points}
    assert at["cubic"] is not None
    assert 4.144 + 0.08 + 0.08 < at["cubic"] < 4.144 + 0.08 + 4 * 0.08 + 0.08
    assert {each.variant: each.outcome for each in done.judgements} == {"cubic": "holds", "gcc": "unknown"}
    assert at["gcc"] is None, "it grows by 8 % a second and has not had 10 MB when the run ends"
