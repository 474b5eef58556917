"""Finds the protector of a run and refuses whatever can be refused before a row is read: once, at every door."""

from numbers import Integral
from pathlib import Path

from l2p.base.arithmetic import check_arithmetic
from l2p.base.errors import InputError
from l2p.checkpoints.lookup import resolve
from l2p.checkpoints.named import NamedProtector, describe
from l2p.checkpoints.set_up import check_shared
from l2p.models import Model
from l2p.privacy.budget import Budget
from l2p.privacy.class_weights import check_weighed
from l2p.privacy.cost.sampling import Sampler
from l2p.privacy.units import check_unit
from l2p.run.protector import Protector
from l2p.tables.schema import Schema


def admit(
    protector: Protector | NamedProtector | str | Path,
    budget: Budget,
    model: Model,
    accountant: str | None = None,
    *,
    schema: Schema | None = None,
    has_public: bool = False,
) -> NamedProtector:
    """The protector of a run, with its model, its accountant and their prices checked; it is then handed on as it is.

    Args:
      protector: itself, or a name or a file as `l2p.checkpoints.lookup.resolve` takes it; one that was admitted before
        is checked against these facts, and not looked for again.
      budget, model, accountant: of the run; without an accountant, the protector's own.
      schema: the table's, which may protect units, weigh classes and leave bounds to be bought.
      has_public: whether there are public rows.

    Returns:
      The protector, not yet set up for a number of rows (`NamedProtector.for_rows`).

    Raises:
      InputError: one of them does not fit, or this process computes otherwise than the proof assumes.
    """
    check_arithmetic()
    if isinstance(protector, (str, Path)):
        named = resolve(str(protector), budget, model, accountant)
    elif isinstance(protector, NamedProtector):
        named = protector.counted_by(accountant, model)
    else:
        named = describe(protector, type(protector).__name__, model, accountant)
    _check_batches(named)
    named.filter(budget)
    if schema is not None and schema.private_bounds:
        check_shared(named)
    additive = named.protector.additive
    if schema is not None and schema.unit is not None:
        check_unit(named.accountant, named.protector.sampler, schema.unit.max_rows)
        if not additive or set(named.protector.mechanisms) != {"gaussian"}:
            raise InputError(
                f"the schema protects the unit {schema.unit.column!r}, which may have several rows, but what protector "
                f"{named.name!r} releases is proved for single rows; choose a method that asks for Gaussian sums alone "
                "(noisygd, auto_clip or control), or leave the unit out to have rows protected."
            )
    if schema is not None and schema.target.weights is not None:
        check_weighed(f"protector {named.name!r}", additive)
    if named.protector.needs_public and not has_public:
        raise InputError(
            f"protector {named.name!r} learns from public rows too, and none are given; name a file of rows that "
            "anybody may see, with the same columns (--public FILE, or public= in Python), or choose a method that "
            "needs none, such as universal or noisygd."
        )
    return named


def _check_batches(named: NamedProtector) -> None:
    """Refuse batches that nothing here has a price for, as those of other libraries, and a run without any."""
    sampler = named.protector.sampler
    if not isinstance(sampler, Sampler):
        raise InputError(
            f"the batches of protector {named.name!r} are drawn by {type(sampler).__name__}, for which no accountant "
            "here has a price: cyclic and balls-in-bins ones go with noise that is correlated over steps (BandMF), "
            "which l2p does not add; choose FullBatch, Poisson, PermutationEpochs or, under replace_one, FixedSize "
            "(l2p.privacy.cost.sampling)."
        )
    num_steps = named.protector.num_steps
    asks_at_start_alone = getattr(type(named.protector), "num_steps", None) == 0
    if not (isinstance(num_steps, Integral) and num_steps >= (0 if asks_at_start_alone else 1)):
        raise InputError(
            f"protector {named.name!r} has {num_steps!r} steps, but noise is planned for a whole number of them; give "
            "it at least one."
        )
