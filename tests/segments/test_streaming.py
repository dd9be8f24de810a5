"""A byte stream goes into a log wholly or not at all, or up to where the error says."""

import asyncio
import errno
import random
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import trio

from segbroker.protocol.compression import Codec
from segbroker.protocol.record_batch import read_header
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.posix import PosixStorage
from segbroker.segments.disk.storage import Buffer, Storage
from segbroker.segments.errors import (
    BatchTooLarge,
    LogClosed,
    LogReserved,
    OffsetOutOfRange,
    PartitionReadOnly,
    StorageError,
    StreamFailed,
    StreamTooLarge,
)
from segbroker.segments.library.log import SegmentedLog
from segbroker.segments.library.streaming import (
    FixedSize,
    Lines,
    OnFailure,
    StreamAppend,
    WholeStream,
    append_stream,
    append_stream_async,
)
from segbroker.segments.settings.topic_config import TopicConfig

from .crashing import CrashingStorage, Killed
from .tools import SMALL, values_of

OLD: list[bytes | None] = [b"old 0", b"old 1"]
PIECES = [b"line %02d of the stream\n" % i for i in range(40)]
"""By 4 records a batch of 173 bytes, two of them a segment: 10 batches."""
LINES: list[bytes | None] = [piece[:-1] for piece in PIECES]


class Broken(Exception):
    """What the source of a stream fails with."""


Opener = Callable[[], SegmentedLog]


@pytest.fixture(params=["posix", "memory"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens one log, on either disk, again and again."""
    storage: Storage = PosixStorage() if request.param == "posix" else MemoryStorage()
    folder = str(tmp_path / "log") if request.param == "posix" else "/log"
    return lambda: SegmentedLog.open(storage, folder, "t", SMALL, now_ms=1)


def on(storage: Storage, **settings: str) -> SegmentedLog:
    config = TopicConfig({**SMALL.overrides, **settings})
    return SegmentedLog.open(storage, "/log", "t", config, now_ms=1)


def with_old(log: SegmentedLog) -> SegmentedLog:
    for value in OLD:
        log.append([value], now_ms=1)
    return log


def failing_at(piece: int) -> Iterator[bytes]:
    yield from PIECES[:piece]
    raise Broken


async def slowly(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        await trio.lowlevel.checkpoint()
        yield piece


def batch_ends(log: SegmentedLog) -> list[int]:
    return [read_header(batch).next_offset for batch in log.batches()]


# What goes in


def test_a_stream_of_lines_becomes_records_in_order(reopen: Opener) -> None:
    with with_old(reopen()) as log:
        appended = append_stream(log, PIECES, Lines(), now_ms=7, batch_records=4)
        assert appended == (2, 42, 40 * 21)
        assert values_of(log) == OLD + LINES
        assert log.append([b"next"], now_ms=8) == 42
    with reopen() as log:
        assert values_of(log) == [*OLD, *LINES, b"next"]
        assert log.offset_for_timestamp(7) == (2, 7)


def test_a_batch_is_full_at_so_many_bytes_or_records() -> None:
    with on(MemoryStorage(), **{"segment.bytes": "4096"}) as log:
        append_stream(log, [b"ab" * 5], FixedSize(2), now_ms=1, batch_records=2)
        assert batch_ends(log) == [2, 4, 5]
        append_stream(log, [b"x" * 240], FixedSize(60), now_ms=1, batch_bytes=250)
        assert batch_ends(log) == [2, 4, 5, 7, 9]
        assert all(len(batch) <= 250 for batch in log.batches())


def test_a_value_larger_than_a_batch_is_a_batch_of_its_own() -> None:
    with on(MemoryStorage()) as log:
        append_stream(log, [b"a\n", b"x" * 300, b"\nb\n"], Lines(), now_ms=1, batch_bytes=100)
        assert batch_ends(log) == [1, 2, 3]


def test_a_whole_stream_is_one_record(reopen: Opener) -> None:
    with reopen() as log:
        assert append_stream(log, PIECES[:15], WholeStream(), now_ms=1) == (0, 1, 15 * 22)
        assert append_stream(log, [], WholeStream(), now_ms=1) == (1, 2, 0)
        assert values_of(log) == [b"".join(PIECES[:15]), b""]


def test_a_stream_without_values_appends_nothing(reopen: Opener) -> None:
    with reopen() as log:
        assert append_stream(log, [], Lines(), now_ms=1) == (0, 0, 0)
        assert append_stream(log, [b""], FixedSize(3), now_ms=1) == (0, 0, 0)
        assert log.append([b"first"], now_ms=1) == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_are_compressed_when_asked(codec: Codec) -> None:
    with on(MemoryStorage()) as log:
        append_stream(log, PIECES, Lines(), now_ms=1, codec=codec)
        assert values_of(log) == LINES
        assert {read_header(batch).codec for batch in log.batches()} == {codec}


def test_a_batch_that_compression_makes_too_large_is_stored_as_it_is() -> None:
    # 440 bytes that do not compress: with the frame of gzip more than a segment, without it less.
    noise = random.Random(1).randbytes(440)
    with on(MemoryStorage()) as log:
        append_stream(log, [noise], WholeStream(), now_ms=1, codec=Codec.GZIP)
        assert values_of(log) == [noise]
        assert [read_header(batch).codec for batch in log.batches()] == [Codec.NONE]


async def test_an_async_stream_on_trio(reopen: Opener) -> None:
    with with_old(reopen()) as log:
        appended = await append_stream_async(log, slowly(iter(PIECES)), Lines(), now_ms=1)
        assert appended == (2, 42, 40 * 21)
        appended = await append_stream_async(
            log, slowly(iter(PIECES)), Lines(), now_ms=1, lane=trio.to_thread.run_sync
        )
        assert values_of(log) == OLD + LINES + LINES


def test_an_async_stream_on_asyncio(reopen: Opener) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in PIECES:
            await asyncio.sleep(0)
            yield piece

    with with_old(reopen()) as log:
        asyncio.run(append_stream_async(log, pieces(), Lines(), now_ms=1, lane=asyncio.to_thread))
        assert values_of(log) == OLD + LINES


def test_an_async_stream_that_never_waits_needs_no_event_loop() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in PIECES:
            yield piece

    with on(MemoryStorage()) as log:
        waiting = append_stream_async(log, pieces(), Lines(), now_ms=1)
        with pytest.raises(StopIteration) as stopped:
            waiting.send(None)
        assert stopped.value.value == (0, 40, 40 * 21)


# What readers see


def test_a_stream_that_was_appended_is_durable() -> None:
    disk = MemoryStorage()
    log = with_old(on(disk))
    append_stream(log, PIECES, Lines(), now_ms=1, batch_records=4)
    with on(disk.after_power_cut()) as again:
        assert values_of(again) == OLD + LINES


def test_with_keep_what_readers_see_is_durable() -> None:
    disk = MemoryStorage()
    log = with_old(on(disk))

    def watched() -> Iterator[bytes]:
        for piece in PIECES:
            yield piece
            with on(disk.after_power_cut()) as again:
                assert again.log_end_offset >= log.high_watermark

    append_stream(log, watched(), Lines(), now_ms=1, batch_records=4, on_failure=OnFailure.KEEP)


def test_readers_see_nothing_of_a_stream_before_its_end() -> None:
    with with_old(on(MemoryStorage())) as log:

        def watched() -> Iterator[bytes]:
            for piece in PIECES:
                yield piece
                assert log.high_watermark == 2
                assert values_of(log) == OLD
                assert len(log.read(2)) == 0
                assert log.offset_for_timestamp(5) is None
                with pytest.raises(OffsetOutOfRange, match=r"offset 3 outside \[0, 2\)"):
                    log.read(3)
            assert log.log_end_offset > 30

        append_stream(log, watched(), Lines(), now_ms=5, batch_records=4)
        assert log.high_watermark == 42
        assert values_of(log) == OLD + LINES


def test_with_keep_readers_see_batch_after_batch() -> None:
    seen = []
    with with_old(on(MemoryStorage())) as log:

        def watched() -> Iterator[bytes]:
            for piece in PIECES:
                yield piece
                seen.append(log.high_watermark)

        append_stream(log, watched(), Lines(), now_ms=5, batch_records=4, on_failure=OnFailure.KEEP)
    assert seen[:10] == [2, 2, 2, 2, 6, 6, 6, 6, 10, 10]


def test_a_reader_under_way_goes_on_over_a_rollback() -> None:
    with on(MemoryStorage()) as log:
        for i in range(100):
            log.append([b"%d" % i], now_ms=1)
        reader = log.batches()
        first = bytes(next(reader))
        with pytest.raises(StreamFailed):
            append_stream(log, failing_at(20), Lines(), now_ms=1, batch_records=4)
        assert 1 + sum(1 for _ in reader) == 100
        assert read_header(first).base_offset == 0


def test_a_log_has_one_writer_at_a_time() -> None:
    with with_old(on(MemoryStorage())) as log:
        with StreamAppend(log, Lines(), now_ms=1) as append:
            append.feed(b"one\n")
            for write in (
                lambda: log.append([b"x"], now_ms=1),
                lambda: log.truncate(0, now_ms=1),
                lambda: log.expire(9, now_ms=1),
                lambda: append_stream(log, PIECES, Lines(), now_ms=1),
            ):
                with pytest.raises(LogReserved, match="writer that began at offset 2"):
                    write()
        assert values_of(log) == [*OLD, b"one"]
        assert log.append([b"x"], now_ms=1) == 3


# When the stream fails


@pytest.mark.parametrize("piece", range(len(PIECES) + 1))
def test_a_stream_that_fails_at_any_piece_leaves_the_log_as_it_was(
    reopen: Opener, piece: int
) -> None:
    with with_old(reopen()) as log:
        with pytest.raises(StreamFailed, match="none stays") as failed:
            append_stream(log, failing_at(piece), Lines(), now_ms=1, batch_records=4)
        assert isinstance(failed.value.__cause__, Broken)
        assert (failed.value.base_offset, failed.value.end_offset) == (2, 2)
        assert failed.value.is_clean
        assert values_of(log) == OLD
        assert log.append([b"next"], now_ms=1) == 2
    with reopen() as log:
        assert values_of(log) == [*OLD, b"next"]


@pytest.mark.parametrize("piece", range(len(PIECES) + 1))
def test_with_keep_every_complete_value_stays_and_the_error_says_how_many(
    reopen: Opener, piece: int
) -> None:
    with with_old(reopen()) as log:
        source = [*PIECES[:piece], b"half a line"]

        def broken() -> Iterator[bytes]:
            yield from source
            raise Broken

        with pytest.raises(StreamFailed) as failed:
            append_stream(
                log, broken(), Lines(), now_ms=1, batch_records=4, on_failure=OnFailure.KEEP
            )
        assert (failed.value.base_offset, failed.value.end_offset) == (2, 2 + piece)
        assert values_of(log) == OLD + LINES[:piece]
        assert log.append([b"next"], now_ms=1) == 2 + piece
    with reopen() as log:
        assert values_of(log) == [*OLD, *LINES[:piece], b"next"]


def test_a_rolled_back_stream_is_gone_after_a_power_cut_too() -> None:
    disk = MemoryStorage()
    log = with_old(on(disk))
    with pytest.raises(StreamFailed):
        append_stream(log, failing_at(30), Lines(), now_ms=1, batch_records=4)
    for image in (disk.after_power_cut(), disk.after_kill()):
        with on(image) as again:
            assert values_of(again) == OLD


def test_an_async_stream_that_fails_is_rolled_back(reopen: Opener) -> None:
    async def main() -> None:
        await append_stream_async(log, slowly(failing_at(30)), Lines(), now_ms=1, batch_records=4)

    with with_old(reopen()) as log:
        with pytest.raises(StreamFailed) as failed:
            trio.run(main)
        assert isinstance(failed.value.__cause__, Broken)
        assert values_of(log) == OLD


@pytest.mark.parametrize("in_lane", [False, True])
async def test_a_cancelled_stream_is_rolled_back_and_stays_cancelled(
    reopen: Opener, in_lane: bool
) -> None:
    lane = trio.to_thread.run_sync if in_lane else None
    with with_old(reopen()) as log:
        with trio.CancelScope() as scope:

            async def pieces() -> AsyncIterator[bytes]:
                for piece in PIECES[:30]:
                    yield piece
                scope.cancel()
                await trio.sleep_forever()

            await append_stream_async(log, pieces(), Lines(), now_ms=1, batch_records=4, lane=lane)
        assert scope.cancelled_caught
        assert values_of(log) == OLD
        assert log.append([b"next"], now_ms=1) == 2


def test_an_interrupt_rolls_back_and_stays_an_interrupt() -> None:
    def interrupted() -> Iterator[bytes]:
        yield from PIECES
        raise KeyboardInterrupt

    with with_old(on(MemoryStorage())) as log:
        with pytest.raises(KeyboardInterrupt):
            append_stream(log, interrupted(), Lines(), now_ms=1, batch_records=4)
        assert values_of(log) == OLD


def test_closing_the_log_rolls_back_a_stream_that_is_under_way() -> None:
    disk = MemoryStorage()
    log = with_old(on(disk))

    def closing() -> Iterator[bytes]:
        yield from PIECES
        log.close()
        yield from PIECES

    with pytest.raises(StreamFailed, match="none stays") as failed:
        append_stream(log, closing(), Lines(), now_ms=1, batch_records=4)
    assert isinstance(failed.value.__cause__, LogClosed)
    assert failed.value.is_clean
    with on(disk) as log:
        assert values_of(log) == OLD


# Limits


def test_a_whole_stream_above_the_limit_is_refused_before_it_has_an_offset() -> None:
    taken = []

    def endless() -> Iterator[bytes]:
        while True:
            taken.append(100)
            yield b"x" * 100

    with with_old(on(MemoryStorage())) as log:
        with pytest.raises(StreamFailed) as failed:
            append_stream(log, endless(), WholeStream(), now_ms=1)
        assert isinstance(failed.value.__cause__, BatchTooLarge)
        # 512 bytes a segment, 61 of them the header: the fifth piece is one too many.
        assert len(taken) == 5
        assert log.log_end_offset == 2
        assert log.append([b"next"], now_ms=1) == 2


def test_a_record_that_fits_but_not_with_its_header_is_refused_too() -> None:
    with on(MemoryStorage()) as log:
        with pytest.raises(StreamFailed) as failed:
            append_stream(log, [b"x" * 450], WholeStream(), now_ms=1)
        assert isinstance(failed.value.__cause__, BatchTooLarge)
        assert log.log_end_offset == 0
        append_stream(log, [b"x" * 441], WholeStream(), now_ms=1)
        assert log.log_end_offset == 1


def test_with_keep_what_stands_before_a_line_that_is_too_long_stays() -> None:
    with on(MemoryStorage()) as log:
        with pytest.raises(StreamFailed, match=r"\[0, 2\) stays"):
            append_stream(
                log,
                [b"a\nb\n", b"x" * 600, b"\nc\n"],
                Lines(),
                now_ms=1,
                on_failure=OnFailure.KEEP,
            )
        assert values_of(log) == [b"a", b"b"]
        assert log.append([b"next"], now_ms=1) == 2


def test_a_stream_longer_than_allowed_is_rolled_back() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield PIECES[0]

    with with_old(on(MemoryStorage())) as log:
        with pytest.raises(StreamFailed) as failed:
            append_stream(log, endless(), Lines(), now_ms=1, stream_bytes_max=1_000)
        assert isinstance(failed.value.__cause__, StreamTooLarge)
        assert values_of(log) == OLD


def test_a_threshold_below_one_is_refused_and_reserves_nothing() -> None:
    with on(MemoryStorage()) as log:
        with pytest.raises(ValueError, match="batch_records=0"):
            append_stream(log, PIECES, Lines(), now_ms=1, batch_records=0)
        with pytest.raises(BatchTooLarge):
            append_stream(log, PIECES, FixedSize(600), now_ms=1)
        assert log.append([b"x"], now_ms=1) == 0


# When the disk fails


class FullFile(MemoryFile):
    """A log file on a disk with so much room for log files, half of the last write fitting."""

    full: "FullStorage"

    def pwrite(self, data: Buffer, position: int) -> int:
        if self.path.endswith(".log") and self.full.room is not None:
            if len(data) > self.full.room:
                super().pwrite(bytes(data)[: self.full.room // 2], position)
                raise OSError(errno.ENOSPC, "no space", self.path)
            self.full.room -= len(data)
        return super().pwrite(data, position)


class FullStorage(MemoryStorage):
    room: int | None = None

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> FullFile:
        plain = super().open(path, create=create, read_only=read_only)
        file = FullFile(path, plain._inode, self)
        file.full = self
        return file


@pytest.mark.parametrize("room", [0, 10, 172, 173, 700, 1_000])
@pytest.mark.parametrize("on_failure", OnFailure)
def test_a_full_disk_leaves_what_was_promised_and_the_log_goes_on(
    room: int, on_failure: OnFailure
) -> None:
    disk = FullStorage()
    log = with_old(on(disk))
    disk.room = room
    with pytest.raises(StreamFailed) as failed:
        append_stream(log, PIECES, Lines(), now_ms=1, batch_records=4, on_failure=on_failure)
    assert isinstance(failed.value.__cause__, PartitionReadOnly)
    assert failed.value.is_clean
    kept = failed.value.end_offset - 2
    assert kept == 0 if on_failure is OnFailure.ROLLBACK else kept == room // 173 * 4
    assert values_of(log) == OLD + LINES[:kept]
    disk.room = None
    assert log.append([b"next"], now_ms=1) == 2 + kept
    log.close()
    with on(disk) as log:
        assert values_of(log) == [*OLD, *LINES[:kept], b"next"]


def test_after_a_failed_sync_nothing_is_written_and_nothing_of_the_stream_is_read() -> None:
    disk = CrashingStorage()
    log = with_old(on(disk))

    def source() -> Iterator[bytes]:
        yield from PIECES[:20]
        disk.sync_fails = True
        yield from PIECES[20:]

    with pytest.raises(StreamFailed, match="could not be rolled back") as failed:
        append_stream(log, source(), Lines(), now_ms=1, batch_records=4)
    assert not failed.value.is_clean
    operations = len(disk.operations)
    assert values_of(log) == OLD
    with pytest.raises(PartitionReadOnly):
        log.append([b"x"], now_ms=1)
    log.close()
    assert len(disk.operations) == operations
    disk.sync_fails = False
    with on(disk) as log:
        assert values_of(log)[:2] == OLD


def test_a_disk_too_full_for_the_rollback_hides_the_stream_and_still_reads() -> None:
    disk = CrashingStorage()
    log = with_old(on(disk, durability="disk"))
    disk.room = 1_000
    with pytest.raises(StreamFailed, match="could not be rolled back"):
        append_stream(log, PIECES, Lines(), now_ms=1, batch_records=4)
    assert values_of(log) == OLD
    with pytest.raises(PartitionReadOnly):
        log.append([b"x"], now_ms=1)


# When the process is killed


@pytest.mark.parametrize("on_failure", OnFailure)
@pytest.mark.parametrize("fails", [False, True])
def test_a_kill_at_any_operation_leaves_a_prefix_of_whole_batches(
    on_failure: OnFailure, fails: bool
) -> None:
    """Also during the rollback; a power cut may leave less, never of what was there before."""
    dies_at = 0
    lengths = set()
    while True:
        disk = CrashingStorage()
        log = with_old(on(disk))
        disk.dies_at = len(disk.operations) + dies_at
        try:
            append_stream(
                log,
                failing_at(24) if fails else iter(PIECES),
                Lines(),
                now_ms=1,
                batch_records=4,
                on_failure=on_failure,
            )
        except StreamFailed as exc:
            survived: StorageError | None = exc
        except Killed:
            survived = None
        else:
            break
        if survived is not None:
            break
        for image in (disk.after_kill(), disk.after_power_cut()):
            with on(image) as again:
                values = values_of(again)
                count = len(values) - 2
                assert values == OLD + LINES[:count], f"died at {dies_at}"
                assert count % 4 == 0, f"died at {dies_at}"
                lengths.add(count)
        dies_at += 1
    assert dies_at > 20
    assert lengths >= {0, 4, 8, 12, 16, 20}


PAGE = Path(__file__).parents[2] / "docs" / "storage.md"


def test_the_example_of_the_page_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "access.log").write_bytes(b"GET /\nGET /favicon.ico\n")
    exec(compile(example, str(PAGE), "exec"), {"__name__": "page"})
    assert capsys.readouterr().out == "2 b'GET /'\n3 b'GET /favicon.ico'\n"
