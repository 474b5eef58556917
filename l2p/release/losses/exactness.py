"""Levels of exactness of the sums of a user's loss: whole numbers, or float32 ones."""

from l2p.base.errors import InputError

EXACT, FLOAT32 = "exact", "float32"


def in_float32(exactness: str, is_own: bool) -> bool:
    """Whether this level adds up float32 numbers (`l2p.oracle.setup.Setup`); `is_own` says that the loss is a user's.

    Raises:
      InputError: there is no such level here.
    """
    if exactness not in (EXACT, FLOAT32):
        raise InputError(
            f"exactness is {exactness!r}, but sums are of whole numbers or of float32 ones; choose {EXACT!r} or "
            f"{FLOAT32!r}."
        )
    if exactness == FLOAT32 and not is_own:
        raise InputError(
            f"exactness is {FLOAT32!r}, which is about a loss of your own, and models of l2p's own have exact sums "
            "of whole blocks; leave it out."
        )
    return exactness == FLOAT32
