"""Experiments of published papers: their statements, our measurements, and a verdict on each statement.

It is part of a checkout, not of the wheel: `steadycast reproduce` finds it there.
"""

from papers.engine.experiment import Experiment, Statement, Verdict
from papers.engine.registry import EXPERIMENTS, chosen
from papers.engine.suite import Result, main, reproduce
from papers.engine.write import list_values

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "Result",
    "Statement",
    "Verdict",
    "chosen",
    "list_values",
    "main",
    "reproduce",
]
