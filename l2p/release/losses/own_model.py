"""A model object of a user's own: what it computes of a row is of that row alone, and it does nothing besides."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError, first_line
from l2p.models import MODELS, Model, Softmax
from l2p.models.custom import CustomLoss
from l2p.models.linear import ELEMENTWISE, GeneralizedLinear, is_of_each
from l2p.release.losses.traced_loss import refuse_outside

#: Margins and targets out of order and each margin twice, to tell a function of each pair from one of all of them.
_PAIRS = np.linspace(-6.0, 6.0, 25)[np.arange(50) * 7 % 25], np.arange(50) % 3 % 2


def check_own(model: Model, num_features: int) -> None:
    """Refuse a model of a class that is not l2p's, if it shows rows, or gives a row otherwise beside other rows.

    Raises:
      InputError: the sentence names the function.
    """
    if type(model) in {CustomLoss, Softmax, *map(type, MODELS.values())}:
        return
    sizes = (model.num_params(num_features),), (1, num_features), (1,)
    params, x, y = (jax.ShapeDtypeStruct(size, jnp.float32) for size in sizes)
    candidates = jax.ShapeDtypeStruct((1, *params.shape), jnp.float32)
    refuse_outside([jax.make_jaxpr(model.gradients)(params, x, y), jax.make_jaxpr(model.losses)(candidates, x, y)])
    if isinstance(model, GeneralizedLinear):
        for name in ELEMENTWISE:
            _check_of_each(model, name)


def _check_of_each(model: GeneralizedLinear, name: str) -> None:
    """Refuse a function of margins and targets that is another of many pairs at once than of each; a release computes
    it of each (`l2p.models.linear`), which is not what such a model means."""
    if not is_of_each(model, name):
        raise InputError(
            f"the {name} of model {model} is no method that its class was made with, so it is not known to be computed "
            "of one row after the other; define it in the class."
        )
    of_each = getattr(model, name)
    try:
        traced = jax.make_jaxpr(of_each)(*[jax.ShapeDtypeStruct((), jnp.float32)] * 2)
    except Exception as error:  # of the user's own code, which saw no value
        raise InputError(
            f"the {name} of model {model} could not be computed of one margin and one target ({first_line(error)}), "
            "as it is for one row after the other; write it for scalars."
        ) from error
    refuse_outside([traced])
    margins, targets = (jnp.asarray(numbers, jnp.float32) for numbers in _PAIRS)
    at_once = inspect.unwrap(of_each.__func__)(model, margins, targets)
    if not np.allclose(at_once, of_each(margins, targets), rtol=1e-4, atol=1e-5, equal_nan=True):
        raise InputError(
            f"the {name} of model {model} is another for a row where others stand beside it, as by a batch's "
            "statistics, so that one row would change what others add, and no budget covers that; compute it of "
            "each margin and target alone."
        )
