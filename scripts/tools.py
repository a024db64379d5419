"""The tools outside Python and Rust that tests use: which tests need them, and how they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Tool:
    """A program that tests run."""

    command: str
    package: str  # of Debian and Ubuntu; several are separated by spaces
    use: str


TOOLS = (
    Tool("ns", "ns2", "comparison with ns-2"),
    Tool("valgrind", "valgrind", "counted instructions of a packet's hop"),
    Tool("tshark", "tshark", "captures as Wireshark reads them"),
    Tool("ffmpeg", "ffmpeg", "a standard player and sender"),
    Tool(
        "gst-launch-1.0",
        "gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-bad "
        "gstreamer1.0-libav",
        "a standard player that reports",
    ),
    Tool("promtool", "prometheus", "alerts and metrics as Prometheus reads them"),
    Tool("systemd-analyze", "systemd", "units as systemd reads them"),
    Tool("node", "nodejs", "the site's search"),
    Tool("g++", "g++", "the C library in C++"),
    Tool("go", "golang-go pkg-config", "the C library and a controller in Go"),
    Tool("chromium", "chromium", "the lab's page in a browser"),
    Tool("nginx", "nginx", "serve behind a proxy"),
    Tool("openssl", "openssl", "serve by HTTPS"),
    Tool("cc", "gcc", "a controller in C"),
    Tool("shellcheck", "shellcheck", "the action's shell"),
)
CLAIMS = (
    Tool("slurmctld", "slurmctld slurmd slurm-client munge", "a sweep as a job array"),
    Tool("iperf3", "iperf3", "a pair without pictures under judge"),
    Tool("firefox-esr", "firefox-esr", "the page of serve in Firefox"),
    Tool("tsc", "node-typescript", "a controller in TypeScript"),
)
"""Only `make claims` needs these."""


def prepare(who: str, of: Sequence[Tool]) -> None:
    """Install tools, and report which are still missing."""
    install(missing(of))
    for tool in missing(of):
        print(
            f"{who}: {tool.command} is not installed (apt-get install {tool.package}): no {tool.use}",
            flush=True,
        )


def missing(of: Sequence[Tool]) -> list[Tool]:
    """Return the tools that are not installed."""
    return [tool for tool in of if shutil.which(tool.command) is None]


def install(tools: list[Tool]) -> None:
    """Install tools with apt-get, if root. A tool whose installation fails stays missing."""
    if not tools or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    packages = [package for tool in tools for package in tool.package.split()]
    print(f"test: installing {' '.join(packages)}", flush=True)
    # In runlevel 1, packages don't start their services.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    get = ["apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"]
    quiet = {"env": environment, "check": False, "stdout": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    subprocess.run([*get, "update"], **quiet)  # type: ignore[call-overload]
    put = [*get, "install", "-y", "--no-install-recommends"]
    if subprocess.run([*put, *packages], **quiet).returncode != 0:  # type: ignore[call-overload]
        # One at a time: a package that the release lacks must not prevent the others.
        for package in packages:
            subprocess.run([*put, package], **quiet)  # type: ignore[call-overload]


def path_with_cargo() -> str:
    """Return PATH with rustup's folder at its end."""
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "bin"
    return f"{os.environ.get('PATH', '')}{os.pathsep}{home}"
