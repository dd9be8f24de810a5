"""What an operator may set: every key with its default, its meaning, its bounds and its source.

    flags  >  SEGBROKER_<KEY>  >  TOML file  >  defaults

A key is one field of `BrokerConfig`; its documentation, bounds and Kafka name stand in the field's
metadata (config_key.py), so that `docs/configuration.md`, DescribeConfigs and the errors all say
the same (a test compares the page with the fields).  The fields stand in modules by what they are
about: config_listening, config_oauth, config_limits, config_topics, config_groups, config_access,
config_machine, config_metrics.
Those that are `dynamic` can be changed while the broker runs (settings.py).  What single listeners
have of their own are keys, too (listener_keys.py): which there are depends on `listeners`.

`merge` is a pure function of three texts: whoever reads files
and environments is the CLI.

In TOML the keys stand at the top level under their own names (`listen = "127.0.0.1:9092"`).  Sizes
and times may be written as whole numbers or with a unit ("64 MiB", "10 s").  An unknown key is an
error in every source: a typing mistake must not silently leave a default in force
(unknown_keys.py says what was meant).
"""

import tomllib
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from segbroker.protocol.api_keys import FEATURES
from segbroker.segments.errors import InvalidConfig as InvalidTopicConfig
from segbroker.segments.settings.topic_config import TopicConfig

from ..address import InvalidConfig as InvalidConfig
from ..address import join_address as join_address
from ..address import overlap
from ..address import split_address as split_address
from ..principal import parse_principals
from .config_access import AccessKeys
from .config_groups import CONSUMER, SHARE, STREAMS, GroupKeys, check_groups, parse_protocols
from .config_key import Value, parse_value, text_of
from .config_limits import LimitKeys
from .config_listening import ListeningKeys
from .config_machine import MachineKeys
from .config_metrics import MetricsKeys
from .config_oauth import OAuthKeys, check_oauth
from .config_topics import TopicKeys
from .connection_overrides import parse_overrides
from .exposure import check_exposure, check_metrics_exposure
from .listener_keys import PREFIX, check_fits, keys_of_listeners, own_name, why_unknown
from .listener_spec import ListenerSpec, check_told, parse_listeners, parse_mechanisms
from .subject_rules import RULES, parse_rules
from .tls_settings import TlsSettings, tls_settings
from .unknown_keys import service_links, what_was_meant

ENV_PREFIX: Final = "SEGBROKER_"
# Variables with our prefix that belong to the command line, not to the broker.
FOREIGN_VARIABLES: Final = frozenset(
    {"SEGBROKER_BOOTSTRAP", "SEGBROKER_CONFIG", "SEGBROKER_CONTEXT"}
)

Source: TypeAlias = Literal["flag", "environment", "file", "default", "changed"]


@dataclass(frozen=True)
class BrokerConfig(
    MetricsKeys,
    MachineKeys,
    AccessKeys,
    GroupKeys,
    TopicKeys,
    LimitKeys,
    OAuthKeys,
    ListeningKeys,
):
    """The settings of one broker. Build it with `merge`, or directly in tests.

    Keys are in the order of the bases from the last to the first: dataclasses do it so.
    """

    # Keys that listeners have of their own, by their whole names; not a key itself.
    by_listener: Mapping[str, Value] = field(default_factory=dict, hash=False, repr=False)
    # Where each key's value came from; not a key itself.
    sources: Mapping[str, Source] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for spec in keys():
            object.__setattr__(self, spec.name, parse_value(spec, getattr(self, spec.name)))
        if self.wal_bytes_max < 2 * self.wal_shards * self.wal_file_bytes:
            raise InvalidConfig(
                f"wal_bytes_max={self.wal_bytes_max}: {self.wal_shards} shards of two files of "
                f"wal_file_bytes={self.wal_file_bytes} are more"
            )
        check_groups(self)
        if not self.idle_timeout_ms:
            raise InvalidConfig("idle_timeout_ms = 0 would close every connection; -1: none")
        if not self.connections_per_ip_max and not self.connections_per_ip_overrides:
            raise InvalidConfig(
                "connections_per_ip_max = 0 would close every connection; "
                "connections_per_ip_overrides names who may connect"
            )
        if not self.data:
            raise InvalidConfig("data = '' names no directory; . is the current one")
        split_address(self.listen, key="listen")
        if self.advertised:
            check_told("advertised", *split_address(self.advertised, key="advertised"))
        try:
            parse_principals(self.super_users)
        except ValueError as exc:
            raise InvalidConfig(f"super_users: {exc}") from exc
        parse_overrides(self.connections_per_ip_overrides)
        _check_topic_defaults(self)
        self._check_listeners()
        if bool(self.initial_user) != bool(self.initial_password):
            raise InvalidConfig("initial_user and initial_password go together")
        object.__setattr__(self, "sources", MappingProxyType(dict(self.sources)))

    def _check_listeners(self) -> None:
        specs = {spec.name: spec for spec in self.listener_specs}
        known, own = self.all_keys, {}
        for name, value in self.by_listener.items():
            if (key := known.get(name)) is None:
                raise why_unknown(name, specs.values(), keys())
            check_fits(key, specs[key.metadata["of_listener"]])
            own[name] = parse_value(key, value)
        object.__setattr__(self, "by_listener", MappingProxyType(own))
        check_exposure(specs.values(), self.of_listener)
        if self.metrics_listen:
            host, port = split_address(self.metrics_listen, key="metrics_listen")
            if not self.allow_anonymous_network:
                check_metrics_exposure(host, port)
            for spec in specs.values():
                if overlap((spec.host, spec.port), (host, port)):
                    raise InvalidConfig(
                        f"metrics_listen = {self.metrics_listen!r} is where the broker itself "
                        f"listens ({spec.name}); the page needs a port of its own"
                    )
        parse_rules(self.ssl_principal_mapping_rules)
        offered = set(parse_mechanisms(self.sasl_mechanisms))
        for spec in specs.values():
            if spec.protocol.is_tls:
                self.tls_of(spec)
                parse_rules(self.of_listener(spec.name, RULES), self._named(spec, RULES))
            if spec.protocol.is_sasl:
                offered.update(self.mechanisms_of(spec))
        check_oauth(self, offered)

    @cached_property
    def all_keys(self) -> Mapping[str, Field[Any]]:
        """Every key that there is, by name: first the plain ones, then those of listeners."""
        plain = {spec.name: spec for spec in keys()}
        return plain | keys_of_listeners(self.listener_specs, plain.values())

    def value(self, name: str) -> Value:
        """What a key of `all_keys` is set to here; of a listener that has none: the default."""
        if (key := self.all_keys[name]).metadata["of"]:
            default: Any = key.default
            return self.by_listener.get(name, default)
        value: Value = getattr(self, name)
        return value

    def of_listener(self, listener: str, key: str) -> Any:  # noqa: ANN401 - of the key's type
        """What is in force on a listener: its own, else the plain setting or no limit."""
        own = own_name(listener, key)
        unless = self.all_keys[own].metadata["unless"]
        return self.by_listener.get(own, getattr(self, key) if unless is None else unless)

    def tls_of(self, spec: ListenerSpec) -> TlsSettings:
        """What the TLS of a listener goes by.  Raises InvalidConfig: something is missing."""
        return tls_settings(spec, self.of_listener)

    def mechanisms_of(self, spec: ListenerSpec) -> tuple[str, ...]:
        """How users may log in on a listener."""
        key = "sasl_mechanisms"
        return parse_mechanisms(self.of_listener(spec.name, key), self._named(spec, key))

    def _named(self, spec: ListenerSpec, key: str) -> str:
        """What a setting is called that is in force on a listener: its own, or the plain one."""
        own = own_name(spec.name, key)
        return own if own in self.by_listener else key

    def changed(self, values: Mapping[str, Any]) -> "BrokerConfig":
        """The same with other values of some keys of `all_keys`.  Raises InvalidConfig."""
        if not values:
            return self
        own = {name: value for name, value in values.items() if self.all_keys[name].metadata["of"]}
        plain: dict[str, Any] = {name: values[name] for name in values if name not in own}
        # What is set to its default is set all the same: other keys follow one that is not.
        sources: dict[str, Source] = {**self.sources, **dict.fromkeys(values, "changed")}
        by_listener = {**self.by_listener, **own}
        return replace(self, **plain, by_listener=by_listener, sources=sources)

    @cached_property
    def topic_defaults(self) -> Mapping[str, str]:
        """What is chosen for all topics here, by topic setting, as text."""
        return {
            spec.metadata["topic"]: text_of(getattr(self, spec.name))
            for spec in keys()
            if spec.metadata["topic"]
            and (self.source(spec.name) != "default" or getattr(self, spec.name) != spec.default)
        }

    @property
    def partitions_by_default(self) -> int:
        """How many a topic has for which nobody says it."""
        return min(self.partitions, self.partitions_max)

    @property
    def takes_consumer_groups(self) -> bool:
        """Whether members may speak the protocol of KIP-848."""
        return CONSUMER in parse_protocols(self.group_protocols)

    @property
    def takes_share_groups(self) -> bool:
        """Whether members may speak the protocol of KIP-932."""
        return SHARE in parse_protocols(self.group_protocols)

    @property
    def takes_streams_groups(self) -> bool:
        """Whether members may speak the protocol of KIP-1071."""
        return STREAMS in parse_protocols(self.group_protocols)

    @cached_property
    def feature_levels(self) -> Mapping[str, int]:
        """Which of its levels each of FEATURES has here."""
        levels = {name: levels.max for name, levels in FEATURES.items()}
        if not self.takes_consumer_groups:
            levels["group.version"] = 0
        if not self.takes_share_groups:
            levels["share.version"] = 0
        if not self.takes_streams_groups:
            levels["streams.version"] = 0
        return levels

    @property
    def listener_specs(self) -> tuple[ListenerSpec, ...]:
        """Where to listen, and what protects each."""
        listeners = self.listeners or f"PLAINTEXT://{self.listen}"
        advertised = self.advertised_listeners
        if self.advertised:
            if self.listeners:
                raise InvalidConfig(
                    "advertised belongs to listen; with listeners, use advertised_listeners"
                )
            advertised = advertised or f"PLAINTEXT://{self.advertised}"
        return parse_listeners(listeners, advertised, self.listener_security_protocol_map)

    def source(self, name: str) -> Source:
        """Where the value of a key came from."""
        return self.sources.get(name, "default")


def _check_topic_defaults(config: BrokerConfig) -> None:
    """Raises InvalidConfig: one of them cannot be, or two do not go together."""
    for spec in keys():
        if topic := spec.metadata["topic"]:
            value = text_of(getattr(config, spec.name))
            try:
                TopicConfig.parse({topic: value})
            except InvalidTopicConfig as exc:
                raise InvalidConfig(f"{spec.name} = {value!r} {exc.reason}") from exc
    try:
        TopicConfig(inherited=config.topic_defaults)
    except InvalidTopicConfig as exc:
        raise InvalidConfig(f"defaults of topics: {exc}") from exc


@cache
def keys() -> tuple[Field[Any], ...]:
    """The fields of BrokerConfig that are keys, in their documented order."""
    return tuple(
        spec for spec in fields(BrokerConfig) if spec.name not in ("by_listener", "sources")
    )


def merge(
    flags: Mapping[str, Value | None] | None = None,
    environment: Mapping[str, str] | None = None,
    toml_text: str = "",
) -> BrokerConfig:
    """The configuration from all its sources; the nearest to the person who types wins.

    Args:
        flags: by key; None means "not given".
        environment: the whole process environment; only SEGBROKER_* is looked at.
        toml_text: the text of the configuration file, or "".

    Raises:
        InvalidConfig: an unknown key or a value that its key does not allow.
    """
    known = {spec.name: spec for spec in keys()}
    values: dict[str, Any] = {}  # by field, each of its own type once it is parsed
    own: dict[str, Any] = {}  # of single listeners: which there are is known when all is read
    sources: dict[str, Source] = {}
    layers: tuple[tuple[Source, Mapping[str, object]], ...] = (
        ("file", _toml(toml_text)),
        ("environment", _environment(environment or {})),
        ("flag", {k: v for k, v in (flags or {}).items() if v is not None}),
    )
    for source, layer in layers:
        for name, value in layer.items():
            if name not in known and not name.startswith(PREFIX):
                told = f"unknown key {name!r} (from the {source})"
                raise InvalidConfig(told + what_was_meant(name, value, _kafka_names()))
            (values if name in known else own)[name] = value
            sources[name] = source
    for name, value in values.items():
        values[name] = _parsed(known[name], value, sources[name])
    return BrokerConfig(**values, by_listener=own, sources=sources)


def _parsed(key: Field[Any], value: object, source: Source) -> Value:
    """Raises InvalidConfig: it also says where the value stands."""
    try:
        return parse_value(key, value)
    except InvalidConfig as exc:
        raise InvalidConfig(f"{exc} (from the {source})") from exc


def _toml(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise InvalidConfig(f"the configuration file is not TOML: {exc}") from exc


def _environment(environment: Mapping[str, str]) -> dict[str, object]:
    foreign = FOREIGN_VARIABLES | service_links(environment)
    return {
        name.removeprefix(ENV_PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(ENV_PREFIX) and name not in foreign
    }


def _kafka_names() -> dict[str, str | None]:
    """Kafka's name of each key, if it has one."""
    return {spec.name: spec.metadata["kafka"] for spec in keys()}
