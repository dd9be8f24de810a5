"""An answer with what only its broker can know written alike."""

import re
from typing import Any, Final

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.schema import Message

from ..answers import Fields, flatten
from ..rules import bare, normalised
from .names import Names

_EPOCHS: Final = re.compile(r"(.*\.)?(leader_epoch|coordinator_epoch)")
"""Of a topic that was made again it is another one."""
_GENERATION_SIZE: Final = 6
"""What a subscription ends with: its generation, and no rack."""
_COUNTED: Final = re.compile(r"groups\.(group_epoch|assignment_epoch|members\.member_epoch)")
_ASSIGNED: Final = re.compile(r"(.*\.)?(target_)?assignment(\..*)?")
_KIP_848: Final = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.SHARE_GROUP_HEARTBEAT,
}


def alike(
    key: ApiKey, version: int, answer: Message, names: Names, title: str, begun_ms: int
) -> Fields:
    """The fields of an answer, comparable with those of the other broker.

    Producers and members are written as whose they are, rows are in the order of these names.  Of a
    member's assignment it is only told whether there is one: which partitions are whose goes by
    ids that are drawn at random.  Times count from the beginning of the story: what differs is the
    same when it is told again.
    """
    _named(answer, names)
    made: Fields = {}
    fields = flatten(answer, version, title, names.topics)
    same = normalised(key, fields)
    for path, value in fields.items():
        where = bare(path)
        if isinstance(value, bytes):  # assignments and metadata, with names of topics
            said = value[:-_GENERATION_SIZE] if where.endswith("metadata") else value
            made[path] = said.replace(title.encode(), b"~")
            continue
        if isinstance(value, str) and value.startswith("<"):
            made[path] = value
        elif where.endswith(".producer_id") and isinstance(value, int) and value >= 0:
            made[path] = names.producer(value)
        elif _is_its_own(key, where) and value != -1:
            made[path] = "*"
        elif key in _KIP_848 and _ASSIGNED.fullmatch(where):
            if where.endswith("assignment"):
                made[path] = value
        else:
            made[path] = told = same[path]
            if where.endswith("timestamp") and isinstance(told, int) and told > 0:
                made[path] = told - begun_ms
    return made


def _is_its_own(key: ApiKey, where: str) -> bool:
    """Whether a broker counts these epochs in its own way."""
    return bool(_EPOCHS.fullmatch(where) or (key in _KIP_848 and _COUNTED.fullmatch(where)))


def _named(message: Message, names: Names) -> None:
    for field in type(message).fields():
        value: Any = getattr(message, field.name)
        if value is None:
            continue
        if field.struct is not None and field.is_array:
            for row in value:
                _named(row, names)
            if field.name in _UNORDERED:
                value.sort(key=_order)
        elif field.struct is not None:
            _named(value, names)
        elif field.name == "producer_id" and value >= 0:
            setattr(message, field.name, names.producer(value))
        elif field.name in ("member_id", "leader") and value:
            setattr(message, field.name, names.member(value))
        elif field.name in _WITHOUT_ORDER and field.is_array:
            value.sort()


_WITHOUT_ORDER: Final = ("partitions", "unknown_state_filters", "subscribed_topic_names")
_UNORDERED: Final = ("members", "active_producers", "aborted_transactions", "transaction_states")


def _order(row: Message) -> str:
    return repr([getattr(row, field.name) for field in type(row).fields()])
