"""What docs/formats.md says of checksums, owners and tags, held against the files of a directory.

Nothing of the engine decodes here: who has the page alone reads the same.  The fields themselves
are compared with the structs in tests/protocol/test_formats_page.py.
"""

import struct

import msgpack
import pytest
import xxhash

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file

from .tools import SMALL, append, batch_of, manager_on

FOLDER = "/data/topics/t/partition_1/t_partition_1"
Frame = tuple[int, bytes]


def x(data: bytes, seed: int = 0) -> int:
    return xxhash.xxh3_64_intdigest(data, seed)


def u16(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 2], "big")


def u32(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 4], "big")


def u64(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 8], "big")


def content(disk: MemoryStorage, path: str) -> bytes:
    return bytes(read_file(disk, path))


def low(value: int) -> int:
    """The low 16 bits, 1 if they are 0."""
    return value & 0xFFFF or 1


def batches(data: bytes) -> list[bytes]:
    """Those of a segment, or of a payload."""
    found = []
    while data:
        size = 12 + u32(data, 8)
        found.append(data[:size])
        data = data[size:]
    return found


def frames(data: bytes) -> list[Frame]:
    """Type and payload of each frame, all of whose checksums are right."""
    salt, position = u64(data, 24), 4096
    found: list[Frame] = []
    while data[position : position + 4] == b"SBWF":
        size = u32(data, position + 4)
        frame = data[position : position + size]
        trailer, sums = frame[-56:-8], (u64(frame, size - 64), u64(frame, size - 8))
        assert sums == (x(frame[:-64], salt), x(trailer, salt))
        assert trailer[:4] == b"SBWT"
        # length, type, flags, ordinal; topic id; partition; lsn: the frame's own.
        assert trailer[4:12] == frame[4:12]
        assert trailer[12:28] == frame[24:40]
        assert trailer[28:32] == frame[12:16]
        assert trailer[40:] == frame[16:24]
        assert u64(frame, 16) == u64(data, 4096 + 16) + len(found), "lsns have no hole"
        kind, payload, end_offset = frame[8], frame[64:-64], struct.unpack(">q", trailer[32:40])[0]
        if kind == 1:
            last = batches(payload)[-1]
            assert end_offset == u64(last, 0) + u32(last, 23) + 1
        else:
            assert end_offset == (u64(frame, 48) if kind == 4 else -1)
        found.append((kind, payload))
        position += size
    return found


@pytest.fixture
def disk() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
def manager(disk: MemoryStorage) -> DiskManager:
    """With a partition of sealed segments, of an idempotent producer."""
    manager = manager_on(disk)
    manager.create_topic("t", 2, SMALL)
    handler = manager.get_handler("t", 1)
    for n in range(12):
        append(handler, batch_of(b"v" * 100, producer=(9, 0, n)))
    manager.housekeeping(1_000, 1_000)
    return manager


def test_the_write_ahead_log(disk: MemoryStorage, manager: DiskManager) -> None:
    data = content(disk, "/data/wal/shard-00/wal-0.log")
    header = data[:40]
    assert header == data[2048:2088] == data[-40:]
    assert (u32(header, 12), u64(header, 32)) == (len(data), x(header[:32]))
    assert u16(header, 6) == low(x(manager.cluster_id.encode()))
    found = frames(data)
    assert {kind for kind, _ in found} >= {1, 3}
    events = [msgpack.unpackb(payload) for kind, payload in found if kind == 3]
    assert [one["kind"] for one in events if one.get("name") == "t"] == ["topic_created"]
    logged = content(disk, f"{FOLDER}_segment_0.log")
    written = b"".join(payload for kind, payload in found if kind == 1)
    assert written[: len(logged)] == logged, "byte for byte as in the segment"


def test_the_files_of_a_partition(disk: MemoryStorage, manager: DiskManager) -> None:
    topic_id = manager.topics["t"].topic_id.bytes
    manager.close()
    manifest = content(disk, f"{FOLDER}.manifest")
    owner = x(topic_id + (1).to_bytes(4, "big")) or 1
    assert (u64(manifest, 16), u64(manifest, 24)) == (owner, x(manifest[:24]))
    rows = [manifest[at : at + 64] for at in range(32, len(manifest), 64)]
    assert all(u64(row, 56) == x(row[:56]) for row in rows)
    sealed = [row for row in rows if row[0] == 1]
    assert len(sealed) > 2
    for row in sealed:
        number, tag = u64(row, 8), u16(row, 2)
        logged = content(disk, f"{FOLDER}_segment_{number}.log")
        held = batches(logged)
        assert tag == low(x(b"".join(x(one).to_bytes(8, "big") for one in held)))
        assert (u64(row, 32), u32(row, 40)) == (len(logged), len(held))
        assert (u64(row, 16), u64(row, 24)) == (u64(held[0], 0), u64(held[-1], 0) + 1)
        index = content(disk, f"{FOLDER}_segment_{number}.index")
        assert (u16(index, 6), u64(index, 8), u64(index, 24)) == (tag, u64(row, 16), x(index[:24]))
        for entry in (index[at : at + 32] for at in range(32, len(index), 32)):
            block = logged[u32(entry, 4) : u32(entry, 4) + u32(entry, 8)]
            assert u64(entry, 24) == x(block + entry[:24])
    producers = content(disk, f"{FOLDER}.producers")
    assert (u16(producers, 6), u64(producers, 8), u32(producers, 16)) == (low(owner), 12, 1)
    assert len(producers) == 24 + 144 + 8
    assert u64(producers, len(producers) - 8) == x(producers[:-8])
    # The last five batches of producer 9: first sequence, delta, offset.
    assert (u64(producers, 24), u16(producers, 42)) == (9, 5)
    five = [struct.unpack_from(">iiq", producers, 48 + 24 * n) for n in range(5)]
    assert five == [(n, 0, n) for n in range(7, 12)]


def test_the_metadata_and_the_clock(disk: MemoryStorage, manager: DiskManager) -> None:
    topic_id, cluster_id = manager.topics["t"].topic_id.bytes, manager.cluster_id
    manager.close()
    names = disk.listdir("/data/meta")
    newest = max(names, key=lambda name: int(name.removesuffix(".msgpack").split("-")[1]))
    snapshot = content(disk, f"/data/meta/{newest}")
    assert (u64(snapshot, 8), u64(snapshot, 16)) == (len(snapshot) - 24, x(snapshot[24:]))
    known = msgpack.unpackb(snapshot[24:])
    assert known["cluster_id"] == cluster_id
    assert [(topic["name"], topic["id"]) for topic in known["topics"]] == [("t", topic_id)]
    assert [topic_id, 1, 12, 0] in known["ceilings"], "closed in order"
    assert newest.removesuffix(".msgpack") in disk.listdir("/data/witness")
    clock = content(disk, "/data/clock")
    assert u64(clock, 8) == x(clock[:8])
