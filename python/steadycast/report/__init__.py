"""The report of a run.

One page that opens with the answer, loads nothing, and reads on a phone and on paper.
"""

from steadycast.report.page import write_report
from steadycast.report.several import write_seeds_report

__all__ = ["write_report", "write_seeds_report"]
