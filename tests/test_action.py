"""The action that judges a pair in a workflow: its declared inputs are used, and its steps do what they say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ran

FOLDER = Path(__file__).resolve().parent.parent / ".github" / "actions" / "judge"
STEADYCAST = """#!/bin/sh
printf '%s\\n' "$@" >>"$RUNNER_TEMP/asked"
[ "$1" = judge ] || exit 0
mkdir -p "$RUNNER_TEMP/judged"
echo '{}' >"$RUNNER_TEMP/judged/judge.json"
printf 'network  rate\\nleo  3.1M\\n' >"$RUNNER_TEMP/judged/judge.txt"
exit 1
"""
"""Records its arguments, and reports a missed bound."""


@pytest.fixture(scope="module")
def action() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    told: dict[str, Any] = yaml.safe_load((FOLDER / "action.yml").read_text())
    return told


def step(action: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in action["runs"]["steps"] if each["id"] == name)


def environment(action: dict[str, Any], name: str, folder: Path, given: dict[str, str]) -> dict[str, str]:
    """Return the environment that a runner gives to a step, with the inputs of a workflow."""
    inputs = {key: given.get(key, each.get("default", "")) for key, each in action["inputs"].items()}
    told = {
        key: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs[found[1]], value)
        for key, value in step(action, name).get("env", {}).items()
    }
    files = {"GITHUB_OUTPUT": folder / "output", "GITHUB_STEP_SUMMARY": folder / "summary"}
    own = {"RUNNER_TEMP": folder, "GITHUB_ACTION_PATH": FOLDER, **files}
    return {**os.environ, **told, **{key: str(value) for key, value in own.items()}}


def done(action: dict[str, Any], name: str, folder: Path, **given: str) -> subprocess.CompletedProcess[str]:
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step(action, name)["run"]]
    inputs = {key.replace("_", "-"): value for key, value in given.items()}
    env = environment(action, name, folder, inputs)
    return ran(words, cwd=folder, env=env)


def test_each_input_is_used_each_output_is_made_and_no_input_is_read_as_shell(action: dict[str, Any]) -> None:
    text = (FOLDER / "action.yml").read_text()
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(action["inputs"])
    assert all(each["description"] for each in (*action["inputs"].values(), *action["outputs"].values()))
    assert all(("default" in each) != bool(each.get("required")) for each in action["inputs"].values())
    assert action["runs"]["using"] == "composite"
    script = (FOLDER / "judge.sh").read_text()
    for name, output in action["outputs"].items():
        assert output["value"] == f"${{{{ steps.judge.outputs.{name} }}}}"
        assert re.search(rf'echo "{name}(=|<<)', script)
    for each in action["runs"]["steps"]:
        assert ("uses" in each) != ("run" in each)
        # An expression in a script would execute whatever the author of the input wrote.
        assert "${{" not in each.get("run", "")
        assert ("shell" in each) == ("run" in each)
    assert set(re.findall(r"\$\{?([A-Z_]+)", script)) <= {
        *step(action, "judge")["env"],
        *("RUNNER_TEMP", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "RANDOM", "PATH"),
    }


def installed(folder: Path, script: str) -> None:
    """Install a program where the previous step installs it."""
    executable(folder / "steadycast" / "bin" / "steadycast", script)


def executable(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)


def test_its_steps_pass_inputs_on_tell_the_workflow_and_end_as_the_judge_does(
    action: dict[str, Any], tmp_path: Path
) -> None:
    installed(tmp_path, STEADYCAST)
    bounds = "*.frozen_frac>0.05\n\nleo.throughput_bps<-10%\n"
    ended = done(
        action, "judge", tmp_path, pair="a pair.toml", seconds="20s", baseline="old.json", fail_if=bounds
    )
    assert ended.returncode == 1, ended.stderr
    out = tmp_path / "judged"
    words = ["judge", "a pair.toml", "--runs", "1", "-o", str(out), "--force", "--seconds", "20s"]
    words += [
        "--baseline",
        "old.json",
        "--fail-if",
        "*.frozen_frac>0.05",
        "--fail-if",
        "leo.throughput_bps<-10%",
    ]
    assert (tmp_path / "asked").read_text().splitlines() == ["doctor", "judge", *words]
    told = (tmp_path / "output").read_text()
    table = (out / "judge.txt").read_text()
    assert re.fullmatch(rf"json={re.escape(str(out))}/judge.json\ntext<<(\S+)\n{re.escape(table)}\1\n", told)
    assert (tmp_path / "summary").read_text() == f"```text\n{table}```\n"


SUDO = """#!/bin/sh
printf '%%s\\n' "$1" >>"$RUNNER_TEMP/sudo"
[ "$1" = chown ] && exit
shift
%s
"""
"""Records its first argument."""


@pytest.mark.parametrize(
    ("does", "asked"), [('exec "$@"', ["-n", "-E", "-E", "chown"]), ("exit 1  # it wants a password", ["-n"])]
)
def test_an_ordinary_user_judges_by_sudo_where_that_asks_for_no_password_and_else_alone(
    does: str, asked: list[str], action: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, STEADYCAST)
    executable(tmp_path / "bin" / "id", "#!/bin/sh\necho 1000\n")
    executable(tmp_path / "bin" / "sudo", SUDO % does)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    ended = done(action, "judge", tmp_path, pair="pair.toml")
    assert ended.returncode == 1, ended.stderr
    assert (tmp_path / "sudo").read_text().split() == asked
    assert (tmp_path / "asked").read_text().split()[:3] == ["doctor", "judge", "judge"]
    assert "leo" in (tmp_path / "summary").read_text()


def test_what_github_reads_is_yaml_with_steps_that_have_one_thing_to_do() -> None:
    yaml = pytest.importorskip("yaml")
    told = {path.stem: yaml.safe_load(path.read_text()) for path in FOLDER.parents[1].rglob("*.yml")}
    jobs = [job for each in told.values() for job in each.get("jobs", {}).values()]
    assert {"action", "ci", "release"} <= {*told}
    assert len(jobs) > 3
    for step in (step for job in jobs for step in job["steps"]):
        assert ("uses" in step) != ("run" in step)


def test_it_installs_what_it_is_told_and_else_its_own_checkout(
    action: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = '#!/bin/sh\nmkdir -p "$3/bin"\nprintf \'#!/bin/sh\\necho "$@"\\n\' >"$3/bin/pip"\nchmod +x "$3/bin/pip"\n'
    executable(tmp_path / "bin" / "python3", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    wheel = done(action, "install", tmp_path, steadycast="a b.whl")
    own = done(action, "install", tmp_path)
    assert wheel.stdout == "install --quiet a b.whl\n"
    root = own.stdout.removeprefix("install --quiet ").strip()
    assert (Path(root) / "pyproject.toml").is_file()


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="needs shellcheck")
def test_its_shell_is_clean(action: dict[str, Any], tmp_path: Path) -> None:
    install = tmp_path / "install.sh"
    install.write_text("#!/bin/bash\n" + step(action, "install")["run"])
    subprocess.run(["shellcheck", str(FOLDER / "judge.sh"), str(install)], check=True)


@pytest.mark.claim
def test_a_pair_of_one_datagram_and_another_is_judged(action: dict[str, Any], tmp_path: Path) -> None:
    installed(tmp_path, f'#!/bin/sh\nexec {sys.executable} -m steadycast "$@"\n')
    send = "import socket, sys, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
    send += "while True: s.sendto(bytes(500), (sys.argv[1], 5004)); time.sleep(0.01)\n"
    (tmp_path / "send.py").write_text(send)
    receive = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('', 5004))\n"
    (tmp_path / "receive.py").write_text(receive + "while True: s.recv(2000)\n")
    (tmp_path / "pair.toml").write_text(
        'lead = "3s"\n'
        '[[program]]\nname = "receive"\non = "receiver"\nready = "udp:5004"\nrun = "{python} {here}/receive.py"\n'
        '[[program]]\nname = "send"\non = "sender"\nrun = "{python} {here}/send.py {receiver}"\n'
        '[[expect]]\nthat = "loss_frac"\nmin = 0.5\n'
    )
    ended = done(action, "judge", tmp_path, pair="pair.toml", networks="clean-20", seconds="3s")
    # On loopback, the required loss of half of the datagrams can't occur.
    assert ended.returncode == 1, ended.stderr
    cells = json.loads((tmp_path / "judged" / "judge.json").read_text())["cells"]
    assert [cell["network"] for cell in cells] == ["clean-20"]
    assert cells[0]["worst"]["loss_frac"] == 0
    assert "clean-20" in (tmp_path / "summary").read_text()
