"""Structured logs: one event in the past tense per fact, as a line for people or as JSON.

Events go to standard error, so that the one ready line of `segbroker serve` stays alone on
standard output.  Whoever embeds a broker configures structlog as they like and never calls this.
"""

import logging
import sys
from typing import Final, TextIO

import structlog

from .config import BrokerConfig

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure(config: BrokerConfig, stream: TextIO | None = None) -> None:
    """Send the log to `stream` (standard error) in the format and from the level of `config`."""
    stream = stream or sys.stderr
    as_json = config.log_format == "json" or (config.log_format == "auto" and not stream.isatty())
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if as_json:
        processors += [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(sort_keys=False),
        ]
    else:
        processors.append(
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        )
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[config.log_level]),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,
    )
