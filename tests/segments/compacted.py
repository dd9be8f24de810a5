"""What the tests of compaction share: a compacted partition, keyed batches, a model of it."""

from collections.abc import Sequence
from itertools import pairwise

from segbroker.protocol.compression import Codec
from segbroker.protocol.markers import Outcome, encode_marker
from segbroker.protocol.record_batch import (
    Record,
    check_batch,
    decode_batch,
    encode_batch,
    iter_batches,
    read_header,
)
from segbroker.segments.directory.cleaner import Cleaner
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.log.sealing import seal
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig

from .tools import SMALL, append, read_from

NOW = 1_700_000_000_000
DAY = 86_400_000
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
Keyed = tuple[bytes, bytes | None]


class Compacted:
    """A compacted topic on a disk, and what it must say.

    `latest` is the model: by key the offset and value of what was written last, of committed
    transactions and of records without one.
    """

    def __init__(self, disk: MemoryStorage, **settings: object) -> None:
        overrides = {key.replace("_", "."): str(value) for key, value in settings.items()}
        self.disk = disk
        self.now_ms = NOW
        self.config = TopicConfig({**SMALL.overrides, **COMPACT, **overrides})
        self.written: dict[int, Keyed] = {}
        self.aborted: set[int] = set()
        self.clean_offset = 0
        """The highest clean point that there ever was: a log may forget its own."""
        self.touched_offset = 0
        """Below it a cleaning was at work that was given up: each segment that it put in the place
        of others stays, though the clean point did not move."""
        self.open()

    def open(self) -> None:
        self.manager = DiskManager("/data", storage=self.disk, flushers=0, now_ms=self.now_ms)
        self.manager.open()
        if "t" not in self.manager.topics:
            self.manager.create_topic("t", 1, self.config)
        self.cleaner = Cleaner(self.manager, 1 << 30, 1 << 20, 0)

    @property
    def handler(self) -> DiskHandler:
        return self.manager.get_handler("t", 0)

    def send(
        self,
        *records: Keyed,
        codec: Codec = Codec.NONE,
        producer: tuple[int, int, int] = (-1, -1, -1),
        transactional: bool = False,
    ) -> int:
        producer_id, epoch, sequence = producer
        batch = encode_batch(
            [value for _, value in records],
            keys=[key for key, _ in records],
            timestamps_ms=self.now_ms,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        base = append(self.handler, memoryview(bytearray(batch)), self.now_ms).base_offset
        for place, record in enumerate(records):
            self.written[base + place] = record
        return base

    def end(self, outcome: Outcome, producer: tuple[int, int], offsets: Sequence[int]) -> None:
        """Write a marker; `offsets` are those of the transaction's records."""
        batch = memoryview(encode_marker(outcome, *producer, self.now_ms))
        self.handler.append(batch, check_batch(batch, stored=True), self.now_ms)
        if outcome is Outcome.ABORT:
            self.aborted.update(offsets)

    def clean(self) -> None:
        """Seal everything, and clean."""
        self.seal()
        self.clean_sealed()

    def seal(self) -> None:
        """Roll, so that all is sealed."""
        handler = self.handler
        if handler._log.active.size:
            with handler._log.append_lock:
                handler._log.roll(self.now_ms)
        seal(handler._log)

    def clean_sealed(self) -> None:
        self.cleaner.clean_now(self.handler, self.now_ms)
        self.clean_offset = max(self.clean_offset, self.handler.compacting.clean_offset)

    def batches(self, offset: int = 0, max_bytes: int = 1 << 20) -> list[memoryview]:
        found: list[memoryview] = []
        while offset < self.handler.high_watermark:
            data = read_from(self.handler, offset, max_bytes)
            assert data, f"nothing at {offset}, which is below the high watermark"
            found += iter_batches(data)
            offset = read_header(found[-1]).next_offset
        return found

    def records(self, offset: int = 0, max_bytes: int = 1 << 20) -> list[Record]:
        """What a reader of everything gets from `offset` on."""
        return [
            record
            for batch in self.batches(offset, max_bytes)
            if not read_header(batch).is_control
            for record in decode_batch(batch)
            if record.offset >= offset
        ]

    def latest(self) -> dict[bytes, tuple[int, bytes | None]]:
        """What was written last, by key."""
        found: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, (key, value) in sorted(self.written.items()):
            if offset not in self.aborted:
                found[key] = (offset, value)
        return found

    def check(self, offset: int = 0) -> None:
        """Reading from anywhere gives the last of each key, in the order of offsets, and nothing
        that was not written; behind the clean point, and what a cleaning that was given up has
        come to, everything."""
        self.clean_offset = max(self.clean_offset, self.handler.compacting.clean_offset)
        clean = self.clean_offset
        found = self.records(offset)
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        for record in found:
            assert (record.key, record.value) == self.written[record.offset]
        kept = set(offsets)
        last = self.latest()
        tombstones = {at for at, value in last.values() if value is None}
        whole_from = max(clean, self.touched_offset)
        wanted = {at for at, _ in last.values()} | {at for at in self.written if at >= whole_from}
        assert {at for at in wanted - tombstones if at >= offset} <= kept
        old = {at for at in self.written if offset <= at < clean and at not in wanted}
        behind = {at for at in old if self.is_replaced_below(at, clean)}
        assert not kept & behind, "a record that was written again stays behind the clean point"
        bases = [read_header(batch) for batch in self.batches(offset)]
        for earlier, later in pairwise(bases):
            assert later.base_offset == earlier.next_offset, "offsets have no hole"

    def is_replaced_below(self, offset: int, clean: int) -> bool:
        """Whether a record below the clean point has the same key as this one."""
        if offset in self.aborted:
            return True
        key = self.written[offset][0]
        return any(
            offset < at < clean and other == key and at not in self.aborted
            for at, (other, _) in self.written.items()
        )
