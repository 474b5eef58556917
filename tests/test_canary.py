"""Nothing private in a message of the command line: bad tables and wrong options of every command that takes a file.

Everything that a run prints, warns and writes is searched for canaries in its table.
"""

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.commands.cli import main
from l2p.tables.schema import Encoding, Number, Target, read_rows
from tests.canaries import BAD, COUNT, GOOD, HEADER, NUMBER, SAID, SCHEMA, WORD, N, apart, leaks, lines_of, observed

NULLED = ["labels", "a label missing", "NaN", "infinite", "huge"]


@pytest.fixture
def given(tmp_path):
    """Writes a table; returns the options of an `apply` on it that are otherwise valid."""
    folder, count = tmp_path / "given", iter(range(10**6))
    folder.mkdir()
    SCHEMA.write(folder / "schema.json")

    def write(text, suffix=".csv"):
        path = folder / f"{next(count)}{suffix}"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


@pytest.fixture
def left(tmp_path):
    return tmp_path / "left"


def words(left, data, **changes):
    """An `apply` under add_remove; an option that is None is left out."""
    options = {
        "--protector": "noisygd",
        "--data": data,
        "--schema": str(Path(data).parent / "schema.json"),
        "--epsilon": "2",
        "--delta": "1e-6",
        "--adjacency": "add_remove",
        "--rows": str(N),
        "--out": str(left / "run"),
    } | {"--" + name.replace("_", "-"): value for name, value in changes.items()}
    return [
        "apply",
        *(word for option, value in options.items() if value is not None for word in (option, *value.split(" "))),
    ]


def compare(left, data, **changes):
    options = {
        "--methods": "noisygd",
        "--data": data,
        "--schema": str(Path(data).parent / "schema.json"),
        "--epsilon": "2",
        "--delta": "1e-6",
        "--adjacency": "add_remove",
        "--seeds": "1",
        "--out": str(left / "compared"),
    } | {"--" + name: value for name, value in changes.items()}
    return ["compare", *(word for pair in options.items() for word in pair)]


def refused(args, left):
    """One sentence, exit code 2, and nothing private."""
    code, text = observed(lambda: main(args), left)
    assert leaks(text) == []
    assert code == 2, text
    assert text.strip()
    assert text.strip().count("\n") == 0
    return text


# ---------------------------------------------------------------------------------------------------- the command line
@pytest.mark.slow
def test_good_runs_say_nothing_private(given, left, capfd):
    ledger, table = left / "ward.ledger", given(GOOD)
    left.mkdir()
    create = ["ledger", "create", str(ledger), "--name", "ward", "--epsilon", "9", "--delta", "1e-5"]
    runs = [
        [*create, "--adjacency", "add_remove"],
        words(left, table, out=str(left / "plain"), ledger=str(ledger)),
        words(left, table, out=str(left / "tested"), test=given(apart(GOOD))),
        words(left, table, out=str(left / "seeded"), seed="3"),
        words(
            left, given("\n".join([HEADER, *lines_of(f"{NUMBER},0.1,7")])), out=str(left / "null"), on_invalid="null"
        ),
        ["account", "--card", str(left / "plain" / "card.json"), "--verify"],
        ["ledger", "show", str(ledger)],
        ["ledger", "show", str(ledger), "--json"],
    ]
    for args in runs:
        code, text = observed(lambda args=args: main(args), left)
        assert (code, leaks(text)) == (0, []), args
    assert leaks("".join(capfd.readouterr())) == []  # output of XLA itself, below Python's streams
    assert {"metrics.json", "card.html", "model.safetensors"} <= {path.name for path in left.rglob("*")}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_table_is_refused_without_a_word_of_it(given, left, name):
    table = given(BAD[name])
    refused(words(left, table), left)
    refused(words(left, table, adjacency="zero_out", rows=None, out=str(left / "b")), left)
    refused(words(left, given(GOOD), test=table, out=str(left / "c")), left)
    refused(compare(left, table), left)
    read, text = observed(lambda: read_rows(table, Encoding(SCHEMA)))
    assert isinstance(read, InputError)
    assert leaks(text) == []


@pytest.mark.parametrize("name", NULLED)
def test_rows_counted_as_null_are_not_reported(given, left, name):
    table = given(BAD[name])
    code, text = observed(lambda: main(words(left, table, on_invalid="null", test=given(apart(BAD[name])))), left)
    assert (code, leaks(text)) == (0, [])


def parquet(path, **columns):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    arrays = [pa.array(values) for values in columns.values()]
    pq.write_table(pa.Table.from_arrays(arrays, names=list(columns)), path)


NUMBERS = [NUMBER, *np.linspace(0, 120, COUNT - 1).tolist()]
LABELS = [0, 1] * (COUNT // 2) + [1]
PARQUET = {
    "words": {"age": [WORD] * COUNT, "dose": NUMBERS, "readmit": LABELS},
    "words in a column that is not declared": {"age": NUMBERS, "dose": NUMBERS, "readmit": LABELS, "x": [WORD] * COUNT},
    "a row for names": {WORD: NUMBERS, str(NUMBER): NUMBERS, "1": LABELS},
    "words below a row for names": {WORD: [WORD] * COUNT, str(NUMBER): NUMBERS, "1": LABELS},
    "labels": {"age": NUMBERS, "dose": NUMBERS, "readmit": NUMBERS},
    "empty cells": {"age": [None, *NUMBERS[1:]], "dose": NUMBERS, "readmit": LABELS},
    "lists": {"age": [[NUMBER]] * COUNT, "dose": NUMBERS, "readmit": LABELS},
    "bytes": {"age": [WORD.encode()] * COUNT, "dose": NUMBERS, "readmit": LABELS},
}


@pytest.mark.parametrize("name", PARQUET)
def test_a_bad_parquet_table_is_refused_without_a_word_of_it(given, left, name):
    path = given(b"", ".parquet")
    parquet(path, **PARQUET[name])
    refused(words(left, path), left)
    refused(compare(left, path), left)
    read, text = observed(lambda: read_rows(path, Encoding(SCHEMA)))
    assert isinstance(read, InputError)
    assert leaks(text) == []


@pytest.mark.parametrize("cut", [0, 4, 40, 400])
def test_a_broken_parquet_file_is_refused_without_a_word_of_it(given, left, cut):
    path = Path(given(b"", ".parquet"))
    parquet(path, age=[WORD] * COUNT, dose=NUMBERS, readmit=LABELS)
    content = path.read_bytes()
    path.write_bytes(content[:cut] + b"\xff" * 9 + content[cut + 9 :])
    refused(words(left, str(path)), left)


def test_a_table_given_for_another_file_is_not_quoted(given, left):
    """As a schema, as a card, as a comparison, as a ledger and as a checkpoint."""
    tables = [f"[{NUMBER}, {{]", f"{NUMBER}\n{NUMBER}\n", f"{WORD}\n", GOOD, BAD["binary"], BAD["no UTF-8"]]
    for text in tables:
        path = given(text)
        refused(words(left, given(GOOD), schema=path), left)
        refused(words(left, given(GOOD), out=str(left / "b"), ledger=path), left)
        refused(words(left, given(GOOD), out=str(left / "c"), protector=path), left)
        refused(["account", "--card", path], left)
        refused(["ledger", "show", path], left)
        refused(["ledger", "create", path, "--name", "ward", "--epsilon", "9", "--delta", "1e-5"], left)
        refused(["compare", "--config", path], left)
        refused(["leaderboard", path], left)


#: A column that was not declared; with --test it is ignored.
WIDER = "\n".join([HEADER + ",weight", *(f"{line},{NUMBER}" for line in lines_of())])
WRONG = {
    "a column that is not declared": ({"data": WIDER}, "columns that the schema does not declare: 'weight'"),
    "no rows": ({"rows": None}, "N must not be read off the table"),
    "no rows in a simulation": ({"rows": None, "seed": "3"}, "N must not be read off the table"),
    "delta above 1/N": ({"delta": "1e-2"}, "not below 1/N"),
    "more lines than N, for a solve": ({"protector": "objpert"}, "more lines than N"),
    "a regression on classes": ({"model": "quadratic"}, "which model quadratic does not learn"),
    "fixed-size batches": ({"protector": "sgd_adv"}, "replace_one"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options_for_a_good_table_tell_nothing_of_it(given, left, name):
    changes, phrase = WRONG[name]
    given_options = dict(changes)
    table = given(given_options.pop("data", GOOD))
    assert phrase in refused(words(left, table, **given_options), left)


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"columns": {"age": Number(0, 120), "dosis": Number(-1, 1)}}, "no column 'dosis'; did you mean 'dose'?"),
        ({"columns": {"age": Number(0, 120)}}, "columns that the schema does not declare: 'dose'"),
        ({"columns": {"alter": Number(0, 120), "dosis": Number(-1, 1)}}, "has no column"),
        ({"target": Target("readmitt", (0, 1))}, "did you mean 'readmit'?"),
        ({"target": Target("Readmit", (0, 1))}, "did you mean 'readmit'?"),
        ({"target": Target("outcome", (0, 1))}, "has no column 'outcome'"),
        ({"target": Target("readmit", (7, 8))}, "labels other than '7', '8'"),
    ],
)
def test_a_wrong_schema_for_a_good_table_tells_nothing_of_it(given, left, changes, phrase):
    table = given(GOOD)
    dataclasses.replace(SCHEMA, **changes).write(Path(table).with_name("schema.json"))
    assert phrase in refused(words(left, table), left)
    assert phrase in refused(compare(left, table), left)


@pytest.mark.slow
def test_a_comparison_tells_nothing_of_a_file_but_scores(given, left):
    refused(compare(left, given(GOOD), delta="1e-2"), left)
    code, text = observed(lambda: main(compare(left, given(GOOD))), left)
    assert (code, leaks(text)) == (0, [])


@pytest.mark.slow
def test_a_process_tells_nothing_either(given, left):
    args = words(left, given(BAD["no header, words alone"]))
    done = subprocess.run([sys.executable, "-m", "l2p", *args], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, leaks(done.stderr)) == (2, "", [])


@pytest.mark.parametrize("kind", [MemoryError, ValueError])
def test_what_other_libraries_say_while_rows_are_at_hand_is_withheld(kind, monkeypatch, given, left):
    def fail(*args, **kwargs):
        raise kind(SAID)

    table = given(GOOD)
    places = {
        "l2p.tables.reading.delimited._sniffed": lambda: main(words(left, table)),
        "l2p.tables.schema.encoding.scale": lambda: main(words(left, table)),
        "l2p.compare.scores._of_classes": lambda: main(words(left, table, test=given(apart(GOOD)))),
        "l2p.compare.runner.compare": lambda: main(compare(left, table)),
    }
    for place, act in places.items():
        with monkeypatch.context() as patch:
            patch.setattr(place, fail)
            code, text = observed(act)
        assert code == 1, place
        assert f"{kind.__name__} at " in text
        assert "its message is withheld" in text
        assert leaks(text) == []


def test_the_search_finds_what_a_run_prints_and_writes(monkeypatch, given, left):
    table, test, score = given(GOOD), given(apart(GOOD)), {"num_rows": COUNT}
    monkeypatch.setattr("l2p.compare.scores.metrics", lambda *_: score)
    assert leaks(observed(lambda: main(words(left, table, test=test)), left)[1]) == ["the count"]
    monkeypatch.setattr("l2p.compare.scores.metrics", lambda *_: print(f"{NUMBER:,}") or {})
    args = words(left, table, test=test, out=str(left / "again"))
    assert leaks(observed(lambda: main(args))[1]) == ["the number"]
