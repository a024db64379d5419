"""The parts of the comparison that need neither simulator and, if `ns` is installed, one short run of ns-2."""

import math
import shutil
import tomllib

import pytest

from validation import bench, ns2, validate
from validation.validate import SCENARIOS

needs_ns = pytest.mark.skipif(shutil.which("ns") is None, reason="ns-2 is not installed")


def test_the_equation_gives_the_published_rate_of_100_ms_and_one_percent() -> None:
    assert validate.throughput_equation(1000, 0.1, 0.01, 0.4) == pytest.approx(898_660, abs=10)
    assert validate.throughput_equation(1000, 0.168, 0.02, 4 * 0.168) == pytest.approx(348_800, abs=10)


def test_spread_uses_students_t_and_says_nothing_of_one_value() -> None:
    five = ns2.Spread.of([1.0, 2.0, 3.0, 4.0, 5.0])
    assert five.mean == 3.0
    assert five.ci95 == pytest.approx(2.7764 * math.sqrt(2.5 / 5))
    assert five.standard_error == pytest.approx(math.sqrt(2.5 / 5))
    assert math.isnan(ns2.Spread.of([1.0]).ci95)


@pytest.mark.parametrize(("ours", "good"), [(1.079, True), (1.081, False), (0.921, True), (0.919, False)])
def test_a_mean_is_within_eight_percent_on_both_sides(ours: float, good: bool) -> None:
    assert validate.verdict("mean", ns2.Spread(1.0, 0.01, 5), ns2.Spread(ours, 0.01, 5))[1] is good


def test_a_ratio_is_within_the_larger_of_a_tenth_and_two_standard_errors() -> None:
    sharp, wide = 0.02, 2.776 * 0.1  # standard errors of 0.007 and 0.1
    assert validate.verdict("ratio", ns2.Spread(1.0, sharp, 5), ns2.Spread(1.09, sharp, 5))[1]
    assert not validate.verdict("ratio", ns2.Spread(1.0, sharp, 5), ns2.Spread(0.89, sharp, 5))[1]
    assert validate.verdict("ratio", ns2.Spread(1.0, wide, 5), ns2.Spread(1.27, wide, 5))[1]
    assert not validate.verdict("ratio", ns2.Spread(1.0, wide, 5), ns2.Spread(1.29, wide, 5))[1]


@pytest.mark.parametrize(
    ("theirs", "ours", "good"),
    [
        (1.0, 4.9, True),  # less than half of a packet's 8 ms apart
        (1.0, 5.1, False),
        (5.1, 1.0, False),
        (100.0, 107.9, True),  # 8 % of a long wait is more than that
        (100.0, 91.9, False),
    ],
)
def test_a_wait_is_within_half_a_packet_or_eight_percent(theirs: float, ours: float, good: bool) -> None:
    found = validate.verdict("wait", ns2.Spread(theirs, 0.1, 5), ns2.Spread(ours, 0.1, 5), 8.0)
    assert found[1] is good


def test_the_queue_is_compared_wherever_several_flows_or_connections_share_one() -> None:
    waits = {c.group for c in validate.cells() if any(q.kind == "wait" for q in c.quantities)}
    assert waits == {"tfrc-lossy", "multfrc-lossy", "tfrc-tcp"}


def test_the_tfrc_that_users_get_is_compared_with_no_setting_of_its_own() -> None:
    cells = [c for c in validate.cells() if "as users get it" in ns2.label(c.params)]
    assert {c.group for c in cells} == {"tfrc-lossy", "tfrc-tcp"}
    assert not [path for c in cells for path in c.overrides if "params" in path]


@needs_ns
@pytest.mark.parametrize(("script", "link"), [("tfrc-lossy", 1e6), ("tfrc-tcp", 16e6)])
def test_ns2s_tfrc_puts_packets_of_the_said_size_on_the_link(script: str, link: float) -> None:
    run = ns2.run(script, {"duration_s": 100})
    sent = run.number("utilisation_frac") * link / 8 * run.number("span_s")
    # With ns-2's own `useHeaders_`, a packet has 1032 B with one flow, and 1016 B with as many TCPs of 1000 B beside
    # it.
    assert sent / run.number("link_departures") == pytest.approx(1000, abs=1)


def _print(at: float, p: float, opened: int, *closed: int) -> str:
    four = " ".join(f"{k}: {c:5d}" for k, c in enumerate(closed, 1))
    return (
        f"time: {at:7.5f} sample 0: {opened:5d} loss_rate: {p:7.5f} \n{at:f}: sample 0: {opened:5d} {four}\n"
    )


def test_loss_events_are_counted_by_shifts_of_the_closed_intervals_inside_the_span_only() -> None:
    text = (
        _print(1, 0.5, 9, 7, 6, 5, 4)
        + _print(9, 0.5, 3, 9, 7, 6, 5)  # before the span
        + _print(11, 0.01, 4, 9, 7, 6, 5)
        + _print(12, 0.02, 8, 4, 9, 7, 6)  # an event whose open interval is longer than the one before
        + _print(13, 0.03, 1, 8, 2, 4, 9)  # two between reports
        + _print(25, 0.9, 1, 1, 8, 2, 4)  # after it
    )
    found = ns2._tfrc_prints(text, {"from_s": 10, "span_s": 10, "sent_packets": 100}, {"packet": 1000})
    assert found["loss_events"] == 3
    assert found["loss_event_rate"] == pytest.approx(0.03)
    assert found["wali_p"] == pytest.approx(0.02)


@needs_ns
@pytest.mark.parametrize("p", [0.02, 0.08])
def test_loss_events_are_one_per_round_trip_at_most_and_no_fewer(p: float) -> None:
    run = ns2.run("tfrc-lossy", {"p": p})
    per_round_trip = run.number("sent_packets") / run.number("span_s") * 0.168
    assert run.number("loss_event_rate") == pytest.approx(p / (1 + p * per_round_trip), rel=0.06)


def test_every_cell_and_workload_has_its_scenario_and_names_only_links_and_flows_in_it() -> None:
    for cell in validate.cells():
        scenario = tomllib.loads((SCENARIOS / cell.scenario).read_text())
        names = {"flow": {f["name"] for f in scenario["flow"]}}
        names["link"] = {link.get("name", "") for link in scenario.get("link", [])}
        for path in cell.overrides:
            table, name, _ = path.split(".", 2)
            assert name in names[table], (cell.scenario, path)
    for load in bench.WORKLOADS:
        assert (SCENARIOS / load.scenario).is_file()


@pytest.mark.parametrize(("n", "queue"), [(n, q) for n in (8, 32) for q in ("red", "droptail")])
def test_the_bottleneck_of_ours_grows_with_the_flows_as_ns2s_does(n: int, queue: str) -> None:
    scenario = tomllib.loads((SCENARIOS / f"tfrc-tcp-{n}-{queue}.toml").read_text())
    bottleneck = scenario["topology"]["bottleneck"]
    assert bottleneck["rate"] == f"{2 * n}Mbps"
    packets = 9.375 if queue == "red" else 6.25
    assert bottleneck["queue"]["limit"] == f"{packets * 2 * n:.0f}p"
    assert [flow["name"] for flow in scenario["flow"]] == [f"tfrc[1-{n}]", f"tcp[1-{n}]"]


def test_without_ns_the_commands_name_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    for main in (ns2.main, validate.main):
        assert main([]) == 3
        assert "apt install ns2" in capsys.readouterr().err


@needs_ns
def test_ns2_says_a_wrong_parameter_by_name() -> None:
    with pytest.raises(ns2.NsFailedError, match='unknown parameter "windw"'):
        ns2.run("tcp-lossy", {"windw": 5})


@needs_ns
def test_ns2_runs_the_same_twice_and_another_seed_differently() -> None:
    params = {"duration_s": 50, "p": 0.01}
    one, again = ns2.run("tcp-lossy", params), ns2.run("tcp-lossy", params)
    other = ns2.run("tcp-lossy", {**params, "seed": 2})
    assert one.results == again.results
    assert one.number("throughput_bps") != other.number("throughput_bps")
    assert 600e3 < one.number("throughput_bps") < 1400e3


@needs_ns
@pytest.mark.parametrize("script", ["bench-cbr", "bench-tcp", "bench-multicast"])
def test_hops_said_without_monitors_are_within_one_percent_of_those_counted(script: str) -> None:
    said = ns2.run(script, {"duration_s": 20}).number("hops")
    counted = ns2.run(script, {"duration_s": 20, "count": 1}).number("hops")
    assert said == pytest.approx(counted, rel=0.01)
