"""Switching rules from outside: their choices, the message about an invalid rule, and their input in the docs."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import steadycast as sc
from steadycast import controller
from steadycast.controllers import registry
from steadycast.core import core
from steadycast.loading import load

from tests.api.conftest import ROOT
from tests.conftest import Say

FILE = ROOT / "examples" / "switching.py"
PAGE = ROOT / "docs" / "switching-rule.md"
RUNGS = """
name = "rungs"
duration = "{seconds}s"
[topology]
shape = "dumbbell"
bottleneck = {{ rate = "{mbps:.3f}Mbps", delay = "{delay}ms", queue = {{ limit = "200ms" }} }}
access = {{ rate = "1Gbps", delay = "0ms" }}
[[event]]
at = "{at}s"
set = {{ link = "bottleneck", rate = "{then:.3f}Mbps" }}
[[flow]]
name = "video"
kind = "video"
controller = "{controller}"
media = "table2"
vbr = "rungs"
rungs = 8
switching = "{switching}"
"""


def ladder(chance: random.Random) -> dict[str, object]:
    """Return frame sizes of a film of 20 s whose groups differ, with 4 Mb/s to 130 kb/s."""
    factors = np.repeat([chance.uniform(0.6, 1.4) for _ in range(42)], 12)
    n = np.arange(len(factors))
    bytes_ = np.where(n % 12 == 0, 121_500.0, 32_400.0) * factors
    return {
        "fps": (25, 1),
        "gop": 12,
        "doubling": None,
        "qs": bytes(range(2, 61)),
        "kinds": np.where(n % 12 == 0, 0, 1).astype(np.uint8),
        "display": n.astype(np.uint32),
        "sizes": np.array([bytes_ / q for q in range(2, 61)]).astype(np.uint32),
    }


def drawn(seed: int, name: str, switching: str, seconds: int = 20) -> str:
    """Return a scenario whose network is drawn, and changes in the middle."""
    chance = random.Random(seed)
    mbps, then = chance.uniform(0.5, 5), chance.uniform(0.5, 5)
    values = {"delay": chance.randint(5, 80), "at": seconds // 2, "seconds": seconds, "controller": name}
    return RUNGS.format(mbps=mbps, then=then, switching=switching, **values)


def record(seed: int, name: str, switching: str, seconds: int = 20) -> tuple[str, set[float]]:
    """Run a drawn scenario. Return the hash of its record, and the quantizers of its frames."""
    loaded = load(Path("rungs.toml"), [f"seed={seed}"], drawn(seed, name, switching, seconds))
    [video] = loaded.videos()
    guests = {}
    if (rule := video["switching"]) is not None:
        guests["flow.video.switching"] = controller.found_switching(rule, FILE.parent)
    simulation = core.Simulation(loaded, {"video": ladder(random.Random(seed))}, guests)
    simulation.run(None)
    quantizers = next(content for name, _, content in simulation.table("frames") if name == "q")
    return simulation.figures(True)[0], set(np.frombuffer(quantizers, np.int64).tolist())


@pytest.mark.parametrize("name", [entry.name for entry in registry()])
def test_the_built_in_rule_gives_the_same_record_as_a_class_and_as_a_program(name: str) -> None:
    seed = 1 + [entry.name for entry in registry()].index(name)
    built_in = record(seed, name, "hysteresis")
    assert record(seed, name, "switching.py:Hysteresis") == built_in
    assert record(seed, name, f"exec:{sys.executable} switching.py") == built_in


def test_the_built_in_rule_gives_the_same_record_as_a_class_in_longer_runs() -> None:
    switched = 0
    for seed in range(100, 110):
        built_in = record(seed, "steady", "hysteresis", 120)
        assert record(seed, "steady", "switching.py:Hysteresis", 120) == built_in
        switched += len(built_in[1]) > 1
    assert switched >= 8


def test_a_rule_decides(tmp_path: Path) -> None:
    (tmp_path / "coarse.py").write_text(
        "class Coarse:\n    def choose(self, stream):\n        return len(stream.recent_bps) - 1\n"
    )
    path = tmp_path / "rungs.toml"
    path.write_text(drawn(1, "steady", "coarse.py:Coarse"))
    coarse = sc.run(path)
    built_in = sc.run(path, set={"flow.video.switching": "hysteresis"})
    fewest, more = (set(run.frames.to_polars()["q"]) for run in (coarse, built_in))
    assert len(fewest) == 1
    assert len(more) > 1
    assert max(more) <= max(fewest)


def program(body: str) -> str:
    return f"import sys\nfor n, line in enumerate(sys.stdin):\n{body}"


ANSWER = "    print('{\"v\":1}' if n == 0 else %s, flush=True)\n"
WRONG = {
    "no class": ("class Other: pass", "rule.py:Rule", 'no class "Rule"', "there are: Other"),
    "no method": ("class Rule: pass", "rule.py:Rule", 'no method "choose"', "add"),
    "a similar name": (
        "class Rule:\n    def chose(self, stream): ...",
        "rule.py:Rule",
        'no method "choose", but "chose"',
        'call it "choose"',
    ),
    "arguments": (
        "class Rule:\n    def choose(self): ...",
        "rule.py:Rule",
        "too many positional arguments",
        "choose(self, stream)",
    ),
    "raises": (
        "class Rule:\n    def choose(self, stream): return 1 // 0",
        "rule.py:Rule",
        "rule.py:2: Rule.choose at 0.000 s of the stream: ZeroDivisionError",
        "mend the method; it is called as choose(self, stream) -> int",
    ),
    "nothing": (
        "class Rule:\n    def choose(self, stream): ...",
        "rule.py:Rule",
        "Rule.choose at 0.000 s of the stream returned None",
        "return the number of a rung: 0, the finest, to 7",
    ),
    "unknown rung": (
        "class Rule:\n    def choose(self, stream): return 7 + (stream.rung is not None)",
        "rule.py:Rule",
        "s of the stream returned 8",
        "0, the finest, to 7",
    ),
    "no number": (
        "class Rule:\n    def choose(self, stream): return float('nan')",
        "rule.py:Rule",
        "returned nan",
        "0, the finest, to 7",
    ),
    "fails at its start": (
        "class Rule:\n    def __init__(self): raise ValueError('no')\n    def choose(self, stream): ...",
        "rule.py:Rule",
        "Rule.__init__ at its flow's start: ValueError: no",
        "__init__(self)",
    ),
    "no program": (None, "exec:./none", 'no such file: "./none"', "give its path"),
    "no hello": ("print('hi', flush=True); input()", "", "with hi: that is no JSON", "one JSON object"),
    "no rung": (
        program(ANSWER % "'{\"rate\":5}'"),
        "",
        'at 0.000 s of the stream it answered "rungs" with {"rate":5}: it has no "rung"',
        'answer {"rung":N}',
    ),
    "a rung of a program": (
        program(ANSWER % "'{\"rung\":8}'"),
        "",
        'its "rung" is 8; the rungs are 0 to 7',
        "0 is the finest",
    ),
    "NaN": (program(ANSWER % "'{\"rung\":NaN}'"), "", "that is no JSON", "one JSON object"),
    "an end": (
        program(ANSWER % "'{\"rung\":1}'" + "    if n == 3: sys.exit('too much')\n"),
        "",
        'when "rungs" was to be answered, it had ended with code 1, its last words were: too much',
        'let it run until "end"',
    ),
    "silence": (
        program("    print('{\"v\":1}\\n' if n == 0 else '', end='', flush=True)\n"),
        "",
        'it did not answer "rungs" in 5 s',
        "flush after each line",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_rule_stops_the_run_with_one_line_and_no_folder(kind: str, tmp_path: Path, say: Say) -> None:
    text, name, problem, remedy = WRONG[kind]
    if text is not None:
        (tmp_path / "rule.py").write_text(text)
    name = name or f"exec:{sys.executable} rule.py"
    (tmp_path / "rungs.toml").write_text(drawn(1, "steady", name))
    said = say("run", "rungs.toml", "-o", "out", code=2)
    assert said.err.count("\n") == 1
    assert problem in said.err
    assert remedy in said.err
    assert name in said.err or "rule.py" in said.err
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.part").exists()


@pytest.mark.parametrize(
    ("old", "new", "problem", "remedy"),
    [
        (
            '"hysteresis"',
            '"steady"',
            'no switching rule "steady"',
            '"hysteresis", or "file.py:Class" or "exec:',
        ),
        ('"rungs"\nrungs = 8', '"bucket"', 'switching: not a key of vbr = "bucket"', "it has: bucket"),
        ('"hysteresis"', "5", "switching: 5 is not a text", "put it in quotation marks"),
    ],
)
def test_a_name_that_is_no_rule_is_refused_at_its_line(
    old: str, new: str, problem: str, remedy: str, tmp_path: Path, say: Say
) -> None:
    path = tmp_path / "rungs.toml"
    path.write_text(drawn(1, "steady", "hysteresis").replace(old, new))
    line = (
        path.read_text()
        .splitlines()
        .index(next(t for t in path.read_text().splitlines() if "switching" in t))
    )
    said = say("check", "rungs.toml", code=2)
    assert f"rungs.toml:{line + 1}" in said.err
    assert problem in said.err
    assert remedy in said.err


def test_what_a_rule_writes_to_stderr_stands_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "switching.py").write_text(f'import sys\nprint("here", file=sys.stderr)\n{FILE.read_text()}')
    path = tmp_path / "rungs.toml"
    path.write_text(drawn(1, "steady", f"exec:{sys.executable} switching.py"))
    sc.run(path, out=tmp_path / "out")
    assert (tmp_path / "out" / "switching-video.log").read_text() == "here\n"


def test_the_page_has_each_value_of_the_input() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| .+ \|$", PAGE.read_text(), re.MULTILINE)
    # The keys of messages are those of crates/external/tests/all/switching.rs.
    assert [key for key, _ in rows] == ["t", "rung", "recent", "worst", "rate", "backlog", "group"]
    attributes = {name for name in vars(sc.SwitchingInput) if not name.startswith("_")}
    assert attributes == {attribute for _, attribute in rows}
