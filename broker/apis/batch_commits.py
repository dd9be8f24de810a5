"""Many transactions committed as one, together with the number of the batch that they are.

    executors      each writes its part in a transaction of its own and leaves it open
    driver         COMMIT_BATCH  query, batch, [transactional id, producer id, epoch] of each
    the broker     one durable event: all of these are committed, and `batch` is the query's last

    COMMIT_BATCH   {"query": str, "batch": int, "transactions":
                      [{"transactional_id": str, "producer_id": int, "producer_epoch": int}],
                    "prefix": str, or left out: what comes in front of each transactional id,
                    "ends_others": bool, or left out: what else `query/TASK/ATTEMPT` has open}
                   {"committed": bool, "repeated": bool}
    QUERY_STATE    {"query": str}
                   {"last_batch": int, or None: no batch of this query was committed}
    FORGET_TRANSACTIONS   {"transactional_ids": [str], "query": str, or None}
                   {"forgotten": int}

| `batch` | afterwards | answer |
|---|---|---|
| above the query's last | all are committed, others aborted | committed |
| ... and one of them is not open, or not its own | nothing has changed | an error: 47 to 49, 90 |
| at or below it | those that are still open are aborted | committed, repeated |

So a driver that did not hear the answer asks again, and one that runs a batch a second time writes
nothing twice.  Whoever prepared a transaction has to begin anew afterwards (InitProducerId): its
epoch has ended with it.  A transaction in which nothing was sent counts as open.

Others are the transactions of the query's attempts that came to nothing: of tasks that died or that
Spark ran twice, of a driver that is dead and had more tasks.  The names of tasks are the query's,
with two numbers behind it.  What is open there when a batch is committed is of this batch or of one
before it, as nobody writes the next one until this is durable: so the next one loses nothing by it,
whoever runs it.  Who may not end one of them commits nothing (53).

FORGET_TRANSACTIONS is for names under which nothing more is written: those of tasks whose work came
to nothing, and all of a write that is done and never comes again.  What they have open is aborted.
Otherwise a job that writes once, under names of its own, would leave its names here for a week.

Limits: TRANSACTIONS_MAX per request, QUERIES_MAX queries; a query is forgotten
`transactional_id_expiration_ms` after its last batch.
"""

from typing import Any, Final

from segbroker.protocol.errors import ErrorCode

from ..access.authorizer import TRANSACTIONAL_ID, WRITE
from ..core import Core
from ..peers.peer import Peer
from ..refused import Refused, invalid_request
from ..transactions.query_batches import Member, NotCommitted

TRANSACTIONS_MAX: Final = 10_000
QUERIES_MAX: Final = 10_000
NAME_SIZE_MAX: Final = 1_000
_INT64_MAX: Final = 2**63 - 1
_INT16_MAX: Final = 2**15 - 1


async def commit_batch(core: Core, peer: Peer, body: dict[str, Any]) -> dict[str, Any]:
    """Commit a batch, once."""
    query = _query(body)
    batch = body.get("batch")
    if type(batch) is not int or not 0 <= batch <= _INT64_MAX:
        raise invalid_request(f"batch = {batch!r} is not a number from 0 on")
    prefix = prefix_of(body)
    if prefix is None:
        raise invalid_request(f"prefix is not a text of {NAME_SIZE_MAX} characters at most")
    members = _members(prefix, body.get("transactions"))
    ends_others = body.get("ends_others", False)
    if type(ends_others) is not bool:
        raise invalid_request(f"ends_others = {ends_others!r} is no bool")
    if core.query_batches.last_batch(query) is None and (
        core.query_batches.queries_count() >= QUERIES_MAX
    ):
        raise Refused(ErrorCode.POLICY_VIOLATION, f"there are {QUERIES_MAX} queries already")

    def may_end(name: str) -> bool:
        authorizer = core.authorizer
        return authorizer is None or authorizer.allows(peer, WRITE, TRANSACTIONAL_ID, name)

    try:
        is_repeated = await core.query_batches.commit(
            query, batch, members, may_end=may_end if ends_others else None
        )
    except NotCommitted as exc:
        why = f"batch {batch} of {query!r} is not committed: {exc.name!r}"
        raise Refused(exc.code, why) from exc
    return {"committed": True, "repeated": is_repeated}


async def query_state(core: Core, peer: Peer, body: dict[str, Any]) -> dict[str, Any]:
    """The last batch that was committed."""
    return {"last_batch": core.query_batches.last_batch(_query(body))}


async def forget_transactions(core: Core, peer: Peer, body: dict[str, Any]) -> dict[str, Any]:
    """Forget names that nobody comes back to, and a query if one is named."""
    query = None if body.get("query") is None else _query(body)
    names = body.get("transactional_ids")
    if (
        not isinstance(names, list)
        or len(names) > TRANSACTIONS_MAX
        or not all(isinstance(name, str) for name in names)
    ):
        raise invalid_request(
            f"transactional_ids is not a list of {TRANSACTIONS_MAX} names at most"
        )
    code, forgotten = await core.query_batches.forget(names, query)
    if code:
        raise Refused(code, "the transactional ids are not forgotten")
    return {"forgotten": forgotten}


def _query(body: dict[str, Any]) -> str:
    query = body.get("query")
    if not isinstance(query, str) or not 0 < len(query) <= NAME_SIZE_MAX:
        raise invalid_request(f"query is not a name of 1 to {NAME_SIZE_MAX} characters")
    return query


def prefix_of(body: dict[str, Any]) -> str | None:
    """What the transactional ids of a COMMIT_BATCH begin with; None where it is none."""
    prefix = body.get("prefix", "")
    return prefix if isinstance(prefix, str) and len(prefix) <= NAME_SIZE_MAX else None


def _members(prefix: str, rows: object) -> list[Member]:
    if not isinstance(rows, list) or len(rows) > TRANSACTIONS_MAX:
        raise invalid_request(f"transactions is not a list of {TRANSACTIONS_MAX} at most")
    found: dict[str, Member] = {}
    for row in rows:
        match row:
            case {
                "transactional_id": str(name),
                "producer_id": int(producer_id),
                "producer_epoch": int(epoch),
            } if 0 <= producer_id <= _INT64_MAX and 0 <= epoch <= _INT16_MAX:
                found[name] = Member(prefix + name, producer_id, epoch)
            case _:
                raise invalid_request(f"{row!r} names no transaction")
    if len(found) < len(rows):
        raise invalid_request("a transactional id is named twice")
    return list(found.values())
