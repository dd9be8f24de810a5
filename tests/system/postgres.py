"""A PostgreSQL server as a child process, whose changes can be read from outside (wal_level)."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGQUIT
from typing import Final

import pytest

from ..support.ports import keep_port
from ..support.tools import require

_DEADLINE_S: Final = 60.0
# Debian keeps what a server needs out of PATH, in a folder per release.
_PLACES: Final = "lib/postgresql/*/bin/postgres"
USER: Final = "shop"


class Postgres:
    """One server; anybody on this machine may log in as USER."""

    def __init__(self, psql: str, port: int) -> None:
        self.port = port
        self._psql = [psql, "-h", "127.0.0.1", "-p", str(port), "-U", USER, "-d", "postgres"]

    def run(self, sql: str) -> str:
        """Run statements, in one transaction; the rows that they gave."""
        command = [*self._psql, "-qtAX", "-1", "-v", "ON_ERROR_STOP=1"]
        run = subprocess.run(
            command, input=sql, capture_output=True, text=True, timeout=_DEADLINE_S
        )
        assert run.returncode == 0, run.stderr
        return run.stdout

    def is_ready(self) -> bool:
        return subprocess.run([*self._psql, "-c", "select 1"], capture_output=True).returncode == 0


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A fresh server to the end of the block; skips where there is none."""
    psql = require("psql", "postgresql")
    found = sorted(Path("/usr").glob(_PLACES))
    if not found:
        pytest.skip("there is psql, but no server of PostgreSQL")
    # It refuses to run as root, whose folders others cannot enter.
    owner = "postgres" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="segbroker-postgres-"))
    try:
        if owner is not None:
            shutil.chown(folder, owner)
        data, port = folder / "data", keep_port()
        made = [str(found[-1].with_name("initdb")), "-D", str(data), "-U", USER, "-A", "trust"]
        subprocess.run(
            [*made, "--no-sync"],
            check=True,
            capture_output=True,
            user=owner,
            cwd=folder,
            timeout=_DEADLINE_S,
        )
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",
            "wal_level": "logical",
            "fsync": "off",
        }
        flags = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        with (folder / "log").open("w") as log:
            server = subprocess.Popen(
                [str(found[-1]), "-D", str(data), *flags], stderr=log, user=owner, cwd=folder
            )
        try:
            made_it = Postgres(psql, port)
            ends = time.monotonic() + _DEADLINE_S
            while not made_it.is_ready():
                assert server.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < ends, (folder / "log").read_text()
                time.sleep(0.1)
            yield made_it
        finally:
            server.send_signal(SIGQUIT)  # at once, all of its processes
            server.wait(_DEADLINE_S)
    finally:
        shutil.rmtree(folder)
