"""What an operator may set: every key with its default, its meaning, its bounds and its source.

    flags  >  SEGBROKER_<KEY>  >  TOML file  >  defaults

A key is one field of `BrokerConfig`; its documentation, bounds and Kafka name stand in the field's
metadata, so that `docs/configuration.md`, DescribeConfigs and the errors all say the same (a test
compares the page with the fields).  `merge` is a pure function of three texts: whoever reads files
and environments is the CLI.

In TOML the keys stand at the top level under their own names (`listen = "127.0.0.1:9092"`).  Sizes
may be written as whole numbers or with a binary unit ("64 MiB").  An unknown key is an error in
every source: a typing mistake must not silently leave a default in force.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from .address import InvalidConfig as InvalidConfig
from .address import join_address as join_address
from .address import split_address as split_address
from .connection_overrides import parse_overrides
from .exposure import check_exposure
from .listener_spec import ListenerSpec, parse_listeners, parse_mechanisms
from .principal import parse_principals

ENV_PREFIX: Final = "SEGBROKER_"
# Variables with our prefix that belong to the command line, not to the broker.
FOREIGN_VARIABLES: Final = frozenset(
    {"SEGBROKER_BOOTSTRAP", "SEGBROKER_CONFIG", "SEGBROKER_CONTEXT"}
)

Value: TypeAlias = str | int | bool
Source: TypeAlias = Literal["flag", "environment", "file", "default"]

_UNITS: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "B": 1}
_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "off"})
_DAY_MS: Final = 24 * 60 * 60 * 1000


def _key(
    default: Value,
    doc: str,
    *,
    least: int = 0,
    most: int = 2**31 - 1,
    choices: tuple[str, ...] = (),
    kafka: str | None = None,
    secret: bool = False,
) -> Any:  # noqa: ANN401 - dataclasses.field() is typed so as well
    """A field of BrokerConfig. `kafka`: the name under which Kafka's tools know the key.

    secret: its value is told to nobody, neither on the wire nor by --show-config.
    """
    metadata = {
        "doc": doc,
        "least": least,
        "most": most,
        "choices": choices,
        "kafka": kafka,
        "secret": secret,
    }
    return field(default=default, repr=not secret, metadata=metadata)


@dataclass(frozen=True)
class BrokerConfig:
    """The settings of one broker. Build it with `merge`, or directly in tests."""

    data: str = _key("segbroker-data", "Directory of the log files. Made when missing.")
    listen: str = _key(
        "127.0.0.1:9092",
        "host:port to listen on without TLS and passwords; port 0 takes a free one; [::1]:9092 for "
        "IPv6. Has no meaning where listeners is set.",
    )
    advertised: str = _key(
        "",
        "host:port told to clients in Metadata. Empty: what was bound; for 0.0.0.0 or [::] the "
        "address on which the client reached us. A port of 0 stands for the bound port.",
    )
    listeners: str = _key(
        "",
        "Several listeners, as NAME://host:port with commas between. NAME is what protects it: "
        "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, or a name of listener_security_protocol_map.",
        kafka="listeners",
    )
    advertised_listeners: str = _key(
        "",
        "host:port told to the clients of each listener, as NAME://host:port; for one that is not "
        "named as with an empty advertised.",
        kafka="advertised.listeners",
    )
    listener_security_protocol_map: str = _key(
        "",
        "What protects listeners of other names, as NAME:PROTOCOL with commas between.",
        kafka="listener.security.protocol.map",
    )
    ssl_certificate: str = _key(
        "",
        "PEM file with the certificate of the SSL and SASL_SSL listeners, and its chain. Read "
        "again, with the key and the CA, on SIGHUP and when one of the files has changed.",
        kafka="ssl.keystore.location",
    )
    ssl_key: str = _key("", "PEM file with its private key; empty: in ssl_certificate.")
    ssl_key_password: str = _key(
        "", "Password of the private key, if it has one.", kafka="ssl.key.password", secret=True
    )
    ssl_ca: str = _key(
        "",
        "PEM file with the authorities that may sign certificates of clients.",
        kafka="ssl.truststore.location",
    )
    ssl_client_auth: str = _key(
        "none",
        "Whether clients of SSL listeners have to show a certificate: none, requested (who has "
        "one) or required. Its subject is the client's name there.",
        choices=("none", "requested", "required"),
        kafka="ssl.client.auth",
    )
    ssl_version_min: str = _key(
        "TLSv1.2", "Oldest version of TLS that is spoken.", choices=("TLSv1.2", "TLSv1.3")
    )
    ssl_reload_interval_ms: int = _key(
        10_000,
        "Pause between two looks at whether the files of the certificate have changed; 0: only on "
        "SIGHUP.",
        most=_DAY_MS,
    )
    sasl_mechanisms: str = _key(
        "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
        "How users of SASL listeners may log in. PLAIN sends the password itself: over TLS only.",
        kafka="sasl.enabled.mechanisms",
    )
    initial_user: str = _key(
        "",
        "A user who is made at the start when there is none of this name, with initial_password. "
        "Its password is not changed by a restart.",
    )
    initial_password: str = _key("", "See initial_user.", secret=True)
    scram_iterations: int = _key(
        8_192,
        "Rounds of hashing for the password of initial_user.",
        least=4_096,
        most=16_384,
    )
    connections_max_reauth_ms: int = _key(
        0,
        "A client of a SASL listener has to log in again after this time, or is closed; 0: never.",
        kafka="connections.max.reauth.ms",
    )
    authentication_failure_delay_ms: int = _key(
        250,
        "Who sends a wrong password waits so long for the answer.",
        most=10_000,
        kafka="connection.failed.authentication.delay.ms",
    )
    handshakes_max: int = _key(
        1_000,
        "Most connections in the middle of a TLS handshake or a login; beyond it the oldest of "
        "them is closed.",
        least=1,
    )
    broker_id: int = _key(1, "Node id of this broker in every answer.", kafka="broker.id")
    auto_create_topics: bool = _key(
        True,
        "Create a topic when a client asks for the metadata of an unknown one.",
        kafka="auto.create.topics.enable",
    )
    auto_create_topics_max: int = _key(
        10_000,
        "No topic is created by asking for it while there are this many: a client that makes "
        "names up must not fill the disk with directories. Creating by request is not limited.",
        most=1_000_000,
    )
    partitions: int = _key(
        4,
        "Partitions of an auto-created topic, and of one created with a count of -1.",
        least=1,
        most=100_000,
        kafka="num.partitions",
    )
    partitions_max: int = _key(10_000, "Most partitions one topic may have.", least=1, most=100_000)
    durability: str = _key(
        "fsync",
        "Durability class of topics created without one: fsync (acknowledged after the sync), "
        "disk (after the write; a power cut may cost the unsynced tail), memory (after the write; "
        "a power cut may cost any of it) or ephemeral (in memory, gone with the process).",
        choices=("fsync", "disk", "memory", "ephemeral"),
    )
    connections_max: int = _key(
        10_000,
        "Most connections at once; a further one is closed at once.",
        least=1,
        kafka="max.connections",
    )
    connections_per_ip_max: int = _key(
        2**31 - 1,
        "Most connections from one address at once; a further one is closed at once.",
        kafka="max.connections.per.ip",
    )
    connections_per_ip_overrides: str = _key(
        "",
        "Other numbers for some addresses: 10.0.0.1:200,10.0.0.2:5.",
        kafka="max.connections.per.ip.overrides",
    )
    connections_per_ip_per_second: int = _key(
        0,
        "Most new connections per second from one address that has no quota of its own "
        "(connection_creation_rate); a further one is closed at once. 0: any number.",
    )
    frame_bytes_max: int = _key(
        100 << 20,
        "Largest request, in bytes; a larger one closes its connection.",
        least=1 << 10,
        most=1 << 30,
        kafka="socket.request.max.bytes",
    )
    handshake_timeout_ms: int = _key(
        10_000, "A connection without a complete first request after this time is closed.", least=1
    )
    idle_timeout_ms: int = _key(
        600_000,
        "A connection on which nothing came or went for this long is closed.",
        least=1,
        kafka="connections.max.idle.ms",
    )
    send_timeout_ms: int = _key(
        60_000, "A client that takes none of its replies for this long is closed.", least=1
    )
    slots_max: int = _key(
        2_000,
        "Most unanswered requests per connection; beyond it the connection is not read.",
        least=1,
    )
    request_bytes_max: int = _key(
        256 << 20,
        "Bytes of half-received requests on all connections together; beyond it connections in "
        "the middle of a large request wait, for at most request_wait_ms, and are then closed.",
        least=1 << 16,
        most=1 << 40,
        kafka="queued.max.request.bytes",
    )
    request_bytes_per_ip_max: int = _key(
        128 << 20,
        "The same for the connections of one address together: it waits when it alone holds more.",
        least=1 << 16,
        most=1 << 40,
    )
    request_wait_ms: int = _key(
        10_000, "Longest wait of a large request for request_bytes_max.", least=1
    )
    ingest_bytes_max: int = _key(
        64 << 20,
        "Bytes appended but not yet synced, over all partitions; beyond it producers are not read "
        "until the disk has caught up, beyond twice as much batches are refused for a while.",
        least=1 << 16,
        most=1 << 40,
    )
    fetch_bytes_max: int = _key(
        16 << 20,
        "Most record bytes in one fetch reply, whatever the client asks (one batch always fits).",
        least=1 << 10,
        most=1 << 30,
        kafka="fetch.max.bytes",
    )
    fetch_buffer_bytes_max: int = _key(
        256 << 20,
        "Bytes of fetch replies that are being read or sent, over all connections. Above half of "
        "it replies shrink to 1 MiB; at it the buffers of clients that do not read are taken back.",
        least=1 << 20,
        most=1 << 40,
    )
    long_poll_max_ms: int = _key(
        60_000, "Longest wait of a fetch for records, whatever the client asks.", least=0
    )
    produce_timeout_max_ms: int = _key(
        120_000,
        "Longest wait of a produce for its durability, whatever the client asks.",
        least=1,
    )
    group_initial_rebalance_delay_ms: int = _key(
        50,
        "How long the first member of an empty group waits for others to join in the same round.",
        most=_DAY_MS,
        kafka="group.initial.rebalance.delay.ms",
    )
    group_min_session_timeout_ms: int = _key(
        6_000,
        "Shortest session a member may ask for.",
        least=1,
        most=_DAY_MS,
        kafka="group.min.session.timeout.ms",
    )
    group_max_session_timeout_ms: int = _key(
        1_800_000,
        "Longest session a member may ask for; a rebalance waits no longer for anybody.",
        least=1,
        most=_DAY_MS,
        kafka="group.max.session.timeout.ms",
    )
    group_size_max: int = _key(
        10_000, "Most members of one group.", least=1, kafka="group.max.size"
    )
    group_consumer_session_timeout_ms: int = _key(
        45_000,
        "A member of the consumer protocol (KIP-848) that was not heard of for this long is gone.",
        least=1,
        most=_DAY_MS,
        kafka="group.consumer.session.timeout.ms",
    )
    group_consumer_heartbeat_interval_ms: int = _key(
        5_000,
        "How often such a member is told to be heard of; it learns no earlier of a new assignment.",
        least=1,
        most=_DAY_MS,
        kafka="group.consumer.heartbeat.interval.ms",
    )
    group_consumer_size_max: int = _key(
        10_000,
        "Most members of one group of the consumer protocol.",
        least=1,
        kafka="group.consumer.max.size",
    )
    groups_max: int = _key(100_000, "Most groups with members at once.", least=1)
    offsets_retention_minutes: int = _key(
        10_080,
        "Offsets of a group without members are forgotten this long after its last commit.",
        least=1,
        kafka="offsets.retention.minutes",
    )
    transaction_max_timeout_ms: int = _key(
        900_000,
        "Longest time that a transaction may ask to be open; a longer one is refused.",
        least=1,
        most=_DAY_MS,
        kafka="transaction.max.timeout.ms",
    )
    transactional_id_expiration_ms: int = _key(
        7 * _DAY_MS,
        "A transactional id that nothing happened to for this long is forgotten.",
        least=1,
        most=365 * _DAY_MS,
        kafka="transactional.id.expiration.ms",
    )
    transactional_ids_max: int = _key(
        100_000, "Most transactional ids at once; a further one is refused.", least=1
    )
    producer_id_expiration_ms: int = _key(
        _DAY_MS,
        "A partition forgets an idempotent producer this long after its last batch.",
        least=1,
        most=365 * _DAY_MS,
        kafka="producer.id.expiration.ms",
    )
    allow_anonymous_network: bool = _key(
        False,
        "Whether a listener without authentication may be on an address that other machines "
        "reach. Without it such a listener is an error at the start.",
    )
    authorizer: str = _key(
        "none",
        "Who may do what. none: everybody may do everything. acl: only what an access rule or "
        "super_users allows.",
        choices=("none", "acl"),
    )
    super_users: str = _key(
        "",
        "Principals that may do everything, separated by semicolons: User:admin;User:alice.",
        kafka="super.users",
    )
    allow_everyone_if_no_acl_found: bool = _key(
        False,
        "With authorizer = acl: whether a resource that no rule is about is open to everybody.",
        kafka="allow.everyone.if.no.acl.found",
    )
    audit_allowed: bool = _key(
        False, "With authorizer = acl: log what is allowed, too, not only what is denied."
    )
    audit_lines_max: int = _key(
        100,
        "Different decisions that the audit log tells per minute; the others are counted.",
        most=100_000,
    )
    quota_produce_bytes_per_second: int = _key(
        0,
        "Bytes of produce requests per second of each user from each address that no quota is set "
        "for (producer_byte_rate); beyond it the connection is not read for a while. 0: no limit.",
        most=1 << 40,
    )
    quota_consume_bytes_per_second: int = _key(
        0, "The same for bytes of records that are fetched (consumer_byte_rate).", most=1 << 40
    )
    quota_requests_per_second: int = _key(0, "The same for requests of any kind (request_rate).")
    lanes: int = _key(
        8, "Threads for cold reads, opening of partitions and administration.", least=1, most=256
    )
    flushers: int = _key(
        2,
        "Threads that sync segments of class disk and batches too large for the write-ahead log.",
        least=1,
        most=64,
    )
    wal_shards: int = _key(
        1,
        "Independent write-ahead logs, each with one thread that syncs; more help only where the "
        "disk syncs several files faster than one. May change between two starts.",
        least=1,
        most=64,
    )
    wal_file_bytes: int = _key(
        16 << 20,
        "Size of a file of the write-ahead log; written with zeros once, then used again and "
        "again. A batch that does not fit one is made durable by a sync of its segment.",
        least=1 << 16,
        most=1 << 30,
    )
    wal_bytes_max: int = _key(
        128 << 20,
        "Most bytes of all files of the write-ahead log; at half of a shard's part segments are "
        "synced so that its files can be used again, at all of it acknowledgements wait for that. "
        "At least two files for each shard.",
        least=1 << 17,
        most=1 << 40,
    )
    open_files_max: int = _key(1_000, "Segment files kept open at once.", least=16, most=1_000_000)
    housekeeping_interval_ms: int = _key(
        1_000, "Pause between two rounds of rolling by age and closing.", least=10, most=_DAY_MS
    )
    retention_interval_ms: int = _key(
        300_000,
        "Pause between two rounds of deleting by age (retention.ms); the first is so long after "
        "the start.",
        least=10,
        most=_DAY_MS,
        kafka="log.retention.check.interval.ms",
    )
    scrub_bytes_per_second: int = _key(
        4 << 20,
        "How fast sealed segments are read again to find damage before a reader does; 0 for not.",
        most=1 << 40,
    )
    scrub_interval_ms: int = _key(
        _DAY_MS,
        "Least time from the beginning of one pass over all segments to that of the next.",
        least=1_000,
        most=365 * _DAY_MS,
    )
    drain_timeout_ms: int = _key(
        10_000, "On SIGTERM: time for requests in flight to be answered.", least=0, most=_DAY_MS
    )
    log_level: str = _key(
        "info", "Least level that is logged.", choices=("debug", "info", "warning", "error")
    )
    log_format: str = _key(
        "auto",
        "console (for people), json (one object per line), or auto: console on a terminal.",
        choices=("auto", "console", "json"),
    )

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
        split_address(self.listen, key="listen")
        if self.advertised:
            split_address(self.advertised, key="advertised")
        try:
            parse_principals(self.super_users)
        except ValueError as exc:
            raise InvalidConfig(f"super_users: {exc}") from exc
        parse_overrides(self.connections_per_ip_overrides)
        specs = self.listener_specs
        check_exposure(
            specs, client_auth=self.ssl_client_auth, allowed=self.allow_anonymous_network
        )
        parse_mechanisms(self.sasl_mechanisms)
        if any(spec.protocol.is_tls for spec in specs) and not self.ssl_certificate:
            raise InvalidConfig(f"listeners = {self.listeners!r} needs ssl_certificate")
        if self.ssl_client_auth != "none" and not self.ssl_ca:
            raise InvalidConfig(f"ssl_client_auth = {self.ssl_client_auth!r} needs ssl_ca")
        if bool(self.initial_user) != bool(self.initial_password):
            raise InvalidConfig("initial_user and initial_password go together")
        object.__setattr__(self, "sources", MappingProxyType(dict(self.sources)))

    @property
    def listener_specs(self) -> tuple[ListenerSpec, ...]:
        """Where to listen, and what protects each."""
        listeners = self.listeners or f"PLAINTEXT://{self.listen}"
        advertised = self.advertised_listeners
        if self.advertised:
            if self.listeners:
                raise InvalidConfig(
                    "advertised is for listen; with listeners it is advertised_listeners"
                )
            advertised = advertised or f"PLAINTEXT://{self.advertised}"
        return parse_listeners(listeners, advertised, self.listener_security_protocol_map)

    def source(self, name: str) -> Source:
        """Where the value of a key came from."""
        return self.sources.get(name, "default")


def keys() -> Iterator[Field[Any]]:
    """The fields of BrokerConfig that are keys, in their documented order."""
    return (spec for spec in fields(BrokerConfig) if spec.name != "sources")


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
    known = {spec.name for spec in keys()}
    values: dict[str, object] = {}
    sources: dict[str, Source] = {}
    for source, layer in (
        ("file", _toml(toml_text)),
        ("environment", _environment(environment or {})),
        ("flag", {k: v for k, v in (flags or {}).items() if v is not None}),
    ):
        for name, value in layer.items():
            if name not in known:
                raise InvalidConfig(f"unknown key {name!r} (from the {source})")
            values[name] = value
            sources[name] = source  # type: ignore[assignment]
    return BrokerConfig(**values, sources=sources)  # type: ignore[arg-type]


def parse_value(spec: Field[Any], value: object) -> Value:
    """A value as its key's type, checked against its bounds.

    Raises:
        InvalidConfig: naming the key, the value and what is allowed.
    """
    assert spec.default is not MISSING, f"{spec.name} has no default"
    if isinstance(spec.default, bool):
        return _boolean(spec.name, value)
    if isinstance(spec.default, int):
        number = _number(spec.name, value)
        least, most = spec.metadata["least"], spec.metadata["most"]
        if not least <= number <= most:
            raise InvalidConfig(f"{spec.name} = {number} is outside [{least}, {most}]")
        return number
    if not isinstance(value, str):
        shown = "********" if spec.metadata["secret"] else repr(value)
        raise InvalidConfig(f"{spec.name} = {shown} is not text")
    choices = spec.metadata["choices"]
    if choices and value not in choices:
        raise InvalidConfig(f"{spec.name} = {value!r} is none of {', '.join(choices)}")
    return value


def _toml(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise InvalidConfig(f"the configuration file is not TOML: {exc}") from exc


def _environment(environment: Mapping[str, str]) -> dict[str, object]:
    return {
        name.removeprefix(ENV_PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(ENV_PREFIX) and name not in FOREIGN_VARIABLES
    }


def _boolean(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise InvalidConfig(f"{name} = {value!r} is neither true nor false")


def _number(name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = str(value).strip()
    factor = 1
    if "_bytes_" in name:
        for unit, size in _UNITS.items():
            if text.endswith(unit):
                text, factor = text.removesuffix(unit).strip(), size
                break
    try:
        return int(text) * factor
    except ValueError:
        raise InvalidConfig(f"{name} = {value!r} is not a whole number") from None
