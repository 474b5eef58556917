"""Worth of public rows to a filter, right ones and wrong ones."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from l2p.protectors.with_public_rows.warm_start import WarmStart
from l2p.run.run import run
from tests.protectors.test_public_prior import FILTER, LOGISTIC, TEST, D, rows_of, setup_of, table


def test_public_rows_help_where_noise_dominates_and_wrong_ones_are_corrected_where_it_vanishes():
    private = table(2000, 5)
    wrong = dataclasses.replace(table(200, 6), x=table(200, 6).x[:, ::-1])  # as if it were the last feature

    def end(public, epsilon):
        protector = FILTER if public is None else WarmStart(FILTER)
        setup = setup_of(epsilon, 2000)

        def excess(key):
            params = run(protector, LOGISTIC.init(D), rows_of(private), setup, key, public and rows_of(public))[0]
            return LOGISTIC.losses(params[None, :], *map(jnp.asarray, (TEST.x, TEST.y)))[0].mean()

        return np.asarray(jax.jit(jax.vmap(excess))(jax.random.split(jax.random.key(1), 8)))

    helped, alone = end(table(200, 7), 0.02), end(None, 0.02)
    assert helped.mean() < alone.mean() - 0.05
    misled, alone = end(wrong, 10.0), end(None, 10.0)
    assert misled.mean() < alone.mean() + 0.01
