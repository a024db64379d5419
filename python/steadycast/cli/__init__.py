"""The command line: parses arguments and prints results.

The help lists the modules' commands in the order of these imports.
"""

# isort: off
from steadycast.cli import first, many, real, judging, results, pictures, lookup, laboratories, live  # noqa: F401

# isort: on
from steadycast.cli.base import app, main

__all__ = ["app", "main"]
