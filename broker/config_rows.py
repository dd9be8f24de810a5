"""The rows of DescribeConfigs: a setting, its value in force, and what each place says of it.

| resource | rows |
|---|---|
| a topic | every key, set or default |
| this broker | every key, under our name and where there is one under Kafka's; kafka_settings |
| every broker ("") | what is set there, and nothing else, as in Kafka |
| a group | every key; where it is not set, what the broker's own setting says |
| the loggers of this broker | one, `root`: what it is logged from, until the restart |

A key of the broker that is read at the start is read-only.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from segbroker.protocol.messages_admin import (
    CreateTopicsResponseConfig,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseSynonym,
)
from segbroker.segments.topic_config import TopicConfig

from . import kafka_settings
from .config import join_address, keys
from .core import Core
from .group_settings import OF_BROKER
from .kafka_settings import KAFKA_SETTINGS
from .logs import LOGGER, level_in_force
from .peer import Peer
from .settings import DYNAMIC, EVERY_BROKER, OWN_NAMES, Origin

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
_BOOLEAN: Final = 1
_STRING: Final = 2
_LONG: Final = 5
_LIST: Final = 7
_TYPES: Final = {
    "boolean": _BOOLEAN,
    "string": _STRING,
    "int": 3,
    "long": _LONG,
    "double": 6,
    "list": _LIST,
}

_LISTENERS: Final = frozenset({"listeners", "advertised.listeners"})


def created_configs(config: TopicConfig) -> list[CreateTopicsResponseConfig]:
    """The settings of a topic as CreateTopics answers them: never null (Java streams them)."""
    return [
        CreateTopicsResponseConfig(
            name=setting.name,
            value=setting.value,
            read_only=False,
            config_source=_DEFAULT if setting.is_default else _TOPIC_OVERRIDE,
            is_sensitive=False,
        )
        for setting in config.describe()
    ]


def topic_rows(config: TopicConfig) -> Iterable[DescribeConfigsResponseConfig]:
    """The settings of a topic."""
    for setting in config.describe():
        synonyms = [
            DescribeConfigsResponseSynonym(
                name=setting.name, value=setting.default, source=_DEFAULT
            )
        ]
        if not setting.is_default:
            synonyms.insert(
                0,
                DescribeConfigsResponseSynonym(
                    name=setting.name, value=setting.value, source=_TOPIC_OVERRIDE
                ),
            )
        yield DescribeConfigsResponseConfig(
            name=setting.name,
            value=setting.value,
            read_only=False,
            config_source=_DEFAULT if setting.is_default else _TOPIC_OVERRIDE,
            is_sensitive=False,
            synonyms=synonyms,
            config_type=_TYPES[setting.kind],
            documentation=setting.documentation,
        )


def broker_rows(core: Core, peer: Peer) -> Iterator[DescribeConfigsResponseConfig]:
    """The settings of this broker."""
    settings = core.settings
    for spec in keys():
        is_secret = spec.metadata["secret"]
        layers = [
            DescribeConfigsResponseSynonym(
                name=spec.name,
                value=None if is_secret else layer.text,
                source=_SOURCES[layer.origin],
            )
            for layer in settings.layers(spec.name)
        ]
        kafka = spec.metadata["kafka"]
        names = [spec.name] if kafka in (None, spec.name) else [spec.name, kafka]
        for name in names:
            value = layers[0].value
            if name in _LISTENERS and not value:
                host = peer.listener.bound if name == "listeners" else core.advertised(peer)
                value = f"{peer.listener.spec.name}://{join_address(*host)}"
            yield DescribeConfigsResponseConfig(
                name=name,
                value=value,
                read_only=not spec.metadata["dynamic"],
                config_source=layers[0].source,
                is_sensitive=is_secret,
                synonyms=layers,
                config_type=_broker_type(spec.default),
                documentation=spec.metadata["doc"],
            )
    for name in KAFKA_SETTINGS:
        layers = [
            DescribeConfigsResponseSynonym(
                name=name, value=layer.text, source=_SOURCES[layer.origin]
            )
            for layer in settings.layers(name)
        ]
        if layers[0].source != _DEFAULT:
            yield _kafka_row(name, layers)


def _kafka_row(
    name: str, layers: list[DescribeConfigsResponseSynonym]
) -> DescribeConfigsResponseConfig:
    return DescribeConfigsResponseConfig(
        name=name,
        value=layers[0].value,
        read_only=False,
        config_source=layers[0].source,
        is_sensitive=False,
        synonyms=layers,
        config_type=KAFKA_SETTINGS[name].kind,
        documentation=kafka_settings.DOCUMENTATION,
    )


def every_broker_rows(core: Core) -> Iterator[DescribeConfigsResponseConfig]:
    """What is set on every broker."""
    specs = {spec.name: spec for spec in keys()}
    for own, text in core.settings.set_on(EVERY_BROKER).items():
        layers = [
            DescribeConfigsResponseSynonym(name=own, value=text, source=_DYNAMIC_DEFAULT_BROKER)
        ]
        if own in KAFKA_SETTINGS:
            yield _kafka_row(own, layers)
            continue
        for name in [own, *(name for name, of in OWN_NAMES.items() if of == own and name != own)]:
            yield DescribeConfigsResponseConfig(
                name=name,
                value=text,
                read_only=False,
                config_source=_DYNAMIC_DEFAULT_BROKER,
                is_sensitive=False,
                synonyms=layers,
                config_type=_broker_type(specs[own].default),
                documentation=specs[own].metadata["doc"],
            )


def group_rows(core: Core, group_id: str) -> Iterator[DescribeConfigsResponseConfig]:
    """The settings of a group, whether it exists or not."""
    own = core.group_settings.set_on(group_id)
    for key, of_broker in OF_BROKER.items():
        layers = [
            DescribeConfigsResponseSynonym(
                name=of_broker, value=layer.text, source=_SOURCES[layer.origin]
            )
            for layer in core.settings.layers(of_broker)
        ]
        if key in own:
            set_here = DescribeConfigsResponseSynonym(
                name=key, value=own[key], source=_DYNAMIC_GROUP
            )
            layers.insert(0, set_here)
        yield DescribeConfigsResponseConfig(
            name=key,
            value=layers[0].value,
            read_only=False,
            config_source=layers[0].source,
            is_sensitive=False,
            synonyms=layers,
            config_type=_TYPES["int"],
            documentation=DYNAMIC[of_broker].metadata["doc"],
        )


def logger_rows() -> Iterable[DescribeConfigsResponseConfig]:
    """The one logger."""
    level = level_in_force()
    return [
        DescribeConfigsResponseConfig(
            name=LOGGER,
            value=level,
            read_only=False,
            config_source=_DYNAMIC_LOGGER,
            is_sensitive=False,
            synonyms=[
                DescribeConfigsResponseSynonym(name=LOGGER, value=level, source=_DYNAMIC_LOGGER)
            ],
            config_type=_STRING,
            documentation="Least level that is logged, until the restart; log_level is for good.",
        )
    ]


def _broker_type(default: object) -> int:
    if isinstance(default, bool):
        return _BOOLEAN
    return _LONG if isinstance(default, int) else _STRING
