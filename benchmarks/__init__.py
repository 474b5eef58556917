"""What reproduces a figure. `python -m benchmarks` times; the scripts beside it compare results."""
