"""Tables of OpenML by their names: facts, a folder of files, and downloads from a small server on this machine."""

import gzip
import hashlib
import http.server
import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import _openml

from l2p.base.errors import InputError
from l2p.checkpoints.overlaps import overlaps
from l2p.tables.own import MIN_OF_CLASS
from l2p.tables.public import openml
from l2p.tables.public.catalog import kind_of, load, num_classes
from l2p.tables.public.openml import FOLDER, TABLES, TableInfo

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "tables"
#: 40 rows of class a, 30 of b and 3 of c, which is too rare.
LABELS = "a" * 40 + "b" * 30 + "c" * 3
ROWS = [
    f"{('red', 'green', '?')[i % 3]},{i / 7:.6g},{'?' if i % 11 == 0 else i % 5},{label}"
    for i, label in enumerate(LABELS)
]
ARFF = "\n".join(
    [
        "@relation toy",
        "@attribute 'the colour' {red,green}",
        "@attribute size numeric",
        "@attribute visits numeric",
        "@attribute class {b,a,c}",
        "@data",
        *ROWS,
        "",
    ]
)
KNOWN = TableInfo(73, 2, "Toy-Table")


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(TABLES, "toy.1", KNOWN)
    monkeypatch.delenv(FOLDER, raising=False)


@pytest.fixture
def folder(toy, monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    (tmp_path / "toy.1.arff").write_text(ARFF)
    return tmp_path


@pytest.mark.long(
    cases=[
        "mushroom",
        "mv",
        "kr.vs.kp",
        "splice",
        "ailerons",
        "fried",
        "pol",
        "2dplanes",
        "nursery",
        "bank32nh",
        "puma32H",
        "elevators",
    ]
)
@pytest.mark.slow(but=["credit.g", "vehicle", "segment"])
@pytest.mark.parametrize("name", TABLES)
def test_facts_are_those_of_the_real_table(name, monkeypatch):
    there = Path(os.environ.get(FOLDER, SHARED))
    if not (there / f"{name}.arff.gz").exists():
        pytest.skip(f"{name}.arff.gz is not in {there}: set {FOLDER} to a folder that has it")
    monkeypatch.setenv(FOLDER, str(there))
    table = load(f"openml:{name}")
    assert table.x.dtype == table.y.dtype == np.float32
    assert table.x.shape == (len(table.y), len(table.columns))
    assert table.x.min() >= 0.0
    assert table.x.max() <= 1.0
    facts = TABLES[name]
    if facts.classes is None:
        assert (table.kind, num_classes(table.name), len(table.y)) == ("regression", None, facts.rows)
        assert 0.0 <= table.y.min() < table.y.max() <= 1.0
    else:
        labels, counts = np.unique(table.y, return_counts=True)
        assert labels.tolist() == list(range(facts.classes))
        assert counts.min() >= MIN_OF_CLASS
        # Of each of the rare classes fewer rows than that were left out.
        assert facts.rows - MIN_OF_CLASS < len(table.y) <= facts.rows
        assert table.kind == ("binary" if facts.classes == 2 else "multiclass")


def test_facts_need_no_file(monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    assert (kind_of("openml:kr.vs.kp"), num_classes("openml:kr.vs.kp")) == ("binary", 2)
    assert (kind_of("openml:vowel"), num_classes("openml:vowel")) == ("multiclass", 11)
    assert (kind_of("openml:pol"), num_classes("openml:pol")) == ("regression", None)
    assert len(TABLES) == 36


def test_a_table_in_the_folder_is_encoded_as_its_own_schema_says(folder):
    table = load("openml:toy.1")
    assert table.columns == (
        *("the colour=green", "the colour=red", "the colour:missing"),
        *("size", "visits", "visits:missing"),
    )
    assert table.x.shape == (70, 6)  # without the rows of class c
    assert table.y.tolist() == [0.0] * 40 + [1.0] * 30
    np.testing.assert_array_equal(table.x[:, 2], np.arange(70) % 3 == 2)
    np.testing.assert_array_equal(table.x[:, 5], np.arange(70) % 11 == 0)
    assert (np.diff(table.x[5:65, 3]) > 0).all()


def test_a_packed_file_is_the_same_table(folder):
    plain = load("openml:toy.1")
    (folder / "toy.1.arff").unlink()
    (folder / "toy.1.arff.gz").write_bytes(gzip.compress(ARFF.encode()))
    assert load("openml:toy.1").sha256 == plain.sha256


def test_a_number_with_few_values_stays_a_number(folder, monkeypatch):
    monkeypatch.setitem(TABLES, "toy.1", TableInfo(73, None))
    (folder / "toy.1.arff").write_text(
        "@relation toy\n@attribute a numeric\n@attribute y {0,10,20}\n@data\n"
        + "".join(f"{i / 7},{i % 3}0\n".replace(",00", ",0") for i in range(73))
    )
    table = load("openml:toy.1")
    assert table.kind == "regression"
    np.testing.assert_allclose(table.y, 10 * (np.arange(73) % 3) / 22, rtol=1e-6)


@pytest.mark.parametrize("dropped", [1, 40], ids=["a row", "a class"])
def test_another_version_of_a_table_is_refused(folder, dropped):
    (folder / "toy.1.arff").write_text(ARFF.replace("\n".join(ROWS[:dropped]) + "\n", ""))
    with pytest.raises(InputError, match=rf"is not openml:toy.1 as published, which has 73 rows and 2 .*{FOLDER}"):
        load("openml:toy.1")


def test_a_table_that_the_folder_lacks_is_asked_for_by_its_file_names(folder):
    (folder / "toy.1.arff").unlink()
    with pytest.raises(InputError, match=rf"toy.1.arff.gz or toy.1.arff, or unset {FOLDER}"):
        load("openml:toy.1")


def test_an_unknown_table_is_refused_with_the_known_ones():
    for ask in (load, kind_of, num_classes):
        with pytest.raises(InputError, match=r"unknown table 'openml:adult': known ones are .*openml:segment"):
            ask("openml:adult")


def answers(port):
    """Answers of OpenML's interface for a table, by path."""
    arff = ARFF.encode()
    columns = [("the colour", "nominal"), ("size", "numeric"), ("visits", "numeric"), ("class", "nominal")]
    url = f"http://127.0.0.1:{port}/data/v1/download/9/toy.arff"
    about = {"id": "7", "name": "Toy-Table", "version": "1", "description": "toys", "format": "ARFF", "url": url}
    about |= {"default_target_attribute": "class", "md5_checksum": hashlib.md5(arff).hexdigest()}
    about |= {"status": "deactivated"}  # a version that OpenML advises against, of which scikit-learn warns
    defaults = {"is_ignore": "false", "is_row_identifier": "false", "number_of_missing_values": "0"}
    features = [
        {"index": str(place), "name": name, "data_type": kind, "is_target": str(name == "class").lower()} | defaults
        for place, (name, kind) in enumerate(columns)
    ]
    qualities = [{"name": "NumberOfInstances", "value": "73.0"}]
    api = "/api/v1/json/data"
    pages = {
        f"{api}/list/data_name/toy-table/limit/2/data_version/1": {"data": {"dataset": [{"did": 7, "version": 1}]}},
        f"{api}/7": {"data_set_description": about},
        f"{api}/features/7": {"data_features": {"feature": features}},
        f"{api}/qualities/7": {"data_qualities": {"quality": qualities}},
    }
    return {path: json.dumps(page).encode() for path, page in pages.items()} | {"/data/v1/download/9/toy.arff": arff}


@pytest.fixture
def server(monkeypatch):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = answers(self.server.server_port).get(self.path)
            self.send_response(404 if body is None else 200)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in ("_SEARCH_NAME", "_DATA_INFO", "_DATA_FEATURES", "_DATA_QUALITIES"):
            url = getattr(_openml, name).replace("https://www.openml.org", f"http://127.0.0.1:{server.server_port}")
            monkeypatch.setattr(_openml, name, url)
        yield server
        server.shutdown()


def test_a_downloaded_table_is_the_one_in_the_file_and_is_kept(toy, server, tmp_path, monkeypatch):
    downloaded = load("openml:toy.1", tmp_path / "cache")
    server.shutdown()
    server.server_close()
    assert load("openml:toy.1", tmp_path / "cache").sha256 == downloaded.sha256
    (tmp_path / "toy.1.arff").write_text(ARFF)
    monkeypatch.setenv(FOLDER, str(tmp_path))
    from_file = load("openml:toy.1")
    assert (downloaded.sha256, downloaded.columns) == (from_file.sha256, from_file.columns)


@pytest.mark.filterwarnings("ignore:A network error occurred")
# scikit-learn leaves answers of failed attempts open, which Python says from 3.14 on.
@pytest.mark.filterwarnings("ignore:.*_TemporaryFileCloser:pytest.PytestUnraisableExceptionWarning")
def test_a_failing_download_says_where_to_put_the_file(toy, server, tmp_path, monkeypatch):
    monkeypatch.setattr(_openml.time, "sleep", lambda seconds: None)  # between attempts
    monkeypatch.setitem(TABLES, "toy.1", KNOWN._replace(published="absent"))
    with pytest.raises(InputError, match=rf"404.*set the environment variable {FOLDER} to a folder .*toy.1.arff.gz"):
        load("openml:toy.1", tmp_path)


def test_tables_overlap_only_by_their_whole_names():
    assert overlaps("openml:segment", ["openml:vowel", "openml:segment"])
    assert not overlaps("openml:segment", ["openml:vowel", "segment", "mnist", "table:vowel:01ab"])
    assert not overlaps("openml:diabetes", ["diabetes"])
    assert not overlaps("diabetes", ["openml:diabetes"])
    assert overlaps("openml:kr.vs.kp", ["table:kr.vs.kp:01ab"])
    assert overlaps("table:kr.vs.kp:01ab", ["openml:kr.vs.kp"])
    assert overlaps("table:diabetes:01ab", ["diabetes"])
    assert not openml.is_openml("table:openml:01ab")
