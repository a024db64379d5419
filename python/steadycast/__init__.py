"""Steadycast: video over RTP that shares the network fairly with TCP, and a laboratory for it."""
