"""What a share group's member makes of several brokers."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from segbroker.client import AcknowledgeFailed, ShareConsumer, thread_driver
from segbroker.protocol.api_keys import ApiKey

from ..support.waiting import DEADLINE_S, until, within_one_of
from .replaying import Request
from .share_cluster import ACCEPT, ShareCluster


def poll(consumer: ShareConsumer[Any], count: int = 1) -> list[Any]:
    """Until there are so many; the caller comes back often, so that it is asked by the view of
    now."""
    records: list[Any] = []

    def came() -> bool:
        records.extend(consumer.poll(timeout_ms=50))
        return len(records) >= count

    until(came)
    return records


@pytest.mark.parametrize("brokers", [2, 3, 4])
@pytest.mark.parametrize("work_ms", [0, 3])
def test_each_broker_has_its_turn(brokers: int, work_ms: int) -> None:
    """Where one of them is asked at a time, and each always has records: however long the caller
    works at each."""
    with (
        ShareCluster(brokers=brokers, partitions=brokers, count=5_000) as cluster,
        cluster.working(acquire="records", acquire_count=1) as consumer,
    ):
        turns: Counter[int] = Counter()

        def have_all_had_one() -> bool:
            threading.Event().wait(work_ms / 1000)
            turns.update(record.partition for record in consumer.poll())
            return len(turns) == brokers

        until(have_all_had_one, pause_s=0)
        turns.clear()
        for _ in range(5 * brokers):
            have_all_had_one()
        assert set(turns.values()) == {5}


def test_where_one_broker_is_asked_at_a_time_the_others_do_not_wait_for_all_of_its_wait() -> None:
    """All together they hold questions no longer than one of them would alone."""
    with (
        ShareCluster(brokers=4, partitions=4, count=0) as cluster,
        cluster.working(acquire="records", fetch_wait_ms=400) as consumer,
    ):
        consumer.poll(timeout_ms=1)  # it is a member
        until(
            lambda: (
                not consumer.poll(timeout_ms=500)
                and all(len(broker.fetches) > 1 for broker in cluster.brokers.values())
            )
        )
    for broker in cluster.brokers.values():
        assert max(asked.max_wait_ms for asked in broker.fetches[1:]) <= 100


def test_a_record_is_the_member_s_by_the_broker_that_gave_it_last() -> None:
    """Another leader gives it anew, while it is held by the word of the one before."""
    with (
        ShareCluster(brokers=2, partitions=1, count=1) as cluster,
        cluster.working(explicit=True, metadata_max_age_ms=50) as consumer,
    ):
        (held,) = poll(consumer)
        cluster.move(0, 2)
        views_count = cluster.views_count
        until(lambda: cluster.views_count > views_count + 1)  # it knows, and was not refused
        again = poll(consumer)
        assert [(r.offset, r.delivery_count) for r in (held, *again)] == [(0, 1), (0, 2)]
        consumer.accept(*again)
        consumer.commit()
        assert cluster.logs[0].done == {0: ACCEPT}


def test_what_a_leader_of_before_says_late_takes_nothing_from_the_one_of_now() -> None:
    with (
        ShareCluster(brokers=2, partitions=1, count=1) as cluster,
        cluster.working(explicit=True, metadata_max_age_ms=50) as consumer,
    ):
        moved, may_answer = threading.Event(), threading.Event()

        def move(request: Request) -> None:
            if request.api_key == ApiKey.SHARE_FETCH and not moved.is_set():
                moved.set()
                cluster.move(0, 2)
                assert may_answer.wait(DEADLINE_S)

        cluster.brokers[1].after = move
        records = poll(consumer)
        may_answer.set()
        until(
            lambda: (
                not consumer.poll(timeout_ms=50) and not consumer._reading.lanes.lanes[1].is_asked
            )
        )
        assert [(r.offset, r.delivery_count) for r in records] == [(0, 2)]
        consumer.accept(*records)
        consumer.commit()
        assert cluster.logs[0].done == {0: ACCEPT}


def silent_towards(api_key: ApiKey) -> Callable[[Request], bool]:
    return lambda request: request.api_key != api_key


def test_at_the_end_a_broker_that_is_silent_takes_no_answer_of_another_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def takes_none(within_ms: int) -> None:
        monkeypatch.setattr(thread_driver, "GOODBYE_MS", within_ms)
        with (  # noqa: PT012
            ShareCluster(brokers=2, partitions=2, count=1) as cluster,
            pytest.raises(AcknowledgeFailed) as caught,
            cluster.working(explicit=True) as consumer,
        ):
            consumer.accept(*poll(consumer, 2))
            cluster.brokers[1].before = silent_towards(ApiKey.SHARE_ACKNOWLEDGE)
        assert cluster.logs[1].done == {0: ACCEPT}
        assert [(each.partition, each.offsets) for each in caught.value.failed] == [(0, (0,))]

    within_one_of((500, 10_000), takes_none)


def test_at_the_end_a_broker_that_is_silent_keeps_no_other_from_hearing_what_was_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A question to it is open, and the end waits for questions that are open."""

    def keeps_none(within_ms: int) -> None:
        monkeypatch.setattr(thread_driver, "GOODBYE_MS", within_ms)
        with ShareCluster(brokers=2, partitions=2, count=1) as cluster:
            cluster.brokers[1].before = silent_towards(ApiKey.SHARE_FETCH)
            with cluster.working(explicit=True) as consumer:
                consumer.accept(*poll(consumer))
            assert cluster.logs[1].done == {0: ACCEPT}
            assert cluster.left

    within_one_of((500, 10_000), keeps_none)
