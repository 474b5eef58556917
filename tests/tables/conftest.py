"""The ward's table in files, in DuckDB and on a PostgreSQL server."""

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.postgres import running
from tests.tables.ward_files import KINDS, N, address_of, columns


@pytest.fixture(scope="session")
def table():
    return pa.table(columns())


@pytest.fixture(scope="session")
def folder(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("rows")
    table.to_pandas().to_csv(folder / "ward.csv", index=False)
    for place, start_at in enumerate((0, 1000, 1001)):
        part = table.slice(start_at, (1000, 1, N)[place])
        pq.write_table(part, folder / f"part-{place}.parquet", row_group_size=300)
    with duckdb.connect(folder / "ward.db") as connection:
        connection.register("source", table)
        connection.execute("CREATE TABLE ward AS FROM source")
        connection.execute('CREATE VIEW "the ""ward""" AS FROM ward')
    return folder


@pytest.fixture(scope="session")
def server(table):
    with running() as server:
        server.execute(
            "CREATE TYPE answer AS ENUM ('no', 'yes')",
            "CREATE TABLE ward (id bigint PRIMARY KEY, age numeric, dose float8, smokes bool, ward varchar(9), "
            "back answer)",
            "CREATE TABLE secrets (id int)",
            "CREATE TABLE empty (LIKE ward)",
            "CREATE ROLE reader LOGIN",
            "CREATE ROLE stranger LOGIN",
            "GRANT SELECT ON ward TO reader",
            "CREATE TABLE staged (id bigint, age bigint, dose float8, smokes bool, ward text, back text)",
        )
        fill(server, table.slice(0, N // 2))
        server.execute("UPDATE ward SET id = id WHERE id < 50")  # rows are no longer stored in the order of the key
        fill(server, table.slice(N // 2))
        yield server


def fill(server, table):
    from adbc_driver_postgresql import dbapi

    at = f"postgresql:///postgres?host={server.folder}&user=l2p"
    with dbapi.connect(at) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("staged", table, mode="append")
        connection.commit()
    server.execute("INSERT INTO ward SELECT id, age, dose, smokes, ward, back::answer FROM staged", "TRUNCATE staged")


@pytest.fixture(params=KINDS)
def address(request, folder):
    return address_of(request.param, request, folder)
