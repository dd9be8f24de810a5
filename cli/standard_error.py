"""Lines for the person who looks, on standard error; never data.

Nobody may look any more: the reader of a pipe has gone (`2>&1 | head -1`), the terminal was closed.
Then the lines go nowhere, and the command goes on: its exit code says the same to a script.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO, cast

import click


def say(text: str) -> None:
    """A line on standard error, or nowhere; in colour only on a terminal that has it and whose user
    wants it (no-color.org)."""
    is_without = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    try:
        click.echo(text, err=True, color=False if is_without else None)
    except OSError:
        abandon_stderr()


def abandon_stderr() -> None:
    """Let what is still buffered go nowhere: the interpreter flushes it on exit, and would end
    with an exit code of its own."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stderr.fileno())
    os.close(nowhere)


def leave() -> None:
    """Before the interpreter ends: what standard error has not taken by now, it never will."""
    try:
        sys.stderr.flush()
    except OSError:
        abandon_stderr()


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """The log of what a command does to a data directory; as it was configured before, behind it.

    By default structlog writes to standard output, which is for data.
    """
    import structlog

    from segbroker.broker.configuration.log_sink import LogSink

    before = structlog.get_config()
    structlog.configure(
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", LogSink(sys.stderr))),
        processors=[structlog.processors.KeyValueRenderer(key_order=["event"])],
    )
    try:
        yield
    finally:
        structlog.configure(**before)
