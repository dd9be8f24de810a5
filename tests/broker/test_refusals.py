"""The memory of refused batches: the lowest sequence, over the end of the numbers, bounded."""

import pytest

from segbroker.broker.partitions import refusals
from segbroker.broker.partitions.refusals import Refusals
from segbroker.protocol.record_batch import BatchHeader, read_header
from segbroker.segments.errors import OutOfOrderSequence

from ..support.wire_client import batch


def header(sequence: int, producer_id: int = 7) -> BatchHeader:
    return read_header(batch(b"v", producer=(producer_id, 0, sequence)))


def test_what_was_refused_has_to_come_first() -> None:
    known = Refusals()
    known.note("t", 0, header(20))
    known.note("t", 0, header(10))
    known.note("t", 0, header(30))
    with pytest.raises(OutOfOrderSequence, match="sequence 20, expected 10"):
        known.check("t", 0, header(20))
    known.check("t", 1, header(20))
    known.check("t", 0, header(20, producer_id=8))
    known.check("t", 0, header(10))
    known.check("t", 0, header(20))


def test_sequences_begin_again_after_the_last_number() -> None:
    known = Refusals()
    known.note("t", 0, header(2**31 - 1))
    known.note("t", 0, header(4))
    with pytest.raises(OutOfOrderSequence):
        known.check("t", 0, header(4))
    known.check("t", 0, header(2**31 - 1))


def test_a_batch_without_a_producer_is_not_remembered() -> None:
    known = Refusals()
    known.note("t", 0, read_header(batch(b"v")))
    assert not known.lowest


def test_the_oldest_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "REFUSALS_MAX", 2)
    known = Refusals()
    for producer_id in (1, 2, 3):
        known.note("t", 0, header(5, producer_id))
    assert [key[2] for key in known.lowest] == [2, 3]
