"""Bolt-on SGD whose batches, steps and bound of rows' lengths follow from public facts by one rule.

Constant steps without ridge or averages go a way tau, the sum of all step sizes, and one row moves their result by at
most L B tau / N, however batches are cut: L is the loss's Lipschitz constant, B bounds rows' lengths. The result is the
gradients by how long ago they were read, each with a weight that is at most that of the newest; the sensitivity is the
area of these weights, and in a direction of curvature c a weight of that age counts exp(-c age). Of all weights of one
area, most counts where all are equal up to some age: so no ridge, no average and no ball, and tau is all that is left
to choose.

Noise moves the margin of a row of length B by L B^2 tau / signal, signal = N / noise multiplier; K problems and gamma
noise on p weights divide it further. The loss grows by the square of that, at most by an eighth of it for the logistic
loss, whatever the number of features; it falls ever more slowly with tau. The rule: that noise has a standard
deviation of `MARGIN_NOISE`, and less where the signal is near `FAINT`, since the first steps there gain less than their
noise costs. Steps are 1 / beta, which overshoot nowhere, and batches as large as they can be for that.
"""

import dataclasses
import math

import jax

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import Logistic, Model
from l2p.oracle import Oracle
from l2p.privacy.cost.convert import gdp_mu
from l2p.protectors.by_hand.bolt_on import BoltOn, RowCount, noise_for, num_problems
from l2p.protectors.hand_designed import Problem
from l2p.protectors.register import hand_designed
from l2p.queries.pass_descent import check_adjacency
from l2p.task.feature_map import FeatureMap

#: Standard deviation of noise on the margin of a row of the longest length, and the signal at which it is half of that.
#: Both, and the typical length of rows, were chosen on public sets other than Adult and MNIST
#: (`benchmarks/bolt_on_default.py`).
MARGIN_NOISE, FAINT = 0.4, 20.0
#: Features, scaled to [0, 1], that make up a squared length of 1.
FEATURES_PER_UNIT = 6.0
_USUAL_BATCH = 50


@struct.dataclass
class PlannedBoltOn(BoltOn):
    """Bolt-on SGD by the rule above, for whatever is not given.

    Attributes:
      batch_size: None for batches as large as steps of 1 / beta allow; 50 where another rule sets the steps (static).
      norm_bound: None for the root of a sixth of the number of features, at least 1 (static).
      margin_noise: see above; unused where another `rule` or `step_size` sets the steps (static).
      planned_noise: noise multiplier of one problem, twice that for replaced rows (static).
    """

    batch_size: RowCount | None = struct.field(pytree_node=False, default=None)  # type: ignore[assignment]
    norm_bound: float | None = struct.field(pytree_node=False, default=None)  # type: ignore[assignment]
    margin_noise: float = struct.field(pytree_node=False, default=MARGIN_NOISE)
    planned_noise: float = struct.field(pytree_node=False, default=1.0)

    def for_table(self, model: Model, num_features: int) -> BoltOn:
        """The same with every setting a number, for rows of so many features."""
        norm_bound = self.norm_bound
        if norm_bound is None:
            norm_bound = max(1.0, math.sqrt(num_features / FEATURES_PER_UNIT))
        rows, batch_size, step_size = self.num_rows, self.batch_size, self.step_size
        if self.rule == "constant" and not step_size:
            loss, beta = self.loss(model), self.loss(model).smoothness * norm_bound**2 + self.ridge
            num_weights = (self.projected_features or num_features) + 1
            steps = beta * self._way(loss.lipschitz * norm_bound**2, num_problems(model), num_weights)
            if batch_size is None:
                batch_size = _even(rows, steps / self.num_passes)
            step_size = min(steps / (self.num_passes * -(-rows // batch_size)), 1.0) / beta
        settings = {field.name: getattr(self, field.name) for field in dataclasses.fields(BoltOn)}
        batch_size = batch_size or min(_USUAL_BATCH, rows)
        return BoltOn(**settings | {"batch_size": batch_size, "norm_bound": norm_bound, "step_size": step_size})

    def _way(self, moved: float, problems: int, num_weights: int) -> float:
        """tau, where one row moves a margin by at most `moved` * tau / N."""
        spread = problems * (num_weights + 1) ** 0.5 if self.noise == "gamma" else problems**0.5
        signal = self.num_rows / (self.planned_noise * spread)
        return self.margin_noise * signal / (1.0 + FAINT / signal) / moved

    def misfit(self) -> str | None:
        if not all(0 < number < math.inf for number in (self.margin_noise, self.planned_noise)):
            return f"adds noise of {self.margin_noise!r} to a margin, which is no standard deviation above 0"
        try:
            return self.for_table(Logistic(), 1).misfit()
        except (InputError, TypeError, ValueError, OverflowError) as error:
            return f"has settings that fit no run: {str(error).rstrip('.')}"

    def check_model(self, model: Model) -> None:
        if (reason := self.misfit()) is not None:
            raise InputError(f"the protector {reason}; choose other settings.")
        self.for_table(model, 1).check_model(model)

    def step(
        self, params: jax.Array, state: FeatureMap | tuple, oracle: Oracle
    ) -> tuple[jax.Array, FeatureMap | tuple]:
        model = oracle.setup.model
        raw = state.center.shape[0] if isinstance(state, FeatureMap) else model.num_features(params.shape[0])
        return self.for_table(model, raw).step(params, state, oracle)


def _even(rows: int, batches: float) -> int:
    """Size of a batch, such that a pass has at least so many, or N, and the last is hardly smaller than the others."""
    count = max(math.ceil(min(batches, rows)), 1)
    size = -(-rows // count)
    return size if -(-rows // size) >= count else size - 1


@hand_designed(form="rival")
def bolt_on(problem: Problem) -> PlannedBoltOn:
    """Bolt-on SGD, convex: noise once after 10 passes.

    As Wu et al. (2017), Algorithm 1, but that steps, batches and the bound of rows' lengths follow from the budget and
    the table's size. Exact Gaussian noise, or, with accountant `basic`, pure differential privacy.
    """
    check_adjacency(problem.budget.adjacency)
    noise, budget = noise_for(problem.accountant), problem.budget
    multiplier = 1.0 / (budget.epsilon if noise == "gamma" else gdp_mu(budget.epsilon, budget.delta))
    return PlannedBoltOn(problem.rows, noise=noise, planned_noise=multiplier * budget.adjacency.sensitivity_factor)
