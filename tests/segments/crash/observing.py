"""What can be seen of a data directory, or of one log, after it was opened.

Two systems are opened alike: `Broker` is a DiskManager without threads, `Library` a SegmentedLog,
shown as partition 0 of a topic of its own.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import NamedTuple, Protocol
from unittest.mock import patch

from segbroker.protocol.record_batch import (
    check_batch,
    encode_batch,
    gap_reason,
    iter_batches,
    read_header,
)
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import Storage
from segbroker.segments.errors import StorageError
from segbroker.segments.library.log import SegmentedLog
from segbroker.segments.log.producers import ProducerTable
from segbroker.segments.metadata import metadata_log
from segbroker.segments.metadata.metadata import decode_metadata
from segbroker.segments.metadata.share_groups import SECTION as SHARES
from segbroker.segments.metadata.transactions import BOOT_UNKNOWN
from segbroker.segments.metadata.transactions import SECTION as TRANSACTIONS
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import OnCorruption, TopicConfig
from segbroker.segments.wal.journal import WalConfig

decode_once = lru_cache(maxsize=4_096)(decode_metadata)
"""Thousands of images have the same snapshot, and a Metadata is never changed."""


@contextmanager
def quick_snapshots() -> Iterator[None]:
    """Decode equal snapshots once."""
    with patch.object(metadata_log, "decode_metadata", decode_once):
        yield


ROOT = "/data"
LIBRARY_TOPIC = "log"
RECOVERED_MS = 50_000
"""The time at which images are opened: after all that scenarios do."""
TINY_WAL = WalConfig(file_bytes=8_192, shard_bytes=4 * 8_192, quick_after=0)
"""4 KiB of frames in a file, four files; every disk is quick."""
BODY = 16
"""Where the bytes of a batch begin that nobody ever changes."""


class Item(NamedTuple):
    """One batch that was read."""

    base_offset: int
    next_offset: int
    epoch: int
    body: bytes
    reason: str
    """Of a gap; empty for records."""

    @property
    def is_gap(self) -> bool:
        return bool(self.reason)


@dataclass(frozen=True)
class SeenPartition:
    """A partition as it was recovered."""

    start: int
    end: int
    visible: int
    items: tuple[Item, ...]
    newest: tuple[tuple[int, int, int, int, bool], ...] = ()
    """(producer id, epoch, last sequence, last offset) of what is remembered of producers."""
    epoch: int = 0
    floor: int = 0
    open: tuple[tuple[int, int], ...] = ()
    """(producer id, first offset) of the transactions that are open."""
    aborted: tuple[tuple[int, int, int], ...] = ()
    """(producer id, first offset, marker) of those that were aborted."""
    error: str = ""


@dataclass(frozen=True)
class SeenTopic:
    """A topic as it was recovered."""

    topic_id: bytes
    epoch: int
    overrides: tuple[tuple[str, str], ...]
    partitions: tuple[SeenPartition, ...]


@dataclass(frozen=True)
class Seen:
    """Everything that can be seen."""

    topics: dict[str, SeenTopic]
    identity: str = ""
    next_producer_id: int = 0
    sections: str = ""
    """What further kinds of control events have made, as text."""

    def __hash__(self) -> int:
        return hash((*self.topics.items(), self.identity, self.next_producer_id, self.sections))

    def shares(self) -> Iterator[tuple[str, str, str]]:
        """Of what share groups stand in: the group, the topic, its id."""
        if SHARES not in self.sections:
            return
        for group, topics in json.loads(self.sections)[SHARES].items():
            for topic, (topic_id, _) in topics.items():
                yield group, topic, topic_id

    def partitions(self) -> Iterator[tuple[str, int, SeenPartition]]:
        for name, topic in self.topics.items():
            for number, partition in enumerate(topic.partitions):
                yield name, number, partition


class Session(Protocol):
    """One system, opened on one disk."""

    def see(self) -> Seen: ...

    def append_everywhere(self, seen: Seen, value: bytes) -> Seen:
        """Append a record to every partition, durably; what must be seen then."""
        ...

    @property
    def events_lost(self) -> int:
        """Control events that it told as lost."""
        ...

    @property
    def files_missed(self) -> int:
        """Files of the write-ahead log that it told as not there."""
        ...


Opener = Callable[[Storage], Session]


def items_of(batches: Iterator[memoryview]) -> tuple[Item, ...]:
    found = []
    for batch in batches:
        header = read_header(batch)
        reason = ""
        if header.is_control and not header.records_count:
            known = gap_reason(header)
            reason = known.name.lower() if known is not None else "unknown"
        body = bytes(batch[BODY:])
        found.append(
            Item(header.base_offset, header.next_offset, header.leader_epoch, body, reason)
        )
    return tuple(found)


def with_item(partition: SeenPartition, base_offset: int, batch: memoryview) -> SeenPartition:
    """The partition with one more batch, which was just written at `base_offset`."""
    (item,) = items_of(iter([batch]))
    assert item.base_offset == base_offset
    return replace(
        partition,
        end=item.next_offset,
        visible=item.next_offset,
        items=(*partition.items, item),
        epoch=item.epoch,
    )


def one_record(value: bytes) -> memoryview:
    batch = encode_batch([value], keys=[b"recovered"], timestamps_ms=RECOVERED_MS)
    return memoryview(bytearray(batch))


class Broker:
    """A DiskManager."""

    def __init__(self, wal: WalConfig, storage: Storage) -> None:
        self.manager = DiskManager(ROOT, storage=storage, flushers=0, wal=wal, now_ms=RECOVERED_MS)
        self.manager.open()

    @property
    def events_lost(self) -> int:
        return self.manager._starting._events_lost

    @property
    def files_missed(self) -> int:
        told = ("the file is missing", "all frames in bytes")
        return sum(any(one in row.reason for one in told) for row in self.manager.report.rows)

    def see(self) -> Seen:
        manager = self.manager
        topics = {}
        for name, meta in manager.topics.items():
            partitions = tuple(self._partition(name, number) for number in range(meta.partitions))
            overrides = tuple(sorted(meta.config.overrides.items()))
            in_force = TopicConfig.parse(meta.config.overrides, manager.topic_defaults)
            assert meta.config == in_force, f"I1: {name} is served with {meta.config}"
            topics[name] = SeenTopic(meta.topic_id.bytes, meta.epoch, overrides, partitions)
        sections = text_of(manager._known.sections)
        return Seen(topics, manager.cluster_id, manager._known.next_producer_id, sections)

    def _partition(self, topic: str, number: int) -> SeenPartition:
        try:
            handler = self.manager.get_handler(topic, number)
            return see_handler(handler)
        except StorageError as exc:
            return SeenPartition(0, 0, 0, (), error=f"{type(exc).__name__}: {exc}")

    def append_everywhere(self, seen: Seen, value: bytes) -> Seen:
        topics = {}
        for name, topic in seen.topics.items():
            partitions = []
            for number, partition in enumerate(topic.partitions):
                handler = self.manager.get_handler(name, number)
                if handler.config.on_corruption is OnCorruption.READONLY and handler.read_only:
                    partitions.append(partition)
                    continue
                batch = one_record(value)
                result = handler.append(batch, check_batch(batch), RECOVERED_MS)
                assert result.base_offset == partition.end, (
                    f"I4: {name}/{number} assigns {result.base_offset}, its end is {partition.end}"
                )
                handler.sync()
                partitions.append(with_item(partition, result.base_offset, batch))
            topics[name] = replace(topic, partitions=tuple(partitions))
        first = self.manager.allocate_producer_ids(1)[0]
        assert first >= seen.next_producer_id, f"producer id {first} was given before"
        return replace(seen, topics=topics, next_producer_id=first + 1)


def see_handler(handler: DiskHandler) -> SeenPartition:
    """What readers of this partition see."""
    start, end = handler.log_start_offset, handler.log_end_offset

    def batches() -> Iterator[memoryview]:
        offset = start
        while offset < end:
            plan = handler.plan_read(offset, 1 << 20, up_to=end)
            if plan is None:
                return
            try:
                buffer = memoryview(bytearray(plan.size_max))
                count = plan.read(buffer)
            finally:
                plan.release()
            if not count:
                return
            for batch in iter_batches(buffer[:count]):
                yield batch
                offset = read_header(batch).next_offset

    return SeenPartition(
        start,
        end,
        handler.high_watermark,
        items_of(batches()),
        newest_of(handler._log.producers),
        handler._log.leader_epoch,
        open=tuple(sorted(handler.transactions.open.items())),
        aborted=tuple((*row,) for row in handler.transactions.aborted),
    )


def newest_of(table: ProducerTable) -> tuple[tuple[int, int, int, int, bool], ...]:
    return tuple(
        sorted(
            (
                pid,
                known.epoch,
                known.batches[-1].last_sequence,
                known.batches[-1].last_offset,
                known.resumes,
            )
            for pid, known in table._producers.items()
            if known.batches
        )
    )


def text_of(sections: Mapping[str, object]) -> str:
    """Sections as something that can be compared: a list is as good as a tuple, and a transaction
    that has lost nothing is of whichever boot of the machine looked at it last."""
    said = json.loads(json.dumps(sections, sort_keys=True, default=_as_json))
    for ids in said.get(TRANSACTIONS, {}).get("ids", {}).values():
        for row in ids.values():
            row[-1] = min(row[-1], BOOT_UNKNOWN)  # the last of a row (Transaction.pack)
    return json.dumps(said, sort_keys=True)


def _as_json(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    assert isinstance(value, bytes), value
    return value.hex()


class Library:
    """A SegmentedLog."""

    def __init__(self, config: TopicConfig, storage: Storage) -> None:
        self.log = SegmentedLog.open(
            storage, f"{ROOT}/{LIBRARY_TOPIC}", "t", config, now_ms=RECOVERED_MS
        )

    @property
    def events_lost(self) -> int:
        return 0  # it has none

    @property
    def files_missed(self) -> int:
        return 0

    def see(self) -> Seen:
        log = self.log
        partition = SeenPartition(
            log.log_start_offset,
            log.log_end_offset,
            log.high_watermark,
            items_of(log.batches()),
            epoch=log._log.leader_epoch,
        )
        return Seen({LIBRARY_TOPIC: SeenTopic(b"", 0, (), (partition,))})

    def append_everywhere(self, seen: Seen, value: bytes) -> Seen:
        topic = seen.topics[LIBRARY_TOPIC]
        (partition,) = topic.partitions
        base_offset = self.log.append(bytes(one_record(value)), now_ms=RECOVERED_MS)
        assert base_offset == partition.end, f"I4: {base_offset} assigned, end {partition.end}"
        self.log.sync()
        (written,) = iter_batches(self.log.read(base_offset))
        partition = with_item(partition, base_offset, written)
        return Seen({LIBRARY_TOPIC: replace(topic, partitions=(partition,))})


@cache
def broker_opener(wal: WalConfig) -> Opener:
    """The same one for equal settings."""
    return lambda storage: Broker(wal, storage)


def library_opener(config: TopicConfig) -> Opener:
    return lambda storage: Library(config, storage)


def without_indexes(disk: MemoryStorage) -> MemoryStorage:
    """The disk, with no index on it any more."""
    stack = [disk._root]
    while stack:
        directory = stack.pop()
        for name, node in list(directory.names.items()):
            if name.endswith(".index"):
                del directory.names[name]
            elif hasattr(node, "names"):
                stack.append(node)  # type: ignore[arg-type]  # the other kind has no names
        directory.durable = dict(directory.names)
    return disk
