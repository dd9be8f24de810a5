"""A daemon with a planted bug: `python planted.py <bug> <the command that starts a daemon>`.

    hurries    class disk is acknowledged, and written some seconds later, if nobody asks before
    forgets    what is to be synced is not
    commits    a transaction is committed, and what it wrote and its markers are not synced

Whoever reads or closes a file that `hurries` finds all of it, as with any cache: a process that
goes on shows nothing, and only what is killed with the process is missing.  What the others lose
only a power cut takes.

For the proof of the harness: what the kill loop and the checker say of a broker that is wrong.
"""

import os
import runpy
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from trio.lowlevel import in_trio_run

from segbroker.broker.transactions.markers import Markers
from segbroker.segments.disk.posix import PosixFile
from segbroker.segments.disk.storage import Buffer

LATER_S = 3.0


class Hurry:
    """Writes that were told as done: those of each path, with the time at which they are due."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[tuple[float, PosixFile, bytes, int]]] = {}
        self._lock = threading.Lock()
        self._plain = PosixFile.pwrite

    def put(self, file: PosixFile, data: Buffer, position: int) -> int:
        # Recovery is told the truth: it does not run on the loop.
        if not in_trio_run() or "/written/" not in file.path or not file.path.endswith(".log"):
            return self._plain(file, data, position)
        content = bytes(data)
        with self._lock:
            queue = self._waiting.setdefault(file.path, deque())
            queue.append((time.monotonic() + LATER_S, file, content, position))
        return len(content)

    def write(self, path: str, until_s: float = float("inf")) -> None:
        """Write what of a path is due, or all of it."""
        with self._lock:
            queue = self._waiting.get(path, deque())
            while queue and queue[0][0] <= until_s:
                _, file, content, position = queue.popleft()
                self._plain(file, content, position)

    def run(self) -> None:
        """Write what is due, for ever."""
        while True:
            time.sleep(LATER_S / 10)
            for path in list(self._waiting):
                self.write(path, time.monotonic())


def hurries() -> None:
    hurry = Hurry()

    def pwrite(self: PosixFile, data: Buffer, position: int) -> int:
        return hurry.put(self, data, position)

    PosixFile.pwrite = pwrite  # type: ignore[method-assign]
    for name in ("pread", "pread_nowait", "truncate", "size", "is_in_place", "close"):
        _write_before(hurry, name, getattr(PosixFile, name))
    threading.Thread(target=hurry.run, daemon=True).start()


def _write_before(hurry: Hurry, name: str, plain: Callable[..., object]) -> None:
    def call(self: PosixFile, *arguments: Any) -> object:  # noqa: ANN401
        hurry.write(self.path)
        return plain(self, *arguments)

    setattr(PosixFile, name, call)


def forgets() -> None:
    os.fdatasync = os.fsync = lambda fd: None


def commits() -> None:
    async def sync_data(self: Markers, ending: object) -> bool:
        return True

    async def synced(self: Markers, partition: object) -> None:
        pass

    Markers.sync_data = sync_data  # type: ignore[method-assign]
    Markers._synced = synced  # type: ignore[method-assign]


BUGS: dict[str, Callable[[], None]] = {
    "hurries": hurries,
    "forgets": forgets,
    "commits": commits,
}


if __name__ == "__main__":
    bug, _python, _minus_m, module, *arguments = sys.argv[1:]
    BUGS[bug]()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
