"""The public facts of a run: what an oracle, a protector and a price list may all know."""

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.compiled import as_one
from l2p.base.errors import InputError
from l2p.models import Model
from l2p.privacy.cost.prices import PriceList
from l2p.privacy.events import Adjacency
from l2p.privacy.units import for_units


@struct.dataclass
class Setup(struct.Struct):
    """The public facts of a run.

    Attributes:
      model: the model (static).
      adjacency: which tables are neighbours (static).
      kind: what the target is, one of `model.kinds`: declared, never read off labels (static).
      price_list: prices, the sampler they belong to, and the budget, in the accountant's own unit. A noise multiplier
        that it is asked about is over the sensitivity to one row, also where units are protected.
      num_rows: f32[], N, public by declaration: all lines of the table, whether they count or not.
      cap: f32[], what a run may spend: the accountant's budget, or infinity when meta-training measures what a
        scheduler would spend.
      rows_per_unit: the most rows of one unit that count, where units are protected; None for rows (static).
      class_weights: f32[K], what a row of each class counts, at most 1 (`l2p.privacy.class_weights`); None for all in
        full.
      in_float32: whether a release adds up float32 numbers in place of whole ones, as the user of a loss asked for;
        its noise is float64 all the same (static).
    """

    model: Model = struct.field(pytree_node=False)
    adjacency: Adjacency = struct.field(pytree_node=False)
    kind: str = struct.field(pytree_node=False)
    price_list: PriceList
    num_rows: jax.Array
    cap: jax.Array
    rows_per_unit: int | None = struct.field(pytree_node=False, default=None)
    class_weights: jax.Array | None = None
    in_float32: bool = struct.field(pytree_node=False, default=False)

    @classmethod
    def create(
        cls,
        model: Model,
        adjacency: Adjacency,
        price_list: PriceList,
        num_rows,
        kind: str | None = None,
        rows_per_unit: int | None = None,
    ) -> "Setup":
        """A setup whose cap is the accountant's budget; `kind` None is the model's own kind of target.

        Raises:
          InputError: sampled queries are priced for another adjacency, the model has no such kind of target, or prices
            are proved for single rows where units are protected.
        """
        price_list.sampler.check_adjacency(adjacency)
        if price_list.neighbours is not price_list.sampler.neighbours(adjacency):
            raise InputError(
                f"accountant {price_list.name!r} was planned for other neighbours than {adjacency}, so its prices of "
                f"{price_list.sampler} would be wrong; plan it with a budget of this adjacency."
            )
        if rows_per_unit is not None:
            price_list = for_units(price_list, rows_per_unit)
        num_rows = jnp.asarray(num_rows, jnp.float32)
        kind = model.known_kind(kind)
        return cls(model, adjacency, kind, price_list, num_rows, price_list.budget, rows_per_unit)

    @property
    def batch_rows(self) -> jax.Array:
        """f32[], how many rows a step's query is expected to read: public, unlike the size of a drawn batch."""
        return self.num_rows * self.price_list.sampler.rate()

    def charge(self, step: jax.Array) -> jax.Array:
        """i32[], number of charges before a step's: the step, or the index of its permutation epoch."""
        return step // self.price_list.sampler.steps_per_charge

    def num_charges(self, num_steps: int) -> int:
        """Number of charges in `num_steps` steps: one each, or one per permutation epoch."""
        return -(-num_steps // self.price_list.sampler.steps_per_charge)

    @property
    @as_one
    def log_signal(self) -> jax.Array:
        """f32[], log(mu N / sensitivity_factor / dilution): how well the whole budget resolves a mean over the table.

        mu is the Gaussian-DP parameter of a single Gaussian query that takes the whole budget: the noise on a mean of
        contributions bounded by 1 then has standard deviation exp(-log_signal). `Model.dilution` is 1 but for a user's
        loss.
        """
        factor = self.adjacency.sensitivity_factor * self.model.dilution
        return jnp.log(self.price_list.mu * self.num_rows / factor)
