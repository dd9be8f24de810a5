"""What can be set on a client, with its default, its unit, and what its value may be.

The public constructors take these as keyword arguments; here they are checked once, and a wrong
one is refused with its name and value before anything is opened.

Every wait of the client has its end here:

    connect_timeout_ms    entering the `with` block: until one broker was reached
    accept_timeout_ms     ... until one accepted a connection, where that is to be shorter
    request_timeout_ms    one request on one connection: then the connection is given up
    api_timeout_ms        one call, all its retries included; where it asks in pieces, each piece
    delivery_timeout_ms   one record, from send() to acknowledged or failed
"""

import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from ipaddress import IPv6Address
from typing import Any, Literal, TypedDict, get_args

from segbroker.protocol.compression import Codec
from segbroker.protocol.limits import FRAME_SIZE_MAX

from .errors import TlsFailed
from .other_names import check_names
from .records import check_text
from .security import Security

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_PORT = 9092
BOOTSTRAP_COUNT_MAX = 64

KIB = 1 << 10
MIB = 1 << 20

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Acks = Literal["all", 0, 1, -1]
Isolation = Literal["read_committed", "read_uncommitted"]
OnReset = Literal["error", "start", "end"]
OnGap = Literal["raise", "yield", "skip"]

GroupProtocol = Literal["classic", "consumer"]
Acquire = Literal["batches", "records"]
CHOICES = {
    "acquire": get_args(Acquire),
    "group_protocol": get_args(GroupProtocol),
    "isolation": get_args(Isolation),
    "on_gap": get_args(OnGap),
    "on_reset": get_args(OnReset),
}
# In order of liking; a group takes one that all of its members have.
ASSIGNOR_NAMES = ("cooperative-sticky", "range", "roundrobin", "sticky")

Address = tuple[str, int]


def parse_bootstrap(bootstrap: str | Iterable[str]) -> tuple[Address, ...]:
    """`"host:port,host:port"` (or a list of such) as addresses.

    The port may be left out with its colon (9092; what ends in one has lost a port, as in a
    script without its variable); an IPv6 address with a port is written `[::1]:9092`.
    """
    if isinstance(bootstrap, Mapping):
        raise TypeError(
            "bootstrap is a dict; the address comes first, then options by name:"
            " ('host:9092', client_id='me'), for example"
        )
    if isinstance(bootstrap, str):
        parts = bootstrap.split(",")
    elif isinstance(bootstrap, Iterable):
        parts = list(bootstrap)
    else:
        parts = [bootstrap]
    if not all(isinstance(part, str) for part in parts):
        raise TypeError(f'bootstrap={bootstrap!r} is not "host:port,host:port", or a list of such')
    addresses = tuple(_parse_address(part.strip()) for part in parts if part.strip())
    if not 1 <= len(addresses) <= BOOTSTRAP_COUNT_MAX:
        raise ValueError(
            f"bootstrap={bootstrap!r} names {len(addresses)} brokers,"
            f" not between 1 and {BOOTSTRAP_COUNT_MAX}"
        )
    return addresses


def _parse_address(text: str) -> Address:
    if "://" in text:
        raise ValueError(f"bootstrap address {text!r} is a URL, not host:port")
    port: str | None = None
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"bootstrap address {text!r} is not [host]:port")
        port = rest[1:] if rest else None
    elif text.count(":") > 1:
        host = text
    else:
        host, colon, rest = text.partition(":")
        port = rest if colon else None
    if not _may_be_host(host):
        raise ValueError(f"bootstrap address {text!r}: {host!r} is no host")
    if port is None:
        return host, DEFAULT_PORT
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"bootstrap address {text!r}: port {port!r} is not in 1 .. 65535")
    return host, int(port)


def _may_be_host(host: str) -> bool:
    """Whether it can be a name or an address; that somebody has it is for the resolver to say."""
    if ":" not in host:
        return bool(host) and host.isprintable() and " " not in host
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings whose values have to be of the kind that their names end with, or of CHOICES."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_id"):
                _check_text(field.name, value)
            if field.name in CHOICES and value not in CHOICES[field.name]:
                *most, last = map(repr, CHOICES[field.name])
                raise ValueError(f"{field.name}={value!r} is not {', '.join(most)} or {last}")
            if field.name.endswith(("_ms", "_bytes", "_count")):
                least = 0 if field.name in MAY_BE_ZERO else 1
                if value is None and field.name in MAY_BE_NONE:
                    continue
                if not isinstance(value, int) or value < least:
                    raise ValueError(f"{field.name}={value!r} is not a whole number >= {least}")
                _check_fits(field.name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(Settings):
    """What every client has.  Times in milliseconds, sizes in bytes."""

    bootstrap: tuple[Address, ...]
    client_id: str = "segbroker-python"
    security: Security | None = None
    connect_timeout_ms: int = 10_000
    accept_timeout_ms: int | None = None
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    metadata_max_age_ms: int = 60_000
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 2_000

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        if not isinstance(self.security, Security | None):
            raise TypeError(
                f"security is a {type(self.security).__name__}, not a Security; Kafka's names"
                " go through Security.from_properties"
            )


def _check_text(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}, not a str")
    check_text(name, value)


def _check_fits(name: str, value: int) -> None:
    """Requests carry these as they are, in 32 bits."""
    if name in ON_WIRE and value > ON_WIRE_MAX:
        raise ValueError(f"{name}={value} is above {ON_WIRE_MAX}, what a request can say")


# Of few large batches the broker makes few large writes, into larger pages of its cache.
BATCH_BYTES = 512 * KIB

ON_WIRE = {
    "acquire_bytes",
    "acquire_count",
    "fetch_min_bytes",
    "fetch_partition_bytes",
    "fetch_wait_ms",
    "rebalance_timeout_ms",
    "request_timeout_ms",
    "session_timeout_ms",
    "transaction_timeout_ms",
}
ON_WIRE_MAX = (1 << 31) - 1
MAY_BE_NONE = {"accept_timeout_ms", "max_hold_ms", "max_poll_interval_ms"}
MAY_BE_ZERO = {
    "acknowledge_interval_ms",
    "fetch_wait_ms",
    "linger_ms",
    "max_hold_ms",
    "reconnect_backoff_ms",
    "retry_backoff_ms",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(Settings):
    """What a producer has besides.

    acks: who must have the record before it counts as delivered.  `"all"` and 1 both mean the
        durability class of the topic at segbroker; 0 means "handed to the socket", with offset -1.
    idempotent: the broker recognises a batch that is sent again, so that retries neither repeat
        nor reorder records.  Needs acks="all".
    """

    acks: int = -1
    idempotent: bool = True
    codec: Codec = Codec.NONE
    linger_ms: int = 5
    batch_bytes: int = BATCH_BYTES
    buffer_bytes: int = 32 * MIB
    request_bytes: int = 4 * MIB
    delivery_timeout_ms: int = 120_000
    in_flight_count: int = 5
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        if self.in_flight_count > 5:
            raise ValueError(
                f"in_flight_count={self.in_flight_count}: brokers recognise a repeated batch"
                " among the last 5 only"
            )
        if not self.batch_bytes <= self.buffer_bytes:
            raise ValueError(
                f"batch_bytes={self.batch_bytes} is larger than buffer_bytes={self.buffer_bytes}"
            )
        if self.request_bytes > FRAME_SIZE_MAX // 2:
            raise ValueError(f"request_bytes={self.request_bytes} > {FRAME_SIZE_MAX // 2}")
        if self.transactional_id is not None and not (self.transactional_id and self.idempotent):
            raise ValueError(
                f"transactional_id={self.transactional_id!r} needs a name, and idempotent=True"
            )
        if self.idempotent and self.acks != -1:
            raise ValueError(
                f'idempotent=True needs acks="all", not acks={self.acks}; say idempotent=False'
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(Settings):
    """What a consumer has besides.

    prefetch_bytes: how much may be held that the caller has not taken yet, all partitions together.
    fetch_partition_bytes: how much one fetch asks of one partition; a single larger batch comes
        whole all the same.
    fetch_wait_ms: how long the broker may hold a fetch that finds fewer than fetch_min_bytes; no
        longer than half of request_timeout_ms.
    """

    isolation: Isolation = "read_committed"
    on_reset: OnReset = "error"
    on_gap: OnGap = "raise"
    prefetch_bytes: int = 16 * MIB
    fetch_partition_bytes: int = 1 * MIB
    fetch_bytes: int = 8 * MIB
    fetch_min_bytes: int = 1
    fetch_wait_ms: int = 500

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        if self.fetch_bytes > FRAME_SIZE_MAX // 2:
            raise ValueError(f"fetch_bytes={self.fetch_bytes} > {FRAME_SIZE_MAX // 2}")

    @property
    def isolation_level(self) -> int:
        """As requests have it."""
        return 1 if self.isolation == "read_committed" else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings(Settings):
    """What a consumer in a group has besides.

    session_timeout_ms: who is not heard of for so long is dead to the group.
    heartbeat_interval_ms: how often it is heard of, and how soon it hears of a rebalance.
    rebalance_timeout_ms: how long the group waits for a member to join again; with strategies
        where all give up all first, half of that is for the caller to come to the next record.
    max_poll_interval_ms: who neither waits for records nor has asked for some for so long leaves,
        in a callback, too; None: never.
    group_protocol: "classic", where the members assign, or "consumer" (KIP-848), where the broker
        does, by its own session timeout and interval, and by group_remote_assignor; None: by its
        default.
    """

    group_id: str
    group_protocol: GroupProtocol = "classic"
    group_remote_assignor: str | None = None
    instance_id: str | None = None
    assignors: tuple[str, ...] = ASSIGNOR_NAMES
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 1_000
    rebalance_timeout_ms: int = 60_000
    max_poll_interval_ms: int | None = None
    auto_commit: bool = True
    commit_interval_ms: int = 5_000

    def __post_init__(self) -> None:
        if not isinstance(self.group_id, str) or not self.group_id:
            raise ValueError(f"group={self.group_id!r} is not the name of a group")
        _check_text("group", self.group_id)
        _check_text("group_remote_assignor", self.group_remote_assignor)
        Settings.__post_init__(self)
        unknown = [name for name in self.assignors if name not in ASSIGNOR_NAMES]
        if isinstance(self.assignors, str) or unknown or not self.assignors:
            raise ValueError(f"assignors={self.assignors!r} are not of {ASSIGNOR_NAMES}")
        if self.heartbeat_interval_ms * 2 > self.session_timeout_ms:
            raise ValueError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} is more than half of"
                f" session_timeout_ms={self.session_timeout_ms}"
            )


class ClientOptions(TypedDict, total=False):
    """What the constructors of all clients take besides `bootstrap`; see Producer."""

    client_id: str
    security: Security | None
    request_timeout_ms: int
    connect_timeout_ms: int
    accept_timeout_ms: int | None


class AdminOptions(ClientOptions, total=False):
    """What those take whose calls ask; see Admin."""

    api_timeout_ms: int


class GroupOptions(TypedDict, total=False):
    """What the consumers' constructors take besides `group`; see Consumer."""

    group_protocol: GroupProtocol
    group_remote_assignor: str | None
    instance_id: str | None
    assignors: Sequence[str]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int
    max_poll_interval_ms: int | None
    auto_commit: bool
    commit_interval_ms: int


class ProducerOptions(ClientOptions, total=False):
    """What the producers' constructors take besides `bootstrap`; see Producer."""

    acks: Acks
    idempotent: bool | None
    compression: Compression
    linger_ms: int
    batch_bytes: int
    buffer_bytes: int
    delivery_timeout_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int


# What the constructors of a consumer name one by one, besides their options.
_NAMED_BY_CONSUMER = frozenset(
    {"group", "on_assigned", "on_gap", "on_lost", "on_revoked", "pattern", "start", "stop_at_end"}
)


def split_options(
    bootstrap: str | Iterable[str], options: Mapping[str, Any]
) -> tuple[ClientSettings, dict[str, Any]]:
    """What every client has, and the rest."""
    common = {field.name for field in fields(ClientSettings)}
    of_client = {name: value for name, value in options.items() if name in common}
    rest = {name: value for name, value in options.items() if name not in common}
    return ClientSettings(bootstrap=parse_bootstrap(bootstrap), **of_client), rest


def admin_settings(bootstrap: str | Iterable[str], options: AdminOptions) -> ClientSettings:
    """The options, checked.  TypeError for one that does not exist, ValueError."""
    check_names("Admin", options, AdminOptions.__annotations__)
    client, _ = split_options(bootstrap, options)
    return client


def producer_settings(
    bootstrap: str | Iterable[str], options: ProducerOptions
) -> tuple[ClientSettings, ProducerSettings]:
    """The options, sorted and checked.  TypeError for one that does not exist, ValueError."""
    check_names("Producer", options, ProducerOptions.__annotations__)
    client, of_producer = split_options(bootstrap, options)
    acks = of_producer["acks"] = parse_acks(of_producer.pop("acks", "all"))
    if of_producer.get("idempotent") is None:
        of_producer["idempotent"] = acks == -1
    buffer_bytes = of_producer.get("buffer_bytes")
    if isinstance(buffer_bytes, int) and 0 < buffer_bytes < BATCH_BYTES:
        # Who wants a small buffer and says nothing of batches gets small ones.
        of_producer.setdefault("batch_bytes", buffer_bytes)
    of_producer["codec"] = parse_codec(of_producer.pop("compression", "none"))
    return client, ProducerSettings(**of_producer)


class ConsumerOptions(GroupOptions, AdminOptions, total=False):
    """What the consumers' constructors take besides topics, start and end; see Consumer."""

    isolation: Isolation
    on_reset: OnReset
    prefetch_bytes: int
    fetch_partition_bytes: int
    fetch_wait_ms: int
    fetch_min_bytes: int
    metadata_max_age_ms: int


def consumer_settings(
    bootstrap: str | Iterable[str], on_gap: OnGap, group: str | None, options: ConsumerOptions
) -> tuple[ClientSettings, ConsumerSettings, GroupSettings | None]:
    """The options, sorted and checked.  TypeError for one that does not exist, ValueError."""
    check_names("Consumer", options, ConsumerOptions.__annotations__, _NAMED_BY_CONSUMER)
    client, of_consumer = split_options(bootstrap, options)
    in_group = GroupOptions.__annotations__
    of_group = {name: of_consumer.pop(name) for name in options if name in in_group}
    if group is None and of_group:
        raise TypeError(f"{next(iter(of_group))}= is for a consumer with group=")
    _check_protocol(of_group)
    if not isinstance(of_group.get("assignors", ()), str):
        of_group["assignors"] = tuple(of_group.get("assignors", ASSIGNOR_NAMES))
    return (
        client,
        ConsumerSettings(on_gap=on_gap, **of_consumer),
        None if group is None else GroupSettings(group_id=group, **of_group),
    )


# What has no meaning by a protocol, and where that is said instead.
_NOT_BY_PROTOCOL: dict[str, dict[str, str]] = {
    "classic": {
        "group_remote_assignor": 'the members assign: assignors=, or group_protocol="consumer"'
    },
    "consumer": {
        "assignors": "the broker assigns: group_remote_assignor=",
        "heartbeat_interval_ms": "it is a setting of the group, consumer.heartbeat.interval.ms",
        "session_timeout_ms": "it is a setting of the group, consumer.session.timeout.ms",
    },
}


def _check_protocol(of_group: Mapping[str, Any]) -> None:
    """ValueError for an option that the protocol of the group has no use for, as in Kafka."""
    protocol = of_group.get("group_protocol", "classic")
    instead = _NOT_BY_PROTOCOL.get(protocol, {}) if isinstance(protocol, str) else {}
    for name, where in instead.items():
        if of_group.get(name) is not None:
            raise ValueError(f"{name}= has no effect with group_protocol={protocol!r}: {where}")


CODECS: dict[str, Codec] = {
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

ACKS: dict[str | int, int] = {"all": -1, -1: -1, 1: 1, 0: 0}


def parse_codec(compression: str) -> Codec:
    """The codec of a `compression=` argument."""
    if compression not in CODECS:
        raise ValueError(f"compression={compression!r} is not one of {', '.join(CODECS)}")
    return CODECS[compression]


def parse_acks(acks: str | int) -> int:
    """The wire's number for an `acks=` argument."""
    if acks not in ACKS:
        raise ValueError(f"acks={acks!r} is not 'all', 1 or 0")
    return ACKS[acks]


def joined(addresses: Sequence[Address]) -> str:
    """Addresses as a person writes them, for messages: an IPv6 address in brackets."""
    return ",".join(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses
    )


def tls_context(settings: ClientSettings) -> ssl.SSLContext | None:
    """What the connections of a client are protected with; None: nothing.

    Raises TlsFailed: a file is not there, or does not hold what it should.
    """
    security = settings.security
    if security is None or not security.tls:
        return None
    try:
        return security.context()
    except OSError as exc:
        files = (security.ca_file, security.cert_file, security.key_file)
        names = ", ".join(name for name in files if name)
        raise TlsFailed(f"the files for TLS cannot be used ({names}): {exc}") from exc


def said_of(client: object, settings: ClientSettings, state: str) -> str:
    """What repr() of a client says: `<Producer 127.0.0.1:9092, open>`."""
    return f"<{type(client).__name__} {joined(settings.bootstrap)}, {state}>"
