"""Programs of other people as child processes: started, watched, killed, ended.

What a program prints is kept as it comes; what it complains of goes to a file, which is told when
the program does not do what a test waits for.
"""

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from .java import START_S
from .waiting import until

END_S: Final = 120.0

# For what a program does of which others were started, too, or one that was killed is missed.
eventually: Final = partial(until, deadline_s=START_S)


class Program:
    """A program in a process of its own, and the lines that it prints, as they come."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        what: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it.

        Args:
            command: the program and what it is told.
            log: where its standard error goes.
            what: how messages call it; the command by default.
            environment: beside that of this process.
        """
        self.lines: list[str] = []
        self._what = what or " ".join(command)
        self._log = log.open("a+")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                self.lines.append(line.rstrip("\n"))

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def check(self) -> None:
        """Raise when it has ended."""
        code = self._process.poll()
        assert code is None, f"ended with {code}: {self.state()}"

    def state(self) -> str:
        """What it said last, and what it complained of."""
        self._log.seek(0)
        return f"{self._what}: said {self.lines[-8:]}; {self._log.read()[-4_000:]}"

    def wait_for(self, line: str, count: int = 1) -> None:
        """Wait until it has printed this line `count` times; a machine may be slow."""
        ends = time.monotonic() + START_S
        while self.lines.count(line) < count:
            self.check()
            assert time.monotonic() < ends, f"no {line!r} within {START_S:.0f} s: {self.state()}"
            time.sleep(0.05)

    def kill(self) -> None:
        """End it without a word (SIGKILL)."""
        self._process.kill()
        self._process.wait(END_S)
        self._thread.join(END_S)

    def end(self) -> int:
        """Write a line to it, which tells it to end; its exit code."""
        assert self._process.stdin is not None
        with self._process.stdin as stdin:
            stdin.write("\n")
        code = self._process.wait(END_S)
        self._thread.join(END_S)
        return code

    def wait(self, timeout_s: float = START_S) -> int:
        """Wait until it has ended by itself; its exit code."""
        code = self._process.wait(timeout_s)
        self._thread.join(END_S)
        return code

    def terminate(self) -> int:
        """Send SIGTERM; its exit code."""
        self._process.terminate()
        return self.wait()

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it, if it has not ended."""
        self.close()

    def close(self) -> None:
        """Kill it, if it has not ended, and close what is open of it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(END_S)
        self._thread.join(END_S)
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        self._log.close()
