"""References for the simulator: ns-2's scripts, the same scenarios for ours, and commands that compare them."""
