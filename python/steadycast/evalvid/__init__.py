"""Evaluates video that was sent over a network outside Steadycast, from packet traces and the sent clip."""
