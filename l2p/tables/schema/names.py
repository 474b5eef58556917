"""Names of encoded features and of declared values."""

from l2p.tables.schema.columns import Category, Column, Ignore, Value


def text_of(value: Value) -> str:
    """A declared value as a table's text would have it.

    >>> text_of("red"), text_of(3.0), text_of(0.5), text_of(True)
    ('red', '3', '0.5', 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else f"{int(value)}" if value == int(value) else repr(value)


def names_of(name: str, column: Column) -> tuple[str, ...]:
    """The encoded features of one column, in order.

    >>> names_of("size", Category(("S", "L"))), names_of("size", Category(("S", "L"), ordered=True, other=True))
    (('size=S', 'size=L'), ('size', 'size:other'))
    """
    if isinstance(column, Ignore):
        return ()
    indicator = (f"{name}:missing",) if column.missing is not None and column.missing.indicator else ()
    if not isinstance(column, Category):
        return (name, *indicator)
    own = (name,) if column.ordered else tuple(f"{name}={text_of(value)}" for value in column.values)
    return (*own, *((f"{name}:other",) if column.other else ()), *indicator)
