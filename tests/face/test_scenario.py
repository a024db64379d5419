from __future__ import annotations

import ast
import json
import math
import pickle
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from steadycast import scenario as scenarios
from steadycast.errors import UserError
from steadycast.loading import load
from steadycast.scenario import (
    Encode,
    Event,
    Expect,
    Flow,
    Link,
    Loss,
    Period,
    Pipe,
    Queue,
    Record,
    Scenario,
    Topology,
    Uniform,
)

from tests.conftest import ran


def test_the_stub_has_the_keys_types_and_descriptions_of_the_schema() -> None:
    script = Path(__file__).parents[2] / "scripts" / "python_schema.py"
    done = ran([sys.executable, str(script), "--check"])
    assert done.returncode == 0, f"make python-schema makes them again\n{done.stderr}"


def test_each_class_of_the_stub_is_there_and_no_other() -> None:
    stub = ast.parse(Path(scenarios.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    there = {k for k, v in vars(scenarios).items() if isinstance(v, type) and issubclass(v, scenarios.Part)}
    assert {each.name for each in stub.body if isinstance(each, ast.ClassDef)} == there


def test_a_scenario_is_equal_to_its_copy_and_a_key_that_is_none_is_named_with_a_remedy() -> None:
    flow = Flow(name="tcp", kind="tcp", from_="s")
    made = Scenario(name="x", duration="3s", flows=[flow])
    assert pickle.loads(pickle.dumps(made)) == made != Scenario(name="x", duration="3s")
    assert (made.flows[0].kind, made.seed) == ("tcp", None)
    assert repr(flow) == "Flow(name='tcp', kind='tcp', from_='s')"
    with pytest.raises(UserError, match=r'flow.tcp.congetion: no such key; did you mean "congestion"'):
        load(Scenario(name="x", duration="3s", flows=[Flow(name="tcp", kind="tcp", congetion="reno")]))  # type: ignore[call-arg]


NUMBERS: list[Callable[[float], Any]] = [float, np.float32, np.float64]


@given(st.floats(), st.sampled_from(NUMBERS))
def test_a_number_of_any_class_is_a_scenario_s_number_or_is_refused_with_its_place(
    value: float, kind: Callable[[float], Any]
) -> None:
    with np.errstate(over="ignore"):
        number = kind(value)
    pipe = Pipe(rate="1Mbps", loss=number)
    event = Event(at="1s", extra={"shares": [0.5, number]})
    for place, scenario in (
        ("topology.bottleneck.loss", Scenario(name="x", duration="3s", topology=Topology(bottleneck=pipe))),
        ("event[1].shares[2]", Scenario(name="x", duration="3s", events=[event])),
    ):
        if math.isfinite(number):
            assert json.dumps(float(number)) in scenario.to_json()
            continue
        for write in (scenario.to_json, scenario.to_toml):
            with pytest.raises(UserError) as caught:
                write()
            assert caught.value.place == f"scenario: {place}"


def test_a_value_that_no_scenario_can_have_is_refused_with_the_name_of_its_table() -> None:
    scenario = Scenario(name="x", duration="3s", flows=[Flow(name="tcp", kind="tcp", rate=object())])  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"scenario: flow\.tcp\.rate: a value of the type object has no form"):
        load(scenario)


def test_a_scenario_from_python_reads_as_the_file_that_one_would_write() -> None:
    scenario = Scenario(
        name="dumbbell",
        duration="80s",
        seed=3,
        topology=Topology(
            shape="dumbbell",
            bottleneck=Pipe(rate="4Mbps", delay="10ms", queue=Queue(kind="droptail", limit="50p")),
            access=Pipe(rate="10Mbps", delay="5ms"),
        ),
        links=[
            Link(
                name="air",
                between=("bs", "r[1-3]"),
                loss=Loss(kind="bernoulli", p=0.02),
                back=Pipe(rate="1Mbps"),
            )
        ],
        flows=[
            Flow(
                name="video",
                kind="video",
                controller="asmp",
                receivers=45,
                params={"asmp": {"gamma_congested": 0.2}},
                clip=['a "b".mkv', "c.mkv"],
                encode=Encode(size="clip"),
                extra={"cap": "2Mbps"},
            ),
            Flow(name="tcp", kind="tcp", start=Uniform(uniform=("0s", "1s")), from_="s", to=["r1"]),
            Flow(name="noise", kind="onoff", rate="400kbps", on=Period(dist="pareto", mean="5s", shape=1.5)),
        ],
        events=[Event(at="50s", set={"link": "bottleneck", "rate": "1Mbps"})],
        record=Record(interval="1s", packets=["video"]),
        expect=[Expect(that="flows.tcp.share_of_fair", min=0.8)],
    )
    read = tomllib.loads(scenario.to_toml())
    assert read == json.loads(scenario.to_json())
    assert read["topology"]["bottleneck"] == {
        "rate": "4Mbps",
        "delay": "10ms",
        "queue": {"kind": "droptail", "limit": "50p"},
    }
    assert set(read["topology"]) == {"shape", "bottleneck", "access"}  # empty keys are not written
    assert read["link"][0]["between"] == ["bs", "r[1-3]"]
    video, tcp, noise = read["flow"]
    assert video["params"]["asmp"]["gamma_congested"] == 0.2
    assert video["clip"] == ['a "b".mkv', "c.mkv"]
    assert video["cap"] == "2Mbps"
    assert "start" not in video
    assert tcp["from"] == "s"
    assert tcp["start"] == {"uniform": ["0s", "1s"]}
    assert noise["on"]["shape"] == 1.5
    assert read["event"] == [{"at": "50s", "set": {"link": "bottleneck", "rate": "1Mbps"}}]
    assert read["format"] == 1
