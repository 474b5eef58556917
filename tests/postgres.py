"""A PostgreSQL server for tests, on a Unix socket in a folder of its own, run as a user that is not root."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

#: Set where a missing server is a failure, as it is in .ci/run.
REQUIRED = "L2P_SERVERS"


class Server(NamedTuple):
    """A running server, which trusts whoever asks.

    Attributes:
      folder: of its socket.
      programs: where its programs lie.
    """

    folder: Path
    programs: Path

    def address(self, table: str, user: str = "l2p", **parts: str) -> str:
        more = "".join(f"&{name}={value}" for name, value in parts.items())
        return f"postgresql://{user}:sesame@/postgres?host={self.folder}&table={table}{more}"

    def execute(self, *statements: str) -> None:
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(f"postgresql:///postgres?host={self.folder}&user=l2p") as connection:
            for statement in statements:
                with connection.cursor() as cursor:
                    cursor.execute(statement)
            connection.commit()


def lacking(fault: str) -> NoReturn:
    """Fail where servers are required, and skip elsewhere."""
    if os.environ.get(REQUIRED):
        pytest.fail(fault)
    pytest.skip(fault)


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """A server; without one, or its driver, the tests fail where it is required and are skipped elsewhere."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    program = programs[-1] if programs else shutil.which("initdb")
    if program is None:
        lacking("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    if not os.environ.get(REQUIRED):
        pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")
    folder, programs_at = (
        Path(tempfile.mkdtemp(prefix="l2p-pg-", dir="/tmp")),
        Path(program).parent,
    )  # sockets: 107 bytes
    as_user = _someone_else(folder)

    def call(program: str, *words: str) -> None:
        subprocess.run(
            [programs_at / program, "-D", folder / "data", *words],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=folder,
            **as_user,
        )

    try:
        call("initdb", "-A", "trust", "-U", "l2p", "--no-sync", "--locale=C", "-E", "UTF8")
        options = f"-c listen_addresses='' -k {folder} -c fsync=off -c shared_buffers=16MB -c autovacuum=off"
        call("pg_ctl", "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield Server(folder, programs_at)
        finally:
            call("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _someone_else(folder: Path) -> dict:
    """Arguments of `subprocess` for a user that is not root, who gets the folder; CI runs as root."""
    if os.getuid() != 0:
        return {}
    names = {user.pw_name: user for user in pwd.getpwall()}
    user = names.get("postgres") or names["nobody"]
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
