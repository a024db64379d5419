"""The command line: parses arguments and prints results.

Each module is a group of commands; the help lists them in the order of these imports.
"""

# isort: off
from steadycast.cli import first, many, real, judging, results, pictures, lookup, laboratories, live  # noqa: F401

# isort: on
from steadycast.cli.base import app, main

__all__ = ["app", "main"]
