"""Rows in memory, streamed or elsewhere; maps of their features, exact sums over them, noise; and tasks."""
