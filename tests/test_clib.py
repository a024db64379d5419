"""The C library's archive is complete: a program in C is built from it with pkg-config alone, and runs."""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from tests.conftest import ROOT, ran


@pytest.mark.skipif(
    os.environ.get("STEADYCAST_REQUIRE") != "all", reason="STEADYCAST_REQUIRE=all builds the archive"
)
@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="needs pkg-config")
def test_a_program_is_built_from_the_unpacked_archive_and_needs_the_library_by_its_soname(
    tmp_path: Path,
) -> None:
    # The tests of the crates have compiled the library. `cargo build -p` would compile it again, with fewer features.
    compiled = ran(["cargo", "test", "--workspace", "--locked", "--no-run"], cwd=ROOT, timeout=None)
    assert compiled.returncode == 0, compiled.stderr[-3000:]
    static = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/deps/libsteadycast.a"
    words = [sys.executable, "scripts/clib.py", "--static", static, "--out", tmp_path]
    done = ran(words, cwd=ROOT, timeout=None)
    assert done.returncode == 0, done.stderr[-3000:]
    with tarfile.open(done.stdout.split()[-1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (prefix,) = (path for path in tmp_path.iterdir() if path.is_dir())
    environment = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    flags = ran(["pkg-config", "--cflags", "--libs", "steadycast"], env=environment).stdout.split()
    program = tmp_path / "link"
    made = ran(["cc", "-std=c11", ROOT / "crates/capi/examples/link.c", *flags, "-o", program])
    assert made.returncode == 0, made.stderr
    assert "[libsteadycast.so.0.1]" in ran(["readelf", "-d", program]).stdout
    printed = ran([program, "steady"], env={**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")})
    assert printed.returncode == 0, printed.stderr
    assert len(printed.stdout.splitlines()) > 1_000


def test_the_archive_is_built_without_the_python_module_and_its_packages() -> None:
    assert "setup.py" not in ran(["make", "-n", "clib"], cwd=ROOT, check=True).stdout
    # Without site, Python finds no installed package.
    assert "--static" in ran([sys.executable, "-S", "scripts/clib.py", "--help"], cwd=ROOT, check=True).stdout
