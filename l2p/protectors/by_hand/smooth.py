"""Requirements of methods that solve for a minimiser on a model and on their settings."""

import math

import jax
import numpy as np

from l2p.base.errors import InputError
from l2p.models import GeneralizedLinear, Model


def check_smooth(method: str, model: Model) -> None:
    """Refuse a model whose gradient on a row of bounded norm is unbounded or discontinuous."""
    reason = None
    if not isinstance(model, GeneralizedLinear):
        reason = "is not a generalized linear model, whose loss depends on a row through one margin"
    elif not math.isfinite(model.lipschitz):
        reason = "has a loss whose gradient is unbounded however short the rows are"
    elif not math.isfinite(model.smoothness):
        reason = "has a loss whose gradient is discontinuous"
    if reason is not None:
        raise InputError(
            f"{method} is proved for smooth losses with bounded gradients, but {model.name} {reason}, so nothing would "
            "be guaranteed; choose model logistic or svm, or another method."
        )


def check_norm_bound(method: str, log_norm_bound: jax.Array) -> None:
    """Refuse a bound on row norms that is not positive and finite."""
    if not np.isfinite(log_norm_bound).all():
        raise InputError(
            f"{method} shrinks rows to a norm bound, which must be positive and finite, but its logarithm is "
            f"{np.asarray(log_norm_bound).tolist()}; choose a bound such as 1."
        )
