"""A video with audio: what both worlds record about each stream."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from steadycast.emulate import emulate
from steadycast.progress import Silent
from steadycast.run import run

FALL = """
duration = "3s"
seed = 5
[topology]
shape = "dumbbell"
bottleneck = { rate = "1Mbps", delay = "20ms", queue = { kind = "droptail", limit = "60p" } }
access = { rate = "1Gbps", delay = "0ms" }
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
params.fixed = { rate = "600kbps" }
media = "synthetic"
audio = "48kbps"
repair = "auto"
[[event]]
at = "1500ms"
set = { link = "bottleneck", rate = "400kbps" }
[record]
packets = "video"
"""


def test_audio_is_measured_in_both_worlds_and_its_packets_are_no_pictures(tmp_path: Path) -> None:
    """The link carries less than what is sent from 1.5 s on.

    Its queue then grows by 200 kb/s, which is half a second of the new rate per second, so that audio is late in each
    world. In 3 s there are 150 packets of audio.
    """
    path = tmp_path / "fall.toml"
    path.write_text(FALL)
    for done in (run(path, progress=Silent()), emulate(path, progress=Silent()).run):
        world = done.summary["world"]
        audio = done.summary["flows"][0]["receivers"][0]["audio"]
        assert 1 <= audio["late_packets"] <= 75, world
        assert audio["concealed_ms_per_min"] > 0, world
        packets = done.table("packets").to_polars()
        of_audio = pl.col("stream") == "audio"
        # Parity belongs to no picture, because its block may have packets of several pictures.
        pictures = packets.filter(~pl.col("stream").is_in(["audio", "parity"]))
        mine = packets.filter(of_audio)
        assert 100 <= mine.filter(pl.col("dir") == "s").height <= 151, world
        assert mine.select(pl.col("frame").max(), pl.col("q").max()).row(0) == (-1, -1), world
        assert mine["ftype"].null_count() == mine.height, world
        assert pictures["frame"].min() >= 0, world
        assert pictures["ftype"].null_count() == 0, world
        numbers = packets.filter((pl.col("dir") == "s") & pl.col("stream").is_in(["audio", "video"]))
        assert numbers.select("stream", "seq").is_duplicated().sum() == 0, world
