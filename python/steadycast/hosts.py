"""Programs on several hosts of an emulation, started by the one that the emulation itself runs.

Told the programs as JSON: ``[[host, [word, …]], …]``. It ends with the first of them, with its exit code; the others
are then asked to end, and killed when they do not.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

from steadycast.rootless import bare

PATIENCE_S = 5
"""How long a program may take to end when it is asked to."""


def space_of(host: str) -> str | None:
    """Give the file of a host's network namespace, as the emulation names it in the environment."""
    return os.environ.get("STEADYCAST_NET_" + re.sub(r"[^A-Za-z0-9]", "_", host).upper())


def start(host: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a program in the namespace of a host."""
    space = space_of(host)
    if space is None:
        print(
            f"--in {host}: no host of that name; name an end of a flow, or a node with one link",
            file=sys.stderr,
        )
        raise SystemExit(2)
    try:
        return subprocess.Popen(
            ["nsenter", f"--net={space}", "--", *bare(words)], env={**os.environ, "STEADYCAST_HOST": host}
        )
    except FileNotFoundError:
        print("nsenter is not installed; apt-get install util-linux", file=sys.stderr)
        raise SystemExit(3) from None


def end(host: str, process: subprocess.Popen[bytes]) -> None:
    """Ask a program to end, and see that it does."""
    if process.poll() is not None:
        if process.returncode:
            print(f"--in {host}: exit code {process.returncode}", file=sys.stderr)
        return
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> int:
    """Run them."""
    programs = json.loads(sys.argv[1])
    # The first one is started last: it finds the others there.
    running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def stop(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    try:
        for host, words in reversed(programs):
            running.insert(0, (host, start(host, words)))
        code = running[0][1].wait()
    finally:
        for host, process in running[1:] + running[:1]:
            end(host, process)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
