"""Which numbers of a protector a training tunes."""

from typing import Any

import jax
import jax.numpy as jnp

from l2p.base.errors import InputError
from l2p.protectors import BaseRate, Eigenbasis
from l2p.protectors.learned.line import LineStep
from l2p.protectors.learned.retreat import Retreat
from l2p.protectors.learned.tunable import of_parts, of_wide_tables, partition
from l2p.protectors.with_public_rows.public_filter import PublicTrust
from l2p.run.protector import Protector

#: Classes of the parts that `tunes` may name.
PARTS = {"line": LineStep, "guards": (BaseRate, Eigenbasis, Retreat), "public": PublicTrust}


def tuned(floats: Any, tunes: str) -> Any:
    """1 at each number that is tuned, and 0 at all others."""
    if tunes in PARTS:
        return of_parts(floats, PARTS[tunes])
    if tunes == "all":
        return jax.tree.map(jnp.ones_like, floats)
    if tunes == "narrow":
        return jax.tree.map(lambda leaf: 1.0 - leaf, of_wide_tables(floats))
    return of_wide_tables(floats, tunes)


def check_tunes(start: Protector, tunes: str, name: str) -> None:
    """`InputError` where `tunes` leaves every number of a protector of this name as it is."""
    if not any(bool(jnp.any(mask)) for mask in jax.tree.leaves(tuned(partition(start)[0], tunes))):
        raise InputError(
            f"tunes {tunes!r} stands for no number of protector {name!r}, so nothing would be "
            "learned; choose a protector that has such numbers, or another tunes."
        )
