"""What a producer has no answer to it sends again: asked of each disk that a crash may leave.

    in flight   | 0 | 1 | 2 |      written together, acknowledged together or not at all
    a disk      | gap | 1 | 2 |    0 1 2 are sent again, as a client does that lost its connection:
                                   0 is taken, 1 and 2 are known; each is there once

Right after the recovery, and after a start behind it that knows the producer by a snapshot alone.
Clients have five batches in flight at most: those are never refused.  More may be, never stored
twice.
"""

from segbroker.protocol.record_batch import check_batch
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.errors import StorageError
from segbroker.segments.log.producers import WINDOW

from .driver import Driver
from .images import Image, Kind
from .model import Sent
from .observing import BODY, RECOVERED_MS, Broker

TOPIC = "t"


class Resending:
    """A producer of partition 0 of topic "t" that writes batches together."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._begin = 0
        self._found: dict[tuple[Kind, int], str] = {}
        self.asked = 0
        """Disks that were sent to."""
        driver.explorer.further = self._ask

    def send(self, count: int, producer: tuple[int, int, int], *, size: int = 40) -> None:
        """Append so many batches of one record, in one group of the WAL."""
        self._begin = len(self._driver.model.partition(TOPIC, 0).sent)
        with self._driver.one_group(TOPIC):
            self._driver.append(TOPIC, count=count, producer=producer, size=size)

    def _ask(self, image: Image) -> str:
        """What is wrong with this disk, or nothing."""
        in_flight = self._driver.model.partition(TOPIC, 0).sent[self._begin :]
        key = image.kind, len(in_flight)
        if in_flight and key not in self._found:
            self._found[key] = self._again(
                image.build(), in_flight, by_snapshot=False
            ) or self._again(image.build(), in_flight, by_snapshot=True)
            self.asked += 1
        return self._found.get(key, "")

    def _again(self, disk: MemoryStorage, in_flight: list[Sent], *, by_snapshot: bool) -> str:
        broker = self._opened(disk)
        if by_snapshot:
            broker.append_everywhere(broker.see(), b"so that a snapshot is taken")
            broker.manager.close()
            broker = self._opened(disk)
        handler = broker.manager.get_handler(TOPIC, 0)
        refused = ""
        for sent in in_flight:
            batch = memoryview(bytearray(sent.batch))
            try:
                handler.append(batch, check_batch(batch), RECOVERED_MS)
            except StorageError as exc:
                refused = f"{sent.producer} is refused: {exc}"
                break
        how = " by a snapshot" if by_snapshot else ""
        if refused and len(in_flight) <= WINDOW:
            return f"I5: sent again{how}, {refused}"
        stored = [item.body for item in broker.see().topics[TOPIC].partitions[0].items]
        for sent in in_flight:
            count = stored.count(bytes(sent.batch[BODY:]))
            if count > 1 or not (count or refused):
                return f"I5: sent again{how}, {sent.producer} is there {count} times"
        return ""

    def _opened(self, disk: MemoryStorage) -> Broker:
        return Broker(self._driver.wal, disk)
