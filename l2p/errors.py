"""The errors that users are meant to read."""


class InputError(ValueError):
    """Bad input, refused before private data is read and before budget is spent.

    The message is one sentence that says what was wrong, why it matters and what to do.
    It never contains a value read off a private row. The command line prints it and exits with 2.
    """


class Withheld(RuntimeError):
    """A finished run without a result: nothing is released, and what it spent stays spent.

    The message is one sentence, as of `InputError`. The command line prints it and exits with 1.
    """
