"""Tables in files and databases that are refused before anything is spent, and passwords that are not shown."""

import dataclasses

import pytest

from l2p.base.errors import InputError
from l2p.commands.cli import main
from l2p.tables.schema import Ignore, Number, Unit
from l2p.tables.schema.stream import streamed
from tests.canaries import observed
from tests.tables.ward_files import SECRET, WARD, N, apply


def test_a_table_that_is_not_there_or_not_for_this_role_is_refused_before_anything_is_spent(server, folder, tmp_path):
    (tmp_path / "torn.db").write_bytes((folder / "ward.db").read_bytes()[:5000])
    wrong = {
        server.address("wards"): "no such table",
        server.address("ward", "stranger"): "this role may not read it",
        server.address("ward", "nobody-at-all"): "refuses the user or the password",
        server.address("ward", host="/nowhere"): "no server answers",
        server.address("empty", "l2p"): "has no rows to learn from",
        server.address("ward", "reader", key="ids"): "no column 'ids'",
        server.address("ward", "reader", key="age"): "rows share a value of it or have none",
        f"duckdb://{folder}/ward.db?table=wards": "there is no table wards in",
        f"duckdb://{folder}/wards.db?table=ward": "there is no file",
        f"duckdb://{tmp_path}/torn.db?table=ward": "no DuckDB file",
        f"duckdb://{folder}/ward.db": "names none",
        f"duckdb://{folder}/ward.db?table=ward&password={SECRET}": "no part of one",
        "duckdb://?table=ward": "no file",
        "postgresql://[::1/x?table=ward": "cannot be read; write duckdb://",
    }
    for data, phrase in wrong.items():
        code, text = observed(lambda data=data: main(apply(folder, data, tmp_path / "run", "--stream", "yes")))
        assert code == 2, (data, text)
        assert phrase in text, (data, text)
        assert SECRET not in text
        assert not (tmp_path / "run").exists()


def test_an_invalid_cell_is_refused_before_a_run_and_null_on_request(server, tmp_path):
    server.execute(
        "CREATE TABLE broken AS SELECT * FROM ward",
        "UPDATE broken SET dose = NULL WHERE id = 71",
        "ALTER TABLE broken ADD COLUMN since date",
    )
    broken = server.address("broken", key="id")
    dated = dataclasses.replace(WARD, columns={**WARD.columns, "since": Ignore()})
    with pytest.raises(InputError, match="column 'dose' has cells that are missing"), streamed(broken, dated):
        pass
    with streamed(broken, dated, on_invalid="null") as rows:
        assert sum(int(block.mask.sum()) for block in rows.blocks()) == N - 1
    learned = dataclasses.replace(WARD, columns={**WARD.columns, "since": Number(0, 1)})
    with pytest.raises(InputError, match="'since' of the table broken"), streamed(broken, learned):
        pass


def test_units_need_an_order_that_stays_the_same(server):
    units = dataclasses.replace(WARD, unit=Unit("id", 1))
    with pytest.raises(InputError, match="no order that stays the same"), streamed(server.address("ward"), units):
        pass
    with streamed(server.address("ward", key="id"), units) as rows:
        assert rows.ordered


def test_passwords_are_left_out_of_what_is_said_of_a_command_line():
    words = [
        "apply",
        "--data",
        "x.csv",
        "--schema",
        "x.json",
        "--epsilon",
        f"postgresql://ann:{SECRET}@db/x?table=t&password={SECRET}",
    ]
    code, text = observed(lambda: main([*words, "--delta", "1e-6", "--out", "run"]))
    assert code == 2
    assert "postgresql://***@db" in text
    assert SECRET not in text
