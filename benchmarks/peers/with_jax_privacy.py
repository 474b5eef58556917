"""jax-privacy: logistic regression by DP-SGD. Defaults are those of its example dp_logistic_regression, with one band,
which its documentation calls standard DP-SGD.

Of jax the release is the one that l2p runs on: jaxlib 0.10.2 sums some arrays wrongly on CPUs (jax issue 39103).
"""
# requires: jax-privacy==2.0.0 jax==0.10.1 jaxlib==0.10.1 scikit-learn==1.9.1 pandas==3.1.1

import harness
import jax
import jax.numpy as jnp
import numpy as np
import optax
from encoding import encoded
from jax_privacy.batch_selection import pad_to_multiple_of
from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig


def loss(params, X, y):
    return optax.sigmoid_binary_cross_entropy(X @ params["weights"] + params["bias"], y).mean()


def train(private, public, test, epsilon, seed, rate=0.5, iterations=500, batch=1000, clip=1.0) -> np.ndarray:
    X, y, X_test = encoded(private, public, test)
    plan = BandMFExecutionPlanConfig.default(
        num_bands=1,
        iterations=iterations,
        epsilon=epsilon,
        delta=1e-6,
        sampling_prob=batch / len(X),
        l2_clip_norm=clip,
        normalize_by=batch,
        noise_seed=seed,
    ).plan
    gradient = plan.clipped_grad(loss, batch_argnums=(1, 2))
    noise, optimizer = plan.noise_addition_transform, optax.sgd(rate)

    @jax.jit
    def step(params, states, X, y, padding):
        sums = gradient(params, X, y, is_padding_example=padding)
        noisy, noise_state = noise.update(sums, states[0])
        updates, optimizer_state = optimizer.update(noisy, states[1])
        return optax.apply_updates(params, updates), (noise_state, optimizer_state)

    params = {"weights": jnp.zeros(X.shape[1]), "bias": jnp.zeros(())}
    states = noise.init(params), optimizer.init(params)
    for chosen in plan.batch_selection_strategy.batch_iterator(len(X), rng=seed):
        rows = pad_to_multiple_of(chosen, 32)  # as many compilations as multiples of 32 occur
        params, states = step(params, states, X[rows], y[rows], rows == -1)
    return np.asarray(jax.nn.sigmoid(X_test @ params["weights"] + params["bias"]))


if __name__ == "__main__":
    harness.main(train)
