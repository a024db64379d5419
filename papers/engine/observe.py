"""The data of a run that statements and figures need, small enough to be cached for every run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl
    from steadycast.folder import Json
    from steadycast.result import Run

FORMAT = 8
"""Version of the content of an observation. Cached observations with another version are ignored."""

MOST_RECEIVERS = 8
"""Losses and jitter per second are kept for each receiver of a flow that has at most this number of receivers.

For larger groups only the numbers of the summary are kept.
"""

MOST_LINKS = 64
"""Maximum number of link directions that are kept, in the scenario's order. This bounds the size of the cache."""


class Observed:
    """One run, as seen by the first receiver of each flow.

    The papers also show one receiver of a group. Behind one bottleneck all receivers lose the same packets.
    """

    def __init__(self, content: Json) -> None:
        self.content = content

    def flow(self, name: str) -> Flow:
        """Return the flow with this name."""
        return Flow(self.content["flows"][name])

    def has(self, name: str) -> bool:
        """Whether the run has a flow with this name."""
        return name in self.content["flows"]

    @property
    def jain(self) -> float:
        """Jain's fairness index over the whole run."""
        return float(self.content["jain"])

    @property
    def trustworthy(self) -> bool:
        """Whether packets were sent when they were due. Always true in virtual time."""
        told = self.content.get("emulation")
        return told is None or bool(told["trustworthy"])

    @property
    def left_aside(self) -> list[str]:
        """Settings of the scenario that were omitted, because an emulation does not support them."""
        return [w for w in self.content["warnings"] if ": left aside: " in w]

    @property
    def end_s(self) -> float:
        """Length of the run in seconds."""
        return float(self.content["to_s"])


class Flow:
    """One flow, as its first receiver observes it."""

    def __init__(self, content: Json) -> None:
        self.content = content

    @property
    def rate(self) -> float:
        """Mean throughput over the run in bit/s."""
        return float(self.content["throughput_bps"])

    @property
    def rates(self) -> list[float]:
        """Throughput in bit/s for each second."""
        return [float(x) for x in self.content["rates"]]

    @property
    def targets(self) -> list[float]:
        """The controller's target in bit/s at the end of each interval of the record."""
        return [float(x) for x in self.content["targets"] if x is not None]

    @property
    def buffer(self) -> list[float]:
        """The level of the play-out buffer in bytes at the end of each interval of the record."""
        return [float(x) for x in self.content["buffer"]]

    @property
    def decisions(self) -> list[tuple[float, str, float | None, float | None]]:
        """Each decision of the sender: its time in seconds, its rule, the loss, and the round-trip time in ms."""
        d = self.content["decisions"]
        rows = zip(d["t_s"], d["rule"], d["loss"], d["rtt_ms"], strict=True)
        return [(t, d["rules"][rule], loss, rtt) for t, rule, loss, rtt in rows]

    @property
    def states(self) -> dict[str, int]:
        """The number of the receiver's decisions by each rule."""
        return {str(rule): int(count) for rule, count in self.content["states"].items()}

    @property
    def lost_packets(self) -> float:
        """Share of packets that were lost."""
        return float(self.content["loss_frac"] or 0.0)

    @property
    def step_s(self) -> float:
        """Length of one step of the series in seconds."""
        return float(self.content["step_s"])

    def between(self, series: str, start: float, end: float) -> list[float]:
        """Return the values of a series between two times: `rates`, `targets`, `losses`, `delays`, `n` or `rtts`.

        Steps without a value are left out.
        """
        late = float(self.content["first_s"]) if series == "rates" else 0.0
        first, last = (max(0, round((t - late) / self.step_s)) for t in (start, end))
        return [float(x) for x in self.content[series][first:last] if x is not None]

    @property
    def receivers(self) -> dict[str, dict[str, Any]]:
        """Throughput, loss and jitter (at the end, and its 95th percentile) of every receiver, by its name."""
        return dict(self.content["receivers"])

    @property
    def switches(self) -> list[tuple[float, str]]:
        """The times in seconds at which another receiver became the one that limits the rate, each with its name."""
        return [(float(t), str(by)) for t, by in self.content["switches"]]

    @property
    def limited(self) -> dict[str, float]:
        """Shares of time in which the rate was limited by the network, the encoder, the start phase or a cap."""
        return dict(self.content["limited_by_frac"])

    @property
    def frames(self) -> dict[str, int]:
        """Number of frames by state: sent, ok, lost, late, undecodable."""
        return dict(self.content["frames"])

    @property
    def lost(self) -> float:
        """Share of frames with at least one lost packet, as the papers count lost frames."""
        return self.frames["lost"] / self.frames["sent"]

    @property
    def delays_ms(self) -> list[float | None]:
        """Delay of each frame in ms, from the end of its encoding to the arrival of its last packet.

        The value is `None` if a packet was lost.
        """
        return list(self.content["frame_delay_ms"])

    @property
    def whole_ms(self) -> list[float]:
        """Delays in ms of the frames that arrived completely."""
        return [x for x in self.content["frame_delay_ms"] if x is not None]

    @property
    def psnr_db(self) -> list[float | None]:
        """Luma PSNR in dB against the original for each display slot; empty without pictures."""
        return list(self.content["psnr_y_db"])

    @property
    def scores(self) -> dict[int, float]:
        """Share of frames with each opinion score, 1 to 5; empty without pictures."""
        mos = self.content["mos"]
        return {} if mos is None else {int(k): float(v) for k, v in mos["share"].items()}

    @property
    def score(self) -> float | None:
        """Mean opinion score; `None` without pictures."""
        mos = self.content["mos"]
        return None if mos is None else float(mos["mean"])

    def grades(self, against: str) -> dict[int, float]:
        """Share of frames with each opinion score, 1 to 5; empty if the frames were not graded this way.

        `against` is "sent" or "index".
        """
        known = self.content.get("graded")
        return {} if known is None else {int(k): float(v) for k, v in known[against].items()}

    @property
    def mean_psnr_db(self) -> float | None:
        """Mean luma PSNR against the original; `None` without pictures."""
        psnr = self.content["psnr_db"]
        return None if psnr is None else psnr["raw"]["y"]

    def cumulative_ms(self) -> list[float]:
        """Return the cumulative jitter in ms of the frames that arrived completely (000, eq. 4).

        A frame's cumulative jitter is the delay of its last packet minus the delay of the first frame's last packet.
        The last packet is used because play-out waits for it.
        """
        whole = self.whole_ms
        return [x - whole[0] for x in whole]

    def first_cumulative_ms(self) -> list[float]:
        """Return the cumulative jitter of each frame's first packet in ms. It does not depend on the frame's size."""
        firsts = [x for x in self.content["frame_first_ms"] if x is not None]
        return [x - firsts[0] for x in firsts]

    def variations_ms(self) -> list[float]:
        """Delay variation in ms between consecutive frames that both arrived completely (000, eq. 3)."""
        d = self.delays_ms
        return [b - a for a, b in pairwise(d) if a is not None and b is not None]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, int(share * len(ordered) + 0.5) - 1))]


_OF_FLOW = (
    *("controller", "congestion", "rate_cov", "limited_by_frac", "sent_packets", "feedback_packets"),
    *("feedback_bps", "retransmitted_packets", "completed_s", "srtt_ms", "cwnd_packets", "skipped_frames"),
)
_OF_RECEIVER = (
    *("loss_frac", "delay_ms", "frames", "psnr_db", "mos", "ssim", "freeze_count", "freeze_s"),
    *("buffer_underflows", "buffer_overflows"),
)
"""Keys that are copied from the summary of a flow and of its first receiver, where they are present."""


def observe(run: Run, *, decisions: bool = True) -> Json:
    """Extract from a run all data that statements and figures need.

    Args:
        run: a run with its tables.
        decisions: whether to include each decision of the sender.

    """
    import polars as pl

    summary = run.summary
    rates, frames, decided = run.rates.to_polars(), run.frames.to_polars(), run.decisions.to_polars()
    packets = run.packets.to_polars()
    times = rates["t_s"].unique().sort()
    step = float(times[1] - times[0]) if len(times) > 1 else 1.0
    flows: dict[str, Any] = {}
    for flow in summary["flows"]:
        receiver = flow["receivers"][0]
        here = (pl.col("flow") == flow["name"]) & (pl.col("node") == receiver["name"])
        seen = {
            "kind": flow["kind"],
            "throughput_bps": receiver["throughput_bps"],
            **{key: flow.get(key) for key in _OF_FLOW},
            **{key: receiver.get(key) for key in _OF_RECEIVER},
            "rates": [round(x) for x in rates.filter(here)["throughput_bps"].fill_null(0.0).to_list()],
            "step_s": step,
            "first_s": rates.filter(here)["t_s"].min() or 0.0,
            "receivers": {r["name"]: _receiver(r, flow, rates, packets, step) for r in flow["receivers"]},
        }
        if flow["kind"] == "video":
            seen |= _frames(frames.filter(here).sort("frame"))
            seen |= _decided(rates, decided, flow, here, step)
            seen["buffer"] = [round(x) for x in rates.filter(here)["buffer_bytes"].drop_nulls().to_list()]
            seen["states"] = dict(decided.filter(here).group_by("rule").len().sort("rule").iter_rows())
            if decisions:
                own = (pl.col("flow") == flow["name"]) & pl.col("limit").is_not_null()
                seen["decisions"] = _decisions(decided.filter(own))
        flows[flow["name"]] = seen
    return {
        "format": FORMAT,
        "flows": flows,
        "simulcasts": summary.get("simulcasts", []),
        "jain": summary["fairness"]["jain"],
        "jain_1s": summary["fairness"]["jain_1s"],
        "links": [
            {k: link.get(k) for k in ("name", "direction", "utilisation_frac", "drop_frac", "queue_ms")}
            for link in summary["links"][:MOST_LINKS]
        ],
        "to_s": summary["to_s"],
        "broken": [i["id"] for i in summary["invariants"] if i["broken"]],
        "warnings": summary["warnings"],
        "emulation": summary.get("emulation"),
        "sha256": summary["record_sha256"],
    }


def _receiver(receiver: Json, flow: Json, rates: pl.DataFrame, packets: pl.DataFrame, step: float) -> Json:
    """Return a receiver's numbers. For a small group they include its losses and its jitter for each step."""
    import polars as pl

    here = (pl.col("flow") == flow["name"]) & (pl.col("node") == receiver["name"])
    times, jitter = _jitter(packets.filter(here))
    seen: Json = {
        **{k: receiver.get(k) for k in ("throughput_bps", "loss_frac", "jitter_ms")},
        "jitter_p95_ms": round(percentile(jitter, 0.95), 4) if jitter else None,
    }
    if flow["kind"] == "video" and 1 < len(flow["receivers"]) <= MOST_RECEIVERS:
        own = rates.filter(here)
        seen["losses"] = own["loss_frac"].round(6).to_list()
        by_step = {int(t / step): value for t, value in zip(times, jitter, strict=True)}
        seen["jitters"] = [round(by_step[n], 3) if n in by_step else None for n in range(len(seen["losses"]))]
    return seen


def _jitter(packets: pl.DataFrame) -> tuple[list[float], list[float]]:
    """Return the arrival times in seconds and RFC 3550's jitter (A.8) in ms after each packet.

    Both are empty if the run has no record of packets.
    """
    import polars as pl

    arrived = packets.sort("t_s").filter(pl.col("owd_ms").is_not_null())
    transits, jitter, values = arrived["owd_ms"].to_list(), 0.0, []
    for a, b in pairwise(transits):
        jitter += (abs(b - a) - jitter) / 16.0
        values.append(jitter)
    return arrived["t_s"].to_list()[1:], values


def _decisions(rows: pl.DataFrame) -> Json:
    """Return the sender's decisions as columns. Each rule is an index into a list of rules."""
    rules = rows["rule"].unique(maintain_order=True).to_list()
    place = {rule: n for n, rule in enumerate(rules)}
    return {
        "rules": rules,
        "t_s": rows["t_s"].round(4).to_list(),
        "rule": [place[rule] for rule in rows["rule"].to_list()],
        "loss": rows["loss"].round(6).to_list(),
        "rtt_ms": rows["rtt_ms"].round(3).to_list(),
    }


def _decided(rates: pl.DataFrame, decisions: pl.DataFrame, flow: Json, here: pl.Expr, step: float) -> Json:
    """Return the target, the number of connections and the round-trip time that the sender used in each step."""
    import polars as pl

    receivers = [r["name"] for r in flow["receivers"]]
    sender = (pl.col("flow") == flow["name"]) & ~pl.col("node").is_in(receivers)
    rows = decisions.filter(sender)
    # Without 1e-9 s, rounding could put a time on a step's lower edge into the step before.
    number = ((pl.col("t_s") + 1e-9) / step).floor().cast(pl.Int64).alias("step")
    decided = rows.group_by(number).agg(
        pl.col("rule").str.extract(r"^n = ([0-9.]+):").cast(pl.Float64).mean().round(3).alias("n"),
        pl.col("rtt_ms").mean().round(2).alias("rtts"),
    )
    whole = pl.DataFrame({"step": range(int(rates.select(number.max()).item()) + 1)})
    for part in (
        decided,
        rates.filter(sender).select(number, pl.col("target_bps").round().alias("targets")),
        rates.filter(here).select(
            number, pl.col("loss_frac").round(6).alias("losses"), pl.col("delay_ms").round(3).alias("delays")
        ),
    ):
        whole = whole.join(part, on="step", how="left", maintain_order="left")
    # A decision applies until the next one.
    whole = whole.with_columns(pl.col("n", "rtts").fill_null(strategy="forward"))
    changes = rows.drop_nulls("by").filter(pl.col("by") != pl.col("by").shift(1))
    return {
        **{name: whole[name].to_list() for name in ("targets", "losses", "delays", "n", "rtts")},
        "switches": list(zip(changes["t_s"].round(3).to_list(), changes["by"].to_list(), strict=True)),
    }


def _frames(rows: pl.DataFrame) -> Json:
    import polars as pl

    whole = pl.col("fate").is_in(["ok", "late", "undecodable"])
    delays = rows.select(pl.when(whole).then(pl.col("delay_ms").round(3)).otherwise(None))["delay_ms"]
    firsts = rows.select(((pl.col("first_s") - pl.col("ready_s")) * 1000).round(3).alias("first_ms"))[
        "first_ms"
    ]
    psnr: list[float | None] = []
    if "psnr_y_db" in rows.columns:
        psnr = rows.sort("display")["psnr_y_db"].round(2).to_list()
    return {
        "frame_delay_ms": delays.to_list(),
        "frame_first_ms": firsts.to_list(),
        "frame_bytes": rows["size_bytes"].to_list(),
        "quantizers": rows["q"].to_list(),
        "psnr_y_db": psnr,
    }
