"""Who sends to thousands of topics asks for each that is new, and not for all that it has each
time; where they are there already, soon once for all that there are.
"""

import pytest

from segbroker.client import cluster as cluster_view
from segbroker.client.errors import SegbrokerError
from segbroker.client.inbox import Many
from segbroker.client.records import TopicPartition
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import MetadataRequest

from .simulated import World
from .test_fetching import Reader, store
from .test_producing import Sender, coordinate, run


def asked_for(world: World) -> list[list[str | None]]:
    """The topics of each look at the cluster that named any."""
    return [
        [topic.name for topic in request.topics or ()]
        for broker in world.cluster.brokers.values()
        for request in broker.requests
        if isinstance(request, MetadataRequest) and request.topics
    ]


def looks(world: World) -> int:
    """How often it was asked what there is in the cluster, by name or not."""
    requests = (r for broker in world.cluster.brokers.values() for r in broker.requests)
    return sum(isinstance(request, MetadataRequest) for request in requests)


def test_a_new_topic_is_asked_for_alone() -> None:
    world = World()
    sender = Sender(world)
    names = [f"t{number:03}" for number in range(300)]
    for name in names:
        sender.send(name, b"x")
    sender.flush()
    assert asked_for(world) == [[name] for name in names]
    assert all(world.stored(name) == [b"x"] for name in names)


def test_many_topics_at_once_are_made_some_at_a_time() -> None:
    world = World()
    sender = Sender(world)
    names = [f"t{number:03}" for number in range(250)]
    waits = [sender.try_send(name, b"x") for name in names]
    world.run(lambda: all(one.done for one in waits))
    asked = asked_for(world)
    assert [len(some) for some in asked] == [100, 100, 50]
    assert sorted(name or "" for some in asked for name in some) == names
    for name in names:
        sender.send(name, b"x")
    sender.flush()
    assert all(world.stored(name) == [b"x"] for name in names)


def test_all_topics_are_asked_for_when_the_view_is_old_or_wrong() -> None:
    world = World(brokers=2)
    sender = Sender(world)
    for name in ("a", "b", "c"):
        sender.send(name, b"x")
    sender.flush()
    before = len(asked_for(world))
    late_ms = world.now_ms + world.settings.metadata_max_age_ms + 1_000
    world.run(lambda: world.now_ms >= late_ms)
    assert {*map(tuple, asked_for(world)[before:])} == {("a", "b", "c")}
    before = len(asked_for(world))
    world.cluster.move("b", 0, 2)
    sender.send("b", b"y")
    sender.flush()
    assert asked_for(world)[before:] == [["a", "b", "c"]]
    assert world.stored("b") == [b"x", b"y"]


def test_a_topic_that_is_not_there_yet_is_looked_for_without_the_others() -> None:
    world = World()
    world.cluster.auto_create = False
    world.cluster.create("there")
    sender = Sender(world)
    sender.send("there", b"x")
    sender.flush()
    before = len(asked_for(world))
    waits = sender.try_send("late", b"x")
    world.run(lambda: len(asked_for(world)) == before + 2)
    world.cluster.create("late")
    world.run(lambda: waits.done)
    sender.send("late", b"x")
    sender.flush()
    assert set(map(tuple, asked_for(world)[before:])) == {("late",)}
    assert world.stored("late") == [b"x"]


def test_one_topic_too_many_is_refused_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_view, "TOPICS_COUNT_MAX", 3)
    world = World()
    sender = Sender(world)
    for name in ("a", "b", "c"):
        sender.send(name, b"x")
    with pytest.raises(SegbrokerError, match="at most 3 topics"):
        sender.send("d", b"x")
    sender.send("a", b"y")
    sender.flush()
    assert world.stored("a") == [b"x", b"y"]


def test_who_reads_one_topic_after_another_has_room_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_view, "TOPICS_COUNT_MAX", 3)
    world = World(create_topics=False)
    reader = Reader(world)
    fetching = reader.fetching
    for number in range(8):
        partition = world.cluster.create(f"t{number}")[0]
        store(partition, [b"x"])
        if number % 2:
            fetching.assign([TopicPartition(f"t{number}", 0)], "start")
        else:
            fetching.subscribe([f"t{number}"], "start")
        batch = reader.next_batch()
        assert batch is not None
        assert batch.topic == f"t{number}"


def let_pass(world: World, ms: int) -> None:
    until_ms = world.now_ms + ms
    world.run(lambda: world.now_ms >= until_ms, within_ms=2 * ms)


LONG_MS = 20 * 60_000


def test_who_sends_for_long_has_room_for_topics_that_come_when_others_have_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_view, "TOPICS_COUNT_MAX", 3)
    world = World()
    sender = Sender(world)
    for name in ("stays", "a", "b", "c", "d"):
        sender.send(name, b"x")
        sender.flush()
        if name != "stays":
            del world.cluster.topics[name]
            let_pass(world, LONG_MS)
    assert sender.accumulator.topics.keys() == {"stays"}
    assert sender.accumulator.inboxes.keys() == {"stays"}
    before = len(asked_for(world))
    let_pass(world, 2 * world.settings.metadata_max_age_ms)
    assert {*map(tuple, asked_for(world)[before:])} == {("stays",)}
    sender.send("stays", b"y")
    sender.send("a", b"y")
    sender.flush()
    assert (world.stored("stays"), world.stored("a")) == ([b"x", b"y"], [b"y"])


def test_a_topic_that_is_away_for_a_while_goes_on_as_it_was() -> None:
    world = World()
    sender = Sender(world)
    sender.send("a", b"x")
    sender.flush()
    (queue,) = sender.accumulator.topics["a"].partitions.values()
    topic = world.cluster.topics.pop("a")
    let_pass(world, 2 * world.settings.metadata_max_age_ms)
    world.cluster.topics["a"] = topic
    let_pass(world, LONG_MS)
    sender.send("a", b"y")
    sender.flush()
    assert [*sender.accumulator.topics["a"].partitions.values()] == [queue]
    assert world.stored("a") == [b"x", b"y"]


def test_what_is_sent_to_a_topic_that_comes_back_after_long_is_no_repetition() -> None:
    world = World()
    sender = Sender(world)
    sender.send("a", b"x")
    sender.send("stays", b"x")
    sender.flush()
    topic = world.cluster.topics.pop("a")
    let_pass(world, LONG_MS)
    assert "a" not in sender.accumulator.topics
    world.cluster.topics["a"] = topic
    for number in range(5):
        sender.send("a", b"%d" % number)
        sender.send("stays", b"%d" % number)
        sender.flush()
    assert world.stored("a") == world.stored("stays") == [b"x", b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("is_within", [False, True])
def test_what_a_transaction_sends_to_a_topic_that_comes_back_is_no_repetition(
    *, is_within: bool
) -> None:
    """Under version 1, where a transaction has the epoch of the one before."""
    world = World()
    coordinate(world, added=ErrorCode.NONE)
    sender = Sender(world, transactional_id="tx")
    transactions = sender.producing.in_transactions
    run(world, transactions.begin())
    transactions.open(world)
    sender.send("t", b"x")
    sender.flush()
    topic = world.cluster.topics.pop("t")
    if not is_within:
        run(world, transactions.commit())
    let_pass(world, LONG_MS)
    world.cluster.topics["t"] = topic
    if not is_within:
        run(world, transactions.begin())
        transactions.open(world)
    sender.send("t", b"y")
    run(world, transactions.commit())
    assert world.stored("t") == [b"x", b"y"]


def test_a_topic_that_somebody_has_records_for_is_not_let_go() -> None:
    world = World()
    world.cluster.auto_create = False
    world.cluster.create("a")
    sender = Sender(world, delivery_timeout_ms=10 * LONG_MS)
    sender.send("a", b"x")
    sender.flush()
    del world.cluster.topics["a"]
    sender.send("a", b"y")
    let_pass(world, LONG_MS)
    world.cluster.create("a")
    sender.flush()
    assert world.stored("a") == [b"y"]


def test_a_topic_that_somebody_waits_for_is_not_let_go_by_one_look_behind_an_outage() -> None:
    world = World()
    world.cluster.auto_create = False
    sender = Sender(world, delivery_timeout_ms=10 * LONG_MS)
    waits = sender.try_send("a", b"x")
    world.run(lambda: bool(asked_for(world)))
    world.broker.is_up = False
    let_pass(world, LONG_MS)
    assert not waits.done
    count = len(asked_for(world))
    world.broker.is_up = True
    world.run(lambda: len(asked_for(world)) > count)
    world.cluster.create("a")
    world.run(lambda: waits.done)
    sender.send("a", b"x")
    sender.flush()
    assert world.stored("a") == [b"x"]


def test_many_records_go_on_when_their_topic_was_let_go_between_two_batches() -> None:
    world = World()
    sender = Sender(world, buffer_bytes=4_096, batch_bytes=2_048, delivery_timeout_ms=60_000)
    sender.send("stays", b"x")
    sender.send("a", b"x")
    sender.flush()
    del world.cluster.topics["a"]
    world.cluster.auto_create = False
    many = Many("a", [b"%04d" % n * 100 for n in range(20)], [b"k"] * 20, None, None, None)
    assert sender.accumulator.append_many(many) is not True
    let_pass(world, LONG_MS)
    assert "a" not in sender.accumulator.topics
    world.cluster.auto_create = True
    sender.accumulator.take_undelivered()
    sender.send_many(many)
    sender.flush()
    assert world.stored("a")[-1] == b"0019" * 100


def test_who_sends_to_one_topic_after_another_soon_waits_for_none() -> None:
    world = World()
    names = [f"t{number:03}" for number in range(300)]
    for name in names:
        world.cluster.create(name, partitions=2)
    sender = Sender(world)
    for name in names:
        sender.send(name, b"x", partition=1)
    sender.flush()
    assert all(world.stored(name, 1) == [b"x"] for name in names)
    # The first of all came with the first look of all.
    assert asked_for(world) == [[name] for name in names[: cluster_view.NEW_COUNT_MAX]]
    assert looks(world) < 2 * cluster_view.NEW_COUNT_MAX


def test_what_is_not_among_all_topics_is_asked_for_by_its_name() -> None:
    world = World()
    known = [f"t{number:03}" for number in range(cluster_view.NEW_COUNT_MAX + 1)]
    for name in known:
        world.cluster.create(name)
    sender = Sender(world)
    for name in known[:-1]:
        sender.send(name, b"x")
    sender.send("made by its name", b"x")
    sender.flush()
    assert world.stored("made by its name") == [b"x"]
    world.cluster.auto_create = False
    with pytest.raises(SegbrokerError, match="'nowhere'"):
        sender.send("nowhere", b"x")
    sender.send(known[-1], b"y")
    sender.flush()
    assert world.stored(known[-1]) == [b"y"]
    assert known[-1] not in {name for names in asked_for(world) for name in names}


def test_a_topic_that_went_since_all_were_asked_for_is_made_again() -> None:
    world = World()
    names = [f"t{number:03}" for number in range(cluster_view.NEW_COUNT_MAX + 2)]
    for name in names:
        world.cluster.create(name)
    sender = Sender(world)
    for name in names[:-1]:
        sender.send(name, b"x")
    sender.flush()
    del world.cluster.topics[names[-1]]
    sender.send(names[-1], b"x")
    sender.flush()
    assert world.stored(names[-1]) == [b"x"]
