"""What an admin client asks about users, as calls (see engine).

A password does not leave the client: the broker gets a fresh salt and the password salted with it,
for SCRAM-SHA-256 and SCRAM-SHA-512, so that any mechanism works afterwards, PLAIN included.
"""

import secrets
from collections.abc import Mapping
from typing import NamedTuple

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestDeletion,
    AlterUserScramCredentialsRequestUpsertion,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequestUser,
    DescribeUserScramCredentialsResponse,
)
from segbroker.protocol.sasl import check_password, check_user_name
from segbroker.protocol.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_SIZE,
    ScramMechanism,
    salted_password,
)

from .asking import change, look, refused
from .engine import CONTROLLER, Call, Engine
from .errors import DuplicateResource, broker_error, check_code


class User(NamedTuple):
    """A user, and the iterations of its password by mechanism (`SCRAM-SHA-256`)."""

    name: str
    iterations: Mapping[str, int]


def list_users(engine: Engine, names: list[str] | None) -> Call[list[User]]:
    """The users of these names that there are; None: all."""
    asked = (
        None
        if names is None
        else [DescribeUserScramCredentialsRequestUser(name=name) for name in names]
    )
    request = DescribeUserScramCredentialsRequest(users=asked)

    def check(reply: DescribeUserScramCredentialsResponse) -> None:
        check_code(reply.error_code, "users", reply.error_message)
        for row in reply.results:
            if row.error_code != ErrorCode.RESOURCE_NOT_FOUND:
                check_code(row.error_code, f"user {row.user!r}", row.error_message)

    kind = DescribeUserScramCredentialsResponse
    reply = yield from look(engine, request, kind, check, to=CONTROLLER)
    found = []
    for row in reply.results:
        if row.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        iterations = {
            ScramMechanism(one.mechanism).label: one.iterations for one in row.credential_infos
        }
        found.append(User(row.user, iterations))
    return found


def set_password(engine: Engine, name: str, password: str, iterations: int) -> Call[None]:
    """Set a password; makes the user if need be. ValueError for what cannot be one."""
    if not isinstance(password, str):
        raise TypeError(f"a password is a str, not a {type(password).__name__}")
    check_user_name(name)
    check_password(password)
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError(
            f"iterations={iterations} is not between {ITERATIONS_MIN} and {ITERATIONS_MAX}"
        )
    upsertions = []
    for mechanism in ScramMechanism:
        salt = secrets.token_bytes(SALT_SIZE)
        upsertions.append(
            AlterUserScramCredentialsRequestUpsertion(
                name=name,
                mechanism=mechanism,
                iterations=iterations,
                salt=salt,
                salted_password=salted_password(mechanism, password, salt, iterations),
            )
        )
    yield from _alter(engine, [], upsertions)


def delete_user(engine: Engine, name: str) -> Call[None]:
    """Delete a user with all its passwords.  Raises ResourceNotFound."""
    known = yield from list_users(engine, [name])
    if not known:
        code = ErrorCode.RESOURCE_NOT_FOUND
        raise broker_error(code, f"user {name!r}", "there is no such user")
    labels = known[0].iterations
    deletions = [
        AlterUserScramCredentialsRequestDeletion(name=name, mechanism=mechanism)
        for mechanism in ScramMechanism
        if mechanism.label in labels
    ]
    yield from _alter(engine, deletions, [])


def _alter(
    engine: Engine,
    deletions: list[AlterUserScramCredentialsRequestDeletion],
    upsertions: list[AlterUserScramCredentialsRequestUpsertion],
) -> Call[None]:
    """Change what a user has of both mechanisms: together, or not at all.

    An Apache Kafka takes a user once in a request, and refuses all of it otherwise: there one
    mechanism is changed after the other.
    """
    try:
        yield from _ask(engine, deletions, upsertions)
    except DuplicateResource:
        for deletion in deletions:
            yield from _ask(engine, [deletion], [])
        for upsertion in upsertions:
            yield from _ask(engine, [], [upsertion])


def _ask(
    engine: Engine,
    deletions: list[AlterUserScramCredentialsRequestDeletion],
    upsertions: list[AlterUserScramCredentialsRequestUpsertion],
) -> Call[None]:
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
    names = [row.name for row in deletions] + [row.name for row in upsertions]
    for name in names[:1]:  # all are of one user
        check = refused(f"user {name!r}")
        yield from change(engine, request, AlterUserScramCredentialsResponse, check)
