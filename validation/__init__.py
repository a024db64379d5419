"""What the simulator is compared with: scripts for ns-2, the same scenarios for ours, two commands."""
