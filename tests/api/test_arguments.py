from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import steadycast as sc

from tests.conftest import Say
from tests.live.conftest import ports

SCENARIO = """
duration = "0.1s"
[topology]
shape = "dumbbell"
bottleneck = { rate = "1Mbps", delay = "10ms" }
[[flow]]
name = "video"
kind = "video"
controller = "tfrc"
media = "greedy"
"""
NONSENSE = object()
ANYTHING: tuple[object, ...] = (NONSENSE, None, 2.5, math.nan, -7, 2**70, b"x", "none-such", "", "a\0b", (1, 2, 3), {1},
            {3: 4}, ["x"], [NONSENSE], {"a": NONSENSE}, {"a": math.nan}, "\ud800", "\udcff", ["name=\ud800"],
            {"name": "\udcff"}, ["flow.video.controller=x"], {"flow.none.rate": 1}, {"none": int}, (2, 1), -1.0, "0",
            [-1], [2**70], [])  # fmt: skip
CALLS: dict[Callable[..., Any], Callable[[Path], dict[str, object]]] = {
    sc.run: lambda file: {"scenario": file},
    sc.run_seeds: lambda file: {"scenario": file, "seeds": [1]},
    sc.sweep: lambda file: {"scenario": file, "jobs": 1},
    sc.compare: lambda file: {"runs": [sc.run(file), sc.run(file)]},
    sc.Sender: lambda _: {"to": f"127.0.0.1:{ports(1)[0]}", "size": (96, 80)},
    sc.Receiver: lambda _: {"what": f"127.0.0.1:{ports(1)[0]}", "codec": "mpeg4"},
}
"""The functions of the package, each with valid arguments."""
IN_REAL_TIME: tuple[Callable[..., Any], ...] = (sc.emulate, sc.agree)


def arguments(*calls: Callable[..., Any]) -> list[tuple[Callable[..., Any], str]]:
    return [
        (call, name) for call in calls for name in inspect.signature(call).parameters if name != "scheduler"
    ]


@pytest.mark.parametrize(("call", "name"), arguments(*CALLS, *IN_REAL_TIME))
def test_an_argument_of_no_use_is_named_with_what_would_be_one(
    call: Callable[..., Any], name: str, tmp_path: Path
) -> None:
    given = CALLS.get(call, CALLS[sc.run])(tmp_path / "small.toml") if call is not sc.compare else {}
    with pytest.raises(sc.UserError, match=rf"^{name} .*: it is a object; give \w"):
        call(**{**given, name: NONSENSE})


@pytest.mark.parametrize(("call", "name"), arguments(*CALLS))
def test_whatever_an_argument_is_it_is_taken_or_is_the_users_error(
    call: Callable[..., Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "small.toml"
    file.write_text(SCENARIO)
    given = CALLS[call](file)
    for value in ANYTHING:
        told = ""
        try:
            made = call(**{**given, name: value})
            if isinstance(made, sc.Sender | sc.Receiver):
                made.close()
        except sc.UserError as error:
            told = str(error)
        # The caller has typed no command, so options may only be those of commands that a remedy suggests.
        typed = re.sub(r"`?(steadycast [a-z]+|openssl)[^;,`]*`?", "", told)
        assert not re.search(r"(^|[\s(\"])--?[a-z]", typed), f"{name}={value!a}: {told}"
        told.encode()  # it raises on a character that can't be encoded


class Law:
    """A controller that never answers."""

    def __init__(self, setup: object) -> None: ...


@pytest.mark.parametrize("flow", ["tcp", "noise", "none", "", "*", "video-*", "a.b", "controller"])
def test_a_controller_for_a_flow_that_is_no_video_is_the_caller_s_error(flow: str, tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    more = '[[flow]]\nname = "tcp"\nkind = "tcp"\n[[flow]]\nname = "noise"\nkind = "cbr"\nrate = "10kbps"\n'
    file.write_text(SCENARIO + more)
    for call, more_flows in itertools.product((sc.run, sc.run_seeds), ({}, {"video": Law})):
        seeds = {"seeds": [1]} if call is sc.run_seeds else {}
        with pytest.raises(sc.UserError) as told:
            call(file, controllers={flow: Law, **more_flows}, **seeds)
        assert str(told.value) == f"controllers[{flow!r}]: there is no such video flow; there are: video"


def test_a_wrong_change_is_named_as_python_and_as_the_command_line_write_it(tmp_path: Path, say: Say) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SCENARIO)
    for call, sets in itertools.product((sc.run, sc.sweep), ({"flow.video.rat": 1}, ["flow.video.rat=1"])):
        with pytest.raises(sc.UserError, match=r"^set: flow\.video\.rat: no such key"):
            call(file, set=sets)
    assert "--set: flow.video.rat: no such key" in say("run", file, "--set", "flow.video.rat=1", code=2).err


def test_a_remedy_with_a_change_is_written_as_an_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    network = 'topology.shape = "dumbbell"\ntopology.bottleneck.rate = "2Mbps"\n'
    Path("lte.toml").write_text(f'about = "a"\nsource = "b"\nlicence = "c"\nkind = "synthetic"\n{network}')
    with pytest.raises(sc.UserError) as told:
        sc.run("lte.toml")
    assert told.value.remedy == 'write home set={"network": "lte.toml"} in its place'
    with pytest.raises(sc.UserError, match=r"give seeds=range\("):
        sc.sweep("home", {"seed": [1, 2]}, out=tmp_path / "sweep")


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("can't start new thread"),
        BlockingIOError(11, "Resource temporarily unavailable"),
        # A panic of polars is no `Exception`.
        BaseException('failed to spawn thread: Os { code: 11, message: "Resource temporarily unavailable" }'),
        MemoryError(),
    ],
)
def test_a_machine_without_threads_or_memory_is_a_clear_error(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, say: Say
) -> None:
    def stage(*_: object, **__: object) -> None:
        raise error

    # `steadycast.run` is the function, not its module.
    monkeypatch.setattr(import_module("steadycast.run"), "stage", stage)
    file = tmp_path / "small.toml"
    file.write_text(SCENARIO)
    name = "memory" if isinstance(error, MemoryError) else "threads and processes"
    with pytest.raises(sc.MissingError, match=f"^{name}: .*; end other programs, .*ulimit"):
        sc.run(file)
    told = say("run", file, "--json", code=sc.MissingError.code)
    assert f"steadycast: {name}: " in told.err
    assert "Traceback" not in told.err
