"""Models that proofs for smooth losses with bounded gradients do not cover, and what the refusal says of each."""

UNSUPPORTED_MODELS = {
    "hinge": "hinge has a loss whose gradient is discontinuous",
    "square": "square has a loss whose gradient is unbounded",
    "mlp": "mlp is not a generalized linear model",
}
