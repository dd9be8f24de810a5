"""Buffers of fetch replies: reused, bounded, in line at the limit."""

import pytest

from segbroker.broker.loop.pool import ALLOWANCE_UNDER_PRESSURE, SIZE_LEAST, BufferPool, Lease

MIB = 1 << 20


def test_a_buffer_that_came_back_is_lent_again() -> None:
    pool = BufferPool(4 * MIB)
    first = pool.lease(100_000)
    assert first is not None
    first.buffer[:4] = b"mark"
    first.release()
    again = pool.lease(70_000)
    assert again is not None
    assert bytes(again.buffer[:4]) == b"mark"


@pytest.mark.parametrize("size", [1, SIZE_LEAST, SIZE_LEAST + 1, MIB, MIB + 1])
def test_a_buffer_holds_what_was_asked_for(size: int) -> None:
    lease = BufferPool(4 * MIB).lease(size)
    assert lease is not None
    assert len(lease.buffer) >= size


def test_at_the_budget_nothing_is_lent_until_something_comes_back_in_order() -> None:
    pool = BufferPool(2 * MIB)
    held = [pool.lease(MIB), pool.lease(MIB)]
    assert pool.lease(1) is None
    served: list[str] = []
    pool.wait(MIB, lambda _: served.append("first"), host="")
    pool.wait(1, lambda _: served.append("second"), host="")
    assert served == []
    for lease, expected in zip(held, (["first"], ["first", "second"]), strict=True):
        assert lease is not None
        lease.release()
        assert served == expected


def test_one_that_takes_its_buffer_leaves_the_next_in_line() -> None:
    pool = BufferPool(MIB)
    held = pool.lease(MIB)
    assert held is not None
    served: list[str] = []

    pool.wait(MIB, lambda _: served.append("first"), host="")
    pool.wait(MIB, lambda _: served.append("second"), host="")
    held.release()
    assert served == ["first"]


def test_who_gets_stuck_gives_way_to_those_who_are_in_line_already() -> None:
    pool = BufferPool(2 * MIB)
    held = [pool.lease(MIB), pool.lease(MIB)]
    served: list[str] = []
    for name in ("first", "second", "third"):

        def ready(_: Lease, name: str = name) -> None:
            served.append(name)

        assert pool.lease(MIB) is None
        pool.wait(MIB, ready, host="")
    for lease, expected in zip(held, (["first"], ["first", "second"]), strict=True):
        assert lease is not None
        lease.stuck(lease.release)
        assert served == expected
    assert pool.taken_back == 2


def test_a_line_that_is_served_at_once_is_no_deep_recursion() -> None:
    pool = BufferPool(MIB)
    held = pool.lease(MIB)
    assert held is not None
    served = 0

    def serve(lease: Lease) -> None:
        nonlocal served
        served += 1
        lease.release()

    for _ in range(5_000):
        pool.wait(MIB, serve, host="")
    held.release()
    assert served == 5_000
    assert pool.lent_bytes == 0


def test_a_batch_above_the_whole_budget_is_read_when_nothing_else_is() -> None:
    pool = BufferPool(MIB)
    large = pool.lease(3 * MIB)
    assert large is not None
    assert pool.lease(1) is None
    large.release()
    assert pool.lease(1) is not None


def test_replies_shrink_above_half_of_the_budget() -> None:
    pool = BufferPool(8 * MIB)
    assert pool.allowance == 8 * MIB
    held = [pool.lease(2 * MIB), pool.lease(2 * MIB), pool.lease(SIZE_LEAST)]
    assert pool.allowance == ALLOWANCE_UNDER_PRESSURE
    assert held[2] is not None
    held[2].release()
    assert pool.allowance == 8 * MIB


def test_giving_back_twice_is_giving_back_once() -> None:
    pool = BufferPool(MIB)
    lease = pool.lease(MIB)
    assert lease is not None
    lease.release()
    lease.release()
    assert pool.lent_bytes == 0


def test_addresses_take_turns_in_the_line() -> None:
    pool = BufferPool(MIB)
    held = pool.lease(MIB)
    assert held is not None
    served: list[str] = []
    for number in range(3):
        pool.wait(1, lambda _, n=number: served.append(f"greedy {n}"), host="10.0.0.1")  # type: ignore[misc]
    pool.wait(1, lambda _: served.append("honest"), host="10.0.0.2")
    held.release()
    assert served == ["greedy 0", "honest", "greedy 1", "greedy 2"]


def test_who_waits_for_much_is_not_passed_by_those_who_want_little() -> None:
    """A fetch of one large batch, beside consumers whose small ones come from the disk."""
    pool = BufferPool(4 * MIB)
    held = [pool.lease(MIB) for _ in range(4)]
    served: list[bool] = []
    pool.wait(2 * MIB, lambda lease: served.append(len(lease.buffer) == 2 * MIB), host="")
    for lease in held[:2]:
        assert lease is not None
        lease.release()
        held.append(pool.lease(MIB))
    assert served == [True]
    assert pool.lent_bytes == 4 * MIB
