"""A model object of a user's own: what it computes of a row is of that row alone, and it does nothing besides."""

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError
from l2p.models import MODELS, Model, Softmax
from l2p.models.custom import CustomLoss
from l2p.models.linear import GeneralizedLinear
from l2p.release.losses.traced_loss import refuse_outside

#: Functions of margins and targets, which are computed of the rows of a block at once.
_ELEMENTWISE = ("margin_loss", "residual", "curvature", "newton_curvature")
#: Margins and targets of rows that two blocks share.
_SHARED = np.linspace(-6.0, 6.0, 25), np.arange(25) % 2
#: And of those beside them: amidst them, far below and far above, so that mean, spread, median and ends differ.
_BESIDE = [(np.full(25, margin), np.full(25, target)) for margin, target in ((0.0, 0.5), (-1e3, 0.0), (1e3, 1.0))]


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
    for name in _ELEMENTWISE if isinstance(model, GeneralizedLinear) else ():
        function = getattr(model, name)
        refuse_outside([jax.make_jaxpr(function)(y, y)])
        blocks = [jnp.asarray(np.concatenate([_SHARED, beside], axis=1), jnp.float32) for beside in _BESIDE]
        first, *others = (np.asarray(function(block[0], block[1]))[: len(_SHARED[0])] for block in blocks)
        if not all(np.allclose(first, other, rtol=1e-4, atol=1e-5, equal_nan=True) for other in others):
            raise InputError(
                f"the {name} of model {model} is another for a row where others stand beside it, as by a batch's "
                "statistics, so that one row would change what others add, and no budget covers that; compute it of "
                "each margin and target alone."
            )
