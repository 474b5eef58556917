"""One noised gradient a step: schedulers, projectors, and what is bought before the first step."""
