"""One server for all tests in this folder, and both steps that it may take."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from l2p.estimators.database import SGD
from tests.estimators.database.ward import columns, fill
from tests.postgres import lacking, running

EXTENSION = SGD.with_name("extension")


@pytest.fixture(scope="session")
def server():
    with running() as server:
        fill(server, "ward", columns())
        server.execute(
            'CREATE TABLE "empty" AS SELECT * FROM ward WHERE false',
            'CREATE TABLE twice AS SELECT 1 AS id, age, dose, "it\'s ""odd""", back FROM ward',
            'CREATE VIEW huge AS SELECT id, 1e400::numeric AS age, dose, "it\'s ""odd""", back FROM ward',
            'CREATE VIEW "null" AS SELECT id, age, dose, "it\'s ""odd""", NULL::text AS back FROM ward',
            'CREATE VIEW dice AS SELECT id, 120 * random() AS age, dose, "it\'s ""odd""", back FROM ward',
            "CREATE ROLE stranger LOGIN",
            "CREATE ROLE reader LOGIN",
            "GRANT SELECT ON ward TO reader",
        )
        yield server


@pytest.fixture(scope="session")
def compiled(server):
    """The statements that install the compiled functions, which are built here."""
    config = server.programs / "pg_config"
    headers = subprocess.run([config, "--includedir-server"], capture_output=True, text=True, check=True).stdout
    if not (Path(headers.strip()) / "postgres.h").exists():
        lacking("the server's headers are not installed (Debian: apt-get install postgresql-server-dev-all)")
    folder = shutil.copytree(EXTENSION, server.folder / "extension")
    subprocess.run(
        ["make", f"PG_CONFIG={config}", "with_llvm=no", "CFLAGS=-O2 -fPIC -Wall -Werror"],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (folder / "l2p_sgd.so").chmod(0o755)
    _, statements = (folder / "l2p_sgd--1.sql").read_text().split("\\quit")
    return re.split(
        r"^(?=CREATE )", statements.replace("MODULE_PATHNAME", str(folder / "l2p_sgd")), flags=re.MULTILINE
    )[1:]


@pytest.fixture(params=["plpgsql", "c"])
def step(request, server):
    """The language of the step that sessions take meanwhile."""
    if request.param == "c":
        server.execute(*request.getfixturevalue("compiled"))
    yield request.param
    if request.param == "c":
        server.execute("DROP FUNCTION l2p_step, l2p_places, l2p_scaled CASCADE")
