"""An environment for learning a rate controller: the simulator with Gymnasium's interface.

One step is 0.1 s of a run. The action is the rate of a video flow, and the observation comes from its receiver's
reports. A learned policy works in simulation, emulation and live sessions: see `policy`. This module needs the
extra ``gym``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadycast.core import core
from steadycast.errors import MissingError, UserError
from steadycast.loading import Sets, Source, changes, folder_of, load, place_of
from steadycast.progress import Silent
from steadycast.result import Run
from steadycast.run_pipeline import Plan, Ready, drive, record_of
from steadycast.scenario import Flow, Pipe, Queue, Scenario, Topology

try:
    import gymnasium
except ImportError as missing:
    raise MissingError.package("steadycast.gym", str(missing.name), "steadycast[gym]") from None

STEP_S = 0.1
"""The length of a step, in seconds. It is also the interval of the receiver's reports."""

Vector = NDArray[np.float32]


@dataclass(frozen=True)
class Measure:
    """One number of the observation, with its bounds."""

    name: str
    about: str
    low: float
    high: float


OBSERVATION = (
    Measure("rate", "the requested rate: 0 at the floor, 1 at the cap, logarithmic", 0, 1),
    Measure("received", "the rate that arrived, on the same scale; -1 if nothing arrived", -1, 2),
    Measure("loss", "the fraction of packets that was lost", 0, 1),
    Measure(
        "queueing", "delay of the newest packet minus that of the fastest one, in units of 100 ms", 0, 20
    ),
    Measure("rise", "the change of `queueing` since the previous step, in units of 100 ms", -20, 20),
    Measure("jitter", "interarrival jitter (RFC 3550, A.8), in units of 10 ms", 0, 20),
    Measure("rtt", "the round-trip time, in units of 100 ms", 0, 20),
    Measure("silent", "steps since the last report, up to 10", 0, 10),
)
"""The numbers of the observation, in the order of its array. Each number is clipped to its bounds."""


@dataclass
class Reward:
    """The reward of a step: ``received - delay * min(queueing, 4) / 2 - loss * loss_frac``.

    ``delay`` and ``loss`` are weights. ``queueing`` is in units of 100 ms, so it counts up to 400 ms.
    """

    delay: float = 0.5
    loss: float = 2.0

    def __call__(self, seen: Mapping[str, float]) -> float:
        """Return the reward for an observation. ``seen`` has the names of `OBSERVATION` as keys."""
        return seen["received"] - self.delay * min(seen["queueing"], 4.0) / 2 - self.loss * seen["loss"]


class Observing:
    """The sender part of a controller. It converts reports to observations, and actions to rates."""

    report_every_s = STEP_S

    def __init__(self, setup: Any) -> None:
        self._floor: float = max(setup.floor_bps, 1_000.0)
        self._octaves: float = math.log2(max(setup.cap_bps / self._floor, 1.001))
        self._rate: float = self._floor
        self._report: Any = None
        self._queueing = self._rise = 0.0
        self._silent = 0

    def on_report(self, report: Any) -> None:
        """Store the receiver's report."""
        self._report = report
        self._silent = -1

    def rate_bps(self) -> float:
        """Return the rate in bit/s, including IP headers."""
        return self._rate

    def act(self, action: float) -> None:
        """Set the rate from an action. -1 is the lowest rate, 1 the highest rate, and 0 their geometric mean.

        Raises:
            UserError: the action is not a number, as after a training that has diverged.

        """
        if math.isnan(action):
            raise UserError(
                "action",
                "it is nan, which is not a rate",
                "give a number from -1 to 1; a policy that has diverged returns nan",
            )
        self._rate = self._floor * 2.0 ** (self._octaves * (min(max(float(action), -1.0), 1.0) + 1) / 2)

    def scaled(self, rate_bps: float | None) -> float:
        """Scale a rate logarithmically. 0 is the lowest rate, 1 is the highest rate, and -1 is an unknown rate."""
        return math.log2(rate_bps / self._floor) / self._octaves if rate_bps else -1.0

    def observe(self) -> Vector:
        """Return the observation of the last step as float32, with one value for each entry of `OBSERVATION`."""
        self._silent += 1
        report = self._report
        if report is None:
            return np.array([self.scaled(self._rate), -1, 0, 0, 0, 0, 0, min(self._silent, 10)], np.float32)
        if self._silent == 0 and report.queueing_s is not None:
            self._rise, self._queueing = 10 * report.queueing_s - self._queueing, 10 * report.queueing_s
        seen = (
            self.scaled(self._rate),
            self.scaled(report.received_bps),
            report.loss_frac,
            self._queueing,
            self._rise,
            100 * report.jitter_s,
            10 * (report.rtt_s or 0.0),
            self._silent,
        )
        return np.clip(np.array(seen, np.float32), LOW, HIGH)


LOW = np.array([measure.low for measure in OBSERVATION], np.float32)
HIGH = np.array([measure.high for measure in OBSERVATION], np.float32)


def greedy() -> Scenario:
    """Return the default scenario. A video sends at the full allowed rate for 30 s on a link of 2 Mb/s."""
    queue = Queue(kind="droptail", limit="200ms")
    link = Pipe(rate="2Mbps", delay="20ms", queue=queue)
    video = Flow(
        name="video",
        kind="video",
        controller="fixed",
        media="greedy",
        playout="none",
        floor="100kbps",
        cap="10Mbps",
    )
    access = Pipe(rate="1Gbps", delay="1ms")
    topology = Topology(shape="dumbbell", bottleneck=link, access=access)
    return Scenario(name="greedy", duration="30s", topology=topology, flows=[video])


class RateEnv(gymnasium.Env[Vector, Vector]):
    """An environment in which an agent sets the rate of one video flow of a scenario, step by step.

    The action is one float32 in [-1, 1] (`Observing.act`). The observation has ``len(OBSERVATION)`` numbers of type
    float32. An episode is a run of the scenario. It is truncated at the run's end, and never terminated before.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def __init__(
        self,
        scenario: Source | None = None,
        *,
        networks: Sequence[str] = (),
        flow: str | None = None,
        set: Sets = (),
        reward: Callable[[Mapping[str, float]], float] | None = None,
    ) -> None:
        """Make an environment.

        Args:
            scenario: a file, or a `steadycast.scenario.Scenario`. By default, it is `greedy`.
            networks: names of networks. Each episode draws one of them by its seed. By default, the scenario's own
                network is used.
            flow: the name of the video flow that the agent controls. By default, it is the first video flow.
            set: changes to the scenario, as for `steadycast.run`.
            reward: function that returns the reward for an observation, which has the names of `OBSERVATION` as keys.
                By default, it is `Reward`.

        Raises:
            UserError: the scenario has no such video flow.

        """
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.observation_space = gymnasium.spaces.Box(LOW, HIGH, dtype=np.float32)
        self._source = greedy() if scenario is None else scenario
        self._networks, self._set, self._flow = tuple(networks), set, flow
        self._reward = reward or Reward()
        self._ready: Ready | None = None
        self._half: Observing | None = None
        self._steps = 0
        self._plan(
            0, self._networks[0] if self._networks else None
        )  # reports errors before the first episode

    def _plan(self, seed: int, network: str | None) -> Plan:
        env = self

        class Steered(Observing):
            """A controller that sends at the rate of the environment's action."""

            def __init__(self, setup: Any) -> None:
                super().__init__(setup)
                env._half = self

            def next_wake_s(self) -> float:
                return env._at_s + 1e-4  # the earliest wake-up that the core accepts

            def on_timer(self, now_s: float) -> None:
                """Do nothing. The timer expires at the start of each step and thereby makes the core read the rate."""

        sets = changes(self._set, seed=seed)
        if network is not None:
            sets.append(f"network={network}")
        loaded = load(self._source, sets)
        videos = [video["flow"] for video in loaded.videos()]
        if not videos:
            raise UserError(place_of(self._source), "it has no video flow", 'add a flow with kind = "video"')
        flow = self._flow or videos[0]
        if flow not in videos:
            raise UserError(
                f"flow={flow!r}", "there is no such video flow", f"there are: {', '.join(videos)}"
            )
        return Plan.of(loaded, place_of(self._source), folder_of(self._source), {flow: Steered})

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
        """Begin a run. Draw its seed and its network from the environment's random numbers."""
        super().reset(seed=seed)
        network = (options or {}).get("network")
        if network is None and self._networks:
            network = self._networks[int(self.np_random.integers(len(self._networks)))]
        drawn = int(self.np_random.integers(1 << 31))
        self._steps, self._half = 0, None
        self._ready = Ready.of(self._plan(drawn, network), Silent())
        half = self._begun(self._ready)
        return half.observe(), {"seed": drawn, "network": network}

    @property
    def _at_s(self) -> float:
        return self._steps * STEP_S

    def _run(self, ready: Ready) -> bool:
        assert isinstance(ready.world, core.Simulation)
        return ready.world.run_to(self._at_s)

    def _begun(self, ready: Ready) -> Observing:
        while self._half is None:
            self._steps += 1
            if self._run(ready):
                raise UserError(
                    "flow", "the flow that is steered never starts", "let it start within the duration"
                )
        return self._half

    def step(self, action: Vector) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Simulate 0.1 s at the rate that the action specifies."""
        if self._ready is None or self._half is None:
            raise UserError("step", "no episode has begun", "call reset() first")
        self._half.act(float(np.asarray(action).flat[0]))
        self._steps += 1
        over = self._run(self._ready)
        seen = self._half.observe()
        by_name = dict(zip((measure.name for measure in OBSERVATION), seen.tolist(), strict=True))
        return (
            seen,
            self._reward(by_name),
            False,
            over,
            {"at_s": self._at_s, "rate_bps": self._half.rate_bps()},
        )

    def finish(self) -> Run:
        """Run the episode to its end with the last action. Return it as `steadycast.run` does, but without pictures."""
        if self._ready is None:
            raise UserError("finish", "no episode has begun", "call reset() first")
        complete, _ = drive(self._ready.world)
        return record_of(self._ready, complete=complete)


def policy(model: Path | str) -> type:
    """Return a controller that applies a learned policy. Pass it to `run` or `emulate` in ``controllers=``.

    The policy is an ONNX model. It maps a float32 tensor [1, len(OBSERVATION)] to a tensor [1, 1], the action. To use
    it in a scenario, write ``Mine = steadycast.gym.policy("mine.onnx")`` to a file, and ``controller = "file.py:Mine"``
    to the scenario.

    Raises:
        UserError: the file does not exist, or the model has another shape.

    """
    import onnxruntime

    one = onnxruntime.SessionOptions()
    one.intra_op_num_threads = one.inter_op_num_threads = (
        1  # reproducible results, and no threads are left behind
    )
    try:
        session = onnxruntime.InferenceSession(str(model), one, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors have no common base class
        raise UserError(
            str(model), f"no ONNX model: {str(error).splitlines()[0]}", "give the file of one"
        ) from None
    given = session.get_inputs()
    if len(given) != 1 or given[0].shape[-1] not in (len(OBSERVATION), None):
        shapes = [each.shape for each in given]
        raise UserError(
            str(model),
            f"its inputs are {shapes}",
            f"let it take one of [1, {len(OBSERVATION)}]: gym.OBSERVATION",
        )
    (name,) = (each.name for each in given)

    class Policy(Observing):
        """A controller that applies the model every 0.1 s."""

        def __init__(self, setup: Any) -> None:
            super().__init__(setup)
            self._next_s = 0.0

        def next_wake_s(self) -> float:
            return self._next_s

        def on_timer(self, now_s: float) -> None:
            self._next_s = now_s + STEP_S
            self.act(session.run(None, {name: self.observe()[None]})[0].flat[0])

        def why(self) -> str:
            return f"policy {Path(model).name}"

    return Policy


gymnasium.register(id="steadycast/Rate-v0", entry_point="steadycast.gym:RateEnv")
