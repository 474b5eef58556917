"""What a protector achieves on tasks, at simulated budgets: scores on held-out ones, gains, and the meta-test."""
