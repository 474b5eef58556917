"""Where runs of a learned protector end beside what they reach without features, and which part puts them there.

    python -m benchmarks.run_ends                                # sets that come with packages
    L2P_TABLES=FOLDER python -m benchmarks.run_ends --tables openml:credit.g openml:mushroom openml:vehicle

Tables are read by the fold of the protector that never saw them; a third of at most 2,400 rows tests, the others are
private. 24 runs for each budget, given as log(mu N). Prints mean test losses: of the model's start, of the best
constant, and of a base rate that the whole budget buys; of the run's own start, which is the base rate that it buys, of
its end, and of its end without what it learned of features; the share of what it learned of features that would have
been best, and the loss there; and by how many standard errors the squared length of what it learned exceeds what the
filter's noise explains (`l2p.protectors.learned.retreat`), which is about 0 where all of it is noise.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from l2p.checkpoints.defaults import MODEL_OF
from l2p.checkpoints.lookup import look_up
from l2p.models import Model, find_model
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import price_list_for_mu
from l2p.privacy.events import Adjacency
from l2p.protectors import Stepwise
from l2p.run.run import Simulation, advance, start
from l2p.run.simulate import mean_loss
from l2p.tables.public import catalog
from l2p.task.rows import Rows
from meta_train.evaluation.marks import constant_loss, first_loss, loss_of_bought_rates

MOST_ROWS, RUNS, SHARES = 2400, 24, np.linspace(0.0, 1.2, 13, dtype=np.float32)
TABLES = ("breast_cancer", "digits", "diabetes")
COLUMNS = ("log(mu N)", "bought", "start", "end", "no features", "best share", "loss there", "errors")


@functools.partial(jax.jit, static_argnames=("model", "kind"))
def measured(
    protector: Stepwise, private: Rows, test: Rows, log_signals: jax.Array, model: Model, kind: str
) -> dict[str, jax.Array]:
    """What is printed of every run, f32[B, RUNS, ...]."""
    num_rows, num_features = private.x.shape

    def run(log_signal: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
        prices = price_list_for_mu("gdp", jnp.exp(log_signal) / num_rows)
        setup, noise = Setup.create(model, Adjacency.ZERO_OUT, prices, num_rows, kind), Simulation(key)
        begun, _ = start(protector, model.init(num_features), private, setup, noise)
        end, _, _ = advance(protector, begun, private, setup, noise, protector.num_steps)
        features, belief, observation = begun.state.features, end.state.projector, end.state.observation
        of_feature = model.per_param(jnp.ones(features.num_mapped)) > 0.0
        learned = jnp.where(of_feature, end.params - begun.params, 0.0)
        _, curvature = protector.projector.at_start(begun.params, observation.replace(clip_norm=None), setup)
        noised = jnp.where(of_feature, curvature * belief.variance, 0.0)
        excess = curvature @ jnp.square(learned) / noised.sum() - 1.0

        def loss(params: jax.Array) -> jax.Array:
            return mean_loss(model.params_for_raw_rows(params, features), model, test)

        rest = end.params - learned
        return {
            "bought": loss_of_bought_rates(model, private, test, setup),
            "start": loss(begun.params),
            "along": jax.vmap(lambda share: loss(rest + share * learned))(jnp.asarray(SHARES)),
            "end": loss(end.params),
            "errors": excess / jnp.sqrt(2.0 * jnp.square(noised).sum() / jnp.square(noised.sum())),
        }

    keys = jax.random.split(jax.random.key(0), RUNS)
    return jax.vmap(lambda log_signal: jax.vmap(lambda key: run(log_signal, key))(keys))(log_signals)


def parts(name: str) -> tuple[Rows, Rows]:
    """The private and the test rows of a table."""
    table = catalog.load(name)
    order = np.random.default_rng(0).permutation(len(table.y))[:MOST_ROWS]
    cut = len(order) // 3
    return tuple(
        Rows(jnp.asarray(table.x[part]), jnp.asarray(table.y[part]), jnp.ones(len(part)))
        for part in (order[cut:], order[:cut])
    )  # pyrefly: ignore


def rows_of(values: dict[str, Any], log_signals: tuple[float, ...]) -> list[str]:
    """A line for each budget."""
    means = {name: value.mean(1) for name, value in jax.device_get(values).items()}
    lines = []
    for place, log_signal in enumerate(log_signals):
        along = means["along"][place]
        losses = [means[name][place] for name in ("bought", "start", "end")] + [along[0]]
        cells = [f"{log_signal:g}", *(f"{loss:.4f}" for loss in losses), f"{SHARES[along.argmin()]:.1f}"]
        cells += [f"{along.min():.4f}", f"{means['errors'][place]:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def model_for(name: str, model: str | None = None) -> Model:
    """The model of that name for a public set's target; by default the linear one of its kind."""
    kind = catalog.kind_of(name)
    return find_model(model or MODEL_OF[kind], catalog.num_classes(name) if kind == "multiclass" else None)


def main(
    tables: tuple[str, ...] = TABLES,
    method: str = "control-universal",
    log_signals: tuple[float, ...] = (0.7, 1.4, 2.1, 2.8, 3.5, 4.2, 4.9),
) -> None:
    """Measure and print.

    Args:
      tables: public sets.
      method: a protector whose steps are a filter's, without networks.
      log_signals: budgets.
    """
    for name in tables:
        (private, test), kind, model = parts(name), catalog.kind_of(name), model_for(name)
        ran = look_up(method, model, avoid=(name,)).set_up(Budget(1.0, 1e-6))
        start_loss, constant = first_loss(model, test), constant_loss(model, test)
        print(
            f"\n{name}, {len(private.y)} rows of {private.x.shape[1]} features, {model}, by {ran.name}: "
            f"{start_loss:.4f} at the start, {constant:.4f} with the best constant\n"
        )
        print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
        values = measured(ran.protector, private, test, jnp.array(log_signals), model=model, kind=kind)
        print("\n".join(rows_of(values, log_signals)), flush=True)


if __name__ == "__main__":
    tyro.cli(main)
