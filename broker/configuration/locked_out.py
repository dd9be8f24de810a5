"""What nobody can do at a broker that has just started: hardly ever meant, so its log tells.

| there is | and not | the log |
|---|---|---|
| a listener with logins, by passwords only | a user | `nobody_can_log_in` |
| an authorizer | a super user, a rule, or leave for what no rule is about | `nobody_is_allowed` |

Not refused: the first user, or rule, may come by another listener.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from segbroker.protocol.oauthbearer import OAUTHBEARER
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata import acls, credentials

from .config import BrokerConfig
from .listener_spec import SecurityProtocol


class LockedOut(NamedTuple):
    """An event of the log, and what to do."""

    event: str
    advice: str


def locked_out(
    manager: DiskManager, config: BrokerConfig, protocols: Iterable[SecurityProtocol]
) -> Iterator[LockedOut]:
    """What to tell; protocols: of the listeners."""
    users = credentials.names_of(manager.section(credentials.SECTION) or {})
    by_token = any(
        OAUTHBEARER in config.mechanisms_of(spec)
        for spec in config.listener_specs
        if spec.protocol.is_sasl
    )
    if any(protocol.is_sasl for protocol in protocols) and not users and not by_token:
        yield LockedOut(
            "nobody_can_log_in",
            "there is no user: stop, and `segbroker user add NAME --data-dir DIR`, or start with "
            "initial_user and initial_password",
        )
    is_open = config.super_users or config.allow_everyone_if_no_acl_found
    if (
        config.authorizer == "acl"
        and not is_open
        and not acls.acls_of(manager.section(acls.SECTION))
    ):
        yield LockedOut(
            "nobody_is_allowed",
            "there is no rule, and nobody who may make the first: start with super_users",
        )
