"""What source and sink raise themselves.  Spark shows the sentence inside its own STREAM_FAILED or
PYTHON_EXCEPTION, below a traceback: so each says all that is needed in one line, and what Spark
calls is `plain`, which leaves one frame of that traceback.

OptionError and TopicMissing are the user's doing, DataLoss the log's (what was asked for is gone),
and SourceUnavailable the world's (no broker answered until the deadline).  The exit codes of
`segbroker spark` go by these names.  Errors of single requests are segbroker.client's; they are
retried and end up as SourceUnavailable.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def plain(function: Callable[P, T]) -> Callable[P, T]:
    """What Spark calls, with errors of ours as sentences: without the way that they came.

    Errors that are not ours are bugs, and keep it.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except SourceError as exc:
            raise exc.with_traceback(None) from None

    return call


def plain_rows(function: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same of a function whose result is iterated later."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from function(*args, **kwargs)
        except SourceError as exc:
            raise exc.with_traceback(None) from None

    return call


class SourceError(Exception):
    """Base of what this package raises."""


class OptionError(SourceError, ValueError):
    """An option is missing, unknown, malformed or contradicts another; says which and why."""


class TopicMissing(SourceError):
    """A topic or partition that the options name does not exist."""


class DataLoss(SourceError):
    """Offsets that the query must read are not in the log any more; names each range."""


class SourceUnavailable(SourceError):
    """The brokers did not answer until the deadline; carries the last reason."""


class SinkError(SourceError):
    """Rows could not be written; says which and why."""
