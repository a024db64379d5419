"""RFC 8593's codec as a flow's media, from the scenario file to the record."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import steadycast as sc
from steadycast.errors import UserError

SCENARIO = """
format = 1
name = "codec"
duration = "20s"

[topology]
shape = "dumbbell"
bottleneck = { rate = "4Mbps", delay = "10ms" }

[[flow]]
name = "video"
kind = "video"
controller = "fixed"
params.fixed = { rate = "800kbps" }
media = "rfc8593"
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "codec.toml"
    path.write_text(SCENARIO)
    return path


def frames_of(path: Path, *sets: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    run = sc.run(path, set=list(sets), quality=True)
    return run.summary, run.frames.to_polars().to_dicts()


def test_the_statistical_model_sends_at_the_rate_thirty_frames_a_second_and_needs_no_pixels(
    scenario: Path,
) -> None:
    summary, frames = frames_of(scenario)
    [flow] = summary["flows"]
    assert 0.76e6 < flow["throughput_bps"] < 0.82e6
    assert 560 < len(frames) < 640
    assert {frame["kind"] for frame in frames} == {"I"}
    assert all(frame["psnr_db"] is None for frame in frames if "psnr_db" in frame)
    # A frame each 1/30 s on average, never the same interval.
    times = [float(frame["ready_s"]) for frame in frames]
    gaps = {round(b - a, 6) for a, b in pairwise(times)}
    assert len(gaps) > 500


def test_frames_at_irregular_times_are_shown_at_their_mean_rate_and_a_play_out_that_adapts_knows_them(
    scenario: Path,
) -> None:
    for seed in range(1, 4):
        summary, _ = frames_of(scenario, f"seed={seed}")
        assert 28.5 < summary["flows"][0]["receivers"][0]["shown_fps"] < 30.5
        summary, _ = frames_of(scenario, f"seed={seed}", 'flow.video.playout="adaptive"')
        [receiver] = summary["flows"][0]["receivers"]
        assert 28.5 < receiver["shown_fps"] < 31.5
        assert receiver["frames"]["ok_frac"] > 0.99
        # 10 ms of path, and about 40 ms to send a frame at the rate. The minimum delay is 80 ms.
        assert 80.0 <= receiver["playout_ms"]["p95"] < 160.0


def test_the_rates_range_is_the_codecs(scenario: Path) -> None:
    summary, _ = frames_of(scenario, "flow.video.params.fixed.rate=3Mbps", "flow.video.rfc8593.r_max=1Mbps")
    [flow] = summary["flows"]
    assert 0.95e6 < flow["throughput_bps"] < 1.02e6
    assert flow["limited_by_frac"]["encoder"] > 0.9


def test_by_trace_the_sizes_are_those_of_the_sequence_between_two_rates(scenario: Path) -> None:
    # At 10 frames per second: 40 frames of 5000 B at q 2 and of 20,000 B at q 1, so 800 kb/s is between the two.
    lines = ["frame,type,q,size"]
    for frame in range(40):
        lines += [f"{frame},{'I' if frame == 0 else 'P'},{q},{size}" for q, size in ((1, 20_000), (2, 5_000))]
    (scenario.parent / "sizes.csv").write_text("\n".join(lines) + "\n")
    _, frames = frames_of(
        scenario,
        "flow.video.rfc8593.model=trace",
        "flow.video.trace=sizes.csv",
        "flow.video.encode={ fps = 10 }",
        "flow.video.rfc8593.r_max=3Mbps",
    )
    assert len(frames) == 200
    assert all(9_000 < int(frame["size_bytes"]) < 9_900 for frame in frames)
    places = [frame["clip_frame"] for frame in frames]
    assert places[:45] == [*range(40), *range(20, 25)], "the first twenty come once"


def test_what_does_not_fit_together_is_told_with_its_line(scenario: Path) -> None:
    with pytest.raises(UserError, match="the statistical model uses no frame sizes"):
        sc.run(scenario, set=["flow.video.clip=codec.toml"])
    with pytest.raises(UserError, match="has no B frames"):
        sc.run(scenario, set=["flow.video.encode={ bframes = 2 }"])
