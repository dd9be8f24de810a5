"""Floors and gaps: what a consumer asks when offsets are not records any more.

| api    | request                                            | reply                          |
|--------|----------------------------------------------------|--------------------------------|
| FLOORS | "partitions": [{"topic", "partition"}]             | one row each, in this order    |
| GAPS   | "topic", "partition", "from", "to" (none: the end) | "gaps", "next"                 |

A row of FLOORS: topic, partition, topic_id, evict_floor, evict_reason, log_start_offset,
high_watermark, leader_epoch; or `error`.  Who reads at p < log_start_offset has lost [p,
evict_floor), for that reason; what is left up to the log start was deleted on purpose.

The gaps of GAPS are half-open, in order and without overlap; with the records they account for
every offset from "from" up to "next", or up to "to" when that is none.  Reasons are the words of
`reason_word`, the same everywhere.
"""

from typing import Any, Final

from segbroker.protocol.record_batch import GapReason
from segbroker.protocol.vendor import error_reply
from segbroker.segments.log.accounting import Account

from ..core import Core
from ..loop.pace import Pace
from ..partitions.partition import Partition
from ..peers.peer import Peer
from ..refused import Refused, invalid_request

Body = dict[str, Any]
PARTITIONS_MAX: Final = 20_000


def reason_word(reason: GapReason | None) -> str | None:
    """A reason on the wire: ttl, cap, corruption, lost_tail, deleted; None for none."""
    return None if reason is None else reason.name.lower()


async def floors(core: Core, peer: Peer, body: Body) -> Body:
    """Where the partitions begin, and how much in front of that was lost."""
    asked = body.get("partitions")
    if not isinstance(asked, list) or len(asked) > PARTITIONS_MAX:
        raise invalid_request(f"partitions is no list of at most {PARTITIONS_MAX}")
    keys = [partition_of(one) for one in asked]
    await core.topics.open_all(keys)
    rows = []
    pace = Pace()
    for name, index in keys:
        rows.append(_floor_row(core, name, index))
        await pace.step()
    return {"partitions": rows}


async def gaps(core: Core, peer: Peer, body: Body) -> Body:
    """What became of the offsets [from, to) that are not records."""
    name, index = partition_of(body)
    begin, end = body.get("from", 0), body.get("to")
    if not _is_offset(begin) or not (end is None or _is_offset(end)):
        raise invalid_request(f"from = {begin!r}, to = {end!r}: no offsets")
    handler = (await _served(core, name, index)).handler
    # What readers may not see yet is not accounted for.
    end = handler.high_watermark if end is None else min(end, handler.high_watermark)
    found: Account = await core.lanes.run(handler.account, begin, end)
    return {
        "gaps": [
            {"from": one.begin, "to": one.end, "reason": reason_word(one.reason)}
            for one in found.missing
        ],
        "next": found.next,
    }


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def partition_of(one: object) -> tuple[str, int]:
    """topic and partition of a request. Raises Refused."""
    if isinstance(one, dict):
        name, index = one.get("topic"), one.get("partition")
        if isinstance(name, str) and isinstance(index, int) and not isinstance(index, bool):
            return name, index
    raise invalid_request(f"{one!r} has no topic and partition")


async def _served(core: Core, name: str, index: int) -> Partition:
    partition = await core.topics.open(name, index)
    if partition is None:
        raise Refused(*core.topics.why_unopened(name, index))
    return partition


def _floor_row(core: Core, name: str, index: int) -> Body:
    row: Body = {"topic": name, "partition": index}
    partition, meta = core.topics.served_partition(name, index), core.topics.get(name)
    if partition is None or meta is None:
        return row | error_reply(*core.topics.why_unopened(name, index))
    handler = partition.handler
    return row | {
        "topic_id": meta.topic_id.bytes,
        "evict_floor": handler.evict_floor,
        "evict_reason": reason_word(handler.evict_reason),
        "log_start_offset": handler.log_start_offset,
        "high_watermark": handler.high_watermark,
        "leader_epoch": handler.leader_epoch,
    }
