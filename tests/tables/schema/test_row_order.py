"""Tables whose order their rows may decide: refused where the order counts, unless a key settles it."""

import dataclasses

import pytest

import l2p
from l2p.base.errors import InputError
from l2p.commands.cli import main
from l2p.tables.schema import Encoding, Ignore, Number, Schema, Target, Unit, read_rows
from tests.canaries import observed

UNITS = Schema({"id": Ignore(), "age": Number(0, 9)}, Target("y", (0, 1)), Unit("person", 1))
ROWS = dataclasses.replace(UNITS, columns={**UNITS.columns, "person": Ignore()}, unit=None)
BUDGET = l2p.Budget(1.0, 1e-2)
duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")


@pytest.fixture
def ward(tmp_path):
    """A file with a table, and a view of it that sorts by what rows hold."""
    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        connection.execute("CREATE TABLE ward AS SELECT range AS id, id % 3 AS person, .5 AS age, 0 AS y FROM range(9)")
        connection.execute("CREATE VIEW sorted AS SELECT * FROM ward ORDER BY person")
    return tmp_path / "a.duckdb"


def test_a_view_without_a_key_has_no_first_rows(ward):
    """Another person's row decides which of a person's rows comes first."""
    view, table = (f"duckdb://{ward}?table={name}" for name in ("sorted", "ward"))
    for private in (UNITS, dataclasses.replace(UNITS, columns={"id": Ignore(), "age": Number.private()})):
        with pytest.raises(InputError, match="no order that stays the same whatever its rows hold; name a unique"):
            l2p.private_train(view, "noisygd", BUDGET, schema=private)
    for address in (f"{view}&key=id", table):
        assert read_rows(address, Encoding(UNITS), unit=UNITS.unit).mask.sum() == 3


def test_a_query_has_no_first_rows_and_the_table_that_it_gave_has(ward):
    with duckdb.connect(str(ward)) as connection:
        with pytest.raises(InputError, match="no order that stays the same"):
            read_rows(connection.sql("FROM sorted"), Encoding(UNITS), unit=UNITS.unit)
        once = connection.sql("FROM sorted").to_arrow_table()
        assert read_rows(once, Encoding(UNITS), unit=UNITS.unit).mask.sum() == 3


def test_protectors_that_take_rows_in_their_places_refuse_views_and_keys(ward, tmp_path):
    view, table = (f"duckdb://{ward}?table={name}" for name in ("sorted", "ward"))
    for address in (view, f"{view}&key=id"):
        with pytest.raises(InputError, match=r"takes rows in the order of the table, but .* has none"):
            l2p.private_train(address, "private_meta", BUDGET, schema=ROWS)
    assert read_rows(table, Encoding(ROWS), in_order=True).mask.sum() == 9
    ROWS.write(tmp_path / "schema.json")
    command = ["apply", "--data", view, "--schema", str(tmp_path / "schema.json"), "--epsilon", "1", "--delta", "1e-2"]
    command += ["--protector", "private_meta:private", "--out", str(tmp_path / "run")]
    code, text = observed(lambda: main(command))
    assert code == 2
    assert "takes rows in the order of the table" in text


def test_rows_sort_by_the_bytes_of_a_key_whatever_its_collation_takes_for_equal(tmp_path):
    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        connection.execute("CREATE TABLE ward (id VARCHAR COLLATE NOCASE, person INT, age DOUBLE, y INT)")
        cells = "person, 1 + 8 * big, 0 FROM range(400) AS t(person), range(2) AS u(big)"
        connection.execute("INSERT INTO ward SELECT CASE WHEN big = 1 THEN 'K' ELSE 'k' END || person, " + cells)
    rows = read_rows(f"duckdb://{tmp_path}/a.duckdb?table=ward&key=id", Encoding(UNITS), unit=UNITS.unit)
    assert (rows.x[rows.mask > 0] == 1.0).all()  # 'K' comes before 'k'
    assert rows.mask.sum() == 400
