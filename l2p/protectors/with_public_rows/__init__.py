"""Methods that also learn from public rows, which cost nothing."""
