"""`segbroker produce`: one record per line of standard input.

    stdin -> lines -> client's buffer -> broker
                          |  full: reading stops until the broker has taken some
                          +-> deliveries, in order of lines: acknowledged, or a reason

Memory is bounded by the client's buffer and by UNSETTLED_MAX deliveries: at either, the next line
waits.  A line typed at a terminal goes out after the linger.

What fails: a record that the broker refuses for itself (too large) costs that line only, the rest
goes on.  Any other failure (no broker, no answer, no such topic) ends the reading: the lines after
it would meet the same.  Either way the undelivered lines are named and the exit code is 7.
"""

import os
import select
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import click

from .absence import quiet_option, told_of_absence
from .command import (
    ACCEPT_TIMEOUT_MS,
    CONNECT_TIMEOUT_MS,
    Command,
    Seconds,
    bootstrap_option,
    is_text,
    note,
)
from .escapes import unescape
from .exit_codes import ExitCode
from .failures import Failure, explain
from .line_ranges import LineRanges
from .lines import READ_SIZE, LineTooLong, LineUnfinished, read_lines
from .progress import Update, counter
from .properties import security
from .stop_signal import GivenUp, StopSignal
from .unserved import why_unserved

if TYPE_CHECKING:
    from segbroker.client import Deliveries
    from segbroker.client.settings import Acks, Compression

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Deliveries that wait for their turn to be looked at: a stuck partition must not hoard the others'.
UNSETTLED_MAX = 200_000
STDIN = 0
GIVEN_UP = "given up before the broker had answered for all of them; it may have them"
# Errors of the client that are about one record; any other would meet the next line too.
OF_ONE_RECORD = frozenset(
    {"MessageTooLarge", "RecordListTooLarge", "InvalidRecord", "InvalidTimestamp"}
)


class Parsed(NamedTuple):
    """A line as key and value."""

    key: bytes | None
    value: bytes | None


class Settlement:
    """What was sent, in the order of its lines, and what became of it."""

    def __init__(self, params: Mapping[str, str]) -> None:
        """params: the command's own, for hints."""
        self._params = params
        self.acknowledged = 0
        self.undelivered = LineRanges()
        self.stopped = False
        self.hint = ""
        """What to do about the first of them."""
        self.is_unserved = False
        """Of some of them nobody serves the partition."""
        self.in_hand = (1, 0)
        """First line and number of those that are just being sent."""
        self._waiting: deque[tuple[int, Deliveries]] = deque()
        self._waiting_count = 0

    def add(self, first_line: int, deliveries: "Deliveries") -> None:
        """Lines from `first_line` on are under way."""
        self._waiting.append((first_line, deliveries))
        self._waiting_count += len(deliveries)
        while self._waiting_count > UNSETTLED_MAX:
            self._settle_oldest()
        self.settle_done()

    def settle_done(self) -> None:
        """Look at those that are decided, up to the first that is not."""
        while self._waiting and self._waiting[0][1].done:
            self._settle_oldest()

    def settle_all(self) -> None:
        """Wait for every one."""
        while self._waiting:
            self._settle_oldest()

    def give_up(self) -> None:
        """Wait for nothing more: who ends it a second time is told at once, and of whole pieces."""
        from segbroker.client.errors import ClosedError, SegbrokerError

        while self._waiting:
            first_line, deliveries = self._waiting[0]
            try:
                is_open = not deliveries.done or not deliveries.result()
            except SegbrokerError as exc:
                is_open = isinstance(exc, ClosedError)
            if is_open:
                self.undelivered.add(first_line, len(deliveries), GIVEN_UP)
                self._waiting.popleft()
            else:
                self._settle_oldest()
        first_line, count = self.in_hand
        if count:
            self.undelivered.add(first_line, count, GIVEN_UP)

    def _settle_oldest(self) -> None:
        from segbroker.client.errors import SegbrokerError

        first_line, deliveries = self._waiting[0]
        is_whole = True
        try:
            deliveries.result()
        except SegbrokerError:
            is_whole = False
        self._waiting.popleft()  # now: a second signal may end the wait
        self._waiting_count -= len(deliveries)
        if is_whole:
            self.acknowledged += len(deliveries)
        else:
            for line, delivery in enumerate(deliveries, first_line):
                try:
                    delivery.result()
                except SegbrokerError as exc:
                    self.fail(line, 1, exc)
                else:
                    self.acknowledged += 1

    def fail(self, first_line: int, count: int, error: Exception) -> None:
        """Lines that were not delivered."""
        from segbroker.client.errors import LeaderNotAvailable

        self.is_unserved |= isinstance(error.__cause__, LeaderNotAvailable)
        self.undelivered.add(first_line, count, str(error))
        self.stopped |= type(error).__name__ not in OF_ONE_RECORD
        if not self.hint and (explained := explain(error, self._params)) is not None:
            self.hint = explained.hint


def parse_line(line: bytes, delimiter: bytes, null_when_empty: bool) -> Parsed:
    """The key and the value of a line.

    Args:
        delimiter: between them; b"" for no key. A line without it is a value without key.
        null_when_empty: an empty value becomes null, a tombstone.
    """
    key: bytes | None = None
    value: bytes | None = line
    if delimiter:
        before, found, after = line.partition(delimiter)
        if found:
            key, value = before, after
    return Parsed(key, None if null_when_empty and value == b"" else value)


def _delimiter(ctx: click.Context, param: click.Parameter, value: str | None) -> bytes:
    if value == "":
        raise click.BadParameter("an empty one splits nothing; without -K records have no key")
    try:
        return unescape(value) if value is not None else b""
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc


def _headers(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> list[tuple[str, bytes | None]]:
    headers: list[tuple[str, bytes | None]] = []
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        if not is_text(name):
            raise click.BadParameter(f"the name {name!r} is not text in UTF-8")
        headers.append((name, os.fsencode(value)))
    return headers


@click.command(cls=Command)
@click.argument("topic")
@click.option(
    "-K",
    "delimiter",
    metavar="DELIM",
    callback=_delimiter,
    help=r"Split each line at its first DELIM into key and value; \t is a tab.",
)
@click.option(
    "-H",
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_headers,
    help="Header of every record. May be repeated.",
)
@click.option(
    "-z",
    "codec",
    type=click.Choice(CODECS),
    default="none",
    show_default=True,
    help="Compress batches.",
)
@click.option(
    "-p",
    "--partition",
    metavar="N",
    type=click.IntRange(min=0),
    help="Partition of every record. [default: by key; without key spread]",
)
@click.option(
    "-Z", "null_when_empty", is_flag=True, help="An empty value is sent as null (a tombstone)."
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="all, 1: wait for the topic's durability class. 0: wait for nothing.",
)
@click.option(
    "--linger",
    "linger_ms",
    metavar="MS",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="How long a record may wait for more records in its batch, up to half of --timeout.",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=Seconds(min=0.1),
    default=30.0,
    show_default=True,
    help="Longest wait for the acknowledgement of a record.",
)
@quiet_option
@bootstrap_option
@click.pass_context
def produce(
    ctx: click.Context,
    topic: str,
    delimiter: bytes,
    headers: list[tuple[str, bytes | None]],
    codec: str,
    partition: int | None,
    null_when_empty: bool,
    acks: str,
    linger_ms: int,
    timeout_s: float,
    quiet: bool,
    bootstrap: str,
) -> None:
    """Send lines from standard input to TOPIC, one record per line.

    Any bytes but the newline may be in a line; the last one may lack its newline. Ends when the
    input ends and everything is acknowledged. When records were not delivered, their lines are
    named on standard error and the exit code is 7.

    \b
    Examples:
      echo hello | segbroker produce greetings
      segbroker produce flights -K : -z zstd < flights.txt
      tail -F app.log | segbroker produce logs -H host=web1 -b broker:9092
    """
    from segbroker.client import Producer
    from segbroker.client.errors import DeliveryFailed

    if sys.stdin.isatty() and sys.stderr.isatty() and not quiet:
        note("one record per line; Ctrl-D ends")
    settlement = Settlement({"bootstrap": bootstrap, "topic": topic})
    with (
        told_when_given_up(settlement),
        told_of_absence(quiet=quiet),
        Producer(
            bootstrap,
            acks=cast("Acks", acks if acks == "all" else int(acks)),
            idempotent=acks == "all",
            compression=cast("Compression", codec),
            linger_ms=linger_ms,
            security=security(),
            accept_timeout_ms=ACCEPT_TIMEOUT_MS,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            delivery_timeout_ms=round(timeout_s * 1000),
        ) as producer,
        counter("sent", sys.stdin, quiet=quiet) as update,
        StopSignal() as stop,  # before a broker is reached there is nothing to deliver
    ):
        split = partial(parse_line, delimiter=delimiter, null_when_empty=null_when_empty)
        plain = not delimiter and not null_when_empty
        send = partial(producer.send_many, topic, headers=headers or None, partition=partition)
        read = partial(read_until, stop)
        send_lines(read, send, None if plain else split, settlement, update)
        with suppress(DeliveryFailed):  # each line's failure is looked at below
            producer.flush()
        settlement.settle_all()
    tell(settlement, partial(why_unserved, bootstrap, topic))
    ctx.exit(ExitCode.UNDELIVERED if settlement.undelivered.count else stop.exit_code)


def tell(settlement: Settlement, ask_why: Callable[[], str] | None = None) -> None:
    """Name the lines that were not delivered, if there are any.

    ask_why: what the broker says of partitions that it does not serve, asked behind that.
    """
    undelivered = settlement.undelivered
    if not undelivered.count:
        return
    total = undelivered.count + settlement.acknowledged
    note(f"{undelivered.count:,} of {total:,} records were not delivered:")
    for sentence in undelivered:
        note(f"  {sentence}")
    if settlement.is_unserved and ask_why is not None and (why := ask_why()):
        note(why)
    if settlement.stopped:
        note("reading stopped there; what followed was not sent")
    if settlement.hint:
        note(f"Hint: {settlement.hint}")


@contextmanager
def told_when_given_up(settlement: Settlement) -> Iterator[None]:
    """A second signal leaves the block: say what nobody knows of."""
    try:
        yield
    except GivenUp as exc:
        settlement.give_up()
        tell(settlement)
        raise SystemExit(exc.exit_code) from None


def read_until(stop: StopSignal, size: int) -> bytes | None:
    """What standard input has; b"" at its end, None after a signal."""
    select.select([STDIN, stop.descriptor], [], [])
    return None if stop.received is not None else os.read(STDIN, size)


def whole_lines(
    read: Callable[[int], bytes | None], settlement: Settlement
) -> Iterator[list[bytes]]:
    """Lines until the end, or until one that is too long for any broker or was cut by a signal."""
    count = 0
    try:
        for lines in read_lines(read):
            count += len(lines)
            yield lines
    except LineTooLong as exc:
        settlement.settle_all()
        settlement.fail(count + 1, 1, exc)
    except LineUnfinished as exc:
        note(str(exc))


def in_pieces(chunks: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    """Long lines one by one, see `send_piece`; others in as large pieces as they came."""
    for lines in chunks:
        if sum(map(len, lines)) > 2 * READ_SIZE:
            yield from ([line] for line in lines)
        else:
            yield lines


def send_piece(
    lines: list[bytes], send: "partial[Deliveries]", split: Callable[[bytes], Parsed] | None
) -> "Deliveries | None":
    """Send lines; None: one line that was not sent, as the client had to tell of earlier ones.

    It does when much has failed that nobody has looked at.  They are looked at in their turn all
    the same; of a single line it is known that it did not leave before.
    """
    from segbroker.client.errors import DeliveryFailed

    try:
        if split is None:
            return send(lines)
        keys, values = zip(*map(split, lines), strict=True)
        return send(values, keys=keys)
    except DeliveryFailed:
        if len(lines) > 1:
            raise
        return None


def send_lines(
    read: Callable[[int], bytes | None],
    send: "partial[Deliveries]",
    split: Callable[[bytes], Parsed] | None,
    settlement: Settlement,
    update: Update,
) -> None:
    """Send every line, until the input ends or the broker takes no more.

    Args:
        read: at most so many bytes of the input; b"" at its end, None to stop before.
        send: send_many of the producer, with all but the records.
        split: a line to its key and value; None: the whole line is the value.
    """
    from segbroker.client.errors import SegbrokerError

    count = size = 0
    for lines in in_pieces(whole_lines(read, settlement)):
        settlement.in_hand = (count + 1, len(lines))
        try:
            while (deliveries := send_piece(lines, send, split)) is None:
                settlement.settle_done()
                if settlement.stopped:
                    return
        except SegbrokerError as exc:
            # Which of these lines had left already nobody can say.
            settlement.settle_all()
            settlement.fail(count + 1, len(lines), exc)
            return
        except ValueError as exc:  # a partition that is not there, a name that cannot be
            hint = f"segbroker topic describe {send.args[0]} shows its partitions"
            raise Failure(str(exc), ExitCode.NOT_FOUND, hint) from exc
        settlement.in_hand = (0, 0)
        settlement.add(count + 1, deliveries)
        count += len(lines)
        size += sum(map(len, lines))
        update(count, size)
        if settlement.stopped:
            return
