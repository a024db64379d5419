"""The command line.

It parses arguments and prints results. The work is done by other modules, which are imported only when they are
needed. Each module is one group of commands. The help lists them in the order of these imports.
"""

# isort: off
from steadycast.cli import first, many, real, judging, results, pictures, lookup, laboratories, live  # noqa: F401

# isort: on
from steadycast.cli.base import app, main

__all__ = ["app", "main"]
