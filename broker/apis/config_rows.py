"""The rows of DescribeConfigs: a setting, its value in force, and what each place says of it.

| resource | rows |
|---|---|
| a topic | every key: set on it, chosen for all topics, or default |
| this broker | every key, under our name and where there is one under Kafka's; kafka_settings, |
| | of a listener what it has of its own, and what is set here and cannot be any more |
| every broker ("") | what is set there, and nothing else, as in Kafka |
| a group | every key; where it is not set, what the broker's own setting says |
| the loggers of this broker | one, `root`: what it is logged from, until the restart |

A key of the broker that is read at the start is read-only.
"""

from collections.abc import Iterable, Iterator
from dataclasses import Field
from typing import Any, Final

from segbroker.protocol.messages_admin import (
    CreateTopicsResponseConfig,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseSynonym,
)
from segbroker.segments.settings.topic_config import Setting, TopicConfig

from ..configuration import kafka_settings
from ..configuration.config import join_address, keys
from ..configuration.kafka_settings import KAFKA_SETTINGS
from ..configuration.logs import LOGGER, level_in_force
from ..configuration.settings import EVERY_BROKER, BrokerSettings, Origin
from ..core import Core
from ..groups.group_keys import GROUP_KEYS
from ..peers.peer import Peer

# Where a value came from.
_TOPIC_OVERRIDE: Final = 1
_DYNAMIC_BROKER: Final = 2
_DYNAMIC_DEFAULT_BROKER: Final = 3
_STATIC_BROKER: Final = 4
_DEFAULT: Final = 5
_DYNAMIC_LOGGER: Final = 6
_DYNAMIC_GROUP: Final = 8
_SOURCES: Final[dict[Origin, int]] = {
    "broker": _DYNAMIC_BROKER,
    "every broker": _DYNAMIC_DEFAULT_BROKER,
    "start": _STATIC_BROKER,
    "default": _DEFAULT,
}

# Types of values.
_UNKNOWN: Final = 0
_BOOLEAN: Final = 1
_STRING: Final = 2
_LONG: Final = 5
_LIST: Final = 7
_PASSWORD: Final = 9
_TYPES: Final = {
    "boolean": _BOOLEAN,
    "string": _STRING,
    "int": 3,
    "long": _LONG,
    "double": 6,
    "list": _LIST,
}

_OF_TOPICS: Final[dict[str, str]] = {
    spec.metadata["topic"]: spec.name for spec in keys() if spec.metadata["topic"]
}
"""The setting of the broker that stands below one of every topic."""
_KINDS: Final[dict[str, str]] = {setting.name: setting.kind for setting in TopicConfig().describe()}
_BY_NATURE: Final = {setting.name: setting.default for setting in TopicConfig().describe()}
"""Defaults of a topic on which nothing is set: what the broker's setting is by default."""

_LISTENERS: Final = frozenset({"listeners", "advertised.listeners"})


def created_configs(core: Core, config: TopicConfig) -> list[CreateTopicsResponseConfig]:
    """The settings of a topic as CreateTopics answers them: never null (Java streams them)."""
    return [
        CreateTopicsResponseConfig(
            name=setting.name,
            value=setting.value,
            read_only=False,
            config_source=_topic_synonyms(core, setting)[0].source,
            is_sensitive=False,
        )
        for setting in config.describe()
    ]


def topic_rows(core: Core, config: TopicConfig) -> Iterable[DescribeConfigsResponseConfig]:
    """The settings of a topic."""
    for setting in config.describe():
        synonyms = _topic_synonyms(core, setting)
        yield _row(setting.name, synonyms, _TYPES[setting.kind], setting.documentation)


def _topic_synonyms(core: Core, setting: Setting) -> list[DescribeConfigsResponseSynonym]:
    """What each place says of a setting of a topic, the one in force first."""
    of_broker = _OF_TOPICS.get(setting.name)
    name = setting.name
    if of_broker is not None and setting.default == _BY_NATURE[name]:
        name = core.settings.kafka_names.get(of_broker, of_broker)
    below = [_synonym(name, setting.default, _DEFAULT)]
    if setting.is_default and not setting.is_inherited:
        return below
    if of_broker is not None and setting.name in core.config.topic_defaults:
        below = _synonyms(core.settings, of_broker, as_kafka=True)
    if setting.is_default:
        return below
    return [_synonym(setting.name, setting.value, _TOPIC_OVERRIDE), *below]


def broker_rows(core: Core, peer: Peer) -> Iterator[DescribeConfigsResponseConfig]:
    """The settings of this broker."""
    for spec in core.settings.keys.values():
        synonyms = _synonyms(core.settings, spec.name)
        if spec.metadata["of"] and not _is_own(spec.name, synonyms[0]):
            continue
        kafka = spec.metadata["kafka"]
        if is_secret := spec.metadata["secret"]:
            for one in synonyms:
                one.value = None
        for name in dict.fromkeys((spec.name, kafka or spec.name)):
            row = _row(name, synonyms, _broker_type(spec), spec.metadata["doc"])
            row.read_only = not spec.metadata["dynamic"]
            row.is_sensitive = is_secret
            if name in _LISTENERS and not row.value:
                host = peer.listener.bound if name == "listeners" else core.advertised(peer)
                row.value = f"{peer.listener.spec.name}://{join_address(*host)}"
            yield row
    for name in KAFKA_SETTINGS:
        synonyms = _synonyms(core.settings, name)
        if synonyms[0].source != _DEFAULT:
            yield _kafka_row(name, synonyms)
    for name, text in core.settings.set_on(core.settings.own).items():
        if name not in core.settings.keys and name not in KAFKA_SETTINGS:
            yield _useless_row(_synonym(name, text, _DYNAMIC_BROKER))


def every_broker_rows(core: Core) -> Iterator[DescribeConfigsResponseConfig]:
    """What is set on every broker, also what cannot be any more: it can be unset."""
    for own, text in core.settings.set_on(EVERY_BROKER).items():
        synonyms = [_synonym(own, text, _DYNAMIC_DEFAULT_BROKER)]
        if own in KAFKA_SETTINGS:
            yield _kafka_row(own, synonyms)
        elif spec := core.settings.dynamic(own):
            for name in dict.fromkeys((own, core.settings.kafka_names.get(own, own))):
                yield _row(name, synonyms, _broker_type(spec), spec.metadata["doc"])
        else:
            yield _useless_row(*synonyms)


def group_rows(core: Core, group_id: str) -> Iterator[DescribeConfigsResponseConfig]:
    """The settings of a group, whether it exists or not."""
    own = core.group_settings.set_on(group_id)
    for name, key in GROUP_KEYS.items():
        synonyms = [_synonym(name, key.default, _DEFAULT)]
        if key.of_broker:
            synonyms = _synonyms(core.settings, key.of_broker, as_kafka=True)
        if name in own:
            synonyms.insert(0, _synonym(name, own[name], _DYNAMIC_GROUP))
        yield _row(name, synonyms, _TYPES[key.kind], key.documentation)


def logger_rows() -> Iterable[DescribeConfigsResponseConfig]:
    """The one logger; without synonyms and of no type, as Kafka's."""
    in_force = _synonym(LOGGER, level_in_force(), _DYNAMIC_LOGGER)
    about = "Least level that is logged, until the restart; log_level is for good."
    row = _row(LOGGER, [in_force], _UNKNOWN, about)
    row.synonyms = []
    return [row]


def _row(
    name: str,
    synonyms: list[DescribeConfigsResponseSynonym],
    kind: int,
    documentation: str,
) -> DescribeConfigsResponseConfig:
    """A setting whose first synonym is in force."""
    return DescribeConfigsResponseConfig(
        name=name,
        value=synonyms[0].value,
        read_only=False,
        config_source=synonyms[0].source,
        is_sensitive=False,
        synonyms=synonyms,
        config_type=kind,
        documentation=documentation,
    )


def _useless_row(stored: DescribeConfigsResponseSynonym) -> DescribeConfigsResponseConfig:
    """What is stored and cannot be any more: by it an operator knows what to unset."""
    return _row(stored.name, [stored], _STRING, "Without effect: there is no such setting.")


def _kafka_row(
    name: str, synonyms: list[DescribeConfigsResponseSynonym]
) -> DescribeConfigsResponseConfig:
    return _row(name, synonyms, KAFKA_SETTINGS[name].kind, kafka_settings.DOCUMENTATION)


def _synonyms(
    settings: BrokerSettings, name: str, *, as_kafka: bool = False
) -> list[DescribeConfigsResponseSynonym]:
    """What each place says of a setting of the broker, the one in force first.

    as_kafka: by Kafka's names, where there are; else by ours.
    """
    told = settings.kafka_names if as_kafka else {}
    return [
        _synonym(told.get(layer.key, layer.key), layer.text, _SOURCES[layer.origin])
        for layer in settings.layers(name)
    ]


def _is_own(name: str, in_force: DescribeConfigsResponseSynonym) -> bool:
    """Whether somebody has set a key of a listener: what is not set is not told, as in Kafka."""
    return in_force.name == name and in_force.source != _DEFAULT


def _synonym(name: str, value: str | None, source: int) -> DescribeConfigsResponseSynonym:
    return DescribeConfigsResponseSynonym(name=name, value=value, source=source)


def _broker_type(spec: Field[Any]) -> int:
    """Kafka's number for the type of a setting; of a default of topics that of their setting."""
    if spec.metadata["topic"]:
        return _TYPES[_KINDS[spec.metadata["topic"]]]
    if spec.metadata["secret"]:
        return _PASSWORD
    if isinstance(spec.default, bool):
        return _BOOLEAN
    return _LONG if isinstance(spec.default, int) else _STRING
