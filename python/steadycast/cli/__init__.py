"""The command line.

It reads arguments and prints results; the work is done elsewhere, and imported only when it is needed.
Each module is one group of commands, which the help lists in the order of these imports.
"""

# isort: off
from steadycast.cli import first, many, real, judging, results, pictures, lookup, laboratories, live  # noqa: F401

# isort: on
from steadycast.cli.base import app, main

__all__ = ["app", "main"]
