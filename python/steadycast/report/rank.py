"""Sorts the receivers of a flow, to find the worst and the median receiver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steadycast.folder import Json, number


def score_of(receiver: Json) -> Any:
    """Return the picture score of a receiver. If its pictures were not measured, return its rate score."""
    seen = receiver.get("picture_score")
    return receiver.get("rate_score") if number(seen) is None else seen


def ranked_receivers(flow: Json) -> list[Json]:
    """Return the receivers of a flow. The worst receiver comes first.

    They are sorted by score, then by PSNR, then by loss, then by delay.
    """

    def badness(receiver: Json) -> tuple[float, float, float, float]:
        psnr = number(((receiver.get("psnr_db") or {}).get("raw") or {}).get("y"))
        score = number(score_of(receiver))
        score = number((receiver.get("mos") or {}).get("mean")) if score is None else score
        delay = number((receiver.get("delay_ms") or {}).get("p95"))
        return (
            score if score is not None else 9.0,
            psnr if psnr is not None else 999.0,
            -(number(receiver.get("loss_frac")) or 0.0),
            -(delay or 0.0),
        )

    return sorted(flow.get("receivers") or [], key=badness)


def alike(receivers: Sequence[Json]) -> bool:
    """Whether all receivers have the same quality. This is common behind a shared bottleneck."""

    def seen(receiver: Json) -> tuple[object, ...]:
        return tuple(
            receiver.get(key) for key in ("psnr_db", "picture_score", "rate_score", "frames", "loss_frac")
        )

    return all(seen(r) == seen(receivers[0]) for r in receivers)
