"""Mixtures: tasks of several sources."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from meta_train.tasks.family import TaskFamily
from meta_train.tasks.mixtures import Mixture
from meta_train.tasks.sources import families, kind_of
from meta_train.tasks.synthetic import SyntheticClasses
from meta_train.tasks.targets import from_table


@pytest.mark.slow
def test_classes_come_on_demand_where_tasks_are_drawn_with_any_number():
    table = from_table(np.eye(6, dtype=np.float32), np.arange(6, dtype=np.float32), 6)
    mixture = Mixture((table, SyntheticClasses(0))).with_num_classes(12)
    assert isinstance(mixture, Mixture)
    first, second = mixture.parts
    assert (first.num_classes * first.parts, second.num_classes) == (12, 12)
    with pytest.raises(InputError, match="cannot be drawn with 3 classes"):
        families("synthetic")[0].with_num_classes(3)


@pytest.mark.long
def test_a_mixture_draws_from_each_source_that_has_the_columns():
    train, held_out = families("breast_cancer+digits:rest:3,5+synthetic")
    assert isinstance(train, Mixture)
    digits = train.parts[1]
    assert float(jnp.std(digits.x, axis=0).min()) > 0.05  # no border pixels
    kinds, draw = set(), jax.jit(lambda key: train.draw(key, 64, 8))
    for seed in range(20):
        rows = draw(jax.random.key(seed))
        pixels = np.asarray(rows.x) * 16
        kinds.add(bool(np.allclose(pixels, pixels.round(), atol=1e-4)))  # pixels are sixteenths
        assert set(np.unique(rows.y)) <= {0.0, 1.0}
    assert kinds == {True, False}
    # Breast cancer has 30 columns, the digits more.
    assert jax.eval_shape(lambda key: train.draw(key, 8, 40), jax.random.key(0)).x.shape == (8, 40)
    assert not jnp.array_equal(train.parts[0].x[:8], held_out.parts[0].x[:8])
    with pytest.raises(InputError, match="num_features"):
        train.draw(jax.random.key(0), 8, None)
    with pytest.raises(InputError, match="two kinds"):
        kind_of("adult+random_quadratics")


@pytest.mark.long
def test_every_part_of_a_mixture_lends_as_many_tasks_in_any_order():
    y = np.arange(40) % 2
    halves, ends = (TaskFamily.from_table(np.full((40, 5), value), y) for value in (0.5, 0.0))
    # Mixing or flipping columns of halves leaves halves, and none of zeros.
    draw = jax.jit(lambda key: jnp.abs(Mixture((halves, ends)).draw_several(key, 12, 8, 4).x - 0.5).max((1, 2)) < 0.1)
    drawn = np.stack([draw(jax.random.key(seed)) for seed in range(20)])
    assert (drawn.sum(1) == 6).all()
    assert len(np.unique(drawn, axis=0)) > 10
    odd = jax.jit(lambda key: Mixture((halves, ends, ends)).draw_several(key, 7, 8, 4).x)
    counts = {int((np.abs(odd(jax.random.key(seed)) - 0.5).max((1, 2)) < 0.1).sum()) for seed in range(20)}
    assert counts == {2, 3}
