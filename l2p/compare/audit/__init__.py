"""Diagnostics on runs: what they gave away, and what public rows were worth. Most read private rows unpaid.

The result of a diagnostic that reads private rows is private: it belongs on no card and into nothing that is released.
"""
