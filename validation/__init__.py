"""References for the simulator: scripts for ns-2, the same scenarios for ours, two commands."""
