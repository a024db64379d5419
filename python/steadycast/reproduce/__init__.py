"""Published experiments, run again: what the papers say, what is measured here, and a verdict on each statement."""

from steadycast.reproduce.experiment import Experiment, Statement, Verdict
from steadycast.reproduce.registry import EXPERIMENTS, chosen
from steadycast.reproduce.suite import Result, main, reproduce

__all__ = ["EXPERIMENTS", "Experiment", "Result", "Statement", "Verdict", "chosen", "main", "reproduce"]
