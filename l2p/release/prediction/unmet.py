"""Substitutes for cells that no row of a table held, as far as a released feature mean tells.

A weight that no row trains is noise of the run alone, and would move the prediction for a cell that training never met.
So such a value of a category counts as the average of the values that were met, and an indicator of missing or
undeclared cells as 0. All of it follows from the schema and from paid answers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from l2p.models import Model
from l2p.tables.schema.columns import Category
from l2p.tables.schema.names import names_of, size_of
from l2p.tables.schema.schema import Schema
from l2p.task.feature_map import Basis, FeatureMap

#: A sum of less than so many standard deviations of its noise does not show that any row filled a column.
DOUBT = 3.0


class FeatureSums(NamedTuple):
    """Sums of the encoded features over rows that were clipped to one length, with noise.

    Attributes:
      values: f[d].
      noise_std: of the noise in each.
    """

    values: np.ndarray
    noise_std: float


def indicators(schema: Schema) -> tuple[str, ...]:
    """The encoded features that indicate missing or undeclared cells."""
    columns = schema.columns
    return tuple(
        name for column in schema.features for name in names_of(column, columns[column])[size_of(columns[column]) :]
    )


def without_unmet(params: jax.Array, model: Model, schema: Schema, sums: FeatureSums) -> jax.Array:
    """Params f32[p] under which cells that no row held count as in `counted_as`.

    Args:
      params: of a model that was trained on rows that `schema` encodes.
      model: the model.
      schema: the declaration.
      sums: released by its run.
    """
    features = counted_as(schema, sums)
    if (features == np.eye(len(features))).all():
        return params
    turned = jnp.asarray(features, jnp.float32)
    return model.params_for_raw_rows(params, FeatureMap(jnp.zeros(len(features)), jnp.ones(()), Basis(turned, turned)))


def counted_as(schema: Schema, sums: FeatureSums) -> np.ndarray:
    """Substitution of encoded features, f64[d, d]: x becomes x @ counted_as; the identity where no cell is in doubt.

    >>> from l2p.tables.schema import Missing, Target
    >>> ward = Schema({"eye": Category(("b", "g", "x"), missing=Missing(indicator=True))}, Target("back", (0, 1)))
    >>> counted_as(ward, FeatureSums(np.array([3000.0, 1000.0, 2.0, -1.0]), 1.0)).round(2).tolist()
    [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.75, 0.25, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """
    values = np.asarray(sums.values, np.float64)
    matrix, start = np.eye(len(values)), 0
    for name in schema.features:
        column = schema.columns[name]
        size, end = size_of(column), start + len(names_of(name, column))
        if isinstance(column, Category) and not column.ordered:
            place = slice(start, start + size)
            matrix[place, place] = _values_counted_as(column, values[place], sums.noise_std)
        for place in range(start + size, end):
            matrix[place, place] = float(values[place] >= DOUBT * sums.noise_std)
        start = end
    return matrix


def _values_counted_as(column: Category, sums: np.ndarray, noise_std: float) -> np.ndarray:
    """Substitution of the values of a category, f64[k, k].

    A value counts as unmet if its sum is below the limit although its declared share makes twice the limit expected. If
    rows do hold it as often, that errs once in 700 times.
    """
    expected = np.array(column.average) * sums.sum()
    unmet = (sums < DOUBT * noise_std) & (expected > 2.0 * DOUBT * noise_std)
    met = np.where(unmet, 0.0, np.maximum(sums, 0.0))
    if not unmet.any() or not met.sum() > 0:
        return np.eye(len(sums))
    return np.where(unmet[:, None], met / met.sum(), np.eye(len(sums)))
