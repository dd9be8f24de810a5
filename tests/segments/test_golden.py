"""The formats of released versions, byte for byte: what is stored is read for ever.

tests/golden/ holds the files of a small data directory as hexadecimal, one file per format.  They
are never written again: a changed format gets a new version and new files beside these.
"""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

from segbroker.protocol.record_batch import check_batch
from segbroker.segments.decisions import scan
from segbroker.segments.files.index import Block, decode_index
from segbroker.segments.files.manifest import Row, RowKind, decode_manifest, encode_manifest
from segbroker.segments.log.producers import KnownBatch, decode_producers
from segbroker.segments.metadata.committed import offsets_of
from segbroker.segments.metadata.control import apply_all, decode_event
from segbroker.segments.metadata.metadata import SETTLED, Ceiling, decode_metadata
from segbroker.segments.metadata.streams_groups import KeptMember, groups_in
from segbroker.segments.wal.frames import (
    FRAMES_BEGIN,
    Frame,
    FrameType,
    Header,
    decode_header,
    encode_frame,
    encode_header,
    header_of,
)
from segbroker.segments.wal.scanning import scan_file

GOLDEN = Path(__file__).parents[1] / "golden"


def golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / f"{name}.hex").read_text())


def test_an_index_of_version_1() -> None:
    index = decode_index(golden("index-1"), 0, 356)
    assert (index.base_offset, index.created_ms) == (0, 1_000)
    assert index.blocks == [Block(0, 0, 356, 2, 1_001, 5397568849843861751)]
    assert index.encode() == golden("index-1")
    assert index.matches(0, golden("segment-1"))


def test_a_segment_is_record_batches_and_nothing_else() -> None:
    found = scan(memoryview(golden("segment-1")), 0)
    assert [batch.position for batch in found.batches] == [0, 178]
    assert check_batch(golden("segment-1")[:178], stored=True).next_offset == 1


def test_a_manifest_of_version_1() -> None:
    manifest = decode_manifest(golden("manifest-1"))
    assert manifest is not None
    assert manifest.size == len(golden("manifest-1"))
    assert manifest.rows == [
        Row(RowKind.EPOCH),
        Row(RowKind.START),
        Row(RowKind.SEGMENT, 0, 0, 2, 356, 2, 1_001, 356),
        Row(RowKind.SEGMENT, 1, 2, 4, 356, 2, 1_003, 356),
        Row(RowKind.SEGMENT, 2, 4, 6, 356, 2, 1_005, 356),
        Row(RowKind.CHECKPOINT, 3, end_offset=8, size=356),
    ]
    assert encode_manifest(1_000, manifest.rows) == golden("manifest-1")


def test_a_snapshot_of_producers_of_version_1() -> None:
    decoded = decode_producers(golden("producers-1"))
    assert decoded is not None
    table, end_offset = decoded
    assert end_offset == 7
    assert table.encode(7) == golden("producers-1")
    assert table._producers[9].batches[-1] == KnownBatch(4, 1, 5, 1_234)
    owned = table.encode(7, owner=0x1234_0000_0000_0000)
    assert owned[6:8] == b"\x00\x01", "never 0, which is: nobody says"
    assert decode_producers(owned, 0x5678) is None
    for owner in (0, 0x1234_0000_0000_0000):
        assert decode_producers(owned, owner) is not None


def test_a_metadata_snapshot_of_version_1() -> None:
    metadata = decode_metadata(golden("metadata-1"), "golden")
    assert metadata.cluster_id == "AAECAwQFBgcICQoLDA0ODw"
    assert (metadata.next_producer_id, metadata.epoch_floor) == (1_000, 3)
    assert metadata.retired == {"old": 2}
    (topic,) = metadata.topics.values()
    assert (topic.name, topic.partitions, topic.epoch) == ("flights", 4, 1)
    assert topic.topic_id.hex == "00112233445546778899aabbccddeeff"
    assert topic.config.overrides == {"durability": "disk", "segment.bytes": "4096"}
    assert (metadata.seq, metadata.boot) == (0, SETTLED)
    assert dict(metadata.ceilings) == {topic.topic_id: {}}


def test_a_metadata_snapshot_of_version_2() -> None:
    metadata = decode_metadata(golden("metadata-2"), "golden")
    assert (metadata.cluster_id, metadata.seq) == ("AAECAwQFBgcICQoLDA0ODw", 42)
    assert (metadata.boot_id, metadata.boot) == ("5a7c3f52-0000-4000-8000-000000000001", 4)
    flights, log = metadata.topics.values()
    assert (flights.topic_id.hex, log.epoch) == ("00112233445546778899aabbccddeeff", 3)
    assert dict(metadata.ceilings) == {
        flights.topic_id: {0: Ceiling(1_048_576, 4), 3: Ceiling(45, SETTLED)},
        log.topic_id: {},
    }
    assert dict(metadata.epochs) == {flights.topic_id: {3: 7}, log.topic_id: {}}
    assert metadata.sections == {"cursors": {"a": [1, b"x"]}}
    assert metadata.encode() == golden("metadata-2")


def test_offsets_that_were_committed_with_a_time_of_their_own_and_without() -> None:
    plain, timed = (decode_event(golden(f"offsets-committed-{n}")) for n in (1, 2))
    assert [event.encode() for event in (plain, timed)] == [
        golden("offsets-committed-1"),
        golden("offsets-committed-2"),
    ]
    topic_id = bytes.fromhex("00112233445546778899aabbccddeeff")
    # As a snapshot had it before there were such times.
    before = {"groups": {"g": {"flights": [topic_id, {"2": [5, -1, "", 9]}]}}}
    state = replace(decode_metadata(golden("metadata-2"), "golden"), sections=before, seq=6)
    after = apply_all(state, [plain, timed])
    assert after.sections["groups"]["g"]["flights"] == [
        topic_id,
        {
            "0": (7, -1, "m", 1_700_000_000_000),
            "1": (8, -1, "m", 1_700_000_000_000, 1_700_086_400_000),
            "2": [5, -1, "", 9],
        },
    ]
    stands = offsets_of(after.sections["groups"], "g", "flights", UUID(bytes=topic_id))
    assert [stands.at(one).expire_ms for one in range(3)] == [None, 1_700_086_400_000, None]
    assert decode_metadata(after.encode(), "golden").encode() == after.encode()


def test_where_share_groups_stand() -> None:
    names = ("share-states-1", "share-offsets-set-1", "share-offsets-forgotten-1")
    events = [decode_event(golden(name)) for name in names]
    assert [event.encode() for event in events] == [golden(name) for name in names]
    topic_id = bytes.fromhex("00112233445546778899aabbccddeeff")
    known = decode_metadata(golden("metadata-2"), "golden")
    (meta,) = [replace(meta, name="flights") for meta in list(known.topics.values())[:1]]
    before = {"share_groups": {"h": {"flights": [topic_id, {"0": [1, []]}]}}}
    state = replace(
        known.with_topics([replace(meta, topic_id=UUID(bytes=topic_id))]), sections=before, seq=6
    )
    after = apply_all(state, events)
    assert after.sections["share_groups"] == {
        "g": {
            "flights": [
                topic_id,
                {"0": [5, [[7, 9, 2, 1], [11, 11, 0, 2], [1 << 40, 1 << 40, 4, 5]]], "1": [3, []]},
            ]
        }
    }
    assert decode_metadata(after.encode(), "golden").sections == after.sections


def test_a_streams_group_its_topology_and_its_members() -> None:
    names = ("streams-group-1", "streams-group-step-1", "streams-group-forgotten-1")
    events = [decode_event(golden(name)) for name in names]
    assert [event.encode() for event in events] == [golden(name) for name in names]
    began, stepped, forgotten = events
    state = replace(decode_metadata(golden("metadata-2"), "golden"), sections={}, seq=6)
    state = apply_all(state, [began])
    ((group, kept),) = groups_in(state.sections["streams_groups"])
    assert (group, kept.epoch, kept.assignment_epoch, kept.is_sound) == ("count", 3, 3, True)
    again = ["by-word", 4, 1, [["segment.bytes", "4096"]]]
    log = ["counts-changelog", 0, 0, [["cleanup.policy", "compact"]]]
    read = ["lines", "more-lines"]
    assert kept.topology == [
        1,
        [["0", read, ["by-word"], [], [], [read]], ["1", [], [], [again], [log], []]],
    ]

    def tasks(*names: str) -> frozenset[tuple[str, int]]:
        return frozenset((name[0], int(name[2:])) for name in names)

    halves = tasks("0 0", "0 1", "1 0", "1 1"), tasks("0 2", "0 3", "1 2", "1 3")
    none = tasks()
    says = ["app-1", "10.0.0.7", "r1", 10_000, 1, "p1", ["one.example", 8080], [["zone", "a"]]]
    assert dict(kept.members) == {
        "one": KeptMember(
            says,
            2,
            0,
            "revoking",
            (halves[0], none),
            (halves[1], none),
            (halves[0], tasks("1 2", "1 3")),
            dict.fromkeys(halves[0] | halves[1], 2),
        ),
        "two": KeptMember(
            ["app-2", "10.0.0.8", None, 10_000, 1, "p2", None, []],
            3,
            0,
            "waiting",
            (none, tasks("1 0", "1 1")),
            (none, none),
            (halves[1], tasks("1 0", "1 1")),
            {},
        ),
    }
    state = apply_all(state, [stepped])
    ((_, after),) = groups_in(state.sections["streams_groups"])
    assert (after.epoch, after.assignment_epoch, after.topology) == (4, 4, kept.topology)
    assert dict(after.members) == {
        "one": KeptMember(
            says,
            3,
            2,
            "revoking",
            (halves[0], none),
            (none, tasks("1 2", "1 3")),
            (halves[0] | halves[1], none),
            dict.fromkeys(halves[0], 2),
        )
    }
    assert decode_metadata(state.encode(), "golden").sections == state.sections
    assert not apply_all(state, [forgotten]).sections.get("streams_groups")


def test_a_wal_file_of_version_1() -> None:
    # The zeros between header and frames are not stored.
    stored = golden("wal-1")
    header = decode_header(stored)
    assert header is not None
    assert (header.shard, header.size, header.sequence) == (0, 8192, 0)
    assert encode_header(header) == stored[:40]
    data = stored[:40] + bytes(FRAMES_BEGIN - 40) + stored[40:]
    scanned = scan_file(memoryview(data), header)
    topic = bytes.fromhex("00112233445546778899aabbccddeeff")
    assert [frame._replace(payload=bytes(frame.payload)) for frame in scanned.frames] == [
        Frame(FrameType.BATCHES, topic, 3, 0, 0, 0, 1_000, golden("segment-1"), 0, 0),
        Frame(FrameType.END, topic, 1, 2, 4096, 77, 0, b"", 1, 0),
        Frame(FrameType.CONTROL, payload=b"event", lsn=2, ordinal=1),
        Frame(FrameType.BARRIER, topic, 3, lsn=3),
    ]
    assert scanned.end == FRAMES_BEGIN + len(stored) - 40


def test_a_wal_file_of_version_2() -> None:
    # The zeros between header and frames are not stored.
    stored = golden("wal-2")
    header = decode_header(stored)
    assert header == Header(0, 8192, 5, 0x0123_4567_89AB_CDEF, 2)
    assert encode_header(header) == stored[:40]
    data = stored[:40] + bytes(FRAMES_BEGIN - 40) + stored[40:]
    scanned = scan_file(memoryview(data), header)
    topic = bytes.fromhex("00112233445546778899aabbccddeeff")
    batches = golden("segment-1")
    assert [frame._replace(payload=bytes(frame.payload)) for frame in scanned.frames] == [
        Frame(FrameType.BATCHES, topic, 3, 0, 0, 0, 1_000, batches, 0, 0, end_offset=2),
        Frame(FrameType.END, topic, 1, 2, 4096, 77, 0, b"", 1, 0, end_offset=77),
        Frame(FrameType.CONTROL, payload=b"event", lsn=2, ordinal=1),
        Frame(FrameType.BARRIER, topic, 3, lsn=3, flags=1),
    ]


def test_a_wal_file_of_version_3() -> None:
    # The zeros between header and frames are not stored.
    stored = golden("wal-3")
    header = decode_header(stored)
    assert header == Header(0, 8192, 6, 0x0123_4567_89AB_CDEF, 3)
    assert encode_header(header) == stored[:40]
    data = stored[:40] + bytes(FRAMES_BEGIN - 40) + stored[40:]
    scanned = scan_file(memoryview(data), header)
    topic = bytes.fromhex("00112233445546778899aabbccddeeff")
    batches = golden("segment-1")
    assert [frame._replace(payload=bytes(frame.payload)) for frame in scanned.frames] == [
        Frame(FrameType.END, topic, 1, 2, 4096, 77, end_offset=77, flags=3),
        Frame(FrameType.BATCHES, topic, 3, 0, 0, 0, 1_000, batches, 1, 1, 2, end_offset=2),
        Frame(FrameType.CONTROL, payload=b"event", lsn=2, ordinal=2, flags=2),
        Frame(FrameType.MARK, lsn=3),
        Frame(FrameType.BARRIER, topic, 3, lsn=4),
    ]
    parts = [encode_frame(f, f.lsn, f.ordinal, header.salt, f.flags) for f in scanned.frames]
    assert b"".join(part for frame in parts for part in frame) == stored[40:]


def test_a_wal_file_of_version_4() -> None:
    # Zeros between header and frames and behind these are not stored, nor is the last header.
    stored = golden("wal-4")
    header = decode_header(stored)
    assert header == Header(0, 8192, 7, 0x0123_4567_89AB_CDEF, 4)
    assert encode_header(header) == stored[:40]
    data = stored[:40] + bytes(FRAMES_BEGIN - 40) + stored[40:]
    data = data.ljust(8192 - 40, b"\0") + stored[:40]
    assert header_of(bytes(FRAMES_BEGIN) + data[FRAMES_BEGIN:]) == header
    scanned = scan_file(memoryview(data), header)
    topic = bytes.fromhex("00112233445546778899aabbccddeeff")
    batches = golden("segment-1")
    assert [frame._replace(payload=bytes(frame.payload)) for frame in scanned.frames] == [
        Frame(FrameType.GIVEN_UP, segment=6, position=4224, base_offset=3, end_offset=3, lsn=5),
        Frame(FrameType.BATCHES, topic, 3, 0, 0, 0, 1_000, batches, 6, 1, 2, end_offset=2),
        Frame(FrameType.CONTROL, payload=b"event", lsn=7, ordinal=2, flags=2),
        Frame(FrameType.MARK, lsn=8),
        Frame(FrameType.END, topic, 1, 2, 4096, 77, end_offset=77, lsn=9),
        Frame(FrameType.BARRIER, topic, 3, lsn=10, ordinal=1),
        Frame(FrameType.KEPT, partition=5, base_offset=5, end_offset=5, lsn=11, ordinal=2),
    ]
    parts = [encode_frame(f, f.lsn, f.ordinal, header.salt, f.flags) for f in scanned.frames]
    assert b"".join(part for frame in parts for part in frame) == stored[40:]
