"""segbroker's own requests: a msgpack map in, a msgpack map out, on the same port.

| api                  | asks                      | answers                                |
|----------------------|---------------------------|----------------------------------------|
| SERVER_INFO          | nothing                   | ids, limits, counters, scrub, cleaner  |
| PARTITION_STATISTICS | partition_statistics.py   |                                        |
| FLOORS, GAPS         | floors.py                 |                                        |
| COMMIT_BATCH, QUERY_STATE, FORGET_TRANSACTIONS | batch_commits.py |                       |

A reply that failed is {"error": {...}} (protocol.vendor); every reply has {"performance": {...}},
where its time went.  Unknown keys of a request are ignored, so that a newer client can talk to an
older broker.
"""

import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any, Final, TypeAlias

from segbroker.protocol.headers import RequestHeader
from segbroker.protocol.limits import VENDOR_CONTAINERS_COUNT_MAX
from segbroker.protocol.vendor import VendorKey, error_reply, unpack

from .apis.batch_commits import commit_batch, forget_transactions, query_state
from .apis.floors import floors, gaps
from .apis.partition_statistics import partition_statistics
from .configuration.config import join_address
from .core import Core
from .error_map import STORAGE_FAILURES, wire_error
from .guards.guards_vendor import guard_vendor
from .loop.pace import Pace
from .peers.peer import Peer
from .readiness import why_volume_full
from .refused import Refused

RECOVERY_ROWS_MAX: Final = 200
"""Newest rows of the recovery report in one reply."""
READ_ONLY_MAX: Final = 200
"""Partitions that are read-only in one reply; how many there are is said in any case."""

LARGE_BYTES: Final = 16 << 10
"""A body up to this size is decoded on the loop, a larger one in a lane."""
ASKED_ABOUT_ALL: Final = frozenset({int(VendorKey.PARTITION_STATISTICS)})
"""Thousands of topics in any case, and the rights to each of them."""

Body: TypeAlias = dict[str, Any]
VendorAnswer: TypeAlias = Callable[[Core, Peer, Body], Awaitable[Body]]


async def vendor_reply(core: Core, peer: Peer, header: RequestHeader, frame: memoryview) -> Body:
    """The reply map of one request. Raises RemoteProtocolError when its body is no map."""
    began = time.perf_counter_ns()
    packed = frame[header.body_position :]
    opened = partial(unpack, packed, containers_max=VENDOR_CONTAINERS_COUNT_MAX)
    key, is_large = header.api_key, len(packed) > LARGE_BYTES
    body = await core.lanes.run(opened) if is_large else opened()
    try:
        guarded = partial(guard_vendor, core, peer, key, body)
        is_long = core.authorizer is not None and (is_large or key in ASKED_ABOUT_ALL)
        amend = await core.lanes.run(guarded) if is_long else guarded()
        reply = await ANSWERS[key](core, peer, body)
        if amend is not None:
            reply = await core.lanes.run(amend, reply) if is_long else amend(reply)
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
    count = core.topics.manager.statistics  # many partitions take the loop some milliseconds
    storage = await core.lanes.run(count) if core.lanes.why_stuck is None else count()
    return {
        "cluster_id": core.topics.manager.cluster_id,
        "broker_id": config.broker_id,
        "address": join_address(*core.advertised(peer)),
        "uptime_ms": int(core.uptime_s * 1000),
        "file_system": None if core.file_system is None else core.file_system._asdict(),
        "topics": storage.topics_count,
        "partitions": storage.partitions_count,
        "partitions_open": len(core.topics.served),
        "connections": core.open_connections(),
        "connections_max": core.descriptors.connections,
        "listeners": [
            {
                "name": one.name,
                "connections": one.connections,
                "connections_max": one.connections_max,
            }
            for one in core.listener_limits.gates.values()
        ],
        "certificates": [
            {
                "listeners": list(one.listeners),
                "valid_until_ms": one.valid_until_ms,
                "standing": str(one.standing),
                "why_not_reloaded": one.why_not_reloaded,
            }
            for one in core.certificates
        ],
        "signing_keys": None
        if (source := core.authentication.keys) is None
        else {"count": len(source.keys or ()), "why_not_read": source.error or None},
        "settings_left_out": [
            {"key": key, "value": value, "why": why} for key, value, why in core.settings.left_out
        ],
        "unsynced_bytes": core.ingest.unsynced_bytes,
        "unsynced_bytes_max": config.ingest_bytes_max,
        "ingest_stalls": core.ingest.stalls,
        "fetch_buffer_bytes": core.pool.lent_bytes,
        "fetch_buffers_taken_back": core.pool.taken_back,
        "fetch_buffer_bytes_max": config.fetch_buffer_bytes_max,
        "lanes_busy": core.lanes.busy,
        "counters": core.counters.told(),
        "storage": asdict(storage),
        "clock_held": None if (hold := core.topics.manager.clock_hold) is None else hold._asdict(),
        "volume_full": await why_volume_full(core),
        "metadata_unsettled": core.topics.manager.why_unsettled,
        "metadata_not_saved": core.topics.manager.why_not_saved,
        "read_only": await _told(_read_only(core)),
        "not_opened": await _told(_not_opened(core)),
        "wal": asdict(core.topics.manager.wal.statistics()),
        "failed_reads": {
            "count": core.failed_reads.count,
            "newest": None if (newest := core.failed_reads.newest) is None else newest._asdict(),
        },
        "recovery": {
            "counts": report.summary(),
            "rows": [row.as_map() for row in report.rows[-RECOVERY_ROWS_MAX:]],
        },
        "scrub": asdict(core.scrubber.statistics),
        "cleaner": asdict(core.cleaner.statistics),
    }


async def _told(looked: Iterator[Body | None]) -> list[Body]:
    """The first READ_ONLY_MAX of those that there is something to say of."""
    rows: list[Body] = []
    pace = Pace()
    for row in looked:
        if row is not None:
            rows.append(row)
        if len(rows) == READ_ONLY_MAX:
            break
        await pace.step()
    return rows


def _read_only(core: Core) -> Iterator[Body | None]:
    """Of each open partition why it takes no writes; None: it does.  Chores open some that nobody
    has asked for."""
    for handler in list(core.topics.manager.handlers.values()):
        if handler.read_only is None:
            yield None
            continue
        why = str(handler.read_only)
        if handler.why_still:
            why += f"; and it cannot be made writable: {handler.why_still}"
        yield {"topic": handler.topic, "partition": handler.partition, "why": why}


def _not_opened(core: Core) -> Iterator[Body | None]:
    """Of each partition that could not be opened why; None: it was since, or a chore did it."""
    for (topic, index), (_, why) in tuple(core.topics.unopened.items()):
        is_unserved = core.topics.is_unserved(topic, index)
        yield {"topic": topic, "partition": index, "why": why} if is_unserved else None


ANSWERS: Final[dict[int, VendorAnswer]] = {
    VendorKey.SERVER_INFO: server_info,
    VendorKey.PARTITION_STATISTICS: partition_statistics,
    VendorKey.FLOORS: floors,
    VendorKey.GAPS: gaps,
    VendorKey.COMMIT_BATCH: commit_batch,
    VendorKey.QUERY_STATE: query_state,
    VendorKey.FORGET_TRANSACTIONS: forget_transactions,
}
