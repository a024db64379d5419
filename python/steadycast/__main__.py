"""The entry point of `steadycast` and `python -m steadycast`."""

from __future__ import annotations

import sys
from contextlib import suppress

from steadycast.exits import Exit


def main() -> None:
    """Run the command line."""
    if sys.argv[1:] == ["--version"] and sys.stdout is not None:
        # Do not import `steadycast.core` here, because it would import more modules.
        from steadycast._core import __version__

        # If the version can't be printed, continue with the whole command line, which reports the reason.
        with suppress(OSError):
            print(f"steadycast {__version__}", flush=True)
            return
    try:
        from steadycast import cli, signals
    except KeyboardInterrupt:  # Ctrl-C during the imports
        raise SystemExit(Exit.INTERRUPTED) from None
    try:
        cli.main()
    finally:
        signals.over()


if __name__ == "__main__":
    main()
