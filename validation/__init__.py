"""What the simulator is compared with: ns-2's scripts, the same scenarios for ours, and the two commands that compare."""
