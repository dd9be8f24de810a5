"""The list under send(): the C one and its pure twin say the same, and no record gets lost."""

import gc
import inspect
import sys
import threading
from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segbroker.client import BusyError, Producer, pending_pure
from segbroker.protocol import kernel
from segbroker.protocol.partitioner import partition_for_key

if kernel.KERNEL_IS_NATIVE:
    from segbroker.protocol import pending_native

TWINS = [pending_pure, *([pending_native] if kernel.KERNEL_IS_NATIVE else [])]

needs_native = pytest.mark.skipif(
    not kernel.KERNEL_IS_NATIVE,
    reason="the pure twin has nothing of its own here: its `send` is the one of the class",
)
twins = pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__.rpartition(".")[2])


@twins
def test_what_was_put_comes_out_in_order_with_its_span(twin: ModuleType) -> None:
    pending = twin.Pending("first", twin.Ticket, 10)
    pending.limit = 100
    tickets = [pending.put(b"a", None), pending.put(b"b", b"k"), pending.put(b"", None)]
    assert [(ticket.span, ticket.index) for ticket in tickets] == [("first", n) for n in range(3)]
    assert (len(pending), pending.size) == (3, 3)
    assert pending.take("second") == ([b"a", b"b", b""], [None, b"k", None], "first")
    assert (len(pending), pending.size) == (0, 0)
    after = pending.put(b"c", None)
    assert (after.span, after.index) == ("second", 0)
    assert pending.take("third") == ([b"c"], None, "second")


@twins
def test_a_put_says_when_the_limit_is_reached(twin: ModuleType) -> None:
    pending = twin.Pending("span", twin.Ticket, 10)
    (first,) = pending.put(b"a", None)  # 0: idle, the first record says that it is there
    assert first.index == 0
    pending.limit = 2
    assert type(pending.put(b"b", None)) is twin.Ticket
    (third,) = pending.put(b"c", None)
    assert third.index == 2


@needs_native
@pytest.mark.parametrize("limit", [0, 100])
@pytest.mark.parametrize("key", [None, b"k"])
def test_a_put_that_finds_no_memory_has_taken_nothing(limit: int, key: bytes | None) -> None:
    """At whichever allocation: a send that raises has not sent its record."""
    memory = pytest.importorskip("_testcapi")
    raised = 0
    in_use: list[tuple[int]] = []
    for count in (0, 1, 4, 8):  # a list grows with some of them
        for nth in range(10):
            pending = pending_native.Pending("first", pending_native.Ticket, 10)
            pending.limit = 100
            for _ in range(count):
                pending.put(b"a", None)
            pending.limit = limit
            in_use += [(n,) for n in range(2_001)]  # no tuple is at hand
            memory.set_nomemory(nth, nth + 1)
            try:
                pending.put(b"b", key)
            except MemoryError:
                raised += 1
                memory.remove_mem_hooks()
                assert (len(pending), pending.size) == (count, count)
                assert pending.take("second") == ([b"a"] * count, None, "first")
            finally:
                memory.remove_mem_hooks()
    assert raised


@twins
def test_what_is_not_plain_or_too_large_or_too_late_is_not_taken(twin: ModuleType) -> None:
    pending = twin.Pending("span", twin.Ticket, 10)
    for value, key in (
        (None, None),
        (bytearray(b"v"), None),
        ("v", None),
        (b"v", "k"),
        (b"v" * 11, None),
        (b"v" * 6, b"k" * 5),
    ):
        assert pending.put(value, key) is None
    assert len(pending) == 0
    pending.take(None)
    assert pending.put(b"v", None) is None


@twins
def test_many_threads_lose_and_swap_nothing(twin: ModuleType) -> None:
    pending = twin.Pending(0, twin.Ticket, 100)
    pending.limit = 10**9
    tickets: list[list[tuple[bytes, object, int]]] = [[] for _ in range(4)]

    def put(number: int) -> None:
        for i in range(5_000):
            value = b"%d:%d" % (number, i)
            ticket = pending.put(value, None)
            tickets[number].append((value, ticket.span, ticket.index))

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        taken: list[list[bytes]] = []
        while any(thread.is_alive() for thread in threads):
            taken.append(pending.take(len(taken) + 1)[0])
        taken.append(pending.take(len(taken) + 1)[0])
    finally:
        sys.setswitchinterval(switch)
    assert sum(map(len, taken)) == 20_000
    for rows in tickets:
        for value, span, index in rows:
            assert isinstance(span, int)
            assert taken[span][index] == value


@twins
def test_a_collection_while_a_ticket_is_made_does_not_part_it_from_its_record(
    twin: ModuleType,
) -> None:
    # Up to Python 3.11 making a ticket may begin a garbage collection, in which any code runs,
    # and other threads: the list may be taken and put to just there.
    class Delivery(twin.Ticket):  # type: ignore[misc, name-defined]
        __slots__ = ()

    pending = twin.Pending(0, Delivery, 10)
    pending.limit = 100
    put: list[tuple[bytes, Delivery]] = []
    taken: list[list[bytes]] = []

    def come_between(phase: str, _: object) -> None:
        if phase == "start" and len(taken) < 20:
            taken.append(pending.take(len(taken) + 1)[0])
            put.append((b"between", pending.put(b"between", None)))

    thresholds = gc.get_threshold()
    gc.callbacks.append(come_between)
    try:
        gc.set_threshold(1)
        put += [(value, pending.put(value, None)) for value in map(b"%d".__mod__, range(50))]
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(come_between)
    taken.append(pending.take(None)[0])
    assert sum(map(len, taken)) == len(put)
    for value, ticket in put:
        assert taken[ticket.span][ticket.index] == value


@twins
def test_tickets_are_hidden_from_the_collector(twin: ModuleType) -> None:
    if twin is pending_pure:
        pytest.skip("only C can")

    class Delivery(twin.Ticket):  # type: ignore[misc, name-defined]
        __slots__ = ()

    pending = twin.Pending(0, Delivery, 10)
    pending.limit = 100
    assert not gc.is_tracked(pending.put(b"x", None))


@twins
def test_tickets_and_records_are_freed(twin: ModuleType) -> None:
    gc.collect()  # classes of other tests
    span, value, key = object(), bytes(50), bytes(51)
    before = [sys.getrefcount(thing) for thing in (span, value, key, twin.Ticket)]
    pending = twin.Pending(span, twin.Ticket, 1_000)
    pending.limit = 50
    kept = [pending.put(value, key) for _ in range(100)]
    taken = pending.take(None)
    pending.put(value, key)
    del kept, taken, pending
    gc.collect()
    assert [sys.getrefcount(thing) for thing in (span, value, key, twin.Ticket)] == before


class Inbox:
    def __init__(self, pending: pending_pure.Pending) -> None:
        self.pending = pending


class Sender:
    """As Producer, and its own `send` says that it was asked."""

    def __init__(self, pending: pending_pure.Pending) -> None:
        self._inboxes = {"known": Inbox(pending)}
        self.turned_in: list[Inbox] = []

    def send(self, topic: str, value: object, **others: object) -> object:
        """Send."""
        return "the long way", topic, value, others

    def _turn_in(self, inbox: Inbox) -> None:
        if not inbox.pending.limit:
            raise BusyError("full")
        self.turned_in.append(inbox)


@needs_native
def test_a_plain_record_goes_to_its_inbox_and_any_other_the_long_way() -> None:
    for twin in TWINS[1:]:
        cls = twin.plain_send(type("Sender", (Sender,), {"send": Sender.send}))
        pending = twin.Pending("span", twin.Ticket, 10)
        pending.limit = 3
        sender = cls(pending)
        tickets = [
            sender.send("known", b"a"),
            sender.send("known", b"b", key=b"k"),
            sender.send("known", b"c", key=None),
            sender.send("known", b"d"),
        ]
        assert [(type(ticket), ticket.index) for ticket in tickets] == [
            (twin.Ticket, n) for n in range(4)
        ]
        assert sender.turned_in == [sender._inboxes["known"]]
        assert pending.take("next") == ([b"a", b"b", b"c", b"d"], [None, b"k", None, None], "span")
        for topic, value, others in (
            ("known", None, {}),
            ("known", b"x" * 11, {}),
            ("known", bytearray(b"x"), {"key": b"k"}),
            ("known", b"x", {"headers": None}),
            ("known", b"x", {"key": b"k", "partition": 1}),
            ("unknown", b"x", {}),
            (type("Topic", (str,), {})("known"), b"x", {}),
        ):
            assert sender.send(topic, value, **others) == ("the long way", topic, value, others)
        assert sender.send(topic="known", value=b"x") == ("the long way", "known", b"x", {})
        assert len(pending) == 0
        pending.limit = 0
        with pytest.raises(BusyError):
            sender.send("known", b"e")
        assert len(pending) == 1  # it is in; who waited for room was interrupted
        pending.take(None)
        assert sender.send("known", b"f") == ("the long way", "known", b"f", {})


@needs_native
def test_a_plain_send_frees_what_it_was_given() -> None:
    for twin in TWINS[1:]:
        cls = twin.plain_send(type("Sender", (Sender,), {"send": Sender.send}))
        pending = twin.Pending("span", twin.Ticket, 1_000)
        sender = cls(pending)
        inbox, topic, value, key = sender._inboxes["known"], "unknown", bytes(50), bytes(51)
        things = (sender, inbox, topic, value, key, sender._inboxes, pending)
        before = [sys.getrefcount(thing) for thing in things]
        for _ in range(3):
            pending.limit = 1
            for _ in range(100):
                sender.send("known", value, key=key)
                sender.send(topic, value, key=key)
                sender.send("known", None, key=key)
            pending.limit = 0
            with pytest.raises(BusyError):
                sender.send("known", value)
            pending.take("span")
            sender.turned_in.clear()
        assert [sys.getrefcount(thing) for thing in things] == before


@needs_native
@pytest.mark.parametrize(
    "other", [pending_pure.Pending("span", pending_pure.Ticket, 10), object()], ids=["pure", "any"]
)
def test_a_list_of_another_kind_is_left_to_the_long_way(other: object) -> None:
    cls = pending_native.plain_send(type("Sender", (Sender,), {"send": Sender.send}))
    assert cls(other).send("known", b"a", key=b"k") == (
        "the long way",
        "known",
        b"a",
        {"key": b"k"},
    )


def test_send_tells_what_it_takes_and_what_it_was_given_instead() -> None:
    signature = inspect.signature(Producer.send)
    names = ["self", "topic", "value", "key", "headers", "partition", "timestamp_ms"]
    assert list(signature.parameters) == names
    assert Producer.send.__doc__ is not None
    assert Producer.send.__doc__.startswith("Send one record")
    producer: Any = Producer("127.0.0.1:1")
    given: list[tuple[tuple[object, ...], dict[str, object], str]] = [
        (("t",), {}, r"Producer.send\(\) missing 1 required .* 'value'"),
        (("t", b"v", b"k"), {}, r"Producer.send\(\) takes 3 positional"),
        (("t", b"v"), {"kee": b"k"}, "unexpected keyword argument 'kee'"),
    ]
    for positional, named, said in given:
        with pytest.raises(TypeError, match=said):
            producer.send(*positional, **named)


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40))), st.integers(1, 50))
def test_keys_are_placed_as_one_by_one(keys: list[bytes | None], partitions: int) -> None:
    expected = [-1 if key is None else partition_for_key(key, partitions) for key in keys]
    for twin in TWINS:
        found = twin.partitions_for_keys(keys, partitions)
        assert found.tolist() == expected
        lists = twin.scatter(keys, array("i", expected), partitions)
        assert lists == [
            [key for key, p in zip(keys, expected, strict=True) if p == partition]
            for partition in [*range(partitions), -1]
        ]
