"""Comparisons of methods: runs cell by cell, tables, standings, figures and the leaderboard."""
