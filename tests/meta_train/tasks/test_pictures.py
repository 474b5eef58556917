"""Synthetic images and signals."""

import jax
import numpy as np
import pytest

from l2p.base.errors import InputError
from meta_train.tasks import sources
from meta_train.tasks.pictures import Pictures

KEY = jax.random.key(3)


def test_sources_name_images_and_signals_by_the_number_of_their_classes():
    train, held_out = sources.families("synthetic:images:7")
    assert (train, held_out) == (Pictures(0, 7), Pictures(1, 7))
    assert sources.families("synthetic:signals:4")[0] == Pictures(0, 4, along_a_line=True)
    assert sources.class_counts("synthetic:images:7") == {7}
    assert sources.kind_of("synthetic:images:2") == "binary"
    assert sources.class_counts("synthetic:images:2") == set()
    assert sources.families("synthetic:images:2")[0] == Pictures(0, 2)
    with pytest.raises(InputError, match="how many classes"):
        sources.families("synthetic:images:1")


def test_images_that_are_not_square_are_refused():
    with pytest.raises(InputError, match="not square"):
        Pictures(0, 3).draw(KEY, 10, 60)


@pytest.mark.long
@pytest.mark.parametrize("along_a_line", [False, True])
def test_rows_of_a_class_are_alike_and_tasks_of_two_streams_differ(along_a_line):
    family = Pictures(0, 4, along_a_line)
    draw = jax.jit(lambda family, key: family.draw(key, 400, 36), static_argnums=0)
    within, between = [], []
    for seed in range(8):
        rows = draw(family, jax.random.fold_in(KEY, seed))
        assert rows.x.shape == (400, 36)
        assert ((rows.x >= 0.0) & (rows.x <= 1.0)).all()
        assert set(np.unique(rows.y)) == {0.0, 1.0, 2.0, 3.0}
        means = np.stack([rows.x[rows.y == label].mean(0) for label in range(4)])
        within.append(np.mean([np.var(rows.x[rows.y == label], axis=0).mean() for label in range(4)]))
        between.append(np.var(means, axis=0).mean())
    # Classes differ by far more than means of a hundred rows would by chance.
    assert (np.array(between) > 5 * np.array(within) / 100).all()
    assert not (draw(Pictures(1, 4, along_a_line), KEY).x == draw(family, KEY).x).all()
