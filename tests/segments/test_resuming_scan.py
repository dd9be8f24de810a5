"""Where a scan goes on behind damage: what is believed of the bytes behind it, and what is not."""

from random import Random
from unittest.mock import patch

import pytest

from segbroker.protocol.batch_layout import HEADER_SIZE
from segbroker.protocol.record_batch import (
    BatchHeader,
    check_batch,
    emptied_batch,
    encode_batch,
    iter_batches,
    read_header,
)
from segbroker.segments import behind_damage
from segbroker.segments.decisions import Loss, Scan, Tail, any_offset_of, rebuild, scan
from segbroker.segments.files.index import OFFSET_SPAN_MAX


def batch(offset: int, value: bytes = b"value", producer_id: int = -1) -> bytes:
    """A batch of one record as it is stored."""
    made = bytearray(
        encode_batch(
            [value],
            timestamps_ms=1_000,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=offset if producer_id >= 0 else -1,
        )
    )
    made[:8] = offset.to_bytes(8, "big")
    made[12:16] = bytes(4)  # leader epoch
    return bytes(made)


def bad(whole: bytes) -> bytes:
    """The same with a byte that its checksum does not allow."""
    return whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:]


def scanned(*parts: bytes) -> Scan:
    return scan(memoryview(b"".join(parts)), 0)


SIZE = len(batch(0))


def test_a_batch_without_records_is_found_at_the_very_end() -> None:
    # | 0 | ? | 2, emptied |   61 bytes: what a cleaning leaves of a producer's last batch
    last = emptied_batch(read_header(batch(2, producer_id=7)))
    assert len(last) == HEADER_SIZE
    found = scanned(batch(0), bad(batch(1)), last)
    assert (found.tail, found.resume) == (Tail.HOLE, 2 * SIZE)


def test_a_batch_inside_the_value_of_a_damaged_one_is_not_where_the_log_goes_on() -> None:
    # | 0 | 1: its value holds a whole batch of offset 50 | 2 |
    damaged = bad(batch(1, b"before" + batch(50, b"never a record of this log") + b"behind"))
    found = scanned(batch(0), damaged, batch(2))
    assert (found.tail, found.resume) == (Tail.HOLE, SIZE + len(damaged))


INNER = batch(50, b"never a record of this log")


@pytest.mark.parametrize("missing", [1, 7, 100])
def test_a_batch_inside_the_value_of_a_torn_one_is_not_where_the_log_goes_on(missing: int) -> None:
    torn = batch(1, b"before" + INNER + bytes(200))[:-missing]
    found = scanned(batch(0), torn)
    assert (found.tail, found.valid_size) == (Tail.TORN, SIZE)


def test_a_batch_inside_the_value_of_the_last_one_is_not_where_the_log_goes_on() -> None:
    found = scanned(batch(0), bad(batch(1, b"before" + INNER + b"behind")))
    assert (found.tail, found.valid_size) == (Tail.TORN, SIZE)
    elsewhere = batch(1 + (1 << 40), b"before" + INNER + b"behind")
    assert scanned(batch(0), elsewhere).tail is Tail.FOREIGN


@pytest.mark.parametrize("length", [0x7FFF_FFFF, 4_000, 70, SIZE + 1])
def test_a_batch_whose_length_is_damaged_ends_where_its_checksum_says(length: int) -> None:
    whole = batch(1, b"before" + INNER + b"behind")
    damaged = whole[:8] + length.to_bytes(4, "big") + whole[12:]
    found = scanned(batch(0), damaged, batch(2), batch(3))
    assert (found.tail, found.resume) == (Tail.HOLE, SIZE + len(whole))


def kept(data: bytes) -> list[bytes]:
    """The batches that a repair keeps, without its gaps."""
    found = rebuild(memoryview(data), 0, -1, Loss(0, [(0, 0)], 0), is_followed=False)
    batches = [one for part in found.parts for one in iter_batches(memoryview(part))]
    return [bytes(one) for one in batches if read_header(one).records_count]


ARCHIVE = [
    batch(0),
    batch(1, b"before" + INNER + b"behind" * 30),
    batch(2, b"before" + batch(3, b"never") + batch(4, b"of this log") + b"behind" * 9),
    *(batch(offset, b"x" * 40) for offset in range(3, 7)),
]


@pytest.mark.parametrize("number", range(len(ARCHIVE)))
def test_a_damaged_byte_costs_its_batch_whatever_the_values_hold(number: int) -> None:
    size = len(ARCHIVE[number])
    others = [whole for whole in ARCHIVE if whole is not ARCHIVE[number]]
    for position in [*range(21), *range(21, size, 7)]:
        for wrong in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            damaged = bytearray(ARCHIVE[number])
            damaged[position] ^= wrong
            parts = [*ARCHIVE[:number], bytes(damaged), *ARCHIVE[number + 1 :]]
            assert kept(b"".join(parts)) == others, (position, wrong)
            if 8 <= position < 12:  # its length; nothing behind it contradicts what it holds
                assert kept(b"".join(parts[: number + 1])) == ARCHIVE[:number], (position, wrong)


def test_batches_inside_the_value_of_a_second_damaged_one_are_not_where_the_log_goes_on() -> None:
    for front, behind in ((bad(ARCHIVE[0]), ARCHIVE[2:]), (ARCHIVE[0], ARCHIVE[3:])):
        damaged = [bad(whole) for whole in ARCHIVE[1 : len(ARCHIVE) - len(behind)]]
        whole = [] if front != ARCHIVE[0] else [front]
        assert kept(b"".join([front, *damaged, *behind])) == [*whole, *behind]
    assert kept(b"".join([ARCHIVE[0], bad(ARCHIVE[1]), bad(ARCHIVE[2])])) == [ARCHIVE[0]]


FRONT = b"x" * 5_000
"""So much that the header of a batch is in one page, and what else its value holds in another."""


@pytest.mark.parametrize("behind", [1, 2, 20, 60])
@pytest.mark.parametrize(
    "held",
    [
        INNER,
        INNER + batch(51),
        batch(50) + b"between" + batch(10) + b"between" + batch(30),
        batch(5_000_000),
        batch(3),
    ],
    ids=["one", "two", "many", "far", "near"],
)
def test_a_lost_page_costs_no_batch_behind_it_whatever_the_value_holds(
    held: bytes, behind: int
) -> None:
    """| 0 | 1: its header is lost, its value holds whole batches | 2 | 3 | ..."""
    damaged = bytes(HEADER_SIZE) + batch(1, FRONT + held + b"behind")[HEADER_SIZE:]
    others = [batch(offset) for offset in range(2, 2 + behind)]
    assert kept(b"".join([batch(0), damaged, *others])) == [batch(0), *others]


@pytest.mark.parametrize("length", [0x7FFF_FFFF, 0x0100_0000, 700, 90])
@pytest.mark.parametrize("value", [b"x" * 300, b"before" + INNER + b"behind" * 30])
def test_a_batch_of_which_the_length_is_damaged_and_something_else_as_well_costs_itself_alone(
    value: bytes, length: int
) -> None:
    damaged = bad(batch(1, value))
    damaged = damaged[:8] + length.to_bytes(4, "big") + damaged[12:]
    others = [batch(offset) for offset in range(2, 30)]
    assert kept(b"".join([batch(0), damaged, *others])) == [batch(0), *others]


@pytest.mark.parametrize(("length", "again"), [(0x0000_0100, 10), (0x0000_0400, 20)])
def test_more_damage_behind_what_a_damaged_length_claims_costs_no_batch_within_it(
    length: int, again: int
) -> None:
    """| 0 | ? which says that it ends in the middle of 5 | 2 ... | ? | ..."""
    damaged = bad(batch(1))
    damaged = damaged[:8] + (len(damaged) - 12 ^ length).to_bytes(4, "big") + damaged[12:]
    others = [batch(offset) for offset in range(2, 30)]
    behind = [bad(one) if one is others[again] else one for one in others]
    whole = [one for one in others if one is not others[again]]
    assert kept(b"".join([batch(0), damaged, *behind])) == [batch(0), *whole]


def test_what_a_second_damaged_batch_holds_is_no_reason_to_doubt_those_in_front_of_it() -> None:
    # | 0 | ? | 2 ... 9 | ? which holds 5 and 6 | 11 ...
    lost = bytes(HEADER_SIZE) + batch(1, FRONT)[HEADER_SIZE:]
    second = bytes(HEADER_SIZE) + batch(10, FRONT + batch(5) + batch(6) + b"x")[HEADER_SIZE:]
    in_front = [batch(offset) for offset in range(2, 10)]
    others = [batch(offset) for offset in range(11, 30)]
    assert kept(b"".join([batch(0), lost, *in_front, second, *others])) == [
        batch(0),
        *in_front,
        *others,
    ]


def test_a_batch_that_the_damaged_one_in_front_of_it_speaks_of_needs_no_other() -> None:
    # | 0 | ? | 2 | 3, which says that it is another |
    strange = (3 ^ 1 << 40).to_bytes(8, "big") + batch(3)[8:]
    parts = [batch(0), bad(batch(1)), batch(2), strange, batch(4), batch(5)]
    assert kept(b"".join(parts)) == [batch(0), batch(2), batch(4), batch(5)]


@pytest.mark.parametrize("length", [0x7FFF_FFFF, 4_000])
def test_a_length_that_is_damaged_claims_nothing_behind_the_end_that_the_checksum_says(
    length: int,
) -> None:
    # | 0 | 1, its length is too great | 2, damaged, too | 3 | 4 | ... within what the 1 claims
    whole = batch(1, b"before" + INNER + b"behind")
    claims = whole[:8] + length.to_bytes(4, "big") + whole[12:]
    behind = [batch(offset) for offset in range(3, 30)]
    found = scanned(batch(0), claims, bad(batch(2)), *behind)
    assert (found.tail, found.resume) == (Tail.HOLE, SIZE + len(whole) + SIZE)


@pytest.mark.parametrize("front", [[], [b"?" * 90], [bad(batch(7)), b"?" * 90]])
def test_a_batch_is_found_whatever_its_offset_where_another_or_the_end_follows(
    front: list[bytes],
) -> None:
    for behind in ([], [b"?" * 7], [batch(10)], [batch(10), b"?" * 90]):
        data = memoryview(b"".join([*front, batch(9), *behind]))
        assert any_offset_of(data) == 9


def test_what_is_no_batch_is_not_summed_up_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file of which nobody knows where it begins, so that any offset will do."""
    summed = 0

    def check(buf: memoryview, *, stored: bool) -> BatchHeader:
        nonlocal summed
        summed += len(buf)
        return check_batch(buf, stored=stored)

    monkeypatch.setattr(behind_damage, "check_batch", check)
    data = Random(5).randbytes(16 << 20)
    assert any_offset_of(memoryview(data)) is None
    assert summed <= len(data)


@pytest.mark.parametrize(("size", "tail"), [(HEADER_SIZE - 1, Tail.TORN), (HEADER_SIZE, Tail.HOLE)])
def test_in_front_of_the_last_batch_there_was_room_for_the_one_that_is_missing(
    size: int, tail: Tail
) -> None:
    found = scanned(batch(0), b"?" * size, batch(2))
    assert (found.tail, found.resume) == (tail, SIZE + size if tail is Tail.HOLE else -1)


def test_a_batch_that_the_next_one_does_not_continue_is_not_believed() -> None:
    found = scanned(batch(0), bad(batch(1)), batch(5), batch(9))
    assert (found.tail, found.resume) == (Tail.HOLE, 3 * SIZE)
    found = scanned(batch(0), bad(batch(1)), batch(5), batch(6))
    assert (found.tail, found.resume) == (Tail.HOLE, 2 * SIZE)
    found = scanned(batch(0), bad(batch(1)), batch(5), bad(batch(9)))
    assert (found.tail, found.resume) == (Tail.HOLE, 2 * SIZE)


@pytest.mark.parametrize("rest", range(1, 9))
def test_a_batch_is_believed_in_front_of_a_torn_one(rest: int) -> None:
    found = scanned(batch(0), bad(batch(1)), batch(2), batch(3)[:rest])
    assert (found.tail, found.resume) == (Tail.HOLE, 2 * SIZE)


@pytest.mark.parametrize(
    ("offset", "is_believed"),
    [(1, False), (2, True), (1 + OFFSET_SPAN_MAX, True), (2 + OFFSET_SPAN_MAX, False)],
)
def test_the_offset_behind_damage_is_higher_and_fits_the_segment(
    offset: int, is_believed: bool
) -> None:
    found = scanned(batch(0), bad(batch(1)), batch(offset), batch(offset + 1))
    assert (found.tail is Tail.HOLE and found.resume == 2 * SIZE) == is_believed


@pytest.mark.parametrize("size", [1, HEADER_SIZE - 1, HEADER_SIZE, 5_000])
def test_zeros_are_zeros_to_the_last_byte(size: int) -> None:
    assert scanned(batch(0), bytes(size)).tail is Tail.ZEROS
    assert scanned(batch(0), bytes(size - 1) + b"\1").tail is Tail.TORN


def test_what_only_looks_like_a_batch_is_not_summed_up_where_any_offset_would_do() -> None:
    # Of a large file of chance a quarter of all that looks like one would claim half of the file.
    header = bytearray(batch(7)[:HEADER_SIZE])
    header[8:12] = (1 << 15).to_bytes(4, "big")
    chance = Random(1).randbytes(1 << 16) + bytes(header) * 1_000
    data = memoryview(chance + batch(5_000_000_000) + batch(5_000_000_001))
    with patch.object(behind_damage, "check_batch", wraps=check_batch) as summed:
        assert any_offset_of(data) == 5_000_000_000
    assert summed.call_count < 10
