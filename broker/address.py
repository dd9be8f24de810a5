"""Addresses as people write them: `host:port`, `[v6]:port`.

One client has one spelling: who comes by IPv4 to a listener on [::] is `10.0.0.1`, not
`::ffff:10.0.0.1`; or a rule or a limit for its address would not be about it.
"""

import socket
from ipaddress import IPv6Address, ip_address
from typing import Final

_PORT_MAX: Final = 65_535
_NETWORK_SIZE: Final = 8
"""Bytes of an IPv6 address that name its network."""
_MAPPED: Final = "::ffff:"
_IN_NO_HOST: Final = frozenset("*/@ \t\r\n")
_EVERY: Final = "0.0.0.0"
_EVERY_OF_BOTH: Final = "::"
_THIS_MACHINE: Final = frozenset({"localhost", "localhost.localdomain"})


class InvalidConfig(ValueError):
    """A key that does not exist, or a value that its key does not allow; the message names both."""


def split_address(address: str, *, key: str = "address") -> tuple[str, int]:
    """("host", port) of `host:port` or `[v6]:port`.

    Raises:
        InvalidConfig: naming the key and the text.
    """
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    well_formed = colon and bare and port.isascii() and port.isdigit()
    if bare == "*":  # the resolver knows it, clients that are told it do not
        raise InvalidConfig(f"{key} = {address!r}: every address is 0.0.0.0, or [::]")
    if (
        not well_formed
        or int(port) > _PORT_MAX
        or (":" in bare and not bracketed)
        or not _IN_NO_HOST.isdisjoint(bare)
    ):
        raise InvalidConfig(f"{key} = {address!r} is not host:port")
    return bare, int(port)


def join_address(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def plain_host(host: str) -> str:
    """The address of a socket in its one spelling."""
    rest = host[len(_MAPPED) :]
    return rest if host.startswith(_MAPPED) and "." in rest else host


def origin(host: str) -> str:
    """Where the address of a socket, in its one spelling, comes from: itself, or of IPv6 its
    network of 64 bits.  Who has one address of that has all of them."""
    if ":" not in host:
        return host
    return socket.inet_pton(socket.AF_INET6, host.partition("%")[0])[:_NETWORK_SIZE].hex()


def is_address(text: str) -> bool:
    """Whether it is an IPv4 or IPv6 address, not a name."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def canonical_host(text: str) -> str:
    """An address as a socket spells it, without the zone of a link-local one; what is no address
    stays as it is."""
    try:
        address = ip_address(text)
    except ValueError:
        return text
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address).partition("%")[0]


def overlap(one: tuple[str, int], other: tuple[str, int]) -> bool:
    """Whether two sockets cannot listen at these: a client of one could be meant for the other.

    A name is not looked up: it counts as an IPv4 address, which is what is taken of it first.
    """
    hosts = {_listened_at(one[0]), _listened_at(other[0])}
    if one[1] != other[1] or not one[1]:
        return False
    if len(hosts) == 1 or _EVERY_OF_BOTH in hosts:
        return True
    return _EVERY in hosts and not any(":" in host for host in hosts)


def _listened_at(host: str) -> str:
    name, *zone = host.lower().partition("%")
    return "127.0.0.1" if name in _THIS_MACHINE else canonical_host(name) + "".join(zone)
