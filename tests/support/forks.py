"""Daemons and commands in a tenth of the time: forked from a process, the stem, with all imported.

    test process -- arguments, environment, descriptors --> stem
                 <-- pid --------------------------------    | fork
                 <-- exit code, on a pipe of its own ----- child: segbroker.cli.main

`python -m segbroker.cli serve` spends most of its first half second on imports; a test that kills
a hundred daemons pays that a hundred times.  A child is a real daemon in all that a kill or a fault
can meet: a process, descriptors, threads and signals of its own, and nothing of an earlier life but
the code.  How an interpreter starts, and what a command imports, is for the tests that start one.

    fork    a child that goes on: a daemon (daemon.py)
    run     one command to its end, as subprocess.run does it

A child may be *held*: it waits before its first step, so that a tracer can be attached.

The stem ends with the test process, however that ends, and kills the children that are left.
Linux only (pidfd).
"""

import atexit
import gc
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn, TextIO

from segbroker.segments.disk import posix

REQUEST_BYTES_MAX = 1 << 16
BOOT_ID = "TESTS_BOOT_ID"
"""Variable with the file that a child takes for that with the id of the machine's boot."""
# Rooms whose modules daemons and commands import; Spark's need a package that may not be there.
ROOMS = ("protocol", "segments", "broker", "client", "cli")


class Forked:
    """A child of the stem, with as much of subprocess.Popen as tests use."""

    def __init__(self, pid: int, stdout: int, status: int, gate: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: TextIO | None = os.fdopen(stdout)
        self._status = status
        self._gate = gate
        try:
            self._pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._pidfd = -1  # it has ended, and the stem has seen it

    def release(self) -> None:
        """Let a held child begin."""
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1

    def poll(self) -> int | None:
        """Its exit code as Popen gives it (negative: the signal), None while it runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            told = os.read(self._status, 16)
            self._end(os.waitstatus_to_exitcode(int(told)) if told else -signal.SIGKILL)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; subprocess.TimeoutExpired when that is not soon enough."""
        if self.returncode is None and not select.select([self._status], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"forked daemon {self.pid}", timeout or 0)
        code = self.poll()
        assert code is not None, "the pipe had its status"
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None and self._pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _end(self, code: int) -> None:
        self.returncode = code
        self.release()
        os.close(self._status)
        if self._pidfd >= 0:
            os.close(self._pidfd)


class Stem:
    """The process that forks; one per test process, started when it is first needed."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forks", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=Path(__file__).parents[2],
            )
        self._lock = threading.Lock()
        atexit.register(self.close)

    def fork(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        stdin: int,
        stderr: int,
        *,
        folder: Path | None = None,
        held: bool = False,
    ) -> Forked:
        """One `segbroker` with these arguments, descriptors and working directory (else ours)."""
        stdout, their_stdout = os.pipe()
        status, their_status = os.pipe()
        their_gate, gate = os.pipe()
        told = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": str(folder or Path.cwd()),
        }
        request = json.dumps(told)
        theirs = [stdin, their_stdout, stderr, their_status, their_gate]
        with self._lock:
            socket.send_fds(self._socket, [request.encode()], theirs)
            pid = int(self._socket.recv(16))
        for descriptor in (their_stdout, their_status, their_gate):
            os.close(descriptor)
        child = Forked(pid, stdout, status, gate)
        if not held:
            child.release()
        return child

    def close(self) -> None:
        """End it, and what it has forked."""
        self._socket.close()
        self._process.wait()


_stems: dict[int, Stem] = {}


def stem() -> Stem:
    """That of this process."""
    found = _stems.get(os.getpid())
    if found is None:
        found = _stems[os.getpid()] = Stem()
    return found


def run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    stdin: bytes = b"",
    folder: Path | None = None,
    timeout_s: float,
) -> "subprocess.CompletedProcess[bytes]":
    """Run `segbroker` to its end, with what it printed; raises subprocess.TimeoutExpired."""
    their_stdin, feed = os.pipe()
    complaints, their_stderr = os.pipe()
    child = stem().fork(arguments, environment, their_stdin, their_stderr, folder=folder)
    os.close(their_stdin)
    os.close(their_stderr)
    assert child.stdout is not None
    with (
        child.stdout,
        os.fdopen(complaints, "rb") as stderr,
        ThreadPoolExecutor(3) as pool,
    ):
        pool.submit(_feed, feed, stdin)
        said, complained = pool.submit(child.stdout.buffer.read), pool.submit(stderr.read)
        try:
            code = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            raise
        return subprocess.CompletedProcess(arguments, code, said.result(), complained.result())


def _feed(descriptor: int, content: bytes) -> None:
    with suppress(BrokenPipeError), os.fdopen(descriptor, "wb") as pipe:
        pipe.write(content)


# In the stem.


def serve(descriptor: int) -> None:
    """Fork whatever is asked for, tell how each child ended; ends when nobody can ask any more."""
    for room in ROOMS:
        package = import_module(f"segbroker.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    gc.collect()
    gc.freeze()
    asking = socket.socket(fileno=descriptor)
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([asking.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 1024)
            _reap(children)
        if asking.fileno() not in ready:
            continue
        request, descriptors, _, _ = socket.recv_fds(asking, REQUEST_BYTES_MAX, 5)
        if not request:
            break
        pid = os.fork()
        if pid == 0:
            for other in (asking.fileno(), woken, wakes, *children.values()):
                os.close(other)
            _child(json.loads(request), *descriptors)
        stdin, stdout, stderr, status, gate = descriptors
        for one in (stdin, stdout, stderr, gate):
            os.close(one)
        children[pid] = status
        asking.send(b"%d" % pid)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _reap(children: dict[int, int]) -> None:
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            told = children.pop(pid)
            with suppress(BrokenPipeError):
                os.write(told, b"%d" % status)
            os.close(told)


def _child(
    request: dict[str, object], stdin: int, stdout: int, stderr: int, status: int, gate: int
) -> NoReturn:
    """Become the daemon or the command: nothing of the stem is left but its code."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, descriptor in enumerate((stdin, stdout, stderr)):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(status)
        os.read(gate, 1)
        os.close(gate)
        arguments, environment = request["arguments"], request["environment"]
        assert isinstance(arguments, list)
        assert isinstance(environment, dict)
        os.chdir(str(request["folder"]))
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["segbroker", *arguments]
        if BOOT_ID in environment:
            posix.BOOT_ID = environment[BOOT_ID]
        try:
            import_module("segbroker.cli.main").main()
            code = 0
        except SystemExit as exc:
            code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
