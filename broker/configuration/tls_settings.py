"""What the TLS of a listener goes by: the files of its certificate, and whom it lets in.

Listeners whose settings are the same share one certificate in memory (peers/tls.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..address import InvalidConfig
from .listener_spec import ListenerSpec


@dataclass(frozen=True)
class TlsSettings:
    """`ssl_*` as they are in force on a listener; paths of PEM files, "" for none."""

    certificate: str
    key: str
    key_password: str = field(repr=False)
    ca: str
    client_auth: str
    version_min: str


def tls_settings(spec: ListenerSpec, of_listener: Callable[[str, str], Any]) -> TlsSettings:
    """Those of one listener.

    of_listener: what is in force by listener and key.

    Raises:
        InvalidConfig: one is missing that it cannot do without.
    """
    found = TlsSettings(
        certificate=of_listener(spec.name, "ssl_certificate"),
        key=of_listener(spec.name, "ssl_key"),
        key_password=of_listener(spec.name, "ssl_key_password"),
        ca=of_listener(spec.name, "ssl_ca"),
        client_auth=of_listener(spec.name, "ssl_client_auth"),
        version_min=of_listener(spec.name, "ssl_version_min"),
    )
    if not found.certificate:
        raise InvalidConfig(f"listener {spec} needs ssl_certificate")
    if found.client_auth != "none" and not found.ca:
        raise InvalidConfig(
            f"listener {spec}: ssl_client_auth = {found.client_auth!r} needs ssl_ca"
        )
    return found
