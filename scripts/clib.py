"""Build the C library and pack it: build/dist/libsteadycast-VERSION-SYSTEM.tar.gz.

    python3 scripts/clib.py                  # make clib
    python3 scripts/clib.py --profile dev    # compiled quickly, to try it
    python3 scripts/clib.py --static FILE    # packs a static library that is compiled already

It uses only the standard library, and neither .venv nor the compiled module.
The archive has include/, share/doc/ and lib/ with both libraries and the file for pkg-config, to be unpacked into a
prefix such as /usr/local. The same sources and compiler give the same archive. Exit code 1: a command failed.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

import tools

ROOT = Path(__file__).resolve().parent.parent
CAPI = ROOT / "crates" / "capi"
DOCUMENTS = (CAPI / "README.md", ROOT / "CHANGELOG.md", ROOT / "LICENSE-APACHE", ROOT / "LICENSE-MIT")


def main(words: Sequence[str] | None = None) -> int:
    """Build and pack; return the exit code."""
    parser = argparse.ArgumentParser(description="Build the C library and pack it.")
    parser.add_argument("--profile", default="release", help="cargo's profile: release, quick or dev")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "dist", help="the folder for the archive"
    )
    parser.add_argument(
        "--static", type=Path, metavar="FILE", help="pack this static library, and compile nothing"
    )
    given = parser.parse_args(words)
    try:
        static = given.static or build(given.profile)
        with tempfile.TemporaryDirectory(prefix="steadycast-clib-") as folder:
            archive = pack(install(static, Path(folder)), given.out)
    except subprocess.CalledProcessError as error:
        print(f"clib: failed with code {error.returncode}: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        return 1
    print(archive)
    return 0


def build(profile: str) -> Path:
    """Compile the static library and return it."""
    command = ["cargo", "build", "-p", "steadycast-capi", "--locked", "--profile", profile]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "PATH": tools.path_with_cargo()})
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / ("debug" if profile == "dev" else profile) / "libsteadycast.a"


def install(static: Path, prefix: Path) -> Path:
    """Put all files of the archive below a prefix, and return the prefix."""
    subprocess.run(["sh", CAPI / "link.sh", static, prefix / "lib"], check=True)
    for file, folder in [
        (static, "lib"),
        (CAPI / "steadycast.pc", "lib/pkgconfig"),
        (CAPI / "include" / "steadycast.h", "include"),
        *((document, "share/doc/steadycast") for document in DOCUMENTS),
    ]:
        (prefix / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(file, prefix / folder)
    return prefix


def pack(prefix: Path, out: Path) -> Path:
    """Pack a prefix into an archive named after the version and the system; return the archive."""
    version = next(
        line.split()[1] for line in (CAPI / "steadycast.pc").read_text().splitlines() if "Version:" in line
    )
    name = f"libsteadycast-{version}-{platform.system().lower()}-{platform.machine()}"
    out.mkdir(parents=True, exist_ok=True)
    archive = out / f"{name}.tar"
    with tarfile.open(archive, "w") as tar:
        for file in sorted(path for path in prefix.rglob("*") if path.is_symlink() or path.is_file()):
            tar.add(file, f"{name}/{file.relative_to(prefix)}", filter=_anonymous)
    # Level 9 takes nine times as long as the default, for 1.5 % less.
    subprocess.run(["gzip", "-nf", archive], check=True)
    return archive.with_name(f"{archive.name}.gz")


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove the builder's name and the time, which differ between two builds."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if ".so" in entry.name else 0o644
    return entry


if __name__ == "__main__":
    sys.exit(main())
