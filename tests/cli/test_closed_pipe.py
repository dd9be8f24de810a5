"""Nobody reads the output any more: the command ends, wherever that finds it."""

import subprocess
import sys

from .conftest import TIMEOUT_S, environment

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
