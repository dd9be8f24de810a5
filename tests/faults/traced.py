"""A daemon under strace: counted, killed at, or lied to by, its N-th system call.

    strace -f -D -y -o LOG -e trace=... -e inject=pwrite64:signal=KILL:when=7 python -m ...

| inject | what the daemon meets |
|---|---|
| signal=KILL | it dies on entering the call: the call does not happen, nor anything after it |
| error=EIO | the call does not happen and fails; the process lives |
| error=ENOSPC | the same, as on a full disk |

strace counts per thread and per call: the N-th pwrite64 of any one thread.  With -D the tracer is
the grandchild, so the process we hold is the daemon itself: signals and exit codes are its own.

Where ptrace is not permitted (containers without CAP_SYS_PTRACE, hardened kernels) nothing of this
can run: `require_strace` skips and says why.  As root on a plain machine, as in CI, it runs.
"""

import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from ..support.forks import Forked
from ..support.tools import require

WRITES: Final = ("pwrite64", "pwritev", "pwritev2", "writev", "write")
SYNCS: Final = ("fdatasync", "fsync")
NAMES: Final = ("rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "rmdir")
SIZES: Final = ("ftruncate", "fallocate")
CHANGES: Final = (*WRITES, *SYNCS, *NAMES, *SIZES)
"""Calls that change a disk; which of them the daemon uses is for a first run to count."""

END_TIMEOUT_S: Final = 120

_LINE = re.compile(r"(?P<thread>\d+) +(?P<name>\w+)\((?P<rest>.*)")
_RESUMED = re.compile(r"(?P<thread>\d+) +<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)")
_ENDED = re.compile(r"(\d+) +\+\+\+ (exited with|killed by)")
_FD = re.compile(r"(\d+)<([^>]*)>")


class Call(NamedTuple):
    """One system call as the log tells it."""

    thread: int
    name: str
    rest: str

    @property
    def injected(self) -> bool:
        return "(INJECTED)" in self.rest

    @property
    def failed(self) -> bool:
        return " = -1 " in self.rest

    @property
    def descriptor(self) -> int:
        """Its first argument, a descriptor; -1 when it is none."""
        match = _FD.match(self.rest)
        return int(match[1]) if match else -1

    @property
    def path(self) -> str:
        """Where its first argument, a descriptor or a path, leads."""
        match = _FD.match(self.rest)
        if match:
            return match[2]
        return self.rest.split('"')[1] if '"' in self.rest else ""


@cache
def _problem(strace: str) -> str:
    run = subprocess.run([strace, "-f", "-e", "trace=none", "true"], capture_output=True, text=True)
    return run.stderr.strip() if run.returncode else ""


def require_strace() -> str:
    """The path of strace, installed if need be; skips, aloud, where tracing is not permitted."""
    strace = require("strace")
    problem = _problem(strace)
    if problem:
        pytest.skip(f"strace cannot trace here, so nothing of this is proven: {problem}")
    return strace


@contextmanager
def attached(
    process: Forked, log: Path, inject: str = "", *, calls: tuple[str, ...] = CHANGES
) -> Iterator[None]:
    """Trace a held child from its first step on; the tracer ends with it.

    Args as `under`.  strace counts from its own beginning: the N-th call of this life.
    """
    command = [*_strace(log, inject, calls), "-p", str(process.pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        try:
            status = Path(f"/proc/{process.pid}/status")
            while "TracerPid:\t0\n" in status.read_text():
                if tracer.poll() is not None:
                    assert tracer.stderr is not None
                    raise AssertionError(f"strace: {tracer.stderr.read()}")
                time.sleep(0.002)
            process.release()
            yield
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            tracer.wait(END_TIMEOUT_S)


def under(log: Path, inject: str = "", *, calls: tuple[str, ...] = CHANGES) -> list[str]:
    """The command that runs a daemon under strace.

    log: where the calls are written.  inject: `<call>:<what>:when=<N>`, or nothing.
    """
    return [*_strace(log, inject, calls), "-D"]


def _strace(log: Path, inject: str, calls: tuple[str, ...]) -> list[str]:
    # ? before a name: not an error where the architecture has no such call.
    traced = ",".join(f"?{name}" for name in calls)
    command = [require_strace(), "-f", "-q", "-y", "-o", str(log)]
    # Not --seccomp-bpf, though it would be faster: injections do not happen under it.
    command += ["-e", f"trace={traced}"]
    if inject:
        command += ["-e", f"inject={inject}"]
    return command


def calls_in(log: Path, process: int) -> list[Call]:
    """The calls of a daemon that has ended, in order; waits for strace to write them all."""
    deadline_s = time.monotonic() + END_TIMEOUT_S
    while True:
        text = log.read_text(errors="replace") if log.exists() else ""
        if any(int(match[1]) == process for match in _ENDED.finditer(text)):
            return list(_parse(text))
        if time.monotonic() > deadline_s:
            raise AssertionError(f"strace did not see the end of {process}:\n{text[-2000:]}")
        time.sleep(0.02)


def _parse(text: str) -> Iterator[Call]:
    """Calls in the order in which they ended; one told in two lines is put together."""
    begun: dict[tuple[int, str], str] = {}
    for line in text.splitlines():
        if match := _RESUMED.match(line):
            thread, name = int(match["thread"]), match["name"]
            yield Call(thread, name, begun.pop((thread, name), "") + match["rest"])
        elif match := _LINE.match(line):
            thread, name, rest = int(match["thread"]), match["name"], match["rest"]
            if rest.endswith("<unfinished ...>"):
                begun[thread, name] = rest.removesuffix("<unfinished ...>")
            else:
                yield Call(thread, name, rest)
    # What the kill interrupted.
    for (thread, name), rest in begun.items():
        yield Call(thread, name, rest)


def counts_in(calls: list[Call], data: Path) -> dict[str, int]:
    """How often each call was made on files of the data directory, by the thread that made most."""
    found: dict[str, Counter[int]] = {}
    for call in calls:
        if call.name != "close" and str(data) in call.rest:
            found.setdefault(call.name, Counter())[call.thread] += 1
    return {name: max(threads.values()) for name, threads in found.items()}


def second_syncs(calls: list[Call]) -> list[str]:
    """Syncs of a descriptor whose sync or write had failed before; there must be none."""
    failed: dict[int, str] = {}
    wrong: list[str] = []
    for call in calls:
        fd = call.descriptor
        if call.name == "close":
            failed.pop(fd, None)
        elif call.name in SYNCS and fd in failed:
            wrong.append(f"{call.name} of {call.path} after {failed[fd]}")
        elif call.failed and call.name in (*SYNCS, *WRITES) and "EAGAIN" not in call.rest:
            failed[fd] = f"{call.name}{call.rest[-60:]}"
    return wrong
