"""Checkpoints: the files, the names they go by, what runs in their place, and how a run with one is set up."""
