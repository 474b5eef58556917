"""Tune many hand-designed methods at once: `python -m meta_train.tune --methods noisygd dpsgd agd --out runs/tuned`.

For each method it writes `OUT/configs/NAME.json`, meta-trains as that says in `OUT/runs/NAME`, and copies the
checkpoint to `OUT/NAME.safetensors`, where NAME is METHOD-tuned-MODEL-SOURCE: what `METHOD:tuned` stands for once it
lies in `checkpoints/`. A second call goes on where the first one stopped.
"""

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import tyro

from l2p import data
from l2p.errors import InputError
from l2p.lookup import tuned_name
from l2p.privacy.budget import Budget
from l2p.privacy.filter import default_accountant
from l2p.protectors import HAND_DESIGNED
from meta_train import meta_test
from meta_train.builders import BUILDERS
from meta_train.config import MetaConfig
from meta_train.quadratics import QUADRATICS
from meta_train.synthetic import SYNTHETIC
from meta_train.train import meta_train

#: Tables of images: their tasks keep every column and are fewer, so that an outer step takes about as long.
IMAGES = ("mnist", "digits")
#: Feature counts of other tables' tasks, as far as they have so many columns. Each is compiled for apart.
FEATURE_COUNTS = (8, 32, 104)
#: Feature counts of random quadratic problems.
QUADRATIC_COUNTS = (5, 20)
#: Runs that may take more steps (AGD's end with their budget) are cut here, where tuning them stays affordable.
MOST_STEPS = 256
#: `MetaConfig.damping` where the loss is not convex.
DAMPING = 1.0


def config_for(method: str, model: str, source: str, steps: int, seed: int = 0) -> MetaConfig:
    """How a method is tuned unless someone knows better; the accountant is the one its runs would have.

    Raises:
      InputError: there is no such method.

    >>> config_for("dpsgd", "logistic", "breast_cancer", 100).accountant
    'rdp'
    """
    if method not in HAND_DESIGNED:
        raise InputError(f"method {method!r} is not hand-designed; choose one of {', '.join(HAND_DESIGNED)}.")
    made = HAND_DESIGNED[method]
    at_one = made(Budget(1.0, 1e-8), model, 30_000)
    images = source.split(":")[0] in IMAGES
    config = MetaConfig(
        name=tuned_name(method, model, source),
        protector=method,
        source=source,
        model=model,
        # A starting point of its own is better: it averages, or takes few steps.
        coefficients=None if method in BUILDERS else 3,
        num_steps=MOST_STEPS if at_one.num_steps > MOST_STEPS else None,
        method="both",
        steps=steps,
        tasks=8 if images else 16,
        rows=512,
        num_features=None if images else feature_counts(source),
        learning_rate=0.02,
        accountant=made.accountant or default_accountant(at_one.mechanisms, at_one.sampler),
        eval_every=max(1, steps // 8),
        seed=seed,
    )
    return config if config.find_model().convex else dataclasses.replace(config, damping=DAMPING)


def feature_counts(source: str) -> tuple[int, ...]:
    """`FEATURE_COUNTS` of a table, or its number of columns where it has fewer than any; `QUADRATIC_COUNTS`."""
    if source == QUADRATICS:
        return QUADRATIC_COUNTS
    if source.startswith(SYNTHETIC):
        return FEATURE_COUNTS
    columns = data.load(source).x.shape[1]
    return tuple(count for count in FEATURE_COUNTS if count <= columns) or (columns,)


def main(
    methods: tuple[str, ...],
    out: Path,
    model: str = "logistic",
    source: tuple[str, ...] = ("adult",),
    steps: int = 240,
    seed: int = 0,
) -> None:
    """Tune each method on each source by meta-gradients and by random search, and keep the better of the two.

    Args:
      methods: names of hand-designed methods.
      out: where checkpoints, configs and what is needed to go on are written.
      model: name of the model.
      source: public data sets; one checkpoint for each.
      steps: meta-gradients; the search gets as many candidates as cost the same.
      seed: of everything.
    """
    for name in source:
        for method in methods:
            try:
                print(tune(config_for(method, model, name, steps, seed), out))
            except InputError as error:
                print(f"{method} on {name}: {error}", file=sys.stderr)


def tune(config: MetaConfig, out: Path) -> Path:
    """One method; the path of its checkpoint."""
    folder = out / "configs"
    folder.mkdir(parents=True, exist_ok=True)
    fields = {
        field.name: value
        for field in dataclasses.fields(config)
        if (value := getattr(config, field.name)) != field.default
    }
    (folder / f"{config.name}.json").write_text(json.dumps(fields, indent=2) + "\n")
    trained = meta_train(config, out / "runs" / config.name)
    meta_test.update_where_possible(trained)
    return Path(shutil.copy(trained, out))


if __name__ == "__main__":
    tyro.cli(main)
