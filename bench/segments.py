"""What decided how segments are read and rolled: blocks, preadv or a map, paced appends.

`python -m bench.segments [verify | reads | blocks | rolls]`; the decisions 0009, 0010 and 0011
quote its figures.  One process, files in the page cache, best of ROUNDS: a figure is only as good
as the machine is quiet.  Directory: TMPDIR, which must lie on a disk.
"""

import mmap
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import structlog

from segbroker.protocol.checksums import xxh3_64
from segbroker.protocol.record_batch import check_batch, encode_batch
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig

MIB = 1 << 20
GIB = 1 << 30
ROUNDS = 9
KIB_SIZES = (4, 16, 64)


def best(work: Callable[[], object]) -> float:
    """Seconds of the fastest of ROUNDS runs."""
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took)


def verify() -> None:
    """XXH3-64 of 1 MiB, one call per block, the bytes in the cache of the core (0009)."""
    content = memoryview(bytearray(os.urandom(MIB)))
    for size in (*(kib << 10 for kib in KIB_SIZES), MIB):

        def blocks(size: int = size) -> None:
            for position in range(0, MIB, size):
                xxh3_64(content[position : position + size])

        print(f"1 MiB in blocks of {size >> 10:4} KiB: {best(blocks) * 1e6:6.0f} us")


def reads() -> None:
    """1 MiB reads of a cached file, each followed by its XXH3-64 (0010)."""
    count = 64
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(count):
            file.write(os.urandom(MIB))
        file.flush()
        fd = file.fileno()
        buffer = memoryview(bytearray(MIB))

        def whole() -> None:
            for k in range(count):
                os.preadv(fd, [buffer], k * MIB)
                xxh3_64(buffer)

        def mapped() -> None:
            for k in range(count):
                with (
                    mmap.mmap(fd, MIB, prot=mmap.PROT_READ, offset=k * MIB) as mapping,
                    memoryview(mapping) as view,
                ):
                    xxh3_64(view)

        def pieces(size: int) -> None:
            for k in range(count):
                for position in range(0, MIB, size):
                    os.preadv(fd, [buffer[:size]], k * MIB + position)
                    xxh3_64(buffer[:size])

        print(f"preadv whole:         {count * MIB / GIB / best(whole):5.2f} GiB/s")
        print(f"a map per read:       {count * MIB / GIB / best(mapped):5.2f} GiB/s")
        for kib in (64, 128, 256):
            rate = count * MIB / GIB / best(partial(pieces, kib << 10))
            print(f"preadv by {kib:3} KiB:    {rate:5.2f} GiB/s")


def _fill(handler: DiskHandler, megabytes: int, batch_size: int) -> float:
    """Append; MiB/s."""
    template = encode_batch([b"x" * 1000] * max(1, batch_size // 1000), timestamps_ms=1)
    count = megabytes * MIB // len(template)
    began = time.perf_counter()
    for _ in range(count):
        batch = memoryview(bytearray(template))
        handler.append(batch, check_batch(batch), 1)
    return count * len(template) / MIB / (time.perf_counter() - began)


def _read_all(handler: DiskHandler, size: int) -> float:
    """Read everything by whole blocks in fetches of `size`; GiB/s."""
    buffer = memoryview(bytearray(size + MIB))
    total, offset = 0, 0
    began = time.perf_counter()
    while (plan := handler.plan_read(offset, size)) is not None:
        count = plan.read_nowait(buffer[: plan.size_max])
        if count is None:
            count = plan.read(buffer[: plan.size_max])
        plan.release()
        total += count
        # Batches are of one size here, so the last one is found without walking.
        last = count - (12 + int.from_bytes(buffer[8:12], "big"))
        delta = int.from_bytes(buffer[last + 23 : last + 27], "big")
        offset = int.from_bytes(buffer[last : last + 8], "big") + delta + 1
    return total / (time.perf_counter() - began) / GIB


def blocks() -> None:
    """Appends and verified reads by size of block and batch (0009)."""
    with tempfile.TemporaryDirectory() as root, DiskManager(root, now_ms=1) as manager:
        for interval in (kib << 10 for kib in KIB_SIZES):
            for batch_size in (4_000, 16_000, 64_000):
                name = f"t{interval}-{batch_size}"
                config = TopicConfig({"durability": "disk", "index.interval.bytes": str(interval)})
                manager.create_topic(name, 1, config)
                handler = manager.get_handler(name, 0)
                append = _fill(handler, 64, batch_size)
                time.sleep(0.5)  # sealed by the housekeeper
                rate = max(_read_all(handler, MIB) for _ in range(ROUNDS))
                print(
                    f"block {interval:6} batch {batch_size:6}: append {append:6.0f} MiB/s, "
                    f"sealed read verified {rate:5.2f} GiB/s"
                )
                manager.delete_topic(name)


def rolls() -> None:
    """800 appends of 1 MB, one every 3 ms over four partitions: each rolls a segment (0011)."""
    batch = encode_batch([bytes(1000)] * 990, timestamps_ms=1)
    for durability in ("disk", "fsync"):
        with tempfile.TemporaryDirectory() as root, DiskManager(root, now_ms=1) as manager:
            manager.create_topic("rolls", 4, TopicConfig({"durability": durability}))
            handlers = [manager.get_handler("rolls", partition) for partition in range(4)]
            took = []
            for turn in range(800):
                copy = memoryview(bytearray(batch))
                header = check_batch(copy)
                began = time.perf_counter()
                handlers[turn % 4].append(copy, header, turn * 3)
                took.append(time.perf_counter() - began)
                time.sleep(max(0.0, 0.003 - took[-1]))
            took.sort()
            missed = manager.statistics().rolls_unprepared
            print(
                f"{durability}: append p50 {statistics.median(took) * 1e6:5.0f} us, "
                f"p99 {took[792] * 1e6:5.0f} us, {missed} rolls found nothing made ahead"
            )


PARTS = {"verify": verify, "reads": reads, "blocks": blocks, "rolls": rolls}


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    print(f"in {Path(tempfile.gettempdir())}, best of {ROUNDS}")
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
