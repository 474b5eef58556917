"""Several runs on private rows, one of which is chosen and paid for with the others."""
