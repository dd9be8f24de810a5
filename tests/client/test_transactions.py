"""A transactional producer against a real daemon: all or nothing, once, and by one producer."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from segbroker.client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    DeliveryFailed,
    GroupMetadata,
    IllegalGeneration,
    MessageTooLarge,
    NoTransaction,
    Outgoing,
    Producer,
    ProducerFenced,
    Record,
    TopicRecreated,
    TransactionAborted,
    async_transform,
    transform,
)
from segbroker.client.connection import Connection
from segbroker.client.engine import Ask, Call
from segbroker.client.settings import GroupProtocol
from segbroker.client.transactions import Transactions
from segbroker.protocol.messages_groups import LeaveGroupRequest, LeaveGroupRequestMember
from segbroker.protocol.messages_transactions import EndTxnRequest
from segbroker.testing.embedded import EmbeddedBroker

from ..support.cutting_proxy import CuttingProxy
from ..support.daemon import Daemon, running
from ..support.ports import keep_port
from ..support.waiting import until
from .conftest import Run
from .test_groups import BY_BROKER, QUICK


@pytest.fixture(params=[2, 1], ids=["protocol2", "protocol1"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The newer protocol, or what a client finds at a broker that has not got it."""
    if request.param == 1:
        monkeypatch.setattr(Connection, "features", property(lambda _: {}, lambda *_: None), False)
    version: int = request.param
    return version


@pytest.fixture
def topic(daemon: Daemon, topic: str) -> str:
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=2)
    return topic


def read(daemon: Daemon, topic: str, isolation: Any = "read_committed") -> list[bytes]:  # noqa: ANN401
    with Consumer(daemon.address, topic, isolation=isolation, stop_at_end=True) as consumer:
        return sorted(record.value or b"" for record in consumer)


@pytest.mark.usefixtures("protocol")
def test_a_block_is_seen_whole_and_one_with_an_exception_not_at_all(
    daemon: Daemon, topic: str
) -> None:
    def failing(producer: Producer, *, is_written: bool) -> None:
        with producer.transaction():
            producer.send_many(topic, [b"never"] * 100, partition=1)
            if is_written:
                producer.flush()
            raise ZeroDivisionError

    with Producer(daemon.address, transactional_id=topic) as producer:
        for number in range(3):
            with producer.transaction():
                producer.send(topic, b"%d" % number, partition=0)
                producer.send(topic, b"%d" % number, partition=1)
            for is_written in (False, True):
                with pytest.raises(ZeroDivisionError):
                    failing(producer, is_written=is_written)
    assert read(daemon, topic) == [b"0", b"0", b"1", b"1", b"2", b"2"]
    assert read(daemon, topic, "read_uncommitted").count(b"never") == 300


@pytest.mark.usefixtures("protocol")
def test_what_is_open_is_not_seen_and_what_is_behind_it_waits(daemon: Daemon, topic: str) -> None:
    with Producer(daemon.address, transactional_id=topic) as producer:
        with producer.transaction():
            producer.send(topic, b"open", partition=0)
            producer.flush()
            with Producer(daemon.address) as other:
                other.send(topic, b"behind", partition=0).result(60)
            assert read(daemon, topic) == []
            for start in (1, 2):  # where a reader that does not mind transactions has come to
                with Consumer(daemon.address, stop_at_end=True) as consumer:
                    consumer.assign([(topic, 0)], start=start)
                    assert list(consumer) == []
        assert read(daemon, topic) == [b"behind", b"open"]


def test_sending_outside_of_a_transaction_is_refused(daemon: Daemon, topic: str) -> None:
    with Producer(daemon.address, transactional_id=topic) as producer:
        with pytest.raises(NoTransaction, match=r"inside `with producer.transaction"):
            producer.send(topic, b"")
        with producer.transaction():
            producer.send(topic, b"in it")
            with pytest.raises(NoTransaction, match="is open already"), producer.transaction():
                pass
        for send in (producer.send, producer.send_nowait):
            with pytest.raises(NoTransaction):
                send(topic, b"behind it")
    assert read(daemon, topic) == [b"in it"]
    with Producer(daemon.address) as plain, pytest.raises(NoTransaction), plain.transaction():
        pass
    with pytest.raises(ValueError, match="needs a name, and idempotent=True"):
        Producer(transactional_id="x", acks=1)


@pytest.mark.usefixtures("protocol")
def test_the_next_producer_of_the_name_aborts_what_is_open_and_fences(
    daemon: Daemon, topic: str
) -> None:
    def zombie(old: Producer) -> None:
        with old.transaction():
            old.send(topic, b"of the zombie", partition=0).result(60)
            with Producer(daemon.address, transactional_id=topic) as new, new.transaction():
                new.send(topic, b"of the next", partition=0)
            old.send(topic, b"of the zombie", partition=1)

    with Producer(daemon.address, transactional_id=topic) as old:
        with pytest.raises(ProducerFenced):
            zombie(old)
        with pytest.raises(ProducerFenced), old.transaction():
            pass
    assert read(daemon, topic) == [b"of the next"]


@pytest.mark.usefixtures("protocol")
def test_a_killed_producer_leaves_nothing_when_its_name_is_taken_again(
    daemon: Daemon, topic: str
) -> None:
    code = (
        "import sys, time\n"
        "from segbroker.client import Producer\n"
        "address, topic = sys.argv[1:]\n"
        "with Producer(address, transactional_id=topic) as producer, producer.transaction():\n"
        "    producer.send(topic, b'half').result(60)\n"
        "    print('written', flush=True)\n"
        "    time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, daemon.address, topic], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"written\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with Producer(daemon.address, transactional_id=topic) as producer, producer.transaction():
        producer.send(topic, b"whole")
    assert read(daemon, topic) == [b"whole"]


@pytest.mark.usefixtures("protocol")
def test_offsets_are_committed_with_the_records_or_not_at_all(daemon: Daemon, topic: str) -> None:
    with Producer(daemon.address) as plain:
        plain.send_many(topic, [b"in"] * 10, partition=0)
    with (
        Consumer(daemon.address, topic, group=topic, auto_commit=False) as consumer,
        Producer(daemon.address, transactional_id=topic) as producer,
    ):
        consumer.poll(max_records=10, timeout_ms=60_000)

        def aborted() -> None:
            with producer.transaction():
                producer.send_offsets({(topic, 0): 7}, consumer.group_metadata)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            aborted()
        assert consumer.committed() == {}
        with producer.transaction():
            producer.send(topic, b"out", partition=1)
            producer.send_offsets({(topic, 0): 5}, consumer.group_metadata)
        assert {tp: stands.offset for tp, stands in consumer.committed().items()} == {(topic, 0): 5}
        strange = consumer.group_metadata._replace(generation=99)
        with pytest.raises(IllegalGeneration), producer.transaction():
            producer.send_offsets({(topic, 0): 9}, strange)
        with producer.transaction():
            producer.send(topic, b"goes on", partition=1)
    assert {b"out", b"goes on"} <= set(read(daemon, topic))


@pytest.mark.usefixtures("protocol")
@pytest.mark.parametrize("says_more", ["", "at last", "in time", "offsets"])
def test_a_transaction_that_was_open_for_too_long_is_aborted_and_its_producer_goes_on(
    daemon: Daemon, topic: str, says_more: str
) -> None:
    def slow(producer: Producer) -> None:
        with producer.transaction():
            producer.send(topic, b"late", partition=0).result(60)
            with Producer(daemon.address) as other:
                other.send(topic, b"behind", partition=0).result(60)
            with Consumer(daemon.address) as consumer:
                consumer.assign([(topic, 0)])
                # It is seen once what was open before it has ended.
                assert consumer.poll(timeout_ms=60_000)
            if says_more == "offsets":
                producer.send_offsets({(topic, 0): 1}, GroupMetadata(topic))
            elif says_more:  # its record is refused, not its commit
                more = producer.send(topic, b"more", partition=0)
                if says_more == "in time":
                    until(lambda: more.done)

    with Producer(daemon.address, transactional_id=topic, transaction_timeout_ms=1_000) as producer:
        with pytest.raises(TransactionAborted, match="transaction_timeout_ms=1000"):
            slow(producer)

        def goes_on() -> bool:
            try:
                with producer.transaction():
                    producer.send(topic, b"next", partition=0)
            except TransactionAborted:  # the machine stood still for a second
                return False
            return True

        # Nobody else took its place.
        until(goes_on)
    found = read(daemon, topic)
    assert b"next" in found
    assert not {b"late", b"more"} & set(found)


@pytest.mark.parametrize("with_offsets", [False, True])
def test_a_record_that_was_refused_before_anybody_waited_for_it_is_told_as_one_behind_that(
    daemon: Daemon, topic: str, with_offsets: bool
) -> None:
    """By its end, with what was not delivered; offsets that are sent in between do not tell it."""

    def refused(producer: Producer) -> None:
        with producer.transaction():
            producer.send(topic, b"v", partition=1)
            delivery = producer.send(topic, bytes(2 << 20), partition=0)
            until(lambda: delivery.done)
            if with_offsets:
                producer.send_offsets({(topic, 0): 1}, GroupMetadata(topic))

    with Producer(daemon.address, transactional_id=topic) as producer:
        with pytest.raises(DeliveryFailed) as caught:
            refused(producer)
        (record,) = caught.value.undelivered
        assert isinstance(record.error, MessageTooLarge)
        with producer.transaction():
            producer.send(topic, b"next", partition=0)
    assert read(daemon, topic) == [b"next"]
    with Admin(daemon.address) as admin:
        assert not admin.committed(topic)


def test_a_transaction_whose_abort_was_interrupted_is_aborted_before_the_next(
    tmp_path: Path,
) -> None:
    """Ctrl-C waits for no broker: the abort comes to its deadline while it is stopped."""

    def interrupted(producer: Producer) -> None:
        with producer.transaction():
            producer.send("t", b"first", partition=0).result(60)
            daemon.process.send_signal(signal.SIGSTOP)
            producer.send("t", b"on its way", partition=0)
            raise KeyboardInterrupt

    with running(tmp_path / "data") as daemon:
        try:
            with Producer(daemon.address, transactional_id="t", linger_ms=0) as producer:
                with pytest.raises(KeyboardInterrupt) as caught:
                    interrupted(producer)
                assert "aborting the transaction failed too" in caught.value.__notes__[0]
                daemon.process.send_signal(signal.SIGCONT)
                with producer.transaction():
                    producer.send("t", b"second", partition=0)
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        assert read(daemon, "t") == [b"second"]


def test_a_prepared_transaction_is_left_for_somebody_else_to_end(
    daemon: Daemon, topic: str
) -> None:
    with Producer(daemon.address, transactional_id=topic) as producer:
        with producer.transaction():
            producer.send(topic, b"prepared")
            prepared = producer.prepare()
            with pytest.raises(NoTransaction, match="somebody else ends it"):
                producer.send(topic, b"more")
        with pytest.raises(NoTransaction, match="is prepared already"), producer.transaction():
            pass
    assert prepared.transactional_id == topic
    assert prepared.producer_id >= 0
    assert read(daemon, topic) == []
    assert read(daemon, topic, "read_uncommitted") == [b"prepared"]


def doubled(out: str) -> Callable[[Record], Iterable[Outgoing]]:
    return lambda record: [Outgoing(out, (record.value or b"") * 2, key=record.key)]


COUNT = 300


@pytest.mark.usefixtures("protocol")
@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_each_record_is_transformed_once_though_an_instance_fails_in_the_middle(
    daemon: Daemon, topic: str, group_protocol: GroupProtocol
) -> None:
    out = f"{topic}-out"
    with Admin(daemon.address) as admin:
        admin.create_topic(out, partitions=2)
    with Producer(daemon.address) as plain:
        plain.send_many(
            topic, [b"%d," % n for n in range(COUNT)], keys=[b"%d" % n for n in range(COUNT)]
        )
    calls = 0

    def failing(record: Record) -> Iterable[Outgoing]:
        nonlocal calls
        calls += 1
        if calls == 130:
            raise ZeroDivisionError
        return doubled(out)(record)

    def run(function: Callable[[Record], Iterable[Outgoing]], name: str) -> None:
        with (
            Consumer(
                daemon.address,
                topic,
                group=topic,
                group_protocol=group_protocol,
                auto_commit=False,
                stop_at_end=True,
            ) as consumer,
            Producer(daemon.address, transactional_id=f"{topic}-{name}") as producer,
        ):
            transform(consumer, producer, function, max_records=50)

    with pytest.raises(ZeroDivisionError):
        run(failing, "a")
    assert 0 < len(read(daemon, out)) < COUNT
    threads = [threading.Thread(target=run, args=(doubled(out), name)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read(daemon, out) == sorted(b"%d,%d," % (n, n) for n in range(COUNT))


# Whether a record takes too long, the so-many-th one in the so-many-th transaction.
TOGETHER = pytest.param(lambda transaction, record: record == 3, 500, id="more than two")
ONCE = pytest.param(lambda transaction, record: transaction == 1, 1, id="one, the first time")
ALONE = pytest.param(lambda transaction, record: record == 1, 500, id="each")


@pytest.mark.parametrize("limit", ["transaction_timeout_ms", "max_poll_interval_ms"])
@pytest.mark.parametrize(("is_slow", "max_records"), [TOGETHER, ONCE, ALONE])
def test_records_that_take_too_long_together_are_transformed_by_fewer(
    daemon: Daemon,
    topic: str,
    limit: str,
    is_slow: Callable[[int, int], bool],
    max_records: int,
) -> None:
    """One that takes too long alone, and again, is told, not repeated for ever."""
    out = f"{topic}-out"
    values = [b"%d" % n for n in range(6)]
    with Admin(daemon.address) as admin:
        admin.create_topic(out, partitions=1)
    with Producer(daemon.address) as plain:
        plain.send_many(topic, values, partition=0)
    sizes: list[int] = []

    class Counting(Producer):
        @contextmanager
        def transaction(self) -> Iterator[None]:
            sizes.append(0)
            with super().transaction():
                yield

    def slow(record: Record) -> Iterable[Outgoing]:
        yield Outgoing(out, record.value)
        sizes[-1] += 1
        if not is_slow(len(sizes), sizes[-1]):
            return
        if limit == "max_poll_interval_ms":
            with Admin(daemon.address) as admin:
                until(lambda: not admin.describe_group(topic).members)
            return
        producer.flush()
        with Producer(daemon.address) as other:
            behind = other.send(out, b"behind", partition=0).result(60)
        with Consumer(daemon.address) as consumer:
            consumer.assign([(out, 0)], start=behind.offset)
            # It is seen once what was open before it has ended.
            assert consumer.poll(timeout_ms=60_000)

    times: Any = {"transaction_timeout_ms": 60_000, limit: 200}
    timeout_ms = times.pop("transaction_timeout_ms")
    with (
        Consumer(
            daemon.address, topic, group=topic, auto_commit=False, stop_at_end=True, **times
        ) as consumer,
        Counting(
            daemon.address, transactional_id=topic, transaction_timeout_ms=timeout_ms
        ) as producer,
    ):
        if is_slow is ALONE.values[0]:
            told = (TransactionAborted, IllegalGeneration)[limit in times]
            with pytest.raises(told):
                transform(consumer, producer, slow)
            assert sizes[-2:] == [1, 1]
            assert not consumer.committed((topic, 0))
            values.clear()
        else:
            transform(consumer, producer, slow, max_records=max_records)
    assert [value for value in read(daemon, out) if value != b"behind"] == values


def test_where_a_topic_that_is_gone_was_transformed_says_nothing_of_its_successor(
    daemon: Daemon, topic: str
) -> None:
    out = f"{topic}-out"
    with Admin(daemon.address) as admin:
        admin.create_topic(out, partitions=1)
    with Producer(daemon.address) as plain:
        plain.send_many(topic, [b"%d" % n for n in range(10)], partition=0)

    def function(record: Record) -> Iterable[Outgoing]:
        if record.value == b"0":
            with Admin(daemon.address) as admin:
                admin.delete_topic(topic)
                admin.create_topic(topic, partitions=2)
            (state,) = (s for tp, s in consumer._reading.fetching.states.items() if not tp[1])
            until(lambda: state.topics_ahead_count == 1)
        return [Outgoing(out, record.value)]

    with (
        Consumer(
            daemon.address, topic, group=topic, auto_commit=False, metadata_max_age_ms=100
        ) as consumer,
        Producer(daemon.address, transactional_id=topic) as producer,
    ):
        with pytest.raises(TopicRecreated):
            transform(consumer, producer, function)
        assert not consumer.committed((topic, 0))
    assert read(daemon, out) == [b"%d" % n for n in range(10)]


@pytest.mark.parametrize("instance_id", [None, "one"], ids=["dynamic", "static"])
@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_what_another_member_worked_at_meanwhile_is_not_transformed_again(
    daemon: Daemon, topic: str, instance_id: str | None, group_protocol: GroupProtocol
) -> None:
    """The member loses its partition in the middle, and has it back before the end."""
    out = f"{topic}-out"
    with Admin(daemon.address) as admin:
        admin.create_topic(out, partitions=1)
    values = [b"%d" % n for n in range(10)]
    with Producer(daemon.address) as plain:
        plain.send_many(topic, values, partition=0)
    calls = 0

    def function(record: Record) -> Iterable[Outgoing]:
        nonlocal calls
        calls += 1
        if calls == 1:
            another_works()
            lose_and_regain()
        return [Outgoing(out, record.value)]

    def another_works() -> None:
        with Producer(daemon.address, transactional_id=f"{topic}-b") as other, other.transaction():
            other.send_many(out, values)
            other.send_offsets({(topic, 0): 10}, GroupMetadata(topic))

    def lose_and_regain() -> None:
        membership = consumer._reading.group.membership
        had = membership.member_id
        member = LeaveGroupRequestMember(member_id=had, group_instance_id=instance_id)

        def throw_out() -> Call[None]:
            reply = yield Ask(LeaveGroupRequest(group_id=topic, members=[member]))
            assert not reply.error_code
            assert not reply.members[0].error_code

        with Admin(daemon.address) as admin:
            admin._driver.call(throw_out())
        until(lambda: membership.member_id not in ("", had) and (topic, 0) in consumer.assignment)
        assert consumer.position(topic, 0) == 10

    with (
        Consumer(
            daemon.address,
            topic,
            group=topic,
            instance_id=instance_id,
            auto_commit=False,
            stop_at_end=True,
            **(BY_BROKER if group_protocol == "consumer" else QUICK),
        ) as consumer,
        Producer(daemon.address, transactional_id=f"{topic}-a") as producer,
    ):
        transform(consumer, producer, function)
    assert read(daemon, out) == values


def test_trio_and_asyncio_have_transactions_too(
    daemon: Daemon, topic: str, run: Callable[..., Any]
) -> None:
    out = f"{topic}-out"
    with Admin(daemon.address) as admin:
        admin.create_topic(out, partitions=2)

    async def function(record: Record) -> list[Outgoing]:
        await anyio.lowlevel.checkpoint()
        return list(doubled(out)(record))

    failed: list[str] = []

    async def main() -> None:
        async with AsyncProducer(daemon.address, transactional_id=topic) as producer:
            async with producer.transaction():
                for n in range(COUNT):
                    await producer.send(topic, b"%d," % n)
            try:
                async with producer.transaction():
                    await producer.send(topic, b"never")
                    raise ZeroDivisionError
            except ZeroDivisionError:
                failed.append(topic)
            with anyio.CancelScope() as scope:
                async with producer.transaction():
                    await (await producer.send(topic, b"never"))
                    scope.cancel()
                    await anyio.sleep(60)
        async with (
            AsyncConsumer(
                daemon.address, topic, group=topic, auto_commit=False, stop_at_end=True
            ) as consumer,
            AsyncProducer(daemon.address, transactional_id=f"{topic}-t") as producer,
        ):
            await async_transform(consumer, producer, function, max_records=50)

    run(main)
    assert failed == [topic]
    assert len(read(daemon, topic)) == COUNT
    assert read(daemon, out) == sorted(b"%d,%d," % (n, n) for n in range(COUNT))


@pytest.mark.parametrize("is_behind_an_abort", [False, True])
def test_what_was_committed_while_it_was_cancelled_is_not_transformed_again(
    run: Run, topic: str, is_behind_an_abort: bool
) -> None:
    """The commit is on its way when the loop is cancelled, and is done behind its back."""
    source, sink = f"{topic}-source", f"{topic}-sink"

    def function(record: Record) -> list[Outgoing]:
        return [Outgoing(sink, record.value)]

    async def main(proxy: CuttingProxy) -> None:
        async with (
            AsyncConsumer(
                proxy.address,
                source,
                group=topic,
                start="start",
                auto_commit=False,
                stop_at_end=True,
            ) as consumer,
            AsyncProducer(proxy.address, transactional_id=topic) as producer,
        ):
            await producer.init_transactions()
            if is_behind_an_abort:
                with pytest.raises(ZeroDivisionError):
                    async with producer.transaction():
                        raise ZeroDivisionError
            proxy.hold_at(EndTxnRequest.message_key)
            async with anyio.create_task_group() as tasks:

                async def cancelled() -> None:
                    await async_transform(consumer, producer, function, max_records=50)

                tasks.start_soon(cancelled)
                assert await anyio.to_thread.run_sync(proxy.is_held.wait, 60)
                tasks.cancel_scope.cancel()
            proxy.release()
            await async_transform(consumer, producer, function, max_records=50)

    port = keep_port()
    with (
        CuttingProxy(("127.0.0.1", port)) as proxy,
        EmbeddedBroker(listen=f"127.0.0.1:{port}", advertised=proxy.address) as broker,
    ):
        for name in (source, sink):
            broker.create_topic(name, partitions=1)
        values = [b"%d" % number for number in range(120)]
        broker.send(source, values)
        run(main, proxy)
        assert [record.value for record in broker.records(sink)] == values


def test_a_transaction_behind_a_commit_that_was_cancelled_waits_for_its_end(
    run: Run, topic: str
) -> None:
    async def main(proxy: CuttingProxy) -> None:
        async with AsyncProducer(proxy.address, transactional_id=topic) as producer:
            await producer.init_transactions()
            proxy.hold_at(EndTxnRequest.message_key)
            with anyio.CancelScope() as scope:

                async def cancelled() -> None:
                    assert await anyio.to_thread.run_sync(proxy.is_held.wait, 60)
                    scope.cancel()

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(cancelled)
                    async with producer.transaction():
                        await producer.send(topic, b"first")
            proxy.release()
            async with producer.transaction():
                await producer.send(topic, b"second")

    port = keep_port()
    with (
        CuttingProxy(("127.0.0.1", port)) as proxy,
        EmbeddedBroker(listen=f"127.0.0.1:{port}", advertised=proxy.address) as broker,
    ):
        broker.create_topic(topic, partitions=1)
        run(main, proxy)
        assert [record.value for record in broker.records(topic)] == [b"first", b"second"]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_broker_that_restarts_between_a_partition_that_was_added_and_its_first_batch_knows_of_it(
    tmp_path: Path, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protocol 1: the client adds it once, and does not again."""
    monkeypatch.setattr(Connection, "features", property(lambda _: {}, lambda *_: None), False)
    add_done = Transactions._add_done
    restarts: list[signal.Signals] = []

    def restart(transactions: Transactions, *args: Any) -> None:  # noqa: ANN401
        if not restarts:
            restarts.append(how)
            daemon.stop(how)
            daemon.again()
        add_done(transactions, *args)

    with running(tmp_path / "data") as daemon:
        with Admin(daemon.address) as admin:
            admin.create_topic("t", partitions=1)
        monkeypatch.setattr(Transactions, "_add_done", restart)
        with Producer(daemon.address, transactional_id="x") as producer:
            for value in (b"over the restart", b"behind it"):
                with producer.transaction():
                    producer.send("t", value)
                assert restarts
        assert read(daemon, "t") == [b"behind it", b"over the restart"]
