"""Prepares the media of a video flow: frame sizes at every quantizer, with or without pictures."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast.media.table import FrameTable

if TYPE_CHECKING:
    from steadycast.core import core
    from steadycast.media.ladder import Ladder
    from steadycast.progress import Progress


def media_of(
    video: Mapping[str, Any], seed: int, progress: Progress | None = None
) -> Ladder | FrameTable | None:
    """Return the media of a flow: a ladder (a clip encoded at every quantizer), or a table of frame sizes.

    Returns the table if the media have no pixels, and `None` if the flow needs neither. ``video`` is the core's
    description of the flow (`_core.Scenario.videos`).
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
    from steadycast.media.ladder import as_options, encode_ladder
    from steadycast.media.synthetic import Synthetic

    size = str(video["size"])
    source: Source
    if kind == "synthetic":
        source = Synthetic.of(size)
    else:
        source = Clip.of([Path(p) for p in video["paths"]]).beginning(_needed_s(video))
    codec = str(video["codec"])
    with as_options(video["flow"]):
        return encode_ladder(
            source,
            codec=codec,
            size=size,
            fps="clip" if fps is None else fps,
            gop=gop,
            bframes=0 if codec == "h263" else int(video["bframes"]),
            qs=range(int(video["q_min"]), int(video["q_max"]) + 1),
            progress=progress,
        )


def opened(video: Mapping[str, Any]) -> None:
    """Check that the files of a flow's media can be read. Nothing is encoded.

    Raises:
        UserError: no picture of a clip can be decoded, or a trace has no frame.

    """
    kind = video["sequence"] if video["media"] == "rfc8593" else video["media"]
    if kind == "trace":
        media_of({**video, "media": kind}, 0)
    elif kind == "clip":
        from steadycast.media.clip import Clip
        from steadycast.media.ladder import as_options

        with as_options(video["flow"]):
            for path in video["paths"]:
                Clip.of(path).pictures(str(video["size"]), "clip" if video["fps"] is None else video["fps"])


def _needed_s(video: Mapping[str, Any]) -> int:
    """Return the length that the flow needs, in seconds.

    It is rounded up to full minutes, so that runs of similar length share a ladder.
    """
    return max(1, math.ceil(float(video["lasts_s"]) / 60)) * 60


def _sequence(video: Mapping[str, Any], seed: int, progress: Progress | None) -> FrameTable | None:
    """Return the frame sizes from which the codec model of RFC 8593 computes its own sizes."""
    if video["sequence"] is None:
        return None
    sizes = media_of({**video, "media": video["sequence"]}, seed, progress)
    # Return only the sizes of a ladder. Its pixels are not used, because the model interpolates sizes between two
    # quantizers.
    return sizes if sizes is None or isinstance(sizes, FrameTable) else sizes.table


def facts(video: Mapping[str, Any], seed: int) -> str:
    """Return the values that determine a flow's media, as a text.

    Only the media ``table2`` depend on the seed, so other media leave the seed out.
    """
    own = {
        k: v
        for k, v in video.items()
        if k not in ("flow", "controller", "playout_s", "receivers", "audio_bps", "lasts_s")
    }
    if "paths" in video:
        own["needed_s"] = _needed_s(video)
    return f"{own} {seed if video['media'] == 'table2' else ''}"


class MediaKept:
    """An LRU cache for the media of flows. It keeps at most ``most`` of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._media: OrderedDict[str, Ladder | FrameTable | None] = OrderedDict()

    def of(
        self, video: Mapping[str, Any], seed: int, progress: Progress | None = None
    ) -> Ladder | FrameTable | None:
        """Return the media of a flow, as `media_of` does. Take them from the cache if they are there."""
        name = facts(video, seed)
        if name not in self._media:
            self._media[name] = media_of(video, seed, progress)
        self._media.move_to_end(name)
        while len(self._media) > self.most:
            self._media.popitem(last=False)
        return self._media[name]


def prepare(scenarios: Iterable[core.Scenario], progress: Progress) -> list[Path]:
    """Encode each ladder that the scenarios need, once. Return the paths of the ladders in the cache.

    Otherwise several processes would encode the same ladder when they request it.
    """
    ready: dict[str, Path | None] = {}
    for loaded in scenarios:
        for video in loaded.videos():
            name = facts(video, loaded.seed)
            if video.get("sequence", video["media"]) in ("clip", "synthetic") and name not in ready:
                ready[name] = getattr(media_of(video, loaded.seed, progress), "place", None)
    return [path for path in ready.values() if path is not None]
