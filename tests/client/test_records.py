"""Record: the kernel's and the named tuple that is its specification are used alike."""

import copy
import gc
import inspect
import pickle
import sys
from importlib.util import find_spec, module_from_spec
from typing import Any, get_type_hints

import pytest

from segbroker.client import Record
from segbroker.client.consumed import ConsumedBatch
from segbroker.protocol import batch_pure, kernel
from segbroker.protocol.record_batch import decode_batch, encode_batch

NOW = 1_700_000_000_000
FIELDS = ("orders", 3, 1 << 40, NOW, b"key", b"value", (("name", b"x"),))


def plain_record() -> Any:  # noqa: ANN401 - the class as it is where no kernel was built
    """Another copy of the module that defines it, loaded as if there were none."""
    spec = find_spec("segbroker.client.records")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "KERNEL_IS_NATIVE", False)
        spec.loader.exec_module(module)
    return module.Record


twins = pytest.mark.parametrize(
    "cls", [Record, plain_record()], ids=["as installed", "without a kernel"]
)
needs_native = pytest.mark.skipif(not kernel.KERNEL_IS_NATIVE, reason="about the C one")


@twins
def test_a_record_is_a_named_tuple(cls: Any) -> None:  # noqa: ANN401 - either twin
    assert issubclass(cls, tuple)
    record: Any = cls(*FIELDS)
    assert record == FIELDS
    assert hash(record) == hash(FIELDS)
    assert tuple(getattr(record, name) for name in cls._fields) == FIELDS
    topic, *_, headers = record
    assert (topic, headers, record[1], record[-2:]) == ("orders", FIELDS[-1], 3, FIELDS[-2:])
    assert repr(record).startswith("Record(topic='orders', partition=3, offset=1099511627776,")
    assert record._asdict() == dict(zip(cls._fields, FIELDS, strict=True))
    assert record._replace(value=None) == (*FIELDS[:5], None, FIELDS[-1])
    assert cls._make(iter(FIELDS)) == record == cls(**record._asdict())
    assert {record: 1}[FIELDS] == 1
    assert len({record, FIELDS}) == 1
    assert record < cls(*FIELDS[:2], FIELDS[2] + 1, *FIELDS[3:])
    match record:
        case cls(topic="orders", key=key):
            assert key == b"key"
        case _:
            raise AssertionError(record)


@twins
def test_what_is_no_record_is_not_made_and_a_record_is_not_changed(cls: Any) -> None:  # noqa: ANN401
    for wrong in ((), FIELDS[:-1], (*FIELDS, 1)):
        with pytest.raises(TypeError):
            cls(*wrong)
        with pytest.raises(TypeError):
            cls._make(wrong)
    with pytest.raises((TypeError, ValueError), match="vlaue"):  # TypeError since Python 3.13
        cls(*FIELDS)._replace(vlaue=b"")
    for name in ("value", "other"):
        with pytest.raises(AttributeError):
            setattr(cls(*FIELDS), name, b"")


@twins
def test_tools_see_a_named_tuple(cls: Any) -> None:  # noqa: ANN401 - either twin
    assert cls.__doc__.startswith("One record as it was read")
    assert (cls.__name__, cls.__module__) == ("Record", "segbroker.client.records")
    assert list(inspect.signature(cls).parameters) == list(cls._fields)
    assert list(get_type_hints(cls)) == list(cls._fields)
    assert cls.__match_args__ == cls._fields


@twins
def test_a_class_may_be_derived_from_it(cls: Any) -> None:  # noqa: ANN401 - either twin
    class Order(cls):  # type: ignore[misc]
        @property
        def text(self) -> str:
            return str(self.value, "ascii")

    order = Order(*FIELDS)
    order.seen = True
    assert (order.text, order.offset, order.seen, type(order._replace(key=None))) == (
        "value",
        1 << 40,
        True,
        Order,
    )


class Noted(Record):
    """With an attribute of its own."""


def test_records_are_copied_and_pickled() -> None:
    noted = Noted(*FIELDS)
    noted.note = "seen"  # type: ignore[attr-defined]
    for record in (Record(*FIELDS), noted):
        again = [copy.copy(record), copy.deepcopy(record)]
        protocols = range(pickle.HIGHEST_PROTOCOL + 1)
        again += [pickle.loads(pickle.dumps(record, protocol)) for protocol in protocols]
        for other in again:
            assert other == record
            assert type(other) is type(record)
            assert getattr(other, "note", None) == getattr(record, "note", None)


@pytest.mark.parametrize("derived", [False, True])
def test_a_cycle_of_who_makes_one_is_collected(derived: bool) -> None:
    cls: Any = type("Order", (Record,), {}) if derived else Record
    held: list[Any] = []
    held.append(cls(*FIELDS[:-1], held))
    gc.collect()
    del held
    assert gc.collect() >= 2


@needs_native
def test_none_is_made_of_too_few_fields_past_its_own_constructor() -> None:
    for cls in (Record, type("Order", (Record,), {})):
        with pytest.raises(TypeError, match="not safe"):
            tuple.__new__(cls, FIELDS[:2])


def batch() -> ConsumedBatch:
    encoded = encode_batch(
        [b"value-%d" % n if n % 5 else None for n in range(100)],
        keys=[b"key-%d" % n if n % 3 else None for n in range(100)],
        headers=[[("name", b"%d" % n)] if n % 2 else None for n in range(100)],
        timestamps_ms=[NOW + n // 2 for n in range(100)],
    )
    return ConsumedBatch("orders", 3, decode_batch(encoded), from_offset=0)


def test_both_kernels_hand_out_the_same_records() -> None:
    built = kernel.backend
    found = batch().records()
    try:
        kernel.use(batch_pure)
        assert batch().records() == found
        assert {*map(type, found)} == {Record}
    finally:
        kernel.use(built)
    assert found[7] == ("orders", 3, 7, NOW + 3, b"key-7", b"value-7", (("name", b"7"),))
    assert [hash(record) == hash(tuple(record)) for record in found] == [True] * 100


@needs_native
def test_the_collector_is_not_told_of_records_that_are_handed_out() -> None:
    assert not any(gc.is_tracked(record) for record in batch().records())
    assert gc.is_tracked(Record(*FIELDS))


@needs_native
def test_a_record_counts_its_references() -> None:
    value, whole = b"x" * 1000, batch()
    records = whole.records()
    classes = sys.getrefcount(Record)
    counts = [sys.getrefcount(it) for it in (value, whole.topic, ())]
    for _ in range(3):
        one = Record(whole.topic, 3, 4, 5, None, value, ())
        assert one.value is value
        assert one._replace(key=b"").value is value
        del one
        records = whole.records()
        records[1].topic  # noqa: B018 - a look at a field
    assert len(records) == 100
    assert [sys.getrefcount(it) for it in (value, whole.topic)] == counts[:2]
    assert sys.getrefcount(Record) == classes
