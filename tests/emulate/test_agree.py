"""One scenario in both worlds."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from steadycast.errors import MissingError
from steadycast.world_agreement import agree

from tests.conftest import Claimed

from .conftest import steadycast


def test_both_worlds_stand_side_by_side_with_what_is_near_and_what_is_not(
    dumbbell: Path, tmp_path: Path, claimed: Claimed
) -> None:
    done = steadycast(["agree", str(dumbbell), "-o", "both"], tmp_path, code=0)
    assert "simulated" in done.stdout
    found = json.loads((tmp_path / "both" / "agree.json").read_text())
    rows = {(row["of"], row["path"]): row for row in found["rows"]}
    video, tcp = rows["video", "throughput_bps"], rows["tcp", "throughput_bps"]
    assert 1.5e6 < tcp["simulated"]["mean"] < 3.2e6
    assert rows["tcp", "rate_cov"]["near"] is None
    median = rows["video", "second_bps.p50"]
    assert median["near"] is (abs(median["difference"]) <= median["aim"])
    assert abs(median["simulated"]["mean"] / video["simulated"]["mean"] - 1) < 0.1
    assert 0 <= rows["link bottleneck", "lossy_second_frac"]["emulated"]["mean"] <= 1
    for figure in ("agree.png", "agree-seconds.png"):
        assert (tmp_path / "both" / figure).stat().st_size > 10_000
    summaries = {
        world: json.loads((tmp_path / "both" / f"{world}-1" / "summary.json").read_text())
        for world in ("simulated", "emulated")
    }
    assert [summary["world"] for summary in summaries.values()] == [*summaries]
    assert found["complete"] is True
    (tmp_path / "both" / "old").touch()
    wrong = steadycast(["agree", str(dumbbell), "-o", "both", "--force", "--set", "nothing=1"], tmp_path)
    assert (wrong.returncode, (tmp_path / "both" / "old").exists()) == (2, True), wrong.stderr
    again = agree(dumbbell, set=["duration=2s"], out=tmp_path / "both", force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both", "short.toml"]
    assert not (tmp_path / "both" / "old").exists()
    for world in ("simulated", "emulated"):
        assert again.runs[world][0].folder == tmp_path / "both" / f"{world}-1"
    with claimed(trusted=summaries["emulated"]["emulation"]["trustworthy"]):
        # A fixed rate below the link's capacity is the same in both worlds.
        assert video["near"] is True
        assert abs(video["difference"]) < 0.08
        assert 1.5e6 < tcp["emulated"]["mean"] < 3.2e6


def test_without_the_rights_nothing_is_simulated(dumbbell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise MissingError("emulate", "may not", "be root")

    # By its full name, because the package exports a function of the same name as its module.
    module = sys.modules["steadycast.world_agreement"]
    monkeypatch.setattr(module, "need_rights", refused)
    monkeypatch.setattr(module, "run", None)
    with pytest.raises(MissingError):
        agree(dumbbell)
