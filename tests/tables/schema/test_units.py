"""Rows of a unit that count: they depend on its own rows, whoever else is in the table and wherever blocks end."""

import decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from l2p.base.errors import InputError
from l2p.tables.schema import Encoding, Number, Schema, Target, Unit, read_rows
from l2p.tables.schema.units import FirstRows, unit_of

MOST = 2
people = st.lists(st.sampled_from(["u", "v", "w", "", "NA"]), max_size=14)


class ByHash(FirstRows):
    """Planted: units told apart by a hash of one bit, so that two of them share a count."""

    def keep(self, cells, valid):
        return super().keep(np.array([ord((cell or "?")[0]) % 2 for cell in cells], object), valid)


class OfBlock(FirstRows):
    """Planted: rows counted by their place in the block."""

    def keep(self, cells, valid):
        return super().keep(cells, valid) & (np.arange(len(cells)) < 6)


class Fullest(FirstRows):
    """Planted: what one unit may keep depends on how many rows the others have."""

    def keep(self, cells, valid):
        return super().keep(cells, valid) & (len(cells) < 8)


def kept_rows(rule, names, ends=()):
    """True for each row of a table that is kept, read in blocks that end at `ends`."""
    rule = rule(Unit("person", MOST), {"NA"})
    blocks = np.split(np.array(names, object), sorted(set(ends)))
    return np.concatenate([rule.keep(block, np.ones(len(block), bool)) for block in blocks])


def of_unit(rule, names, unit, ends=()):
    """True for each row of one unit that is kept, in their order."""
    flags = kept_rows(rule, names, ends)
    return [bool(keep) for name, keep in zip(names, flags, strict=True) if name == unit]


def check_others_do_not_matter(rule, names, unit, ends):
    alone = [name for name in names if name == unit]
    assert of_unit(rule, names, unit, ends) == of_unit(rule, alone, unit)
    assert of_unit(rule, alone, unit) == [place < MOST for place in range(len(alone))]


@settings(max_examples=200)
@given(people, st.sampled_from(["u", "v", "w"]), st.lists(st.integers(0, 14), max_size=4))
def test_what_is_kept_of_a_unit_depends_on_its_own_rows_alone(names, unit, ends):
    check_others_do_not_matter(FirstRows, names, unit, [min(end, len(names)) for end in ends])


@pytest.mark.parametrize(
    ("rule", "names", "unit"),
    [(ByHash, "uwuww", "w"), (OfBlock, "vvvvvvvu", "u"), (Fullest, "vvvvvvvu", "u")],
    ids=["a hash that two units share", "places in a block", "how many others there are"],
)
def test_a_rule_that_looks_at_others_is_caught(rule, names, unit):
    with pytest.raises(AssertionError):
        check_others_do_not_matter(rule, list(names), unit, [])


def test_a_row_without_a_unit_is_null_and_an_invalid_row_takes_no_place():
    rule = FirstRows(Unit("person", 1), {"NA"})
    cells = np.array([None, "NA", "", float("nan"), "u", "u", "u"], object)
    valid = np.array([True, True, True, True, False, True, True])
    assert rule.keep(cells, valid).tolist() == [False] * 5 + [True, False]
    rule = FirstRows(Unit("person", 9), {"-999.0", "9.99"})
    for cells in (
        np.array(["-999", "-999.00", "-999.", "9.990", "9"], object),
        np.array([-999.0, -999.0, 9.99, 9.99, 9]),
    ):
        assert rule.keep(cells, np.ones(5, bool)).tolist() == [False] * 4 + [True]


def test_one_unit_written_in_several_ways_is_one():
    assert {unit_of(cell) for cell in (7, 7.0, np.float32(7), "7", " 7 ", "7.0", "7.00")} == {"7"}
    apart = (2**53, 2**53 + 1, "9007199254740992.5", "007", "A7", "a7", 7.5)
    assert len({unit_of(cell) for cell in apart}) == len(apart)


def test_floats_that_stand_for_several_units_are_refused():
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    rounded = np.array([2**24 + 1], np.float32)
    columns = {"person": rounded, "age": [1.0], "y": [0]}
    schema = Schema({"age": Number(0, 9)}, Target("y", (0, 1)), Unit("person", 1))
    for data in (columns, pa.table(columns)):
        with pytest.raises(InputError, match="more digits than they tell apart"):
            read_rows(data, Encoding(schema), unit=schema.unit)
    rule = FirstRows(Unit("person", 1))
    for cells in (
        [2.0**53],
        [1 / 3],
        np.float16([2049]),
        np.float32([0.1234567]),
        np.array([np.float32(2**25)], object),
    ):
        with pytest.raises(InputError, match="more digits than they tell apart"):
            rule.keep(np.asarray(cells), np.ones(1, bool))
    for text in ("1.23457E+17", "1.2345678901234568E17", "1,23457E+17", "1E+17", "1e+16", "9007199254740992.0"):
        with pytest.raises(InputError, match="export the column as text"):
            rule.keep(np.array([text], object), np.ones(1, bool))
    safe = [np.float32([2**24 - 1, 0.25]), np.array([2**24 + 1.0, 0.125]), np.array(["1E5", "12E+3"], object)]
    safe.append(np.array(["9007199254740991.0", "9007199254740993"], object))
    assert all(rule.keep(cells, np.ones(2, bool)).all() for cells in safe)


@pytest.mark.parametrize("source", ["parquet", "duckdb", "parquet, two files"])
def test_units_that_are_long_decimals_are_refused_where_they_would_become_floats(source, tmp_path):
    """Two units would be one as floats, and with the first gone the rows of the second would count."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    names = [decimal.Decimal("1000000000000000.01"), decimal.Decimal("1000000000000000.02")]
    table = pa.table({"person": pa.array(names, pa.decimal128(18, 2)), "age": [1.0, 2.0], "y": [0, 1]})
    schema = Schema({"age": Number(0, 9)}, Target("y", (0, 1)), Unit("person", 1))
    parquet.write_table(table, tmp_path / "a.parquet")
    parquet.write_table(table, tmp_path / "b.parquet")
    data = [tmp_path / "a.parquet", tmp_path / "b.parquet"] if source.endswith("files") else tmp_path / "a.parquet"
    if source == "duckdb":
        duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
        with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
            connection.register("read", table)
            connection.execute("CREATE TABLE ward AS SELECT * FROM read")
        data = f"duckdb://{tmp_path}/a.duckdb?table=ward"
    with pytest.raises(InputError, match="'person' of the unit holds decimals"):
        read_rows(data, Encoding(schema), unit=schema.unit)
    # Short ones are told apart, and so are long ones in memory.
    few = pa.array([decimal.Decimal("1.01"), decimal.Decimal("1.02")], pa.decimal128(9, 2))
    short = table.set_column(0, "person", few)
    for table_form in (short, {name: table[name].to_pylist() for name in table.column_names}):
        assert read_rows(table_form, Encoding(schema), unit=schema.unit).mask.tolist() == [1.0, 1.0]
