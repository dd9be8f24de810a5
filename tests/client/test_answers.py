"""Answers as they should not be: a few of what `python -m tests.soak.answers` draws, and three
faults of a client that are put in to be found.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from segbroker.client.connection import Connection
from segbroker.client.errors import NotLeaderOrFollower, SegbrokerError
from segbroker.client.outcomes import Outcomes
from segbroker.client.producer_batch import ProducerBatch
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode

from .answers.cases import PLOTS, Case
from .answers.deeds import Code, Cut, Deed, Emptied, Fault, Miscounted, Missing, Stranger
from .answers.kits import KITS
from .answers.story import Stage, stage

AT_ONCE = 8
# On a machine that stands still nothing times out; where something lasts, the clock goes ahead.
PATIENT_MS = 20_000
PLOT_OF = {plot.name: plot for plot in PLOTS}
PRODUCED = ("responses", "partition_responses", "error_code")
FETCHED = ("responses", "partitions", "error_code")
COMMITTED = ("topics", "partitions", "error_code")
UNLED = ("topics", "partitions", "error_code")
CODE = ("error_code",)


def once(name: str, key: ApiKey, deed: Deed, nth: int = 1, then: Deed | None = None) -> Case:
    return Case(PLOT_OF[name], Fault(key, deed, nth, then=then))


def cases() -> list[Case]:
    return [
        # First what waits longest: for the locks of records.
        once("shares", ApiKey.SHARE_FETCH, Code(CODE, ErrorCode.SHARE_SESSION_NOT_FOUND)),
        once("sends", ApiKey.PRODUCE, Code(PRODUCED, ErrorCode.NOT_LEADER_OR_FOLLOWER)),
        once("sends", ApiKey.PRODUCE, Code(PRODUCED, ErrorCode.REQUEST_TIMED_OUT, is_done=True)),
        once(
            "sends",
            ApiKey.PRODUCE,
            Code(PRODUCED, ErrorCode.NOT_LEADER_OR_FOLLOWER, is_done=True),
            then=Code(PRODUCED, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ),
        once("sends", ApiKey.PRODUCE, Cut("within")),
        once("sends", ApiKey.PRODUCE, Emptied(("responses",))),
        once("commits", ApiKey.END_TXN, Cut("behind")),
        once("commits", ApiKey.PRODUCE, Code(PRODUCED, ErrorCode.PRODUCER_FENCED)),
        once("reads", ApiKey.FETCH, Code(FETCHED, ErrorCode.UNKNOWN_LEADER_EPOCH)),
        once("reads", ApiKey.METADATA, Cut("before")),
        once("joins", ApiKey.JOIN_GROUP, Code(CODE, ErrorCode.COORDINATOR_NOT_AVAILABLE)),
        once("joins", ApiKey.OFFSET_FETCH, Miscounted()),
        once("joins_newer", ApiKey.OFFSET_FETCH, Miscounted()),
        once("joins", ApiKey.OFFSET_COMMIT, Code(COMMITTED, ErrorCode.REQUEST_TIMED_OUT)),
        once("commit", ApiKey.OFFSET_COMMIT, Code(COMMITTED, ErrorCode.KAFKA_STORAGE_ERROR)),
        once("joins_newer", ApiKey.CONSUMER_GROUP_HEARTBEAT, Cut("behind")),
        once("transforms", ApiKey.TXN_OFFSET_COMMIT, Cut("behind")),
        once(
            "share_offsets",
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            Code(("groups", "error_code"), ErrorCode.REQUEST_TIMED_OUT),
        ),
        once(
            "describe_group",
            ApiKey.DESCRIBE_GROUPS,
            Code(("groups", "error_code"), ErrorCode.REQUEST_TIMED_OUT),
        ),
        once("create_topic", ApiKey.CREATE_TOPICS, Cut("behind")),
        once("create_topic", ApiKey.CREATE_TOPICS, Emptied(("topics",))),
        once("commit", ApiKey.OFFSET_COMMIT, Missing(("topics", "partitions"))),
        once("alter_share_offsets", ApiKey.ALTER_SHARE_GROUP_OFFSETS, Emptied(("responses",))),
        once("delete_records", ApiKey.DELETE_RECORDS, Missing(("topics", "partitions"))),
        once("joins", ApiKey.OFFSET_FETCH, Emptied(("groups", "topics"))),
        once("create_topic", ApiKey.CREATE_TOPICS, Code(("topics", "error_code"), ErrorCode(127))),
        once("list_quotas", ApiKey.DESCRIBE_CLIENT_QUOTAS, Code(CODE, ErrorCode(13))),
        once("offsets", ApiKey.METADATA, Stranger(), 2),
    ]


@pytest.fixture(scope="module")
def of_cases() -> Iterator[Stage]:
    with stage(PATIENT_MS) as made:
        yield made


def test_clients_keep_their_promises_whatever_they_are_answered(of_cases: Stage) -> None:
    with ThreadPoolExecutor(AT_ONCE) as workers:
        done = list(workers.map(lambda case: case.run(of_cases), cases()))
    assert {str(case.fault): case.problems for case in done if case.problems} == {}
    assert [str(case.fault) for case in done if not case.has_happened] == []


@pytest.mark.parametrize("name", ["sends", "offsets", "delete_records"])
def test_what_is_said_of_a_partition_without_a_leader_is_told_when_the_time_is_over(
    name: str, of_cases: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A request may take half of the limit: it is always answered in time, the call never.
    passing_ms = PATIENT_MS * 2 // 5
    monkeypatch.setattr(of_cases.board, "happens", lambda: of_cases.clock.leap(passing_ms))
    fault = Fault(ApiKey.METADATA, Code(UNLED, ErrorCode.LISTENER_NOT_FOUND), times=None)
    case = Case(PLOT_OF[name], fault).run(of_cases, KITS[:1])
    assert case.problems == []
    assert any("LISTENER_NOT_FOUND" in line for line in case.told)


def test_a_case_comes_of_its_seed() -> None:
    assert Case.drawn(7).fault == Case.drawn(7).fault


def problems(stage: Stage, deed: Deed) -> str:
    """Of a producer that meets it."""
    return " ".join(once("sends", ApiKey.PRODUCE, deed).run(stage, KITS[:1]).problems)


def test_what_passes_taken_for_what_lasts_is_found(
    of_cases: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NotLeaderOrFollower, "retryable", False)
    found = problems(of_cases, Code(PRODUCED, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert "could have been tried again" in found


def test_a_waiter_that_nobody_wakes_is_found(
    of_cases: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Connection.lost

    def forgets(self: Connection, error: SegbrokerError, now_ms: int) -> None:
        if self.state.name == "READY" and self.in_flight:
            self.in_flight.clear()
            of_cases.clock.leap(PATIENT_MS)
        lost(self, error, now_ms)

    monkeypatch.setattr(Connection, "lost", forgets)
    assert "could have been tried again" in problems(of_cases, Cut("before"))


def test_a_record_that_is_there_twice_behind_a_cut_is_found(
    of_cases: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = Outcomes._failed

    def numbers_anew(self: Outcomes, batch: ProducerBatch, code: ErrorCode, *args: Any) -> None:  # noqa: ANN401
        failed(self, batch, code, *args)
        if code == ErrorCode.NETWORK_EXCEPTION and not batch.queue.in_flight:
            self._identity.next_epoch(batch.queue)

    monkeypatch.setattr(Outcomes, "_failed", numbers_anew)
    assert "there 2 times" in problems(of_cases, Cut("behind"))
