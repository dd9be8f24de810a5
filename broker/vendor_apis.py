"""segbroker's own requests: a msgpack map in, a msgpack map out, on the same port.

| api                  | asks                      | answers                                |
|----------------------|---------------------------|----------------------------------------|
| SERVER_INFO          | nothing                   | ids, limits, counters, scrub, cleaner  |
| PARTITION_STATISTICS | "topics": names, or none  | per partition: offsets, bytes, state;  |
|                      | "from": topic, partition  | "next": where to go on, or nil         |
| FLOORS, GAPS         | floors.py                 |                                        |
| COMMIT_BATCH, QUERY_STATE | batch_commits.py     |                                        |

Statistics of topics that are named open their partitions; those of all topics do not, a broker of
ten thousand idle partitions stays as it is: a partition that is not open is {"is_open": false}
with its number.  "open": true or false says otherwise.  A reply has PAGE_MAX partitions at most.

A reply that failed is {"error": {...}} (protocol.vendor); every reply has {"performance": {...}},
where its time went.  Unknown keys of a request are ignored, so that a newer client can talk to an
older broker.
"""

import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any, Final, TypeAlias

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import RequestHeader
from segbroker.protocol.vendor import VendorKey, error_reply, unpack
from segbroker.segments.handler import DiskHandler
from segbroker.segments.metadata import TopicMeta

from .batch_commits import commit_batch, query_state
from .config import join_address
from .core import Core
from .error_map import STORAGE_FAILURES, wire_error
from .floors import floors, gaps, partition_of, reason_word
from .guards_vendor import guard_vendor
from .pace import Pace
from .partition import Partition
from .peer import Peer
from .refused import Refused

RECOVERY_ROWS_MAX: Final = 200
"""Newest rows of the recovery report in one reply."""
READ_ONLY_MAX: Final = 200
"""Partitions that are read-only in one reply; how many there are is said in any case."""
PAGE_MAX: Final = 1_000
"""Partitions in one reply: they fit VENDOR_BODY_SIZE_MAX."""

Body: TypeAlias = dict[str, Any]
VendorAnswer: TypeAlias = Callable[[Core, Peer, Body], Awaitable[Body]]


async def vendor_reply(core: Core, peer: Peer, header: RequestHeader, frame: memoryview) -> Body:
    """The reply map of one request. Raises RemoteProtocolError when its body is no map."""
    began = time.perf_counter_ns()
    body = unpack(frame[header.body_position :])
    try:
        amend = guard_vendor(core, peer, header.api_key, body)
        reply = await ANSWERS[header.api_key](core, peer, body)
        if amend is not None:
            reply = amend(reply)
    except Refused as exc:
        reply = error_reply(exc.code, exc.message)
    except STORAGE_FAILURES as exc:
        reply = error_reply(*wire_error(exc))
    reply["performance"] = {"storage_us": (time.perf_counter_ns() - began) // 1000}
    return reply


async def server_info(core: Core, peer: Peer, body: Body) -> Body:
    """What this broker is and how it is doing."""
    config = core.config
    report = core.topics.manager.report
    return {
        "cluster_id": core.topics.manager.cluster_id,
        "broker_id": config.broker_id,
        "address": join_address(*core.advertised(peer)),
        "uptime_ms": core.now_ms() - core.started_ms,
        "topics": len(core.topics.all),
        "partitions": sum(meta.partitions for meta in core.topics.all.values()),
        "partitions_open": len(core.topics.served),
        "connections": core.open_connections(),
        "unsynced_bytes": core.ingest.unsynced_bytes,
        "unsynced_bytes_max": config.ingest_bytes_max,
        "ingest_stalls": core.ingest.stalls,
        "fetch_buffer_bytes": core.pool.lent_bytes,
        "fetch_buffers_taken_back": core.pool.taken_back,
        "fetch_buffer_bytes_max": config.fetch_buffer_bytes_max,
        "lanes_busy": core.lanes.busy,
        "counters": asdict(core.counters),
        "storage": asdict(core.topics.manager.statistics()),
        "read_only": list(islice(_read_only(core), READ_ONLY_MAX)),
        "wal": asdict(core.topics.manager.wal.statistics()),
        "recovery": {
            "counts": report.summary(),
            "rows": [row.as_map() for row in report.rows[-RECOVERY_ROWS_MAX:]],
        },
        "scrub": asdict(core.scrubber.statistics),
        "cleaner": asdict(core.cleaner.statistics),
    }


async def partition_statistics(core: Core, peer: Peer, body: Body) -> Body:
    """Offsets and sizes of partitions: of the topics named, or of all."""
    names = body.get("topics")
    opens = body.get("open", names is not None)
    every = names is None or bool(body.get("every"))
    if names is None:
        names = sorted(core.topics.all)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Refused(ErrorCode.INVALID_REQUEST, "topics is not a list of names")
    names = list(dict.fromkeys(names))
    first = 0
    if (begin := body.get("from")) is not None:
        topic, first = partition_of(begin)
        if first < 0 or not (every or topic in names):
            raise Refused(ErrorCode.INVALID_REQUEST, f"from: {begin!r} is in none of the topics")
        if topic not in names:  # deleted since the page before
            topic, first = min((name for name in names if name > topic), default=""), 0
        names = names[names.index(topic) :] if topic else []
    page: list[tuple[TopicMeta, range]] = []
    following, room = None, PAGE_MAX
    for name in names:
        meta = core.topics.get(name)
        if meta is None and every:
            continue  # deleted meanwhile
        if meta is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        if not room:
            following = {"topic": name, "partition": 0}
            break
        some = range(first, meta.partitions)[:room]
        page.append((meta, some))
        first, room = 0, room - len(some)
        if some and some.stop < meta.partitions:
            following = {"topic": name, "partition": some.stop}
            break
    if opens:
        await core.topics.open_all((meta.name, index) for meta, some in page for index in some)
    topics = {}
    pace = Pace()
    for meta, some in page:
        rows = []
        for index in some:
            rows.append(_partition(core, meta.name, index, opens=bool(opens)))
            await pace.step()
        topics[meta.name] = {
            "topic_id": meta.topic_id.bytes,
            "durability": meta.config.durability.value,
            "partitions": rows,
        }
    return {"topics": topics, "next": following}


def _read_only(core: Core) -> Iterator[Body]:
    """The partitions that take no writes, and why."""
    for (topic, index), partition in core.topics.served.items():
        if (why := partition.handler.read_only) is not None:
            yield {"topic": topic, "partition": index, "why": str(why)}


def _partition(core: Core, name: str, index: int, *, opens: bool) -> Body:
    if not opens and core.topics.served_partition(name, index) is None:
        return {"partition": index, "is_open": False}
    partition = core.topics.served_partition(name, index)
    if partition is None:
        return {"partition": index, **error_reply(*core.topics.why_unopened(name, index))}
    return _statistics(core, partition)


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
        "fetches_waiting": len(partition.fetches),
        "appends_waiting": partition.appends_waiting,
    }


ANSWERS: Final[dict[int, VendorAnswer]] = {
    VendorKey.SERVER_INFO: server_info,
    VendorKey.PARTITION_STATISTICS: partition_statistics,
    VendorKey.FLOORS: floors,
    VendorKey.GAPS: gaps,
    VendorKey.COMMIT_BATCH: commit_batch,
    VendorKey.QUERY_STATE: query_state,
}
