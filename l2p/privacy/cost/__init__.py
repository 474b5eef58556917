"""What queries cost: conversions, Renyi divergences, sampling, selection."""
