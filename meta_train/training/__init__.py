"""Meta-training itself: starting points, objectives, constraints and the outer loop."""
