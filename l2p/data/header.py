"""What a refusal may say of a table's own column names.

A file without a header line has a private row in its place. So a name that only the file gives is shown only where the
names that were declared (the target, and all columns with bounds) prove that its first line is a header.
"""

import difflib
from collections.abc import Collection, Sequence

#: Names listed at most: a sentence is not a schema.
_MOST_LISTED = 5


def is_header(columns: Sequence[str], declared: Collection[str]) -> bool:
    """Whether all declared names but one at most, and at least two of them, are among the columns.

    >>> is_header(("age", "dose", "class"), {"age", "dose", "Class"}), is_header(("Smith", "61"), {"age"})
    (True, False)
    """
    found = len(set(declared) & set(columns))
    return found >= max(2, len(set(declared)) - 1)


def called(index: int, columns: Sequence[str], declared: Collection[str]) -> str:
    """A column by its name where that may be shown, else by its place.

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
    shown = ", ".join(map(repr, names[:_MOST_LISTED]))
    return shown if len(names) <= _MOST_LISTED else f"{shown} and {len(names) - _MOST_LISTED} more"


def what_is_missing(columns: Sequence[str], declared: Collection[str]) -> str | None:
    """What to say of a table that lacks columns that were declared; None if it has them all.

    >>> what_is_missing(("age", "dose", "class"), ("Class", "age", "dose"))
    "has no column 'Class'; did you mean 'class'?"
    """
    missing = [name for name in declared if name not in columns]
    if not missing:
        return None
    said = f"has no column {listed(missing)}"
    if not is_header(columns, declared):
        return (
            f"{said}, as declared; check that its first line names the columns, separated by commas (it is not shown "
            "here, because it may be a private row)"
        )
    others = {name.casefold(): name for name in columns if name not in declared}
    near = difflib.get_close_matches(missing[0].casefold(), others, n=1)
    return f"{said}; did you mean {others[near[0]]!r}?" if near else f"{said}; compare it with the header line"
