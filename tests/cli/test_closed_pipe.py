"""Nobody reads the output any more: the command ends, wherever that finds it."""

import subprocess
import sys
from pathlib import Path

import pytest

from segbroker.cli.exit_codes import ExitCode

from ..support.daemon import running
from .conftest import TIMEOUT_S, environment, in_process, segbroker, unread

HEARD = """
import os, sys, time
from contextlib import suppress
from segbroker.cli.closed_pipe import ended_by_reader

reading, writing = os.pipe()
os.dup2(writing, 1)
os.close(writing)
try:
    with ended_by_reader():
        with suppress(OSError):  # as of a socket, or of standard error
            os.close(reading)
            while True:
                time.sleep(0.01)
except BrokenPipeError:
    sys.exit(7)
"""


def test_what_makes_nothing_of_an_error_of_its_socket_does_not_keep_it() -> None:
    heard = subprocess.run(
        [sys.executable, "-c", HEARD], capture_output=True, timeout=TIMEOUT_S, env=environment()
    )
    assert (heard.returncode, heard.stderr) == (7, b"")


def test_what_failed_half_way_has_failed_though_nobody_takes_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path / "data") as daemon:
        words = ("-b", daemon.address)
        segbroker("topic", "create", "t", "--partitions", "2", *words)
        for index in ("0", "1"):
            segbroker("produce", "t", "-p", index, *words, stdin=b"1\n2\n")
        in_its_place = tmp_path / "data/topics/t/partition_1/t_partition_1.start"
        (in_its_place / "no").mkdir(parents=True)  # nothing is renamed to that
        code, said = unread(daemon, "topic", "trim", "t", "--before", "1", "--yes")

        def interrupted(*args: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("segbroker.cli.trim.echo_table", interrupted)
        ended = in_process("topic", "trim", "t", "--before", "2", "--yes", *words)
    assert said.startswith(b"deleted 2 records of t, then it failed\nError: ")
    assert code == ExitCode.REFUSED
    assert ended.returncode == ExitCode.INTERRUPTED, "by Ctrl-C, while it says what is gone"
