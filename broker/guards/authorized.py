"""What each request needs to be allowed, and what is answered when it is not.

    request -> guard: takes out what is refused        -> handler -> amend: puts the refusals back
                      nothing is left to do, or all or nothing is asked -> the whole answer

A guard stands in front of a handler, so no handler knows of rules.  The exceptions are produce,
fetch and metadata: they ask row by row in their own loops, since a batch must be refused without
being taken out of its request, and a topic is created on being asked for.

What is refused is answered as if it were not there to be known: the code is the same whether a
topic exists or not, and what is only listed is left out.  No refusal has the name of a topic that
was asked for by its id.

| api | needs | else |
|---|---|---|
| Produce; transactional | WRITE topic; WRITE transactional id | 29; 53 |
| Fetch; as a follower | READ topic; CLUSTER_ACTION cluster | 29 |
| Metadata | DESCRIBE topic; to create by asking, CREATE cluster or topic | 29; left out of "all" |
| the rest | guards_*.py: topics, groups, share groups, transactions, cluster, vendor | |

An api without a guard is refused by closing the connection: a new handler is not open to everybody
until somebody has thought of it (tests look for that, too).
"""

from typing import Any, Final

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.schema import Message

from ..access.authorizer import TOPIC, TRANSACTIONAL_ID, WRITE, Authorizer
from ..call import Call
from ..core import Core
from ..peers.peer import Peer
from ..refused import Refused
from . import (
    guards_cluster,
    guards_groups,
    guards_share_groups,
    guards_streams_groups,
    guards_topics,
    guards_transactions,
)
from .guarding import TOPIC_REFUSED, Amend, Guard

# Served to everybody, or asked about in their own loops.
OPEN: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.METADATA,
    }
)

GUARDS: Final[dict[int, Guard]] = {
    **guards_topics.GUARDS,
    **guards_groups.GUARDS,
    **guards_share_groups.GUARDS,
    **guards_streams_groups.GUARDS,
    **guards_transactions.GUARDS,
    **guards_cluster.GUARDS,
}


class Unguarded(Exception):
    """An api of which nobody has said who may use it; the connection is closed."""


def guard(core: Core, call: Call[Any]) -> Message | Amend | None:
    """Look at one request before its handler does: what is refused of it is taken out.

    Returns the whole answer where nothing is left to handle; else what is to be done with the
    answer of the handler, or None. From any thread.

    Raises:
        Unguarded: there is no rule for this api.
    """
    assert core.authorizer is not None, "somebody asked because there is one"
    key = call.header.api_key
    if (found := GUARDS.get(key)) is not None:
        return found(core, core.authorizer, call)
    if key in OPEN:
        return None
    raise Unguarded(f"api key {key} has no rule")


def check_write(
    authorizer: Authorizer, peer: Peer, topic: str, transactional_id: str | None = None
) -> None:
    """Raise Refused unless `peer` may produce to `topic`, in this transaction if it names one."""
    if transactional_id is not None and not authorizer.allows(
        peer, WRITE, TRANSACTIONAL_ID, transactional_id
    ):
        raise Refused(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"not allowed to use transactional id {transactional_id!r}",
        )
    if not authorizer.allows(peer, WRITE, TOPIC, topic):
        raise Refused(TOPIC_REFUSED, TOPIC_REFUSED.description)


def may_write(core: Core, peer: Peer, topic: str) -> bool:
    """Whether `peer` may produce to `topic`; nothing is told of a no: `check_write` comes after."""
    return core.authorizer is None or core.authorizer.would_allow(peer, WRITE, TOPIC, topic)
