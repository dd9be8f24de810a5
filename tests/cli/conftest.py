"""One daemon for the folder, and the real command as a subprocess."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pytest
import structlog
from click.testing import CliRunner

from segbroker.cli.main import segbroker as command

from ..support import forks
from ..support.daemon import Daemon, running

TIMEOUT_S = 120
COMMAND = [sys.executable, "-m", "segbroker.cli"]

Run: TypeAlias = Callable[..., "subprocess.CompletedProcess[bytes]"]


def environment(**more: str) -> dict[str, str]:
    """Ours, without settings of the person who runs the tests."""
    clean = {name: value for name, value in os.environ.items() if "SEGBROKER" not in name}
    # rich and click ask these how wide a terminal is; help texts must not depend on it.
    return {**clean, "COLUMNS": "100", "TERM": "dumb", **more}


def segbroker(
    *words: str, stdin: bytes = b"", env: dict[str, str] | None = None, cwd: Path | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run the command to its end; it has begun already, and imported what all commands import."""
    given = environment(**(env or {}))
    return forks.run(words, given, stdin=stdin, folder=cwd, timeout_s=TIMEOUT_S)


def in_process(*words: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """The same without a process of its own: a start of Python takes longer than most commands.

    The log is configured by the command as in a process: afterwards it is as before.
    """
    before = structlog.get_config()
    try:
        run = CliRunner().invoke(command, list(words), input=stdin, env=environment())
    finally:
        structlog.configure(**before)
    if run.exception is not None and not isinstance(run.exception, SystemExit):
        raise run.exception
    return subprocess.CompletedProcess(words, run.exit_code, run.stdout_bytes, run.stderr_bytes)


def start(daemon: Daemon, *words: str, stdout: int = subprocess.PIPE) -> "subprocess.Popen[bytes]":
    """The command, running, with pipes."""
    return subprocess.Popen(
        [*COMMAND, *words, "-b", daemon.address],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment(),
    )


def unread(daemon: Daemon, *words: str) -> tuple[int, bytes]:
    """The exit code of the command whose output nobody reads, and what it says of errors."""
    reader, writer = os.pipe()
    os.close(reader)
    process = start(daemon, *words, stdout=writer)
    os.close(writer)
    _, said = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, said


def shown(leader: int, follower: int) -> bytes:
    """All that was written to a terminal of which this process has both ends; closes the follower.

    The kernel hands it over piece by piece, and a little later.
    """
    os.close(follower)
    found = b""
    with suppress(OSError):  # EIO: its end
        while True:
            found += os.read(leader, 1 << 16)
    return found


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("cli") / "data") as daemon:
        yield daemon


@pytest.fixture
def run(daemon: Daemon) -> Run:
    """The command, with the daemon's address in the environment."""

    def run(*words: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        return segbroker(*words, stdin=stdin, env={"SEGBROKER_BOOTSTRAP": daemon.address})

    return run


_numbers = count()


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"cli-{next(_numbers)}"
