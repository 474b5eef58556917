"""Errors for users to read, and context managers that keep all others from quoting private rows."""

import contextlib
import re
import traceback
from collections.abc import Iterator

_LOGIN = re.compile(r"(postgres(?:ql)?:/{1,2})[^\s/?#]*@", re.IGNORECASE)
_SECRET = re.compile(r"((?:password|passfile|sslpassword)=)[^&\s'\"]*", re.IGNORECASE)


class InputError(ValueError):
    """Bad input, refused before private data is read and before budget is spent.

    The message is one sentence that says what was wrong, why it matters and what to do.
    It never contains a value read off a private row, nor how many rows there are where that is private.
    The command line prints it and exits with 2.
    """


class NoResult(RuntimeError):
    """A finished run without a result: nothing is released, and what it spent stays spent.

    The message is one sentence, like that of `InputError`. The command line prints it and exits with 1.
    """


class RowsError(RuntimeError):
    """Code that handles private rows failed; the message does not quote them."""


class TableWarning(UserWarning):
    """Something that a table's file leaves open, and how it was read; the command line prints it."""


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """A context whose errors carry neither cause nor context.

    `raise ... from None` keeps the replaced error as context, which no traceback prints, but which loggers, debuggers
    and pickles find, private cells and all.

    >>> try:
    ...     with alone():
    ...         try:
    ...             float("Smith")
    ...         except ValueError:
    ...             raise InputError("a cell is no number.") from None
    ... except InputError as error:
    ...     print(error.__context__, error.__cause__)
    None None
    """
    try:
        yield
    except BaseException as error:
        error.__cause__ = error.__context__ = None
        raise


@contextlib.contextmanager
def withheld(doing: str) -> Iterator[None]:
    """Replace every error but `InputError` by one that quotes nothing, for code that handles private rows.

    Errors of other libraries quote what they failed on: a cell that is not a number, or a shape or a size in bytes,
    which tell how many rows there are. Only the type of the error and the line of code that raised it are passed on.

    Args:
      doing: what the code does, to follow "while".

    Raises:
      RowsError: in place of any other `Exception`.

    >>> with withheld("reading numbers"):
    ...     float("Smith")
    Traceback (most recent call last):
    l2p.base.errors.RowsError: ValueError ... while reading numbers; its message is withheld, ...
    """
    with alone():
        try:
            yield
        except (InputError, RowsError, TableWarning):
            raise
        except Exception as error:
            *_, (frame, line) = traceback.walk_tb(error.__traceback__)
            raise RowsError(
                f"{type(error).__name__} at {frame.f_code.co_filename}:{line} while {doing}; its message is withheld, "
                "because it may quote private rows or tell how many there are. Report this line, or find the error "
                "with rows that are not private."
            ) from None


@contextlib.contextmanager
def ending_run() -> Iterator[None]:
    """Replace an `InputError` by one that ends a run: the first would say that nothing was spent.

    Raises:
      RowsError: in place of an `InputError`.

    >>> with ending_run():
    ...     raise InputError("the table was changed.")
    Traceback (most recent call last):
    l2p.base.errors.RowsError: the table was changed. The run ends here without a result, and ... stays charged.
    """
    with alone():
        try:
            yield
        except InputError as error:
            raise RowsError(
                f"{str(error).rstrip('.')}. The run ends here without a result, and what its queries were charged "
                "stays charged."
            ) from None


def redacted(text: str) -> str:
    """The text with logins and passwords of addresses left out.

    >>> redacted("no file postgresql://ann:secret@db/ward?table=t&password=secret")
    'no file postgresql://***@db/ward?table=t&password=***'
    """
    return _SECRET.sub(r"\1***", _LOGIN.sub(r"\1***@", text))


def first_line(error: Exception) -> str:
    """What an error of a user's own code says, for a sentence about it; of code that saw no private value.

    >>> first_line(KeyError("x"))
    "KeyError: 'x'"
    """
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
