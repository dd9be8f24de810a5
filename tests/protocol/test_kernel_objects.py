"""The kernel makes and reads Python objects: it neither leaks nor steals references."""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from segbroker.protocol import kernel
from segbroker.protocol.batch_layout import BatchFields
from segbroker.protocol.record_batch import Record, decode_batch, encode_batch

from .batches import NOW

if not kernel.KERNEL_IS_NATIVE:
    pytest.skip("built without a kernel", allow_module_level=True)

from segbroker.protocol import batch_native

# Large enough that neither small integers nor interned strings hide a miscount.
BATCH = encode_batch(
    [b"value-%d" % i if i % 5 else None for i in range(200)],
    keys=[b"key-%d" % i if i % 3 else None for i in range(200)],
    headers=[[(f"name-{i}", b"x" * 40), ("none", None)] if i % 2 else None for i in range(200)],
    timestamps_ms=[NOW + i // 2 for i in range(200)],
)


def work_decode() -> None:
    batch = decode_batch(BATCH)
    batch.records()
    batch.values()
    batch.keys()
    batch.headers()
    batch.columns()


VALUES: list[bytes | None] = [b"v" * 300, None] * 50
SECTIONS = [b"\0"] * 100
IMMORTAL = 1 << 30


def work_encode() -> None:
    batch_native.encode(VALUES, VALUES, SECTIONS, NOW, BatchFields(0, -1, -1, -1))


def work_refuse() -> None:
    with pytest.raises(TypeError):
        batch_native.encode([b"v", "v"], None, None, NOW, BatchFields(0, -1, -1, -1))  # type: ignore[list-item]


@pytest.mark.parametrize("work", [work_decode, work_encode, work_refuse])
def test_repeating_a_call_takes_no_more_memory(work: Callable[[], None]) -> None:
    work()
    # One leaked object per call would be 50 x 33 bytes at least, every time; what a thread of
    # another test takes meanwhile is not there every time.
    grown: list[int] = []
    while not grown or grown[-1] >= 1500:
        assert len(grown) < 5, f"{grown} bytes more after 50 calls each"
        grown.append(growth(work))


def growth(work: Callable[[], None]) -> int:
    """Bytes that 50 calls leave behind."""
    tracemalloc.start()
    try:
        for _ in range(5):
            work()
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(50):
            work()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before


@pytest.mark.parametrize("work", [work_decode, work_encode, work_refuse])
def test_shared_objects_keep_their_reference_counts(work: Callable[[], None]) -> None:
    work()
    # From Python 3.12 on None and () are immortal: their counts mean nothing, and a kernel that an
    # older Python has built changes them, which the interpreter allows for.
    things = [thing for thing in (None, (), Record, VALUES[0]) if sys.getrefcount(thing) < IMMORTAL]
    before = [sys.getrefcount(thing) for thing in things]
    for _ in range(1000):
        work()
    after = [sys.getrefcount(thing) for thing in things]
    for first, last in zip(before, after, strict=True):
        assert abs(last - first) < 100, (before, after)


def test_records_live_on_without_their_batch() -> None:
    records = decode_batch(BATCH).records()
    gc.collect()
    assert records[1] == Record(
        1, NOW, b"key-1", b"value-1", (("name-1", b"x" * 40), ("none", None))
    )
    assert records[199].timestamp_ms == NOW + 99
    assert not gc.is_tracked(records[1])
    assert hash(records[1]) == hash(tuple(records[1]))


def test_threads_encode_and_decode_side_by_side() -> None:
    expected = decode_batch(BATCH).records()

    def one(number: int) -> bool:
        values = [bytes([number]) * 2000] * 300
        batch = encode_batch(values, timestamps_ms=number)
        return decode_batch(batch).values() == values and decode_batch(BATCH).records() == expected

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(100)))
