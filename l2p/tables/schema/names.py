"""Names of encoded features and of declared values."""

from l2p.tables.schema.columns import Category, Column, Ignore, Number, Value
from l2p.tables.schema.curves import labels


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
    >>> names_of("age", Number(0, 100, curve=3))
    ('age near 0', 'age near 50', 'age near 100')
    """
    if isinstance(column, Ignore):
        return ()
    other = (f"{name}:other",) if isinstance(column, Category) and column.other else ()
    indicator = (f"{name}:missing",) if column.missing is not None and column.missing.indicator else ()
    return (*_of_value(name, column), *other, *indicator)


def size_of(column: Column) -> int:
    """Number of the encoded features of a column that stand for its value; they come first.

    >>> size_of(Category(("S", "L"), other=True)), size_of(Number(0, 100, curve=3))
    (2, 3)
    """
    return 0 if isinstance(column, Ignore) else len(_of_value("", column))


def _of_value(name: str, column: Number | Category) -> tuple[str, ...]:
    if isinstance(column, Category):
        return (name,) if column.ordered else tuple(f"{name}={text_of(value)}" for value in column.values)
    if column.curve is None:
        return (name,)
    if isinstance(column.curve, int) and column.is_private:
        return tuple(f"{name} near knot {number}" for number in range(1, column.curve + 1))
    return tuple(f"{name} near {knot}" for knot in labels(column.knots))
