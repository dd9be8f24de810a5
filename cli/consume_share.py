"""`segbroker consume --share`: records of a share group on standard output, each for one member.

    broker -> client -> records -> bytes -> standard output, flushed -> accepted

A record is accepted when it was printed and flushed, so a reader of our output that goes away gets
nothing accepted that it may not have seen.  What this command has and did not print is free for the
other members when it ends.  What was accepted in vain, because the broker was restarted or the lock
had ended, comes again, to this command or another member: that is said, and it goes on.
"""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from .absence import told_of_absence
from .closed_pipe import ended_by_reader
from .command import ACCEPT_TIMEOUT_MS, CONNECT_TIMEOUT_MS, note
from .progress import counter
from .properties import security
from .record_format import Formatter

if TYPE_CHECKING:
    from segbroker.client import Gap
    from segbroker.client.settings import OnGap

# Between two looks whether there is something new; the broker is asked all the time.
POLL_MS = 1_000
LOCK_COUNT = 500


def consume_share(
    bootstrap: str,
    topics: Sequence[str],
    group: str,
    formatter: Formatter,
    tell_gap: "Callable[[Gap], None]",
    *,
    count: int | None,
    on_gap: "OnGap",
    quiet: bool,
) -> None:
    """Print records until there were `count`, or for ever.

    tell_gap: called with a gap among the records.
    """
    from segbroker.client import (
        AcknowledgeFailed,
        FailedAcknowledgement,
        Gap,
        ShareConsumer,
    )

    left = sys.maxsize if count is None else count
    sink = sys.stdout.buffer
    printed = size = 0
    in_vain: list[FailedAcknowledgement] = []
    with (
        ended_by_reader(),
        counter("received", sys.stdout, quiet=quiet) as update,
        told_of_absence(quiet=quiet),
        ShareConsumer(
            bootstrap,
            *topics,
            group=group,
            explicit=True,
            on_failed=in_vain.extend,
            on_gap=on_gap,
            # Who wants a few records does not lock a batch.
            acquire="batches" if count is None else "records",
            acquire_count=max(1, min(left, LOCK_COUNT)),
            security=security(),
            accept_timeout_ms=ACCEPT_TIMEOUT_MS,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
        ) as consumer,
    ):
        while left:
            for item in consumer.poll(min(left, LOCK_COUNT), POLL_MS):
                if isinstance(item, Gap):
                    tell_gap(item)
                    continue
                data = formatter(item)
                sink.write(data)
                sink.flush()
                try:
                    consumer.accept(item)
                except AcknowledgeFailed as exc:
                    in_vain += exc.failed
                left -= 1
                printed += 1
                size += len(data)
                update(printed, size)
            if in_vain:
                note(f"Again: {AcknowledgeFailed(in_vain)}")
                in_vain.clear()
        consumer.commit()


def refuse(what: dict[str, bool]) -> None:
    """UsageError for what means nothing in a share group: option -> whether it was given."""
    for option, is_given in what.items():
        if is_given:
            raise click.UsageError(
                f"{option} cannot be combined with --share: a share group has no positions"
            )
