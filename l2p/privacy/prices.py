"""What decides inside a run: smooth float32 prices of queries, never below the float64 ones, and a cap on their sum.

Sensitivity and adjacency are already inside an event's noise multiplier. Every unsampled price is a coefficient over
the squared noise multiplier; a sampled Gaussian's is the Renyi divergence at one order (`l2p.privacy.renyi`).
"""

import math
from collections.abc import Mapping
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from l2p import struct
from l2p.errors import InputError
from l2p.privacy.events import Event
from l2p.privacy.renyi import Neighbours, divergence
from l2p.privacy.sampling import FullBatch, Sampler

Price = TypeVar("Price", float, jax.Array)

# With u = 2^-24, a price evaluated in float32 loses at most 8u: 2u for a multiplier cast from float64 (it is squared),
# u for the square, 4u for a division on a GPU (u on a CPU) and u for this product. 1 + 16u covers it twice, and stays
# a constant, so the price remains smooth. The coefficient itself is rounded up when planned.
_UP = 1 + 2.0**-20
# A sampled price is not monotone to the last bits, and two compilations of it may differ by 1e-5.
_SAMPLED_UP = 1 + 2.0**-14
_UNIT_ERROR = 2.0**-24
# Within this range prices, noise multipliers and their derivatives (third powers) are normal float32 numbers.
# Less noise costs infinity, more noise is charged as the upper end: both err on the safe side.
_LEAST_NOISE, _MOST_NOISE = 2.0**-25, 2.0**40
#: Accountants of noise that is fixed beforehand. They price an envelope of it as a whole (`l2p.privacy.envelope`);
#: inside a run their ledger counts divergences, and only spreads the schedule.
FIXED_SCHEDULES = ("pld", "moments", "strong_composition")
#: Accountants that count in divergences; the others, where they count at an order, in divergence over order.
DIVERGENCES = ("rdp", *FIXED_SCHEDULES)
#: Bun et al. 2018: sinh-normal is (16 rho, tail / 8)-tCDP with rho = 1 / (2 m^2), if 1 < 1 / sqrt(rho) <= tail.
SINH_ORDERS = 8.0
#: Bun et al. 2018, Theorem 11: price and preconditions of a fixed-size sample.
PAPER_FACTOR, PAPER_MOST = 13.0, 0.1
#: What an objective perturbation costs of its budget: nearly all, so that with rounding there is room for one, not two.
WHOLE = 1 - 2.0**-19
# Pure mechanisms noisier than epsilon = 50 are not amplified: e^50 still fits float32.
_MOST_EPSILON = 50.0


@struct.dataclass
class PriceList:
    """Prices of queries, the sampler they belong to, and a cap on their sum; arrays may be stacked and vmapped.

    Made by `accountants.Filter.price_list`, so that price and sampler belong together.

    Attributes:
      name: the filter's; the price's unit is its own (mu^2, rho, or the divergence at one order).
      coefficients: mechanism to f32[], the unsampled price at noise multiplier 1.
      budget: f32[], rounded down.
      order: f32[], at which divergences are counted; infinite for measures of all orders.
      sampler: which rows a step's queries read (static).
      neighbours: which divergence prices a sampled Gaussian; None without amplification (static).
    """

    name: str = struct.field(pytree_node=False)
    coefficients: dict[str, jax.Array]
    budget: jax.Array
    order: jax.Array
    sampler: Sampler = struct.field(pytree_node=False, default=FullBatch())
    neighbours: Neighbours | None = struct.field(pytree_node=False, default=None)

    def price(
        self, event: Event, sampled: bool = False, step: jax.Array | None = None, slot: int | None = None
    ) -> jax.Array:
        """f32[], never below the true price; differentiable in the noise multiplier, infinite where that is no noise.

        Args:
          event: the query.
          sampled: whether the sampler draws its rows, or it reads all of them.
          step, slot: when it is asked (no step at the start of a run), and as which query of its step; only an
            envelope looks at them. Without a slot, what it would cost whenever it is asked.

        A mechanism this accountant has no theorem for raises `InputError` while tracing.
        """
        del step, slot
        multiplier = jnp.asarray(event.noise_multiplier, jnp.float32)
        if event.mechanism == "none":
            return jnp.full_like(multiplier, jnp.inf)
        coefficient = coefficient_of(self.name, self.coefficients, event.mechanism)
        noisy = multiplier >= _LEAST_NOISE  # false for NaN
        # The unused side of a `where` is differentiated too, so it divides by a safe value.
        safe = jnp.minimum(jnp.where(noisy, multiplier, 1.0), _MOST_NOISE)
        whole = coefficient / safe**2 * _UP
        if event.mechanism == "sinh_normal":
            proved = (safe > math.sqrt(0.5) * _UP) & (math.sqrt(2) * _UP * safe <= event.tail)
            noisy &= proved & (SINH_ORDERS * self.order < event.tail)
        amplified = sampled and self.neighbours is not None
        return jnp.where(noisy, self._sampled(event.mechanism, safe, whole) if amplified else whole, jnp.inf)

    def _sampled(self, mechanism: str, multiplier: jax.Array, whole: jax.Array) -> jax.Array:
        rate = self.sampler.rate()
        if self.name == "paper_13":
            rho = whole
            fits = (rho <= PAPER_MOST) & (3 * rho * (2 - jnp.log2(rho)) * _UP <= -math.log(rate))
            fits &= 4 * rho * self.order * _UP <= -math.log(rate)
            return jnp.where(fits, PAPER_FACTOR * rate**2 * rho * _UP, jnp.inf)
        per_order = 1.0 if self.name in DIVERGENCES else 1.0 / self.order
        if mechanism == "gaussian":
            assert self.neighbours is not None
            counted = divergence(multiplier, rate, self.order, self.neighbours, jnp, _UNIT_ERROR)
            return jnp.minimum(counted * per_order * _SAMPLED_UP, whole)
        if mechanism == "sinh_normal":
            return whole
        epsilon = 1 / multiplier
        less = jnp.log1p(rate * jnp.expm1(jnp.minimum(epsilon, _MOST_EPSILON)))
        counted = self.order * jnp.square(less) / 2 * per_order * _SAMPLED_UP
        return jnp.where(epsilon < _MOST_EPSILON, jnp.minimum(counted, whole), whole)

    def noise_multiplier(
        self, cost: jax.typing.ArrayLike, mechanism: str = "gaussian", sampled: bool = False
    ) -> jax.Array:
        """f32[], the least noise that `cost` pays for: its price is at most `cost`.

        Within 1e-5 of the least unsampled, 3e-4 sampled, unless the multiplier would leave [2^-25, 2^40], whose ends
        then stand for it, or a sampled Gaussian's would lie below order / 40, where its price is a full batch's.
        """
        coefficient = coefficient_of(self.name, self.coefficients, mechanism)
        cost = jnp.clip(jnp.asarray(cost, jnp.float32), coefficient * _LEAST_NOISE**2, coefficient * _MOST_NOISE**2)
        # The price's own margin, and once more to cover the rounding of these two lines.
        whole = jnp.sqrt(coefficient * _UP) / jnp.sqrt(cost) * _UP
        if not sampled or self.neighbours is None:
            return whole
        return jnp.minimum(self._inverse(cost, mechanism), _MOST_NOISE)

    def _inverse(self, cost: jax.Array, mechanism: str) -> jax.Array:
        """Bisection over all multipliers, differentiated by the implicit function theorem."""

        def excess(log2_noise: jax.Array) -> jax.Array:
            price = self.price(Event(mechanism, jnp.exp2(log2_noise)), sampled=True)
            # Infinite prices (a precondition that fails) lie on the far side of any cost.
            return jnp.log(jnp.minimum(price, 1e30)) - jnp.log(cost)

        def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            low, high = ends
            middle = (low + high) / 2
            too_dear = excess(middle) > 0
            return jnp.where(too_dear, middle, low), jnp.where(too_dear, high, middle)

        def solve(_: object, highest: jax.Array) -> jax.Array:
            return jax.lax.fori_loop(0, 28, halve, (jnp.full_like(highest, math.log2(_LEAST_NOISE)), highest))[1]

        highest = jnp.full_like(cost, math.log2(_MOST_NOISE))
        root = jax.lax.custom_root(excess, highest, solve, lambda g, y: y / g(jnp.ones_like(y)))
        return jnp.exp2(root) * _SAMPLED_UP

    @property
    def mu(self) -> jax.Array:
        """f32[], the signal-to-noise ratio of one Gaussian query on all rows that spends the whole budget."""
        return 1 / self.noise_multiplier(self.budget)


@struct.dataclass
class EnvelopePriceList(PriceList):
    """An accountant for schedules above a public lower envelope, whose price was found beforehand for all of it.

    A query noisier than its envelope is a post-processing of one that is exactly as noisy, so whatever the noise
    depends on, the run costs at most what the envelope costs. Less noise is refused, and so is a query without one.

    Attributes:
      at_start: f32[A], the least noise multiplier of each query of `init`.
      at_steps: f32[T, B], of each query of each step.
    """

    at_start: jax.Array = struct.field(kw_only=True)
    at_steps: jax.Array = struct.field(kw_only=True)

    def price(
        self, event: Event, sampled: bool = False, step: jax.Array | None = None, slot: int | None = None
    ) -> jax.Array:
        price = super().price(event, sampled)
        if slot is None:
            return price
        planned = self.at_start[None] if step is None else self.at_steps
        if event.mechanism != "gaussian" or slot >= planned.shape[1]:
            return jnp.full_like(price, jnp.inf)
        row = jnp.zeros((), jnp.int32) if step is None else step
        # Beyond the planned steps nothing is allowed.
        least = jnp.where(row < planned.shape[0], planned[jnp.minimum(row, planned.shape[0] - 1), slot], jnp.inf)
        return jnp.where(event.noise_multiplier >= least, price, jnp.inf)


@struct.dataclass
class WholePriceList(PriceList):
    """An accountant of one objective perturbation, (epsilon, delta)-private as a whole, which composes with nothing.

    Attributes:
      least: f32[], 1 / epsilon of the budget, rounded up: the least noise multiplier that is granted.
      log_delta: f32[], logarithm of the budget's delta, rounded down: the most that may be calibrated for.
      signal: f32[], mu of one Gaussian query with this budget.
    """

    least: jax.Array = struct.field(kw_only=True)
    log_delta: jax.Array = struct.field(kw_only=True)
    signal: jax.Array = struct.field(kw_only=True)

    def price(
        self, event: Event, sampled: bool = False, step: jax.Array | None = None, slot: int | None = None
    ) -> jax.Array:
        del sampled, step, slot
        multiplier = jnp.asarray(event.noise_multiplier, jnp.float32)
        if event.mechanism == "none":
            return jnp.full_like(multiplier, jnp.inf)
        coefficient_of(self.name, self.coefficients, event.mechanism)  # refuses all others
        covered = (multiplier >= self.least) & (event.log_delta <= self.log_delta)
        return jnp.where(covered, self.budget * (1 - (1 - WHOLE) / 2), jnp.inf)

    def noise_multiplier(
        self, cost: jax.typing.ArrayLike, mechanism: str = "gaussian", sampled: bool = False
    ) -> jax.Array:
        """f32[], 1 / epsilon of the budget, whatever the cost: it is all or nothing."""
        del sampled
        coefficient_of(self.name, self.coefficients, mechanism)
        return jnp.broadcast_to(self.least, jnp.shape(cost))

    @property
    def mu(self) -> jax.Array:
        return self.signal


def coefficient_of(name: str, coefficients: Mapping[str, Price], mechanism: str) -> Price:
    """The unsampled price at noise multiplier 1, or a sentence that says which accountants have one."""
    if mechanism in coefficients:
        return coefficients[mechanism]
    raise InputError(
        f"accountant {name!r} cannot price mechanism {mechanism!r}, so a run that asks it would have no guarantee; "
        f"it prices {', '.join(coefficients)}: choose another accountant (rdp prices every mechanism but objective, "
        "which takes basic) or query."
    )


def float32_down(value: float) -> np.float32:
    """The nearest float32 not above `value`."""
    rounded = np.float32(value)
    # Compared as such, `value` would be cast to float32 first.
    return rounded if float(rounded) <= value else np.nextafter(rounded, np.float32(0))


def float32_up(value: float) -> np.float32:
    """The nearest float32 not below `value`."""
    rounded = np.float32(value)
    return rounded if float(rounded) >= value else np.nextafter(rounded, np.float32(np.inf))
