"""Build the wheel, check it, and try it in a bare virtual environment and an empty folder outside the checkout.

    .venv/bin/python scripts/wheel.py                          # make wheel: build/dist
    .venv/bin/python scripts/wheel.py --portable               # for Linux with glibc 2.28 or musl, x86-64 and ARM
    .venv/bin/python scripts/wheel.py --here                   # its dependencies are taken from this environment
    .venv/bin/python scripts/wheel.py --profile quick --here   # and it is compiled quickly, to try it

The tools for the checks are in the extra `release`. Wheels for other machines are compiled with Zig and not tried.
Exit code 1: a check failed, or a command did.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import tools

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = Path(sys.executable).parent
BIN = "Scripts" if os.name == "nt" else "bin"
PORTABLE = {
    "x86_64-unknown-linux-gnu": "manylinux_2_28",
    "aarch64-unknown-linux-gnu": "manylinux_2_28",
    "x86_64-unknown-linux-musl": "musllinux_1_2",
    "aarch64-unknown-linux-musl": "musllinux_1_2",
}
"""The compiler's targets and their wheels' systems. Debian 10 and RHEL 8 have glibc 2.28."""
MOST_BYTES = 6_350_000
"""Maximum size of a wheel in bytes. It was raised from 6,250,000 when longer docstrings made a wheel with the profile
of the tests 6,266,967 bytes long."""
HOLDS = (
    "steadycast/_core.abi3.so",
    "steadycast/media/synthetic.npz",
    "steadycast/scenarios/home.toml",
    "steadycast/scenarios/networks/sets.toml",
    "steadycast/scenarios/traces/cell-load.txt",
    "steadycast/scenarios/traces/lte-synthetic.mahi",
)
SHARED = (
    "man/man1/steadycast.1",
    "steadycast/grafana/steadycast.json",
    "steadycast/prometheus/steadycast.rules.yml",
    "steadycast/systemd/steadycast-receive@.service",
    "steadycast/systemd/steadycast-send@.service",
)
"""Files in share/ of the environment that the wheel is installed into."""


def main(words: Sequence[str] | None = None) -> int:
    """Build the wheel, check it and try it. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Build the wheel, check it, and try it.")
    parser.add_argument("--profile", default="release", help="cargo's profile: release, quick or dev")
    parser.add_argument(
        "--portable", action="store_true", help="one for each kind of Linux, compiled with Zig"
    )
    parser.add_argument("--here", action="store_true", help="install nothing that this environment has")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "dist", help="the folder for the wheel")
    given = parser.parse_args(words)
    shutil.rmtree(given.out, ignore_errors=True)
    made = []
    try:
        for target in PORTABLE if given.portable else [""]:
            made.append(build(given.profile, given.out, target))
            check(made[-1])
        # The first wheel is the one for this machine.
        wheel = made[0]
        with tempfile.TemporaryDirectory(prefix="steadycast-wheel-") as folder:
            attempt(wheel, Path(folder), here=given.here)
    except subprocess.CalledProcessError as error:
        print(f"wheel: failed with code {error.returncode}: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        return 1
    except Refused as error:
        print(f"wheel: {error}", file=sys.stderr)
        return 1
    print("", *made, sep="\n")
    return 0


class Refused(Exception):  # noqa: N818 (the error is a finding about the wheel, not a fault of this program)
    """A problem of the wheel."""


def build(profile: str, out: Path, target: str) -> Path:
    """Compile the wheel, with Zig if a target is given, and return its path."""
    environment = {**os.environ, "PATH": f"{SCRIPTS}{os.pathsep}{tools.path_with_cargo()}"}
    words = ["maturin", "build", "--profile", profile, "--locked", "-o", out]
    if target:
        subprocess.run(["rustup", "target", "add", target], check=True, env=environment)
        words += ["--zig", "--target", target, "--compatibility", PORTABLE[target]]
    before = {*out.glob("*.whl")}
    subprocess.run([SCRIPTS / words[0], *words[1:]], check=True, cwd=ROOT, env=environment)
    (wheel,) = {*out.glob("*.whl")} - before
    return wheel


def check(wheel: Path) -> None:
    """Check the wheel's size, name and content, and the symbols of its module.

    Raises:
        Refused: a check failed.

    """
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / 1e6:.2f} MB, of {MOST_BYTES / 1e6:.1f} MB", flush=True)
    if size > MOST_BYTES:
        raise Refused(f"{size} bytes are more than {MOST_BYTES}")
    if "-abi3-" not in wheel.name:
        raise Refused(f"{wheel.name} is for one version of Python alone")
    names = zipfile.ZipFile(wheel).namelist()
    if lacking := [name for name in HOLDS if name not in names]:
        raise Refused(f"it lacks {', '.join(lacking)}")
    for words in (["twine", "check", "--strict"], ["check-wheel-contents"], ["abi3audit", "--strict"]):
        subprocess.run([SCRIPTS / words[0], *words[1:], wheel], check=True)


def attempt(wheel: Path, folder: Path, *, here: bool) -> None:
    """Install the wheel, and take the first steps of a new user.

    Raises:
        Refused: a step did not give the expected result.

    """
    began = time.monotonic()
    venv, empty = folder / "venv", folder / "empty"
    empty.mkdir()
    # These variables could make the new environment import modules of this one.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment["STEADYCAST_CACHE"] = str(folder / "cache")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    pip = [sys.executable, "-m", "pip", "--python", venv / BIN / "python", "install", "-q", wheel]
    if here:
        pip += ["--no-deps", "--no-index"]
        environment["PYTHONPATH"] = sysconfig.get_path("purelib")
    subprocess.run(pip, check=True, env={**environment, "PYTHONPATH": ""})
    print(f"installed in {time.monotonic() - began:.1f} s", flush=True)
    for place in SHARED:
        shared = venv / "share" / place
        if not shared.is_file() or shared.stat().st_size == 0:
            raise Refused(f"share/{place} is not installed")

    def steadycast(*words: str) -> str:
        begun = time.monotonic()
        command = [venv / BIN / "steadycast", *words]
        done = subprocess.run(
            command, check=True, cwd=empty, env=environment, stdout=subprocess.PIPE, text=True
        )
        print(f"steadycast {' '.join(words)}: {time.monotonic() - begun:.1f} s", flush=True)
        return done.stdout

    steadycast("--version")
    if "home" not in steadycast("scenarios"):
        raise Refused("the built-in scenarios are not listed")
    examined = json.loads(steadycast("doctor", "--json"))
    if not examined["works"]["run"]:
        raise Refused("doctor says that nothing can be run")
    steadycast("demo")
    expect_run(empty / "runs" / "demo")
    home = json.loads(steadycast("run", "home", "--set", "duration=10s", "--json"))
    expect_whole(home)
    if home["program"]["commit"] is not None:
        raise Refused("it says that it runs from a checkout")


def expect_run(folder: Path) -> None:
    """Check that a folder has a whole run with its report."""
    page = (folder / "report.html").read_text(encoding="utf-8")
    if "data:image/png" not in page:
        raise Refused("the report has no pictures")
    expect_whole(json.loads((folder / "summary.json").read_text(encoding="utf-8")))


def expect_whole(summary: Mapping[str, object]) -> None:
    """Check that a run is complete, and that its pictures were measured."""
    flows = summary["flows"]
    assert isinstance(flows, list)
    psnr = flows[0]["receivers"][0]["psnr_db"]["raw"]["y"]
    if not summary["complete"] or not 20 < psnr < 60:
        raise Refused(f"a run came to nothing: PSNR {psnr}")


if __name__ == "__main__":
    sys.exit(main())
