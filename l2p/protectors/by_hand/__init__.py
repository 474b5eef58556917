"""Hand-designed methods."""
