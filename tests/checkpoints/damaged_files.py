"""Checkpoints of every class, to be damaged, and the sentences with which they are refused."""

import copy
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from l2p.base.errors import InputError
from l2p.checkpoints import lookup
from l2p.checkpoints.structure import encode
from l2p.models import Square
from l2p.privacy import Budget, Poisson
from l2p.protectors import CLASSES, HAND_DESIGNED, NormQuery, PublicGeometry
from l2p.protectors.hand_designed import logit_constant
from meta_train.training.untrained import BUILDERS

BUDGET, N, D = Budget(1.0, 1e-6), 60, 3
CARD = {"name": "mine", "models": ["logistic"], "sources": ["adult"]}
ROWS = np.random.default_rng(0).random((50, D))


def methods():
    """The first hand-designed method of each class, by name."""
    by_name = {name: method(BUDGET, num_rows=N) for name, method in HAND_DESIGNED.items()}
    first = {
        type(protector): name for name, protector in reversed(by_name.items()) if type(protector) in CLASSES.values()
    }
    of_parts = (
        "noisygd",
        "adamix_projected",
        "ngd",
        "pda_dpmd",
        "outpert",
        "dp_adambc",
        "disk",
        "noisygd_pulled",
        "dp_adam_pulled",
    )
    return {name: by_name[name] for name in (*first.values(), *of_parts)}


@functools.cache
def examples():
    """Protectors that together have every class of `CLASSES` among their parts, with all optional fields set."""
    universal, paper, kalman = (
        BUILDERS[name](jax.random.key(0)) for name in ("universal_batches", "paper", "control_retreat")
    )
    deep, control_deep = (BUILDERS[name](jax.random.key(0)) for name in ("deep", "control_deep"))
    pair, of_steps = (BUILDERS[name](jax.random.key(0)) for name in ("lstm_public", "lstm_steps"))
    norm_query = NormQuery(logit_constant(0.1), jnp.zeros(()))
    by_name = methods()
    return by_name | {
        "noisygd": by_name["noisygd"].with_purchases(PublicGeometry.of(ROWS, 2)),
        "ngd": HAND_DESIGNED["ngd"](BUDGET, Square(), N),
        "outpert": by_name["outpert"].replace(noise_multiplier=jnp.float32(3.0)),
        "paper": paper.replace(norm_query=norm_query),
        "universal": universal,
        "kalman": kalman,
        "deep": deep.replace(scheduler=control_deep.scheduler, purchases=control_deep.purchases),
        "with_public": BUILDERS["control_public"](jax.random.key(0)),
        "lstm_public": pair,
        "lstm_steps": of_steps,
    }


@functools.cache
def encoded(name):
    arrays: dict[str, np.ndarray] = {}
    return encode(examples()[name], arrays), arrays


def parts(node, path=()):
    """Every part of a structure that is an instance of a class, with the keys that lead to it."""
    if isinstance(node, dict):
        if "class" in node:
            yield node, path
        for key, item in node.items():
            yield from parts(item, (*path, key))


def write(path, structure, arrays, **card):
    card = json.dumps({**CARD, "structure": structure, **card})
    path.write_bytes(safetensors.numpy.save(arrays, {"card": card}))
    return path


def refused(path):
    """The sentence with which a file is refused."""
    with pytest.raises(InputError) as caught:
        lookup.resolve(str(path), BUDGET, "logistic")
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 600 + len(str(path))
    assert sentence.endswith(".")
    return sentence


def changed(structure, path, **fields):
    """A copy of the structure with some fields of the part at `path` changed: `static__name` or `fields__name`."""
    copied = copy.deepcopy(structure)
    part = functools.reduce(lambda node, key: node[key], path, copied)
    for name, value in fields.items():
        place, _, field = name.partition("__")
        part[place][field] = value
    return copied


def optimizer(tmp_path, name, log_scale=("learning_rate",), logit_scale=("momentum",), **hyperparameters):
    structure, arrays = encoded("auto_clip")
    arrays = {place: array for place, array in arrays.items() if "hyperparameters" not in place}
    numbers = {key: np.atleast_1d(np.float32(value)) for key, value in hyperparameters.items()}
    node = {"dict": {key: {"array": list(value.shape)} for key, value in numbers.items()}}
    static = {"static__optimizer": name, "static__log_scale": log_scale, "static__logit_scale": logit_scale}
    altered = changed(structure, ("fields", "projector"), fields__hyperparameters=node, **static)
    arrays |= {f"projector.hyperparameters.{key}": value for key, value in numbers.items()}
    return write(tmp_path / "mine.safetensors", altered, arrays)


FILES = {
    "steps": lambda path: write(path, changed(encoded("agd")[0], (), static__num_steps=-3), encoded("agd")[1]),
    "half a step": lambda path: write(path, changed(encoded("agd")[0], (), static__num_steps=2.5), encoded("agd")[1]),
    "complex": lambda path: write(
        path, encoded("agd")[0], {name: array.astype(np.complex64) for name, array in encoded("agd")[1].items()}
    ),
    "optimizer": lambda path: optimizer(path.parent, "noisy_sgd", learning_rate=0.0),
    "gone": lambda path: path,
    "sampler": lambda path: write(
        path, changed(encoded("hyfree")[0], (), static__sampler=Poisson(0.1).to_json()), encoded("hyfree")[1],
        accountant="gdp",
    ),
    "another model": lambda path: write(path, *encoded("adassp"), models=["logistic"]),
    "simulated batches": lambda path: write(path, *_batched_meta()),
}  # fmt: skip


def _batched_meta():
    structure, arrays = encoded("private_meta")
    return changed(structure, ("fields", "inner"), static__sampler=Poisson(0.1).to_json()), arrays
