"""Structured logs: one event in the past tense per fact, as a line for people or as JSON.

Events go to standard error, so that the one ready line of `segbroker serve` stays alone on
standard output.  A stream that refuses a line loses it, and nothing else (log_sink.py); so does
want of memory.  Whoever embeds a broker configures structlog as they like and never calls this.
"""

import logging
import os
import sys
from collections.abc import Iterable
from typing import Any, Final, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, ProcessorReturnValue

from .config import BrokerConfig
from .log_sink import LogSink

log = structlog.get_logger()

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
NAME_TOLD_MAX: Final = 256
"""Characters of a name that a peer has chosen: lines about a flood of them stay short."""
LOGGER: Final = "root"
"""The one logger that there is, as Kafka's tools name it."""
_KAFKA_WORDS: Final = {
    structlog.make_filtering_bound_logger(_LEVELS[ours]): theirs
    for ours, theirs in (
        ("debug", "DEBUG"),
        ("info", "INFO"),
        ("warning", "WARN"),
        ("error", "ERROR"),
    )
}


def configure(config: BrokerConfig, stream: TextIO | None = None) -> None:
    """Send the log to `stream` (standard error) in the format and from the level of `config`."""
    stream = stream or sys.stderr
    as_json = config.log_format == "json" or (config.log_format == "auto" and not stream.isatty())
    sink = LogSink(stream)
    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        sink.tell_lost,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if as_json:
        processors += [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(sort_keys=False),
        ]
    else:
        processors += [
            _escape,
            structlog.dev.ConsoleRenderer(
                colors=_has_colours(stream), exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    structlog.configure(
        processors=[_each_of(processors, sink)],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[config.log_level]),
        # It takes no more of a file than LogSink has.
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", sink)),
        cache_logger_on_first_use=False,
    )


def _each_of(processors: Iterable[Processor], sink: LogSink) -> Processor:
    """Without the memory that it takes, a line is lost: nobody ends because of what he tells."""

    def process(logger: object, method: str, event: EventDict) -> ProcessorReturnValue:
        told: Any = event
        try:
            for processor in processors:
                told = processor(logger, method, told)
        except MemoryError:
            sink.lose()
            raise structlog.DropEvent from None
        return cast("ProcessorReturnValue", told)

    return process


def _has_colours(stream: TextIO) -> bool:
    """A terminal has, unless it says otherwise or its user does (no-color.org)."""
    is_without = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not is_without


def set_level(level: str, **asker: str) -> None:
    """Log from another level on, in the format that there is.

    That is told while it can be heard: before, unless fewer things were told then.  asker: who
    asked for it.
    """
    before = structlog.get_config()["wrapper_class"]
    after = structlog.make_filtering_bound_logger(_LEVELS[level])
    if before is after:
        return
    if level == "error":
        log.warning("log_level_changed", log_level=level, **asker)
    structlog.configure(wrapper_class=after)
    if level != "error":
        log.warning("log_level_changed", log_level=level, **asker)


def level_in_force() -> str:
    """Kafka's word for the least level that is logged; of a log that is not ours: DEBUG."""
    return _KAFKA_WORDS.get(structlog.get_config()["wrapper_class"], "DEBUG")


def told(name: str) -> str:
    """What somebody calls himself, as far as a line tells it: up to NAME_TOLD_MAX characters."""
    return name if len(name) <= NAME_TOLD_MAX else f"{name[:NAME_TOLD_MAX]}…"


def _escape(logger: object, method: str, event: EventDict) -> EventDict:
    """Control characters as text: a client's name must not write to somebody's terminal."""
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[key] = value.encode("unicode_escape").decode()
    return event
