"""Controllers in any language: their decisions, the message about an invalid program, and that no process remains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import steadycast as sc

from tests.api.conftest import LINK, ROOT, TCP, VIDEO
from tests.conftest import Say, command, ran, until
from validation.guest import BUILT, SCENARIOS, Aimd, built, sha256

EXAMPLES = ROOT / "examples" / "any-language"
QUICK = ["c", "python"]
"""Languages whose programs are ready at once; the compilers of the others take seconds."""


def law(folder: Path, text: str) -> str:
    """Write a program in Python; return its controller's name."""
    file = folder / "law.py"
    file.write_text(f"#!{sys.executable}\nimport sys, time\n{text}")
    file.chmod(0o755)
    return "exec:./law.py"


ANSWERS = """
for n, line in enumerate(sys.stdin):
    print('{"v":1}' if n == 0 else '{"rate":300000.7,"why":"as ever"}', flush=True)
"""


def written(folder: Path, controller: str) -> Path:
    path = folder / "small.toml"
    path.write_text(LINK.format(seconds=6) + VIDEO.format(controller=controller) + TCP)
    return path


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(BUILT[name].found() is None, reason=f"needs {BUILT[name].tool}")


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in QUICK])
def test_a_law_gives_the_same_record_as_a_class_and_as_a_program(name: str, tmp_path: Path) -> None:
    steered = sha256(SCENARIOS[0], 1, built(name, tmp_path))
    assert steered == sha256(SCENARIOS[0], 1, Aimd)
    assert steered != sha256(SCENARIOS[0], 2, Aimd)


@pytest.mark.claim
@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in BUILT])
def test_three_scenarios_and_five_seeds_give_one_record_each_in_every_language_twice(
    name: str, tmp_path: Path
) -> None:
    words = built(name, tmp_path)
    for scenario in SCENARIOS:
        for seed in range(1, 6):
            wanted = sha256(scenario, seed, Aimd)
            assert [sha256(scenario, seed, words) for _ in range(2)] == [wanted] * 2


def test_a_program_is_found_beside_its_scenario_and_its_log_stands_in_the_folder(tmp_path: Path) -> None:
    name = law(tmp_path, "print('in', sys.argv[1:], file=sys.stderr)" + ANSWERS)
    path = written(tmp_path, f"{name} --fast 'two words'")
    done = sc.run(path, out=tmp_path / "out")
    video = done.summary["flows"][0]
    assert video["controller"] == f"{name} --fast 'two words'"
    assert 270_000 < video["throughput_bps"] < 305_000
    assert "as ever" in set(done.decisions.to_polars()["rule"])
    assert (tmp_path / "out" / "controller-video.log").read_text() == "in ['--fast', 'two words']\n"


WRONG = {
    "no such file": (None, "exec:./none", 'no such file: "./none"', "give its path"),
    "not executable": ("", "exec:./law.py", "is not executable", "chmod +x"),
    "quotes": (None, "exec:./law.py 'a", "not the words of a command: no closing quotation", "close"),
    "ended": (
        "sys.exit('no')",
        "",
        '"hello" was to be answered, it had ended with code 1, its last words',
        "",
    ),
    "no json": ("print('hi', flush=True); input()", "", "with hi: that is no JSON", "one JSON object a line"),
    "version": (
        "print('{\"v\":7}', flush=True); input()",
        "",
        "it speaks version 7, this program version 1",
        "make them the same",
    ),
    "later": (
        ANSWERS.replace('"rate":300000.7', '"rat":1'),
        "",
        'at its flow\'s start it answered "setup"',
        'answer {"rate":N}',
    ),
    "two lines": (
        ANSWERS.replace("ever\"}'", "ever\"}\\n{}'"),
        "",
        "it had written a line more than it was asked for: {}",
        "one line for each message",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_program_stops_the_run_with_one_line_and_no_folder(
    kind: str, tmp_path: Path, say: Say
) -> None:
    text, name, problem, remedy = WRONG[kind]
    if text is not None:
        named = law(tmp_path, text)
        if kind == "not executable":
            (tmp_path / "law.py").chmod(0o644)
        name = name or named
    written(tmp_path, name)
    said = say("run", "small.toml", "-o", "out", code=2)
    assert said.err.count("\n") == 1
    assert problem in said.err
    assert remedy in said.err
    assert "exec:./" in said.err
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.part").exists()


def lives(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(") ")[2][0] != "Z"


STUBBORN = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
open("pids", "a").write(f"{os.getpid()}\\n")
child = os.fork()
if child == 0:
    open("pids", "a").write(f"{os.getpid()}\\n")
    time.sleep(1000)
for n, line in enumerate(sys.stdin):
    if n == 40:
        open("there", "w").close()
    print('{"v":1}' if n == 0 else '{"rate":300000}', flush=True)
time.sleep(1000)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("verb", ["run", "sweep"])
def test_a_run_that_is_killed_in_the_middle_leaves_no_process(
    how: signal.Signals, verb: str, tmp_path: Path
) -> None:
    path = written(tmp_path, law(tmp_path, STUBBORN))
    path.write_text(path.read_text().replace('"6s"', '"100000s"'))
    words = command(verb, "small.toml", "-o", "out")
    if verb == "sweep":
        words += ["--seeds", "1-2"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL, process_group=0) as run:
        until((tmp_path / "there").exists)
        pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
        assert all(map(lives, pids))
        os.kill(run.pid, how)
        run.wait(30)
    until(lambda: not any(map(lives, pids)))


@pytest.mark.parametrize("feedback", ["stats", "rr"])
@pytest.mark.parametrize("controller", ["tfrc", "gcc", "class", "program"])
def test_coarse_feedback_comes_at_most_once_a_second_to_every_kind_of_controller(
    feedback: str, controller: str, tmp_path: Path
) -> None:
    said = (
        law(tmp_path, ANSWERS) if controller == "program" else "tfrc" if controller == "class" else controller
    )
    path = written(tmp_path, said)
    reports: list[sc.Report] = []

    class Counts:
        def __init__(self, setup: sc.Setup) -> None:
            pass

        def on_report(self, report: sc.Report) -> None:
            reports.append(report)

        def rate_bps(self) -> float:
            return 300_000

    changes = {"flow.video.feedback": feedback, "duration": "20s", "flow.video.rtcp.t_min": "1s"}
    classes = {"video": Counts} if controller == "class" else None
    done = sc.run(path, set=changes, controllers=classes)
    video = done.summary["flows"][0]
    assert 10 <= video["feedback_packets"] <= 21
    assert video["throughput_bps"] > 20_000
    for report in reports[1:]:
        assert report.expected_packets > 0
        assert report.queueing_s is None
        assert (report.received_bps is not None) == (feedback == "stats")
        assert report.rtt_s is None or 0.02 < report.rtt_s < 2


def test_send_refuses_what_comes_from_outside_with_a_remedy() -> None:
    for name in ("exec:./mine --fast", "mine.py:Mine"):
        words = command("send", "greedy", "--to", "127.0.0.1:5004", "--for", "1s", "--controller", name)
        done = ran(words, code=2)
        assert "steers simulated and emulated flows alone; there are: fixed, " in done.stderr
