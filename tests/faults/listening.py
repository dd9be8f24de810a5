"""What a case in this process logs is looked at, and goes nowhere."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from segbroker.segments.errors import StorageError


@contextmanager
def listening(problems: list[str], heard: Callable[[str], None]) -> Iterator[None]:
    """What is logged with an exception that is none of a disk's is a bug."""

    def listen(logger: object, name: str, event: structlog.typing.EventDict) -> str:
        heard(str(event.get("event")))
        cause = event.get("exc_info")
        if isinstance(cause, BaseException) and not isinstance(cause, StorageError | OSError):
            problems.append("".join(traceback.format_exception(cause, limit=-6)))
        elif cause is True:
            problems.append(f"{event.get('event')}: " + traceback.format_exc(limit=-6))
        raise structlog.DropEvent

    structlog.configure(processors=[listen])
    try:
        yield
    finally:
        structlog.reset_defaults()
