"""The storage engine alone: sealed reads, opening, appends.  `python -m bench.segments`.

Best of five, one process, files in the page cache; a figure is only as good as the machine is
quiet.  Directory: TMPDIR.
"""

import resource
import tempfile
import time

import structlog

from segbroker.protocol.record_batch import check_batch, encode_batch
from segbroker.segments.handler import DiskHandler
from segbroker.segments.manager import DiskManager
from segbroker.segments.manifest import Row, RowKind, encode_manifest
from segbroker.segments.topic_config import TopicConfig

GIB = 1 << 30


def fill(handler: DiskHandler, megabytes: int, batch_size: int) -> float:
    """Append; MiB/s."""
    template = encode_batch([b"x" * 1000] * max(1, batch_size // 1000), timestamps_ms=1)
    count = megabytes * (1 << 20) // len(template)
    began = time.perf_counter()
    for _ in range(count):
        batch = memoryview(bytearray(template))
        handler.append(batch, check_batch(batch), 1)
    return count * len(template) / (1 << 20) / (time.perf_counter() - began)


def read_all(handler: DiskHandler, size: int) -> tuple[int, float]:
    """Read everything by whole blocks in fetches of `size`; bytes and seconds."""
    buffer = memoryview(bytearray(size + (1 << 20)))
    total, offset = 0, 0
    began = time.perf_counter()
    while (plan := handler.plan_read(offset, size)) is not None:
        count = plan.read_nowait(buffer[: plan.size_max])
        if count is None:
            count = plan.read(buffer[: plan.size_max])
        plan.release()
        total += count
        offset = _next_offset(buffer, count, handler)
    return total, time.perf_counter() - began


def _next_offset(buffer: memoryview, count: int, handler: DiskHandler) -> int:
    # Batches are of one size here, so the last one is found without walking.
    size = 12 + int.from_bytes(buffer[8:12], "big")
    last = count - size
    base = int.from_bytes(buffer[last : last + 8], "big")
    return base + int.from_bytes(buffer[last + 23 : last + 27], "big") + 1


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory() as root, DiskManager(root, now_ms=1) as manager:
        for interval in (4096, 16384, 65536):
            for batch_size in (4_000, 16_000, 64_000):
                name = f"t{interval}-{batch_size}"
                config = TopicConfig({"durability": "disk", "index.interval.bytes": str(interval)})
                manager.create_topic(name, 1, config, now_ms=1)
                handler = manager.get_handler(name, 0)
                append = fill(handler, 64, batch_size)
                time.sleep(0.5)
                rates = []
                for _ in range(5):
                    total, seconds = read_all(handler, 1 << 20)
                    rates.append(total / seconds / GIB)
                print(
                    f"block {interval:6} batch {batch_size:6}: append {append:6.0f} MiB/s, "
                    f"sealed read verified {max(rates):5.2f} GiB/s"
                )
                manager.delete_topic(name)
    with tempfile.TemporaryDirectory() as root:
        config = TopicConfig()
        with DiskManager(root, now_ms=1) as manager:
            manager.create_topic("many", 100, config, now_ms=1)
            for partition in range(100):
                manager.get_handler("many", partition)
        for partition in range(100):
            stem = f"{root}/topics/many/partition_{partition}/many_partition_{partition}"
            rows = [
                Row(RowKind.SEGMENT, k, k * 1000, (k + 1) * 1000, 1 << 20, 1000, k, 16384)
                for k in range(1000)
            ]
            head = [Row(RowKind.EPOCH)]
            checkpoint = [Row(RowKind.CHECKPOINT, number=1000, end_offset=1_000_000)]
            with open(f"{stem}.manifest", "wb") as file:
                file.write(encode_manifest(1, [*head, *rows, *checkpoint]))
            with open(f"{stem}_segment_1000.log", "wb"):
                pass
            from segbroker.segments.producers import ProducerTable

            with open(f"{stem}.producers", "wb") as file:
                file.write(ProducerTable().encode(1_000_000))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.perf_counter()
        manager = DiskManager(root, now_ms=1)
        manager.open()
        for partition in range(100):
            manager.get_handler("many", partition)
        seconds = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(
            f"open 100 x 1000 segments: {seconds:.2f} s, "
            f"+{(after - before) / 1024:.0f} MiB, {manager.statistics()}"
        )
        manager.close()


if __name__ == "__main__":
    main()
