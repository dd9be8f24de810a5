"""Waiting until something is so; and what was so instead, when the time is over."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol

import pytest
import trio

from segbroker.client import Admin, SegbrokerError

# Also of a machine that has much else to do.
DEADLINE_S: Final = 60.0
_PAUSE_S: Final = 0.02
# What one look may take off the deadline: a virtual machine that stood still for a minute has
# given nobody a minute.
_LOOK_S_MAX: Final = 1.0
# How pytest-timeout says that a test has taken longer than any may.
_HANGS: Final = "from pytest-timeout."


class Watched(Protocol):
    """A member of a group, seen from the thread of the test."""

    def check(self) -> None:
        """Raise what ended it, if anything did."""

    def state(self) -> str:
        """What it has, in a line."""


def until(
    true: Callable[[], bool],
    *members: Watched,
    group: tuple[str, str] | None = None,
    deadline_s: float = DEADLINE_S,
    pause_s: float = _PAUSE_S,
) -> None:
    """Wait until it is so.

    Args:
        members: told of when it does not become so; one that has failed ends the wait.
        group: address and group, whose description is told then.
        deadline_s: for how long; what takes virtual machines to start takes longer.
        pause_s: between two looks.

    Raises:
        AssertionError: it did not become so; with the state of the members and of the group.
    """
    left_s, looked_s = deadline_s, time.monotonic()
    while not true():
        for member in members:
            member.check()
        before_s, looked_s = looked_s, time.monotonic()
        left_s -= min(looked_s - before_s, _LOOK_S_MAX)
        if left_s < 0:
            told = [f"not so within {deadline_s:.0f} s", *(member.state() for member in members)]
            if group is not None:
                told.append(group_state(*group))
            raise AssertionError("\n".join(told))
        time.sleep(pause_s)


async def becomes(true: Callable[[], bool]) -> None:
    """Wait on trio's loop, by its time, for what nothing tells of.

    Raises TooSlowError.
    """
    with trio.fail_after(DEADLINE_S):
        while not true():  # noqa: ASYNC110 - the one place
            await trio.sleep(0.01)


def within_one_of(times_ms: tuple[int, ...], check: Callable[[int], object]) -> None:
    """Check what comes of a limit of time, with a longer one where it did not with the one before.

    For what waits to the end of its time.  A machine that stands still for a second has none of it
    left, and then something else comes of it.  But a check that waits for ever does so for no lack
    of time: it would pass behind the minutes that a test may take.

    Raises:
        What the last check raises, or the one that the limit of the test has ended.
    """
    *shorter, longest = times_ms
    for time_ms in shorter:
        with suppress(Exception):
            try:
                check(time_ms)
            except pytest.fail.Exception as failed:
                if str(failed).endswith(_HANGS):
                    raise
                continue  # of `pytest.raises`
            return
    check(longest)


def group_state(address: str, group_id: str) -> str:
    """What the broker says of a group, in a few lines."""
    try:
        with Admin(address) as admin:
            group = admin.describe_group(group_id)
    except SegbrokerError as error:
        return f"group {group_id!r}: {error!r}"
    head = f"group {group_id!r}: {group.state}, {group.group_type} {group.protocol!r}"
    rows = [
        f"  {member.member_id} ({member.client_id}): {[tuple(tp) for tp in member.partitions]}"
        for member in group.members
    ]
    return "\n".join([head, *rows])


@contextmanager
def meanwhile(act: Callable[[], object]) -> Iterator[None]:
    """Do it again and again, in a thread, to the end of the block.

    Raises:
        What `act` raised, at the end of a block that raises nothing; nothing is done after that.
    """
    stop = threading.Event()
    raised: list[Exception] = []

    def run() -> None:
        try:
            while not stop.wait(_PAUSE_S):
                act()
        except Exception as exc:
            raised.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if raised:
        raise raised[0]
