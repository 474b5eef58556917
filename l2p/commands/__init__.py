"""One file per command of `l2p`: a dataclass of its options whose `run` returns the exit code."""
