"""A snapshot of very much metadata is packed piece by piece: msgpack lets no other thread run."""

from uuid import UUID

import msgpack
import pytest

from segbroker.protocol.vendor import PIECE_ITEMS, pack
from segbroker.segments.metadata import committed
from segbroker.segments.metadata.control import Event, apply_all
from segbroker.segments.metadata.metadata import HEADER_SIZE, Metadata, decode_metadata
from segbroker.segments.metadata.wide_rows import plain_rows

TOPIC_ID = UUID(int=7)


def _items(value: object) -> int:
    if not isinstance(value, (dict, list, tuple)):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return len(value) + sum(map(_items, inner))


def _committed(group: str, topics: int, partitions: int) -> Event:
    rows = [
        committed.CommitRow(f"t-{topic}", TOPIC_ID, n, n, 0, "").pack()
        for topic in range(topics)
        for n in range(partitions)
    ]
    return Event(1, committed.COMMITTED, {"group": group, "at": 5, "rows": rows})


def test_no_piece_of_a_snapshot_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many groups, one of many topics, and one of many partitions: the event loop stood still for
    half a second of each million offsets, once a minute."""
    lengths: list[int] = []

    class Counting(msgpack.Packer):  # type: ignore[misc]
        def pack(self, value: object) -> bytes:
            lengths.append(_items(value))
            return bytes(super().pack(value))

    events = [_committed(f"g-{n}", 2, 2) for n in range(2_000)]
    events += [_committed("topics", 2_000, 1), _committed("partitions", 1, 5_000)]
    state = apply_all(Metadata("cluster"), events)
    whole = {committed.SECTION: plain_rows(state.sections[committed.SECTION])}
    with monkeypatch.context() as patched:
        patched.setattr(msgpack, "Packer", Counting)
        data = state.encode()
    assert max(lengths) <= PIECE_ITEMS
    assert sum(lengths) >= sum(map(_items, whole.values()))
    assert decode_metadata(data, "snapshot").encode() == data
    assert data[HEADER_SIZE:].endswith(pack({"sections": whole})[1:])
