"""Columns of features and of labels of a DataFrame, checked by their types alone: no row is read."""

from typing import Any

from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, NumericType, StringType, StructField

from l2p.base.errors import InputError
from l2p.tables.header import listed


def features_of(table: DataFrame, name: str) -> Column:
    """The column of features as lists of numbers, null where it is.

    Raises:
      InputError: there is none, or it holds something else than vectors or lists of numbers.
    """
    kind = _field(table, name).dataType
    column = F.col(_quoted(name))
    if isinstance(kind, VectorUDT):
        return F.when(column.isNotNull(), vector_to_array(column))
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, NumericType):
        return column.cast("array<double>")
    raise InputError(
        f"column {name!r} is of type {kind.simpleString()}, but features are one vector of numbers per row; gather "
        f"columns of numbers with VectorAssembler(inputCols=[...], outputCol={name!r}), and encode texts by categories "
        "from public knowledge."
    )


def labels_of(table: DataFrame, name: str) -> Column:
    """The column of labels.

    Raises:
      InputError: there is none, or it holds neither numbers nor texts nor booleans.
    """
    kind = _field(table, name).dataType
    if not isinstance(kind, (NumericType, StringType, BooleanType)):
        raise InputError(
            f"column {name!r} is of type {kind.simpleString()}, but labels are numbers, texts or booleans; turn it "
            "into one of these."
        )
    return F.col(_quoted(name))


def feature_names(table: DataFrame, name: str, label: str, size: int | None) -> tuple[str, ...]:
    """The names of single features: those that VectorAssembler noted in the DataFrame's schema, or numbered ones.

    Args:
      table: the DataFrame.
      name: of the column of features.
      label: of the column of labels, which no feature may have.
      size: how many features there are, if bounds tell.

    Raises:
      InputError: nothing tells how many, or bounds tell another number.
    """
    noted = _field(table, name).metadata.get("ml_attr", {})
    count = noted.get("num_attrs", size)
    if count is None:
        raise InputError(
            f"nothing but the rows tells how many numbers column {name!r} holds, because it does not come from "
            "VectorAssembler; pass bounds=[lows, highs] with one number for each."
        )
    if size not in (None, count):
        raise InputError(
            f"bounds are of {size} features, but column {name!r} holds {count}; give one pair (low, high) for all, or "
            "one number for each."
        )
    attributes = [attribute for group in noted.get("attrs", {}).values() for attribute in group]
    names = {attribute["idx"]: attribute.get("name") for attribute in attributes}
    noted_names = [names.get(place) for place in range(count)]
    if len({*noted_names, label, None}) == count + 2:
        return tuple(map(str, noted_names))
    return tuple(f"{name}_{place}" for place in range(count))


def _field(table: DataFrame, name: str) -> StructField:
    if table.columns.count(name) != 1:
        has = "no column" if name not in table.columns else "several columns"
        raise InputError(f"the DataFrame has {has} {name!r}, only {listed(table.columns)}; name one of its columns.")
    return table.schema[name]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def plain(value: Any) -> Any:
    """Lists and numbers of Python's own in place of tuples and of NumPy's, as Spark's files of parameters need them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value
