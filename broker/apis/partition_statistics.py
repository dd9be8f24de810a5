"""PARTITION_STATISTICS: offsets, bytes and state of partitions, a page at a time.

| asks       | is                                                                             |
|------------|--------------------------------------------------------------------------------|
| "topics"   | names; none: all there are                                                     |
| "open"     | whether partitions that are not open are opened; where topics are named: true  |
| "from"     | topic and partition to begin with: "next" of the page before                   |
| "every"    | "topics" are all that the asker may see: what is gone from them is passed over |

Statistics of all topics open nothing unless asked to, so a broker of ten thousand idle partitions
stays as it is: a partition that is not open is {"is_open": false} with its number.
"""

from typing import Any, Final, TypeAlias

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.vendor import error_reply
from segbroker.segments.metadata.metadata import TopicMeta
from segbroker.segments.partition.handler import DiskHandler

from ..core import Core
from ..loop.pace import Pace
from ..partitions.partition import Partition
from ..peers.peer import Peer
from ..refused import Refused, invalid_request
from .floors import partition_of, reason_word

PAGE_MAX: Final = 1_000
"""Partitions in one reply: they fit VENDOR_BODY_SIZE_MAX."""

Body: TypeAlias = dict[str, Any]


async def partition_statistics(core: Core, peer: Peer, body: Body) -> Body:
    """Offsets and sizes of partitions: of the topics named, or of all."""
    names = body.get("topics")
    opens = bool(body.get("open", names is not None))
    every = names is None or bool(body.get("every"))
    if names is None:
        names = sorted(core.topics.all)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise invalid_request("topics is not a list of names")
    names, first = _begin(list(dict.fromkeys(names)), body.get("from"), every=every)
    page, following = _page(core, names, first, every=every)
    if opens:
        await core.topics.open_all((meta.name, index) for meta, some in page for index in some)
    topics = {}
    pace = Pace()
    for meta, some in page:
        rows = []
        for index in some:
            rows.append(_row(core, meta.name, index, opens=opens))
            await pace.step()
        topics[meta.name] = {
            "topic_id": meta.topic_id.bytes,
            "durability": meta.config.durability.value,
            "partitions": rows,
        }
    return {"topics": topics, "next": following}


def _begin(names: list[str], begin: object, *, every: bool) -> tuple[list[str], int]:
    """The topics from `begin` on, and the partition of the first to begin at."""
    if begin is None:
        return names, 0
    topic, first = partition_of(begin)
    if first < 0 or not (every or topic in names):
        raise invalid_request(f"from: {begin!r} is in none of the topics")
    if topic in names:
        return names[names.index(topic) :], first
    return [name for name in names if name > topic], 0  # deleted since the page before


def _page(
    core: Core, names: list[str], first: int, *, every: bool
) -> tuple[list[tuple[TopicMeta, range]], Body | None]:
    """At most PAGE_MAX partitions by topic, and where the next page begins."""
    page: list[tuple[TopicMeta, range]] = []
    room = PAGE_MAX
    for name in names:
        meta = core.topics.get(name)
        if meta is None and every:  # deleted meanwhile
            first = 0
            continue
        if meta is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        if not room:
            return page, {"topic": name, "partition": 0}
        some = range(first, meta.partitions)[:room]
        page.append((meta, some))
        if some and some.stop < meta.partitions:
            return page, {"topic": name, "partition": some.stop}
        first, room = 0, room - len(some)
    return page, None


def _row(core: Core, name: str, index: int, *, opens: bool) -> Body:
    partition = core.topics.served_partition(name, index)
    if partition is not None:
        return _statistics(core, partition)
    if not opens:
        return {"partition": index, "is_open": False}
    return {"partition": index, **error_reply(*core.topics.why_unopened(name, index))}


def _cleaning(core: Core, handler: DiskHandler) -> Body:
    """How far a compacted partition is cleaned."""
    now_ms, compacting = core.now_ms(), handler.compacting
    dirt = compacting.dirt(now_ms, now_ms)
    return {
        "clean_offset": compacting.clean_offset,
        "cleaned_ms": compacting.cleaned_ms,
        "cleanings": compacting.cleanings_count,
        "cleanings_failed": compacting.failures_count,
        "clean_bytes": dirt.clean_bytes,
        "dirty_bytes": dirt.dirty_bytes,
        "dirty_ratio": round(dirt.ratio, 4),
    }


def _statistics(core: Core, partition: Partition) -> Body:
    handler = partition.handler
    return {
        **(_cleaning(core, handler) if handler.config.compacts else {}),
        "partition": partition.index,
        "is_open": True,
        "evict_floor": handler.evict_floor,
        "evict_reason": reason_word(handler.evict_reason),
        "log_start_offset": handler.log_start_offset,
        "high_watermark": handler.high_watermark,
        "log_end_offset": handler.log_end_offset,
        "leader_epoch": handler.leader_epoch,
        "records": handler.records_count,
        "size_bytes": handler.size_bytes,
        "segments": handler.segments_count,
        "repairs": handler.repairs_count,
        "scrubbed_ms": handler.scrubbed_ms,
        "read_only": None if handler.read_only is None else str(handler.read_only),
        "fetches_waiting": partition.fetches_waiting,
        "appends_waiting": partition.appends_waiting,
    }
