"""Meta-training itself: where it starts, what it minimises under which constraint, and the outer loop."""
