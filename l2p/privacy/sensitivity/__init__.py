"""Sensitivities: bounds on how far one row moves the result of a solver that adds no noise itself."""
