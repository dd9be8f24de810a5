"""Planted bugs of share groups; see bugs.py."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from segbroker.broker.share_fetching import share_fetch
from segbroker.broker.shares.beginnings import Beginnings, Why
from segbroker.broker.shares.live_partition import Key
from segbroker.broker.shares.offset_reset import first_offsets
from segbroker.broker.shares.pieces import ACQUIRED, AVAILABLE, Change
from segbroker.broker.shares.share_partition import SharePartition
from segbroker.broker.shares.shares import Shares
from segbroker.client.share_lanes import ShareLanes
from segbroker.protocol.errors import ErrorCode
from segbroker.segments.log.transaction_index import AbortedWalk
from segbroker.segments.metadata.metadata import TopicMeta
from segbroker.segments.metadata.share_groups import ShareState, Span

from .bugs import CALM, POWER, Bug, replaced
from .bugs_groups import HAVE_TRANSACTIONS, TRANSACTIONS
from .plan import ShareGroup, Topic

HAVE = (Topic("s0", 1, "fsync", 2048, use="group"),)
BUSY = {"pause_s": 0.05, "records": 120, "delivery_timeout_ms": 20_000}
HANDS = ShareGroup("hands", "s0", 3, 4, "earliest", 25, 1_000, 0, "records", 5, 0.0)
KILLS = {"faults": tuple((0.7 * n, "kill") for n in range(1, 6)), "last_crash": "kill"}
CLEAN = TRANSACTIONS | {"share_groups": (replace(HANDS, topic="x0", isolation="read_committed"),)}
CUTS_OF_POWER = {"faults": tuple((1.5 * n, "power_cut") for n in range(1, 5))}
BEGINS = {
    "share_groups": tuple(
        replace(HANDS, name=f"hands-{n}", members=1, lives=1, reset="latest") for n in range(6)
    ),
    "faults": tuple((1.5 * n, "kill") for n in range(1, 4)),
    "duration_s": 6.0,
}


def _group(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a ShareGroup
    return {"share_groups": (replace(HANDS, **changes),)}


def _answered_at_once(write: Callable[..., Any]) -> Callable[..., Any]:
    def wrote(self: Shares, group_id: str, changes: Any, done: Any) -> None:  # noqa: ANN401
        write(self, group_id, list(changes), lambda error: None)
        done(None)

    return wrote


def _begins_in_memory() -> AbstractContextManager[object]:
    """Where a group begins is written down with the first acknowledgement, as in Kafka."""
    begun: WeakKeyDictionary[Beginnings, dict[Key, ShareState]] = WeakKeyDictionary()
    kept = Beginnings.kept

    async def write(self: Beginnings, group_id: str, new: Mapping[Key, Any]) -> dict[Key, Why]:
        handlers = [partition.handler for _, partition in new.values()]
        starts = await first_offsets(
            self._settings, self._lanes, group_id, handlers, self._now_ms()
        )
        states = (ShareState(start) for start in starts if isinstance(start, int))
        begun.setdefault(self, {}).update(zip(new, states, strict=True))
        return {}

    def remembered(self: Beginnings, key: Key, meta: TopicMeta) -> ShareState | None:
        return kept(self, key, meta) or begun.get(self, {}).get(key)

    return patch.multiple(Beginnings, _write=write, kept=remembered)


def _start_over_acquired(self: SharePartition, changing: object) -> int:
    for piece in self._pieces:
        if (piece.becomes or piece.state) is AVAILABLE:
            return piece.first
    return self.end


def _delivery_not_counted() -> AbstractContextManager[object]:
    real = Change.spans.fget  # type: ignore[attr-defined]  # it is a property

    def spans(self: Change) -> Iterable[Span]:
        return [
            one._replace(deliveries=one.deliveries - 1) if one.state == AVAILABLE else one
            for one in real(self)
        ]

    return patch.object(Change, "spans", property(spans))


def _locks_end_under_way(self: SharePartition) -> Iterable[Any]:
    found = [piece for piece in self._pieces if piece.state is ACQUIRED]
    for piece in found:
        piece.becomes = None
    return found


def _refusals_unheard(settle: Callable[..., Any]) -> Callable[..., Any]:
    def settled(self: ShareLanes, lane: Any, key: Any, said: Any, code: int, *rest: Any) -> None:  # noqa: ANN401
        settle(self, lane, key, said, ErrorCode.NONE, *rest)

    return settled


BUGS = (
    Bug(
        "acknowledgements of shared records are answered before they are durable",
        replaced(Shares, "write", _answered_at_once),
        POWER | CUTS_OF_POWER | _group() | {"sync_s": (0.02, 0.2)},
        topics=HAVE,
        writing=BUSY,
        seeds_max=60,
    ),
    Bug(
        "where a share group begins is not written down before its first record",
        _begins_in_memory,
        BEGINS,
        topics=(replace(HAVE[0], partitions=3),),
        writing=BUSY,
        seed=3,
    ),
    Bug(
        "a share group is said to begin behind what somebody works on",
        replaced(SharePartition, "_start_after", lambda _: _start_over_acquired),
        KILLS | _group(),
        topics=HAVE,
        writing=BUSY,
    ),
    Bug(
        "the delivery of a record that is released is not written down",
        _delivery_not_counted,
        KILLS | _group(),
        topics=HAVE,
        writing=BUSY,
    ),
    Bug(
        "locks end while an acknowledgement is on its way to the disk",
        replaced(SharePartition, "_locked", lambda _: _locks_end_under_way),
        CALM | _group(lives=1, members=2, deliveries=5) | {"sync_s": (0.5, 2.0)},
        topics=HAVE,
        writing={"records": 10},
    ),
    Bug(
        "a client takes a refused acknowledgement for a taken one",
        replaced(ShareLanes, "_settle", _refusals_unheard),
        _group() | {"faults": tuple((0.4 * n, "wal_error") for n in range(1, 9))},
        topics=HAVE,
        writing=BUSY,
    ),
    Bug(
        "share groups that read what is committed are given aborted records",
        replaced(AbortedWalk, "has", lambda _: lambda self, header: False),
        CALM | CLEAN,
        topics=HAVE_TRANSACTIONS,
    ),
    Bug(
        "share groups that read what is committed are given records of open transactions",
        lambda: patch.object(share_fetch, "visible_end", lambda handler, _: handler.high_watermark),
        CALM | CLEAN,
        topics=HAVE_TRANSACTIONS,
    ),
)
