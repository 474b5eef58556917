"""Trained parameters of a loss of one's own, read back from the folder of its run."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import safetensors
from safetensors.numpy import load_file

from l2p.base.errors import InputError
from l2p.base.layout import path_names
from l2p.base.whole_folder import MODEL_FILE
from l2p.privacy.card.custom import is_custom


def load_params(path: str | Path, params: Any) -> Any:
    """A pytree of parameters with those that a run trained, as `Result.save` left them, in place of its own.

    Args:
      path: the folder, or its `model.safetensors`.
      params: a pytree of the structure that the loss was trained with; what was frozen stays as it is here.

    Raises:
      InputError: there is no such file, or its arrays have not their place or their shape in `params`.
    """
    path = Path(path)
    path = path / MODEL_FILE if path.is_dir() else path
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            model = (file.metadata() or {}).get("model", "")
        arrays = load_file(path)
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise InputError(
            f"{path} holds no parameters that l2p saved ({error}); name the folder of a result."
        ) from error
    if not is_custom(model):
        raise InputError(f"{path} holds a model of tables and no parameters of a loss; read it with l2p.load_model.")
    leaves, tree = jax.tree.flatten(params)
    shapes = {name: jnp.shape(leaf) for name, leaf in zip(path_names(params), leaves, strict=True) if _is_array(leaf)}
    if odd := next((name for name, array in arrays.items() if shapes.get(name) != array.shape), None):
        raise InputError(
            f"{path} holds an array {odd[:80]!r}, for which params have no place of its shape; pass params as they "
            "were passed to private_train."
        )
    named = zip(path_names(params), leaves, strict=True)
    new = [jnp.asarray(arrays[name], leaf.dtype) if name in arrays else leaf for name, leaf in named]
    return jax.tree.unflatten(tree, new)


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")
