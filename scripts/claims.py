"""Runs the claims: tests that take too long for `make test`.

These are Rust tests marked ``#[ignore = "claim: …"]``, Python tests marked ``@pytest.mark.claim``, the soak test, and
the integrations with other projects, which are separate workspaces.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import tools

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Run all claims; exit code 1 if one fails. With --integrations, only the integrations are compiled and linted."""
    folders = sorted((ROOT / "integrations").glob("*/"))
    if sys.argv[1:] == ["--integrations"]:
        environment = {**os.environ, "PATH": tools.path_with_cargo()}
        return int(any([integration(folder, environment, checks_of(folder)) for folder in folders]))
    tools.prepare("claims", tools.CLAIMS)
    environment = {**os.environ, "PATH": tools.path_with_cargo()}
    cargo = ["cargo", "test", "--workspace", "--exclude", "steadycast-python", "--locked", "--release"]
    rust = subprocess.run([*cargo, "--", "--ignored"], cwd=ROOT, check=False, env=environment).returncode
    integrations = [integration(folder, environment, (*LINTS, *TESTS)) for folder in folders]
    words = [sys.executable, "-m", "pytest", "-m", "claim"]
    python = subprocess.run(words, cwd=ROOT, check=False).returncode
    soak = subprocess.run([sys.executable, "-m", "validation.soak"], cwd=ROOT, check=False).returncode
    # pytest's exit code 5: no tests were collected
    return 1 if rust != 0 or soak != 0 or any(integrations) or python not in (0, 5) else 0


LINTS = (["fmt", "--check"], ["clippy", "--all-targets", "--locked", "--", "-D", "warnings"])
TESTS = (["test", "--release", "--locked"], ["test", "--release", "--locked", "--", "--ignored"])


def checks_of(folder: Path) -> Sequence[list[str]]:
    """Return the checks of `make integrations`: the lints, and the tests that run in virtual time within seconds."""
    return (*LINTS, TESTS[0]) if folder.name in ("c", "quic", "webrtc") else LINTS


def integration(folder: Path, environment: dict[str, str], checks: Sequence[list[str]]) -> bool:
    """Check an integration. Returns whether it failed. It is skipped if needed headers or tools are missing."""
    if (folder / "go.mod").exists():
        return in_go(folder, environment)
    if (folder / "pyproject.toml").exists():
        return in_python(folder, environment)
    if (folder / "CMakeLists.txt").exists():
        return in_cpp(folder, environment)
    if folder.name == "gstreamer" and not has_headers("gstreamer-1.0"):
        print("claims: integrations/gstreamer is left out (apt-get install libgstreamer1.0-dev)", flush=True)
        return False
    return any(
        subprocess.run(["cargo", *check], cwd=folder, check=False, env=environment).returncode
        for check in checks
    )


def in_go(folder: Path, environment: dict[str, str]) -> bool:
    """Check an integration in Go against the C library."""
    if shutil.which("go") is None or shutil.which("pkg-config") is None:
        print(f"claims: {folder.name} is left out (apt-get install golang-go pkg-config)", flush=True)
        return False
    found = c_library(environment)
    # Go caches test results even if the C library has changed; -count=1 prevents this.
    checks = (["vet", "./..."], ["test", "-count=1", "./..."])
    return found is None or any(
        subprocess.run(["go", *check], cwd=folder, check=False, env={**environment, **found}).returncode
        for check in checks
    )


def in_cpp(folder: Path, environment: dict[str, str]) -> bool:
    """Test an integration in C++ against the C library and the source of the stack, a package on crates.io."""
    if shutil.which("cmake") is None or shutil.which("g++") is None or not has_headers("openssl"):
        print(f"claims: {folder.name} is left out (apt-get install cmake g++ libssl-dev)", flush=True)
        return False
    needs = ["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path"]
    read = subprocess.run(
        [*needs, folder / "source" / "Cargo.toml"], check=False, env=environment, capture_output=True
    )
    if read.returncode:
        print(f"claims: {folder.name} is left out ({read.stderr.decode().strip()})", flush=True)
        return False
    packages = {each["name"]: Path(each["manifest_path"]) for each in json.loads(read.stdout)["packages"]}
    source = packages["datachannel-sys"].parent / "libdatachannel"
    found = c_library(environment)
    build = ROOT / "target" / "cpp" / folder.name
    configure = [
        "cmake",
        "-S",
        folder,
        "-B",
        build,
        "-DCMAKE_BUILD_TYPE=Release",
        f"-DLIBDATACHANNEL={source}",
    ]
    checks = (configure, ["cmake", "--build", build, "-j2"], ["ctest", "--output-on-failure"])
    build.mkdir(parents=True, exist_ok=True)
    return found is None or any(
        subprocess.run(check, cwd=build, check=False, env={**environment, **found}).returncode
        for check in checks
    )


def c_library(environment: dict[str, str]) -> dict[str, str] | None:
    """Compile the C library and install it into a folder.

    Returns the environment variables with which it is found there.
    """
    prefix = ROOT / "target" / "installed"
    command = ["cargo", "build", "-q", "-p", "steadycast-capi", "--release", "--locked"]
    if subprocess.run(command, cwd=ROOT, check=False, env=environment).returncode:
        return None
    library = "libsteadycast.dylib" if sys.platform == "darwin" else "libsteadycast.so"
    for source, place in (
        (ROOT / "crates/capi/include/steadycast.h", "include"),
        (ROOT / "crates/capi/steadycast.pc", "lib/pkgconfig"),
        (ROOT / "target/release" / library, "lib"),
    ):
        (prefix / place).mkdir(parents=True, exist_ok=True)
        shutil.copy(source, prefix / place)
    return {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig"), "LD_LIBRARY_PATH": str(prefix / "lib")}


def in_python(folder: Path, environment: dict[str, str]) -> bool:
    """Test an integration in Python, in an environment that adds its requirements to this one's packages."""
    place = ROOT / "target" / "python" / folder.name
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
    ours = f"{sysconfig.get_path('purelib')}\n{ROOT / 'python'}\n{folder}\n"
    inside = place / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (inside / "steadycast.pth").write_text(ours)
    needs = (folder / "requirements.txt").resolve()
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", needs]
    if subprocess.run(install, check=False).returncode:
        print(f"claims: {folder.name} is left out (pip install -r {needs})", flush=True)
        return False
    test = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={folder}", "tests"]
    return bool(subprocess.run(test, cwd=folder, check=False, env=environment).returncode)


def has_headers(library: str) -> bool:
    """Whether the headers of a C library are installed."""
    found = shutil.which("pkg-config") is not None
    return found and subprocess.run(["pkg-config", "--exists", library], check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
