"""Whether a listener lets strangers in: refused at the start, unless asked for in words.

    bound to loopback                                    fine: whoever is there is on this machine
    SASL_PLAINTEXT, SASL_SSL                             fine: clients log in
    SSL with ssl_client_auth = required                  fine: clients show a certificate
    anything else, on an address that others reach       refused, unless allow_anonymous_network

Why a refusal: a broker that was moved from 127.0.0.1 to 0.0.0.0 "to make it work" is open to
everybody who can reach the machine, and nobody notices.
"""

import ipaddress
from collections.abc import Iterable

from ..address import InvalidConfig, join_address
from .listener_spec import ListenerSpec, SecurityProtocol

LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost", "localhost.localdomain"})


def check_exposure(specs: Iterable[ListenerSpec], *, client_auth: str, allowed: bool) -> None:
    """Raise InvalidConfig for a listener that strangers can reach and that asks nobody who it is.

    client_auth: `ssl_client_auth`. allowed: `allow_anonymous_network`.
    """
    for spec in specs:
        if allowed or is_loopback(spec.host) or spec.protocol.is_sasl:
            continue
        if spec.protocol is SecurityProtocol.SSL and client_auth == "required":
            continue
        raise InvalidConfig(
            f"{spec.protocol.value} listener on {join_address(spec.host, spec.port)}: everybody "
            "who reaches this address could read and write everything. Let clients log in "
            "(listeners = SASL_SSL://..., or SASL_PLAINTEXT:// inside of a network that is "
            "trusted), listen on 127.0.0.1, or say that it is meant: allow_anonymous_network = true"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it; a name that is not known here may be reached."""
    if host.lower() in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
