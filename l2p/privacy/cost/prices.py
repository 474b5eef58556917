"""Prices inside a run: smooth, in float32, never below the float64 ones, with a cap on their sum.

An event's noise multiplier already accounts for sensitivity and adjacency. Every unsampled price is a coefficient over
the squared noise multiplier; a sampled Gaussian's is the Renyi divergence at one order (`l2p.privacy.cost.renyi`).
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct
from l2p.base.compiled import as_one
from l2p.base.errors import InputError
from l2p.base.root import falls_to_zero
from l2p.privacy.cost.renyi import Neighbours
from l2p.privacy.cost.sampling import FullBatch, Sampler
from l2p.privacy.events import Event

Price = TypeVar("Price", float, jax.Array)

#: With u = 2^-24, a price evaluated in float32 loses at most 8u: 2u for a multiplier cast from float64 (it is squared),
#: u for the square, 4u for a division on a GPU (u on a CPU) and u for this product. 1 + 16u covers it twice, and is a
#: constant, so the price stays smooth. The coefficient itself is rounded up when planned.
UP = 1 + 2.0**-20
#: A sampled price is not monotone to the last bits, and two compilations of it may differ by 1e-5.
SAMPLED_UP = 1 + 2.0**-14
UNIT_ERROR = 2.0**-24
# Within this range prices, noise multipliers and their derivatives (third powers) are normal float32 numbers.
# Less noise costs infinity, more noise is charged as the upper end: both err on the safe side.
_MIN_NOISE, _MAX_NOISE = 2.0**-25, 2.0**40
#: Bun et al. 2018: sinh-normal is (16 rho, tail / 8)-tCDP with rho = 1 / (2 m^2), if 1 < 1 / sqrt(rho) <= tail.
SINH_ORDERS = 8.0
#: The price f32[] of a query on a sample, from its price list, the query's mechanism and noise multiplier f32[], and
#: its price on all rows f32[], which it never exceeds.
SampledPrice = Callable[["PriceList", str, jax.Array, jax.Array], jax.Array]


@struct.dataclass
class PriceList:
    """Prices of queries, the sampler they belong to, and a cap on their sum; arrays may be stacked and vmapped.

    Made by `l2p.privacy.cap.filter.Filter.price_list`, so that price and sampler belong together.

    Attributes:
      name: the accountant's; the price's unit is its own (mu^2, rho, or the divergence at one order).
      coefficients: mechanism to f32[], the unsampled price at noise multiplier 1.
      budget: f32[], rounded down.
      order: f32[], at which divergences are counted; infinite for measures of all orders.
      sampler: which rows a step's queries read (static).
      neighbours: which divergence prices a sampled Gaussian; None without amplification (static).
      sampled_price: the accountant's price of a query on a sample, where there is amplification (static).
    """

    name: str = struct.field(pytree_node=False)
    coefficients: dict[str, jax.Array]
    budget: jax.Array
    order: jax.Array
    sampler: Sampler = struct.field(pytree_node=False, default=FullBatch())
    neighbours: Neighbours | None = struct.field(pytree_node=False, default=None)
    sampled_price: SampledPrice | None = struct.field(pytree_node=False, default=None)

    def price(
        self, event: Event, sampled: bool = False, step: jax.Array | None = None, slot: int | None = None
    ) -> jax.Array:
        """f32[], never below the true price; differentiable in the noise multiplier, infinite where that is not above
        0.

        Args:
          event: the query.
          sampled: True if the sampler draws its rows, False if it reads all of them.
          step, slot: when it is asked (no step at the start of a run), and as which query of its step; only an envelope
            uses them. Without a slot, the price does not depend on when it is asked.

        A mechanism this accountant has no theorem for raises `InputError` while tracing.
        """
        del step, slot
        multiplier = jnp.asarray(event.noise_multiplier, jnp.float32)
        if event.mechanism == "none":
            return jnp.full_like(multiplier, jnp.inf)
        coefficient = coefficient_of(self.name, self.coefficients, event.mechanism)
        noisy = multiplier >= _MIN_NOISE  # false for NaN
        # The unused side of a `where` is differentiated too, so it divides by a safe value.
        safe = jnp.minimum(jnp.where(noisy, multiplier, 1.0), _MAX_NOISE)
        price = coefficient / safe**2 * UP
        if event.mechanism == "sinh_normal":
            proved = (safe > math.sqrt(0.5) * UP) & (math.sqrt(2) * UP * safe <= event.tail)
            noisy &= proved & (SINH_ORDERS * self.order < event.tail)
        if sampled and self.neighbours is not None:
            assert self.sampled_price is not None  # accountants that cover such a sampler have this function
            price = self.sampled_price(self, event.mechanism, safe, price)
        return jnp.where(noisy, price, jnp.inf)

    @functools.partial(as_one, static=("mechanism", "sampled"))
    def noise_multiplier(
        self, cost: jax.typing.ArrayLike, mechanism: str = "gaussian", sampled: bool = False
    ) -> jax.Array:
        """f32[], the least noise multiplier whose price is at most `cost`.

        Within 1e-5 of the least unsampled, 3e-4 sampled, unless the multiplier would leave [2^-25, 2^40], to which it
        is clipped, or a sampled Gaussian's would lie below order / 40, where its price is that of a full batch.
        """
        coefficient = coefficient_of(self.name, self.coefficients, mechanism)
        cost = jnp.clip(jnp.asarray(cost, jnp.float32), coefficient * _MIN_NOISE**2, coefficient * _MAX_NOISE**2)
        # The price's own margin, and once more to cover the rounding of these two lines.
        on_all_rows = jnp.sqrt(coefficient * UP) / jnp.sqrt(cost) * UP
        if not sampled or self.neighbours is None:
            return on_all_rows
        return jnp.minimum(self._inverse(cost, mechanism), _MAX_NOISE)

    # Compiled by itself: a run over rows that stream asks outside `jit`, where every call would be traced anew.
    @functools.partial(jax.jit, static_argnames="mechanism")
    def _inverse(self, cost: jax.Array, mechanism: str) -> jax.Array:
        """Search over all multipliers, differentiated by the implicit function theorem."""

        def excess(log2_noise: jax.Array) -> jax.Array:
            price = self.price(Event(mechanism, jnp.exp2(log2_noise)), sampled=True)
            # Infinite prices (a precondition fails) exceed any cost.
            return jnp.log(jnp.minimum(price, 1e30)) - jnp.log(cost)

        def solve(_: object, guess: jax.Array) -> jax.Array:
            # Prices fall at least like the square of the noise.
            return falls_to_zero(excess, math.log2(_MIN_NOISE), math.log2(_MAX_NOISE), guess, -2 * math.log(2))

        # Where noise is large, sampling divides that of a full batch by its rate; where it is small, sampling saves
        # order / (order - 1) ln(1 / rate) of a divergence, here in the unit of prices. Between them both count.
        coefficient, rate = coefficient_of(self.name, self.coefficients, mechanism), self.sampler.rate()
        saved = 2 * coefficient * math.log(1 / rate) / (self.order - 1)
        guess = jnp.log2(coefficient * (rate**2 / cost + 1 / (cost + saved))) / 2
        root = jax.lax.custom_root(excess, guess, solve, lambda g, y: y / g(jnp.ones_like(y)))
        return jnp.exp2(root) * SAMPLED_UP

    @property
    def mu(self) -> jax.Array:
        """f32[], the signal-to-noise ratio of one Gaussian query on all rows that spends the whole budget."""
        return 1 / self.noise_multiplier(self.budget)


def coefficient_of(name: str, coefficients: Mapping[str, Price], mechanism: str) -> Price:
    """The unsampled price at noise multiplier 1; `InputError` names the accountants that have one."""
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
