"""Column names of a table that an error message may show.

If a file has no header line, its first line is a private row. So a name that was not declared is shown only if the
declared names (the target and the columns with bounds) prove that the first line is a header.
"""

import difflib
from collections.abc import Collection, Sequence

#: How many names a message lists at most.
_MAX_LISTED = 5


def is_header(columns: Sequence[str], declared: Collection[str]) -> bool:
    """True if the columns include at least two declared names, and all of them but at most one.

    >>> is_header(("age", "dose", "class"), {"age", "dose", "Class"}), is_header(("Smith", "61"), {"age"})
    (True, False)
    """
    shared = len(set(declared) & set(columns))
    return shared >= max(2, len(set(declared)) - 1)


def called(index: int, columns: Sequence[str], declared: Collection[str]) -> str:
    """Reference to a column in a message: by name if it may be shown, else by position.

    >>> called(0, ("Smith", "61"), ())
    'column 1'
    """
    name = columns[index]
    return f"column {name!r}" if name in declared or is_header(columns, declared) else f"column {index + 1}"


def listed(names: Sequence[str]) -> str:
    """A few names, and how many more there are.

    >>> listed(["age", "dose"])
    "'age', 'dose'"
    """
    shown = ", ".join(map(repr, names[:_MAX_LISTED]))
    return shown if len(names) <= _MAX_LISTED else f"{shown} and {len(names) - _MAX_LISTED} more"


def complaint_of_missing(columns: Sequence[str], declared: Collection[str]) -> str | None:
    """Predicate of a message on declared columns that a table lacks; None if it has them all.

    >>> complaint_of_missing(("age", "dose", "class"), ("Class", "age", "dose"))
    "has no column 'Class'; did you mean 'class'?"
    """
    missing = [name for name in declared if name not in columns]
    if not missing:
        return None
    complaint = f"has no column {listed(missing)}"
    if not is_header(columns, declared):
        return (
            f"{complaint}, as declared; check that its first line names the columns (it is not shown "
            "here, because it may be a private row)"
        )
    others = {name.casefold(): name for name in columns if name not in declared}
    near = difflib.get_close_matches(missing[0].casefold(), others, n=1)
    return (
        f"{complaint}; did you mean {others[near[0]]!r}?" if near else f"{complaint}; compare it with the header line"
    )
