"""Bugs planted to prove that the simulation finds them: patches used by the tests alone.

Each is a mistake that somebody could make in one line, and each has a *focus*: what the plan of a
seed must contain for the mistake to matter at all (a sync that is left out shows itself only when
the power goes).  The rest of the plan is the seed's own.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from segbroker.broker.groups.epochal_group import EpochalGroup
from segbroker.broker.loop.turn import Turn
from segbroker.broker.partitions.partition import Partition
from segbroker.broker.peers.replies import Outbox, Slot
from segbroker.client.fetch_lanes import _Lane
from segbroker.segments.disk.forwarding import ForwardingStorage
from segbroker.segments.disk.storage import read_file
from segbroker.segments.files.manifest_file import ManifestFile
from segbroker.segments.log import partition_log, salvaging
from segbroker.segments.log.caches import OPEN_LOGS_MAX
from segbroker.segments.log.log_storage import LogStorage
from segbroker.segments.log.partition_log import PartitionLog
from segbroker.segments.log.producers import Producer, ProducerTable
from segbroker.segments.log.segment import ActiveSegment
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.wal.group import Group
from segbroker.segments.wal.shard import Shard

from .disk import File, Mount
from .plan import Admin, Plan, Topic, draw

POWER = {"last_crash": "power_cut"}
CUTS = {"faults": tuple((0.1 * n, "cut_all") for n in range(1, 10)), "latency_s": 0.005}
YOUNG = {
    "faults": tuple((0.2 * n, "young_cut") for n in range(1, 5)),
    "last_crash": "none",
    "sync_s": (0.02, 0.1),
    "latency_s": 0.001,
    "hasty": True,
}
CALM = {"faults": (), "last_crash": "none"}
NAMES = {
    "name_errors": 0.03,
    "faults": ((0.8, "power_cut"), (2.0, "power_cut")),
    "last_crash": "power_cut",
    "wal": (1 << 14, 1 << 15),
    "sync_s": (0.0002, 0.003),
    "latency_s": 0.001,
    "preempts": 0.5,
}
"""Syncs of directories fail, beside others, and the power goes."""
REMOVED = {
    "faults": tuple((0.2 * n, "remove_file") for n in range(1, 9)),
    "last_crash": "power_cut",
}
MANY_SEGMENTS = tuple(Topic(f"y{n}", 2, "fsync", 1024, use="group") for n in range(3))
# One that keeps three segments: the others go while it is written to.
RETAINED = tuple(
    Topic(f"y{n}", 1, "fsync", 1024, use="group", retention=(("retention.bytes", "3000"),))
    for n in range(2)
)
FILLING = {"records": 200, "value_bytes": 300, "many": False, "delivery_timeout_ms": 20_000}


def _by_its_path(log: PartitionLog, segment: ActiveSegment) -> bytearray:
    return read_file(log.storage, segment.path)


@dataclass(frozen=True)
class Bug:
    """One mistake; `seeds_max`: within so many seeds it is found.

    `seed` is asked first: one that found it.  What moves it to another one costs the time of those.
    """

    name: str
    plant: Callable[[], AbstractContextManager[object]]
    focus: dict[str, Any] = field(default_factory=dict)
    durability: str | None = "fsync"
    fetch_wait_ms: int | None = None
    seeds_max: int = 10
    seed: int = 1
    topics: tuple[Topic, ...] = ()
    """What it needs besides the seed's plain ones; those of groups are written to."""
    writing: dict[str, Any] = field(default_factory=dict)
    """How their producers are, which are idempotent then, live once and do not pause."""

    def plan(self, seed: int) -> Plan:
        """The plan of a seed, with what the bug needs to matter."""
        plan = draw(seed)
        drawn = replace(
            plan,
            topics=tuple(topic for topic in plan.topics if topic.use == "plain"),
            producers=tuple(p for p in plan.producers if p.topic.use == "plain"),
            consumers=tuple(c for c in plan.consumers if c.topic.use == "plain"),
            groups=(),
            share_groups=(),
            transactors=(),
            name_errors=0.0,
            open_logs=OPEN_LOGS_MAX,
        ).with_durability(self.durability)
        plan = replace(drawn, topics=drawn.topics + self.topics, **self.focus)
        writing = tuple(
            replace(plan.producers[0], name=f"p-{topic.name}", topic=topic)
            for topic in self.topics
            if topic.use == "group"
        )
        if self.writing:
            busy = {"idempotent": True, "lives": 1, "pause_s": 0.0, **self.writing}
            writing = tuple(replace(producer, **busy) for producer in writing)
        plan = replace(plan, producers=plan.producers + writing)
        if self.fetch_wait_ms is not None:
            waiting = [
                replace(c, fetch_wait_ms=self.fetch_wait_ms, lives=1) for c in plan.consumers
            ]
            plan = replace(plan, consumers=tuple(waiting))
        return plan


def replaced(
    owner: type, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[[], AbstractContextManager[object]]:
    return lambda: patch.object(owner, name, make(getattr(owner, name)))


def told_before_kept(keep: Callable[..., Any]) -> Callable[..., Any]:
    """What a group writes down is answered at once.  keep: has `done` as its last argument."""

    def kept(self: object, group: object, what: object, done: Callable[[None], object]) -> None:
        keep(self, group, what, lambda error: None)
        done(None)

    return kept


def not_as_far(restore: Callable[..., Any]) -> Callable[..., Any]:
    """Members are restored at the epoch before theirs."""

    def restored(self: EpochalGroup[Any], *args: Any) -> None:  # noqa: ANN401
        restore(self, *args)
        for member in self.members.values():
            member.epoch, member.previous_epoch = member.previous_epoch, -1

    return restored


def _visible_at_once(append: Callable[..., Any]) -> Callable[..., Any]:
    def appended(self: DiskHandler, *args: Any) -> Any:  # noqa: ANN401
        result = append(self, *args)
        self._advance(self._log.log_end_offset)
        return result

    return appended


def _unsynced(call: str, part: str) -> Callable[[], AbstractContextManager[object]]:
    """Syncs of paths with `part` in them do nothing."""

    def plant() -> AbstractContextManager[object]:
        owner: type = File if call == "fdatasync" else Mount
        real = getattr(owner, call)

        def lying(self: Any, *args: str) -> None:  # noqa: ANN401
            if part not in (args[0] if args else self.path):
                real(self, *args)

        return patch.object(owner, call, lying)

    return plant


def _never_hurried(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, longest_ms, now_ms: longest_ms


def _forgets_failure(append: Callable[..., Any]) -> Callable[..., Any]:
    def appended(self: Shard, group: Any) -> None:  # noqa: ANN401
        try:
            append(self, group)
        except OSError:
            self.failure = None
            raise

    return appended


def _tells_success(tell: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, error, call_soon: tell(self, None, call_soon)


def _never_syncs(commit: Callable[..., Any]) -> Callable[..., Any]:
    def committed(self: Shard, source: Any, size: int, call_soon: Any) -> bool:  # noqa: ANN401
        if not self._inline_budget.is_quick:
            return bool(commit(self, source, size, call_soon))
        source.wal_synced(source.take_frames()[1])
        return True

    return committed


def _locked_over_sync(sync: Callable[..., Any]) -> Callable[..., Any]:
    def synced(self: PartitionLog, **options: Any) -> int:  # noqa: ANN401
        with self.append_lock:
            return int(sync(self, **options))

    return synced


def _every(count: int, real: Callable[..., Any]) -> Callable[..., Any]:
    """`real`, but for every count-th call."""
    calls = 0

    def some(*args: Any) -> Any:  # noqa: ANN401
        nonlocal calls
        calls += 1
        return None if calls % count == 0 else real(*args)

    return some


@contextmanager
def _short_writes_are_whole() -> Iterator[None]:
    def write_once(file: Any, data: Any, position: int) -> None:  # noqa: ANN401
        file.pwrite(data, position)

    with patch.object(partition_log, "write_all", write_once):
        yield


def _first_in_line(self: Outbox, slot: Slot) -> None:
    """As Outbox.push, at the wrong end."""
    self._slots = deque([slot, *self._slots])


async def _drains_once(self: Outbox) -> None:
    """As Outbox.drain, without saying that it has ended."""
    import trio

    try:
        while self._unsent:
            await trio.lowlevel.wait_writable(self._sock)
            self._resume()
    except (OSError, trio.ClosedResourceError):
        self.break_off()


DELETES = Admin(tuple((0.2 * n, "delete_records") for n in range(1, 5)))


def _begins_nowhere_again(lacks: Callable[..., bool]) -> Callable[..., bool]:
    def lacking(self: Producer, sequence: int, last_delta: int) -> bool:
        return sequence != 0 and lacks(self, sequence, last_delta)

    return lacking


BUGS = (
    Bug("the WAL is not synced", _unsynced("fdatasync", "/wal/"), POWER),
    Bug("visible before it is durable", replaced(DiskHandler, "append", _visible_at_once), POWER),
    Bug(
        "a checkpoint frees WAL files whose segments are not synced",
        replaced(DiskHandler, "wal_checkpoint", lambda _: lambda self: True),
        POWER | {"wal": (1 << 14, 1 << 15)},
        seeds_max=25,
    ),
    Bug(
        "the loop acknowledges a lone writer and does not sync",
        replaced(Shard, "commit_here", _never_syncs),
        POWER | {"faults": ()},
    ),
    Bug(
        "a failed WAL group is reported as written",
        replaced(Group, "settle", _tells_success),
        POWER | {"faults": tuple((0.05 * n, "sync_error") for n in range(1, 9))},
    ),
    Bug(
        "a failed WAL sync is forgotten and tried again",
        replaced(Shard, "_append", _forgets_failure),
        POWER | {"faults": tuple((0.1 * n, "sync_error") for n in range(1, 9))},
    ),
    Bug(
        "a deletion is not synced",
        replaced(
            ManifestFile, "append", lambda real: lambda self, rows, sync=False: real(self, rows)
        ),
        POWER | {"faults": ()},
        topics=RETAINED,
        writing=FILLING,
    ),
    Bug(
        "a failed sync of the names is told to nobody but who asked",
        lambda: patch.object(LogStorage, "fsync_dir", ForwardingStorage.fsync_dir),
        NAMES,
        topics=MANY_SEGMENTS,
        writing=FILLING,
        seeds_max=25,
    ),
    Bug(
        "nobody looks for the files of the WAL",
        replaced(Shard, "look", lambda _: lambda self: None),
        REMOVED,
        seeds_max=20,
        seed=2,
    ),
    Bug(
        "what is away is made anew from what has its name",
        lambda: patch.object(salvaging, "_content", _by_its_path),
        REMOVED,
        seeds_max=20,
        seed=3,
    ),
    Bug(
        "a repeated batch is appended again",
        replaced(ProducerTable, "check", lambda _: lambda self, header: None),
        CUTS,
    ),
    Bug(
        "an epoch that begins behind a gap is not sent from its beginning again",
        replaced(Producer, "lacks", _begins_nowhere_again),
        YOUNG,
        writing={"many": True, "records": 200, "value_bytes": 40, "delivery_timeout_ms": 20_000},
        topics=tuple(Topic(f"y{n}", 1, "fsync", 8192, use="group") for n in range(4)),
        seeds_max=20,
    ),
    Bug("a short write counts as whole", _short_writes_are_whole, {"short_writes": 0.3}),
    Bug(
        "waiting fetches are not woken",
        replaced(Partition, "wake", lambda _: lambda self: None),
        CALM,
        fetch_wait_ms=15_000,
    ),
    Bug(
        "what is left out of a fetch waits as long as that may",
        replaced(_Lane, "wait_ms", _never_hurried),
        {"faults": ((0.6, "kill"), (0.9, "kill")), "last_crash": "kill"},
        durability="ephemeral",
        seed=8,
        fetch_wait_ms=15_000,
    ),
    Bug(
        "waiting produces are not woken",
        replaced(Partition, "_high_watermark_moved", lambda _: lambda self, handler: None),
        CALM,
    ),
    Bug(
        "every seventh flush is forgotten",
        replaced(Turn, "flush", lambda real: _every(7, real)),
        CALM,
    ),
    Bug(
        "replies leave newest first",
        lambda: patch.object(Outbox, "push", _first_in_line),
        {"latency_s": 0.005},
    ),
    Bug(
        "a slow reader is drained once and never again",
        lambda: patch.object(Outbox, "drain", _drains_once),
        CALM | {"window": (100, 400)},
    ),
    Bug(
        "a request dies of a bug of its handler",
        replaced(DiskHandler, "delete_records_before", lambda _: lambda self, offset: 1 // 0),
        CALM | {"admin": DELETES},
    ),
    Bug(
        "the loop syncs",
        replaced(DiskHandler, "flush_soon", lambda _: lambda self: self.sync()),
        CALM,
    ),
    Bug(
        "the append lock is held over a sync",
        replaced(PartitionLog, "sync", _locked_over_sync),
        {"sync_s": (0.1, 0.5), "faults": ()},
        durability="disk",
        seeds_max=20,
    ),
)
