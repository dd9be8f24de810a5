"""The same steps for the log as a library: SegmentedLog has truncation, expiry, reservations."""

from segbroker.protocol.record_batch import iter_batches, read_header
from segbroker.segments.disk.storage import make_dirs
from segbroker.segments.errors import StorageError
from segbroker.segments.library.log import SegmentedLog
from segbroker.segments.settings.topic_config import Durability, TopicConfig

from .driver import SMALL, batch_with
from .explorer import Explorer, Plan
from .model import Life, PartitionModel, Sent
from .observing import LIBRARY_TOPIC, ROOT, library_opener


class LibraryDriver:
    """A SegmentedLog on a recording disk."""

    def __init__(self, plan: Plan, name: str = "", **config: str) -> None:
        self.config = TopicConfig(
            {**SMALL, **{key.replace("_", "."): text for key, text in config.items()}}
        )
        self.explorer = Explorer(library_opener(self.config), plan, name)
        self.explorer.refresh = self._refresh
        self.disk = self.explorer.disk
        self.now_ms = 1_000
        self.number = 0
        self.partition = PartitionModel(self.config.durability, reserves_offsets=False)
        self.explorer.model.topics[LIBRARY_TOPIC] = [Life([self.partition], 1, [{}])]
        self.log: SegmentedLog | None = None

    @property
    def running(self) -> SegmentedLog:
        assert self.log is not None, "opened"
        return self.log

    def _refresh(self) -> None:
        """What is acknowledged is said by `append` and `sync` when they return."""

    def _changed(self) -> None:
        self.explorer.model.changed()
        self.explorer.step_done()

    def _acked(self, *, durable: bool) -> None:
        model = self.partition
        model.acked = min(self.running.high_watermark, model.end)
        if durable or model.durability is Durability.FSYNC:
            model.durable = model.acked
        self._changed()

    def open(self) -> None:
        make_dirs(self.disk, ROOT)
        self.log = SegmentedLog.open(
            self.disk, f"{ROOT}/{LIBRARY_TOPIC}", "t", self.config, now_ms=self.now_ms
        )

    def close(self) -> None:
        self.running.close()
        self._acked(durable=True)
        self.log = None

    def _send(self, records: int, size: int) -> Sent:
        self.now_ms += 1
        batch = batch_with(self.number, records, size, self.now_ms)
        self.number += records
        base = self.running.log_end_offset
        sent = Sent(base, base + records, batch, (-1, -1, -1))
        self.partition.sent.append(sent)
        self.explorer.model.changed()
        return sent

    def append(self, count: int = 1, *, records: int = 1, size: int = 40) -> bool:
        for _ in range(count):
            sent = self._send(records, size)
            try:
                base = self.running.append(bytes(sent.batch), now_ms=self.now_ms)
            except StorageError:
                return False
            assert base == sent.base_offset, "I4"
            self._acked(durable=False)
        return True

    def sync(self) -> None:
        self.running.sync()
        self._acked(durable=True)

    def truncate(self, offset: int) -> None:
        """What lies behind may be there or not, until it returns."""
        model = self.partition
        model.acked = min(model.acked, offset)
        model.durable = min(model.durable, offset)
        self.explorer.model.changed()
        end = self.running.truncate(offset, now_ms=self.now_ms)
        assert end <= offset, f"I2: it ends at {end}, all from {offset} on was to go"
        model.sent = [sent for sent in model.sent if sent.next_offset <= end]
        self._acked(durable=True)

    def expire(self, before_ms: int) -> None:
        """Whole old segments go; the start lies anywhere in between meanwhile."""
        model = self.partition
        model.start_max = model.end
        self.explorer.model.changed()
        self.running.expire(before_ms, now_ms=self.now_ms)
        model.start_min = model.start_max = self.running.log_start_offset
        self._acked(durable=True)

    def reserve(self, count: int, *, publish: bool) -> None:
        """Batches appended under a reservation, then published or rolled back."""
        reservation = self.running.reserve()
        model = self.partition
        keep = len(model.sent)
        for _ in range(count):
            sent = self._send(1, 40)
            reservation.append(bytes(sent.batch), now_ms=self.now_ms)
            self._changed()
        if publish:
            reservation.publish()
            reservation.release()
            self._acked(durable=False)
        else:
            reservation.rollback()
            del model.sent[keep:]
            self._acked(durable=True)

    def values(self) -> list[int]:
        """Base offsets that can be read."""
        return [read_header(b).base_offset for b in iter_batches(self.running.read(0))]
