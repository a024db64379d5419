"""Runs a published bandwidth estimator as a controller: the baseline of ACM MMSys 2024's challenge, by Microsoft.

The input of the model (MIT licence) is 15 measures over each of the last five intervals of 60 ms and of 600 ms. Its
output is a rate in bit/s. Download the model, and set its path in the environment:

    git clone https://github.com/microsoft/RL4BandwidthEstimationChallenge
    export ESTIMATOR=RL4BandwidthEstimationChallenge/onnx_models/Offline_RL_baseline_bandwidth_estimator_model.onnx
    steadycast run examples/aimd.toml --set flow.video.controller=examples/gym/teams.py:Teams

The measures are described at
https://www.microsoft.com/en-us/research/academic-program/bandwidth-estimation-challenge/data/. All packets count as
video, because the flow has no audio. The controller needs the package onnxruntime.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from functools import cache

import numpy as np

SHORT_S, LONG_S = 0.06, 0.6
KEPT = 5
BASE_MS = 200.0


@cache
def session():
    """Return the model, which is loaded once."""
    import onnxruntime

    one = onnxruntime.SessionOptions()
    one.intra_op_num_threads = one.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(os.environ["ESTIMATOR"], one, providers=["CPUExecutionProvider"])


def measures(packets, least_ms, length_s):
    """Return the 15 measures of an interval; a packet is a tuple (arrival in s, number, bytes, delay in ms)."""
    if not packets:
        return [0.0] * 5 + [least_ms] + [0.0] * 9
    at, number, size, delay = (np.array(column) for column in zip(*packets, strict=True))
    gaps = 1000 * np.diff(at) if len(at) > 1 else np.zeros(1)
    expected = int(number.max() - number.min()) + 1
    missing = np.diff(np.sort(number)) - 1
    holes = missing[missing > 0]
    return [
        8 * size.sum() / length_s,
        len(at),
        size.sum(),
        delay.mean() - least_ms,
        delay.mean() - BASE_MS,
        least_ms,
        delay.mean() / max(delay.min(), 1e-3),
        delay.mean() - delay.min(),
        gaps.mean(),
        gaps.std(),
        max(expected - len(at), 0) / expected,
        holes.mean() if holes.size else 0.0,
        1.0,
        0.0,
        0.0,
    ]


class Teams:
    """A controller whose rate is the estimate of the model, which runs at the receiver."""

    report_every_s = SHORT_S

    def __init__(self, setup):
        # Below 0.6 Mb/s the model's estimate is lower than the received rate, so the rate would never rise.
        self.rate = max(setup.floor_bps, 1e6)

    def on_report(self, report):
        if report.body:
            (self.rate,) = struct.unpack("<d", report.body)

    def rate_bps(self):
        return self.rate

    def why(self):
        return "the receiver's estimate"

    class Receiver:
        def __init__(self, setup):
            self.packets = deque()  # those of the last 3 s
            self.full_s = None  # the time at which all intervals are full for the first time
            self.least_ms = float("inf")

        def on_arrival(self, packet):
            delay_ms = 1000 * (packet.at_s - packet.sent_s)
            self.least_ms = min(self.least_ms, delay_ms)
            self.packets.append((packet.at_s, packet.seq, packet.size_bytes, delay_ms))

        def report(self, slot):
            now = slot.at_s
            while self.packets and self.packets[0][0] <= now - KEPT * LONG_S:
                self.packets.popleft()
            if self.packets and self.full_s is None:
                self.full_s = self.packets[0][0] + KEPT * LONG_S
            if self.full_s is None or now < self.full_s:
                return b""
            seen = np.array(
                [
                    measures(
                        [p for p in self.packets if now - (n + 1) * each < p[0] <= now - n * each],
                        self.least_ms,
                        each,
                    )
                    for each in (SHORT_S, LONG_S)
                    for n in range(KEPT)
                ],
                np.float32,
            )
            none = np.zeros((1, 1), np.float32)  # the model has no recurrent state
            given = {"obs": seen.T.reshape(1, 1, -1), "hidden_states": none, "cell_states": none}
            return struct.pack("<d", float(session().run(None, given)[0][0, 0, 0]))
