"""`l2p schema`, `apply` and `predict` on files and databases."""

import json
import tempfile

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import l2p
from l2p.commands import streaming
from l2p.commands.cli import main
from l2p.tables.reading import open_table
from l2p.tables.schema import stream
from l2p.tables.schema.stream import is_large, streamed
from tests.canaries import observed
from tests.tables.ward_files import SECRET, WARD, N, address_of, apply, columns


def predict(run, data, out, *words):
    return ["predict", "--model", str(run), "--data", data, "--out", str(out), *words]


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "run"
    code, text = observed(lambda: main(apply(folder, str(folder / "ward.csv"), out, "--stream", "yes")))
    assert code == 0, text
    return out


@pytest.mark.slow
def test_apply_streams_from_a_server_and_keeps_no_password(server, folder, tmp_path):
    data = server.address("ward", "reader", key="id")
    test = columns() | {"dose": columns()["dose"] * 0.99}
    pa.table(test).to_pandas().to_csv(folder / "test.csv", index=False)
    args = apply(folder, data, tmp_path / "run", "--stream", "yes", "--test")
    code, text = observed(lambda: main([*args, data]), tmp_path)
    assert (code, SECRET in text) == (2, False)
    assert "the test table holds the private table's own rows" in text
    code, text = observed(lambda: main([*args, str(folder / "ward.csv")]), tmp_path)
    assert code == 2, text
    code, text = observed(lambda: main([*args, str(folder / "test.csv")]), tmp_path)
    assert code == 0, text
    assert SECRET not in text
    assert l2p.load_model(tmp_path / "run").schema == WARD
    card = json.loads((tmp_path / "run" / "card.json").read_text())
    assert (card["num_rows"], card["private_release"]) == (N, True)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["accuracy"] > 0.7


@pytest.mark.parametrize("kind", ["duckdb", "postgresql"])
def test_a_schema_is_made_from_a_database_without_reading_a_row(request, folder, tmp_path, kind, monkeypatch):
    data = address_of(kind, request, folder)
    monkeypatch.setattr(type(open_table(data)), "blocks", None)
    code, text = observed(lambda: main(["schema", data, "--target", "back", "--out", str(tmp_path / "s.json")]))
    assert code == 0, text
    schema = json.loads((tmp_path / "s.json").read_text())
    assert {name: column["type"] for name, column in schema["columns"].items()} == {
        "id": "number",
        "age": "number",
        "dose": "number",
        "smokes": "category",
        "ward": "category",
    }
    assert schema["target"] == {"column": "back", "classes": None}


@pytest.mark.slow(but=["postgresql"])
@pytest.mark.parametrize("kind", ["duckdb", "postgresql"])
def test_predictions_go_back_to_a_database_all_or_none(request, folder, tmp_path, trained, table, kind):
    code, text = observed(lambda: main(predict(trained, str(folder / "ward.csv"), tmp_path / "p.csv")))
    assert code == 0, text
    expected = (tmp_path / "p.csv").read_text().split()[1:]
    data = address_of(kind, request, folder, "l2p") + ("&key=id" if kind == "duckdb" else "")
    out = data.split("&key")[0].replace("table=ward", "table=predicted")
    code, text = observed(lambda: main(predict(trained, data, out, "--probabilities")))
    assert code == 0, text
    assert SECRET not in text
    table_written = open_table(out)
    assert table_written.names == ("id", "prediction", "no", "yes")
    blocks = list(table_written.blocks(table_written.names))
    keys, predictions = (np.concatenate([block[name] for block in blocks]).tolist() for name in ("id", "prediction"))
    joined = dict(zip(keys, predictions, strict=True))
    assert [joined[key] for key in table["id"].to_pylist()] == expected
    code, text = observed(lambda: main(predict(trained, data, out)))
    assert code == 2
    assert "predictions never replace" in text


def test_predictions_from_a_file_are_numbered_by_line_and_a_row_without_one_is_null(tmp_path, trained):
    (tmp_path / "new.csv").write_text("age,dose,smokes,ward\n61,0.5,True,a\n61,,True,a\n")
    out = f"duckdb://{tmp_path}/new.db?table=predicted"
    assert observed(lambda: main(predict(trained, str(tmp_path / "new.csv"), out)))[0] == 0
    with duckdb.connect(tmp_path / "new.db", read_only=True) as connection:
        assert connection.sql("SELECT line, prediction IS NULL FROM predicted").fetchall() == [(1, False), (2, True)]


def test_what_cannot_be_predicted_leaves_no_database_behind(tmp_path, trained):
    (tmp_path / "new.csv").write_text("age,dose,smokes,ward\n61,0.5,True\n")
    code, text = observed(
        lambda: main(predict(trained, str(tmp_path / "new.csv"), f"duckdb://{tmp_path}/n.db?table=p"))
    )
    assert code == 2, text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.csv"]


@pytest.mark.slow
def test_bolt_on_streams_a_table_that_is_too_large_for_memory(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "_memory", lambda: 2**16)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    opened = []
    monkeypatch.setattr(streaming, "streamed", lambda *args: opened.append(args) or streamed(*args))
    args = apply(folder, f"duckdb://{folder}/ward.db?table=ward", tmp_path / "run", "--set", "num_passes=2")
    args[args.index("noisygd")] = "bolt_on"
    code, text = observed(lambda: main(args))
    assert code == 0, text
    assert len(opened) == 1
    card = json.loads((tmp_path / "run" / "card.json").read_text())
    assert (card["num_rows"], card["private_release"]) == (N, True)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_small_tables_are_kept_in_memory_and_large_ones_stream(address, monkeypatch):
    assert not is_large(address, WARD)
    monkeypatch.setattr(stream, "_memory", lambda: 2**16)
    assert is_large(address, WARD) or address.startswith("postgresql")  # whose statistics may not know yet
    assert is_large(address, WARD, num_rows=N)


def test_memory_is_what_the_container_may_take(tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "_CONTAINER", tmp_path / "memory.max")
    machine = stream._memory()
    for limit, memory in (("max\n", machine), (f"{2**70}\n", machine), ("4096\n", 4096)):
        (tmp_path / "memory.max").write_text(limit)
        assert stream._memory() == memory
