"""What a coordinator of KIP-848 may answer, and when: over sockets, by a client as programs use it.

Nothing is lost; what was committed is read again by nobody; what the caller can do something about
it hears once, in words.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from segbroker.client import Consumer
from segbroker.client.errors import (
    FencedInstanceId,
    GroupAuthorizationFailed,
    GroupMaxSizeReached,
    InvalidRequest,
    SegbrokerError,
    TopicAuthorizationFailed,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from segbroker.protocol.errors import ErrorCode

from ..support.waiting import until
from .replaying import TOPIC, Replaying
from .scripted_groups import COUNT, Script

# Of who waits for no deadline: a machine that stands still for a moment is no finding.
PATIENT: dict[str, Any] = {
    "group_protocol": "consumer",
    "request_timeout_ms": 60_000,
    "connect_timeout_ms": 60_000,
    "start": "start",
}
PASSING = [
    None,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
]
TOLD: dict[ErrorCode, type[SegbrokerError]] = {
    ErrorCode.UNRELEASED_INSTANCE_ID: UnreleasedInstanceId,
    ErrorCode.UNSUPPORTED_ASSIGNOR: UnsupportedAssignor,
    ErrorCode.GROUP_MAX_SIZE_REACHED: GroupMaxSizeReached,
    ErrorCode.INVALID_REQUEST: InvalidRequest,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: GroupAuthorizationFailed,
}
OUT = [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH]


@contextmanager
def reading(script: Script, **options: Any) -> Iterator[Consumer[Any]]:  # noqa: ANN401
    with (
        Replaying(script.answers) as server,
        Consumer(server.address, TOPIC, group="g", **{**PATIENT, **options}) as consumer,
    ):
        yield consumer


def read(
    consumer: Consumer[Any],
    count: int,
    *expected: type[SegbrokerError],
) -> tuple[list[int], list[SegbrokerError]]:
    """The offsets of so many records, one by one, and what was told meanwhile."""
    offsets: list[int] = []
    told: list[SegbrokerError] = []
    while len(offsets) < count:
        try:
            some = consumer.poll(1, timeout_ms=60_000)
            assert some, f"nothing comes behind {offsets}"
            offsets += [record.offset for record in some]
        except expected as exc:
            told.append(exc)
    return offsets, told


def is_heard(script: Script) -> bool:
    return not script.verdicts


@pytest.mark.parametrize("code", PASSING)
@pytest.mark.parametrize("when", ["joining", "reading"])
def test_what_passes_is_not_told_and_costs_nothing(code: ErrorCode | None, when: str) -> None:
    script = Script()
    changes: list[str] = []
    if when == "joining":
        script.verdicts = [code, code]
    with reading(script, on_revoked=lambda _: changes.append("revoked")) as consumer:
        first, _ = read(consumer, 5)
        if when == "reading":
            script.verdicts = [code, code]
            until(lambda: is_heard(script))
        rest, _ = read(consumer, COUNT - 5)
    assert first + rest == list(range(COUNT))
    assert script.committed == COUNT - 1  # the last one is in hand
    assert script.left == [-1]
    assert changes == ["revoked"], "at the end alone"


@pytest.mark.parametrize("code", OUT)
@pytest.mark.parametrize("when", ["joining", "reading"])
def test_who_is_not_in_any_more_joins_again_and_goes_on_where_the_group_stands(
    code: ErrorCode, when: str
) -> None:
    script = Script()
    lost: list[int] = []
    if when == "joining":
        script.verdicts = [code]
    with reading(
        script, on_lost=lambda gone: lost.append(len(gone)), auto_commit=False
    ) as consumer:
        first, _ = read(consumer, 5)
        consumer.commit()
        if when == "reading":
            more, _ = read(consumer, 3)
            first += more
            script.verdicts = [code]
            until(lambda: is_heard(script))
            until(lambda: script.epoch == 2)
        rest: list[int] = []
        while not rest or rest[-1] < COUNT - 1:
            some, _ = read(consumer, 1)
            rest += some
        consumer.commit()
    assert first == list(range(len(first)))
    assert rest == list(range(5, COUNT))
    assert lost == ([1] if when == "reading" else [])
    assert script.commits == [(1, 5), (script.epoch, COUNT)]


@pytest.mark.parametrize("code", TOLD)
@pytest.mark.parametrize("when", ["joining", "reading"])
def test_what_joining_again_would_not_mend_is_told_once_and_tried_when_asked_for_again(
    code: ErrorCode, when: str
) -> None:
    """The rights come back, another member goes, an instance is released."""
    script = Script()
    error = TOLD[code]
    if when == "joining":
        script.verdicts = [code]
    with reading(script, instance_id="one", auto_commit=False) as consumer:
        first, told = read(consumer, 5, error)
        consumer.commit()
        if when == "reading":
            script.verdicts = [code]
            # Else all that was read ahead may be handed out before the client has the answer.
            until(lambda: bool(consumer._reading.fetching.prefetched.errors))
        rest: list[int] = []
        while not rest or rest[-1] < COUNT - 1:
            some, more = read(consumer, 1, error)
            rest += some
            told += more
        consumer.commit()
    assert first == list(range(5))
    assert rest == list(range(5, COUNT))
    (only,) = told
    assert "group 'g': as the test says" in str(only)
    assert script.committed == COUNT
    assert script.left == [-2]


def test_that_a_topic_may_not_be_read_for_a_while_is_told_and_costs_no_partition() -> None:
    script = Script()
    with reading(script) as consumer:
        first, _ = read(consumer, 5)
        script.verdicts = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        until(lambda: is_heard(script))
        rest, told = read(consumer, COUNT - 5, TopicAuthorizationFailed)
    assert first + rest == list(range(COUNT))
    assert len(told) == 1
    assert script.epoch == 1


def test_whose_instance_another_has_by_now_is_told_for_good() -> None:
    """It would throw out the other one."""
    script = Script()
    with reading(script, instance_id="one", auto_commit=False) as consumer:
        read(consumer, 5)
        consumer.commit()
        script.verdicts = [ErrorCode.FENCED_INSTANCE_ID]
        until(lambda: is_heard(script))
        for _ in range(3):
            with pytest.raises(FencedInstanceId, match="as the test says"):
                read(consumer, COUNT)
        count = len(script.beats)
    assert script.epoch == 1
    assert len(script.beats) == count, "it is none that could leave"


def test_a_commit_that_came_at_an_epoch_of_before_is_made_again() -> None:
    script = Script()
    with reading(script, auto_commit=False) as consumer:
        read(consumer, 5)
        script.commit_verdicts = [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.NOT_COORDINATOR]
        consumer.commit()
        assert script.commits == [(1, 5)]


@pytest.mark.parametrize("when", ["joining", "reading"])
def test_who_closes_while_an_answer_is_under_way_leaves(when: str) -> None:
    """A join is answered before, or else it would be heard behind that it leaves."""
    script = Script()
    with reading(script) as consumer:
        if when == "reading":
            read(consumer, 5)
        script.may_answer.clear()
        count = len(script.beats)
        if when == "joining":
            consumer.poll(1, timeout_ms=1)
        until(lambda: len(script.beats) > count)
        if when == "joining":
            script.may_answer.set()
    script.may_answer.set()
    assert script.left == [-1]
    assert script.committed == (4 if when == "reading" else -1)
