"""A private run from data to result: prepared once, executed, certified, verified; and predictions with it."""
