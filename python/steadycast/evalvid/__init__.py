"""The received video of another network, from its packet traces and the clip that was sent over it."""
