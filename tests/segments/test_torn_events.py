"""Topics made by one request, through the manager: what a power cut or a bad disk does to them."""

from collections.abc import Iterator

import pytest

from segbroker.protocol.record_batch import check_batch, gap_reason, iter_batches, read_header
from segbroker.segments.directory.manager import DiskManager, NewTopic
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import PAGE, read_file
from segbroker.segments.names import partition_paths
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.files import list_files
from segbroker.segments.wal.frames import FRAMES_BEGIN, header_of
from segbroker.segments.wal.journal import WalConfig
from segbroker.segments.wal.scanning import scan_file

from .tools import batch_of

DISK = TopicConfig({"durability": "disk"})
NAMES = [f"topic-{number}-{'x' * 80}" for number in range(30)]
WAL = WalConfig(file_bytes=1 << 16, shard_bytes=4 << 16)
FOLDER = "/data/wal/shard-00"


def path_on(disk: MemoryStorage) -> str:
    """The file in use."""
    return f"{FOLDER}/wal-{list_files(disk, FOLDER)['wal'][0]}.log"


def manager_on(disk: MemoryStorage) -> DiskManager:
    manager = DiskManager("/data", storage=disk, flushers=0, wal=WAL, now_ms=1_000)
    manager.open()
    return manager


@pytest.fixture(scope="module")
def wal() -> tuple[MemoryStorage, bytes, int, int]:
    """A disk on which topic `d` was closed in order and then all others were made, by one request;
    its WAL, and where the events of these and their MARK begin."""
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("d", 1, DISK)
    batch = memoryview(bytearray(batch_of(b"record")))
    manager.get_handler("d", 0).append(batch, check_batch(batch), 1_000)
    manager.close()
    manager = manager_on(disk)
    made = manager.create_topics([NewTopic(name, 1, DISK) for name in NAMES])
    assert len(made) == len(NAMES)
    disk = disk.after_power_cut()
    content = bytes(read_file(disk, path_on(disk)))
    header = header_of(content)
    assert header is not None
    positions = scan_file(memoryview(content), header).positions
    return disk, content, positions[-1 - len(NAMES)], positions[-1]


def opened(wal: tuple[MemoryStorage, bytes, int, int], content: bytes) -> DiskManager:
    disk = wal[0].after_power_cut()
    disk.open(path_on(disk)).pwrite(content, 0)
    return manager_on(disk)


def gaps(manager: DiskManager) -> list[object]:
    """The reasons of those in topic `d`."""
    manager.get_handler("d", 0)
    folder = partition_paths("/data", "d", 0).folder
    logs = [name for name in manager.storage.listdir(folder) if name.endswith(".log")]
    contents = [read_file(manager.storage, f"{folder}/{name}") for name in logs]
    headers = (read_header(batch) for each in contents for batch in iter_batches(each))
    return [reason for header in headers if (reason := gap_reason(header)) is not None]


def torn(content: bytes, begin: int, end: int) -> Iterator[bytes]:
    """The write [begin, end) without each of its pages, and with each of them alone."""
    old = content[:begin].ljust(len(content), b"\0")
    for low in range(begin // PAGE * PAGE, end, PAGE):
        low, high = max(low, begin), min(low + PAGE, end)
        yield content[:low] + old[low:high] + content[high:end].ljust(len(content) - high, b"\0")
        yield old[:low] + content[low:high] + old[high:]


def test_topics_that_were_torn_cost_no_partition_a_gap(
    wal: tuple[MemoryStorage, bytes, int, int],
) -> None:
    _, content, begin, mark = wal
    assert mark // PAGE - FRAMES_BEGIN // PAGE >= 1
    for left in torn(content, begin, mark):
        manager = opened(wal, left)
        assert not {"wal_damaged", "wal_torn"} & manager.report.counts.keys()
        assert not gaps(manager)
        there = [name for name in NAMES if name in manager.topics]
        assert there == NAMES[: len(there)], "those in front of the hole, or none"


def test_damage_to_topics_that_were_made_is_told_or_costs_nothing(
    wal: tuple[MemoryStorage, bytes, int, int],
) -> None:
    _, content, begin, mark = wal
    end = mark + 200
    told = 0
    places = [(place, 1) for place in range(begin, end, 61)]
    places += [(place, 512) for place in range(begin // 512 * 512 + 512, mark // 512 * 512, 512)]
    for place, size in places:
        damaged = bytes(byte ^ 0x10 for byte in content[place : place + size])
        manager = opened(wal, content[:place] + damaged + content[place + size :])
        is_whole = sorted(manager.topics) == sorted(["d", *NAMES])
        assert is_whole or ("wal_damaged" in manager.report.counts and gaps(manager))
        told += not is_whole
    assert told > len(places) // 2
