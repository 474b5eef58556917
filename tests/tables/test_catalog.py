"""Named public data sets: shapes, ranges, refusals, and downloads from a small server on this machine."""

import gzip
import hashlib
import http.server
import io
import os
import re
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.tables import sets
from l2p.tables.public.catalog import load, num_classes
from l2p.tables.public.download import Source, data_folder, fetch
from l2p.tables.sets import NAMES, find

CONTENT = b"1 0 2\n0 1 3\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def real_folder(*files):
    """The folder that holds these real files, or a skip that says why."""
    folder = Path(os.environ.get("L2P_DATA_DIR", SHARED))
    for file in files:
        if not any((folder / name).exists() for name in (file, f"{file}.gz")):
            pytest.skip(f"{file} is not in {folder}: set L2P_DATA_DIR to a folder that has it")
    return folder


#: Shape, kind and digest of x and y: the data behind committed results must never change.
REAL = {
    "ipums_br": ((38_000, 52), "binary", "1f018930291214abeda5ea1f4e4356ce52b18779254f3541a9e508d546e1fc80"),
    "adult": ((48_842, 123), "binary", "333bb9263293d24a0e7a7e3535d273278386eef0156eeda9b8f894032ed63afd"),
    "mnist": ((10_000, 784), "multiclass", "7133361a130b46752a27a98b6b8929145544585bad5d4022819592ab071f6120"),
    "mnist:features": ((10_000, 288), "multiclass", "1223ad7103f35a069e009004e1c99f57be030c507ac636854a413df0f9ad8420"),
    "mnist:4,6": ((1_940, 784), "binary", "d9572fc4304de03271d9449a258cb0315a506e5d9d3a5c7abf619214363b6d5f"),
    "california": ((20_640, 8), "regression", "a0eadee7c2a49e7f43f5c866ca1560a6511d24709fe0279cef193a4b138479a1"),
}
PACKAGED = {
    "digits": ((1_797, 64), "multiclass", "8b380b811d800f881e31505021a9f1a1e1acbf7f16786b2b8846cb3f91b2b758"),
    "digits:odd": ((1_797, 64), "binary", "d2028d924f8e01230a514d15ac4dde2c2a1d09cfe5f75b67fce06aed6a66f656"),
    "digits:features": ((1_797, 288), "multiclass", "16f1afe0ffa4c4f1672b2c5ba173272b8eae1f8b0fdc320f2418cb55ebf7f226"),
    "digits:features:18": (
        (1_797, 18),
        "multiclass",
        "ce4dd7649c6a61544451e3b3deb36a62aa0c1c38481afa59739d23c6755dde28",
    ),
    "digits:3,5": ((365, 64), "binary", "942902375ea5efa9005e9ffd8b47b80b3ef41f71ea2a9bf94557ac0110914225"),
    "breast_cancer": ((569, 30), "binary", "46c7a615cb7888a9525ddcfc9d0618bec8820dd9377a0555c47b00f17e39cbef"),
    "diabetes": ((442, 10), "regression", "72f39c60f5bfbff0b9e63fe7237f83f9878d0e1da6100b78a94eee254b473d08"),
    "quadratic": ((10_000, 10), "regression", "e643b3e6be1b0a65e1df2e9d142a095fcdee3c32fa282c5852d3f85bdd49101b"),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_set_says_everything_of_itself(name):
    entry = find(name)
    assert entry.name == name
    assert entry.source.endswith(".")
    assert "licen" in entry.source or "CC BY" in entry.source or "terms" in entry.source
    assert entry.target
    assert len(entry.classes) != 1
    assert len(set(entry.classes)) == len(entry.classes)
    assert not (entry.classes and entry.target_bounds)
    assert all(low < high for low, high in [*entry.bounds.values(), entry.target_bounds or (0, 1)])
    for source in entry.files:
        assert len(source.sha256) == 64
        assert source.urls
        assert all(url.startswith("https://") for url in source.urls)
    for variant in entry.variants:
        placeholders = re.findall(r":(\S+)", variant.meaning)
        assert placeholders
        assert all(re.fullmatch(variant.pattern, text.rstrip(",")) for text in placeholders)
    assert name in REAL | PACKAGED  # its rows are pinned
    assert (name in REAL) == bool(entry.files)


def test_every_file_of_a_set_is_in_the_list():
    there = {path.stem for path in Path(sets.__file__).parent.glob("[!_]*.py")}
    assert there == set(NAMES)
    assert len(NAMES) == len(set(NAMES))


def test_two_sets_do_not_share_a_file_name():
    files = [source.file for name in NAMES for source in find(name).files]
    assert len(files) == len(set(files))


def assert_well_formed(data, name, shape, kind, sha256):
    assert (data.name, data.x.shape, data.kind, data.sha256) == (name, shape, kind, sha256)
    assert data.x.dtype == data.y.dtype == np.float32
    assert data.y.shape == shape[:1]
    assert len(set(data.columns)) == shape[1]
    assert all(type(column) is str for column in data.columns)
    assert data.x.min() >= 0
    assert data.x.max() <= 1
    # No more columns are constant than the blank margin of the MNIST pair.
    varying = data.x.max(axis=0) > data.x.min(axis=0)
    assert varying.mean() > 0.7
    labels = set(np.unique(data.y).tolist())
    assert num_classes(name) == (None if kind == "regression" else len(labels))
    if name == "quadratic":
        assert labels
    elif kind == "regression":
        assert min(labels) == 0
        assert max(labels) == 1
    else:
        assert labels == set(range(len(find(name.partition(":")[0]).classes) if kind == "multiclass" else 2))


@pytest.mark.slow(but=["ipums_br", "california"])
@pytest.mark.parametrize("name", REAL)
def test_a_real_set_has_its_published_shape(name):
    files = [source.file for source in find(name.partition(":")[0]).files]
    assert_well_formed(load(name, real_folder(*files), urls={}), name, *REAL[name])


@pytest.mark.parametrize("name", PACKAGED)
def test_a_packaged_set_needs_no_folder(name, tmp_path):
    assert_well_formed(load(name, tmp_path / "absent"), name, *PACKAGED[name])
    assert not (tmp_path / "absent").exists()


def test_real_scaling_clips_nothing_but_the_census_codes():
    data = load("california", real_folder("cal_housing.data"), urls={})
    # The first block group: longitude -122.23, age 41, income 8.3252, value 452,600 dollars.
    np.testing.assert_allclose(data.x[0, [0, 2, 7]], [2.77 / 11, 41 / 52, 7.8252 / 14.5], rtol=1e-5)
    np.testing.assert_allclose(data.y[0], (452_600 - 15_000) / 485_000, rtol=1e-6)


def test_variants_relabel_the_same_rows():
    digits, odd, pair, swapped = (load(name) for name in ("digits", "digits:odd", "digits:3,5", "digits:5,3"))
    np.testing.assert_array_equal(odd.y, digits.y % 2)
    np.testing.assert_array_equal(pair.y, digits.y[np.isin(digits.y, [3, 5])] == 5)
    np.testing.assert_array_equal(pair.y, 1 - swapped.y)


def test_the_quadratic_set_is_the_same_everywhere_and_has_its_optimum_where_it_says():
    data = load("quadratic")
    index = np.arange(1, 11)
    planted = (-1.0) ** index * index / 385**0.5
    lines = 2.0 * data.x.astype(np.float64) - 1.0
    solution = np.linalg.lstsq(lines, data.y, rcond=None)[0]
    # Noise of 0.1 on 10,000 rows of mean square 1/3: a standard error of 0.0017 for each.
    assert np.abs(solution - planted).max() < 4 * 0.1 * 3**0.5 / 100
    loss = 0.5 * np.square(lines @ planted - data.y).mean()
    np.testing.assert_allclose(loss, 0.005, rtol=4 * (2 / 10_000) ** 0.5)


def test_the_fingerprint_tells_rows_apart():
    assert load("digits").sha256 == load("digits").sha256
    assert len({load(name).sha256 for name in PACKAGED}) == len(PACKAGED)


@pytest.mark.parametrize("name", ["a9a", "", "digits:", "digits:3", "digits:3,3", "adult:odd", "breast_cancer:0,1"])
def test_an_unknown_name_is_refused_with_the_names(name, tmp_path):
    with pytest.raises(InputError) as refusal:
        load(name, tmp_path)
    assert all(name in str(refusal.value) for name in NAMES)


def test_the_folder_is_the_argument_or_the_variable_or_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("L2P_DATA_DIR", raising=False)
    assert data_folder() == tmp_path / "cache" / "l2p"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert data_folder() == tmp_path / ".cache" / "l2p"
    monkeypatch.setenv("L2P_DATA_DIR", str(tmp_path / "named"))
    assert data_folder() == tmp_path / "named"
    assert data_folder(tmp_path) == tmp_path


def archive(name, content):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


@pytest.fixture
def server(monkeypatch):
    """A server on this machine: `server.pages` maps paths to bytes, `server.requests` lists the paths asked for."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.requests.append(self.path)
            page = self.server.pages.get(self.path)
            self.send_response(404 if page is None else 200)
            self.end_headers()
            self.wfile.write(page or b"")

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.pages, running.requests = {}, []
        running.url = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("page", "payload"),
    [("/set", CONTENT), ("/set.gz", gzip.compress(CONTENT)), ("/set.tgz", archive("folder/set", CONTENT))],
    ids=["plain", "gz", "tgz"],  # archives hold the time, and both workers must see one name
)
def test_a_missing_file_is_downloaded_once(server, tmp_path, page, payload):
    server.pages[page] = payload
    source = Source("set", (server.url + page,), SHA256)
    folder = tmp_path / "new" / "folder"
    assert fetch(source, folder) == CONTENT
    assert fetch(source, folder) == CONTENT
    assert server.requests == [page]
    assert [path.name for path in folder.iterdir()] == ["set.gz"]


def test_the_next_mirror_is_tried(server, tmp_path):
    server.pages |= {"/wrong": b"something else", "/torn": gzip.compress(CONTENT)[:-9], "/right": CONTENT}
    urls = tuple(server.url + page for page in ("/absent", "/wrong", "/torn", "/right"))
    assert fetch(Source("set", urls, SHA256), tmp_path) == CONTENT
    assert server.requests == ["/absent", "/wrong", "/torn", "/right"]


@pytest.mark.parametrize(
    ("page", "payload", "reason"),
    [
        ("/absent", None, "404"),
        ("/set", b"something else", "SHA-256 differs"),
        ("/set.gz", gzip.compress(CONTENT)[:-9], "ended before"),
        ("/set.tgz", archive("folder/other", CONTENT), "no set"),
        ("/set.tgz", CONTENT, "not be"),
    ],
    ids=["absent", "checksum", "cut", "other member", "no archive"],
)
def test_a_failed_download_says_where_to_put_the_file(server, tmp_path, page, payload, reason):
    if payload is not None:
        server.pages[page] = payload
    with pytest.raises(InputError, match=reason) as refusal:
        fetch(Source("set", (server.url + page,), SHA256), tmp_path)
    assert str(tmp_path / "set") in str(refusal.value)
    assert server.url + page in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_a_silent_mirror_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    # Listens, accepts in the kernel, and never answers.
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as mute:
        url = f"http://127.0.0.1:{mute.server_port}/set"
        with pytest.raises(InputError, match="timed out"):
            fetch(Source("set", (url,), SHA256), tmp_path, timeout=0.1)


def test_a_file_put_by_hand_is_checked(tmp_path):
    source = Source("set", (), SHA256)
    with pytest.raises(InputError, match="no address known"):
        fetch(source, tmp_path)
    (tmp_path / "set").write_bytes(CONTENT)
    assert fetch(source, tmp_path) == CONTENT
    (tmp_path / "set").write_bytes(CONTENT[:-1])
    with pytest.raises(InputError, match=r"SHA-256 differs.*delete it"):
        fetch(source, tmp_path)


def test_a_folder_that_cannot_be_written_is_refused(server, tmp_path):
    server.pages["/set"] = CONTENT
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(InputError, match="L2P_DATA_DIR"):
        fetch(Source("set", (server.url + "/set",), SHA256), tmp_path / "taken" / "data")


def test_load_checks_what_other_addresses_serve(server, tmp_path):
    server.pages["/ipums"] = CONTENT
    with pytest.raises(InputError, match=r"ipums_br\.dat.*SHA-256 differs"):
        load("ipums_br", tmp_path, urls={"ipums_br.dat": [server.url + "/ipums"]})


@pytest.mark.slow
def test_load_downloads_a_real_set(server, tmp_path):
    folder = real_folder("a9a", "a9a.t")
    server.pages = {f"/{source.file}": fetch(source, folder) for source in find("adult").files}
    served = load("adult", tmp_path, urls={file: [f"{server.url}/{file}"] for file in ("a9a", "a9a.t")})
    assert served.sha256 == load("adult", folder, urls={}).sha256
    assert load("adult", tmp_path, urls={}).sha256 == served.sha256
