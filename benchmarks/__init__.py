"""Measurements, each a module that prints a short table and writes `benchmarks/results/NAME.json`."""
