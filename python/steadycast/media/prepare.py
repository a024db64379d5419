"""What a video flow needs before it can run: frame sizes at every quantizer, with pixels or without."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast.media.table import FrameTable

if TYPE_CHECKING:
    from steadycast.media.ladder import Ladder
    from steadycast.progress import Progress


def media_of(
    video: Mapping[str, Any], seed: int, progress: Progress | None = None
) -> Ladder | FrameTable | None:
    """Ladder of a flow with pixels, frame table of one without, `None` for one that needs neither.

    ``video`` is what the core says of the flow (`_core.Scenario.videos`). Ladders come from the cache when
    they have been encoded before.

    Raises:
        UserError: a clip or a trace that is missing, damaged or of another kind.

    """
    kind = video["media"]
    if kind == "rfc8593":
        return _sequence(video, seed, progress)
    if kind == "greedy":
        return None
    gop, fps = int(video["gop"]), video["fps"]
    if kind == "table2":
        from steadycast.media.table2 import table2

        weights = tuple(round(w * 1000) for w in video["weights"])
        return table2(
            fps=Fraction(fps or 25).limit_denominator(100_000),
            gop=gop,
            distance=int(video["bframes"]) + 1,
            weights=(weights[0], weights[1], weights[2]),
            variation_permille=round(video["vary"] * 1000),
            seed=seed,
        )
    if kind == "map001":
        from steadycast.media.map001 import map001

        rate = Fraction(fps or 25).limit_denominator(100_000)
        return map001(rate, gop, float(video["exponent"]), float(video["intra"]))
    if kind == "trace":
        from steadycast.media.trace import read_trace

        return read_trace(Path(video["paths"][0]), fps or 25)

    from steadycast.media.clip import Clip, Source
    from steadycast.media.ladder import encode_ladder
    from steadycast.media.synthetic import Synthetic

    source: Source = Synthetic() if kind == "synthetic" else Clip.of([Path(p) for p in video["paths"]])
    codec = str(video["codec"])
    return encode_ladder(
        source,
        codec=codec,
        size=str(video["size"]),
        fps="clip" if fps is None else fps,
        gop=gop,
        bframes=0 if codec == "h263" else int(video["bframes"]),
        qs=range(int(video["q_min"]), int(video["q_max"]) + 1),
        progress=progress,
    )


def _sequence(video: Mapping[str, Any], seed: int, progress: Progress | None) -> FrameTable | None:
    """Frame sizes that RFC 8593's codec takes from a sequence; it mixes quantizers, so that there are no pixels."""
    if video["sequence"] is None:
        return None
    sizes = media_of({**video, "media": video["sequence"]}, seed, progress)
    return sizes if sizes is None or isinstance(sizes, FrameTable) else sizes.table
