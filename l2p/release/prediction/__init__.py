"""Trained models, read back from a run and applied to new tables."""
