"""Sentences of a card on whether its run learned anything (`l2p.release.learned` finds out which holds)."""

NOTHING = "Nothing: no query of this run was answered, so it returns what it began with."
NO_STEP = "Nothing by its steps, of which none was answered in full: what it returns comes from its side queries alone."
UNMOVED = "Nothing: what it returns is exactly what it began with."
NOISE = (
    "Perhaps nothing: the answers of this run are not distinguishable from noise, or from what rows say by chance; "
    "more rows or a larger epsilon would tell."
)
SIGNAL = (
    "Something: the answers of this run stand out from noise and chance. That does not say that its predictions are "
    "good, or better than one answer for all rows."
)
UNTOLD = "Not known: the answers of this run are of a kind that does not tell; rows to test on would."
RESUMED = (
    "Not known: this loop went on after its process was killed, and what earlier answers said was not kept; rows to "
    "test on would tell."
)
#: All that a card may say of it.
SENTENCES = (NOTHING, NO_STEP, UNMOVED, NOISE, SIGNAL, UNTOLD, RESUMED)
#: Sentences that are warnings, too: the result holds nothing that the steps learned.
IDLE = (NOTHING, NO_STEP, UNMOVED)
