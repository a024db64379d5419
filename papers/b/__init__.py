"""Family B: ASMP by itself, against TFMCC and against PGMCC.

Bouras, Gkamas, Kioumourtzis: Adaptive Smooth Multicast Protocol for Multimedia Transmission (Wiley, 2009). Its figures
are lost; its text and tables are not.
"""

from __future__ import annotations

from papers.b.alone import B_A, B_B, B_C, B_D, B_F
from papers.b.pgmcc import B_I, B_J, B_K
from papers.b.shared import PAPER
from papers.b.tfmcc import B_E, B_G, B_H
from papers.engine.experiment import Experiment

__all__ = ["EXPERIMENTS", "PAPER"]

EXPERIMENTS: tuple[Experiment, ...] = (B_A, B_B, B_C, B_D, B_E, B_F, B_G, B_H, B_I, B_J, B_K)
