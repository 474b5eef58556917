"""Ledgers: the sum of what all runs on one data set have spent."""
