"""`segbroker consume`: the records of a topic on standard output.

    broker -> client, fetching ahead -> batches -> bytes -> standard output, flushed per batch

A flush per batch and not per record: a batch is what the producer sent at once, so a record that
came alone is printed alone, and a backlog is written in large pieces.

Records that were lost are said where they are missing: an error (10), or with --on-gap print a line
on standard error, for programs (-J) one on standard output, in its place among the records.

With --group what was printed and flushed is committed: when the next batch is asked for, and at the
end.  A reader of our output that goes away in the middle of a batch gets that batch again.

With --share the records are those of a share group, one by one: consume_share.

A broker that is away while it runs is said once, and once that it is back (absence.py).

Ends: -n records, -e at the end, Ctrl-C (130), the reader of our output going away (0).
"""

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import click
from click.core import ParameterSource

from .absence import quiet_option, told_of_absence
from .closed_pipe import ended_by_reader
from .command import (
    ACCEPT_TIMEOUT_MS,
    CONNECT_TIMEOUT_MS,
    Command,
    bootstrap_option,
    interruptible,
    note,
)
from .consume_share import consume_share, refuse
from .progress import Update, counter
from .properties import group_options, security
from .record_format import DEFAULT_FORMAT, Formatter, compile_format, format_json
from .start_position import Place, parse_start
from .unserved import told_why

if TYPE_CHECKING:
    from segbroker.client import ConsumedBatch, Consumer, Gap
    from segbroker.client.settings import GroupOptions, OnGap

# What --on-gap means to the client.
ON_GAP: "dict[str, OnGap]" = {"raise": "raise", "print": "yield", "skip": "skip"}
# (batch, at most so many records) -> bytes
BatchFormatter: TypeAlias = "Callable[[ConsumedBatch, int], bytes]"


def _start(ctx: click.Context, param: click.Parameter, value: str) -> Place:
    try:
        return parse_start(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc


def _format(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    try:
        if value is not None:
            compile_format(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc
    return value


def batch_formatter(text: str | None, null: str, as_json: bool) -> BatchFormatter:
    """How a batch becomes bytes."""
    if text is None and not as_json and not null:
        return _values_as_lines
    formatter = record_formatter(text, null, as_json)
    return lambda batch, count: b"".join(map(formatter, batch.records()[:count]))


def record_formatter(text: str | None, null: str, as_json: bool) -> Formatter:
    """How a record becomes bytes.  An empty format prints nothing: who only wants to see gaps and
    the exit code."""
    return (
        format_json if as_json else compile_format(DEFAULT_FORMAT if text is None else text, null)
    )


def _values_as_lines(batch: "ConsumedBatch", count: int) -> bytes:
    """The default format, without an object per record."""
    values = batch.values()[:count]
    return b"\n".join([value or b"" for value in values]) + b"\n" if values else b""


def _gap_as_json(gap: "Gap") -> None:
    """A line of JSON that stands for a gap, in its place among the records."""
    sys.stdout.buffer.write(json.dumps({"gap": gap._asdict()}).encode() + b"\n")
    sys.stdout.buffer.flush()


def _note_gap(gap: "Gap") -> None:
    from segbroker.client import GapError

    note(f"Gap: {GapError(gap)}")


@click.command(cls=Command)
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "-g",
    "--group",
    metavar="NAME",
    help="Join this consumer group: share the partitions with its other members, start at its"
    " committed offsets, and commit what is printed.",
)
@click.option(
    "--static",
    "instance_id",
    metavar="NAME",
    help="Join the group as the static member NAME, which gets its partitions back if it starts"
    " again within the session timeout.",
)
@click.option(
    "--share",
    metavar="NAME",
    help="Join this share group: each record goes to one of its members, and is accepted when it is"
    " printed. A new group begins where its setting share.auto.offset.reset says.",
)
@click.option(
    "-o",
    "--offset",
    "start",
    metavar="WHERE",
    default="start",
    show_default=True,
    callback=_start,
    help="Where to begin in each partition (with -g: in those without a committed offset):"
    " start, end, OFFSET, -N (the last N), or @TIME (ms since"
    " 1970 or ISO 8601).",
)
@click.option(
    "-n",
    "--count",
    metavar="N",
    type=click.IntRange(min=0),
    help="End after N records.",
)
@click.option(
    "-e",
    "--exit-at-end",
    is_flag=True,
    help="End at the end of the log as it was when the command began.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    metavar="N",
    multiple=True,
    type=click.IntRange(min=0),
    help="Only this partition. May be repeated.  [default: all]",
)
@click.option(
    "-f",
    "--format",
    "text",
    metavar="FORMAT",
    callback=_format,
    help=r"How to print a record, see above.  [default: '%s\n']",
)
@click.option("-J", "--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option(
    "--null",
    metavar="TEXT",
    default="",
    help="Print this for a null key or value.  [default: nothing]",
)
@click.option(
    "--on-gap",
    type=click.Choice(list(ON_GAP)),
    default="raise",
    show_default=True,
    help="When records were lost: end with exit code 10; print a line (with -J a JSON line"
    ' {"gap": ...}) and go on; or go on silently.',
)
@quiet_option
@bootstrap_option
@click.pass_context
def consume(
    ctx: click.Context,
    topics: tuple[str, ...],
    group: str | None,
    instance_id: str | None,
    share: str | None,
    start: Place,
    count: int | None,
    exit_at_end: bool,
    partitions: tuple[int, ...],
    text: str | None,
    as_json: bool,
    null: str,
    on_gap: str,
    quiet: bool,
    bootstrap: str,
) -> None:
    """Print the records of each TOPIC, and wait for more.

    \b
    FORMAT is text with these escapes, as in kcat; no newline is added:
      %t topic      %k key      %K key length
      %p partition  %s value    %S value length (-1: null)
      %o offset     %h headers  %T timestamp, ms since 1970
      %% percent    \\n newline  \\t tab  \\r \\0 \\\\  \\xXX any byte

    \b
    JSON has the members topic, partition, offset, timestamp_ms, key, value, headers; a key or value
    that is not UTF-8 is in key_base64 or value_base64 instead.

    \b
    Examples:
      segbroker consume greetings -e
      segbroker consume logs -o end | grep ERROR
      segbroker consume flights -o -10 -e -f '%p %o %k %s\\n'
      segbroker consume flights -o @2024-05-01T12:00 -J | jq .value
      segbroker consume --group billing orders refunds
      segbroker consume --share work -n 1 orders
    """
    if as_json and text is not None:
        raise click.UsageError("-f and -J cannot be combined")
    if group == "":
        raise click.UsageError("--group: the name of a group must not be empty")
    if instance_id is not None and group is None:
        raise click.UsageError("--static is for a member of a group: give --group")
    if partitions and (group is not None or len(topics) > 1):
        raise click.UsageError("-p is for one topic, without --group")
    tell_gap = _gap_as_json if as_json else _note_gap
    if share is not None:
        if not share:
            raise click.UsageError("--share: the name of a group must not be empty")
        begins = ctx.get_parameter_source("start") is not ParameterSource.DEFAULT
        refuse({"--group": group is not None, "-p": bool(partitions), "-e": exit_at_end})
        refuse({"-o": begins})
        interruptible()
        consume_share(
            bootstrap,
            topics,
            share,
            record_formatter(text, null, as_json),
            tell_gap,
            count=count,
            on_gap=ON_GAP[on_gap],
            quiet=quiet,
        )
        return
    from segbroker.client import Consumer, TopicPartition

    interruptible()
    member: GroupOptions = {} if group is None else group_options()
    if instance_id is not None:
        member["instance_id"] = instance_id
    with (
        ended_by_reader(),
        told_why(bootstrap, topics),
        counter("received", sys.stdout, quiet=quiet) as update,
        told_of_absence(quiet=quiet),
        Consumer(
            bootstrap,
            group=group,
            start=start,
            stop_at_end=exit_at_end,
            on_gap=ON_GAP[on_gap],
            security=security(),
            accept_timeout_ms=ACCEPT_TIMEOUT_MS,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            **member,
        ) as consumer,
    ):
        if partitions:
            consumer.assign([TopicPartition(topics[0], number) for number in set(partitions)])
        else:
            consumer.subscribe(topics)
        to_bytes = batch_formatter(text, null, as_json)
        last = _print(consumer, to_bytes, tell_gap, update, count)
        if last is not None and group is not None:
            consumer.commit(last)


def _print(
    consumer: "Consumer[Gap]",
    to_bytes: BatchFormatter,
    tell_gap: "Callable[[Gap], None]",
    update: Update,
    count: int | None,
) -> "dict[tuple[str, int], int] | None":
    """Print records until there were `count`, or to the end of the log, or for ever.

    Returns where the group stands behind the last of `count`, as its batch may have more of them.
    """
    from segbroker.client import Gap

    left = sys.maxsize if count is None else count
    if left == 0:
        return None
    printed = size = 0
    sink = sys.stdout.buffer
    for batch in consumer.batches():
        if isinstance(batch, Gap):
            tell_gap(batch)
            continue
        taken = min(len(batch), left)
        data = to_bytes(batch, taken)
        sink.write(data)
        sink.flush()
        left -= taken
        printed += taken
        size += len(data)
        update(printed, size)
        if left == 0:
            return {(batch.topic, batch.partition): batch.offsets()[taken - 1] + 1}
    return None
