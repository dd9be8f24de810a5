"""A real segbroker daemon as a child process, for tests that look from outside.

A data directory has its ports for as long as the test process lives (ports.py): a daemon that is
started on it again, by whatever function of these, has the address that the one before it had.
"""

import json
import os
import re
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

from .forks import Forked, stem
from .ports import port_of

END_TIMEOUT_S = 120
# Many tests send records of years ago.  A look at ages would delete them, between their writing and
# their reading once in a while: a daemon that several tests have lives for many minutes.
RETENTION_INTERVAL_MS: Final = 86_400_000

Process: TypeAlias = subprocess.Popen[str] | Forked


class NoReadyLine(AssertionError):
    """It ended instead of taking connections; its log says why."""


@dataclass
class Daemon:
    """One running daemon.

    Attributes:
        address: `host:port` it listens on.
        process: the child; its stderr goes to `log`.
        data: its data directory.
        log: the file with its log lines.
        flags: those of `segbroker serve` that it was started with.
    """

    address: str
    process: Process
    data: Path
    log: Path
    flags: Sequence[str] = ()

    def __post_init__(self) -> None:
        # A test that fails between start and stop drops it while it runs: then it ends here, and
        # not as a warning about its pipe and its process in whatever test comes next.
        self._left_behind = weakref.finalize(self, _end, self.process)

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host, int(port)

    def events(self, name: str) -> list[dict[str, Any]]:
        """What its log tells of one event; a line that is being written is not there yet."""
        whole = self.log.read_text().rpartition("\n")[0]
        told = [json.loads(line) for line in whole.splitlines() if line[:1] == "{"]
        return [event for event in told if event["event"] == name]

    def again(self) -> None:
        """Start it again after `stop`: the same directory, address and flags."""
        forked = isinstance(self.process, Forked)
        fresh = start(self.data, *self.flags, forked=forked)
        fresh._left_behind.detach()
        self.process = fresh.process
        self._left_behind = weakref.finalize(self, _end, self.process)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal, wait for the end, return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()


def _end(process: Process) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def log_of(data: Path) -> Path:
    """Where the log of a daemon on `data` goes."""
    return data.with_name(data.name + ".log")


def address_of(data: Path) -> str:
    """HOST:PORT on which every daemon on `data` listens, this one and the next."""
    return f"127.0.0.1:{port_of(data)}"


def launch(data: Path, *flags: str, under: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Start a daemon and do not wait; its stdout will have the ready line.

    Args:
        data: data directory; made when missing. The log goes beside it.
        flags: further flags of `segbroker serve`; port 0 in `--listeners` is one that is kept.
        under: a command that runs it, with its flags: strace.
    """
    command = [*under, sys.executable, "-m", "segbroker.cli", *_arguments(data, flags)]
    with log_of(data).open("a") as sink:
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=sink, text=True, env=_environment()
        )


def fork(data: Path, *flags: str, held: bool = False) -> Forked:
    """As `launch`, a tenth as dear (forks.py); a held one begins when it is released."""
    with log_of(data).open("a") as sink:
        arguments, nothing = _arguments(data, flags), os.open(os.devnull, os.O_RDONLY)
        try:
            return stem().fork(arguments, _environment(), nothing, sink.fileno(), held=held)
        finally:
            os.close(nothing)


def _arguments(data: Path, flags: Sequence[str]) -> list[str]:
    words = ["serve", "--data", str(data), "--listen", address_of(data)]
    for before, word in pairwise(("", *flags)):
        is_listening = before == "--listeners" or word.startswith("--listeners=")
        words.append(_with_ports(data, word) if is_listening else word)
    return words


def _with_ports(data: Path, listeners: str) -> str:
    place = count()
    return re.sub(r"(?<=127\.0\.0\.1:)0\b", lambda _: str(port_of((data, next(place)))), listeners)


def _environment() -> dict[str, str]:
    """Ours, without settings of the person who runs the tests."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith("SEGBROKER_")}
    return {**ours, "SEGBROKER_RETENTION_INTERVAL_MS": str(RETENTION_INTERVAL_MS)}


def ready(process: Process, data: Path, *flags: str) -> Daemon:
    """The daemon, as soon as it takes connections; NoReadyLine when it ends instead.

    flags: those that it was started with, for the next time.
    """
    log = log_of(data)
    assert process.stdout is not None
    line = process.stdout.readline()
    match = re.search(r"listening on (\S+:\d+)", line)
    if match is None:
        process.kill()
        process.wait()
        process.stdout.close()
        raise NoReadyLine(f"no ready line but {line!r}; the log says:\n{log.read_text()}")
    return Daemon(match.group(1), process, data, log, flags)


def start(data: Path, *flags: str, under: Sequence[str] = (), forked: bool = True) -> Daemon:
    """Start a daemon and wait for its ready line.

    forked: as `fork` does it, if nothing runs it; else as `launch`.
    """
    if forked and not under:
        return ready(fork(data, *flags), data, *flags)
    return ready(launch(data, *flags, under=under), data, *flags)


@contextmanager
def running(data: Path, *flags: str) -> Iterator[Daemon]:
    """A daemon for the length of a `with` block; ended by SIGTERM."""
    daemon = start(data, *flags)
    try:
        yield daemon
    finally:
        daemon.stop()
