"""Python for Spark without its start: a process that has everything imported, and forks.

    warm_python(folder)    starts the process, and writes folder/python, to be PYSPARK_PYTHON

A JVM starts half a dozen Pythons for a first query (a daemon for each kind of worker, and one for
each stream), each of which imports pyspark, pyarrow and us anew: a second of processor time, and on
a busy machine more than the ten seconds that Spark gives a worker to call back.  folder/python is a
program that hands its arguments, environment and open files to the process here, waits for the
fork that does the work, and ends as that ended.

Only for tests that start many JVMs: what is measured and what users run is python itself.

Invariant: a fork ends when its caller does, however that ends, and all end with the block, whose
processes are a group of their own.
"""

import array
import json
import os
import runpy
import secrets
import select
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
START_TIMEOUT_S = 120
MODULES = (
    "pyarrow",
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "tests.spark.killing",
)
CALLER = """#!{python} -IS
import array, json, os, socket, sys
caller = socket.socket(socket.AF_UNIX)
caller.connect({address!r})
told = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
descriptors = array.array("i", [0, 1, 2])
caller.sendmsg([len(told).to_bytes(4)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
caller.sendall(told)
for descriptor in descriptors:
    os.close(descriptor)
code = caller.recv(4)
os._exit(int.from_bytes(code) if code else 1)
"""


@contextmanager
def warm_python(folder: Path) -> Iterator[Path]:
    """The program to give to Spark as its Python, while the process behind it runs."""
    # A name without a file: a path to a test's folder may be too long for a socket.
    address = f"\0segbroker-python-{secrets.token_hex(8)}"
    program = folder / "python"
    program.write_text(CALLER.format(python=sys.executable, address=address))
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.warm_python", str(listener.fileno())],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    assert process.stdin is not None
    try:
        yield program
    finally:
        process.stdin.close()
        try:
            process.wait(START_TIMEOUT_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def serve(listener: socket.socket) -> None:
    """Fork for every caller, until standard input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    watched = select.poll()
    watched.register(listener, select.POLLIN)
    watched.register(0, select.POLLHUP)
    while not any(descriptor == 0 for descriptor, _ in watched.poll()):
        caller, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os._exit(stand_in_for(caller))
        caller.close()


def stand_in_for(caller: socket.socket) -> int:
    """Run what the caller was asked to run in a fork, and stay beside it."""
    size, extra, _, _ = caller.recvmsg(4, socket.CMSG_SPACE(12))
    descriptors = array.array("i", extra[0][2])
    told = b""
    while len(told) < int.from_bytes(size):
        told += caller.recv(1 << 20)
    arguments, environment, folder = json.loads(told)
    done, over = os.pipe()
    worker = os.fork()
    if worker == 0:
        caller.close()
        os.close(done)
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        run(arguments)
    os.close(over)
    for descriptor in (0, 1, 2, *descriptors):
        os.close(descriptor)
    gone = select.select([done, caller.fileno()], [], [])[0]
    if done not in gone:
        os.kill(worker, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    if caller.fileno() not in gone:
        caller.sendall((code % 256).to_bytes(4))
    return 0


def run(arguments: list[str]) -> None:
    """As `python -m MODULE ARGUMENTS` or `python -c TEXT` does; does not return."""
    flag, what, *rest = arguments
    sys.argv = [what, *rest]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path not in sys.path]
    code = 0
    try:
        if flag == "-c":
            exec(what, {"__name__": "__main__"})
        else:
            # It is imported already, and runs anew under its other name.
            warnings.simplefilter("ignore", RuntimeWarning)
            runpy.run_module(what, run_name="__main__", alter_sys=True)
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    for name in MODULES:
        __import__(name)
    serve(socket.socket(fileno=int(sys.argv[1])))
