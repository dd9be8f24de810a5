"""A session of Spark for one command: its start, what interrupts it, its end, and its JVM.

PySpark is made for notebooks, where Ctrl-C ends a job and errors are read with their tracebacks.  A
command ends as a whole, says why in a sentence, and leaves no process behind.
"""

import logging
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from .command import interruptible
from .exit_codes import ExitCode
from .failures import Failure
from .spark_failures import failure_of, failure_of_ours
from .topic import open_admin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Where Py4J logs that a call was interrupted; "": the root.
PY4J_LOGGERS: Final = ("", "py4j.java_gateway", "py4j.clientserver")
CONTEXT_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Here PySpark logs an error of a query, with the stack of the JVM: 10 KB of JSON in a line."""


@contextmanager
def spark_session(
    name: str, options: dict[str, Any], bootstrap: str | None
) -> "Iterator[SparkSession]":
    """A session for one command; its errors become sentences.

    name: what Spark's own page calls it.  options: `master`, a URL, and `conf`, settings of Spark
    by their names.  bootstrap: a broker that must answer first, as soon as to any command: a query
    waits for one that restarts, a minute long.
    """
    if find_spec("pyspark") is None:
        raise Failure(
            "Spark is not installed here",
            ExitCode.SYSTEM,
            "pip install '.[spark]' in a checkout of segbroker (it is not on PyPI yet)",
        )
    interruptible(silently=True)
    if bootstrap is not None:
        with open_admin(bootstrap) as admin:
            admin.describe_cluster()
    from segbroker.spark import session
    from segbroker.spark.errors import SourceError

    conf = {
        "spark.master": options["master"],
        "spark.app.name": f"segbroker {name}",
        "spark.log.level": "OFF",
        "spark.sql.session.timeZone": "UTC",
        **options["conf"],
    }
    try:
        with _quietly_interrupted(), _no_jvm_left():
            running = _begun(session, conf)
    except Exception as exc:
        if (interrupt := _interrupt_before(exc)) is not None:
            raise interrupt from None
        if isinstance(exc, RuntimeError):  # no Java
            raise Failure(str(exc), ExitCode.SYSTEM) from exc
        raise
    interrupt = None
    try:
        with _quietly_interrupted(), _told_once():
            yield running
    except KeyboardInterrupt as exc:
        interrupt = exc
        raise
    except SourceError as exc:
        raise failure_of_ours(type(exc).__name__, str(exc)) from exc
    except Exception as exc:
        if (interrupt := _interrupt_before(exc)) is not None:
            raise interrupt from None
        failure = failure_of(exc)
        if failure is None:
            raise
        raise failure from exc
    finally:
        try:
            running.stop()
        except Exception:
            if interrupt is None:
                raise


def _begun(
    session: Callable[[dict[str, str]], "SparkSession"], conf: dict[str, str]
) -> "SparkSession":
    """A session; what Spark says of a start that fails, asked before its JVM is killed."""
    try:
        return session(conf)
    except Exception as exc:
        if (failure := failure_of(exc)) is None:
            raise
        hint = "--master and --conf are settings of Spark"
        raise Failure(f"Spark does not start: {failure}", ExitCode.SYSTEM, hint) from exc


def _interrupt_before(error: BaseException) -> BaseException | None:
    """The signal that came before this error, if one did: who sends SIGTERM to the whole group, as
    `timeout` and systemd do, ends the JVM with it, and no call of it works any more."""
    earlier: BaseException | None = error
    while earlier is not None and not isinstance(earlier, KeyboardInterrupt):
        earlier = earlier.__context__
    return earlier


@contextmanager
def _quietly_interrupted() -> "Iterator[None]":
    """Ctrl-C and SIGTERM end a command that waits for Spark, or for its start, without tracebacks.

    PySpark's handler of Ctrl-C asks the JVM to cancel its jobs, over the connection on which the
    command waits, and fails; a session that stops cancels them.  Py4J logs what interrupts a call.
    """

    def is_told(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return error is None or _interrupt_before(error) is None

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with _filtered(map(logging.getLogger, PY4J_LOGGERS), is_told):
            yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _no_jvm_left() -> "Iterator[None]":
    """The JVM of a start that fails is killed.

    PySpark gives its process to nobody.  One that PySpark has not reached when it is interrupted
    lacks the file by which they meet, and would stay for ever.
    """
    from pyspark import java_gateway

    names, started = vars(java_gateway), list[subprocess.Popen[bytes]]()
    popen = names["Popen"]

    def begin(command: list[str], **options: object) -> "subprocess.Popen[bytes]":
        started.append(popen(command, **options))
        return started[-1]

    names["Popen"] = begin
    try:
        yield
    except BaseException:
        for process in started:
            process.kill()
        raise
    finally:
        names["Popen"] = popen


def _told_once() -> AbstractContextManager[None]:
    """An error of a query is told by the command, in a sentence, and not by PySpark as well."""
    from pyspark.logger import PySparkLogger

    return _filtered(map(PySparkLogger.getLogger, CONTEXT_LOGGERS), lambda record: False)


@contextmanager
def _filtered(
    loggers: Iterable[logging.Logger], is_told: Callable[[logging.LogRecord], bool]
) -> Iterator[None]:
    """Of these loggers only such lines, to the end of the block."""
    loggers = list(loggers)
    for logger in loggers:
        logger.addFilter(is_told)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_told)
