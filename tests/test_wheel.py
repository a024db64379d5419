"""The wheel is complete, and works without a checkout."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, ran


@pytest.mark.skipif(
    os.environ.get("STEADYCAST_REQUIRE") != "all", reason="STEADYCAST_REQUIRE=all builds the wheel"
)
def test_the_wheel_is_small_and_whole_and_a_new_user_s_first_steps_work(tmp_path: Path) -> None:
    # The tests' build of the module is reused.
    profile = Path(sys.prefix, "stamp-module").read_text().partition(" ")[0]
    words = [
        sys.executable,
        "scripts/wheel.py",
        "--here",
        "--profile",
        profile,
        "--out",
        str(tmp_path / "dist"),
    ]
    done = ran(words, cwd=ROOT, timeout=None)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert len(list((tmp_path / "dist").glob("*.whl"))) == 1


@pytest.mark.parametrize("folder", ["systemd", "grafana", "prometheus"])
def test_what_operators_need_comes_with_the_wheel(folder: str) -> None:
    # The links are to files, because maturin does not follow links to folders.
    shared = ROOT / "packaging" / "wheel" / "data" / "share" / "steadycast" / folder
    given = sorted((ROOT / "packaging" / folder).iterdir())
    assert given
    assert [(shared / each.name).resolve() for each in given] == given
    assert len(list(shared.iterdir())) == len(given)
