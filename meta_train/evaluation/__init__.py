"""Results of protectors on tasks, at simulated budgets: held-out scores, gains, and the meta-test."""
