"""What an admin client asks about brokers: settings and state, as calls (see engine)."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from segbroker.protocol.messages_admin import (
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
)
from segbroker.protocol.vendor import VendorKey

from .administration import altering, describing
from .engine import ANY, CONTROLLER, Ask, Call
from .errors import broker_error
from .spoken import VendorReply, VendorRequest

_BROKER: Final = 4
_SOURCES: Final = {2: "broker", 3: "every broker", 4: "start", 5: "default"}


class BrokerSetting(NamedTuple):
    """A setting of a broker.

    value: None for what is told to nobody.
    source: "broker" or "every broker" (changed while it ran), "start", "default".
    is_read_only: it is read at the start and cannot be changed while the broker runs.
    """

    value: str | None
    source: str
    is_read_only: bool
    documentation: str | None


def describe_broker(broker_id: int | None) -> Call[dict[str, BrokerSetting]]:
    """The settings of a broker; None: what is set for every broker.  Raises InvalidRequest."""
    request = describing(_BROKER, _name(broker_id), synonyms=True)
    reply = yield Ask(request, to=ANY if broker_id is None else broker_id)
    assert isinstance(reply, DescribeConfigsResponse)
    found = {}
    for resource in reply.results:
        _check(resource.error_code, broker_id, resource.error_message)
        for row in resource.configs:
            names = {one.name for one in row.synonyms}
            if names and row.name not in names:
                continue  # another name of a setting that is here under its own
            source = _SOURCES.get(row.config_source, str(row.config_source))
            found[row.name] = BrokerSetting(row.value, source, row.read_only, row.documentation)
    return found


def broker_status(broker_id: int | None) -> Call[dict[str, Any]]:
    """How a segbroker is doing, as it says it (SERVER_INFO); None: whichever is asked.

    Raises UnsupportedByBroker: it is another make, ClusterAuthorizationFailed.
    """
    target = ANY if broker_id is None else broker_id
    reply = yield Ask(VendorRequest(VendorKey.SERVER_INFO, {}), to=target)
    assert isinstance(reply, VendorReply)
    body = dict(reply.body)
    if failed := body.get("error"):
        raise broker_error(failed["code"], "state of the broker", failed["detail"])
    body.pop("performance", None)  # of this request, not of the broker
    return body


def alter_broker_config(changes: Mapping[str, str | None], broker_id: int | None) -> Call[None]:
    """Change settings of a broker, or of every one; None brings a setting back.

    Raises InvalidConfig: with the broker's words.
    """
    request = altering(_BROKER, _name(broker_id), changes)
    reply = yield Ask(request, to=CONTROLLER if broker_id is None else broker_id)
    assert isinstance(reply, IncrementalAlterConfigsResponse)
    for row in reply.responses:
        _check(row.error_code, broker_id, row.error_message)


def _name(broker_id: int | None) -> str:
    return "" if broker_id is None else str(broker_id)


def _check(code: int, broker_id: int | None, message: str | None) -> None:
    if code:
        about = (
            "settings of every broker" if broker_id is None else f"settings of broker {broker_id}"
        )
        raise broker_error(code, about, message)
