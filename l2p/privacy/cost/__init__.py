"""Costs of queries: conversions, Renyi divergences, sampling, selection."""
