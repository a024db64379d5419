"""Judges a pair of programs, a sender and a receiver, on networks."""
