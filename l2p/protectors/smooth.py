"""What methods that solve for a minimiser ask of a model and of their settings."""

import math

import jax
import numpy as np

from l2p.errors import InputError
from l2p.models import GeneralizedLinear, Model


def check_smooth(method: str, model: Model) -> None:
    """Refuse a model whose gradient on a row of bounded norm has no bound, or may jump."""
    why = None
    if not isinstance(model, GeneralizedLinear):
        why = "is no generalized linear model, whose loss depends on a row through one margin"
    elif not math.isfinite(model.lipschitz):
        why = "has a loss whose gradient is unbounded however short the rows are"
    elif not math.isfinite(model.smoothness):
        why = "has a loss whose gradient jumps, as it must not there"
    if why is not None:
        raise InputError(
            f"{method} is proved for smooth losses with bounded gradients, but {model.name} {why}, so nothing would "
            "be guaranteed; choose model logistic or svm, or another method."
        )


def check_norm_bound(method: str, log_norm_bound: jax.Array) -> None:
    """Refuse a bound on row norms that is none."""
    if not np.isfinite(log_norm_bound).all():
        raise InputError(
            f"{method} shrinks rows to a norm bound, which must be positive and finite, but its logarithm is "
            f"{np.asarray(log_norm_bound).tolist()}; choose a bound such as 1."
        )
