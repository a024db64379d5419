"""Set up what the commands of the Makefile need: `.venv` with its packages, and the compiled module.

    python3 scripts/setup.py            # what `make demo` needs: only the simulator, compiled quickly
    python3 scripts/setup.py --all      # and the part for real time; a command that needs it calls this
    python3 scripts/setup.py --release  # all of it, compiled as in a wheel
    python3 scripts/setup.py --dev      # and the packages of the tests
    python3 scripts/setup.py --test     # the packages of the tests, and the module compiled like the tests

It uses only the standard library and needs no root. Each step stores a hash of its inputs in .venv, and is skipped if
they are unchanged. An installed module is kept if it has at least the requested features and speed. Packages come
from the index that pip is configured for.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
CONSTRAINTS = ROOT / "scripts" / "constraints.txt"
MODULE = ROOT / "python" / "steadycast" / "_core.abi3.so"
BUILD = ("maturin",)  # the only development tool that is needed for building


class Build(NamedTuple):
    """One way to compile the module."""

    profile: str
    """Cargo's profile."""
    part: str = "all"
    """The part of the module that is compiled: "all", or only the "simulator"."""

    def arguments(self) -> list[str]:
        """Return maturin's arguments for this build."""
        # Features on the command line replace those of pyproject.toml.
        alone = ["--no-default-features", "--features", "pyo3/extension-module"]
        return ["--profile", self.profile, "--locked", *(alone if self.part == "simulator" else ())]


RELEASE, TESTS, WHOLE, SIMULATOR = Build("release"), Build("dev"), Build("setup"), Build("setup", "simulator")
SERVES: dict[str, tuple[Build, ...]] = {
    "": (SIMULATOR, WHOLE, TESTS, RELEASE),
    "--all": (WHOLE, TESTS, RELEASE),
    "--release": (RELEASE,),
    "--dev": (RELEASE,),
    "--test": (TESTS, RELEASE),
}
"""The build that each option makes, and others that satisfy it."""


class SetupError(Exception):
    """A missing requirement and its remedy."""


def main(words: list[str]) -> int:
    """Set up everything. The exit code is 3 if a tool is missing, 2 for an unknown option, and 1 if a step failed."""
    option = words[0] if words else ""
    if option not in SERVES or len(words) > 1:
        print(f"set-up: {' '.join(words)}: there is no such option; see scripts/setup.py", file=sys.stderr)
        return 2
    builds = SERVES[option]
    try:
        environment = with_cargo()
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        make_venv()
        install([each for each in project["optional-dependencies"]["dev"] if each.startswith(BUILD)], "build")
        with compiling(environment, builds[0]):
            install(*needed(project, dev=option in ("--dev", "--test")))
        build(environment, builds)
    except SetupError as error:
        print(f"set-up: {error}", file=sys.stderr)
        return 3
    except subprocess.CalledProcessError as error:
        print(f"set-up: failed: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        return 1
    return 0


def with_cargo() -> dict[str, str]:
    """Return the environment with cargo on its PATH.

    Raises:
        SetupError: there is no Rust toolchain, or it is too old, or it has no linker.

    """
    environment = dict(os.environ)
    # rustup adds this folder to the PATH of later shells only.
    if shutil.which("cargo") is None:
        home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "bin"
        environment["PATH"] = f"{environment.get('PATH', '')}{os.pathsep}{home}"
    cargo = shutil.which("cargo", path=environment["PATH"])
    wanted = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
    get = f"install Rust {wanted} or newer, for example by https://rustup.rs"
    if cargo is None:
        raise SetupError(f"cargo is not installed; {get}")
    said = subprocess.run(
        ["rustc", "--version"], capture_output=True, text=True, env=environment, check=False
    )
    found = re.match(r"rustc (\d+)\.(\d+)", said.stdout)
    if found is None:
        raise SetupError(
            f"rustc does not say its version ({said.stderr.strip() or said.stdout.strip()}); {get}"
        )
    if (int(found[1]), int(found[2])) < tuple(int(part) for part in wanted.split(".")[:2]):
        raise SetupError(f"Rust {found[1]}.{found[2]} is too old; {get} (rustup update)")
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        raise SetupError("there is no C linker, which Rust needs; install gcc (Debian: build-essential)")
    return environment


def make_venv() -> None:
    """Make `.venv` with pip, which is downloaded if Debian's Python lacks ensurepip."""
    if PYTHON.exists() and run_quietly([PYTHON, "-m", "pip", "--version"]):
        return
    print("set-up: making .venv")
    shutil.rmtree(VENV, ignore_errors=True)
    if run_quietly([sys.executable, "-m", "venv", VENV]):
        return
    # The failed attempt may have left an incomplete environment.
    shutil.rmtree(VENV, ignore_errors=True)
    if not run_quietly([sys.executable, "-m", "venv", "--without-pip", VENV]):
        raise SetupError(
            f"{sys.executable} can't make a virtual environment (Debian: apt-get install python3-venv)"
        )
    if run_quietly([sys.executable, "-m", "pip", "--python", PYTHON, "install", "-q", "pip"]):
        return
    fetch_pip()


def fetch_pip() -> None:
    """Install pip from its wheel on the index.

    Raises:
        SetupError: it can't be downloaded.

    """
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/") + "/pip/"
    try:
        with urllib.request.urlopen(index, timeout=60) as page:
            links = re.findall(r'href="([^"]+/pip-[\d.]+-py3-none-any\.whl[^"]*)"', page.read().decode())
        with tempfile.TemporaryDirectory() as folder:
            url = urllib.parse.urljoin(index, links[-1].replace("&amp;", "&"))
            wheel = Path(folder) / Path(urllib.parse.urlparse(url).path).name
            with urllib.request.urlopen(url, timeout=60) as source:
                wheel.write_bytes(source.read())
            subprocess.run([PYTHON, f"{wheel}/pip", "install", "-q", wheel], check=True)
    except (OSError, IndexError) as error:
        remedy = "install python3-venv (Debian, Ubuntu) or check the network"
        raise SetupError(f"pip can't be fetched from {index} ({error}); {remedy}") from None


def needed(project: dict[str, Any], *, dev: bool) -> tuple[list[str], str, str]:
    """Return the packages of pyproject.toml, the name of their stamp file, and their description."""
    if not dev:
        return project["dependencies"], "run", "packages"
    extras: dict[str, list[str]] = project["optional-dependencies"]
    # No test uses downloaded clips.
    every = [*project["dependencies"], *(each for name in extras if name != "clips" for each in extras[name])]
    return every, "dev", "packages of the tests"


def install(packages: list[str], name: str, label: str = "") -> None:
    """Install packages at the constraints' versions, unless the stamp file shows that they are installed."""
    stamp = VENV / f"stamp-{name}"
    made_from = digest([CONSTRAINTS], *packages, sys.version)
    if stamp.exists() and stamp.read_text() == made_from:
        return
    if label:
        print(f"set-up: installing {label}", flush=True)
    # Most of the files are never imported, so compiling them first would take longer.
    words = ["install", "-q", "--disable-pip-version-check", "--no-compile", "-c", CONSTRAINTS, *packages]
    subprocess.run([PYTHON, "-m", "pip", *words], check=True)
    stamp.write_text(made_from)


@contextmanager
def compiling(environment: dict[str, str], how: Build) -> Iterator[None]:
    """Compile the module for the first time while packages are installed. Errors are reported by `build`."""
    if MODULE.exists():
        yield
        return
    print("set-up: compiling the module while packages are installed (a minute or more)", flush=True)
    with tempfile.TemporaryDirectory() as wheels:
        words = [VENV / "bin" / "maturin", "build", *how.arguments(), "-o", wheels]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(words, cwd=ROOT, env=for_maturin(environment), **quiet) as cargo:
            try:
                yield
            except BaseException:
                cargo.terminate()
                raise


def for_maturin(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment in which maturin builds for `.venv`."""
    own = {**environment, "VIRTUAL_ENV": str(VENV), "PIP_CONSTRAINT": str(CONSTRAINTS)}
    own |= {"PATH": f"{VENV / 'bin'}{os.pathsep}{environment['PATH']}"}
    own |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_QUIET": "1"}
    own.pop("CONDA_PREFIX", None)
    return own


def build(environment: dict[str, str], builds: Sequence[Build]) -> None:
    """Compile and install the module with the first of these builds, unless it was installed by any of them."""
    sources = [ROOT / name for name in ("Cargo.toml", "Cargo.lock", "pyproject.toml")]
    inside = (path for path in (ROOT / "crates").rglob("*") if path.suffix in (".rs", ".toml"))
    sources += (path for path in inside if "tests" not in path.relative_to(ROOT).parts)
    stamp = VENV / "stamp-module"
    made_from = digest(sources, str(ROOT))
    fresh = [" ".join([*each, made_from]) for each in builds]
    if MODULE.exists() and stamp.exists() and stamp.read_text() in fresh:
        return
    print("set-up: building and installing the module", flush=True)
    words = [VENV / "bin" / "maturin", "develop", *builds[0].arguments()]
    subprocess.run(words, check=True, cwd=ROOT, env=for_maturin(environment))
    stamp.write_text(fresh[0])


def digest(files: Iterable[Path], *texts: str) -> str:
    """Return a hash of files, with their names, and of texts."""
    total = hashlib.sha256()
    for path in sorted(files):
        total.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    total.update("\0".join(texts).encode())
    return total.hexdigest()


def run_quietly(words: list[str | Path]) -> bool:
    """Run a command without output; return whether it succeeds."""
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
