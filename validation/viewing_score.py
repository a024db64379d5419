"""Compares the coding quality in the viewing score with VMAF, for clips at several quantizers.

    python -m validation.viewing_score a.mkv b.mp4            # the built-in clip and these
    python -m validation.viewing_score a.mkv b.mp4 --write    # and docs/data/viewing-score.csv

VMAF is mapped to an opinion score as by its authors: 20 is bad (1), 100 is excellent (5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from steadycast.media.clip import Clip, Source
from steadycast.media.ladder import as_options, encode_ladder
from steadycast.media.quality import evaluate
from steadycast.media.splice import Fates
from steadycast.media.synthetic import Synthetic
from steadycast.media.vmaf import need

from validation import page

TABLE = "viewing-score"
QUANTIZERS = (2, 4, 8, 16, 31)
CODECS = {"mpeg4": QUANTIZERS, "h264": (20, 26, 32, 38, 44)}
"""Codecs, with the quantizers that are measured."""
SECONDS = 10
SIZE, FPS = "cif", 25
HEAD = (
    "clip",
    "codec",
    "quantizer",
    "rate, kb/s",
    "PSNR, dB",
    "VMAF",
    "VMAF as an opinion",
    "score",
    "by rate alone",
)


@dataclass(frozen=True)
class Point:
    """A clip encoded with one quantizer."""

    clip: str
    codec: str
    quantizer: int
    rate_bps: float
    psnr_db: float
    vmaf: float
    score: float

    @property
    def opinion(self) -> float:
        """VMAF from 20 to 100, mapped to an opinion score from 1 to 5."""
        return min(max(1.0 + (self.vmaf - 20.0) / 20.0, 1.0), 5.0)

    @property
    def by_rate(self) -> float:
        """G.1070's coding quality from the rate, which the score uses if no pictures are measured."""
        kbps = self.rate_bps / 1e3
        best_fps = min(max(5.517 + 1.29e-2 * kbps, 1.0), 30.0)
        best = 3.459 - 3.459 / (1.0 + (kbps / 178.53) ** 1.02)
        apart, width = np.log(FPS / best_fps), 1.15 + 3.55e-4 * kbps
        return float(1.0 + best * np.exp(-apart * apart / (2.0 * width * width)))


def points(clips: Sequence[Path]) -> Iterator[Point]:
    """Measure each clip with each codec at each quantizer."""
    sources: list[tuple[str, Source]] = [
        ("synthetic", Synthetic()),
        *((path.stem, Clip.of([path])) for path in clips),
    ]
    for name, source in sources:
        for codec, quantizers in CODECS.items():
            with as_options():
                ladder = encode_ladder(source, codec, SIZE, FPS, 12, qs=quantizers)
            table = ladder.table
            frames = min(table.frames, SECONDS * FPS)
            rates = dict(zip(table.qs, table.mean_rates_bps(), strict=True))
            for q in quantizers:
                whole = Fates(np.ones(frames, dtype=np.bool_))
                seen = evaluate(ladder, [q] * table.groups_in(frames), whole, with_vmaf=True)
                assert seen is not None
                psnr, coding = seen.mean_psnr_raw()[0], seen.mean_coding()
                if psnr is not None and coding is not None and seen.vmaf is not None:
                    yield Point(name, codec, q, float(rates[q]), psnr, seen.vmaf, coding)


def agreement(found: Sequence[Point]) -> str:
    """Report how well the score, and the score from the rate alone, agree with VMAF.

    It gives the rank correlation and the mean absolute difference.
    """

    def ranks(values: Sequence[float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return np.argsort(np.argsort(values)).astype(np.float64)

    vmaf = [point.opinion for point in found]
    parts = []
    for name, values in (
        ("The picture score", [point.score for point in found]),
        ("The rate score", [point.by_rate for point in found]),
    ):
        ranked = float(np.corrcoef(ranks(values), ranks(vmaf))[0, 1])
        apart = float(np.mean(np.abs(np.subtract(values, vmaf))))
        parts.append(
            f"{name} has a rank correlation (Spearman) of {ranked:.2f} with VMAF's opinion. "
            f"{name} differs from VMAF's opinion by {apart:.2f} on average."
        )
    return (
        f"{len(found)} encodings of clips were compared. For each encoding, VMAF is mapped to an opinion score from "
        f"1 to 5, *VMAF's opinion*. {' '.join(parts)}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print or write the table."""
    parser = page.options("validation.viewing_score", __doc__, TABLE)
    parser.add_argument("clips", nargs="*", type=Path, help="clips beside the built-in one")
    args = parser.parse_args(argv)
    need()
    found = list(points(args.clips))
    rows = [
        (
            *(p.clip, p.codec, str(p.quantizer), f"{p.rate_bps / 1e3:.0f}", f"{p.psnr_db:.1f}"),
            *(f"{p.vmaf:.1f}", f"{p.opinion:.2f}", f"{p.score:.2f}", f"{p.by_rate:.2f}"),
        )
        for p in found
    ]
    told = agreement(found)
    names = " ".join(path.name for path in args.clips)
    args.command = f"python -m validation.viewing_score {names} --write"
    page.show(args, TABLE, "Viewing score and VMAF", page.table(HEAD, rows), told)
    print(told)
    if args.write:
        page.put(page.DOCS / "viewing-score.md", TABLE, told)
    return 0


if __name__ == "__main__":
    page.end(main)
