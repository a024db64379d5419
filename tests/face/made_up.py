"""A made-up run folder.

It has plausible numbers in the format of a run (tests/face/test_record.py compares the two), so that reports are
tested without a simulation.
"""

from __future__ import annotations

import math
import random
import statistics
from pathlib import Path
from typing import Any

import polars as pl
from steadycast.folder import Draft, aggregate, judge, write_json

SCENARIO = """\
format = 1
name = "{name}"            # one video stream shares 4 Mb/s with one TCP flow
duration = "{seconds}s"
seed = {seed}

[topology]
shape = "dumbbell"
bottleneck = {{ rate = "4Mbps", delay = "10ms", queue = {{ kind = "droptail", limit = "50p" }} }}
access = {{ rate = "10Mbps", delay = "5ms" }}

[[flow]]
name = "video"
kind = "video"
controller = "{controller}"
receivers = {receivers}
media = "synthetic"
playout = "150ms"

[[flow]]
name = "tcp"
kind = "tcp"
congestion = "newreno"
start = "8s"

[[flow]]
name = "noise"
kind = "onoff"
rate = "400kbps"
on = {{ dist = "pareto", mean = "5s", shape = 1.5 }}
off = {{ dist = "exponential", mean = "5s" }}

[[event]]
at = "50s"
join = "video.dst{receivers}"

[[event]]
at = "60s"
set = {{ link = "bottleneck", rate = "3Mbps" }}

[[expect]]
that = "flows.tcp.share_of_fair"
min = 0.8
"""


def mos_class(db: float) -> int:
    return 5 if db > 37 else 4 if db > 31 else 3 if db > 25 else 2 if db >= 20 else 1


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def make(
    path: Path,
    *,
    controller: str = "asmp",
    receivers: int = 45,
    seed: int = 1,
    seconds: int = 80,
    pixels: bool = True,
    encoder_limited: bool = False,
    packets: bool = False,
    greed: float = 1.0,
    force: bool = False,
) -> dict[str, Any]:
    """Writes the folder and returns its summary."""
    chance = random.Random(f"{seed}-{controller}")
    names = [f"video.dst{i}" for i in range(1, receivers + 1)]
    late_joiner = names[-1] if receivers > 1 else None
    wobble = {n: 1 + chance.uniform(-0.01, 0.01) for n in names}
    bad = names[receivers // 3]

    rates: list[dict[str, Any]] = []
    links: list[dict[str, Any]] = []
    tcp: list[dict[str, Any]] = []
    decisions: list[dict[str, Any]] = []
    video, rival = 0.2e6, 0.0
    for t in range(seconds):
        capacity = 4e6 if t < 60 else 3e6
        noise = 0.4e6 if (t // 6) % 2 and t > 12 else 0.0
        share = greed * (capacity - noise) / 2.1
        target = share * 1.02
        video = min(video + (0.25e6 if t < 6 else 0.08e6), target) * chance.uniform(0.95, 1.05)
        if t % 17 == 16:
            video *= 0.8
        rival = 0.0 if t < 8 else max(0.2e6, (capacity - noise - video) * chance.uniform(0.9, 1.0))
        total = min(capacity, video + rival + noise)
        queue = 3.0 if total < capacity * 0.9 else chance.uniform(25, 95)
        drops = 0 if queue < 60 else chance.randint(0, 4)
        for node in ["video.src", *names]:
            sender = node == "video.src"
            if node == late_joiner and t < 50:
                continue
            lost = 0.0 if sender else (0.03 if node == bad else 0.001) * chance.uniform(0, 2)
            rates.append(
                {
                    "t_s": float(t),
                    "flow": "video",
                    "node": node,
                    "throughput_bps": video * (1 if sender else wobble[node] * (1 - lost)),
                    "loss_frac": None if sender else lost,
                    "delay_ms": None
                    if sender
                    else 20 + queue + chance.uniform(0, 4) + (25 if node == bad else 0),
                    "target_bps": video * 1.03 if sender else None,
                    "pacing_bps": video * 1.1 if sender else None,
                    "buffer_bytes": None,
                    "playout_ms": None if sender else 300.0,
                    "fair_bps": None if sender else 0.75e6,
                }
            )
        for flow, rate in (("tcp", rival), ("noise", noise)):
            for node in ("src", "dst1"):
                rates.append(
                    {
                        "t_s": float(t),
                        "flow": flow,
                        "node": f"{flow}.{node}",
                        "throughput_bps": rate,
                        "loss_frac": None if node == "src" else 0.002,
                        "delay_ms": None if node == "src" or rate == 0 else 20 + queue,
                        "target_bps": None,
                        "pacing_bps": None,
                        "buffer_bytes": None,
                        "playout_ms": None,
                        "fair_bps": None if node == "src" or rate == 0 else 0.75e6,
                    }
                )
        for link, could, wait in (("bottleneck", capacity, queue), ("left.access", 10e6, 0.4)):
            links.append(
                {
                    "t_s": float(t),
                    "link": link,
                    "direction": "forward",
                    "throughput_bps": total,
                    "capacity_bps": could,
                    "utilisation_frac": total / could,
                    "queue_ms": wait,
                    "queue_packets": wait / 2.04,
                    "dropped_packets": drops if link == "bottleneck" else 0,
                }
            )
        tcp.append(
            {
                "t_s": float(t),
                "flow": "tcp",
                "cwnd_packets": max(2.0, min(20.0, rival / 1e6 * 10 + 2 * math.sin(t))) if rival else None,
                "ssthresh_packets": 16.0 if rival else None,
                "srtt_ms": 40 + queue if rival else None,
            }
        )
        for step in range(4):
            limit = "start" if t < 6 else "encoder" if encoder_limited and t < 0.8 * seconds else "network"
            rule = {
                "start": "start: doubles per report",
                "encoder": "the encoder's best rung",
                "network": (
                    "equation: min over receivers",
                    "unloaded: +0.9 P/R",
                    "congested: one-way delay rises",
                )[step % 3],
            }[limit]
            decisions.append(
                {
                    "t_s": t + step / 4,
                    "flow": "video",
                    "node": "video.src",
                    "rule": rule,
                    "target_bps": video * (1.02 + step / 100),
                    "pacing_bps": video * 1.1,
                    "loss": 0.001 if t % 17 == 16 else 0.0,
                    "rtt_ms": 40 + queue,
                    "limit": limit,
                    "by": bad if step % 2 else names[0],
                }
            )

    frames, receiver_rows = _frames(names, bad, late_joiner, seconds, pixels, chance, rates)
    summary = _summary(
        controller, seed, seconds, receivers, rates, links, tcp, receiver_rows, encoder_limited
    )
    name = f"dumbbell-{controller}"
    scenario = SCENARIO.format(
        name=name, seconds=seconds, seed=seed, controller=controller, receivers=receivers
    )
    summary["scenario"]["name"] = name
    summary["expect"] = judge(summary, [{"that": "flows.tcp.share_of_fair", "min": 0.8}])
    with Draft(path, force=force) as draft:
        draft.text("scenario.toml", scenario)
        draft.json(
            "cost.json",
            {
                "format": 1,
                "cpu_s": 1.21,
                "wall_s": 0.9,
                "media_s": 0.4,
                "quality_s": 2.5,
                "peak_memory_bytes": 93_000_000,
                "packet_hops": 812_345,
            },
        )
        draft.table("rates", pl.DataFrame(rates, infer_schema_length=None))
        draft.table("links", pl.DataFrame(links))
        draft.table("tcp", pl.DataFrame(tcp, infer_schema_length=None))
        draft.table("decisions", pl.DataFrame(decisions))
        draft.table("frames", pl.DataFrame(frames, infer_schema_length=None))
        if packets:
            draft.table("packets", pl.DataFrame(_packets(names[:2], chance), infer_schema_length=None))
        draft.finish(summary)
    return summary


def make_seeds(path: Path, count: int = 3, **options: Any) -> dict[str, Any]:
    """Writes DIR/seed-1 … and DIR/seeds.json."""
    summaries = [make(path / f"seed-{seed}", seed=seed, **options) for seed in range(1, count + 1)]
    whole = aggregate(summaries)
    write_json(path / "seeds.json", whole)
    return whole


def _frames(
    names: list[str],
    bad: str,
    late_joiner: str | None,
    seconds: int,
    pixels: bool,
    chance: random.Random,
    rates: list[dict[str, Any]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    by_second = {(r["node"], int(r["t_s"])): r for r in rates}
    rows: list[dict[str, Any]] = []
    receivers: list[dict[str, Any]] = []
    for node in names:
        mine: list[dict[str, Any]] = []
        damaged = 0
        for number in range(seconds * 25):
            pts = number / 25
            if node == late_joiner and pts < 50:
                continue
            kind = "I" if number % 12 == 0 else "P" if number % 3 == 0 else "B"
            rate = by_second["video.src", int(pts)]["throughput_bps"]
            q = max(2, min(31, round(3e6 / rate * 2)))
            delay = by_second[node, int(pts)]["delay_ms"] + chance.uniform(0, 12)
            fate = "ok"
            if chance.random() < (0.03 if node == bad else 0.0008):
                fate = chance.choice(["lost", "lost", "late"])
                damaged = 6
            if kind == "I":
                damaged = 0
            elif damaged and fate == "ok" and chance.random() < 0.1:
                fate = "undecodable"
            quality = 46 - 0.9 * q + 1.5 * math.sin(pts / 6) + chance.gauss(0, 0.4) - (9 if damaged else 0)
            damaged = max(0, damaged - 1)
            mine.append(
                {
                    "flow": "video",
                    "node": node,
                    "frame": number,
                    "display": number,
                    "clip_frame": number % 300,
                    "pts_s": pts,
                    "kind": kind,
                    "q": q,
                    "size_bytes": round(rate / 8 / 25 * {"I": 2.6, "P": 1.1, "B": 0.7}[kind]),
                    "ready_s": pts,
                    "sent_s": pts + 0.001,
                    "first_s": None if fate == "lost" else pts + delay / 1000 - 0.004,
                    "arrived_s": None if fate == "lost" else pts + delay / 1000,
                    "delay_ms": None if fate == "lost" else delay,
                    "fate": fate,
                    "due_s": pts + 0.3,
                    "psnr_y_db": quality if pixels else None,
                    "ssim": min(0.999, 0.8 + quality / 250) if pixels else None,
                    "mos": mos_class(quality) if pixels else None,
                }
            )
        rows += mine
        receivers.append(_receiver(node, mine, [r for r in rates if r["node"] == node], pixels))
    return rows, receivers


def _receiver(
    name: str, frames: list[dict[str, Any]], rates: list[dict[str, Any]], pixels: bool
) -> dict[str, Any]:
    delays = [f["delay_ms"] for f in frames if f["delay_ms"] is not None]
    fates = [f["fate"] for f in frames]
    classes = [f["mos"] for f in frames]
    psnr = statistics.fmean(f["psnr_y_db"] for f in frames) if pixels else None
    return {
        "name": name,
        "throughput_bps": statistics.fmean(r["throughput_bps"] for r in rates),
        "loss_frac": statistics.fmean(r["loss_frac"] for r in rates),
        "loss_event_rate": 0.0006,
        "delay_ms": {
            "p50": percentile(delays, 0.5),
            "p95": percentile(delays, 0.95),
            "p99": percentile(delays, 0.99),
            "max": max(delays),
        },
        "delay_mean_ms": statistics.fmean(delays),
        "jitter_ms": 1.9,
        "cumulative_jitter_max_ms": 83.0,
        "playout_ms": {"p50": 300.0, "p95": 300.0, "p99": 300.0, "max": 300.0},
        "playout_needed_ms": max(delays),
        "picture_score": 3.5 if pixels else None,
        "rate_score": 3.5,
        "viewing_score": 3.5,
        "viewing_score_by": "pictures" if pixels else "rate",
        "smooth_frac": 0.9,
        "shown_fps": 24.5,
        "harmonic_fps": 24.0,
        "frames": {
            "sent": len(frames),
            "ok_frac": fates.count("ok") / len(fates),
            "repaired": 0,
            **{f: fates.count(f) for f in ("ok", "lost", "late", "undecodable")},
        },
        "freeze_count": fates.count("lost"),
        "freeze_s": fates.count("lost") * 0.24,
        "freezes_per_min": fates.count("lost") * 60 / (len(frames) / 25),
        "frozen_frac": fates.count("lost") * 0.24 / (len(frames) / 25),
        "longest_freeze_ms": 240.0 if "lost" in fates else 0.0,
        "frozen_at_end": False,
        "stills_count": fates.count("lost") + fates.count("late"),
        "startup_ms": 150.0,
        "feedback_packets": 80,
        "buffer_underflows": 0,
        "buffer_overflows": 0,
        "psnr_db": {
            "raw": {"y": psnr, "u": psnr + 4, "v": psnr + 5},
            "encoded": {"y": psnr + 9, "u": psnr + 11, "v": psnr + 11},
        }
        if psnr is not None
        else None,
        "ssim": 0.95 if pixels else None,
        "vmaf": None,
        "mos": {
            "mean": statistics.fmean(classes),
            "share": {str(c): classes.count(c) / len(classes) for c in range(1, 6)},
        }
        if pixels
        else None,
    }


def _summary(
    controller: str,
    seed: int,
    seconds: int,
    receivers: int,
    rates: list[dict[str, Any]],
    links: list[dict[str, Any]],
    tcp: list[dict[str, Any]],
    receiver_rows: list[dict[str, Any]],
    encoder_limited: bool,
) -> dict[str, Any]:
    def mean(node: str) -> float:
        return statistics.fmean(r["throughput_bps"] for r in rates if r["node"] == node)

    video = statistics.fmean(r["throughput_bps"] for r in receiver_rows)
    rival = sum(r["throughput_bps"] for r in rates if r["node"] == "tcp.dst1") / (seconds - 8)
    queue = [row["queue_ms"] for row in links if row["link"] == "bottleneck"]
    frac = (
        {"network": 0.16, "encoder": 0.77, "start": 0.07, "cap": 0.0}
        if encoder_limited
        else {"network": 0.93, "encoder": 0.0, "start": 0.07, "cap": 0.0}
    )
    return {
        "format": 1,
        "scenario": {"name": "dumbbell", "sha256": "5f" * 32, "seed": seed},
        "program": {"version": "0.1.0", "commit": "0123abc"},
        "world": "simulated",
        "complete": True,
        "warnings": ["flow.video.rtcp: the session bandwidth was not given; 5 % of 4 Mb/s was taken"],
        "from_s": 0.0,
        "to_s": float(seconds),
        "record_sha256": f"{seed:064x}",
        "flows": [
            {
                "name": "video",
                "kind": "video",
                "controller": controller,
                "mode": "repaired",
                "throughput_bps": video,
                "encoded": {"codec": "mpeg4", "width": 352, "height": 288, "fps": 25.0},
                "fair_share_bps": 1.8e6,
                "competing_s": float(seconds),
                "share_of_fair": video / 1.8e6,
                "rate_cov": 0.12,
                "ramp_s": {"1Mbps": 4.1, "share_80pct": 7.0},
                "sent_packets": 15800,
                "feedback_packets": 3400,
                "feedback_bps": 4.1e4,
                "feedback_refused": 0,
                "skipped_frames": 3,
                "backlog_ms": {"p50": 12.0, "p95": 60.0, "p99": 95.0, "max": 140.0},
                "limited_by_frac": frac,
                "receivers": receiver_rows,
            },
            {
                "name": "tcp",
                "kind": "tcp",
                "congestion": "newreno",
                "throughput_bps": rival,
                "fair_share_bps": 1.8e6,
                "competing_s": float(seconds),
                "share_of_fair": rival / 1.8e6,
                "rate_cov": 0.2,
                "ramp_s": {"1Mbps": 2.2, "share_80pct": 3.1},
                "sent_packets": 12_400,
                "retransmitted_packets": 41,
                "timeouts": 0,
                "srtt_ms": {"p50": 92.0, "p95": 118.0, "p99": 125.0, "max": 131.0},
                "cwnd_packets": {
                    "mean": statistics.fmean(r["cwnd_packets"] for r in tcp if r["cwnd_packets"])
                },
                "receivers": [{"name": "tcp.dst1", "throughput_bps": rival}],
            },
            {
                "name": "noise",
                "kind": "onoff",
                "throughput_bps": mean("noise.dst1"),
                "fair_share_bps": 0.4e6,
                "competing_s": float(seconds) / 2,
                "active_frac": 0.5,
                "active_throughput_bps": 2 * mean("noise.dst1"),
                "share_of_fair": 2 * mean("noise.dst1") / 0.4e6,
                "rate_cov": 0.9,
                "ramp_s": {"1Mbps": None, "share_80pct": 13.0},
                "sent_packets": 2_400,
                "receivers": [
                    {
                        "name": "noise.dst1",
                        "throughput_bps": mean("noise.dst1"),
                        "loss_frac": 0.002,
                        "delay_ms": {"p50": 45.0, "p95": 92.0, "p99": 97.0, "max": 99.0},
                        "delay_mean_ms": 51.0,
                    }
                ],
            },
        ],
        "links": [
            {
                "name": "bottleneck",
                "direction": "forward",
                "utilisation_frac": statistics.fmean(
                    r["utilisation_frac"] for r in links if r["link"] == "bottleneck"
                ),
                **_counts(31_000, sum(r["dropped_packets"] for r in links)),
                "queue_ms": {
                    **{f"p{p}": percentile(queue, p / 100) for p in (50, 95, 99)},
                    "max": max(queue),
                },
            },
            {
                "name": "left.access",
                "direction": "forward",
                "utilisation_frac": 0.4,
                **_counts(28_000, 0),
                "queue_ms": {"p50": 0.4, "p95": 0.5, "p99": 0.6, "max": 0.9},
            },
        ],
        "fairness": {"jain": 0.97, "jain_1s": {"mean": 0.93, "p05": 0.8}},
        "invariants": [{"id": "rtcp.share", "about": "RTCP takes at most 6 %", "checked": 3400, "broken": 0}],
        "expect": [],
    }


def _counts(offered: int, dropped: int) -> dict[str, Any]:
    return {
        "offered_packets": offered,
        "packets": offered - dropped,
        "dropped_packets": dropped,
        "lost_packets": 0,
        "reordered_packets": 0,
        "duplicated_packets": 0,
        "marked_packets": 0,
        "policed_packets": 0,
        "drop_frac": dropped / offered,
    }


def _packets(names: list[str], chance: random.Random) -> list[dict[str, Any]]:
    rows = []
    for seq in range(200):
        t, frame = seq * 0.005, seq // 8
        common = {
            "flow": "video",
            "seq": seq,
            "size_bytes": 1018,
            "frame": frame,
            "stream": "video",
            "ftype": "IPBB"[frame % 4],
            "q": 5,
            "ecn": 0,
        }
        rows.append({"t_s": t, "dir": "s", "node": "video.src", "owd_ms": None, **common})
        for name in names:
            if chance.random() > 0.02:
                owd = chance.uniform(22, 60)
                rows.append({"t_s": t + owd / 1000, "dir": "r", "node": name, "owd_ms": owd, **common})
    return rows


if __name__ == "__main__":
    import sys

    make(Path(sys.argv[1]), force=True, packets=True)
