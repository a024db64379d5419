"""One scenario in both worlds."""

from __future__ import annotations

import json
from pathlib import Path

from .conftest import steadycast


def test_both_worlds_stand_side_by_side_with_what_is_near_and_what_is_not(
    dumbbell: Path, tmp_path: Path
) -> None:
    done = steadycast(["agree", str(dumbbell), "-o", "both"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "simulated" in done.stdout
    found = json.loads((tmp_path / "both" / "agree.json").read_text())
    rows = {(row["of"], row["path"]): row for row in found["rows"]}
    video = rows["video", "throughput_bps"]
    # A fixed rate on a link with room for it is the same in any world.
    assert video["near"] is True
    assert abs(video["difference"]) < 0.08
    tcp = rows["tcp", "throughput_bps"]
    assert 1.5e6 < tcp["simulated"]["mean"] < 3.2e6
    assert 1.5e6 < tcp["emulated"]["mean"] < 3.2e6
    assert rows["link bottleneck", "queue_ms.p50"]["near"] is None
    assert (tmp_path / "both" / "agree.png").stat().st_size > 10_000
    for world in ("simulated", "emulated"):
        summary = json.loads((tmp_path / "both" / f"{world}-1" / "summary.json").read_text())
        assert summary["world"] == world
