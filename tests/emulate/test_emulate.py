"""A scenario over this machine's kernel: its results, and what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from steadycast.emulate import Emulated, Program, emulate
from steadycast.errors import UserError
from steadycast.exits import Exit
from steadycast.folder import Folder
from steadycast.progress import Silent

from tests.conftest import ROOT, Claimed, ran, until

from .conftest import COMMAND, DUMBBELL, marked_processes, steadycast


def together(scenario: Path, changes: Mapping[str, str], *more: str) -> dict[str, Future[Emulated]]:
    """Emulate a scenario with each of these changes at the same time, and wait for all.

    Each run folder is beside the scenario. Its name is the key of the change. ``more`` are changes of all runs.
    """
    with ThreadPoolExecutor(len(changes)) as pool:
        return {
            name: pool.submit(
                emulate, scenario, set=[change, *more], out=scenario.parent / name, progress=Silent()
            )
            for name, change in changes.items()
        }


def misused(run: Future[Emulated]) -> str:
    """Return the text of the user's mistake that a run has found."""
    error = run.exception()
    assert isinstance(error, UserError), error
    assert error.code == Exit.MISUSED
    return str(error)


def test_a_program_that_cannot_be_executed_is_refused_for_the_true_reason(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("#!/bin/none-such\n")
    for mode, said in ((0o644, "is not executable; chmod"), (0o755, "an interpreter that does not exist")):
        own.chmod(mode)
        with pytest.raises(UserError, match=said):
            emulate("dumbbell", program=Program("tcp.src", [str(own)]))


def test_a_run_folder_is_whole_and_is_read_as_a_simulations_is(
    dumbbell: Path, tmp_path: Path, claimed: Claimed
) -> None:
    steadycast(["emulate", str(dumbbell), "-o", "out", "--pcap", "bottleneck"], tmp_path, code=0)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["world"] == "emulated"
    assert summary["complete"] is True
    video, tcp = summary["flows"]
    assert (tmp_path / "out" / "report.html").exists()
    capture = tmp_path / "out" / "pcap" / "bottleneck.pcapng"
    offered = sum(link["offered_packets"] for link in summary["links"] if link["name"] == "bottleneck")
    assert capture.stat().st_size > offered * 60
    steadycast(["compare", "out", "--json"], tmp_path, code=0)
    assert video["receivers"][0]["delay_ms"]["p50"] > 20
    with claimed(trusted=summary["emulation"]["trustworthy"]):
        assert 0.9e6 < video["throughput_bps"] < 1.01e6
        assert 2.0e6 < tcp["throughput_bps"] < 3.1e6
        assert 5 < tcp["cwnd_packets"]["mean"] < 60


def test_a_program_steers_an_emulated_flow_and_a_wrong_one_stops_it(dumbbell: Path, tmp_path: Path) -> None:
    text = f"#!{sys.executable}\nimport sys\nprint('here', file=sys.stderr)\nfor n, line in enumerate(sys.stdin):\n"
    for name, rate in (("good", "300000"), ("wrong", "-1")):
        answer = f'{{"v":1}}\' if n == 0 else \'{{"rate":{rate}}}'
        (tmp_path / name).write_text(f"{text}    print('{answer}', flush=True)\n")
        (tmp_path / name).chmod(0o755)
    controllers = {f"{name}-out": f"flow.video.controller=exec:./{name}" for name in ("good", "wrong")}
    runs = together(dumbbell, controllers, "duration=1s")
    video = runs["good-out"].result().run.summary["flows"][0]
    assert video["controller"] == "exec:./good"
    # Packets in flight at the end have not arrived.
    assert 150e3 < video["throughput_bps"] < 305e3
    assert (tmp_path / "good-out" / "controller-video.log").read_text() == "here\n"
    assert 'it answered "setup" with {"rate":-1}: its "rate" is -1' in misused(runs["wrong-out"])
    assert not (tmp_path / "wrong-out").exists()


RUNGS = """
name = "rungs"
duration = "3s"
[topology]
shape = "dumbbell"
bottleneck = { rate = "2Mbps", delay = "10ms", queue = { limit = "200ms" } }
[[flow]]
name = "video"
kind = "video"
controller = "steady"
media = "table2"
vbr = "rungs"
rungs = 8
"""


def test_a_switching_rule_in_python_or_a_program_chooses_rungs_and_a_wrong_one_stops_the_run(
    tmp_path: Path,
) -> None:
    (tmp_path / "rungs.toml").write_text(RUNGS)
    choose = "    def choose(self, stream):\n        return"
    (tmp_path / "rule.py").write_text(
        f"class Coarse:\n{choose} len(stream.recent_bps) - 1\nclass Wrong:\n{choose} 99\n"
    )
    answer = "print('{\"v\":1}' if n == 0 else '{\"rung\":7}', flush=True)"
    (tmp_path / "rule").write_text(
        f"#!{sys.executable}\nimport sys\nfor n, line in enumerate(sys.stdin):\n    {answer}\n"
    )
    (tmp_path / "rule").chmod(0o755)
    rules = {
        "built-in": "hysteresis",
        "class": "rule.py:Coarse",
        "program": "exec:./rule",
        "wrong": "rule.py:Wrong",
    }
    runs = together(
        tmp_path / "rungs.toml", {name: f"flow.video.switching={rule}" for name, rule in rules.items()}
    )
    assert runs["built-in"].result().run.summary["complete"] is True
    found = {
        name: set(runs[name].result().run.table("frames").to_polars()["q"]) for name in ("class", "program")
    }
    assert found["class"] == found["program"]
    assert len(found["class"]) == 1
    assert "99" in misused(runs["wrong"])
    assert not (tmp_path / "wrong").exists()


def test_a_controller_in_python_is_compared_with_a_built_in_one(dumbbell: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "aimd.py", tmp_path)
    controllers = {"own": "aimd.py:Aimd", "built-in": "tfrc"}
    changes = {name: f"flow.video.controller={controller}" for name, controller in controllers.items()}
    for run in together(dumbbell, changes).values():
        assert run.result().run.summary["complete"] is True
    compared = steadycast(["compare", "own", "built-in", "--json"], tmp_path, code=0)
    own, built_in = json.loads(compared.stdout)["runs"]
    # Both rise slowly beside a TCP on 4 Mb/s.
    for run in (own, built_in):
        assert 0.1e6 < run["video: throughput"] < 3.8e6
        assert 0.1e6 < run["tcp: throughput"] < 3.8e6
    rules = set(Folder.open(tmp_path / "own").table("decisions")["rule"])
    assert "no loss: a packet more" in rules


def test_a_program_reaches_other_hosts_by_name_and_its_end_is_the_runs(
    dumbbell: Path, tmp_path: Path
) -> None:
    # The hosts know each other by name, and the round trip takes the delays of the links.
    program = (
        "import socket, time, os;"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5);"
        "t = time.monotonic(); s.connect(('tcp.src', 9)); s.send(b'x')\n"
        "try: s.recv(1)\n"
        "except ConnectionRefusedError: print('refused after', time.monotonic() - t)\n"
        "print(os.environ['STEADYCAST_TCP_SRC'], os.environ['STEADYCAST_HOST']); raise SystemExit(7)"
    )
    began = time.monotonic()
    done = steadycast(
        ["emulate", str(dumbbell), "--only", "--in", "video.dst1", "--", "python3", "-c", program],
        tmp_path,
        code=7,
    )
    took, names = done.stdout.splitlines()
    assert 0.040 <= float(took.split()[-1]) < 1.0
    assert names == "10.0.0.5 video.dst1"
    assert time.monotonic() - began < 60
    # This process does not know the run's hosts.
    assert "tcp.src" not in Path("/etc/hosts").read_text()


CALL = (
    "import socket, time\n"
    "for _ in range(100):\n"
    "    try: c = socket.create_connection(('tcp.src', 80)); break\n"
    "    except OSError: time.sleep(0.1)\n"
    "print(c.recv(9).decode())"
)
"""Calls the other program, which may not listen yet."""


def test_a_program_starts_others_on_other_hosts(dumbbell: Path, tmp_path: Path) -> None:
    script = (
        'nsenter --net=$STEADYCAST_NET_TCP_SRC python3 -c "import socket;'
        "s=socket.create_server(('10.0.0.5', 80)); s.accept()[0].sendall(b'hello')\" & "
        f'python3 -c "{CALL}"'
    )
    done = steadycast(
        ["emulate", str(dumbbell), "--only", "--in", "video.dst1", "--", "sh", "-c", script], tmp_path
    )
    assert done.stdout.strip() == "hello", done.stderr


NETWORK = """
duration = "1min"
nodes = ["s", "r"]
[[link]]
name = "air"
between = ["s", "r"]
delay = "20ms"
"""


def test_a_network_without_flows_is_there_for_programs(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    path.write_text(NETWORK)
    program = (
        "import os, socket, sys, time; own = socket.create_server((os.environ['STEADYCAST_S'], 5000));"
        "began = time.monotonic(); there = socket.socket(); there.settimeout(5);"
        "refused = there.connect_ex((os.environ['STEADYCAST_R'], 5000));"
        "sys.exit(0 if 0.04 <= time.monotonic() - began < 2 and refused == 111 else 1)"
    )
    words = [
        "emulate",
        str(path),
        "--in",
        "s",
        "--pcap",
        "air",
        "-o",
        "net",
        "--",
        sys.executable,
        "-c",
        program,
    ]
    done = steadycast(words, tmp_path, code=0)
    assert (tmp_path / "net" / "pcap" / "air.pcapng").stat().st_size > 100
    for words, remedy in (
        (["emulate", str(path)], "--in HOST -- COMMAND"),
        (["run", str(path)], "one [[flow]]"),
    ):
        done = steadycast(words, tmp_path)
        assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1)
        assert remedy in done.stderr


GROUP = """
duration = "8s"
nodes = ["s", "hub", "r1", "r2"]
[[link]]
name = "up"
between = ["s", "hub"]
rate = "1Mbps"
[[link]]
name = "r1"
between = ["hub", "r1"]
delay = "10ms"
[[link]]
name = "r2"
between = ["hub", "r2"]
delay = "10ms"
[[flow]]
name = "video"
kind = "video"
controller = "asmp"
media = "greedy"
from = "s"
to = ["r1", "r2"]
cast = "multicast"
rtcp = { reports = "group" }
[record]
pcap = ["r1"]
"""


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the runs of two groups: the receivers report to their source, or to their group."""
    folder = tmp_path_factory.mktemp("groups")
    path = folder / "group.toml"
    path.write_text(GROUP)
    for run in together(path, {to: f"flow.video.rtcp.reports={to}" for to in ("source", "group")}).values():
        assert run.result().run.summary["complete"] is True
    return folder


def test_a_group_that_reports_to_its_source_is_served_and_members_do_not_hear_each_other(
    groups: Path,
) -> None:
    # RTCP that the first receiver gets: the sender's reports, and in an any-source group those of the other receiver.
    seen = {}
    for reports in ("source", "group"):
        flow = Folder.open(groups / reports).summary["flows"][0]
        assert 0.4e6 < flow["throughput_bps"] < 1e6
        sent = [receiver["feedback_packets"] for receiver in flow["receivers"]]
        assert min(sent) > 20
        # The sender gets both. A report from before the first packet does not count as a report on the flow.
        assert 0.7 * sum(sent) <= flow["feedback_packets"] <= sum(sent)
        packets = (groups / reports / "pcap" / "r1.pcapng").read_bytes()
        # The name in SDES identifies the reporter.
        seen[reports] = packets.count(b"video.dst2"), sent[1]
    assert seen["source"][0] == 0
    assert seen["group"][1] - 5 <= seen["group"][0] <= seen["group"][1]


def test_a_member_whose_own_reports_come_back_keeps_its_ssrc(groups: Path) -> None:
    packets = (groups / "group" / "pcap" / "r1.pcapng").read_bytes()
    # Chunks of SDES: an SSRC, the item CNAME, and the name with its length.
    named = {(name, ssrc) for ssrc, name in re.findall(rb"(?s)(.{4})\x01.(video[.a-z0-9]+)", packets)}
    assert len(named) == 3, named
    assert len({name for name, _ in named}) == 3, named


def test_the_kernels_limits_are_said_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "ns2.toml"
    path.write_text(DUMBBELL + 'preset = "ns2"\n')
    done = steadycast(["emulate", str(path)], tmp_path, code=2)
    line = len(DUMBBELL.splitlines()) + 1
    assert f"ns2.toml:{line}: flow.tcp.preset: the kernel's TCP has no clock of 10ms" in done.stderr
    done = steadycast(
        ["emulate", str(path), "--set", "duration=1s", "--json", "--approximate"], tmp_path, code=0
    )
    warnings = json.loads(done.stdout)["warnings"]
    assert any("left aside" in w and "clock" in w for w in warnings)


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
@pytest.mark.parametrize("mistake", ["flow.tcp.tick=10ms", "flow.video.media=clip", "nonsense=1"])
def test_missing_rights_are_said_before_anything_else(dumbbell: Path, tmp_path: Path, mistake: str) -> None:
    done = ran(
        [
            "setpriv",
            "--bounding-set=-all",
            "--inh-caps=-all",
            *COMMAND,
            "emulate",
            dumbbell,
            "--set",
            mistake,
        ],
        cwd=tmp_path,
        env={**os.environ, "STEADYCAST_ROOTLESS": "1"},
        code=3,
    )
    assert done.stderr.startswith("steadycast: emulate: ")
    assert "network namespaces" in done.stderr


def test_nothing_is_left_of_an_emulation_that_was_killed_and_the_next_one_sweeps(
    dumbbell: Path, tmp_path: Path
) -> None:
    # A grandchild in a separate session, which does not end with its parent.
    program = ["sh", "-c", "setsid sleep 300 & sleep 300"]
    run = subprocess.Popen(
        [*COMMAND, "emulate", str(dumbbell), "--only", "--in", "tcp.dst1", "--", *program], cwd=tmp_path
    )
    # Only those of this run: other tests run at the same time.
    own = f"{run.pid}-"
    until(lambda: len(marked_processes(own)) >= 3)
    os.kill(run.pid, signal.SIGKILL)
    run.wait(10)
    # The program ends with its parent. Its children stay until the next start of an emulation.
    until(lambda: len(marked_processes(own)) <= 2)
    steadycast(["emulate", str(dumbbell), "--only", "--in", "tcp.dst1", "--", "true"], tmp_path, code=0)
    until(lambda: not marked_processes(own))


def test_two_emulations_run_side_by_side(dumbbell: Path, tmp_path: Path, claimed: Claimed) -> None:
    arguments = [*COMMAND, "emulate", str(dumbbell), "--json"]
    both = [
        subprocess.Popen(
            arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        for _ in range(2)
    ]
    found = []
    for each in both:
        out, _ = each.communicate(timeout=60)
        assert each.returncode == 0
        found.append(json.loads(out))
    with claimed(trusted=all(summary["emulation"]["trustworthy"] for summary in found)):
        for summary in found:
            assert 0.85e6 < summary["flows"][0]["throughput_bps"] < 1.02e6


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_what_there_is(dumbbell: Path, tmp_path: Path, blow: signal.Signals) -> None:
    run = subprocess.Popen(
        [*COMMAND, "emulate", str(dumbbell), "-o", "out", "--set", "duration=60s", "--pcap", "bottleneck"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    part = tmp_path / "out.part"
    capture = part / "pcap" / "bottleneck.pcapng"
    # The access links carry at most 11 Mb/s, so this is more than half a second of traffic.
    until(lambda: capture.exists() and capture.stat().st_size > 1_000_000)
    run.send_signal(blow)
    _, said = run.communicate(timeout=30)
    assert run.returncode == 130, said
    summary = json.loads((part / "summary.json").read_text())
    assert summary["complete"] is False
    assert 0.5 < summary["to_s"] < 20


REPAIRED = """
duration = "10s"
nodes = ["s", "r"]
[[link]]
name = "air"
between = ["s", "r"]
rate = "6Mbps"
delay = "30ms"
loss = { kind = "bernoulli", p = 0.01 }
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
params.fixed = { rate = "1500kbps" }
encode = { size = "cif" }
from = "s"
to = ["r"]
# A frame waits 0.2 s in the pacer, and one request in a hundred is lost: it is asked for a second time.
playout = "800ms"
repair = "rtx"
rtcp = { profile = "avpf" }
"""

MARKED = """
duration = "8s"
[topology]
shape = "dumbbell"
bottleneck = { rate = "4Mbps", delay = "20ms", queue = { kind = "dualpi2" } }
[[flow]]
name = "video"
kind = "video"
controller = "scream"
media = "greedy"
feedback = "rfc8888"
ecn = "ect1"
"""


def agree(seen: dict[str, Any], *, marked: bool) -> None:
    """Both worlds have the same number of repairs, or of marks."""
    simulated, emulated = (seen[world]["flows"][0] for world in ("run", "emulate"))
    assert emulated.get("ecn_path") == simulated.get("ecn_path"), emulated
    told = {name: seen["emulate"][name] for name in ("flows", "emulation", "links")}
    assert emulated["throughput_bps"] == pytest.approx(simulated["throughput_bps"], rel=0.1), told
    assert all(promise["broken"] == 0 for promise in seen["emulate"]["invariants"])
    one, other = simulated["receivers"][0], emulated["receivers"][0]
    assert other["loss_frac"] == pytest.approx(one["loss_frac"], abs=0.002)
    if marked:
        marks = [sum(link["marked_packets"] for link in run["links"]) for run in seen.values()]
        assert min(marks) > 20
        assert marks[1] == pytest.approx(marks[0], rel=0.3)
        return
    assert other["repaired_packets"] >= 3
    share = [row["frames"]["ok"] / row["frames"]["sent"] for row in (one, other)]
    assert share[1] == pytest.approx(share[0], abs=0.003)


@pytest.mark.parametrize("scenario", [REPAIRED, MARKED], ids=["repair", "feedback and ecn"])
def test_what_receivers_ask_for_and_report_does_here_what_it_does_simulated(
    tmp_path: Path, scenario: str, claimed: Claimed
) -> None:
    path = tmp_path / "both.toml"
    path.write_text(scenario)
    seen = {}
    for world in ("run", "emulate"):
        done = steadycast([world, str(path), "--json"], tmp_path, code=0)
        seen[world] = json.loads(done.stdout)
    with claimed(trusted=seen["emulate"]["emulation"]["trustworthy"]):
        agree(seen, marked=scenario is MARKED)
