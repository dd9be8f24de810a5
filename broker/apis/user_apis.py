"""Users on the wire: DescribeUserScramCredentials, AlterUserScramCredentials.

A password never arrives here: who sets one sends the salt and the salted password, from which a
login cannot be made; what is kept is computed from it.  Changes are durable before they are
answered; a user of whom one row is wrong is left as it is.  Where ours say no more than Kafka's
sentences, these are Kafka's: clients hand them on.

| refused with             | when                                                     |
|--------------------------|----------------------------------------------------------|
| RESOURCE_NOT_FOUND       | described or deleted, and not there                      |
| DUPLICATE_RESOURCE       | named twice (for the same mechanism, when altered)       |
| UNACCEPTABLE_CREDENTIAL  | name, iterations, salt or salted password cannot be one  |
| UNSUPPORTED_SASL_MECHANISM | neither SHA-256 nor SHA-512                            |
| POLICY_VIOLATION         | USERS_MAX users are there                                |

Who is logged in stays so when its credentials go, until the session has to be renewed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import structlog

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestUpsertion,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResponseUser,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponseCredential,
    DescribeUserScramCredentialsResponseUser,
)
from segbroker.protocol.sasl import check_user_name
from segbroker.protocol.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_SIZE_MAX,
    ScramCredential,
    ScramMechanism,
    credential_of,
)
from segbroker.segments.metadata.credentials import (
    USER_SET,
    USER_UNSET,
    USERS_MAX,
    credentials_of,
    names_of,
    rows_of,
)

from ..call import Call
from ..core import Core
from ..error_map import STORAGE_FAILURES, wire_error
from ..loop.pace import Pace
from ..refused import Refused
from ..settling import Settling

log = structlog.get_logger()

STORED_MAX: Final = 1_000
"""Users that one sync is for."""

_ALTERED_TWICE: Final = "A user credential cannot be altered twice in the same request"
_DESCRIBED_TWICE: Final = (
    "Cannot describe SCRAM credentials for the same user twice in a single request: "
)
_NOT_DESCRIBED: Final = "Attempt to describe a user credential that does not exist: "
_NOT_DELETED: Final = "Attempt to delete a user credential that does not exist"


class _Change(NamedTuple):
    """What a request says of one user."""

    deletions: list[int]
    upsertions: list[AlterUserScramCredentialsRequestUpsertion]


class _Wanted(NamedTuple):
    """The same, found possible."""

    deleted: list[ScramMechanism]
    upserted: dict[ScramMechanism, ScramCredential]

    def is_there_after(self, known: Mapping[ScramMechanism, ScramCredential]) -> bool:
        """Whether there is such a user then."""
        return bool(self.upserted) or len(self.deleted) < len(known)


async def describe_user_scram_credentials(
    core: Core, call: Call[DescribeUserScramCredentialsRequest]
) -> DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations of users; salts and keys stay here."""
    content = core.authentication.content
    asked = call.request.users
    names = [one.name for one in asked] if asked else names_of(content)
    counts = Counter(names)
    results = []
    pace = Pace()
    for name in dict.fromkeys(names):
        await pace.step()
        known = credentials_of(content, name)
        row = DescribeUserScramCredentialsResponseUser(
            user=name,
            error_message=None,
            credential_infos=[
                DescribeUserScramCredentialsResponseCredential(
                    mechanism=mechanism, iterations=one.iterations
                )
                for mechanism, one in sorted(known.items())
            ],
        )
        if counts[name] > 1:
            row.error_code = ErrorCode.DUPLICATE_RESOURCE
            row.error_message = f"{_DESCRIBED_TWICE}{name}"
            row.credential_infos = []
        elif not known:
            row.error_code = ErrorCode.RESOURCE_NOT_FOUND
            row.error_message = f"{_NOT_DESCRIBED}{name}"
        results.append(row)
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


async def alter_user_scram_credentials(
    core: Core, call: Call[AlterUserScramCredentialsRequest]
) -> AlterUserScramCredentialsResponse:
    """Set and delete credentials: each user is right or wrong alone, all are stored together."""
    request = call.request
    changes: dict[str, _Change] = {}
    pace = Pace()
    for deletion in request.deletions:
        await pace.step()
        changes.setdefault(deletion.name, _Change([], [])).deletions.append(deletion.mechanism)
    for upsertion in request.upsertions:
        await pace.step()
        changes.setdefault(upsertion.name, _Change([], [])).upsertions.append(upsertion)
    async with core.authentication.changing:
        results = await _alter(core, changes, call.peer.asker)
    return AlterUserScramCredentialsResponse(results=results)


async def _alter(
    core: Core, changes: Mapping[str, _Change], asker: Mapping[str, str]
) -> list[AlterUserScramCredentialsResponseUser]:
    """For whoever holds `changing`: room for a user is room when it is stored."""
    pace = Pace()
    results = []
    settling = Settling(core)
    wanted: dict[str, _Wanted] = {}
    told: dict[str, AlterUserScramCredentialsResponseUser] = {}
    free = USERS_MAX - len(names_of(core.authentication.content))
    for name, change in changes.items():
        await pace.step()
        row = AlterUserScramCredentialsResponseUser(user=name, error_message=None)
        results.append(row)
        try:
            known = credentials_of(core.authentication.content, name)
            if any(mechanism not in known for mechanism in change.deletions):
                await settling.check()
            wanted[name] = one = _wanted(known, name, change, has_room=free > 0)
        except Refused as exc:
            row.error_code, row.error_message = exc.code, exc.message
        else:
            told[name] = row
            free += bool(known) - one.is_there_after(known)
    for kind, some in _in_events(wanted):
        try:
            await core.lanes.run(_store, core, kind, some, asker)
        except STORAGE_FAILURES as exc:
            for name in some:
                told[name].error_code, told[name].error_message = wire_error(exc)
    return results


def _wanted(
    known: Mapping[ScramMechanism, ScramCredential], name: str, change: _Change, *, has_room: bool
) -> _Wanted:
    """What is asked for a user that has what is `known`.  Raises Refused."""
    if not name:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanisms = [*change.deletions, *(one.mechanism for one in change.upsertions)]
    if len(set(mechanisms)) < len(mechanisms):
        raise Refused(ErrorCode.DUPLICATE_RESOURCE, _ALTERED_TWICE)
    wanted = _Wanted(
        [_mechanism(number) for number in change.deletions],
        {_mechanism(one.mechanism): _credential(one) for one in change.upsertions},
    )
    if any(mechanism not in known for mechanism in wanted.deleted):
        raise Refused(ErrorCode.RESOURCE_NOT_FOUND, _NOT_DELETED)
    if wanted.upserted and not known:
        try:
            check_user_name(name)
        except ValueError as exc:
            raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(exc)) from exc
        if not has_room:
            raise Refused(ErrorCode.POLICY_VIOLATION, f"there are {USERS_MAX} users already")
    return wanted


def _in_events(wanted: Mapping[str, _Wanted]) -> Iterator[tuple[str, Mapping[str, _Wanted]]]:
    """By the kind of their events, as many users as one sync is for: of those all are stored, or
    none."""
    of_kinds: dict[str, dict[str, _Wanted]] = {USER_SET: {}, USER_UNSET: {}}
    for name, one in wanted.items():
        of_kinds[USER_SET if one.upserted else USER_UNSET][name] = one
    for kind, of_kind in of_kinds.items():
        names = list(of_kind)
        for begin in range(0, len(names), STORED_MAX):
            yield kind, {name: of_kind[name] for name in names[begin : begin + STORED_MAX]}


def _store(core: Core, kind: str, wanted: Mapping[str, _Wanted], asker: Mapping[str, str]) -> None:
    """Store what is wanted, one event for each user, and a line for each.  For a lane.

    Raises StorageError: nothing of it is stored.
    """
    events: list[dict[str, object]] = []
    for name, one in wanted.items():
        gone = [int(mechanism) for mechanism in one.deleted]
        if kind == USER_UNSET:
            events.append({"name": name, "mechanisms": gone})
        else:  # one event: whatever is wanted of a user is there, or nothing of it
            more = {"gone": gone} if gone else {}
            events.append({"name": name, "rows": rows_of(one.upserted), **more})
    core.topics.manager.record_all_now(kind, events)
    for name, one in wanted.items():
        counts = {"set": len(one.upserted), "deleted": len(one.deleted)}
        log.info("user_altered", user=name, **counts, **asker)


def _mechanism(number: int) -> ScramMechanism:
    try:
        return ScramMechanism(number)
    except ValueError:
        raise Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism") from None


def _credential(one: AlterUserScramCredentialsRequestUpsertion) -> ScramCredential:
    mechanism = _mechanism(one.mechanism)
    if not ITERATIONS_MIN <= one.iterations <= ITERATIONS_MAX:
        raise Refused(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{one.iterations} iterations, allowed are {ITERATIONS_MIN} to {ITERATIONS_MAX}",
        )
    if not 0 < len(one.salt) <= SALT_SIZE_MAX:
        raise Refused(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"a salt of {len(one.salt)} bytes, allowed are 1 to {SALT_SIZE_MAX}",
        )
    if len(one.salted_password) != mechanism.digest_size:
        raise Refused(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"a salted password of {len(one.salted_password)} bytes for {mechanism.label}",
        )
    return credential_of(mechanism, one.salted_password, one.salt, one.iterations)
