"""The level of the log, as Kafka's tools set it: resource BROKER_LOGGER, logger `root`.

For a look while something goes wrong: it holds until the restart.  The setting `log_level` is for
good, and whichever was changed last is in force.  Kafka's levels TRACE and FATAL are DEBUG and
ERROR here.  As in Kafka it can be set and not unset, and only key by key.
"""

from collections.abc import Mapping
from typing import Final

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    AlterConfigsRequestResource,
    IncrementalAlterConfigsRequestResource,
)

from ..configuration.logs import LOGGER, set_level
from ..refused import Refused, invalid_request

_SET: Final = 0
_LEVELS: Final = {
    "TRACE": "debug",
    "DEBUG": "debug",
    "INFO": "info",
    "WARN": "warning",
    "ERROR": "error",
    "FATAL": "error",
}


def alter_logger(
    asked: AlterConfigsRequestResource | IncrementalAlterConfigsRequestResource,
    asker: Mapping[str, str],
    *,
    validate_only: bool,
) -> None:
    """Log from another level on.  Raises Refused."""
    if isinstance(asked, AlterConfigsRequestResource):
        raise invalid_request("a logger is altered by IncrementalAlterConfigs")
    for one in asked.configs:
        if one.name != LOGGER:
            raise Refused(ErrorCode.INVALID_CONFIG, f"no logger {one.name!r}, only {LOGGER!r}")
        if one.config_operation != _SET:
            raise invalid_request(f"the level of {LOGGER!r} can be set and nothing else")
        if one.value is None:
            raise invalid_request(f"{LOGGER!r} has no value")
        if one.value not in _LEVELS:
            raise Refused(
                ErrorCode.INVALID_CONFIG, f"{one.value!r} is none of {', '.join(_LEVELS)}"
            )
    if not validate_only:
        for one in asked.configs:
            set_level(_LEVELS[one.value or ""], **asker)
