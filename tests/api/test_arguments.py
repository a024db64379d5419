from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import steadycast as sc

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
ANYTHING = (NONSENSE, None, 2.5, math.nan, -7, 2**70, b"x", "none-such", "", "a\0b", (1, 2, 3), {1}, {3: 4}, ["x"],
            [NONSENSE], {"a": NONSENSE}, {"a": math.nan})  # fmt: skip
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
        with suppress(sc.UserError):
            made = call(**{**given, name: value})
            if isinstance(made, sc.Sender | sc.Receiver):
                made.close()
