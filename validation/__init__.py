"""References for the simulator: ns-2's scripts, equal scenarios for our simulator, and commands that compare both."""
