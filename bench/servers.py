"""The brokers under measurement, each a process of its own, ended by pid on the way out."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

READY_TIMEOUT_S = 30

_MOCK = """
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1})
broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
print(f"listening on {broker.host}:{broker.port}", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Server:
    name: str
    address: str
    pid: int
    data: Path | None


def _read_address(stream: IO[str]) -> str:
    seen = []
    for line in stream:
        seen.append(line)
        if match := re.search(r"listening on \D*?([0-9.]+:[0-9]+)", line):
            return match.group(1)
    raise RuntimeError(f"the server ended without an address: {''.join(seen)}")


def installed() -> dict[str, str]:
    """An environment in which our modules are compiled once, as those of an installed program."""
    cache = Path(tempfile.gettempdir(), f"segbroker-bench-modules-{os.getuid()}")
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(cache)}


@contextmanager
def segbroker(
    *flags: str,
    data: Path | None = None,
    program: Sequence[str] = ("-m", "segbroker.cli"),
    interpreter: str = sys.executable,
) -> Iterator[Server]:
    """The daemon on a free port, with a temporary data directory unless one is given.

    program: what the interpreter is given to run, where it is not the command as installed.
    interpreter: of another virtual environment, where another version is installed.
    """
    with tempfile.TemporaryDirectory(prefix="segbroker-bench-") as folder:
        root = data or Path(folder, "data")
        command = [interpreter, *program, "serve"]
        command += ["--data", str(root), "--listen", "127.0.0.1:0", *flags]
        log = Path(folder, "log")
        with log.open("w") as sink:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=sink, text=True, env=installed()
            )
            try:
                assert process.stdout is not None
                yield Server("segbroker", _read_address(process.stdout), process.pid, root)
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(READY_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                if process.stdout is not None:
                    process.stdout.close()


@contextmanager
def mock_broker() -> Iterator[Server]:
    """librdkafka's in-memory mock cluster of one broker, served by another process."""
    process = subprocess.Popen(
        [sys.executable, "-c", _MOCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield Server("mock", _read_address(process.stdout), process.pid, None)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
