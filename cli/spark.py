"""`segbroker spark export | import | sql | replay`: pipelines on Spark, here or on a cluster.

Everything is in segbroker.spark.pipelines and .asking; here are the options and the lines that say
how far it is, one per micro-batch, on standard error.  Spark itself is loaded when a command runs:
without `pip install '.[spark]'` the commands say what is missing.
"""

import re
import time
from typing import TYPE_CHECKING, Any

import click

from .command import AnyCallable, Group, bootstrap_option, note
from .properties import resolved
from .spark_rows import LIMIT_MAX, print_rows
from .spark_session import spark_session
from .words import plural

if TYPE_CHECKING:
    from segbroker.spark.pipelines import Broker, Pace
    from segbroker.spark.progress import Progress

FORMATS = ("parquet", "json", "csv")
# local[2,3]: two threads, and a task may fail twice; local-cluster is for tests of Spark itself.
MASTER = re.compile(
    r"yarn|(spark|k8s)://.+|local(\[(\*|[1-9][0-9]*)( *, *[1-9][0-9]*)?\])?|local-cluster\[.+\]"
)
# As Spark reads it; months and years it has for no trigger.
INTERVAL = re.compile(
    r"\s*(interval\s+)?(\+?[0-9]{1,12}(\.[0-9]{1,9})?\s+"
    r"(week|day|hour|minute|second|millisecond|microsecond)s?\s*)+",
    re.IGNORECASE,
)


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        found[name] = value
    return found


def _is_master(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """What spark-submit takes; it would say so after a start of Java, and with a stack trace."""
    if MASTER.fullmatch(value) is None:
        raise click.BadParameter(f"{value!r} is not local[N], spark://HOST:PORT, yarn or k8s://URL")
    return value


def _is_interval(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and INTERVAL.fullmatch(value) is None:
        raise click.BadParameter(f"{value!r} is no interval, such as '10 seconds' or '1 minute'")
    return value


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
            callback=_is_master,
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
            callback=_is_interval,
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
    metavar="N",
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
    help="What the files are; csv has no place for the headers of records.",
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
    with spark_session(f"export {topic}", options, bootstrap) as session:
        from segbroker.spark.pipelines import export_topic

        rows = export_topic(
            session,
            _broker(bootstrap),
            topic,
            path,
            tell=_tell,
            pace=_pace(options),
            file_format=options["file_format"],
            values=options["values"],
            start=options["start"],
            checkpoint=options["checkpoint"],
        )
    note(f"exported {plural(rows, 'record')} of {topic} to {path}")


@spark.command("import")
@click.argument("path")
@click.option("--topic", required=True, metavar="TOPIC", help="Where the rows go.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice([*FORMATS, "text"]),
    default="parquet",
    show_default=True,
    help="What the files are; of text each line is a row.",
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
    with spark_session(f"import {topic}", options, bootstrap) as session:
        from segbroker.spark.pipelines import import_files

        rows = import_files(
            session,
            _broker(bootstrap),
            path,
            topic,
            tell=_tell,
            pace=_pace(options),
            file_format=options["file_format"],
            key=options["key"],
            checkpoint=options["checkpoint"],
        )
    note(f"imported {plural(rows, 'row')} of {path} into {topic}")


@spark.command()
@click.argument("source")
@click.argument("target")
@click.option("--sql", metavar="QUERY", help="A SELECT from `records` that has a column `value`.")
@click.option(
    "--where", metavar="CONDITION", help="A condition, instead of --sql: text LIKE '%late%'."
)
@click.option(
    "--values",
    metavar="COLUMNS",
    help="Read the value into a struct `data`: 'carrier STRING, n INT'.",
)
@start_option
@on_gap_option
@max_offsets_option
@pace_options
@session_options
@bootstrap_option
def replay(source: str, target: str, bootstrap: str, **options: Any) -> None:  # noqa: ANN401
    """Send the records of topic SOURCE to topic TARGET.

    They may be filtered or changed on the way; each is written exactly once.

    `records` has key, value (binary), text (the value as a string), topic, partition, offset,
    timestamp, headers, and with --values the struct data.

    \b
    Examples:
      segbroker spark replay flights late --values 'dep_delay INT' --where 'data.dep_delay > 60'
      segbroker spark replay a b --sql "SELECT key, upper(text) AS value FROM records"
    """
    if source == target:
        raise click.UsageError(f"topic {source!r} would be replayed into itself without end")
    if options["sql"] is not None and options["where"] is not None:
        raise click.UsageError("give the filter in the SQL itself, or as --where, not both")
    with spark_session(f"replay {source}", options, bootstrap) as session:
        from segbroker.spark.checkpoints import of_replay
        from segbroker.spark.pipelines import replay as run_replay

        checkpoint = options["checkpoint"] or of_replay(session, source, target)
        note(f"the checkpoint is {checkpoint}")
        rows = run_replay(
            session,
            _broker(bootstrap),
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
    note(f"read {plural(rows, 'record')} of {source}")


@spark.command()
@click.argument("query")
@click.option(
    "--format",
    "output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How the rows are printed; json: an object on each line.",
)
@click.option(
    "--limit",
    type=click.IntRange(0, LIMIT_MAX),
    metavar="N",
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
    with spark_session("sql", options, asked) as session:
        from segbroker.spark.asking import ask

        began = time.monotonic()
        skips_lost = options["on_gap"] == "skip"
        frame = ask(session, _broker(bootstrap), query, skips_lost=skips_lost)
        rows, has_more = print_rows(frame, output, limit)
        note(f"{plural(rows, 'row')} in {time.monotonic() - began:.1f} s")
        if has_more:
            note("there are more rows: --limit 0 prints all")


def _broker(bootstrap: str) -> "Broker":
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
    note(f"batch {progress.batch}: {plural(progress.rows, 'row')}{rate}{behind}")
