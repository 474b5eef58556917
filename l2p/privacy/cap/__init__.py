"""Limits of a run: filters, plans, and the sum of what it has spent."""
