"""Credentials of users, kept as control events like all that is not a batch.

    section "users" of the snapshot:
        {"secret": bytes, "users": {name: {mechanism: [iterations, salt, stored key, server key]}}}

| event | fields | afterwards |
|---|---|---|
| user_set | name, rows [[mechanism, iterations, salt, stored key, server key]], gone | has these |
| user_unset | name, mechanisms, or null for all | has these no more; without any it is gone |
| users_secret | secret | from it made-up salts of users that do not exist are derived |

`gone` of user_set are mechanisms that the user has no more; it may be left out.  An older version
passes it over: a credential too many, not a user without any.

No password is kept, and none can be computed from what is: a credential checks one.  The secret
stays what it was first: a salt that changes would give away that its user does not exist.

Every function here is pure: what it was given stays as it is.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from segbroker.protocol.scram import ScramCredential, ScramMechanism

SECTION: Final = "users"
USER_SET: Final = "user_set"
USER_UNSET: Final = "user_unset"
USERS_SECRET: Final = "users_secret"

USERS_MAX: Final = 10_000
"""Users of one broker; more are refused."""

Content: TypeAlias = Mapping[str, Any]
Fields: TypeAlias = Mapping[str, Any]
Credentials: TypeAlias = Mapping[ScramMechanism, ScramCredential]


def names_of(content: Content) -> list[str]:
    """The users there are, sorted."""
    return sorted(content.get("users", {}))


def credentials_of(content: Content, name: str) -> dict[ScramMechanism, ScramCredential]:
    """What is kept of a user; empty: there is no such user."""
    found = {}
    for mechanism, row in content.get("users", {}).get(name, {}).items():
        iterations, salt, stored_key, server_key = row
        found[ScramMechanism(int(mechanism))] = ScramCredential(
            salt, iterations, stored_key, server_key
        )
    return found


def secret_of(content: Content) -> bytes | None:
    """The secret; None: it was not made yet."""
    found: bytes | None = content.get("secret")
    return found


def rows_of(credentials: Credentials) -> list[list[object]]:
    """Credentials as they stand in user_set."""
    return [
        [int(mechanism), one.iterations, one.salt, one.stored_key, one.server_key]
        for mechanism, one in credentials.items()
    ]


def users_set(content: Content | None, run: Iterable[Fields]) -> Content:
    """After user_set, any number of it."""
    content = content or {}
    users = dict(content.get("users", {}))
    for fields in run:
        # Keys of a map that is packed are text.
        rows = {str(mechanism): row for mechanism, *row in fields["rows"]}
        known = {**users.get(fields["name"], {}), **rows}
        for mechanism in fields.get("gone", ()):
            known.pop(str(mechanism), None)
        users[fields["name"]] = known
    return {**content, "users": users}


def users_unset(content: Content | None, run: Iterable[Fields]) -> Content:
    """After user_unset, any number of it."""
    content = content or {}
    users = dict(content.get("users", {}))
    for fields in run:
        gone = fields["mechanisms"]
        left = {
            mechanism: row
            for mechanism, row in users.pop(fields["name"], {}).items()
            if gone is not None and int(mechanism) not in gone
        }
        if left:
            users[fields["name"]] = left
    return {**content, "users": users}


def users_secret(content: Content | None, fields: Fields) -> Content:
    """After users_secret."""
    return {"secret": fields["secret"], **(content or {})}
