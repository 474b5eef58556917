"""Checkpoints: their files and names, the controls that may replace them, and how a run with one is set up."""
