"""The state machine of one streams group."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

import pytest

from segbroker.broker.groups import streams_group
from segbroker.broker.groups.epochal_group import REST_MS
from segbroker.broker.groups.group_news import News
from segbroker.broker.groups.kept_streams import kept_member, restored_member
from segbroker.broker.groups.member_epochs import JOIN, LEAVE
from segbroker.broker.groups.streams_endpoints import partitions_by_endpoint
from segbroker.broker.groups.streams_group import StreamsGroup, StreamsTold
from segbroker.broker.groups.streams_members import Endpoint, StreamsBeat, minus
from segbroker.broker.groups.streams_topics import Said, Status
from segbroker.broker.groups.streams_topology import InternalTopic, Subtopology, Topology
from segbroker.broker.groups.task_assignor import NO_TASKS, Task, Tasks, Worker, sticky
from segbroker.broker.loop.loop_clock import NEVER_MS
from segbroker.broker.refused import Refused
from segbroker.protocol.errors import ErrorCode
from segbroker.segments.metadata.streams_groups import KeptMember

from .group_topics import Topic, topics_of

SESSION_MS = 45_000
REBALANCE_MS = 10_000


def topology(epoch: int = 0, name: str = "0") -> Topology:
    log = InternalTopic("log", 0, 0, ())
    return Topology(epoch, (Subtopology(name, ("in",), (), (), (log,), ()),))


TOPICS = topics_of(**{"in": 4, "log": 4})


def group(*, size_max: int = 100, standbys: int = 0, initial_delay_ms: int = 0) -> StreamsGroup:
    return StreamsGroup(
        "g", SESSION_MS, size_max, standbys=standbys, initial_delay_ms=initial_delay_ms
    )


def tasks(*numbers: int, copies: tuple[int, ...] = ()) -> Tasks:
    def of(some: tuple[int, ...]) -> frozenset[Task]:
        return frozenset(("0", number) for number in some)

    return Tasks(of(numbers), of(copies))


def joining(name: str, process: str = "", **more: object) -> StreamsBeat:
    beat = StreamsBeat(
        name,
        JOIN,
        rebalance_timeout_ms=REBALANCE_MS,
        topology=topology(),
        owned=NO_TASKS,
        process_id=process or name,
    )
    return beat._replace(**more)  # type: ignore[arg-type]


@dataclass
class Member:
    """One that does as it is told, at once."""

    some: StreamsGroup
    name: str
    process: str = ""
    epoch: int = 0
    owned: Tasks = NO_TASKS
    topics: dict[str, Topic] = field(default_factory=lambda: TOPICS)

    def hears(self, told: StreamsTold, now_ms: int = 0) -> StreamsTold:
        self.epoch = told.epoch
        if told.tasks is not None:
            self.owned = told.tasks
        self.some.was_told(now_ms, self.name, told.tasks)
        return told

    def join(self, now_ms: int = 0, **more: object) -> StreamsTold:
        beat = joining(self.name, self.process, **more)
        return self.hears(self.some.heartbeat(now_ms, beat, self.topics), now_ms)

    def beat(self, now_ms: int = 0, **more: object) -> StreamsTold:
        said = StreamsBeat(self.name, self.epoch, owned=self.owned)._replace(**more)  # type: ignore[arg-type]
        return self.hears(self.some.heartbeat(now_ms, said, self.topics), now_ms)


def settle(*members: Member) -> None:
    """Everybody beats until nothing changes."""
    for _ in range(10):
        for one in members:
            one.beat()


def refused(some: StreamsGroup, said: StreamsBeat) -> int:
    with pytest.raises(Refused) as caught:
        some.heartbeat(0, said, TOPICS)
    return caught.value.code


def test_a_member_joins_and_is_told_its_tasks_once() -> None:
    some = group()
    assert some.state == "Empty"
    one = Member(some, "m")
    assert one.join() == StreamsTold("m", 2, tasks(0, 1, 2, 3))
    assert some.state == "Stable"
    assert one.beat() == StreamsTold("m", 2)


def test_a_task_is_given_when_who_had_it_has_let_go() -> None:
    some = group()
    one, two = Member(some, "one"), Member(some, "two")
    one.join()
    assert two.join().tasks == NO_TASKS
    told = one.beat()  # it is to let go of two, and stays at its epoch until it has
    assert told.tasks is not None
    assert (told.epoch, len(told.tasks.active)) == (2, 2)
    assert two.beat().tasks is None
    assert some.state == "Reconciling"
    assert one.beat().epoch == 3
    told = two.beat()
    assert told.tasks is not None
    assert told.tasks.active == tasks(0, 1, 2, 3).active - one.owned.active
    assert some.state == "Stable"


def test_a_member_that_does_not_say_what_it_has_has_let_go_of_nothing() -> None:
    some = group()
    one, two = Member(some, "one"), Member(some, "two")
    one.join()
    two.join()
    one.beat(owned=None)
    one.beat(owned=None)
    one.beat(owned=tasks(0, 1, 2, 3))
    assert two.beat().tasks is None
    one.beat(owned=one.owned)
    assert two.beat().tasks is not None


def test_who_does_not_let_go_in_time_is_dropped() -> None:
    some = group()
    one, two = Member(some, "one"), Member(some, "two")
    one.join()
    two.join()
    one.beat(owned=None)
    some.tick(REBALANCE_MS - 1)
    assert set(some.members) == {"one", "two"}
    some.tick(REBALANCE_MS)
    assert set(some.members) == {"two"}
    told = two.beat(REBALANCE_MS)
    assert told.tasks == tasks(0, 1, 2, 3)


def test_who_does_not_let_go_in_time_is_dropped_though_it_is_heard_of() -> None:
    some = group()
    one, two = Member(some, "one"), Member(some, "two")
    one.join()
    two.join()
    did = one.owned
    one.beat()
    for now_ms in range(0, REBALANCE_MS, 1_000):
        assert some.heartbeat(now_ms, StreamsBeat("one", one.epoch), TOPICS).tasks is None
        one.beat(now_ms, owned=did)
        two.beat(now_ms)
        some.tick(now_ms)
        assert set(some.members) == {"one", "two"}
    some.tick(REBALANCE_MS)
    assert set(some.members) == {"two"}


def test_who_could_not_be_told_to_let_go_is_not_dropped_for_it() -> None:
    some = group()
    one, two = Member(some, "one"), Member(some, "two")
    one.join()
    two.join()
    some.heartbeat(0, StreamsBeat("one", 2), TOPICS)  # its answer waits for the disk
    some.tick(REBALANCE_MS)
    assert set(some.members) == {"one", "two"}
    two.beat()


def test_who_is_not_heard_of_for_a_session_is_dropped() -> None:
    some = group()
    Member(some, "one").join()
    assert some.due_ms == SESSION_MS
    some.tick(SESSION_MS)
    assert some.is_idle
    assert (some.state, some.due_ms, some.empty_since_ms) == ("Empty", NEVER_MS, SESSION_MS)


def test_a_copy_is_kept_in_another_process_and_takes_over() -> None:
    some = group(standbys=1)
    one, two = Member(some, "one", "p"), Member(some, "two", "q")
    one.join()
    two.join()
    settle(one, two)
    assert one.owned.standby == two.owned.active
    assert two.owned.standby == one.owned.active
    some.heartbeat(0, StreamsBeat("one", LEAVE), TOPICS)
    settle(two)
    assert two.owned == tasks(0, 1, 2, 3)


def test_threads_of_one_process_keep_no_copies_of_each_other() -> None:
    some = group(standbys=1)
    one, two = Member(some, "one", "p"), Member(some, "two", "p")
    one.join()
    two.join()
    settle(one, two)
    assert one.owned.standby == two.owned.standby == frozenset()
    assert len(one.owned.active) == len(two.owned.active) == 2


def test_another_number_of_copies_is_a_new_epoch() -> None:
    some = group()
    one, two = Member(some, "one"), Member(some, "two")
    one.join()
    two.join()
    settle(one, two)
    epoch = some.epoch
    some.standbys = 1
    settle(one, two)
    assert some.epoch == epoch + 1
    assert one.owned.standby == two.owned.active


def test_the_first_target_waits_for_others() -> None:
    some = group(initial_delay_ms=3_000)
    one, two = Member(some, "one"), Member(some, "two")
    told = one.join()
    assert (told.epoch, told.tasks) == (1, NO_TASKS)
    assert [status for status, _ in told.statuses] == [Status.ASSIGNMENT_DELAYED]
    assert some.due_ms == 3_000
    two.join(1_000)
    assert one.beat(2_999).tasks is None
    some.tick(3_000)
    for each in (one, two):
        told = each.beat(3_000)
        assert told.tasks is not None
        assert (len(told.tasks.active), told.statuses) == (2, ())
    assert some.state == "Stable"


def test_a_group_waits_again_when_it_was_empty() -> None:
    some = group(initial_delay_ms=3_000)
    one = Member(some, "one")
    one.join()
    some.tick(3_000)
    one.beat(3_000)
    some.heartbeat(3_000, StreamsBeat("one", LEAVE), TOPICS)
    told = Member(some, "two").join(5_000)
    assert [status for status, _ in told.statuses] == [Status.ASSIGNMENT_DELAYED]
    assert told.epoch == some.assignment_epoch < some.epoch


def test_without_its_topics_nobody_has_a_task() -> None:
    some = group()
    one = Member(some, "one", topics={})
    told = one.join()
    assert [status for status, _ in told.statuses] == [Status.MISSING_SOURCE_TOPICS]
    assert (told.tasks, some.state) == (NO_TASKS, "NotReady")
    one.topics = topics_of(**{"in": 4})
    assert [status for status, _ in one.beat().statuses] == [Status.MISSING_INTERNAL_TOPICS]
    assert [topic.name for topic in some.work.configured.missing] == ["log"]
    one.topics = TOPICS
    told = one.beat()
    assert (told.tasks, told.statuses) == (tasks(0, 1, 2, 3), ())
    assert some.state == "Stable"


def test_a_topic_that_others_made_is_no_matter_of_the_group() -> None:
    some = group()
    one = Member(some, "one")
    one.join()
    one.topics = TOPICS | topics_of(other=3)
    assert one.beat() == StreamsTold("one", 2)


def test_tasks_are_taken_back_when_a_topic_goes() -> None:
    some = group()
    one = Member(some, "one")
    one.join()
    one.topics = topics_of(log=4)
    assert one.beat().tasks == NO_TASKS
    one.beat()
    assert (some.state, some.members["one"].assigned) == ("NotReady", NO_TASKS)


def test_a_member_with_another_topology_of_the_same_epoch_is_refused() -> None:
    some = group()
    Member(some, "one").join()
    assert refused(some, joining("two", topology=topology(name="1"))) == ErrorCode.INVALID_REQUEST
    assert refused(some, joining("two", topology=topology(1))) == ErrorCode.INVALID_REQUEST
    assert set(some.members) == {"one"}
    assert some.epoch == 2


def test_a_member_with_an_older_topology_is_told_so() -> None:
    some = group()
    Member(some, "new").join(topology=topology(2))
    old = Member(some, "old")
    assert [status for status, _ in old.join().statuses] == [Status.STALE_TOPOLOGY]
    assert [status for status, _ in old.beat().statuses] == [Status.STALE_TOPOLOGY]


def test_who_is_at_another_epoch_is_fenced() -> None:
    some = group()
    one = Member(some, "one")
    one.join()
    assert refused(some, StreamsBeat("one", 3)) == ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(some, StreamsBeat("one", 1)) == ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(some, StreamsBeat("two", 2)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(some, StreamsBeat("two", LEAVE)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_lost_answer_is_told_again() -> None:
    some = group()
    one = Member(some, "one", topics={})
    one.join()
    one.topics = TOPICS
    said = StreamsBeat("one", one.epoch, owned=NO_TASKS)
    lost = some.heartbeat(0, said, TOPICS)
    assert lost.tasks == tasks(0, 1, 2, 3)
    assert lost.epoch > one.epoch
    assert one.beat().tasks == lost.tasks
    assert one.epoch == lost.epoch


def test_a_member_is_at_the_epoch_that_it_was_told_last_however_many_answers_are_lost() -> None:
    some, topics = group(), topics_of(**{"in": 1, "log": 1})
    one = Member(some, "one", topics=topics)
    one.join()
    one.beat()
    said = StreamsBeat("one", one.epoch, owned=one.owned)
    for name in ("two", "three", "four"):
        Member(some, name, topics=topics).join()
        lost = some.heartbeat(0, said, topics)
        assert lost.epoch == some.epoch
    assert one.beat().tasks == tasks(0)
    assert one.epoch == some.epoch
    Member(some, "five", topics=topics).join()
    one.beat()
    assert refused(some, said) == ErrorCode.FENCED_MEMBER_EPOCH, "it has been told since"


def test_who_repeats_itself_word_for_word_is_told_what_it_has_missed() -> None:
    some, topics = group(), topics_of(**{"in": 1, "log": 1})
    one, two = Member(some, "one", topics=topics), Member(some, "two", topics=topics)
    one.join()
    two.join()
    said = StreamsBeat("one", one.epoch)
    some.was_told(0, "one", some.heartbeat(0, said, topics).tasks)  # and it is lost
    told = some.heartbeat(0, said, topics)
    assert (told.epoch, told.tasks) == (some.epoch, tasks(0))


def test_a_request_to_join_that_came_late_takes_nothing_from_who_does_the_tasks() -> None:
    some = group()
    one, two = Member(some, "one"), Member(some, "two")
    one.join()
    one.beat()
    two.join()
    some.heartbeat(0, joining("one"), TOPICS)  # came late, or twice: it does them all the while
    two.beat()
    assert two.owned == NO_TASKS
    one.beat()
    settle(one, two)
    assert len(one.owned.active) == len(two.owned.active) == 2


def test_who_joins_again_in_another_process_has_nothing_of_before() -> None:
    some = group()
    one, two = Member(some, "one"), Member(some, "two")
    one.join()
    one.beat()
    two.join()
    some.heartbeat(0, joining("one", "again"), TOPICS)
    two.beat()
    assert len(two.owned.active) == 2
    assert refused(some, StreamsBeat("one", 2, owned=NO_TASKS)) == ErrorCode.FENCED_MEMBER_EPOCH


def test_tasks_that_there_are_not_are_refused() -> None:
    some = group()
    Member(some, "one").join()
    for owned in (tasks(4), tasks(-1), Tasks(frozenset({("1", 0)}))):
        assert refused(some, StreamsBeat("one", 2, owned=owned)) == ErrorCode.INVALID_REQUEST


def test_one_too_many_is_refused_and_who_is_in_it_joins_again() -> None:
    some = group(size_max=1)
    one = Member(some, "one")
    one.join()
    assert refused(some, joining("two")) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert one.join().tasks == tasks(0, 1, 2, 3)


def test_a_member_in_another_process_begins_again() -> None:
    some = group()
    one = Member(some, "one", "p")
    one.join()
    one.process = "q"
    assert one.join().tasks == tasks(0, 1, 2, 3)
    assert some.holders.is_in("q", ("0", 0))
    assert not some.holders.is_in("p", ("0", 0))
    said = StreamsBeat("one", one.epoch, process_id="r")
    assert refused(some, said) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("epoch", [2, LEAVE])
def test_a_shutdown_is_told_to_all_until_nobody_is_left(epoch: int) -> None:
    some = group()
    one, two = Member(some, "one"), Member(some, "two")
    one.join()
    two.join()
    some.heartbeat(0, StreamsBeat("one", epoch, shuts_down=True), TOPICS)
    assert Status.SHUTDOWN_APPLICATION in [status for status, _ in two.beat().statuses]
    if epoch == LEAVE:
        one.join()
        assert Status.SHUTDOWN_APPLICATION in [status for status, _ in two.beat().statuses]
    for name in ("one", "two"):
        some.heartbeat(0, StreamsBeat(name, LEAVE), TOPICS)
    assert Member(some, "three").join().statuses == ()


def test_offsets_are_committed_at_the_epoch_of_the_member() -> None:
    some = group()
    assert some.check_commit("", -1) == ErrorCode.NONE
    one, two = Member(some, "one"), Member(some, "two")
    one.join()
    assert some.check_commit("one", 2) == ErrorCode.NONE
    assert some.check_commit("one", 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert some.check_commit("nobody", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert some.check_commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    two.join()
    settle(one, two)
    where = TOPICS["in"].topic_id.bytes
    kept = {number for _, number in one.owned.active}
    late = {n for n in range(4) if some.may_commit_late("one", 2, (where, n))}
    assert late == kept, "of what it has let go of meanwhile nothing stands"
    assert not some.may_commit_late("two", 2, (where, 0))
    assert not some.may_commit_late("one", 2, (b"elsewhere", 0))
    assert some.check_fetch("one", 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert some.check_fetch(None, -1) == ErrorCode.NONE


def test_endpoints_are_told_with_what_their_instances_have() -> None:
    some = group(standbys=1)
    one, two = Member(some, "one"), Member(some, "two")
    one.join(endpoint=Endpoint("here", 80))
    two.join()
    settle(one, two)
    epoch = some.endpoint_epoch
    ((endpoint, active, standby),) = partitions_by_endpoint(some, TOPICS)
    assert (endpoint, len(active["in"]), len(standby["in"])) == (("here", 80), 2, 2)
    some.heartbeat(0, StreamsBeat("one", LEAVE), TOPICS)
    assert some.endpoint_epoch == epoch + 1
    assert list(partitions_by_endpoint(some, TOPICS)) == []


def test_what_an_endpoint_has_is_made_once_for_all_who_are_told() -> None:
    some = group()
    topics = TOPICS
    members = [Member(some, name) for name in ("one", "two", "three")]
    for n, member in enumerate(members):
        member.join(endpoint=Endpoint("here", n))
    settle(*members)
    before = {one.endpoint.port: one for one in partitions_by_endpoint(some, topics)}
    assert sum(len(one.active["in"]) for one in before.values()) == 4
    again = list(partitions_by_endpoint(some, topics))
    assert all(one is before[one.endpoint.port] for one in again)
    some.heartbeat(0, StreamsBeat("three", LEAVE), topics)
    settle(*members[:2])
    after = {one.endpoint.port: one for one in partitions_by_endpoint(some, topics)}
    assert sum(len(one.active["in"]) for one in after.values()) == 4
    assert any(one is not before[port] for port, one in after.items())
    others = {**topics, "else": Topic(UUID(int=9), 1)}
    assert list(partitions_by_endpoint(some, others)) == list(after.values())


def test_targets_of_a_large_group_are_a_second_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(workers: Sequence[Worker], *more: Any) -> dict[str, Tasks]:  # noqa: ANN401
        made.append(len(workers))
        return sticky(workers, *more)

    monkeypatch.setattr(streams_group, "sticky", counted)
    many = topics_of(**{"in": 1_000, "log": 1_000})
    some = group(size_max=1_000)
    members = [Member(some, f"member-{n}", topics=many) for n in range(501)]
    first = members[0].join()
    assert first.tasks is not None
    assert len(first.tasks.active) == 1_000
    for one in members[1:]:
        told = one.join(now_ms=999)
        assert (told.epoch, told.tasks) == (2, NO_TASKS)
        assert told.statuses == (
            Said(
                Status.ASSIGNMENT_DELAYED,
                "Assignment delayed due to the configured assignment interval.",
            ),
        )
    assert made == [1]
    assert some.state == "Assigning"
    for now_ms in (1_000, 1_001, 1_002):
        for one in members:
            assert one.beat(now_ms).statuses == ()
    assert made == [1, 501]
    assert some.state == "Stable"
    assert {len(one.owned.active) for one in members} == {1, 2}


def test_joins_and_rebalances_are_told() -> None:
    heard: list[News] = []
    some = group()
    some.tell = heard.append
    one = Member(some, "one")
    one.join()
    one.beat()
    some.heartbeat(0, StreamsBeat("one", LEAVE), TOPICS)
    assert [(news.event, news.reason) for news in heard] == [
        ("group_member_joined", ""),
        ("group_rebalance_began", "member joined"),
        ("group_stable", ""),
        ("group_member_removed", "left"),
        ("group_empty", ""),
    ]


def restored(some: StreamsGroup) -> StreamsGroup:
    """The group after a restart of the broker."""
    after = group(standbys=some.standbys)
    after.epoch, after.assignment_epoch = some.epoch, some.assignment_epoch
    kept = None if some.topology is None else Topology.of_row(some.topology.row())
    rows = {name: KeptMember.of_row(kept_member(some, name).row()) for name in some.members}
    members = {name: (restored_member(name, row), Tasks(*row.target)) for name, row in rows.items()}
    after.restore(0, kept, members, frozenset(), TOPICS)
    return after


def test_a_restored_group_goes_on_without_a_new_epoch() -> None:
    some = group(standbys=1)
    one, two = Member(some, "one"), Member(some, "two")
    one.join()
    two.join()
    settle(one, two)
    before = (some.epoch, one.owned, two.owned)
    one.some = two.some = restored(some)
    assert one.some.state == "Stable"
    assert one.beat(owned=None).tasks is None
    settle(one, two)
    assert (one.some.epoch, one.owned, two.owned) == before
    assert one.some.unkept == set()


class Model:
    """Members that come, go, lag behind and lose answers, or whose requests to join come late; the
    broker that starts again."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.some = group(standbys=1)
        self.members: dict[str, Member] = {}
        self.doing: dict[str, Tasks] = {}
        self.now_ms = 0
        self.epoch = 0

    def step(self) -> None:
        """Something happens."""
        name = self.random.choice("abcd")
        (what,) = self.random.choices(
            (
                self.beats,
                self.does_as_told,
                self.comes,
                self.came_late,
                self.leaves,
                self.time_goes_by,
                self.copies_change,
                self.the_broker_starts_again,
                self.all_settle,
            ),
            (40, 20, 3, 2, 2, 4, 2, 2, 1),
        )
        what(name)
        self.check()

    def comes(self, name: str) -> None:
        one = self.members[name] = Member(self.some, name, self.random.choice("pq"))
        self.doing[name] = NO_TASKS  # who joins does nothing
        one.join(self.now_ms)

    def came_late(self, name: str) -> None:
        """What it said when it joined is read once more; nobody hears the answer."""
        if name in self.some.members and (one := self.members.get(name)) is not None:
            self.some.heartbeat(self.now_ms, joining(name, one.process), TOPICS)

    def beats(self, name: str, *, is_right: bool = False) -> None:
        one = self.members.get(name)
        if one is None:
            return
        speaks, hears = (is_right or self.random.random() < 0.7 for _ in range(2))
        # What it has yet to begin it may begin though others were given it since: as in Kafka.
        speaks &= minus(one.owned, self.doing[name]) == NO_TASKS
        said = StreamsBeat(name, one.epoch, owned=self.doing[name] if speaks else None)
        try:
            answer = self.some.heartbeat(self.now_ms, said, TOPICS)
        except Refused as exc:
            if exc.code != ErrorCode.UNKNOWN_MEMBER_ID:
                raise  # also of who is fenced: it is at what it was told last
            self.is_gone(name)
            return
        if hears:
            one.hears(answer, self.now_ms)

    def does_as_told(self, name: str) -> None:
        if name in self.members:
            self.doing[name] = self.members[name].owned

    def is_gone(self, name: str) -> None:
        self.members.pop(name, None)
        self.doing.pop(name, None)

    def leaves(self, name: str) -> None:
        if name in self.members:
            self.some.heartbeat(self.now_ms, StreamsBeat(name, LEAVE), TOPICS)
        self.is_gone(name)

    def time_goes_by(self, _: str) -> None:
        self.now_ms += self.random.choice((1, 100, REBALANCE_MS))
        self.some.tick(self.now_ms)
        for name in set(self.members) - set(self.some.members):
            self.is_gone(name)  # it has not been heard of for so long, and has stopped

    def copies_change(self, _: str) -> None:
        self.some.standbys = self.random.randrange(3)

    def the_broker_starts_again(self, _: str) -> None:
        self.some = restored(self.some)
        self.now_ms = 0
        for one in self.members.values():
            one.some = self.some

    def all_settle(self, _: str) -> None:
        self.now_ms += REST_MS
        for _round in range(8):
            for name in list(self.members):
                self.does_as_told(name)
                self.beats(name, is_right=True)
        if self.members and self.members.keys() == self.some.members.keys():
            assert self.some.state == "Stable"
            given = [task for one in self.members.values() for task in one.owned.active]
            assert sorted(given) == [("0", n) for n in range(4)], "every task is somebody's"

    def check(self) -> None:
        done = [task for mine in self.doing.values() for task in mine.active]
        assert len(done) == len(set(done)), "no task is done twice"
        has = [
            (member.said.process_id, task)
            for member in self.some.members.values()
            for some in (member.assigned, member.revoking)
            for task in (*some.active, *some.standby)
        ]
        assert len(has) == len(set(has)), "no process has a task twice"
        assert self.some.epoch >= self.epoch
        self.epoch = self.some.epoch
        for member in self.some.members.values():
            assert member.epoch <= self.some.epoch
            assert set(member.since) == member.assigned.active | member.revoking.active
        ends = [member.ends_ms for member in self.some.members.values()]
        assert self.some.due_ms <= min(ends, default=NEVER_MS)


@pytest.mark.parametrize("small_max", [streams_group.SMALL_MAX, 0])
@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_a_task_is_done_once_and_all_are_done_in_the_end(
    seed: int, small_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams_group, "SMALL_MAX", small_max)
    model = Model(seed)
    for _ in range(300):
        model.step()
