"""The received video of somebody else's network: its packet traces, and the clip that was sent over it."""
