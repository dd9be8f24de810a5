"""Where to listen and what protects it, as `listeners` says it in Kafka's way.

    listeners                        INTERNAL://127.0.0.1:9092,SASL_SSL://0.0.0.0:9093
    advertised_listeners             SASL_SSL://broker.example.org:9093
    listener_security_protocol_map   INTERNAL:PLAINTEXT

| protocol       | TLS | who is there                                              |
|----------------|-----|-----------------------------------------------------------|
| PLAINTEXT      | no  | anonymous                                                 |
| SSL            | yes | the subject of its certificate, or anonymous              |
| SASL_PLAINTEXT | no  | a user; SCRAM hides the password, nothing hides the data  |
| SASL_SSL       | yes | a user                                                    |

A listener is named by its protocol unless the map says otherwise.  Names are unique; they are what
advertised_listeners refers to.
"""

from enum import Enum
from typing import Final, NamedTuple

from segbroker.protocol import oauthbearer, sasl, scram

from ..address import InvalidConfig, canonical_host, join_address, overlap, split_address

LISTENERS_MAX: Final = 64


class SecurityProtocol(Enum):
    """What protects a listener."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_tls(self) -> bool:
        """Whether connections begin with a TLS handshake."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def is_sasl(self) -> bool:
        """Whether clients log in before anything else."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class ListenerSpec(NamedTuple):
    """One listener as it is configured."""

    name: str
    protocol: SecurityProtocol
    host: str
    port: int
    # What its clients are told; None: the host above, see Listener.advertised.
    advertised: tuple[str, int] | None

    def __str__(self) -> str:
        protocol = self.protocol.value
        return self.name if self.name == protocol else f"{self.name} ({protocol})"


def parse_listeners(listeners: str, advertised: str, protocols: str) -> tuple[ListenerSpec, ...]:
    """The listeners of the three settings.

    Raises:
        InvalidConfig: naming the setting and the text.
    """
    by_name = _protocols(protocols)
    told = _addresses("advertised_listeners", advertised)
    for host, port in told.values():
        check_told("advertised_listeners", host, port)
    specs: list[ListenerSpec] = []
    for name, (host, port) in _addresses("listeners", listeners).items():
        for other in specs:
            if overlap((other.host, other.port), (host, port)):
                raise InvalidConfig(
                    f"listeners: {other.name!r} on {join_address(other.host, other.port)} and "
                    f"{name!r} on {join_address(host, port)} need different ports"
                )
        if name not in by_name:
            raise InvalidConfig(
                f"listeners: {name!r} is none of {', '.join(p.value for p in SecurityProtocol)} "
                "and not in listener_security_protocol_map"
            )
        specs.append(ListenerSpec(name, by_name[name], host, port, told.pop(name, None)))
    if told:
        raise InvalidConfig(f"advertised_listeners names {next(iter(told))!r}, listeners does not")
    if not 0 < len(specs) <= LISTENERS_MAX:
        raise InvalidConfig(f"listeners: {len(specs)}, allowed are 1 to {LISTENERS_MAX}")
    return tuple(specs)


def check_told(key: str, host: str, port: int) -> None:
    """Raises InvalidConfig where an address for clients is that of all addresses: to most of them
    it is their own machine."""
    if canonical_host(host) in ("0.0.0.0", "::"):
        raise InvalidConfig(
            f"{key}: no client can connect to {join_address(host, port)}; without it clients are "
            "told the address on which they reached the broker"
        )


def parse_mechanisms(text: str, key: str = "sasl_mechanisms") -> tuple[str, ...]:
    """The names in `sasl_mechanisms`, in its order.  key: what it is called in errors.

    Raises:
        InvalidConfig: one that does not exist, or none.
    """
    known = (sasl.PLAIN, *scram.MECHANISMS, oauthbearer.OAUTHBEARER)
    names = tuple(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))
    for name in names:
        if name not in known:
            raise InvalidConfig(f"{key}: {name!r} is none of {', '.join(known)}")
    if not names:
        raise InvalidConfig(f"{key} is empty")
    return names


def _protocols(text: str) -> dict[str, SecurityProtocol]:
    found = {protocol.value: protocol for protocol in SecurityProtocol}
    for item in text.split(","):
        if not item.strip():
            continue
        name, _, protocol = item.strip().partition(":")
        try:
            found[name] = SecurityProtocol(protocol)
        except ValueError:
            raise InvalidConfig(
                f"listener_security_protocol_map: {item.strip()!r} is not NAME:PROTOCOL"
            ) from None
    return found


def _addresses(key: str, text: str) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for item in text.split(","):
        if not item.strip():
            continue
        name, slashes, address = item.strip().partition("://")
        if not slashes or not name:
            raise InvalidConfig(f"{key}: {item.strip()!r} is not NAME://host:port")
        if name in found:
            raise InvalidConfig(f"{key}: {name!r} is there twice")
        if address.startswith(":"):  # Kafka: all addresses of the machine
            address = f"0.0.0.0{address}"
        found[name] = split_address(address, key=key)
    return found
