"""Explains why QAI-CL has a lower rate with another sequence (M-H).

    python -m validation.sequence --write     # docs/data/papers-sequence.csv

Each possible cause is removed from the synthetic film's frame sizes, which should then give the result of M-F: the
bursts of I frames, the different sizes of groups, and the gaps between quantizers. A change without effect refutes
its cause.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from steadycast.folder import spread
from steadycast.media.ladder import encode_ladder
from steadycast.media.synthetic import Synthetic
from steadycast.run import run

from validation import page

SCENARIO = Path(__file__).resolve().parent.parent / "papers" / "scenarios" / "m-f.toml"
_GOP = 30
_QS = range(2, 32)

Sizes = npt.NDArray[np.float64]
"""Bytes by quantizer, group of pictures, and frame within the group."""


def even_frames(sizes: Sizes) -> Sizes:
    """Give all frames of a group the same size."""
    return np.broadcast_to(sizes.mean(axis=2, keepdims=True), sizes.shape)


def even_groups(sizes: Sizes) -> Sizes:
    """Give all groups of a quantizer the same size; the proportions between their frames are kept."""
    groups = sizes.sum(axis=2, keepdims=True)
    return np.asarray(sizes * groups.mean(axis=1, keepdims=True) / groups)


def finer(sizes: Sizes) -> Sizes:
    """Insert between every two quantizers the geometric mean of their sizes."""
    both = np.empty((2 * len(sizes) - 1, *sizes.shape[1:]))
    both[::2], both[1::2] = sizes, np.sqrt(sizes[:-1] * sizes[1:])
    return both


Way = tuple[str, Sequence[Callable[[Sizes], Sizes]]]
WAYS: tuple[Way, ...] = (
    ("as it is (M-H)", ()),
    ("groups of one size", (even_groups,)),
    ("quantizers half a step apart", (finer,)),
    ("frames of one size within a group", (even_frames,)),
    ("frames of one size, and quantizers half a step apart", (even_frames, finer)),
    ("all three", (even_frames, even_groups, finer)),
)


def trace(sizes: Sizes) -> str:
    """Format sizes as a trace of frames, with quantizers from 2 on."""
    rows = sizes.reshape(len(sizes), -1).round().astype(int)
    lines = (
        f"{frame},{'P' if frame % _GOP else 'I'},{q},{size}"
        for frame, column in enumerate(rows.T)
        for q, size in enumerate(column, start=_QS[0])
    )
    return "\n".join(["frame,type,q,size", *lines, ""])


def told(sets: dict[str, object], seeds: range) -> Iterator[str]:
    """Yield QAI-CL's rate divided by TCP's, QAI-CL's rate and its target in Mb/s, and its loss.

    Each is a mean ± half of its 95 % interval.
    """
    found = []
    for seed in seeds:
        done = run(SCENARIO, seed=seed, set={**sets, "duration": "155s"}, quality=False)
        video, tcp = (
            f["receivers"][0] for f in sorted(done.summary["flows"], key=lambda f: f["kind"] != "video")
        )
        target = done.rates.to_polars()["target_bps"].mean()
        assert isinstance(target, float)
        rate = video["throughput_bps"]
        found.append((rate / tcp["throughput_bps"], rate / 1e6, target / 1e6, video["loss_frac"] * 100))
    for values in zip(*found, strict=True):
        of = spread(values)
        yield f"{of['mean']:.2f} ± {of['ci95']:.2f}"


def main(words: Sequence[str] | None = None) -> int:
    """Run the film's sizes in each variant, and M-F's mapping from quantizer to rate for comparison."""
    args = page.options("validation.sequence", __doc__, "papers-sequence", seeds=5).parse_args(words)
    film = encode_ladder(Synthetic(), "mpeg2", "640x486", 29.97, _GOP, 0, qs=_QS).table
    whole = film.frames - film.frames % _GOP
    sizes = film.sizes[:, :whole].astype(np.float64).reshape(len(_QS), -1, _GOP)
    seeds, rows = range(1, args.seeds + 1), []
    with tempfile.TemporaryDirectory() as folder:
        for name, steps in WAYS:
            changed = sizes
            for step in steps:
                changed = step(changed)
            place = Path(folder) / "frames.csv"
            place.write_text(trace(changed), encoding="utf-8")
            rows.append([name, *told({"flow.video.media": "trace", "flow.video.trace": str(place)}, seeds)])
    rows.append(["M-F's map from quantizer to rate", *told({}, seeds)])
    heads = ["frame sizes", "QAI-CL over TCP", "QAI-CL, Mb/s", "its target, Mb/s", "its loss, %"]
    title = "QAI-CL beside TCP with the drawn film's frame sizes, evened out (M-H)"
    note = f"{args.seeds} seeds of 150 s; mean ± half of its 95 % interval."
    args.command = page.command("validation.sequence", words)
    page.show(args, "papers-sequence", title, page.table(heads, rows), note)
    return 0


if __name__ == "__main__":
    page.end(main)
