"""Python classes that control a video's rate: valid ones, and the messages for invalid ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import steadycast as sc

from tests.api.conftest import LINK, ROOT, TCP, VIDEO
from tests.conftest import command, ran


class Steady:
    """A controller with three quarters of a constant rate."""

    def __init__(self, setup: sc.Setup) -> None:
        self.setup = setup

    def on_report(self, report: sc.Report) -> None:
        assert report.rtt_s is None or 0.01 < report.rtt_s < 2
        assert 0 <= report.loss_frac <= 1

    def rate_bps(self) -> float:
        return 300_000


def test_the_documented_controller_is_the_example_and_runs_beside_the_others(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "python-controller.md").read_text()
    block = next(b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "class Aimd" in b)
    assert block == (ROOT / "examples" / "aimd.py").read_text()
    (tmp_path / "aimd.py").write_text(block)
    scenario = tmp_path / "aimd.toml"
    scenario.write_text((ROOT / "examples" / "aimd.toml").read_text())
    own = sc.run(scenario, out=tmp_path / "own", set={"duration": "30s"})
    run = sc.run(scenario, out=tmp_path / "tfrc", set={"duration": "30s", "flow.video.controller": "tfrc"})
    for each in (own, run):
        assert 0.5 < each.summary["flows"][0]["share_of_fair"] < 1.5
        assert 0.5 < each.summary["flows"][1]["share_of_fair"] < 1.5
    rules = set(own.decisions.to_polars()["rule"])
    assert {"loss: halved", "no loss: a packet more"} <= rules
    words = command("compare", "own", "tfrc")
    said = ran(words, cwd=tmp_path, check=True).stdout
    assert "aimd.py:Aimd" in said


def test_a_class_is_given_directly_and_named_in_the_summary(scenario: Path) -> None:
    run = sc.run(scenario, controllers={"video": Steady})
    video = run.summary["flows"][0]
    assert video["controller"].endswith(".py:Steady")
    assert 270_000 < video["throughput_bps"] < 305_000
    again = sc.run(scenario, controllers={"video": Steady})
    assert run.summary["record_sha256"] == again.summary["record_sha256"]


def test_a_class_that_asks_for_megabits_is_warned_of_its_unit(scenario: Path) -> None:
    class InMegabits(Steady):
        def rate_bps(self) -> float:
            return 2.5

    run = sc.run(scenario, controllers={"video": InMegabits}, set={"flow.video.media": "greedy"})
    [said] = [each for each in run.summary["warnings"] if "2.5e6" in each]
    assert "InMegabits never asked for more than" in said
    usual = sc.run(scenario, controllers={"video": Steady})
    assert not [each for each in usual.summary["warnings"] if "2.5e6" in each]


def test_a_method_that_runs_only_when_it_is_awaited_is_refused(scenario: Path) -> None:
    class Waits(Steady):
        async def on_report(self, report: sc.Report) -> None:  # type: ignore[override]
            pass

    with pytest.raises(sc.UserError, match=r"Waits\.on_report is async"):
        sc.run(scenario, controllers={"video": Waits})


@pytest.mark.parametrize(
    ("scenario_given", "more", "says"),
    [
        (None, {}, "scenario None: it is a NoneType; give str | Path | Scenario"),
        ({"duration": "6s"}, {}, "it is a dict; give str | Path | Scenario"),
        ('duration = "6s"\n[topology]\n', {}, "a scenario's text, not the name of a file"),
        (
            "home",
            {"set": [("duration", "6s")]},
            "its element 0 is of the type tuple; give Mapping[str, object] | Sequence[str]",
        ),
        (
            "home",
            {"set": {7: "6s"}},
            "its key 7 is of the type int; give Mapping[str, object] | Sequence[str]",
        ),
        (
            "home",
            {"controllers": {"video": 7}},
            "its value for 'video' is of the type int; give Mapping[str, type] | None",
        ),
        ("home", {"set": "duration=6s"}, "it is a str; give Mapping[str, object] | Sequence[str]"),
        (
            "home",
            {"seed": 2**64},
            "seed: 18446744073709551616 is out of range; write a whole number from 0 to 9223372036854775807",
        ),
    ],
)
def test_what_run_cannot_take_is_said_with_its_place_and_a_remedy(
    scenario_given: object, more: dict[str, object], says: str
) -> None:
    with pytest.raises(sc.UserError, match=re.escape(says)):
        sc.run(scenario_given, **more)  # type: ignore[arg-type]


def test_a_seed_that_is_named_twice_is_one_sample(scenario: Path) -> None:
    found = sc.run_seeds(scenario, seeds=[1, 1, 2], set={"duration": "2s"})
    assert found["flows"][0]["throughput_bps"]["n"] == 2


def test_what_a_class_is_told_prints_with_all_its_attributes(scenario: Path) -> None:
    told: dict[str, str] = {}

    class Prints(Steady):
        def __init__(self, setup: sc.Setup) -> None:
            told["setup"] = repr(setup)

        def on_sent(self, packet: sc.SentPacket) -> None:
            told["packet"] = repr(packet)

        def on_report(self, report: sc.Report) -> None:
            told["report"] = repr(report)

    sc.run(scenario, controllers={"video": Prints})
    assert re.fullmatch(r"Setup\(packet_bytes=\d+, floor_bps=.*, group=False, seed=\d+\)", told["setup"])
    assert re.fullmatch(r"SentPacket\(at_s=[\d.]+, number=\d+, .*data_limited=(True|False)\)", told["packet"])
    shown = r"Report\(at_s=[\d.]+, receiver=\d+, .*rtt_s=[\d.]+, .*body=None, packets=\[\]\)"
    assert re.fullmatch(shown, told["report"])


class Patient(Steady):
    """A controller that wakes half a second after its first packet, long before the first report."""

    report_every_s = 60.0
    wake: float | None = None
    woken: list[float]

    def on_sent(self, packet: sc.SentPacket) -> None:
        if not packet.number:
            self.wake = packet.at_s + 0.5
            type(self).woken = []

    def next_wake_s(self) -> float | None:
        return self.wake

    def on_timer(self, now_s: float) -> None:
        self.wake = None
        self.woken.append(now_s)


def test_what_a_class_decides_when_a_packet_leaves_is_asked_for_at_once(scenario: Path) -> None:
    run = sc.run(scenario, controllers={"video": Patient})
    began = float(run.decisions.to_polars()["t_s"][0])
    assert [round(at - began, 2) for at in Patient.woken] == [0.5]


class Echoing(Steady):
    """A controller whose receiver counts packets and reports their number."""

    def __init__(self, setup: sc.Setup) -> None:
        super().__init__(setup)
        self.counts: list[int] = []

    def on_report(self, report: sc.Report) -> None:
        assert report.received_bps is not None
        assert report.body is not None
        count = int(report.body)
        # Two reports may follow each other between two packets.
        assert not self.counts or count >= self.counts[-1]
        self.counts.append(count)

    def why(self) -> str:
        return f"{len(self.counts)} reports"

    class Receiver:
        def __init__(self, setup: sc.Setup) -> None:
            self.seen = 0

        def on_arrival(self, packet: sc.ArrivedPacket) -> None:
            assert packet.sent_s < packet.at_s
            self.seen += 1

        def report(self, slot: sc.ReportSlot) -> bytes | None:
            return str(self.seen).encode()


def test_a_receiver_half_in_python_adds_to_the_reports(scenario: Path) -> None:
    run = sc.run(scenario, controllers={"video": Echoing})
    last = run.decisions.to_polars()["rule"].drop_nulls().to_list()
    reports = max(int(rule.split()[0]) for rule in last if rule.endswith(" reports"))
    assert 80 < reports < 110  # ten a second


HEAD = """
class C:
    def __init__(self, setup): pass
    def on_report(self, report): pass
    def rate_bps(self): return 300_000
"""
# Mistakes, their messages, and the line that each message names.
WRONG = {
    "no rate": ("class C:\n def __init__(self, s): pass\n def on_report(self, r): pass\n", "rate_bps", 0),
    "misspelt": (HEAD.replace("on_report", "on_reports"), '"on_reports"', 4),
    "unknown": (HEAD + "    def on_everything(self): pass\n", "C.on_everything", 6),
    "arguments": (HEAD.replace("(self, report)", "(self)"), "C.on_report(self)", 4),
    "constructor": (HEAD.replace("(self, setup)", "(self)"), "C.__init__(self)", 3),
    "interval": (HEAD + "    report_every_s = -1\n", "report_every_s is -1", 2),
    "receiver": (
        HEAD
        + "    class Receiver:\n        def __init__(self, s): pass\n        def on_arrival(self, p): pass\n",
        '"report"',
        0,
    ),
    "negative": (HEAD.replace("300_000", "-1"), "C.rate_bps at its flow's start returned -1", 5),
    "nan": (HEAD.replace("300_000", "float('nan')"), "returned nan", 5),
    "infinite": (HEAD.replace("300_000", "float('inf')"), "returned inf", 5),
    "text": (HEAD.replace("300_000", "'fast'"), "returned 'fast'", 5),
    "truth": (HEAD.replace("300_000", "True"), "returned True", 5),
    "nothing": (HEAD.replace("return 300_000", "pass"), "returned None", 5),
    "raises at once": (HEAD.replace("setup): pass", "setup): 1 / 0"), "division by zero", 3),
    "raises later": (
        HEAD.replace("report): pass", "report):\n        if report.at_s > 2: [][1]"),
        r"C.on_report at 2\.\d\d\d s of the run: IndexError: list index out of range",
        5,
    ),
    "exits": (HEAD.replace("report): pass", "report): raise SystemExit(0)"), "SystemExit: 0", 4),
    "no attribute": (HEAD.replace("report): pass", "report): report.rtt"), "no attribute 'rtt'", 4),
    "reason": (HEAD + "    def why(self): return 3\n", "C.why at its flow's start returned 3", 6),
    "timer": (HEAD + "    def next_wake_s(self): return 'soon'\n", "C.next_wake_s .* returned 'soon'", 6),
    "bytes": (
        HEAD
        + "    class Receiver:\n        def __init__(self, s): pass\n        def on_arrival(self, p): pass\n"
        "        def report(self, s): return 'text'\n",
        r"C.Receiver.report at 0\.\d\d\d s of the run returned 'text'",
        9,
    ),
    "syntax": ("class C:\n    def x(:\n", "not Python", 2),
    "import": ("import nothing_of_that_name\n", "ModuleNotFoundError", 1),
    "no class": ("class D: pass\n", 'no class "C"', 0),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_class_is_told_with_method_line_and_time(kind: str, tmp_path: Path) -> None:
    source, said, line = WRONG[kind]
    (tmp_path / "c.py").write_text(source)
    scenario = tmp_path / "wrong.toml"
    scenario.write_text(LINK.format(seconds=6) + VIDEO.format(controller="c.py:C") + TCP)
    with pytest.raises(sc.UserError) as caught:
        sc.run(scenario, out=tmp_path / "out")
    assert re.search(said if "\\" in said or ".*" in said else re.escape(said), caught.value.problem)
    assert "c.py" in caught.value.place or "C" in caught.value.place
    if line:
        assert caught.value.place.endswith(f"c.py:{line}"), caught.value
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.part").exists()


def test_the_command_says_it_in_one_line_with_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text(HEAD.replace("300_000", "-1"))
    (tmp_path / "wrong.toml").write_text(LINK.format(seconds=6) + VIDEO.format(controller="c.py:C"))
    words = command("run", "wrong.toml")
    done = ran(words, cwd=tmp_path, code=2)
    assert done.stderr.count("\n") == 1
    assert "c.py:5: C.rate_bps at its flow's start returned -1; return the rate" in done.stderr


def test_a_flow_that_is_not_there_is_told(scenario: Path) -> None:
    for flow in ("tcp", "vide"):
        with pytest.raises(sc.UserError):
            sc.run(scenario, controllers={flow: Steady})
    with pytest.raises(sc.UserError, match=r"its value for 'video'.* give Mapping\[str, type\]"):
        sc.run(scenario, controllers={"video": Steady(None)})  # type: ignore[dict-item, arg-type]


class Told(Steady):
    """A controller that receives per-packet feedback and paces faster than its target."""

    def __init__(self, setup: sc.Setup) -> None:
        super().__init__(setup)
        self.sent: dict[int, int] = {}
        self.arrived: dict[int, float] = {}
        self.marks = 0

    def on_sent(self, packet: sc.SentPacket) -> None:
        self.sent[packet.number] = packet.size_bytes

    def on_report(self, report: sc.Report) -> None:
        numbers = [packet[0] for packet in report.packets]
        assert numbers == sorted(numbers)
        for number, sent_s, size_bytes, arrived_s, ecn in report.packets:
            assert self.sent[number] == size_bytes
            if arrived_s is None:
                assert ecn is None
                continue
            assert number not in self.arrived
            self.arrived[number] = arrived_s
            assert 0.005 < arrived_s - sent_s < 1
            assert ecn in (1, 3)

    def pacing_bps(self) -> float:
        return 600_000

    def why(self) -> str:
        return f"{len(self.arrived)} of {len(self.sent)}"


def test_with_packet_reports_a_class_is_told_of_each_packet_once(scenario: Path) -> None:
    changes = {"flow.video.feedback": "rfc8888", "flow.video.ecn": "ect1"}
    run = sc.run(scenario, controllers={"video": Told}, set=changes)
    rules = run.decisions.to_polars()["rule"].to_list()
    arrived, sent = next(rule for rule in reversed(rules) if " of " in rule).split(" of ")
    assert 0.9 * int(sent) < int(arrived) <= int(sent)
    own = sc.run(scenario, controllers={"video": Told}, set={"flow.video.ecn": "ect1"})
    rules = own.decisions.to_polars()["rule"].to_list()
    assert all(rule.startswith("0 of ") for rule in rules if " of " in rule)


class Racing(Steady):
    """A controller whose pacing is not a number."""

    def pacing_bps(self) -> float:
        return float("inf")


def test_a_pacing_that_is_no_number_is_told_with_its_place(scenario: Path) -> None:
    with pytest.raises(sc.UserError, match=r"pacing_bps at .* returned inf; return the rate in bit/s"):
        sc.run(scenario, controllers={"video": Racing})
