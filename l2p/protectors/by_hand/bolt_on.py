"""Bolt-on private SGD (Wu, Li, Kumar, Chaudhuri, Jha & Naughton, SIGMOD 2017): noise once, after passes without any."""

import math
from typing import Annotated, Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import GeneralizedLinear, Logistic, Model, find_model
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.privacy.accountants.basic import WholePriceList
from l2p.privacy.sensitivity.passes import Passes
from l2p.protectors.by_hand.smooth import check_smooth
from l2p.protectors.fields import Between, Count
from l2p.protectors.hand_designed import Problem
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.schedulers import SLACK
from l2p.queries.pass_descent import PassDescent, check_adjacency, in_one_batch_each
from l2p.run.protector import Protector
from l2p.task.feature_map import Basis, FeatureMap

#: Rows of a table or a batch, whose lines are counted in 32 bits.
RowCount = Annotated[int, Between(2**31 - 1)]


@struct.dataclass
class PassProtector(Protector):
    """Base of the methods that go through the rows in order; its settings are constants (all static).

    Params are fitted to rows shrunk to `norm_bound`, see `l2p.queries.shrunk`. A model with several classes is trained
    as one problem for each class against the rest, which share the budget.

    Attributes:
      num_rows: N, for which steps and batches are planned.
      num_passes, batch_size, rule, step_size, power, ridge, radius, averaged, order, shift: see
        `l2p.privacy.sensitivity.passes.Passes`; no radius is None.
      noise: "gaussian", or "gamma" for pure differential privacy.
      norm_bound: that rows, with their intercept column, are shrunk to.
      class_loss: loss of each class against the rest, for models with several classes.
      projected_features: dimension of a fixed random projection of the features; None leaves them.
    """

    num_rows: RowCount = struct.field(pytree_node=False)
    num_passes: Count = struct.field(pytree_node=False, default=10)
    batch_size: RowCount = struct.field(pytree_node=False, default=50)
    rule: Literal["constant", "decreasing", "square_root", "strongly_convex", "inverse_power"] = struct.field(
        pytree_node=False, default="constant"
    )
    step_size: float = struct.field(pytree_node=False, default=0.0)
    power: float = struct.field(pytree_node=False, default=0.5)
    ridge: float = struct.field(pytree_node=False, default=0.0)
    radius: float | None = struct.field(pytree_node=False, default=None)
    averaged: float = struct.field(pytree_node=False, default=0.0)
    order: Literal["fresh", "same", "with_replacement"] = struct.field(pytree_node=False, default="fresh")
    noise: Literal["gaussian", "gamma"] = struct.field(pytree_node=False, default="gaussian")
    norm_bound: float = struct.field(pytree_node=False, default=1.0)
    class_loss: Literal["logistic", "svm"] = struct.field(pytree_node=False, default="logistic")
    projected_features: Count | None = struct.field(pytree_node=False, default=None)
    shift: float = struct.field(pytree_node=False, default=0.0)
    num_steps: Count = struct.field(pytree_node=False, default=1)
    models = ("logistic", "svm", "softmax")
    adaptive_noise = False
    additive = False
    asks_once = True

    @classmethod
    def of(cls, problem: Problem, **settings: Any) -> Self:
        """The protector for these public facts, with batches of 50.

        Raises:
          InputError: the adjacency has no proof.
        """
        check_adjacency(problem.budget.adjacency)
        rows = problem.rows
        return cls(rows, batch_size=min(50, rows), **settings)

    def misfit(self) -> str | None:
        """Reason why its settings describe no run; None if they do."""
        if not 0 < self.norm_bound < math.inf:
            return f"shrinks rows to {self.norm_bound!r}, which is no length"
        try:
            self.plan(Logistic())
        except (InputError, TypeError, OverflowError) as error:
            return f"has settings that fit no run: {str(error).rstrip('.')}"
        return None

    @property
    def planned_rows(self) -> int:
        return self.num_rows

    def loss(self, model: Model) -> GeneralizedLinear:
        """The loss of each problem."""
        loss = model if isinstance(model, GeneralizedLinear) else find_model(self.class_loss)
        assert isinstance(loss, GeneralizedLinear)
        return loss

    def plan(self, loss: GeneralizedLinear) -> Passes:
        """The course of a run with this loss."""
        return Passes(
            self.num_rows,
            loss.smoothness * self.norm_bound**2,
            self.num_passes,
            self.batch_size,
            self.rule,
            self.step_size,
            self.power,
            self.ridge,
            math.inf if self.radius is None else self.radius,
            self.averaged,
            self.order,
            self.shift,
        )

    def check_model(self, model: Model) -> None:
        if isinstance(model, GeneralizedLinear):
            check_smooth("stochastic gradient descent", model)
        if (reason := self.misfit()) is not None:
            raise InputError(f"the protector {reason}; choose other settings.")

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, FeatureMap | tuple]:
        check_adjacency(oracle.setup.adjacency)
        if not self.projected_features:
            return params, ()
        model = oracle.setup.model
        features = random_projection(model.num_features(params.shape[0]), self.projected_features)
        return model.params_for_mapped_rows(params, features), features

    def view(self, state: FeatureMap | tuple) -> FeatureMap | None:
        return state if isinstance(state, FeatureMap) else None

    def finish(self, params: jax.Array, state: FeatureMap | tuple, setup: Setup) -> jax.Array:
        return setup.model.params_for_raw_rows(params, state) if isinstance(state, FeatureMap) else params


@struct.dataclass
class BoltOn(PassProtector):
    """Passes of SGD as a black box, with noise on what it returns.

    Attributes:
      tail: chance that rows drawn with replacement repeat more often than the noise covers, paid from delta; 0 where
        rows are permuted (static).
      snapshots: whether steps are variance-reduced (SVRG) (static).
    """

    tail: float = struct.field(pytree_node=False, default=0.0)
    snapshots: bool = struct.field(pytree_node=False, default=False)
    query: ClassVar[type[PassDescent]] = PassDescent

    @property
    def mechanisms(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("objective",) if self.order == "with_replacement" else (self.noise,)

    @property
    def streams(self) -> bool:
        return in_one_batch_each(self.order, self.snapshots)

    def for_table(self, model: Model, num_features: int) -> "BoltOn":
        """The same with every setting a number, for rows of so many features."""
        del model, num_features
        return self

    def check_model(self, model: Model) -> None:
        super().check_model(model)
        # Refuses steps that are too long for this loss.
        plan = self.plan(self.loss(model))
        plan.snapshot_sensitivity() if self.snapshots else plan.sensitivity(self.tail)

    def step(
        self, params: jax.Array, state: FeatureMap | tuple, oracle: Oracle
    ) -> tuple[jax.Array, FeatureMap | tuple]:
        setup, loss, (mechanism,) = oracle.setup, self.loss(oracle.setup.model), self.mechanisms
        prices = setup.price_list
        log_delta = prices.log_delta if isinstance(prices, WholePriceList) else jnp.zeros(())
        query = self.query(
            loss,
            self.plan(loss),
            params,
            oracle.noise_multiplier((1.0 - SLACK) * prices.budget, mechanism),
            log_delta if mechanism == "objective" else jnp.full((), -jnp.inf),
            num_problems(setup.model),
            self.norm_bound,
            mechanism,
            self.tail,
            self.snapshots,
        )
        return oracle.ask(query), state


def num_problems(model: Model) -> int:
    """One for a model of one margin, else one for each class."""
    return 1 if isinstance(model, GeneralizedLinear) else len(model.labels)


def random_projection(num_features: int, dimension: int) -> FeatureMap:
    """A fixed Gaussian projection f32[d, dimension] that keeps lengths on average; the same in every run, so public.

    Raises:
      InputError: there are not more features than that.
    """
    if not 0 < dimension < num_features:
        raise InputError(
            f"{num_features} features cannot be mapped to {dimension}; choose fewer than there are, or None to "
            "leave them as they are."
        )
    forward = jax.random.normal(jax.random.key(0), (num_features, dimension)) / math.sqrt(dimension)
    backward = jnp.linalg.solve(forward.T @ forward, forward.T)
    return FeatureMap(jnp.zeros(num_features), jnp.ones(()), Basis(forward, backward))


def noise_for(accountant: str | None) -> Literal["gaussian", "gamma"]:
    """The noise that a requested accountant asks for: `basic` prices pure differential privacy."""
    return "gamma" if accountant == "basic" else "gaussian"


@hand_designed(form="rival")
def bolt_on_sc(problem: Problem) -> BoltOn:
    """Bolt-on SGD, strongly convex: noise once after 10 passes.

    Algorithm 2 of Wu et al. (2017): ridge 0.001, steps of min(1 / beta, 1 / (ridge t)), iterates within 1 / ridge of 0.
    Batches and noise as `bolt_on`.
    """
    noise = noise_for(problem.accountant)
    return BoltOn.of(problem, rule="strongly_convex", ridge=1e-3, radius=1e3, noise=noise)
