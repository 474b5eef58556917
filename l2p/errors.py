"""The one error that users are meant to read."""


class InputError(ValueError):
    """Bad input, refused before private data is read and before budget is spent.

    The message is one sentence that says what was wrong, why it matters and what to do.
    It never contains a value read off a private row. The command line prints it and exits with 2.
    """
