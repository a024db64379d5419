from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

SCENARIO = """\
# A short one, with small pictures at few quantizers.
format = 1
name = "small"
duration = "12s"
warmup = "2s"
seed = 1

[topology]
shape = "dumbbell"
bottleneck = { rate = "600kbps", delay = "15ms", queue = { kind = "droptail", limit = "30p" } } # the way in

[[flow]]
name = "video"
kind = "video"
controller = "asmp"
media = "synthetic"
encode = { size = "176x144", q = "4-10" }
playout = "400ms"

[[flow]] # a download
name = "tcp"
count = 1
kind = "tcp"
preset = "linux"
congestion = "cubic"
start = "1s"
"""


@dataclass
class Answer:
    code: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Lab:
    """A lab in a separate process."""

    process: subprocess.Popen[str]
    address: str
    token: str
    link: str

    @property
    def page(self) -> str:
        return f"{self.address}/#token={self.token}"

    def post(self, what: str, body: object, **headers: str) -> Answer:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"content-type": "application/json", "x-steadycast-token": self.token}
        return self.ask(
            f"/api/{what}", content, {**sent, **{k.replace("_", "-"): v for k, v in headers.items()}}
        )

    def ask(self, path: str, content: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
        request = urllib.request.Request(self.address + path, content, headers or {})
        try:
            with urllib.request.urlopen(request, timeout=60) as got:
                return Answer(got.status, got.read(), dict(got.headers))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read(), dict(error.headers))

    def workers(self) -> list[int]:
        """Numbers of the processes that the lab started."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == self.process.pid:
                found.append(int(stat.parent.name))
        return found


def start(folder: Path, *words: str, file: bool = True) -> Lab:
    scenario = folder / "small.toml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    command = [str(Path(sys.executable).with_name("steadycast")), "lab", "--no-browser", *words]
    command += [str(scenario)] if file else []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=os.environ)
    assert process.stdout is not None
    said = process.stdout.readline()
    found = re.fullmatch(r"lab: (http://127\.0\.0\.1:\d+)/#token=([\w-]{32})(\S*)\n", said)
    if found is None:
        process.kill()
        process.wait()
    assert found is not None, said
    return Lab(process, found[1], found[2], found[3])


def stop(lab: Lab) -> int:
    lab.process.send_signal(signal.SIGINT)
    try:
        code = lab.process.wait(20)
    except subprocess.TimeoutExpired:
        lab.process.kill()
        lab.process.wait()
        raise
    assert lab.process.stdout is not None
    lab.process.stdout.close()
    return code


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    running = start(tmp_path_factory.mktemp("lab"))
    yield running
    stop(running)
