"""`steadycast`, and `python -m steadycast`: the version is told without building the command line."""

from __future__ import annotations

import sys

from steadycast.exits import Exit


def version() -> str:
    """Return the line that names program and version."""
    from steadycast._core import __version__

    return f"steadycast {__version__}"


def main() -> None:
    """Entry point."""
    if sys.argv[1:] == ["--version"]:
        print(version())
        return
    try:
        from steadycast import cli, signals
    except KeyboardInterrupt:  # before anything was begun
        raise SystemExit(Exit.INTERRUPTED) from None
    try:
        cli.main()
    finally:
        signals.over()


if __name__ == "__main__":
    main()
