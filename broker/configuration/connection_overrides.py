"""`connections_per_ip_overrides`: how many connections some addresses may have.

A name is refused: connections come from addresses, so a limit of a name would be nobody's.
"""

from ..address import InvalidConfig, canonical_host, is_address


def parse_overrides(text: str) -> dict[str, int]:
    """`10.0.0.1:100,::1:5` as connections by address. Raises InvalidConfig."""
    found = {}
    for one in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = one.rpartition(":")
        if not colon or not host or not (count.isascii() and count.isdigit()):
            raise InvalidConfig(f"connections_per_ip_overrides: {one!r} is not address:count")
        address = canonical_host(host.strip("[]"))
        if not is_address(address):
            raise InvalidConfig(f"connections_per_ip_overrides: {host!r} is no address")
        found[address] = int(count)
    return found
