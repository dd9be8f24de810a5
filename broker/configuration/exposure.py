"""Whether a listener lets strangers in: refused at the start, unless asked for in words.

    bound to loopback                                    fine: whoever is there is on this machine
    SASL_PLAINTEXT, SASL_SSL                             fine: clients log in
    SSL with ssl_client_auth = required                  fine: clients show a certificate
    anything else, on an address that others reach       refused, unless allow_anonymous_network

Each listener is judged by what is in force on it.  The metrics page asks nobody who he is: it is
judged like a listener without login.

Why a refusal: a broker that was moved from 127.0.0.1 to 0.0.0.0 "to make it work" is open to
everybody who can reach the machine, and nobody notices.
"""

import ipaddress
from collections.abc import Callable, Iterable
from typing import Any

from ..address import InvalidConfig, join_address
from .listener_keys import own_name
from .listener_spec import ListenerSpec, SecurityProtocol

LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost", "localhost.localdomain"})


def check_exposure(specs: Iterable[ListenerSpec], of_listener: Callable[[str, str], Any]) -> None:
    """Raise InvalidConfig for a listener that strangers can reach and that asks nobody who it is.

    of_listener: what is in force by listener and key.
    """
    for spec in specs:
        if is_loopback(spec.host) or spec.protocol.is_sasl:
            continue
        if of_listener(spec.name, "allow_anonymous_network"):
            continue
        if spec.protocol is SecurityProtocol.SSL and (
            of_listener(spec.name, "ssl_client_auth") == "required"
        ):
            continue
        named = spec.name != spec.protocol.value
        word = (
            own_name(spec.name, "allow_anonymous_network") if named else "allow_anonymous_network"
        )
        raise InvalidConfig(
            f"{spec.protocol.value} listener on {join_address(spec.host, spec.port)}"
            f"{f' ({spec.name})' if named else ''}: everybody "
            "who reaches this address could read and write everything. Let clients log in "
            "(listeners = SASL_SSL://..., or SASL_PLAINTEXT:// inside of a network that is "
            f"trusted), listen on 127.0.0.1, or allow it: {word} = true"
        )


def check_metrics_exposure(host: str, port: int) -> None:
    """Raise InvalidConfig for an address of the metrics page that strangers can reach."""
    if not is_loopback(host):
        raise InvalidConfig(
            f"metrics_listen on {join_address(host, port)}: everybody who reaches this address "
            "could read the names of all topics and groups, and how much they are used. Listen on "
            "127.0.0.1, or allow it: allow_anonymous_network = true"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it; a name that is not known here may be reached."""
    if host.lower() in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
