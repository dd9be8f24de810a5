"""Members of a group against a real daemon: sharing, handing over, dying, committing, ending."""

import inspect
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import pytest

from segbroker.client import (
    Admin,
    AsyncConsumer,
    ClosedError,
    Consumer,
    FencedInstanceId,
    IllegalGeneration,
    Producer,
    Record,
    ShareConsumer,
    TimedOut,
    TopicPartition,
    UnknownTopicOrPartition,
)
from segbroker.client import async_consumer as async_consumer_module
from segbroker.client import consumer as consumer_module
from segbroker.client.classic_membership import ClassicMembership
from segbroker.client.group_commits import Commits
from segbroker.client.group_events import Events, News

from ..support.daemon import Daemon, running, start
from ..support.waiting import DEADLINE_S, until
from .test_interrupted import Interrupting

Options: TypeAlias = dict[str, Any]
PARTITIONS = 4
COUNT = 400
# A machine that stands still for a moment ends no session, where that is not what is tested.
QUICK: Any = {"heartbeat_interval_ms": 50, "session_timeout_ms": 60_000}
# ... as of the newer protocol; how often it is heard of its broker says.
BY_BROKER: Any = {"group_protocol": "consumer"}
BRIEF: Any = {**QUICK, "session_timeout_ms": 6_000}


@pytest.fixture(params=[QUICK, BY_BROKER], ids=["classic", "consumer"])
def quick(request: pytest.FixtureRequest) -> object:
    """Options of a member of either protocol, where that makes no difference."""
    return request.param


@pytest.fixture
def filled(daemon: Daemon, topic: str) -> str:
    fill(daemon.address, topic)
    return topic


def fill(address: str, topic: str, count: int = COUNT) -> None:
    with Admin(address) as admin:
        admin.create_topic(topic, partitions=PARTITIONS)
    more(address, topic, 0, count)


def more(address: str, topic: str, first: int, stop: int) -> None:
    with Producer(address) as producer:
        for n in range(first, stop):
            producer.send(topic, b"%d" % n, partition=n % PARTITIONS)


def committed_count(address: str, group: str) -> int:
    """How many records a group has gone past."""
    with Admin(address) as admin:
        return sum(stands.offset for stands in admin.committed(group).values())


class Member:
    """A consumer in a thread of its own that reads until it is told to stop."""

    def __init__(self, address: str, topic: str, group: str = "", **options: Any) -> None:  # noqa: ANN401
        self.values: list[int] = []
        self.told: list[tuple[str, list[int]]] = []
        self.owned: set[int] = set()
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self.consumer: Consumer = Consumer(
            address,
            topic,
            group=group or topic,
            on_assigned=self._tell("assigned"),
            on_revoked=self._tell("revoked"),
            on_lost=self._tell("lost"),
            **(options if "group_protocol" in options else {**QUICK, **options}),
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _tell(self, what: str) -> Callable[[list[TopicPartition]], None]:
        def tell(partitions: list[TopicPartition]) -> None:
            assert threading.current_thread() is self._thread
            numbers = {tp.partition for tp in partitions}
            # First what it was told: tests wait for what it owns.
            self.told.append((what, sorted(numbers)))
            self.owned = self.owned | numbers if what == "assigned" else self.owned - numbers

        return tell

    def _run(self) -> None:
        try:
            with self.consumer as consumer:
                while not self._stop.is_set():
                    for record in consumer.poll(timeout_ms=50):
                        self.values.append(int(record.value or b""))
        except BaseException as exc:
            self.error = exc

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def state(self) -> str:
        has = f"has {sorted(self.owned)}, read {len(self.values)} values"
        return f"{has}, {self.consumer.group_metadata}, was told {self.told[-4:]}"

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error


def test_a_group_reads_everything_once_and_goes_on_where_it_stopped(
    daemon: Daemon, filled: str
) -> None:
    with Consumer(daemon.address, filled, group=filled, stop_at_end=True) as consumer:
        first = [int(record.value or b"") for record in consumer]
    assert sorted(first) == list(range(COUNT))
    more(daemon.address, filled, COUNT, COUNT + 8)
    with Consumer(daemon.address, filled, group=filled, stop_at_end=True) as consumer:
        assert sorted(int(record.value or b"") for record in consumer) == list(
            range(COUNT, COUNT + 8)
        )


def test_a_bounded_reading_of_other_topics_ends_behind_their_records(
    daemon: Daemon, filled: str, quick: Options
) -> None:
    fill(daemon.address, other := f"{filled}.b")
    with Consumer(daemon.address, filled, group=filled, stop_at_end=True, **quick) as consumer:
        assert len(list(consumer)) == COUNT
        for topics, count in (([filled, other], COUNT), ([filled], 0)):
            consumer.subscribe(topics)
            assert len(list(consumer)) == count


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_who_joins_a_group_of_the_newer_protocol_by_the_classic_one_does_not_end_before_its_share(
    daemon: Daemon, filled: str, assignor: str
) -> None:
    first = Member(daemon.address, filled, **BY_BROKER)
    until(lambda: len(first.owned) == PARTITIONS)
    given: set[TopicPartition] = set()
    options = {"assignors": [assignor], "on_assigned": given.update, **QUICK}
    with Consumer(daemon.address, filled, group=filled, stop_at_end=True, **options) as other:
        list(other)
        assert len(given) == PARTITIONS // 2
    first.stop()


def test_nor_while_who_has_its_share_works_for_longer_than_a_rebalance_may_take(
    daemon: Daemon, filled: str
) -> None:
    """Such a group says who is to have what, however long that takes."""
    given: set[TopicPartition] = set()
    options = {"on_assigned": given.update, "rebalance_timeout_ms": 500, **QUICK}
    with (
        Consumer(daemon.address, filled, group=filled, **BY_BROKER) as first,
        ThreadPoolExecutor(1) as beside,
    ):
        states = first._reading.fetching.states
        each = COUNT // PARTITIONS
        until(lambda: [one.fetch_offset for one in states.values()] == [each] * PARTITIONS)
        assert len(first.poll(COUNT)) == COUNT, "something of each partition is in hand"
        with Consumer(daemon.address, filled, group=filled, stop_at_end=True, **options) as other:
            membership = other._reading.group.membership
            assert isinstance(membership, ClassicMembership)
            share = membership._share
            reading = beside.submit(lambda: list(other))
            until(lambda: reading.done() or share._ask_ms >= share._since_ms + 1_000)
            until(lambda: not first.poll(1, 10) and reading.done())
            assert not reading.result()
            assert len(given) == PARTITIONS // 2


def test_a_bounded_reading_of_a_topic_that_another_member_reads_ends(
    daemon: Daemon, topic: str, quick: Options
) -> None:
    """The group has nothing to tell it then."""
    other = f"{topic}.other"
    with Admin(daemon.address) as admin:
        for name in (topic, other):
            admin.create_topic(name, partitions=1)
    member = Member(daemon.address, other, topic, **quick)
    until(lambda: len(member.owned) == 1)
    with Consumer(daemon.address, topic, group=topic, stop_at_end=True, **quick) as consumer:
        assert not list(consumer)
        consumer.subscribe([topic, other])
        assert not list(consumer)
    member.stop()


def test_two_members_share_and_the_one_that_stays_takes_over(
    daemon: Daemon, filled: str, quick: Options
) -> None:
    one = Member(daemon.address, filled, **quick)
    until(lambda: len(one.values) == COUNT, one)
    two = Member(daemon.address, filled, **quick)
    until(lambda: len(one.owned) == len(two.owned) == 2, one, two)
    assert one.owned | two.owned == {0, 1, 2, 3}
    # It went on with the two that it kept.
    assert [what for what, _ in one.told] == ["assigned", "revoked"]
    one.stop()
    until(lambda: two.owned == {0, 1, 2, 3}, two)
    two.stop()
    assert two.values == []
    assert two.error is None


def test_a_member_that_is_killed_is_replaced_when_its_session_ends(
    daemon: Daemon, filled: str
) -> None:
    code = (
        "import sys\n"
        "from segbroker.client import Consumer\n"
        "address, topic = sys.argv[1:]\n"
        "with Consumer(address, topic, group=topic, session_timeout_ms=6000) as consumer:\n"
        "    consumer.poll(); print(len(consumer.assignment), flush=True)\n"
        "    while True: consumer.poll()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, daemon.address, filled], stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"4\n"
    member = Member(daemon.address, filled)
    until(lambda: len(member.owned) == 2, member)
    other.send_signal(signal.SIGKILL)
    other.wait()
    other.stdout.close()
    until(lambda: member.owned == {0, 1, 2, 3}, member)
    member.stop()


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
def test_with_an_eager_strategy_all_is_given_up_and_dealt_out_anew(
    daemon: Daemon, filled: str, assignor: str
) -> None:
    one = Member(daemon.address, filled, assignors=[assignor])
    until(lambda: len(one.values) == COUNT, one)
    two = Member(daemon.address, filled, assignors=[assignor])
    until(lambda: len(one.owned) == len(two.owned) == 2, one, two)
    assert one.told[1] == ("revoked", [0, 1, 2, 3])
    more(daemon.address, filled, COUNT, 2 * COUNT)
    until(lambda: len(one.values) + len(two.values) == 2 * COUNT, one, two)
    two.stop()
    one.stop()
    assert sorted(one.values + two.values) == list(range(2 * COUNT))


def test_a_group_becomes_eager_for_a_member_that_knows_nothing_else_and_cooperative_after_it(
    daemon: Daemon, filled: str
) -> None:
    one = Member(daemon.address, filled)
    until(lambda: len(one.values) == COUNT, one)
    two = Member(daemon.address, filled, assignors=["range"])
    until(lambda: len(one.owned) == len(two.owned) == 2, one, two)
    more(daemon.address, filled, COUNT, 2 * COUNT)
    until(lambda: len(one.values) + len(two.values) == 2 * COUNT, one, two)
    with Admin(daemon.address) as admin:
        assert admin.describe_group(filled).protocol == "range"
        two.stop()
        until(lambda: one.owned == {0, 1, 2, 3}, one)
        until(lambda: admin.describe_group(filled).protocol == "cooperative-sticky")
    one.stop()
    assert sorted(one.values + two.values) == list(range(2 * COUNT))


def test_who_reads_in_a_callback_of_the_end_is_at_the_end(daemon: Daemon, filled: str) -> None:
    rest: list[object] = []

    def revoked(_: list[TopicPartition]) -> None:
        rest.extend(consumer)
        rest.extend(consumer.batches())
        rest.extend(consumer.poll(timeout_ms=1_000_000))

    with Consumer(daemon.address, filled, group=filled, on_revoked=revoked, **QUICK) as consumer:
        assert next(iter(consumer))
    assert rest == []


def test_a_long_job_costs_no_partition_and_holds_nobody_up(daemon: Daemon, filled: str) -> None:
    """One record of partition p is being worked at for longer than a session lasts."""
    at_work, done = threading.Event(), threading.Event()
    seen: list[Record] = []
    gone: list[TopicPartition] = []

    def work() -> None:
        with Consumer(
            daemon.address, filled, group=filled, on_revoked=gone.extend, **BRIEF
        ) as consumer:
            for record in consumer:
                seen.append(record)
                if len(seen) == 5:
                    at_work.set()
                    assert done.wait(DEADLINE_S)
                if len(seen) == 10:
                    consumer.commit()
                    return

    thread = threading.Thread(target=work)
    thread.start()
    assert at_work.wait(DEADLINE_S)
    two = Member(daemon.address, filled, **BRIEF)
    # The newcomer gets nothing that the worker might still have in hand ...
    until(lambda: two.consumer.group_metadata.generation > 1)
    time.sleep(7)
    assert two.owned == set()
    assert two.error is None
    done.set()
    # ... and its share as soon as the worker is at the next record.
    until(lambda: len(two.owned) >= 2, two)
    thread.join()
    until(lambda: two.owned == {0, 1, 2, 3}, two)
    until(lambda: len(two.values) + len(seen) >= COUNT, two)
    two.stop()
    values = [int(record.value or b"") for record in seen] + two.values
    assert sorted(values) == list(range(COUNT))


def test_a_long_job_gives_up_what_it_does_not_work_at_without_hearing_of_it(
    daemon: Daemon, topic: str
) -> None:
    """on_revoked cannot be called meanwhile; the others wait for it for a limited time.

    That is its own: the group waits as long as it does for its most patient member.
    """
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=PARTITIONS)
    with Producer(daemon.address) as producer:
        producer.send(topic, b"-1", partition=0)
    at_work, done = threading.Event(), threading.Event()
    told: list[tuple[str, list[TopicPartition]]] = []
    quick = {**QUICK, "rebalance_timeout_ms": 2_000}

    def work() -> None:
        with Consumer(
            daemon.address,
            topic,
            group=topic,
            start="start",
            on_revoked=lambda revoked: told.append(("revoked", revoked)),
            on_lost=lambda lost: told.append(("lost", lost)),
            **quick,
        ) as consumer:
            for _ in consumer:
                at_work.set()
                assert done.wait(DEADLINE_S)
                break

    thread = threading.Thread(target=work)
    thread.start()
    assert at_work.wait(DEADLINE_S)
    two = Member(daemon.address, topic, start="start")
    until(lambda: len(two.owned) == 2, two)
    assert 0 not in two.owned
    more(daemon.address, topic, 0, COUNT)
    until(lambda: len(two.values) == COUNT // 2, two)
    assert told == []
    done.set()
    thread.join()
    # Left by `break`, with the record in hand: it comes again.
    until(lambda: len(two.values) == COUNT + 1, two)
    two.stop()
    assert sorted(two.values) == list(range(-1, COUNT))
    assert [what for what, _ in told][-1:] == ["revoked"]


def test_who_ctrl_c_kept_from_hearing_of_it_is_not_waited_for_either(
    daemon: Daemon, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """on_revoked was about to be called; the caller works at something else now."""
    told: list[tuple[str, int]] = []
    quick = {**QUICK, "rebalance_timeout_ms": 2_000}
    with Consumer(
        daemon.address,
        filled,
        group=filled,
        start="start",
        on_revoked=lambda revoked: told.append(("revoked", len(revoked))),
        on_lost=lambda lost: told.append(("lost", len(lost))),
        **quick,
    ) as one:
        until(lambda: bool(one.poll(10, 100)) and len(one.assignment) == PARTITIONS)
        two = Member(daemon.address, filled, start="start")
        until(lambda: one._reading.group.events.is_waiting, two)
        Interrupting(monkeypatch, Events, "next", 0, True)
        with pytest.raises(KeyboardInterrupt):
            one.poll(10, 100)
        until(lambda: len(two.owned) == PARTITIONS // 2, two)
        assert told == []
        one.poll(10, 100)
        assert told == [("lost", PARTITIONS // 2)]
        two.stop()


def test_who_is_about_to_hear_of_it_as_its_time_ends_hears_of_nothing_or_of_all(
    daemon: Daemon, filled: str
) -> None:
    """The caller has seen that it was not told yet, and is late by one step of the interpreter."""
    told: list[tuple[str, int]] = []
    quick = {**QUICK, "rebalance_timeout_ms": 2_000}
    source, first = inspect.getsourcelines(Consumer._tell_events)
    (line,) = (number for number, text in enumerate(source, first) if "is_told = True" in text)

    def trace(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401
        if frame.f_code is not Consumer._tell_events.__code__:
            return None
        if event == "line" and frame.f_lineno == line:
            about = frame.f_locals["event"]
            until(lambda: about.news is not News.REVOKED or not about.partitions)
        return trace

    with Consumer(
        daemon.address,
        filled,
        group=filled,
        start="start",
        on_revoked=lambda revoked: told.append(("revoked", len(revoked))),
        on_lost=lambda lost: told.append(("lost", len(lost))),
        **quick,
    ) as one:
        until(lambda: bool(one.poll(10, 100)) and len(one.assignment) == PARTITIONS)
        two = Member(daemon.address, filled, start="start")
        until(lambda: one._reading.group.events.is_waiting, two)
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            one.poll(10, 100)
        finally:
            sys.settrace(before)
        until(lambda: len(two.owned) == PARTITIONS // 2, two)
        one.poll(10, 100)
        assert told == [("lost", PARTITIONS // 2)]
        two.stop()


@pytest.mark.parametrize("kind", [Consumer, ShareConsumer])
def test_a_consumer_that_nobody_refers_to_any_more_leaves_its_group(
    daemon: Daemon, filled: str, kind: type[Consumer | ShareConsumer]
) -> None:
    """As in a notebook whose cell is run once more; its thread ends as soon as that is done, and
    looks for nothing else before: by itself it would next in five minutes."""
    options: Any = {"group": filled, "request_timeout_ms": 600_000}

    def members() -> list[str]:
        return [member.member_id for member in admin.describe_group(filled).members]

    consumer = kind(daemon.address, filled, **options).open()
    with Admin(daemon.address) as admin:
        until(lambda: bool(consumer.poll(timeout_ms=50) or consumer.assignment))
        (first,) = members()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", ResourceWarning)
            consumer = kind(daemon.address, filled, **options).open()
            until(lambda: "was not closed" in " ".join(str(one.message) for one in warned))

        def is_replaced() -> bool:
            consumer.poll(timeout_ms=50)
            there = members()
            return len(there) == 1 and first not in there

        until(is_replaced)
        consumer.close()
        assert members() == []


def test_an_admin_client_that_nobody_refers_to_any_more_ends_by_itself(daemon: Daemon) -> None:
    before = {*threading.enumerate()}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        admins = [Admin(daemon.address).open()]
        (thread,) = {*threading.enumerate()} - before
        admins.clear()
        thread.join(DEADLINE_S)
    assert not thread.is_alive()
    # What others have left may be collected meanwhile, with warnings of its own.
    assert sum("<Admin" in str(one.message) for one in warned) == 1


def test_who_collects_a_forgotten_consumer_may_be_in_the_middle_of_a_send(
    daemon: Daemon, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a producer to which the program's log goes, and with it warnings (captureWarnings)."""
    told = threading.Event()

    def log(message: Warning | str, *_: object) -> None:
        producer.send(filled, str(message).encode())
        told.set()

    with Producer(daemon.address) as producer:
        producer.send(filled, b"first").result(DEADLINE_S)
        with warnings.catch_warnings():
            warnings.simplefilter("always", ResourceWarning)
            monkeypatch.setattr(warnings, "showwarning", log)
            forgotten = [Consumer(daemon.address, filled, group=filled).open()]
            with producer._driver.lock:
                collecting = threading.Thread(target=forgotten.clear, daemon=True)
                collecting.start()
                collecting.join(DEADLINE_S)
                assert not collecting.is_alive()
            assert told.wait(DEADLINE_S)


@pytest.mark.parametrize("kind", ["Consumer", "ShareConsumer"])
def test_a_consumer_of_a_function_that_was_the_last_leaves_its_group_before_the_process_ends(
    daemon: Daemon, filled: str, kind: str
) -> None:
    """Nobody refers to it any more, and the interpreter ends in the same moment."""
    program = (
        f"from segbroker.client import {kind}\n"
        "def main():\n"
        f"    consumer = {kind}({daemon.address!r}, {filled!r}, group={filled!r}).open()\n"
        "    while not consumer.assignment:\n"
        "        consumer.poll(timeout_ms=50)\n"
        "main()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=DEADLINE_S)
    with Admin(daemon.address) as admin:
        assert admin.describe_group(filled).members == ()


def test_what_is_in_hand_when_the_loop_is_left_comes_again(
    daemon: Daemon, filled: str, quick: Options
) -> None:
    def read(count: int, *, commit: bool = False) -> list[Record]:
        seen: list[Record] = []
        with Consumer(daemon.address, filled, group=filled, **quick) as consumer:
            for record in consumer:
                seen.append(record)
                if len(seen) == count:
                    if commit:
                        consumer.commit()
                    break
        return seen

    first = read(5)
    again = read(5, commit=True)
    assert again[0] == first[-1]
    (after,) = read(1)
    assert after not in again
    assert after not in first


def test_an_exception_commits_what_was_gone_past_and_not_the_record_that_failed(
    daemon: Daemon, filled: str, quick: Options
) -> None:
    seen: list[Record] = []

    def read() -> None:
        with Consumer(daemon.address, filled, group=filled, **quick) as consumer:
            for record in consumer:
                seen.append(record)
                if len(seen) == 7:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read()
    with Consumer(daemon.address, filled, group=filled, stop_at_end=True, **quick) as consumer:
        rest = list(consumer)
    assert len(rest) == COUNT - 6
    assert seen[-1] in rest


def test_batches_and_polls_are_committed_when_the_next_is_asked_for(
    daemon: Daemon, filled: str
) -> None:
    with Consumer(daemon.address, filled, group="batches", start="start") as consumer:
        batches = iter(consumer.batches())
        first = next(batches)
        next(batches)
    with Consumer(daemon.address, filled, group="batches", stop_at_end=True) as consumer:
        assert len(list(consumer)) == COUNT - len(first)
    with Consumer(daemon.address, filled, group="polls") as consumer:
        consumer.poll(max_records=30, timeout_ms=60_000)
        assert len(consumer.poll(max_records=7, timeout_ms=60_000)) == 7
    with Consumer(daemon.address, filled, group="polls", stop_at_end=True) as consumer:
        count = 0
        while not consumer.is_at_end:
            count += len(consumer.poll())
        assert count == COUNT - 30


def test_commits_by_hand_are_of_a_record_or_of_offsets(
    daemon: Daemon, filled: str, quick: Options
) -> None:
    with Consumer(daemon.address, filled, group=filled, auto_commit=False, **quick) as consumer:
        record = next(iter(consumer))
        consumer.commit(record)
        assert consumer.committed()[record.topic, record.partition].offset == 1  # type: ignore[index]
        consumer.commit({(filled, p): 50 for p in range(PARTITIONS)})
    with Consumer(
        daemon.address, filled, group=filled, stop_at_end=True, auto_commit=False, **quick
    ) as consumer:
        assert {record.offset for record in consumer} == set(range(50, 100))
        assert {stands.offset for stands in consumer.committed().values()} == {50}
        with pytest.raises(IllegalGeneration, match="elsewhere-0 is not this member's"):
            consumer.commit({("elsewhere", 0): 1})


def test_offsets_are_committed_at_intervals(daemon: Daemon, filled: str) -> None:
    with Consumer(daemon.address, filled, group=filled, commit_interval_ms=50) as consumer:
        while consumer.lag().keys() != {(filled, p) for p in range(4)} or any(
            consumer.lag().values()
        ):
            consumer.poll(timeout_ms=100)
        consumer.poll(timeout_ms=10)
        until(lambda: {s.offset for s in consumer.committed().values()} == {COUNT // 4})


def test_lag_counts_what_is_still_to_be_handed_out(daemon: Daemon, filled: str) -> None:
    with Consumer(daemon.address, filled, group=filled) as consumer:
        consumer.poll(max_records=30, timeout_ms=60_000)
        until(lambda: len(consumer.lag()) == PARTITIONS)
        assert sum(consumer.lag().values()) == COUNT - 30


def test_a_paused_partition_is_held_back_in_the_middle_of_its_batch_and_nothing_of_it_is_lost(
    daemon: Daemon, filled: str
) -> None:
    with Consumer(daemon.address, filled, group=filled) as consumer:
        (record,) = consumer.poll(max_records=1, timeout_ms=60_000)
        consumer.pause((filled, record.partition))
        others: list[Record] = []
        while len(others) < COUNT * 3 // 4:
            others += consumer.poll(max_records=100, timeout_ms=60_000)
        assert record.partition not in {one.partition for one in others}
        consumer.resume()
        rest: list[Record] = []
        while len(rest) < COUNT // 4 - 1:
            rest += consumer.poll(timeout_ms=60_000)
        assert [one.offset for one in rest] == list(range(1, COUNT // 4))


def test_a_callback_may_close_the_consumer(daemon: Daemon, filled: str) -> None:
    told: list[str] = []

    def assigned(partitions: list[TopicPartition]) -> None:
        told.append("assigned")
        consumer.close()

    consumer = Consumer(
        daemon.address,
        filled,
        group=filled,
        on_assigned=assigned,
        on_revoked=lambda partitions: told.append("revoked"),
    )
    with consumer, pytest.raises(ClosedError):
        next(iter(consumer))
    assert told == ["assigned", "revoked"]


def test_the_positions_of_a_member_that_gives_some_up_are_of_the_others(
    daemon: Daemon, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = Consumer.position
    others: list[Consumer] = []

    def first(consumer: Consumer, topic: str, partition: int) -> int:
        if not others:
            others.append(Consumer(daemon.address, topic, group=topic, **QUICK).open())
            until(lambda: len(consumer.assignment) == PARTITIONS // 2)
        return position(consumer, topic, partition)

    with Consumer(daemon.address, filled, group=filled, **QUICK) as consumer:
        until(lambda: len(consumer.assignment) == PARTITIONS)
        monkeypatch.setattr(Consumer, "position", first)
        positions = consumer.positions()
        assert positions == dict.fromkeys(consumer.assignment, 0)
        others[0].close()


def test_two_threads_may_close_a_consumer_at_once(daemon: Daemon, filled: str) -> None:
    consumer: Consumer = Consumer(daemon.address, filled, group=filled, **QUICK).open()
    taken_count = 0
    while taken_count < COUNT:
        taken_count += len(consumer.poll(timeout_ms=60_000))
    consumer.poll(timeout_ms=0)
    both = threading.Barrier(2)

    def close() -> None:
        both.wait()
        consumer.close()

    threads = [threading.Thread(target=close) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert committed_count(daemon.address, filled) == COUNT
    with Admin(daemon.address) as admin:
        assert not admin.describe_group(filled).members


def test_who_closes_as_well_waits_for_the_callback_of_who_closed_first(
    daemon: Daemon, filled: str
) -> None:
    taken_count = 0

    def revoked(partitions: list[TopicPartition]) -> None:
        other.start()
        other.join(1)
        consumer.commit()

    consumer: Consumer = Consumer(
        daemon.address, filled, group=filled, auto_commit=False, on_revoked=revoked, **QUICK
    ).open()
    other = threading.Thread(target=consumer.close)
    while taken_count < COUNT:
        taken_count += len(consumer.poll(timeout_ms=60_000))
    consumer.close()
    other.join()
    assert committed_count(daemon.address, filled) == COUNT
    with Admin(daemon.address) as admin:
        assert not admin.describe_group(filled).members


def test_an_async_task_that_closes_as_well_waits_for_the_callback_of_who_closed_first(
    daemon: Daemon, filled: str, run: Callable[..., object]
) -> None:
    async def main() -> None:
        taken_count = 0

        async def revoked(partitions: list[TopicPartition]) -> None:
            tasks.start_soon(consumer.aclose)
            await anyio.sleep(0.5)
            await consumer.commit()

        consumer = AsyncConsumer(
            daemon.address, filled, group=filled, auto_commit=False, on_revoked=revoked, **QUICK
        )
        async with anyio.create_task_group() as tasks, consumer:
            while taken_count < COUNT:
                taken_count += len(await consumer.poll(timeout_ms=60_000))

    run(main)
    assert committed_count(daemon.address, filled) == COUNT
    with Admin(daemon.address) as admin:
        assert not admin.describe_group(filled).members


def test_who_closes_waits_for_the_callback_of_another_though_its_own_raises(
    daemon: Daemon, filled: str
) -> None:
    raised = threading.Event()

    def assigned(partitions: list[TopicPartition]) -> None:
        raised.wait(DEADLINE_S)
        closer.join(1)
        consumer.commit(dict.fromkeys(partitions, 1))

    def revoked(partitions: list[TopicPartition]) -> None:
        raised.set()
        raise ValueError("of the caller")

    def close() -> None:
        with pytest.raises(ValueError, match="of the caller"):
            consumer.close()

    def read() -> None:
        with pytest.raises(ClosedError):
            consumer.poll(timeout_ms=60_000)

    consumer: Consumer = Consumer(
        daemon.address, filled, group=filled, on_assigned=assigned, on_revoked=revoked, **QUICK
    ).open()
    closer = threading.Thread(target=close)
    reader = threading.Thread(target=read)
    reader.start()
    until(lambda: bool(consumer._reading.group.tellers))
    closer.start()
    closer.join()
    reader.join()
    assert committed_count(daemon.address, filled) == PARTITIONS
    with Admin(daemon.address) as admin:
        assert not admin.describe_group(filled).members


class Hearing:
    """Callbacks that raise; of a member that half of its partitions are taken from while it is
    away."""

    def __init__(self, daemon: Daemon, topic: str) -> None:
        self._address, self._topic = daemon.address, topic
        self.told: list[tuple[str, int]] = []
        self.options: Any = {
            "group": topic,
            "on_revoked": partial(self._hear, "revoked"),
            "on_lost": partial(self._hear, "lost"),
            **QUICK,
            "rebalance_timeout_ms": 2_000,
        }

    def _hear(self, what: str, partitions: list[TopicPartition]) -> None:
        self.told.append((what, len(partitions)))
        raise ValueError(what)

    def take_half(self) -> Member:
        other = Member(self._address, self._topic)
        until(lambda: len(other.owned) == PARTITIONS // 2, other)
        return other


BOTH = [("lost", PARTITIONS // 2), ("revoked", PARTITIONS // 2)]


def test_who_closes_hears_all_that_is_due_though_a_callback_raises(
    daemon: Daemon, filled: str
) -> None:
    hearing = Hearing(daemon, filled)
    one = Consumer(daemon.address, filled, **hearing.options).open()
    until(lambda: bool(one.poll(10, 100)) and len(one.assignment) == PARTITIONS)
    other = hearing.take_half()
    with pytest.raises(ValueError, match="revoked") as caught:
        one.close()
    other.stop()
    assert str(caught.value.__context__) == "lost"
    assert hearing.told == BOTH


def test_an_async_task_that_closes_hears_all_that_is_due_though_a_callback_raises(
    daemon: Daemon, filled: str, run: Callable[..., object]
) -> None:
    async def main() -> None:
        hearing = Hearing(daemon, filled)
        one = AsyncConsumer(daemon.address, filled, **hearing.options)
        await one.__aenter__()
        with anyio.fail_after(DEADLINE_S):
            while not await one.poll(10, 100) or len(one.assignment) < PARTITIONS:
                pass
        other = await anyio.to_thread.run_sync(hearing.take_half)
        with pytest.raises(ValueError, match="revoked") as caught:
            await one.aclose()
        other.stop()
        assert str(caught.value.__context__) == "lost"
        assert hearing.told == BOTH

    run(main)


def test_an_async_task_that_closes_waits_for_the_callback_of_another_though_its_own_raises(
    daemon: Daemon, filled: str, run: Callable[..., object]
) -> None:
    async def main() -> None:
        raised = anyio.Event()

        async def assigned(partitions: list[TopicPartition]) -> None:
            tasks.start_soon(close)
            await raised.wait()
            await anyio.sleep(0.5)
            await consumer.commit(dict.fromkeys(partitions, 1))

        def revoked(partitions: list[TopicPartition]) -> None:
            raised.set()
            raise ValueError("of the caller")

        async def close() -> None:
            with pytest.raises(ValueError, match="of the caller"):
                await consumer.aclose()

        consumer = AsyncConsumer(
            daemon.address, filled, group=filled, on_assigned=assigned, on_revoked=revoked, **QUICK
        )
        async with anyio.create_task_group() as tasks, consumer:
            with pytest.raises(ClosedError):
                await consumer.poll(timeout_ms=60_000)

    run(main)
    assert committed_count(daemon.address, filled) == PARTITIONS
    with Admin(daemon.address) as admin:
        assert not admin.describe_group(filled).members


def test_who_closes_beside_a_callback_that_hangs_says_goodbye_behind_its_time(
    daemon: Daemon, filled: str, run: Callable[..., object]
) -> None:
    """On a loop that is busy, where each look whether it is over comes late."""

    async def work() -> None:
        while True:
            await anyio.lowlevel.checkpoint()
            time.sleep(0.02)  # noqa: ASYNC251 - the job

    async def main() -> None:
        async def assigned(partitions: list[TopicPartition]) -> None:
            hangs.set()
            await anyio.sleep_forever()

        hangs = anyio.Event()
        async with (
            anyio.create_task_group() as tasks,
            AsyncConsumer(
                daemon.address, filled, group=filled, on_assigned=assigned, **QUICK
            ) as consumer,
        ):
            tasks.start_soon(consumer.poll)
            await hangs.wait()
            tasks.start_soon(work)
            await consumer.aclose()
            tasks.cancel_scope.cancel()

    run(main)
    with Admin(daemon.address) as admin:
        assert not admin.describe_group(filled).members


def test_ctrl_c_while_who_closes_waits_for_a_callback_ends_that_and_the_group_is_left(
    daemon: Daemon, filled: str
) -> None:
    is_over = threading.Event()

    def interrupt() -> None:
        until(lambda: consumer._reading.group._is_closing)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    consumer: Consumer = Consumer(
        daemon.address,
        filled,
        group=filled,
        on_assigned=lambda partitions: is_over.wait(DEADLINE_S),
        **QUICK,
    ).open()

    def read() -> None:
        with suppress(ClosedError):
            consumer.poll(timeout_ms=60_000)

    reader, other = threading.Thread(target=read), threading.Thread(target=interrupt)
    reader.start()
    until(lambda: bool(consumer._reading.group.tellers))
    other.start()
    with pytest.raises(KeyboardInterrupt):
        consumer.close()
    assert not consumer._driver.is_open
    with Admin(daemon.address) as admin:
        assert not admin.describe_group(filled).members
    is_over.set()
    reader.join()
    other.join()


def test_what_ctrl_c_kept_from_being_told_is_told_when_the_caller_is_back(
    daemon: Daemon, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    with Consumer(
        daemon.address,
        filled,
        group=filled,
        on_assigned=lambda partitions: told.append("assigned"),
        **QUICK,
    ) as consumer:
        until(lambda: consumer._reading.group.events.is_waiting)
        Interrupting(monkeypatch, consumer_module, "get_ident", 0, True)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll()
        assert told == []
        consumer.poll()
        assert told == ["assigned"]


def test_what_ctrl_c_kept_from_being_told_is_told_when_an_async_caller_is_back(
    daemon: Daemon, filled: str, run: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    async def assigned(partitions: list[TopicPartition]) -> None:
        told.append("assigned")

    async def main() -> None:
        async with AsyncConsumer(
            daemon.address, filled, group=filled, on_assigned=assigned, **QUICK
        ) as consumer:
            Interrupting(monkeypatch, async_consumer_module, "_call", 0, False, by_signal=False)
            with pytest.raises(KeyboardInterrupt):
                await consumer.poll(timeout_ms=60_000)
            assert told == []
            await consumer.poll(timeout_ms=60_000)
            assert told == ["assigned"]

    run(main)


def test_who_is_cancelled_in_a_callback_of_the_end_behind_which_another_has_closed(
    daemon: Daemon, filled: str, run: Callable[..., object]
) -> None:
    """It hears of its cancellation, and of nothing else."""

    async def main() -> None:
        async def revoked(partitions: list[TopicPartition]) -> None:
            hangs.set()
            await anyio.sleep_forever()

        hangs = anyio.Event()
        async with AsyncConsumer(
            daemon.address, filled, group=filled, on_revoked=revoked, **QUICK
        ) as consumer:
            assert await consumer.poll(timeout_ms=60_000)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(consumer.aclose)
                await hangs.wait()
                async with anyio.create_task_group() as others:
                    others.start_soon(consumer.aclose)
                tasks.cancel_scope.cancel()

    run(main)


def test_a_callback_that_closes_the_consumer_is_not_called_again_for_the_same(
    daemon: Daemon, filled: str
) -> None:
    """Neither by the closing that it began, nor by that in which it is called."""
    told: list[list[int]] = []

    def revoked(partitions: list[TopicPartition]) -> None:
        assert len(told) < 9
        told.append([one.partition for one in partitions])
        consumer.close()

    consumer = Consumer(daemon.address, filled, group=filled, on_revoked=revoked)
    with consumer:
        next(iter(consumer))
    assert told == [[0, 1, 2, 3]]

    told.clear()
    consumer = Consumer(daemon.address, filled, group=filled, on_revoked=revoked, **QUICK)
    with consumer:
        until(lambda: bool(consumer.poll(timeout_ms=50)) and len(consumer.assignment) == PARTITIONS)
        with (
            Consumer(daemon.address, filled, group=filled, **QUICK) as other,
            pytest.raises(ClosedError),
        ):
            until(lambda: (consumer.poll(timeout_ms=50), other.poll(timeout_ms=50), False)[-1])
    assert len(told) == 2
    assert sorted([*told[0], *told[1]]) == [0, 1, 2, 3]


def test_a_callback_that_closes_an_async_consumer_is_not_called_again(
    daemon: Daemon, filled: str, run: Callable[..., object]
) -> None:
    told: list[list[int]] = []

    async def main() -> None:
        async def revoked(partitions: list[TopicPartition]) -> None:
            assert len(told) < 9
            told.append([one.partition for one in partitions])
            await consumer.aclose()

        consumer = AsyncConsumer(daemon.address, filled, group=filled, on_revoked=revoked)
        async with consumer:
            await anext(aiter(consumer))

    run(main)
    assert told == [[0, 1, 2, 3]]


def test_on_assigned_may_seek(daemon: Daemon, filled: str, quick: Options) -> None:
    def to_the_end(partitions: list[TopicPartition]) -> None:
        for topic, partition in partitions:
            consumer.seek(topic, partition, -2)

    with Consumer(
        daemon.address, filled, group=filled, on_assigned=to_the_end, stop_at_end=True, **quick
    ) as consumer:
        assert sorted(record.offset for record in consumer) == [98, 98, 98, 98, 99, 99, 99, 99]


def test_a_static_member_comes_back_to_what_it_had_and_nobody_else_notices(
    daemon: Daemon, filled: str
) -> None:
    one = Member(daemon.address, filled, instance_id="one")
    two = Member(daemon.address, filled, instance_id="two")
    until(lambda: len(one.owned) == len(two.owned) == 2, one, two)
    had, told = set(one.owned), list(two.told)
    one.stop()
    again = Member(daemon.address, filled, instance_id="one")
    until(lambda: again.owned == had, again)
    until(lambda: len(one.values + two.values + again.values) >= COUNT, one, two, again)
    assert two.told == told
    # A second one of the name takes over; the first is told so.
    third = Member(daemon.address, filled, instance_id="one")
    until(lambda: again.error is not None)
    assert isinstance(again.error, FencedInstanceId)
    third.stop()
    two.stop()


def test_a_pattern_takes_in_topics_that_come_later(
    daemon: Daemon, topic: str, quick: Options
) -> None:
    fill(daemon.address, f"{topic}.a", 40)
    with Consumer(
        daemon.address,
        pattern=rf"{topic}\.[ab]",
        group=topic,
        metadata_max_age_ms=100,
        **quick,
    ) as consumer:
        seen: list[Record] = []
        while len(seen) < 40:
            seen += consumer.poll(timeout_ms=60_000)
        fill(daemon.address, f"{topic}.b", 40)
        fill(daemon.address, f"{topic}.c", 40)
        while len(seen) < 80:
            seen += consumer.poll(timeout_ms=60_000)
        assert {record.topic for record in seen} == {f"{topic}.a", f"{topic}.b"}


def test_who_waits_for_topics_of_a_pattern_hears_that_no_broker_answers(tmp_path: Path) -> None:
    """It knows of none, so it is no member yet, and reads nothing: nothing else would tell."""
    with (
        running(tmp_path / "data") as daemon,
        Consumer(
            daemon.address,
            pattern="not-there.*",
            group="g",
            api_timeout_ms=1_000,
            metadata_max_age_ms=100,
            **QUICK,
        ) as consumer,
    ):

        def hears_nothing_for_long() -> bool:
            try:
                return consumer.poll(timeout_ms=2_500) == []
            except TimedOut:  # the broker stood still for a moment
                return False

        until(hears_nothing_for_long)
        daemon.process.kill()
        for _ in range(2):  # as long as it lasts
            with pytest.raises(TimedOut, match="refused"):
                until(lambda: bool(consumer.poll(timeout_ms=100)))


def test_partitions_that_are_added_are_dealt_out(
    daemon: Daemon, filled: str, quick: Options
) -> None:
    member = Member(daemon.address, filled, metadata_max_age_ms=100, **quick)
    until(lambda: len(member.values) == COUNT, member)
    with Admin(daemon.address) as admin:
        admin.create_partitions(filled, PARTITIONS + 2)
    until(lambda: member.owned == set(range(PARTITIONS + 2)), member)
    member.stop()


@pytest.mark.parametrize("when", ["later", "meanwhile"])
def test_partitions_that_are_added_are_dealt_out_by_a_static_leader_that_came_back(
    daemon: Daemon, filled: str, when: str
) -> None:
    """The group is told nothing of its restart, and goes on by what was dealt out before it."""
    options: dict[str, Any] = {"instance_id": "one", "metadata_max_age_ms": 100}
    first = Member(daemon.address, filled, **options)
    until(lambda: len(first.values) == COUNT, first)
    first.stop()
    with Admin(daemon.address) as admin:
        if when == "meanwhile":
            admin.create_partitions(filled, PARTITIONS + 2)
        again = Member(daemon.address, filled, **options)
        until(lambda: again.owned >= set(range(PARTITIONS)), again)
        if when == "later":
            admin.create_partitions(filled, PARTITIONS + 2)
    until(lambda: again.owned == set(range(PARTITIONS + 2)), again)
    again.stop()


def test_a_bounded_reading_ends_though_one_of_its_topics_is_deleted(
    daemon: Daemon, filled: str, quick: Options
) -> None:
    """It is told, and what cannot be read of that topic is not waited for."""
    other = f"{filled}.b"
    options = {**quick, "prefetch_bytes": 10_000, "fetch_partition_bytes": 5_000}
    seen: list[Record] = []
    told: list[UnknownTopicOrPartition] = []
    with (
        Admin(daemon.address) as admin,
        Producer(daemon.address, batch_bytes=10_000, compression="none") as producer,
    ):
        admin.create_topic(other, partitions=2)
        producer.send_many(other, [bytes(1_000)] * 200)
        producer.flush()
        with Consumer(
            daemon.address, filled, other, group=filled, stop_at_end=True, **options
        ) as consumer:

            def reads_on() -> bool:
                """Whether it has come to the end."""
                try:
                    seen.extend(consumer)
                except UnknownTopicOrPartition as exc:
                    told.append(exc)
                    return False
                return True

            seen.append(next(record for record in consumer if record.topic == other))
            admin.delete_topic(other)
            until(reads_on)
            assert told or quick is BY_BROKER  # which may take it away before it is missed
            assert {tp.topic for tp in consumer.assignment} == {filled}
            assert sum(record.topic == other for record in seen) < 200


def test_a_member_gives_up_a_deleted_topic_that_the_leader_does_not_read(
    daemon: Daemon, filled: str, quick: Options
) -> None:
    options = {**quick, "metadata_max_age_ms": 100}
    leader = Member(daemon.address, filled, **options)
    until(lambda: len(leader.owned) == PARTITIONS, leader)
    with (
        Admin(daemon.address) as admin,
        Consumer(daemon.address, f"{filled}.b", group=filled, **options) as other,
    ):
        admin.create_topic(f"{filled}.b", partitions=2)

        def has(count: int) -> bool:
            with suppress(UnknownTopicOrPartition):
                other.poll(timeout_ms=50)
            return len(other.assignment) == count

        until(lambda: has(2), leader)
        told = list(leader.told)
        admin.delete_topic(f"{filled}.b")
        until(lambda: has(0), leader)
        assert leader.told == told, "nor does that touch what others read"
    leader.stop()


@pytest.mark.parametrize("when", ["later", "meanwhile"])
def test_a_static_leader_that_came_back_gives_up_a_deleted_topic(
    daemon: Daemon, filled: str, when: str
) -> None:
    """The group has told it to leave what was dealt out before."""
    fill(daemon.address, other := f"{filled}.b", 4)

    def has(consumer: Consumer, *topics: str) -> bool:
        with suppress(UnknownTopicOrPartition):
            consumer.poll(timeout_ms=50)
        return {tp.topic for tp in consumer.assignment} == {*topics}

    def member() -> Consumer:
        return Consumer(daemon.address, filled, other, group=filled, instance_id="one", **QUICK)

    with member() as first:
        until(lambda: has(first, filled, other))
    with Admin(daemon.address) as admin:
        if when == "meanwhile":
            admin.delete_topic(other)
        with member() as again:
            if when == "later":
                until(lambda: has(again, filled, other))
                admin.delete_topic(other)
            until(lambda: has(again, filled))


@pytest.mark.parametrize("stop_at_end", [False, True])
def test_a_topic_that_is_not_there_is_said(
    daemon: Daemon, topic: str, quick: Options, stop_at_end: bool
) -> None:
    with (
        Consumer(daemon.address, topic, group=topic, stop_at_end=stop_at_end, **quick) as consumer,
        pytest.raises(UnknownTopicOrPartition),
    ):
        list(consumer)


def test_a_bounded_reading_of_a_pattern_that_nothing_matches_ends(
    daemon: Daemon, topic: str, quick: Options
) -> None:
    with Consumer(
        daemon.address, pattern=topic, group=topic, stop_at_end=True, **quick
    ) as consumer:
        assert list(consumer) == []


def test_members_survive_a_restart_of_the_broker(tmp_path: Path, quick: Options) -> None:
    flags = ("--durability", "disk", "--group-consumer-heartbeat-interval-ms", "50")
    daemon = start(tmp_path / "data", *flags)
    fill(daemon.address, "t")
    options = {**quick, "commit_interval_ms": 200}
    one, two = (Member(daemon.address, "t", **options) for _ in range(2))
    until(lambda: len(one.owned) == len(two.owned) == 2, one, two)
    until(lambda: len(one.values) + len(two.values) == COUNT, one, two)
    told = [list(member.told) for member in (one, two)]
    daemon.stop(signal.SIGKILL)
    with running(tmp_path / "data", *flags):
        more(daemon.address, "t", COUNT, 2 * COUNT)
        until(lambda: set(one.values + two.values) == set(range(2 * COUNT)), one, two)
        # Commits of their generation are taken, and nothing was given up for it.
        until(lambda: committed_count(daemon.address, "t") == 2 * COUNT, one, two)
        assert [member.told for member in (one, two)] == told
        one.stop()
        two.stop()


def test_a_group_that_stood_in_a_deleted_topic_reads_its_successor_from_the_start(
    daemon: Daemon, filled: str, quick: Options
) -> None:
    """What was committed belongs to the topic's id: the new one has none of it, and no gap."""
    with Consumer(daemon.address, filled, group=filled, stop_at_end=True, **quick) as consumer:
        assert len(list(consumer)) == COUNT
    with Admin(daemon.address) as admin:
        admin.delete_topic(filled)
    fill(daemon.address, filled, 40)
    with Consumer(daemon.address, filled, group=filled, stop_at_end=True, **quick) as consumer:
        assert sorted(int(record.value or b"") for record in consumer) == list(range(40))


@pytest.mark.parametrize("is_seen", [False, True], ids=["at once", "when it is seen to be gone"])
def test_a_topic_that_is_made_again_while_it_is_owned_is_read_from_its_start(
    daemon: Daemon, topic: str, quick: Options, is_seen: bool
) -> None:
    with Admin(daemon.address) as admin, Producer(daemon.address) as producer:
        admin.create_topic(topic, partitions=2)
        producer.send_many(topic, [b"old"] * 10)
        options: Options = {
            **quick,
            "start": "start",
            "on_gap": "skip",
            "auto_commit": False,
            "metadata_max_age_ms": 100,
        }
        with (
            Consumer(daemon.address, topic, group=topic, **options) as one,
            Consumer(daemon.address, topic, group=topic, **options) as two,
        ):
            seen: list[bytes | None] = []

            def polled() -> int:
                for consumer in (one, two):
                    with suppress(UnknownTopicOrPartition):
                        records = consumer.poll(timeout_ms=20)
                        seen.extend(record.value for record in records)
                        if records:
                            consumer.commit()
                return len(seen)

            until(lambda: polled() >= 10 and len(one.assignment) == len(two.assignment) == 1)
            assert seen == [b"old"] * 10
            admin.delete_topic(topic)
            if is_seen:
                until(lambda: polled() >= 10 and one.assignment == two.assignment == [])
            admin.create_topic(topic, partitions=2)
            producer.send_many(topic, [b"new %d" % n for n in range(30)])
            until(lambda: polled() >= 40)
            assert sorted(seen[10:], key=str) == sorted([b"new %d" % n for n in range(30)], key=str)
        assert sum(stands.offset for stands in admin.committed(topic).values()) == 30


@pytest.mark.parametrize("how", ["closed", "all", "a record"])
def test_a_record_in_hand_of_a_topic_that_is_gone_is_not_committed_in_its_successor(
    daemon: Daemon, filled: str, how: str, quick: Options
) -> None:
    """Who reads on would begin in the middle, or behind the end."""
    with Consumer(
        daemon.address,
        filled,
        group=filled,
        metadata_max_age_ms=100,
        auto_commit=how == "closed",
        commit_interval_ms=600_000,
        **quick,
    ) as consumer:
        record = next(record for record in consumer if record.offset == 50)
        with Admin(daemon.address) as admin:
            admin.delete_topic(filled)
        fill(daemon.address, filled, 40)
        states = consumer._reading.fetching.states.values()
        until(lambda: all(s.topics_ahead_count == 1 and s.end_offset == 10 for s in states))
        assert consumer.lag() == {}
        if how != "closed":
            consumer.commit(record if how == "a record" else None)
    with Consumer(daemon.address, filled, group=filled, stop_at_end=True, **quick) as consumer:
        assert sorted(int(record.value or b"") for record in consumer) == list(range(40))


# A member that is interrupted has 30 ms to say goodbye: one of so many tries finds the time, also
# where others have the processors.
TRIES = 30


def has_said_goodbye(address: str, topic: str, group: str) -> bool:
    """Whether nothing is left to read of what the member had gone past, and it is no member."""
    with Admin(address) as admin:
        if admin.describe_group(group).state != "Empty":
            return False
    return committed_count(address, group) == COUNT


def test_ctrl_c_ends_a_member_at_once_and_commits_what_it_had_gone_past(
    daemon: Daemon, filled: str
) -> None:
    def interrupted(group: str) -> bool:
        process = subprocess.Popen(
            [sys.executable, "-c", code, daemon.address, filled, group], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"400\n"
        time.sleep(0.3)  # it waits for more by then, or soon: both have to end
        began = time.time()
        process.send_signal(signal.SIGINT)
        ended = float(process.stdout.readline())
        process.wait()
        process.stdout.close()
        # Far less than a session; how soon: python -m bench interrupts
        assert ended - began < 10
        return has_said_goodbye(daemon.address, filled, group)

    code = (
        "import sys, time\n"
        "from segbroker.client import Consumer\n"
        "seen = 0\n"
        "try:\n"
        "    with Consumer(sys.argv[1], sys.argv[2], group=sys.argv[3]) as consumer:\n"
        "        for record in consumer:\n"
        "            seen += 1\n"
        "            if seen == 400: print(seen, flush=True)\n"
        "except KeyboardInterrupt:\n"
        "    print(time.time(), flush=True)\n"
    )
    assert any(interrupted(f"{filled}-{number}") for number in range(TRIES))


def test_a_member_that_may_not_be_slow_leaves_and_comes_back(
    daemon: Daemon, filled: str, quick: Options
) -> None:
    lost: list[TopicPartition] = []
    with Consumer(
        daemon.address,
        filled,
        group=filled,
        max_poll_interval_ms=200,
        on_lost=lost.extend,
        **quick,
    ) as consumer:
        assert consumer.poll(max_records=1, timeout_ms=60_000)
        with Admin(daemon.address) as admin:
            # A group that nobody is in, and that has no offsets, is soon none.
            until(lambda: admin.describe_group(filled).state in ("Empty", "Dead"))
        seen: list[Record] = []
        while len(seen) < COUNT:
            seen += consumer.poll(timeout_ms=60_000)
        assert {one.partition for one in lost} == set(range(PARTITIONS))


def test_a_member_whose_broker_is_away_costs_next_to_nothing(tmp_path: Path) -> None:
    daemon = start(tmp_path / "data", "--durability", "disk")
    fill(daemon.address, "t")
    began = 0.0

    def read() -> None:
        nonlocal began
        with Consumer(daemon.address, "t", group="g") as consumer:
            assert consumer.poll(timeout_ms=60_000)
            daemon.stop()
            consumer.poll(max_records=10_000, timeout_ms=100)
            used, since = time.process_time(), time.monotonic()
            time.sleep(3)
            # An empty loop would take all of it; how much: python -m bench interrupts
            assert time.process_time() - used < 0.2 * (time.monotonic() - since)
            began = time.monotonic()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read()
    assert time.monotonic() - began < 10


# trio and asyncio


def test_async_members_share_are_told_in_their_task_and_commit(
    daemon: Daemon, filled: str, run: Callable[..., Any], quick: Options
) -> None:
    told: list[tuple[str, int]] = []

    async def assigned(partitions: list[TopicPartition]) -> None:
        await anyio.lowlevel.checkpoint()
        told.append(("assigned", len(partitions)))

    def revoked(partitions: list[TopicPartition]) -> None:
        told.append(("revoked", len(partitions)))

    async def main() -> list[int]:
        values: list[int] = []
        async with AsyncConsumer(
            daemon.address,
            filled,
            group=filled,
            on_assigned=assigned,
            on_revoked=revoked,
            **quick,
        ) as one:
            async for record in one:
                values.append(int(record.value or b""))
                if len(values) == COUNT:
                    break
            await one.commit()
            async with AsyncConsumer(daemon.address, filled, group=filled, **quick) as two:
                with anyio.fail_after(DEADLINE_S):
                    while len(two.assignment) != 2 or len(one.assignment) != 2:
                        await one.poll(timeout_ms=20)
                        await two.poll(timeout_ms=20)
            assert {stands.offset for stands in (await one.committed()).values()} == {100}
        return values

    assert sorted(run(main)) == list(range(COUNT))
    assert told == [("assigned", 4), ("revoked", 2), ("revoked", 2)] or told[-1][0] == "revoked"
    with Admin(daemon.address) as admin:
        assert admin.describe_group(filled).state == "Empty"


def test_cancelling_ends_an_async_member_at_once_and_it_leaves(
    daemon: Daemon, filled: str, run: Callable[..., Any], quick: Options
) -> None:
    async def main(group: str) -> tuple[int, float]:
        seen, cancelled = 0, 0.0
        with anyio.CancelScope() as scope:
            async with AsyncConsumer(daemon.address, filled, group=group, **quick) as consumer:
                async for _ in consumer:
                    seen += 1
                    if seen == COUNT:
                        cancelled = time.monotonic()
                        scope.cancel()
        return seen, time.monotonic() - cancelled

    def said_goodbye(group: str) -> bool:
        seen, took = run(main, group)
        assert seen == COUNT
        assert took < 10
        return has_said_goodbye(daemon.address, filled, group)

    assert any(said_goodbye(f"{filled}-{number}") for number in range(TRIES))


def test_a_last_commit_that_there_is_no_memory_for_is_told(
    daemon: Daemon, filled: str, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By both makes alike: who hears nothing takes it for committed."""
    last_only: Options = {"commit_interval_ms": 600_000}

    def has_no_memory(*_: object) -> object:
        monkeypatch.undo()
        raise MemoryError

    def use_up_memory() -> None:
        monkeypatch.setattr(Commits, "gone_past", has_no_memory)

    with (  # noqa: PT012
        pytest.raises(MemoryError),
        Consumer(daemon.address, filled, group=filled, **last_only) as consumer,
    ):
        assert consumer.poll(timeout_ms=60_000)
        use_up_memory()

    async def main() -> None:
        # In a group of its own: the other has not left, for want of memory.
        group = f"{filled}-async"
        async with AsyncConsumer(daemon.address, filled, group=group, **last_only) as consumer:
            assert await consumer.poll(timeout_ms=60_000)
            use_up_memory()

    with pytest.raises(MemoryError):
        run(main)


@pytest.mark.parametrize("where", ["before", "in a callback", "while it leaves"])
def test_an_async_member_whose_end_is_cancelled_leaves(
    daemon: Daemon, filled: str, run: Callable[..., Any], where: str
) -> None:
    """As in `finally: await consumer.aclose()`: in a cancelled scope each wait is cancelled."""

    async def hang(_: list[TopicPartition]) -> None:
        if where == "in a callback":
            await anyio.sleep_forever()

    async def main(group: str) -> None:
        with anyio.CancelScope() as scope:
            consumer = AsyncConsumer(daemon.address, filled, group=group, on_revoked=hang)
            await consumer.__aenter__()
            seen = 0
            while seen < COUNT:
                seen += len(await consumer.poll(timeout_ms=60_000))
            assert await consumer.poll(timeout_ms=0) == []
            if where == "before":
                scope.cancel()
            else:
                # Seen by the loop at its next turn, when what is sent at first is sent.
                scope.deadline = anyio.current_time()
            await consumer.aclose()
        assert scope.cancelled_caught

    def said_goodbye(group: str) -> bool:
        run(main, group)
        return has_said_goodbye(daemon.address, filled, group)

    assert any(said_goodbye(f"{filled}-{number}") for number in range(TRIES))


def test_an_async_member_pauses_resumes_and_tells_how_far_behind_it_is(
    daemon: Daemon, filled: str, run: Callable[..., Any]
) -> None:
    async def main() -> None:
        async with AsyncConsumer(daemon.address, filled, group=filled, **QUICK) as consumer:
            with anyio.fail_after(DEADLINE_S):
                seen = await consumer.poll(max_records=1, timeout_ms=60_000)
                consumer.pause((filled, seen[0].partition))
                while len(seen) < 1 + COUNT * 3 // 4:
                    seen += await consumer.poll(timeout_ms=100)
                assert await consumer.poll(timeout_ms=50) == []
                assert sum(consumer.lag().values()) == COUNT // 4 - 1
                consumer.resume()
                while len(seen) < COUNT:
                    seen += await consumer.poll(timeout_ms=100)
                await consumer.commit()
                assert sum(consumer.lag().values()) == 0
                stands = await consumer.committed()
        assert {one.offset for one in stands.values()} == {COUNT // PARTITIONS}
        assert len({(one.partition, one.offset) for one in seen}) == COUNT

    run(main)


def test_an_async_job_that_awaits_for_long_costs_no_partition(
    daemon: Daemon, filled: str, run: Callable[..., Any]
) -> None:
    async def main() -> None:
        async with AsyncConsumer(
            daemon.address,
            filled,
            group=filled,
            heartbeat_interval_ms=100,
            session_timeout_ms=6_000,
        ) as consumer:
            async for _ in consumer:
                await anyio.sleep(6.5)
                assert len(consumer.assignment) == PARTITIONS
                await consumer.commit()
                break

    run(main)
