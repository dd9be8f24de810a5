"""`segbroker spark export | import | sql | replay`: pipelines on Spark, here or on a cluster.

Everything is in segbroker.spark.pipelines and .asking; here are the options, the session and the
lines that say how far it is, one per micro-batch, on standard error.  Spark itself is loaded when a
command runs: without `pip install '.[spark]'` the commands say what is missing.
"""

import json
import logging
import math
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from .command import Group, bootstrap_option, interruptible, note
from .exit_codes import ExitCode
from .failures import Failure
from .properties import resolved
from .tables import table_lines
from .topic import open_admin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from segbroker.spark.pipelines import Broker, Pace
    from segbroker.spark.progress import Progress

FORMATS = ("parquet", "json", "csv")
# Where Py4J logs that a call was interrupted; "": the root.
PY4J_LOGGERS: Final = ("", "py4j.java_gateway", "py4j.clientserver")
CONTEXT_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Here PySpark logs an error of a query, with the stack of the JVM: 10 KB of JSON in a line."""
# An error of ours in an account of Spark's, by the reader in Python or by the jar.
_OURS: Final = re.compile(
    r"\bsegbroker\.spark\.(?:errors\.|SourceError\$)?"
    r"(OptionError|TopicMissing|SourceUnavailable|DataLoss|SinkError|SourceError): (.+)"
)
_CODES: Final = {
    "OptionError": ExitCode.USAGE,
    "TopicMissing": ExitCode.NOT_FOUND,
    "SourceUnavailable": ExitCode.UNREACHABLE,
    "DataLoss": ExitCode.LOST,
}
AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        found[name] = value
    return found


def session_options(function: AnyCallable) -> AnyCallable:
    """Where Spark runs, and further settings."""
    for option in (
        click.option(
            "--conf",
            multiple=True,
            metavar="NAME=VALUE",
            callback=_pairs,
            help="A setting of Spark, such as spark.executor.memory=4g.",
        ),
        click.option(
            "--master",
            default="local[*]",
            show_default=True,
            metavar="URL",
            help="Where Spark runs: local[N], spark://HOST:PORT, yarn, k8s://URL.",
        ),
    ):
        function = option(function)
    return function


def pace_options(function: AnyCallable) -> AnyCallable:
    """How a pipeline runs."""
    for option in (
        click.option(
            "--every",
            metavar="INTERVAL",
            help="Keep running, with a batch per interval, such as '10 seconds'.",
        ),
        click.option(
            "--checkpoint", metavar="PATH", help="Folder in which the pipeline keeps its position."
        ),
    ):
        function = option(function)
    return function


max_offsets_option = click.option(
    "--max-offsets",
    type=click.IntRange(1),
    help="Maximum number of offsets in a batch; default: no limit.",
)
on_gap_option = click.option(
    "--on-gap",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    help="When records were lost: end with exit code 10, or go on with what is left.",
)
start_option = click.option(
    "--start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where the first run begins.",
)


@click.group(cls=Group)
def spark() -> None:
    """Pipelines on Spark: topics to files and back, SQL over topics, topic to topic.

    \b
    Example:
      segbroker spark sql "SELECT carrier, count(*) FROM topic('flights') GROUP BY carrier"
    """


@spark.command()
@click.argument("topic")
@click.option("--to", "path", required=True, metavar="PATH", help="Folder or URL for the files.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(FORMATS),
    default="parquet",
    show_default=True,
    help="csv has no headers of records.",
)
@click.option(
    "--values",
    metavar="FORM",
    help="binary, text, json (columns by a sample) or columns such as 'carrier STRING, n INT'."
    "  [default: binary for parquet, text for the others]",
)
@start_option
@on_gap_option
@max_offsets_option
@pace_options
@session_options
@bootstrap_option
def export(topic: str, path: str, bootstrap: str, **options: Any) -> None:  # noqa: ANN401
    """Write what is new in TOPIC to files, in folders by date.

    Run it again, and it writes what came since.

    \b
    Examples:
      segbroker spark export flights --to /lake/flights
      segbroker spark export flights --to out --format json --values json
    """
    with _spark(f"export {topic}", options, bootstrap) as session:
        from segbroker.spark.pipelines import export_topic

        rows = export_topic(
            session,
            _broker(bootstrap, options),
            topic,
            path,
            tell=_tell,
            pace=_pace(options),
            file_format=options["file_format"],
            values=options["values"],
            start=options["start"],
            checkpoint=options["checkpoint"],
        )
    note(f"exported {rows:,} records of {topic} to {path}")


@spark.command("import")
@click.argument("path")
@click.option("--topic", required=True, help="Where the rows go.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice([*FORMATS, "text"]),
    default="parquet",
    show_default=True,
)
@click.option("--key", metavar="COLUMN", help="The column that is the records' key.")
@pace_options
@session_options
@bootstrap_option
def import_(path: str, topic: str, bootstrap: str, **options: Any) -> None:  # noqa: ANN401
    """Send the rows of the files in PATH to a topic, each file once.

    Files that `export` wrote become the records they were, and so do rows of just key, value and
    headers; of others each row is a JSON object. So it is of an export whose --values are columns:
    its objects have _key, _offset and so on beside the fields.

    \b
    Examples:
      segbroker spark import /lake/flights --topic flights-again
      segbroker spark import people.csv --format csv --topic people --key id
    """
    with _spark(f"import {topic}", options, bootstrap) as session:
        from segbroker.spark.pipelines import import_files

        rows = import_files(
            session,
            _broker(bootstrap, options),
            path,
            topic,
            tell=_tell,
            pace=_pace(options),
            file_format=options["file_format"],
            key=options["key"],
            checkpoint=options["checkpoint"],
        )
    note(f"imported {rows:,} rows of {path} into {topic}")


@spark.command()
@click.argument("source")
@click.argument("target")
@click.option("--sql", help="A SELECT from `records` that has a column `value`.")
@click.option("--where", help="A condition, instead of SQL: text LIKE '%late%'.")
@click.option(
    "--values", metavar="COLUMNS", help="The value as a struct `data`: 'carrier STRING, n INT'."
)
@start_option
@on_gap_option
@max_offsets_option
@pace_options
@session_options
@bootstrap_option
def replay(source: str, target: str, bootstrap: str, **options: Any) -> None:  # noqa: ANN401
    """Send the records of SOURCE, filtered or changed, to TARGET; each exactly once.

    `records` has key, value (binary), text (the value as a string), topic, partition, offset,
    timestamp, headers, and with --values the struct data.

    \b
    Examples:
      segbroker spark replay flights late --values 'dep_delay INT' --where 'data.dep_delay > 60'
      segbroker spark replay a b --sql "SELECT key, upper(text) AS value FROM records"
    """
    checkpoint = options["checkpoint"] or f"segbroker-checkpoints/replay-{source}-{target}"
    with _spark(f"replay {source}", options, bootstrap) as session:
        from segbroker.spark.pipelines import replay as run_replay

        note(f"the checkpoint is {checkpoint}")
        rows = run_replay(
            session,
            _broker(bootstrap, options),
            source,
            target,
            checkpoint,
            tell=_tell,
            pace=_pace(options),
            sql=options["sql"],
            where=options["where"],
            values=options["values"],
            start=options["start"],
        )
    note(f"read {rows:,} records of {source}")


@spark.command()
@click.argument("query")
@click.option(
    "--format", "output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=1000,
    show_default=True,
    help="Maximum number of rows; 0: all.",
)
@on_gap_option
@session_options
@bootstrap_option
def sql(query: str, bootstrap: str, output: str, limit: int, **options: Any) -> None:  # noqa: ANN401
    """Query topics with SQL: topic('NAME') is a table.

    JSON objects have their fields as columns, and _key, _partition, _offset, _timestamp beside
    them. topic('NAME', 'carrier STRING, n INT') says which fields, topic('NAME', 'text') takes the
    values as strings, topic('NAME', 'arrow') as Arrow streams.

    \b
    Example:
      segbroker spark sql "SELECT carrier, count(*) FROM topic('flights') GROUP BY carrier"
    """
    asked = bootstrap if re.search(r"\btopic\s*\(", query, re.IGNORECASE) else None
    with _spark("sql", options, asked) as session:
        from segbroker.spark.asking import ask

        began = time.monotonic()
        skips_lost = options["on_gap"] == "skip"
        frame = ask(session, _broker(bootstrap, options), query, skips_lost=skips_lost)
        rows = _print(frame if not limit else frame.limit(limit), output)
        note(f"{rows:,} rows in {time.monotonic() - began:.1f} s")


def _print(frame: "DataFrame", output: str) -> int:
    if output == "json":
        twice = [name for name, count in Counter(frame.columns).items() if count > 1]
        if twice:
            sentence = (
                f"several columns are named {twice[0]!r}, and a JSON object has one of a name"
            )
            raise Failure(sentence, ExitCode.USAGE, f"name them, as SELECT a.{twice[0]} AS other")
        count = 0
        for row in frame.toLocalIterator():
            click.echo(json.dumps(_json(row.asDict(recursive=True)), default=_plain))
            count += 1
        return count
    rows = frame.collect()
    numbers = {
        column
        for column, (_, kind) in enumerate(frame.dtypes)
        if kind.startswith(("int", "bigint", "double", "float", "decimal", "smallint", "tinyint"))
    }
    cells = [tuple(map(_cell, row)) for row in rows]
    for line in table_lines(frame.columns, cells, numbers=numbers):
        click.echo(line)
    return len(rows)


def _json(value: object) -> object:
    """The same with what JSON has no place for as text: numbers that are none, keys of maps."""
    if isinstance(value, dict):
        return {
            key if isinstance(key, str | int | None) else str(_plain(key)): _json(each)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_json(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        # As Spark writes them to JSON.
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    return value


def _plain(value: object) -> object:
    """What JSON has no word for."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)


def _cell(value: object) -> str:
    return "-" if value is None else str(_plain(value))


@contextmanager
def _spark(name: str, options: dict[str, Any], bootstrap: str | None) -> "Iterator[SparkSession]":
    """A session for one command; its errors become sentences.

    bootstrap: a broker that must answer first, as soon as to any command: a query waits for one
    that restarts, a minute long.
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
            running = session(conf)
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
        raise _of_ours(type(exc).__name__, str(exc)) from exc
    except Exception as exc:
        if (interrupt := _interrupt_before(exc)) is not None:
            raise interrupt from None
        failure = _failure(exc)
        if failure is None:
            raise
        raise failure from exc
    finally:
        try:
            running.stop()
        except Exception:
            if interrupt is None:
                raise


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

    loggers = [logging.getLogger(name) for name in PY4J_LOGGERS]
    for logger in loggers:
        logger.addFilter(is_told)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        for logger in loggers:
            logger.removeFilter(is_told)


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


@contextmanager
def _told_once() -> "Iterator[None]":
    """An error of a query is told by the command, in a sentence, and not by PySpark as well."""
    from pyspark.logger import PySparkLogger

    def is_told(record: logging.LogRecord) -> bool:
        return False

    loggers = [PySparkLogger.getLogger(name) for name in CONTEXT_LOGGERS]
    for logger in loggers:
        logger.addFilter(is_told)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_told)


def _failure(error: Exception) -> Failure | None:
    """What an error of Spark says, without the tracebacks inside it; None for another error."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    if isinstance(error, Py4JJavaError):
        # What PySpark has no class for, as of a task that failed; its first line names a call.
        text = str(error).partition("\n")[2].removeprefix(": ")
    elif isinstance(error, PySparkException):
        text = str(error)
    else:
        return None
    return failure_in(text) or Failure(type(error).__name__, ExitCode.REFUSED)


def failure_in(text: str) -> Failure | None:
    """The sentence in what Spark says of a failure: ours, if there is one, else its first line.

    text: with the tracebacks of its own processes.  None: it is empty.
    """
    ours = _OURS.findall(text)
    if ours:
        name, sentence = ours[-1]
        return _of_ours(name, sentence.strip())
    lines = text.strip().splitlines()
    return Failure(lines[0], ExitCode.REFUSED) if lines else None


def _of_ours(name: str, sentence: str) -> Failure:
    """Of an error of segbroker.spark, by the name of its class.

    The option that an error of lost records names has another name here.
    """
    code = _CODES.get(name, ExitCode.REFUSED)
    if code is not ExitCode.LOST:
        return Failure(sentence, code)
    return Failure(sentence.partition(" Set failOn")[0], code, "--on-gap skip reads what is left")


def _broker(bootstrap: str, options: dict[str, Any]) -> "Broker":
    from segbroker.spark.pipelines import Broker

    return Broker(bootstrap=bootstrap, properties=resolved())


def _pace(options: dict[str, Any]) -> "Pace":
    from segbroker.spark.pipelines import Pace

    return Pace(
        every=options["every"],
        offsets_max=options.get("max_offsets"),
        skips_lost=options.get("on_gap") == "skip",
    )


def _tell(progress: "Progress") -> None:
    rate = "" if not progress.seconds else f", {progress.rows / progress.seconds:,.0f}/s"
    behind = "" if progress.behind is None else f", {progress.behind:,} behind"
    note(f"batch {progress.batch}: {progress.rows:,} rows{rate}{behind}")
    sys.stderr.flush()
