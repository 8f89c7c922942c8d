"""Objectives, the one training loop, and checkpoints."""
