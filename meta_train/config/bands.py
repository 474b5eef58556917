"""Bands of budgets."""

#: Budgets are grouped in this many bands with equally many tasks: scores are reported by band, and where spending is a
#: constraint each band has its own multiplier, since each budget is a separate constraint.
BANDS = 8
