"""What a share group's member says in time: before the lock of what it is about has ended."""

import time

import pytest

from segbroker.client.clock import now_ms
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_share_groups import ShareFetchRequest

from ..support.waiting import until, within_one_of
from .replaying import Request
from .scripted_shares import ANSWER, LOCK_MS, Script, batch, decode, offsets, working

PATIENT_MS = 60_000
# Of who stands still for as long as a lock lasts it ends; then a longer one is tried.
LOCKS_MS = 1_000, 15_000


def test_no_question_is_open_when_locks_have_to_be_renewed() -> None:
    script = Script((batch(0, 1), [(0, 0, 1)]), (batch(1, 1), [(1, 1, 1)]))
    waits: list[int] = []
    answer = script.answers[ApiKey.SHARE_FETCH]

    def noted(request: Request) -> bytes | None:
        waits.append(decode(request, ShareFetchRequest).max_wait_ms)
        return answer(request)

    script.answers[ApiKey.SHARE_FETCH] = noted
    options = {"fetch_wait_ms": LOCK_MS - 1, "request_timeout_ms": 10 * LOCK_MS}
    with working(script, explicit=True, **options) as consumer:
        assert offsets(consumer.poll(timeout_ms=PATIENT_MS)) == [0]
        assert offsets(consumer.poll(timeout_ms=PATIENT_MS)) == [1], "the first is held"
    first, second = waits
    assert first == LOCK_MS - 1, "there is no lock yet"
    assert second <= LOCK_MS // 2


@pytest.mark.parametrize("max_hold_ms", [None, 0])
def test_what_was_said_waits_no_longer_than_its_lock_lasts(
    max_hold_ms: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_said(lock_ms: int) -> None:
        monkeypatch.setitem(ANSWER, "acquisition_lock_timeout_ms", lock_ms)
        script = Script((batch(0, 2), [(0, 1, 1)]))
        with working(script, explicit=True, max_hold_ms=max_hold_ms) as consumer:
            first, _ = consumer.poll(timeout_ms=PATIENT_MS)
            consumer.accept(first)
            until(lambda: any(said == {0: 1} for _, said in script.acknowledged))

    within_one_of(LOCKS_MS, is_said)


def test_what_the_broker_cannot_take_is_said_again_while_its_lock_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def is_said_again(lock_ms: int) -> None:
        monkeypatch.setitem(ANSWER, "acquisition_lock_timeout_ms", lock_ms)
        script = Script((batch(0, 2), [(0, 1, 1)]))
        script.verdicts = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        with working(script, explicit=True, max_hold_ms=0) as consumer:
            first, _ = consumer.poll(timeout_ms=PATIENT_MS)
            consumer.accept(first)
            until(lambda: [said for _, said in script.acknowledged] == [{0: 1}] * 2)

    within_one_of(LOCKS_MS, is_said_again)


def test_a_record_whose_lock_ended_while_nothing_of_the_client_ran_is_not_handed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As behind a job that keeps the event loop to itself, or a process that was stopped."""

    def is_not_handed_out(lock_ms: int) -> None:
        monkeypatch.setitem(ANSWER, "acquisition_lock_timeout_ms", lock_ms)
        script = Script((batch(0, 3), [(0, 2, 1)]))
        with working(script, max_hold_ms=0, on_failed=print) as consumer:
            reading = consumer._reading
            assert offsets(consumer.poll(1, timeout_ms=PATIENT_MS)) == [0]
            with consumer._lock:
                time.sleep(lock_ms / 1000)
                reading.came_back(now_ms())
                assert reading.take() is None
                assert reading.take_many(2) == ()

    within_one_of((500, 15_000), is_not_handed_out)
