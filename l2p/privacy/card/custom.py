"""What the card of a run says otherwise where its user brought the loss along."""

#: Plain name of a model that is a user's loss; a number of parameters follows it.
CUSTOM = "custom"
#: In what arithmetic such a release is computed.
EXACT = (
    "exact: float32 gradients and losses of one row at a time, each rounded to whole numbers, and float64 noise, added "
    "to their sums, which lie on a public grid"
)
_IN_FLOAT32 = "float32: gradients, their norms and their sum as the device rounds them, and float64 noise, added "
#: The same for a loop of the user's own, and for a run whose user chose such sums.
FLOAT32 = (
    f"{_IN_FLOAT32}on the host and rounded to a public grid; what that rounding adds to a row's part is not bounded"
)
FLOAT32_SUMS = f"{_IN_FLOAT32}and rounded to a public grid; what that rounding adds to a row's part is not bounded"
#: What a sum of float32 numbers rests on.
RESTS_ON = (
    "Rounding in float32: a row changes by how much the sum is rounded, and perhaps, where rows are computed together, "
    "the last bits of what others add. The proof is about real numbers, and that this is far below the noise is not "
    "proved."
)
#: What holds only if a loop did as it declared, by the name of its batches.
VOUCHED = {
    "full batch": "that every sum was over rows of this one table, none of them twice",
    "Poisson": "that the batch of every update was drawn afresh, each row with the declared probability and whatever "
    "else was drawn, by randomness that nobody sees, no row twice, and none of those drawn left out",
}
#: And whatever its batches.
LOOP = (
    "The user's loop vouches for this, and nobody checked it: {batches}; that nothing else of these rows, such as a "
    "loss, an accuracy, a clipped sum or a number of rows drawn, left it; and, if it went on from a saved state, that "
    "nobody saw the updates after that state."
)
#: In place of what is said of columns and their bounds.
PUBLIC = (
    "Public by declaration: the loss and all that it reads besides one row, whatever a row was scaled or centred by "
    "before it came, where its parameters start and which of them stay as they are, the structure of a row and the "
    "shapes in it, the number of rows N, every hyper-parameter."
)
NULL_ROWS = (
    "Rows that hold a value that is not finite in float32, or a whole number beyond 16,777,216, counted as null rows, "
    "and a gradient that is not finite as zero; how many is not stated."
)


def is_custom(model: str) -> bool:
    """True for the name of a user's loss on a card.

    >>> is_custom("custom:2410"), is_custom("softmax:3")
    (True, False)
    """
    return model.partition(":")[0] == CUSTOM
