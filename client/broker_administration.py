"""What an admin client asks about brokers: settings and state, as calls (see engine)."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from segbroker.protocol.messages_admin import (
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
)
from segbroker.protocol.vendor import VendorKey

from .administration import SOURCES, Setting, altering, describing
from .asking import change, look, look_vendor, refused
from .engine import ANY, CONTROLLER, Call, Engine
from .spoken import VendorRequest

_BROKER: Final = 4


class BrokerSetting(NamedTuple):
    """A setting of a broker.

    value: None for what is told to nobody.
    source: "broker" or "every broker" (changed while it ran), "start", "default".
    is_read_only: it is read at the start and cannot be changed while the broker runs.
    other_name: what the setting is called as well, by Apache Kafka; None: nothing else.
    """

    value: str | None
    source: str
    is_read_only: bool
    documentation: str | None
    other_name: str | None = None


def describe_broker(engine: Engine, broker_id: int | None) -> Call[dict[str, BrokerSetting]]:
    """The settings of a broker; None: what is set for every broker.  Raises InvalidRequest."""
    request = describing(_BROKER, _name(broker_id), synonyms=True)
    to = ANY if broker_id is None else broker_id
    check = refused(_about(broker_id))
    reply = yield from look(engine, request, DescribeConfigsResponse, check, to=to)
    found: dict[str, BrokerSetting] = {}
    for resource in reply.results:
        for row in resource.configs:
            names = [one.name for one in row.synonyms]
            if names and row.name not in names:
                if names[0] in found:  # it is here under its own
                    found[names[0]] = found[names[0]]._replace(other_name=row.name)
                continue
            source = SOURCES.get(row.config_source, str(row.config_source))
            value = row.value
            if value is None and not row.is_sensitive:  # Kafka's word for nothing
                value = ""
            found[row.name] = BrokerSetting(value, source, row.read_only, row.documentation)
    return found


def broker_status(engine: Engine, broker_id: int | None) -> Call[dict[str, Any]]:
    """How a segbroker is doing, as it says it (SERVER_INFO); None: whichever is asked.

    Raises UnsupportedByBroker: it is another make, ClusterAuthorizationFailed.
    """
    _check_id(broker_id)
    target = ANY if broker_id is None else broker_id
    request = VendorRequest(VendorKey.SERVER_INFO, {})
    body = dict((yield from look_vendor(engine, request, "state of the broker", to=target)))
    body.pop("performance", None)  # of this request, not of the broker
    return body


def alter_broker_config(
    engine: Engine, changes: Mapping[str, Setting | None], broker_id: int | None
) -> Call[None]:
    """Change settings of a broker, or of every one; None brings a setting back.

    Raises InvalidConfig: with the broker's words.
    """
    request = altering(_BROKER, _name(broker_id), changes)
    to = CONTROLLER if broker_id is None else broker_id
    check = refused(_about(broker_id))
    yield from change(engine, request, IncrementalAlterConfigsResponse, check, to=to)


def _check_id(broker_id: int | None) -> None:
    if not isinstance(broker_id, int | None):
        raise TypeError(f"broker_id={broker_id!r} is not an int")


def _name(broker_id: int | None) -> str:
    _check_id(broker_id)
    return "" if broker_id is None else str(broker_id)


def _about(broker_id: int | None) -> str:
    return "settings of " + ("every broker" if broker_id is None else f"broker {broker_id}")
