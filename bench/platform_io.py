"""What the platform's own calls gain a log: preallocation, direct writes, advice, sendfile.

`python -m bench.platform_io`; what was decided with its figures is in docs/decisions (0040, 0222).
Medians; runs of the ways alternate, so that a busy machine is busy for all of them.  TMPDIR must
lie on a disk.
"""

import ctypes
import mmap
import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from segbroker.protocol.checksums import xxh3_64
from segbroker.protocol.record_batch import encode_batch
from segbroker.segments.disk.posix import PosixStorage
from segbroker.segments.library.log import SegmentedLog
from segbroker.segments.settings.topic_config import TopicConfig

MIB = 1 << 20
BLOCK = 4096
ROUNDS = 9
BATCH_SIZE = len(encode_batch([bytes(1000)] * 62, timestamps_ms=1))
_LIBC = ctypes.CDLL(None, use_errno=True)


def micros(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    p99 = ordered[len(ordered) * 99 // 100]
    return f"p50 {statistics.median(ordered) * 1e6:7.0f} us, p99 {p99 * 1e6:7.0f} us"


# Preallocation


def growing(path: Path) -> int:
    """An empty file, as it is made ahead now."""
    return os.open(path, os.O_RDWR | os.O_CREAT)


def allocated(path: Path) -> int:
    """posix_fallocate: the extents are there, unwritten."""
    fd = growing(path)
    os.posix_fallocate(fd, 0, MIB)
    os.fsync(fd)
    return fd


def reserved(path: Path) -> int:
    """fallocate(FALLOC_FL_KEEP_SIZE): the same, the size stays 0, so recovery sees no zeros."""
    fd = growing(path)
    if _LIBC.fallocate(fd, 1, ctypes.c_long(0), ctypes.c_long(MIB)):
        raise OSError(ctypes.get_errno(), "fallocate")
    os.fsync(fd)
    return fd


def prefilled(path: Path) -> int:
    """Zeros written and synced: the extents are there, written."""
    fd = growing(path)
    os.pwrite(fd, bytes(MIB), 0)
    os.fsync(fd)
    return fd


WAYS = (growing, reserved, allocated, prefilled)


def many(root: Path, count: int) -> None:
    """One batch of 16 KiB into each of `count` files, then their syncs one after the other."""
    rounds: dict[str, list[float]] = {way.__name__: [] for way in WAYS}
    data = os.urandom(16 << 10)
    for _ in range(3):
        for way in WAYS:
            paths = [root / f"many-{i}" for i in range(count)]
            fds = [way(path) for path in paths]
            for turn in range(20):
                for fd in fds:
                    os.pwrite(fd, data, turn * len(data))
                began = time.perf_counter()
                for fd in fds:
                    os.fdatasync(fd)
                rounds[way.__name__].append(time.perf_counter() - began)
            for fd, path in zip(fds, paths, strict=True):
                os.close(fd)
                path.unlink()
    for name, seconds in rounds.items():
        print(f"sync of {count} files  {name:9}: {micros(seconds)}")


def preallocation(root: Path, batch_size: int, batches: int) -> None:
    """fdatasync after each batch of a segment; what making the file costs beside it."""
    ways = WAYS
    syncs: dict[str, list[float]] = {way.__name__: [] for way in ways}
    makes: dict[str, list[float]] = {way.__name__: [] for way in ways}
    data = os.urandom(batch_size)
    for round_ in range(ROUNDS):
        for way in ways:
            path = root / f"{way.__name__}-{round_}"
            began = time.perf_counter()
            fd = way(path)
            makes[way.__name__].append(time.perf_counter() - began)
            for i in range(batches):
                os.pwrite(fd, data, i * batch_size)
                began = time.perf_counter()
                os.fdatasync(fd)
                syncs[way.__name__].append(time.perf_counter() - began)
            os.close(fd)
            path.unlink()
    for name, seconds in syncs.items():
        made = statistics.median(makes[name]) * 1e6
        print(f"sync {batch_size:6} B {name:9}: {micros(seconds)}, making it {made:6.0f} us")


# Direct writes


def direct_writes(root: Path, group_size: int, groups: int) -> None:
    """A write and its fdatasync, as the WAL does them: into a file that was filled with zeros, each
    behind the one before; by way of the page cache, and past it in whole blocks of 4 KiB."""
    size = 64 * MIB
    aligned = memoryview(mmap.mmap(-1, group_size + 2 * BLOCK))
    data = os.urandom(group_size)
    took: dict[str, list[float]] = {"cached": [], "direct": []}
    for _ in range(ROUNDS):
        for way, seconds in took.items():
            path = root / way
            fd = growing(path)
            for position in range(0, size, MIB):
                os.pwrite(fd, bytes(MIB), position)
            os.fsync(fd)
            os.close(fd)
            fd = os.open(path, os.O_RDWR | (os.O_DIRECT if way == "direct" else 0))
            for n in range(min(groups, size // group_size - 1)):
                position = n * group_size
                began = time.perf_counter()
                if way == "cached":
                    os.pwrite(fd, data, position)
                else:
                    inside = position % BLOCK
                    aligned[inside : inside + group_size] = data
                    end = -(-(inside + group_size) // BLOCK) * BLOCK
                    os.pwrite(fd, aligned[:end], position - inside)
                os.fdatasync(fd)
                seconds.append(time.perf_counter() - began)
            os.close(fd)
            path.unlink()
    for way, seconds in took.items():
        print(f"write and sync {group_size:7} B {way}: {micros(seconds)}")


# Advice


def cold_read(paths: list[Path], advice: str, read_size: int) -> float:
    """Read files that are not in the page cache in order; MiB/s."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    buffer = memoryview(bytearray(read_size))
    began = time.perf_counter()
    for i, path in enumerate(paths):
        fd = os.open(path, os.O_RDONLY)
        if advice == "sequential":
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        elif advice == "willneed":
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)
        elif advice == "next" and i + 1 < len(paths):
            if not i:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)
            ahead = os.open(paths[i + 1], os.O_RDONLY)
            os.posix_fadvise(ahead, 0, 0, os.POSIX_FADV_WILLNEED)
            os.close(ahead)
        position = 0
        while count := os.preadv(fd, [buffer], position):
            xxh3_64(buffer[:count])
            position += count
        os.close(fd)
    return len(paths) * MIB / MIB / (time.perf_counter() - began)


def advice(root: Path) -> None:
    paths = [root / f"cold-{i}" for i in range(64)]
    for path in paths:
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.pwrite(fd, os.urandom(MIB), 0)
        os.fsync(fd)
        os.close(fd)
    for read_size in (64 << 10, MIB):
        rates: dict[str, list[float]] = {}
        for _ in range(ROUNDS):
            for way in ("none", "sequential", "willneed", "next"):
                rates.setdefault(way, []).append(cold_read(paths, way, read_size))
        for way, values in rates.items():
            print(
                f"cold read by {read_size >> 10:4} KiB, {way:10}: "
                f"{statistics.median(values):6.0f} MiB/s ({min(values):.0f}-{max(values):.0f})"
            )


def engine(root: Path) -> None:
    """The log itself, cold, read as a lane reads it: with the advice and on a disk without."""
    folder = f"{root}/log"
    config = TopicConfig({"durability": "disk"})
    advised, plain = PosixStorage(), PosixStorage()
    plain._platform.fadvise = {}
    with SegmentedLog.open(advised, folder, "t", config, now_ms=1) as log:
        for _ in range(64):
            for _ in range(16):
                log.append([os.urandom(1000)] * 62, now_ms=1)
        end = log.log_end_offset
    for read_size in (256 << 10, MIB):
        rates: dict[str, list[float]] = {}
        for _ in range(ROUNDS):
            for name, storage in (("plain", plain), ("advised", advised)):
                for path in Path(folder).glob("*.log"):
                    fd = os.open(path, os.O_RDONLY)
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                    os.close(fd)
                with SegmentedLog.open(storage, folder, "t", config, now_ms=1) as log:
                    offset = total = 0
                    began = time.perf_counter()
                    while offset < end:
                        found = log.read(offset, read_size)
                        total += len(found)
                        # One batch of 62 records after the other.
                        offset += len(found) // BATCH_SIZE * 62
                    rate = total / MIB / (time.perf_counter() - began)
                rates.setdefault(name, []).append(rate)
        for name, values in rates.items():
            print(
                f"log, cold, by {read_size >> 10:4} KiB, {name:7}: "
                f"{statistics.median(values):6.0f} MiB/s ({min(values):.0f}-{max(values):.0f})"
            )


# Sendfile


def fetches(root: Path, size: int) -> None:
    """Send a cached segment by `size` to a socket that is drained: CPU and wall per byte."""
    path = root / "sent"
    path.write_bytes(os.urandom(MIB))
    fd = os.open(path, os.O_RDONLY)
    buffer = memoryview(bytearray(size))

    def by_sendfile(sock: socket.socket, position: int) -> None:
        done = 0
        while done < size:
            done += os.sendfile(sock.fileno(), fd, position + done, size - done)

    def by_buffer(sock: socket.socket, position: int) -> None:
        os.preadv(fd, [buffer], position)
        sock.sendall(buffer)

    def verified(sock: socket.socket, position: int) -> None:
        os.preadv(fd, [buffer], position)
        for begin in range(0, size, 16 << 10):
            xxh3_64(buffer[begin : begin + (16 << 10)])
        sock.sendall(buffer)

    ways: tuple[Callable[[socket.socket, int], None], ...] = (by_sendfile, by_buffer, verified)
    rates: dict[str, list[tuple[float, float]]] = {way.__name__: [] for way in ways}
    for _ in range(ROUNDS):
        for way in ways:
            rates[way.__name__].append(_pump(way, size))
    for name, values in rates.items():
        wall = statistics.median(v[0] for v in values)
        cpu = statistics.median(v[1] for v in values)
        print(f"fetch {size >> 10:4} KiB {name:11}: {wall:6.0f} MiB/s, {cpu:6.0f} MiB per CPU-s")
    os.close(fd)


def _pump(way: Callable[[socket.socket, int], None], size: int) -> tuple[float, float]:
    total = 128 * MIB
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()

    def drain() -> None:
        sink = bytearray(MIB)
        while receiver.recv_into(sink):
            pass

    reader = threading.Thread(target=drain)
    reader.start()
    began, cpu = time.perf_counter(), time.thread_time()
    for i in range(total // size):
        way(sender, i * size % MIB)
    wall, cpu = time.perf_counter() - began, time.thread_time() - cpu
    sender.close()
    reader.join()
    receiver.close()
    return total / MIB / wall, total / MIB / cpu


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="segbroker-bench-") as folder:
        root = Path(folder)
        preallocation(root, 1 << 10, 100)
        preallocation(root, 16 << 10, 60)
        many(root, 8)
        for group_size in (300, 16 << 10, 128 << 10, MIB):
            direct_writes(root, group_size, 300)
        advice(root)
        engine(root)
        for size in (64 << 10, 256 << 10, MIB):
            fetches(root, size)


if __name__ == "__main__":
    main()
