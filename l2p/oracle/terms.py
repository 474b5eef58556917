"""Queries that a protector may ask, checked before its query is priced."""

import dataclasses
from collections.abc import Sequence

from l2p.base.errors import InputError
from l2p.oracle.setup import Setup
from l2p.privacy import class_weights
from l2p.privacy.events import Event
from l2p.queries.base import Query
from l2p.task.rows import Rows


@dataclasses.dataclass(frozen=True)
class Terms:
    """Queries that a protector may ask in a step, and public rows that it reads for nothing.

    Attributes:
      public: rows that cost nothing, or None.
      sampled: whether it is a step, whose queries read batches by the accountant's sampler; `init` reads every row.
      mechanisms: that the protector declares; None for any.
      sums_only: whether it declares all its queries additive, so that another is refused before anything runs.
    """

    public: Rows | None = None
    sampled: bool = False
    mechanisms: Sequence[str] | None = None
    sums_only: bool = False

    def check_query(self, query: Query, event: Event, setup: Setup, samples: bool) -> None:
        """Refuse a query that no proof covers here; `samples` says whether it would read a batch.

        Raises:
          InputError, TypeError: as in `Oracle.ask`.
        """
        declared = self.mechanisms
        if declared is not None and event.mechanism not in declared:
            raise TypeError(
                f"ask({query.name}) uses mechanism {event.mechanism!r}, which its protector does not declare, but "
                f"the accountant is chosen by `Protector.mechanisms`, here {', '.join(declared)}; add it there."
            )
        if not (setup.model.reads_features or query.of_loss):
            raise InputError(
                f"{query.name} describes the features of rows, but what a loss of your own reads need not be features; "
                "choose a method that asks for gradients and losses alone, such as dpsgd, noisygd, auto_clip or agd."
            )
        if setup.rows_per_unit is not None and not query.is_plain_sum:
            raise InputError(
                f"the schema protects a unit with several rows, but what one of them changes in {query.name} is proved "
                "for single rows; choose a method that asks for sums alone (noisygd, auto_clip or control), or leave "
                "the unit out to have rows protected."
            )
        if setup.in_float32 and not query.is_plain_sum:
            raise InputError(
                f"{query.name} is no Gaussian sum, and what float32 does to it is smaller than no noise that is known; "
                'choose a method that asks for gradients alone, such as dp_adam or noisygd, or exactness="exact".'
            )
        if setup.class_weights is not None:
            class_weights.check_weighed(query.name, query.additive)
        if samples and not query.additive:
            # In a solve that reads rows in order a null row takes a place that a row which was not drawn does not.
            raise InputError(
                f"{query.name} is solved on all rows at once, but the steps of this protector read batches by "
                f"{setup.price_list.sampler}, and what drawing them amplifies is proved for sums alone; leave the "
                "sampler out to read every row."
            )
        if self.sums_only and not query.additive:
            # Checked here and not when rows are read: their number may be private, and a refusal then would reveal it.
            raise TypeError(
                f"ask({query.name}) is solved on all rows at once, but its protector says that all its queries are "
                "sums, so nobody checked that its table has no more rows than the proof allows; set "
                "`additive = False` there."
            )


#: Of an `init` that may ask any query, and sees no public rows.
ANYTHING = Terms()
