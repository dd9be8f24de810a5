"""What the client says of a broker that is away, as lines on standard error.

The client writes them to its logger (segbroker.client.absence); here they are for a person: the
text alone, above the counter where one is drawn.  Only commands that go on while their broker is
away need this; the others end with an error.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import click

from .command import AnyCallable, note

LOGGER = "segbroker.client"


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


@contextmanager
def told_of_absence(*, quiet: bool) -> Iterator[None]:
    """Say it on standard error; `quiet`: not at all."""
    logger = logging.getLogger(LOGGER)
    handler = logging.NullHandler() if quiet else _Lines()
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


def quiet_option(function: AnyCallable) -> AnyCallable:
    """-q/--quiet, of the commands that have more to say than errors."""
    return click.option(
        "-q",
        "--quiet",
        is_flag=True,
        help="No counter, no messages about an unreachable broker; errors are still shown.",
    )(function)
