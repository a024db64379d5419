"""Reads, runs, judges and writes a paper's experiments."""
