"""Tasks shared among devices, virtual ones of this machine: results do not depend on their number."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.conftest import ROOT

#: Sums of squared distances, with traced values in the function's closure, and how many devices had tasks.
SUMS = """
import json
import jax, jax.numpy as jnp
from meta_train.training.on_devices import SIDE_BY_SIDE, of_tasks

def loss(shared, key, target):
    return shared["scale"] * jnp.square(target - jax.random.normal(key, target.shape)).sum()

@jax.jit
def gradients(shared, offset, keys, targets):
    return of_tasks(jax.grad(lambda shared, *task: loss(shared, *task) + offset), shared, (keys, targets))

for num_tasks, size in ((8, 5), (6, 5), (7, 5), (8, 2 * SIDE_BY_SIDE)):
    keys = jax.random.split(jax.random.key(0), num_tasks)
    targets = jnp.linspace(0.0, 1.0, size * num_tasks).reshape(num_tasks, size)
    result = gradients({"scale": jnp.array(0.5)}, jnp.array(1.0), keys, targets)["scale"]
    print(json.dumps([len(result.sharding.device_set), result.tolist()]))
"""
#: Two outer steps on eight tasks, the second of which begins with what the first one left on the devices.
TRAINING = """
import json
import jax
from meta_train.config import Plain
from meta_train.evaluation.resolved import resolve
from meta_train.training import gradients
from meta_train.training.untrained import BUILDERS

small = {"tasks": 8, "rows": 64, "num_features": (3,), "source": "synthetic", "log_signal": (2.0, 7.0)}
config, start = Plain.of("t", "noisygd", **small), BUILDERS["noisygd"](jax.random.key(0)).replace(num_steps=4)
resolved = resolve(config.tasks, config.simulated, start)
update = gradients.compiled(config.tasks, resolved, config.learner, config.outer, config.scoring)
state = gradients.init(start)
for step in range(2):
    state, metrics = update(state, step)
print(json.dumps([leaf.ravel().tolist() for leaf in jax.tree.leaves((state.protector, metrics))]))
"""


def outputs(program, num_devices):
    """The lines that a program prints on so many virtual devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={num_devices}"
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True, timeout=600, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.long
def test_equally_many_tasks_on_each_device_give_the_same_numbers():
    alone, shared = (outputs(SUMS, count) for count in (1, 4))
    assert [count for count, _ in alone] == [1, 1, 1, 1]
    assert [count for count, _ in shared] == [4, 3, 1, 4]
    for (_, expected), (_, values) in zip(alone, shared, strict=True):
        np.testing.assert_allclose(values, expected, rtol=1e-5)


@pytest.mark.long
def test_a_training_goes_on_on_two_devices_as_on_one():
    (alone,), (shared,) = (outputs(TRAINING, count) for count in (1, 2))
    for expected, values in zip(alone, shared, strict=True):
        np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-4)
