"""Trains a rate controller in minutes, and compares it with others on networks that were not used for training.

    python examples/gym/train.py --out mine.onnx

The policy is a neural network with 8 inputs, 16 tanh units, and one output that changes the rate. It is trained by the
cross-entropy method (Rubinstein 1999): draw weights, keep the best eighth, and draw new weights around these. The
script needs the packages gymnasium, onnxruntime and onnx.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import steadycast as sc
from steadycast import gym

SEEN = ("cable-5", "4g-9", "lte", "wifi-good", "dsl-8", "steps", "clean-20", "loss-1")
HELD_OUT = ("wifi-bad", "3g-fast", "lte-12", "low-and-up", "steps-back", "leo", "4g-unstable", "bloat")
INPUTS, UNITS = len(gym.OBSERVATION), 16
SHAPES = ((UNITS, INPUTS), (UNITS,), (UNITS,), ())
SIZES = [int(np.prod(shape)) for shape in SHAPES]
SPAN = np.maximum(np.abs(gym.LOW), gym.HIGH)
MOST = 0.25  # the largest change of the action in one step


def parts(weights):
    """Return the layers of a policy from the vector of its weights."""
    cut = np.split(weights, np.cumsum(SIZES)[:-1])
    return [each.reshape(shape) for each, shape in zip(cut, SHAPES, strict=True)]


def act(weights, seen):
    """Return the action of a policy: the present action plus a step."""
    inner, bias, outer, last = parts(weights)
    return 2 * seen[0] - 1 + MOST * np.tanh(outer @ np.tanh(inner @ (seen / np.sqrt(SPAN)) + bias) + last)


@cache
def environment():
    """Return the environment of this process."""
    return gym.RateEnv(networks=SEEN, set={"flow.video.floor": "150kbps", "flow.video.cap": "20Mbps"})


def worth(task):
    """Return the mean reward of a policy over one episode per network."""
    weights, seed = task
    env, rewards = environment(), []
    for number, network in enumerate(SEEN):
        seen, _ = env.reset(seed=seed + number, options={"network": network})
        over, got = False, []
        while not over:
            seen, reward, _, over, _ = env.step(np.array([act(weights, seen)], np.float32))
            got.append(reward)
        rewards.append(np.mean(got))
    return float(np.mean(rewards))


def search(rounds, population, processes, seed):
    """Return the mean of the best weights after ``rounds`` rounds."""
    chance = np.random.default_rng(seed)
    mean, deviation = np.zeros(sum(SIZES)), np.full(sum(SIZES), 0.7)
    with ProcessPoolExecutor(processes) as pool:
        for at in range(rounds):
            drawn = mean + deviation * chance.standard_normal((population, mean.size))
            drawn[0] = mean
            worths = np.array(list(pool.map(worth, [(each, 1000 * at) for each in drawn], chunksize=2)))
            best = drawn[np.argsort(worths)[-population // 8 :]]
            mean, deviation = best.mean(0), best.std(0) + 0.3 * 0.93**at
            print(f"{at + 1:3} of {rounds}: best {worths.max():.3f}, mean {worths.mean():.3f}", flush=True)
    return mean


def save(weights, path):
    """Write a policy as an ONNX model of one input [1, 8] and one output [1, 1]."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    inner, bias, outer, last = (np.float32(each) for each in parts(weights))
    fixed = {
        "inner": inner.T / np.sqrt(SPAN)[:, None],
        "bias": bias,
        "outer": outer[:, None],
        "last": last.reshape(1),
        "most": np.float32(MOST),
        "first": np.eye(INPUTS, 1, dtype=np.float32) * 2,
        "one": np.float32(1),
    }
    nodes = [
        helper.make_node("Gemm", ["seen", "inner", "bias"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Gemm", ["b", "outer", "last"], ["c"]),
        helper.make_node("Tanh", ["c"], ["d"]),
        helper.make_node("Mul", ["d", "most"], ["e"]),
        helper.make_node("MatMul", ["seen", "first"], ["f"]),
        helper.make_node("Sub", ["f", "one"], ["g"]),
        helper.make_node("Add", ["g", "e"], ["action"]),
    ]
    values = [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in fixed.items()]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size])
        for name, size in (("seen", INPUTS), ("action", 1))
    ]
    graph = helper.make_graph(nodes, "rate", ends[:1], ends[1:], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())


def compare(policies, networks, seeds):
    """Print, for each controller and network, the rate, the 95th percentile of the delay, and the loss."""
    print(f"{'network':14}" + "".join(f"{name:>26}" for name in policies))
    for network in networks:
        cells = []
        for policy in policies.values():
            runs = [one(policy, network, seed) for seed in seeds]
            rate, delay, loss = np.mean(runs, axis=0)
            cells.append(f"{rate / 1e6:8.2f} Mb/s {delay:4.0f} ms {100 * loss:4.1f} %")
        print(f"{network:14}" + "".join(f"{cell:>26}" for cell in cells), flush=True)


def one(policy, network, seed):
    """Return rate, delay and loss of one run of 60 s."""
    changes = {"network": network, "duration": "60s", "warmup": "5s"}
    changes |= {"flow.video.floor": "150kbps", "flow.video.cap": "20Mbps"}
    classes = {"video": policy} if isinstance(policy, type) else {}
    if not classes:
        changes["flow.video.controller"] = policy
    run = sc.run(gym.greedy(), set=changes, seed=seed, controllers=classes, quality=False)
    (flow,) = run.summary["flows"]
    (receiver,) = flow["receivers"]
    return receiver["throughput_bps"], receiver["delay_ms"]["p95"], receiver["loss_frac"]


def speed():
    """Print the number of steps per second of processor time, with random actions on 2 Mb/s."""
    env, steps = gym.RateEnv(), 0
    env.action_space.seed(1)
    began = time.process_time()
    for seed in range(10):
        env.reset(seed=seed)
        over = False
        while not over:
            *_, over, _ = env.step(env.action_space.sample())
            steps += 1
    print(f"{steps / (time.process_time() - began):.0f} steps per second of processor time")


def main():
    """Train, save and compare a policy."""
    words = argparse.ArgumentParser(description="Learn a rate controller in minutes.")
    words.add_argument("--out", type=Path, default=Path("mine.onnx"))
    words.add_argument("--rounds", type=int, default=20)
    words.add_argument("--population", type=int, default=32)
    words.add_argument("--processes", type=int, default=2)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--compare-only", action="store_true", help="with the model that stands at --out")
    words.add_argument("--speed", action="store_true", help="only count the environment's steps per second")
    given = words.parse_args()
    if given.speed:
        return speed()
    if not given.compare_only:
        began = time.perf_counter()
        save(search(given.rounds, given.population, given.processes, given.seed), given.out)
        print(f"{given.out}: learned in {time.perf_counter() - began:.0f} s")
    return compare(
        {"learned": gym.policy(given.out), "gcc": "gcc", "steady": "steady"}, HELD_OUT, (101, 102, 103)
    )


if __name__ == "__main__":
    main()
