"""The environment for learning: Gymnasium's check, the same bytes for the same seed, and policies as controllers."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import steadycast as sc
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from steadycast import gym
from steadycast.errors import UserError

TRAIN = Path(__file__).parent.parent / "examples" / "gym" / "train.py"
TCP_ALONE: dict[str, Any] = {
    "name": "alone",
    "duration": "2s",
    "topology": {"shape": "dumbbell", "bottleneck": {"rate": "1Mbps", "delay": "10ms"}},
    "flows": [sc.Flow(name="tcp", kind="tcp")],
}
LOSSY = {"duration": "6s", "topology.bottleneck.loss": {"kind": "bernoulli", "p": 0.05}}


def episode(env: gym.RateEnv, actions: list[float], **reset: Any) -> list[tuple[list[float], float]]:
    """Return the observations and rewards of an episode with repeated actions."""
    seen, _ = env.reset(**reset)
    steps = [(seen.tolist(), 0.0)]
    over = False
    while not over:
        action = actions[(len(steps) - 1) % len(actions)]
        seen, reward, ended, over, _ = env.step(np.array([action], np.float32))
        assert not ended
        assert env.observation_space.contains(seen)
        steps.append((seen.tolist(), reward))
    return steps


@pytest.mark.filterwarnings("ignore:.*render modes.*")
def test_gymnasium_finds_nothing_wrong() -> None:
    check_env(gymnasium.make("steadycast/Rate-v0", set={"duration": "3s"}).unwrapped)


@settings(max_examples=8)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=9), st.integers(0, 2**31 - 1))
def test_the_same_seed_and_actions_give_the_same_episode(actions: list[float], seed: int) -> None:
    env = gym.RateEnv(set=LOSSY)
    first = episode(env, actions, seed=seed)
    assert episode(env, actions, seed=seed) == first
    assert episode(gym.RateEnv(set=LOSSY), actions, seed=seed) == first
    assert len(first) == 60  # one step of 0.1 s passes before the flow has started


def test_another_seed_is_another_run() -> None:
    env = gym.RateEnv(set=LOSSY)
    assert episode(env, [0.0], seed=1) != episode(env, [0.0], seed=2)


@pytest.mark.parametrize(("action", "rate_bps"), [(-1.0, 100e3), (0.0, 1e6), (0.2, 1.585e6)])
def test_the_action_is_the_rate_on_a_scale_of_logarithms(action: float, rate_bps: float) -> None:
    env = gym.RateEnv(set={"duration": "12s", "warmup": "2s"})
    episode(env, [action], seed=3)
    (flow,) = env.finish().summary["flows"]
    assert flow["throughput_bps"] == pytest.approx(rate_bps, rel=0.03)


def test_what_is_seen_and_paid_is_what_happens() -> None:
    env = gym.RateEnv(set={"duration": "12s"})
    (*_, (slow, low)) = episode(env, [0.0], seed=1)
    (*_, (fast, high)) = episode(env, [1.0], seed=1)
    names = [measure.name for measure in gym.OBSERVATION]
    below, above = dict(zip(names, slow, strict=True)), dict(zip(names, fast, strict=True))
    assert below["loss"] == 0
    assert below["received"] == pytest.approx(below["rate"], abs=0.02)
    # 2 of 10 Mb/s arrive, and the queue holds 200 ms.
    assert above["loss"] == pytest.approx(0.8, abs=0.03)
    assert above["queueing"] == pytest.approx(2.0, abs=0.1)
    assert high < 0 < low
    assert low == pytest.approx(below["received"] - 0.5 * below["queueing"] / 2, abs=1e-6)


def test_an_episode_draws_its_network_by_its_seed() -> None:
    env = gym.RateEnv(networks=["cable-5", "3g-fast"], set={"duration": "2s"})
    drawn = [env.reset(seed=seed)[1]["network"] for seed in range(12)]
    assert set(drawn) == {"cable-5", "3g-fast"}
    assert drawn == [env.reset(seed=seed)[1]["network"] for seed in range(12)]
    assert env.reset(seed=1, options={"network": "wifi-bad"})[1]["network"] == "wifi-bad"


def test_several_run_side_by_side() -> None:
    envs = gymnasium.make_vec(
        "steadycast/Rate-v0", num_envs=3, vectorization_mode="sync", set={"duration": "2s"}
    )
    seen, _ = envs.reset(seed=5)
    assert seen.shape == (3, len(gym.OBSERVATION))
    seen, rewards, *_ = envs.step(np.zeros((3, 1), np.float32))
    assert rewards.shape == (3,)
    envs.close()


def test_what_is_wrong_is_told_when_the_environment_is_made() -> None:
    with pytest.raises(UserError, match=r"^flow='vidoe': there is no such video flow; there are: video$"):
        gym.RateEnv(flow="vidoe")
    with pytest.raises(UserError, match="it has no video flow"):
        gym.RateEnv(sc.Scenario(**TCP_ALONE))
    with pytest.raises(UserError, match="3g-fats"):
        gym.RateEnv(networks=["3g-fats"])
    with pytest.raises(UserError, match=r"call reset\(\) first"):
        gym.RateEnv().step(np.zeros(1, np.float32))


def test_an_action_that_is_no_number_is_refused_and_changes_nothing() -> None:
    env = gym.RateEnv(set={"duration": "2s"})
    env.reset(seed=1)
    (_, _, _, _, before) = env.step(np.array([0.5], np.float32))
    with pytest.raises(UserError, match=r"^action: it is nan"):
        env.step(np.array([np.nan], np.float32))
    (_, _, _, _, after) = env.step(np.array([0.5], np.float32))
    assert after["at_s"] == pytest.approx(before["at_s"] + gym.STEP_S)
    assert after["rate_bps"] == before["rate_bps"]


def test_a_learned_policy_acts_as_it_was_learned_and_steers_a_run(tmp_path: Path) -> None:
    train = runpy.run_path(str(TRAIN))
    weights = np.random.default_rng(1).standard_normal(sum(train["SIZES"]))
    model = tmp_path / "mine.onnx"
    train["save"](weights, model)
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    for seen in np.random.default_rng(2).uniform(gym.LOW, gym.HIGH, (50, len(gym.OBSERVATION))):
        told = session.run(None, {"seen": seen.astype(np.float32)[None]})[0]
        assert told.shape == (1, 1)
        assert told[0, 0] == pytest.approx(train["act"](weights, seen), abs=1e-4)

    (tmp_path / "mine.py").write_text(f"from steadycast import gym\nMine = gym.policy({str(model)!r})\n")
    changes = {"duration": "10s", "flow.video.controller": f"{tmp_path}/mine.py:Mine"}
    one, two = (sc.run(gym.greedy(), set=changes, quality=False) for _ in range(2))
    assert one.summary["record_sha256"] == two.summary["record_sha256"]
    assert one.decisions.frame["rule"].str.contains("policy mine.onnx").any()


def test_a_file_that_is_no_such_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.onnx").write_bytes(b"\x08\x01no model")
    with pytest.raises(UserError, match="no ONNX model"):
        gym.policy(tmp_path / "no.onnx")
    with pytest.raises(UserError, match="no ONNX model"):
        gym.policy(tmp_path / "none.onnx")


def test_the_page_has_the_observation_as_it_is() -> None:
    page = (TRAIN.parents[2] / "docs" / "learning.md").read_text(encoding="utf-8")
    rows = [
        f"| {n} | `{each.name}` | {each.about} | {each.low} | {each.high} |"
        for n, each in enumerate(gym.OBSERVATION)
    ]
    assert [row for row in rows if row not in page] == []
