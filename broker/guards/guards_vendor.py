"""Guards of segbroker's own requests: see authorized.py.

| request | needs | else |
|---|---|---|
| SERVER_INFO | DESCRIBE cluster | CLUSTER_AUTHORIZATION_FAILED |
| PARTITION_STATISTICS | DESCRIBE topic | TOPIC_AUTHORIZATION_FAILED; left out of "all" |
| FLOORS | DESCRIBE topic | the same, in its rows |
| GAPS | DESCRIBE topic | the same |
| COMMIT_BATCH | WRITE of every transactional id that ends, and of the query as one | 53 |
| QUERY_STATE | DESCRIBE of the query as a transactional id | 53 |
| FORGET_TRANSACTIONS | WRITE of every transactional id, and of the query as one | 53 |
| any other | ALTER cluster | CLUSTER_AUTHORIZATION_FAILED |

A list that is longer than its handler takes is refused unseen: a million rows are not asked about
one by one on the loop.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from segbroker.protocol.vendor import VendorKey, error_reply

from ..access.authorizer import ALTER, DESCRIBE, TOPIC, TRANSACTIONAL_ID, WRITE, Authorizer
from ..apis.batch_commits import TRANSACTIONS_MAX, prefix_of
from ..apis.floors import PARTITIONS_MAX
from ..core import Core
from ..peers.peer import Peer
from ..refused import Refused, invalid_request
from .guarding import CLUSTER_REFUSED, TOPIC_REFUSED, TRANSACTIONAL_ID_REFUSED

STATISTICS_TOPICS_MAX: Final = 20_000
"""Topics that may be named in one PARTITION_STATISTICS."""

Body: TypeAlias = dict[str, Any]
Amend: TypeAlias = Callable[[Body], Body]
VendorGuard: TypeAlias = Callable[[Core, Authorizer, Peer, Body], Amend | None]


def guard_vendor(core: Core, peer: Peer, key: int, body: Body) -> Amend | None:
    """Look at one request before its handler does; what is done with the reply, or None.

    Raises:
        Refused: it is not handled at all.
    """
    if core.authorizer is None:
        return None
    found = GUARDS.get(key, _alters_cluster)
    return found(core, core.authorizer, peer, body)


def _needs_cluster(authorizer: Authorizer, peer: Peer, operation: int) -> None:
    if not authorizer.allows_cluster(peer, operation):
        raise Refused(CLUSTER_REFUSED, CLUSTER_REFUSED.description)


def _alters_cluster(core: Core, authorizer: Authorizer, peer: Peer, body: Body) -> None:
    _needs_cluster(authorizer, peer, ALTER)


def _server_info(core: Core, authorizer: Authorizer, peer: Peer, body: Body) -> None:
    _needs_cluster(authorizer, peer, DESCRIBE)


def _partition_statistics(core: Core, authorizer: Authorizer, peer: Peer, body: Body) -> None:
    names = body.get("topics")
    if names is None:
        body.setdefault("open", False)
        body["every"] = True
        body["topics"] = [
            name
            for name in sorted(core.topics.all)
            if authorizer.would_allow(peer, DESCRIBE, TOPIC, name)
        ]
    elif isinstance(names, list):
        if len(names) > STATISTICS_TOPICS_MAX:
            raise invalid_request(f"{len(names)} topics, limit {STATISTICS_TOPICS_MAX}")
        for name in names:
            _describes(authorizer, peer, name)


def _gaps(core: Core, authorizer: Authorizer, peer: Peer, body: Body) -> None:
    _describes(authorizer, peer, body.get("topic"))


def _describes(authorizer: Authorizer, peer: Peer, name: object) -> None:
    if not authorizer.allows(peer, DESCRIBE, TOPIC, str(name)):
        raise Refused(TOPIC_REFUSED, f"not allowed to describe {name!r}")


def _commit_batch(core: Core, authorizer: Authorizer, peer: Peer, body: Body) -> None:
    asked, prefix = body.get("transactions"), prefix_of(body)
    if not isinstance(asked, list) or len(asked) > TRANSACTIONS_MAX or prefix is None:
        asked = []  # refused by the handler
    names = [f"{prefix}{one.get('transactional_id')}" for one in asked if isinstance(one, dict)]
    for name in [body.get("query"), *names]:  # others that end: when they do
        _may_use(authorizer, peer, WRITE, name)


def _forget_transactions(core: Core, authorizer: Authorizer, peer: Peer, body: Body) -> None:
    names = body.get("transactional_ids")
    if not isinstance(names, list) or len(names) > TRANSACTIONS_MAX:
        names = []  # refused by the handler
    query = body.get("query")
    for name in [*([] if query is None else [query]), *names]:
        _may_use(authorizer, peer, WRITE, name)


def _query_state(core: Core, authorizer: Authorizer, peer: Peer, body: Body) -> None:
    _may_use(authorizer, peer, DESCRIBE, body.get("query"))


def _may_use(authorizer: Authorizer, peer: Peer, operation: int, name: object) -> None:
    if not authorizer.allows(peer, operation, TRANSACTIONAL_ID, str(name)):
        raise Refused(TRANSACTIONAL_ID_REFUSED, f"not allowed to use transactional id {name!r}")


def _floors(core: Core, authorizer: Authorizer, peer: Peer, body: Body) -> Amend | None:
    asked = body.get("partitions")
    if not isinstance(asked, list) or len(asked) > PARTITIONS_MAX:
        return None  # refused by the handler
    refused = {
        n: one
        for n, one in enumerate(asked)
        if isinstance(one, dict)
        and not authorizer.allows(peer, DESCRIBE, TOPIC, str(one.get("topic")))
    }
    if not refused:
        return None
    body["partitions"] = [one for n, one in enumerate(asked) if n not in refused]

    def amend(reply: Body) -> Body:
        if "partitions" not in reply:
            return reply
        rows = iter(reply["partitions"])
        answered = [
            {"topic": refused[n].get("topic"), "partition": refused[n].get("partition")}
            | error_reply(TOPIC_REFUSED)
            if n in refused
            else next(rows)
            for n in range(len(asked))
        ]
        return reply | {"partitions": answered}

    return amend


GUARDS: Final[dict[int, VendorGuard]] = {
    VendorKey.SERVER_INFO: _server_info,
    VendorKey.PARTITION_STATISTICS: _partition_statistics,
    VendorKey.FLOORS: _floors,
    VendorKey.GAPS: _gaps,
    VendorKey.COMMIT_BATCH: _commit_batch,
    VendorKey.QUERY_STATE: _query_state,
    VendorKey.FORGET_TRANSACTIONS: _forget_transactions,
}
