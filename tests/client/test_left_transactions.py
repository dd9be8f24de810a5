"""Calls about a transaction whose caller has gone: each goes on, and none reaches the next one.

A cancelled task, a thread after Ctrl-C and a call that came to its deadline leave a request with a
broker that has not answered.
"""

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import anyio
import pytest

from segbroker.client import (
    Admin,
    AsyncProducer,
    Consumer,
    GroupMetadata,
    NoTransaction,
    Producer,
    TimedOut,
)
from segbroker.client.coordinator import Coordinator
from segbroker.client.engine import Call, Engine, Pause
from segbroker.client.transactions import Transactions
from segbroker.protocol.messages_core import ProduceRequest
from segbroker.protocol.messages_transactions import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from segbroker.protocol.schema import Message
from segbroker.testing.embedded import EmbeddedBroker

from ..support.cutting_proxy import CuttingProxy
from ..support.ports import keep_port
from ..support.waiting import within_one_of
from .conftest import Run
from .test_transactions import protocol

__all__ = ["protocol"]

TOPIC = "t"
GROUP = GroupMetadata("g")


@contextmanager
def held_broker() -> Iterator[tuple[EmbeddedBroker, CuttingProxy]]:
    port = keep_port()
    with (
        CuttingProxy(("127.0.0.1", port)) as proxy,
        EmbeddedBroker(listen=f"127.0.0.1:{port}", advertised=proxy.address) as broker,
    ):
        broker.create_topic(TOPIC, partitions=1)
        yield broker, proxy


def read_behind(broker: EmbeddedBroker) -> list[bytes | None]:
    """What a reader sees, of a record that is sent now, too: nothing of it where a transaction is
    open."""
    with Producer(broker.address) as producer:
        producer.send(TOPIC, b"behind").result(60)
    with Consumer(broker.address, TOPIC, stop_at_end=True) as consumer:
        return [record.value for record in consumer]


def values(broker: EmbeddedBroker) -> list[bytes | None]:
    return [record.value for record in broker.records(TOPIC)]


class Loading:
    """A group's coordinator that is not ready for offsets of a transaction until it `is_ready`."""

    def __init__(self, patch: pytest.MonkeyPatch, kind: type[Message]) -> None:
        self.is_asked = threading.Event()
        self.is_ready = threading.Event()
        ask = Coordinator.ask

        def wait(coordinator: Coordinator, request: Message, *args: object) -> Call[Message]:
            if isinstance(getattr(request, "message", request), kind):
                self.is_asked.set()
                while not self.is_ready.is_set():
                    yield Pause(10)
            reply: Message = yield from ask(coordinator, request, *args)
            return reply

        patch.setattr(Coordinator, "ask", wait)


async def cancelled(event: threading.Event, work: Callable[[], Awaitable[object]]) -> None:
    """Run `work` until the event is set."""
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:

            async def watch() -> None:
                assert await anyio.to_thread.run_sync(event.wait, 60)
                scope.cancel()

            tasks.start_soon(watch)
            await work()


@pytest.mark.usefixtures("protocol")
def test_a_transaction_whose_beginning_was_cancelled_is_not_open(run: Run) -> None:
    async def main(broker: EmbeddedBroker, proxy: CuttingProxy) -> None:
        async with AsyncProducer(proxy.address, transactional_id="x") as producer:

            async def never_begun() -> None:
                async with producer.transaction():
                    await producer.send(TOPIC, b"never")

            proxy.hold_at(InitProducerIdRequest.message_key)
            await cancelled(proxy.is_held, never_begun)
            proxy.release()
            with anyio.fail_after(60):
                while producer._producing.engine._running:  # noqa: ASYNC110  # the call left
                    await anyio.sleep(0.01)
            async with producer.transaction():
                await producer.send(TOPIC, b"second")
        assert values(broker) == [b"second"]

    with held_broker() as (broker, proxy):
        run(main, broker, proxy)


@pytest.mark.usefixtures("protocol")
def test_of_two_threads_that_begin_at_once_one_is_refused() -> None:
    refused: list[NoTransaction] = []
    both_said = threading.Barrier(2)

    def work(producer: Producer, name: bytes) -> None:
        try:
            with producer.transaction():
                producer.send(TOPIC, name).result(60)
                both_said.wait(60)
        except NoTransaction as exc:
            refused.append(exc)
            both_said.wait(60)

    with (
        held_broker() as (broker, proxy),
        Producer(proxy.address, transactional_id="x") as producer,
    ):
        proxy.hold_at(InitProducerIdRequest.message_key)
        threads = [threading.Thread(target=work, args=(producer, name)) for name in (b"a", b"b")]
        for thread in threads:
            thread.start()
        assert proxy.is_held.wait(60)
        with suppress(TimedOut):
            producer.flush(0.2)
        proxy.release()
        for thread in threads:
            thread.join(60)
        assert len(refused) == 1
        assert len(values(broker)) == 1


@pytest.mark.parametrize("kind", [AddOffsetsToTxnRequest, TxnOffsetCommitRequest])
def test_offsets_whose_sending_was_cancelled_are_not_those_of_the_next_transaction(
    run: Run, monkeypatch: pytest.MonkeyPatch, protocol: int, kind: type[Message]
) -> None:
    if protocol == 2 and kind is AddOffsetsToTxnRequest:
        pytest.skip("protocol 2 does not ask that")
    group = Loading(monkeypatch, kind)

    async def main(broker: EmbeddedBroker, proxy: CuttingProxy) -> None:
        async with AsyncProducer(proxy.address, transactional_id="x") as producer:

            async def offsets() -> None:
                await producer.send_offsets({(TOPIC, 0): 1}, GROUP)

            async def aborted(scope: anyio.CancelScope) -> None:
                async with producer.transaction():
                    await producer.send(TOPIC, b"never")
                    await cancelled(group.is_asked, offsets)
                    scope.deadline = anyio.current_time() + 0.2
                    raise ZeroDivisionError

            with anyio.CancelScope() as scope, suppress(ZeroDivisionError):
                await aborted(scope)
            group.is_ready.set()
            async with producer.transaction():
                await producer.send(TOPIC, b"second")
                await anyio.sleep(0.2)
        with Admin(proxy.address) as admin:
            assert not admin.committed(GROUP.group_id)
        assert values(broker) == [b"second"]

    with held_broker() as (broker, proxy):
        run(main, broker, proxy)


@pytest.mark.usefixtures("protocol")
def test_a_commit_waits_for_offsets_whose_sending_was_cancelled(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Loading(monkeypatch, TxnOffsetCommitRequest)

    async def main(broker: EmbeddedBroker, proxy: CuttingProxy) -> None:
        async with AsyncProducer(proxy.address, transactional_id="x") as producer:

            async def offsets() -> None:
                await producer.send_offsets({(TOPIC, 0): 1}, GROUP)

            async def ready() -> None:
                await anyio.sleep(0.2)
                group.is_ready.set()

            async with anyio.create_task_group() as tasks, producer.transaction():
                await producer.send(TOPIC, b"first")
                await cancelled(group.is_asked, offsets)
                tasks.start_soon(ready)
        with Admin(proxy.address) as admin:
            assert admin.committed(GROUP.group_id)
        assert values(broker) == [b"first"]

    with held_broker() as (broker, proxy):
        run(main, broker, proxy)


@pytest.mark.usefixtures("protocol")
def test_a_transaction_whose_offsets_were_not_answered_in_time_is_not_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Loading(monkeypatch, TxnOffsetCommitRequest)
    with held_broker() as (broker, proxy):
        with Producer(proxy.address, transactional_id="x") as producer:
            producer.init_transactions()
            engine = producer._producing.engine

            def half() -> None:
                with producer.transaction():
                    producer.send(TOPIC, b"without its offsets").result(60)
                    settings, engine.settings = (
                        engine.settings,
                        replace(engine.settings, api_timeout_ms=100),
                    )
                    with suppress(TimedOut):
                        producer.send_offsets({(TOPIC, 0): 1}, GROUP)
                    engine.settings = settings

            with pytest.raises(TimedOut, match="offsets of group 'g'"):
                half()
            group.is_ready.set()
            with producer.transaction():
                producer.send(TOPIC, b"second")
        with Admin(proxy.address) as admin:
            assert not admin.committed(GROUP.group_id)
        assert values(broker) == [b"second"]


@pytest.mark.usefixtures("protocol")
def test_an_abort_that_was_cancelled_and_the_one_that_goes_on_with_it_are_one(run: Run) -> None:
    async def main(broker: EmbeddedBroker, proxy: CuttingProxy) -> None:
        async with AsyncProducer(proxy.address, transactional_id="x", linger_ms=0) as producer:

            async def aborted(scope: anyio.CancelScope) -> None:
                async with producer.transaction():
                    await (await producer.send(TOPIC, b"never"))
                    proxy.hold_at(ProduceRequest.message_key)
                    await producer.send(TOPIC, b"on its way")
                    assert await anyio.to_thread.run_sync(proxy.is_held.wait, 60)
                    scope.deadline = anyio.current_time() + 0.5
                    raise ZeroDivisionError

            await producer.init_transactions()
            with anyio.CancelScope() as scope, suppress(ZeroDivisionError):
                await aborted(scope)
            ends: list[str] = []
            say_end = Transactions._say_end

            def counted(of: Transactions, *, committed: bool) -> Call[None]:
                ends.append("commit" if committed else "abort")
                return say_end(of, committed=committed)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Transactions, "_say_end", counted)
                threading.Timer(0.2, proxy.release).start()
                async with producer.transaction():
                    await producer.send(TOPIC, b"second")
            assert ends == ["abort", "commit"]
        assert values(broker) == [b"second"]

    with held_broker() as (broker, proxy):
        run(main, broker, proxy)


@pytest.mark.usefixtures("protocol")
def test_an_abort_that_was_cancelled_is_ended_when_the_producer_is_closed(run: Run) -> None:
    """Until its end nobody reads what lies behind it; and what it dropped is no failure to tell."""

    async def main(broker: EmbeddedBroker, proxy: CuttingProxy) -> None:
        async with AsyncProducer(
            proxy.address, transactional_id="x", transaction_timeout_ms=600_000, linger_ms=0
        ) as producer:

            async def left() -> None:
                async with producer.transaction():
                    await (await producer.send(TOPIC, b"never"))
                    proxy.hold_at(ProduceRequest.message_key)
                    await producer.send(TOPIC, b"on its way")
                    producer.send_nowait(TOPIC, b"waits behind it")
                    await anyio.sleep_forever()

            await producer.init_transactions()
            await cancelled(proxy.is_held, left)
            proxy.release()
        assert read_behind(broker) == [b"behind"]

    with held_broker() as (broker, proxy):
        run(main, broker, proxy)


def test_an_abort_whose_end_is_on_its_way_when_the_producer_is_closed_is_waited_for(
    run: Run,
) -> None:
    """Who waited for it was cancelled, and its connection breaks."""

    async def main(broker: EmbeddedBroker, proxy: CuttingProxy) -> None:
        async def left() -> None:
            async with producer.transaction():
                await (await producer.send(TOPIC, b"never"))
                proxy.hold_at(EndTxnRequest.message_key)
                raise ZeroDivisionError

        async def cut() -> None:
            await anyio.sleep(0.3)
            proxy.cut_all()
            proxy.release()

        async with (
            anyio.create_task_group() as tasks,
            AsyncProducer(
                proxy.address, transactional_id="x", transaction_timeout_ms=600_000, linger_ms=0
            ) as producer,
        ):
            await producer.init_transactions()
            await cancelled(proxy.is_held, left)
            tasks.start_soon(cut)
        assert read_behind(broker) == [b"behind"]

    with held_broker() as (broker, proxy):
        run(main, broker, proxy)


def test_an_abort_that_ctrl_c_cut_short_is_ended_when_the_producer_is_closed() -> None:
    def left(producer: Producer, proxy: CuttingProxy) -> None:
        with producer.transaction():
            producer.send(TOPIC, b"never").result(60)
            proxy.hold_at(ProduceRequest.message_key)
            producer.send(TOPIC, b"on its way")
            assert proxy.is_held.wait(60)
            producer.send(TOPIC, b"waits behind it")
            raise KeyboardInterrupt

    with held_broker() as (broker, proxy):
        with Producer(
            proxy.address, transactional_id="x", transaction_timeout_ms=600_000, linger_ms=0
        ) as producer:
            with pytest.raises(KeyboardInterrupt):
                left(producer, proxy)
            proxy.release()
        assert read_behind(broker) == [b"behind"]


def interrupted_behind(
    patch: pytest.MonkeyPatch, of: type, name: str, work: Callable[[], object]
) -> None:
    """Ctrl-C comes to `work` when the main thread has just been in a method, for the first time."""
    original: Callable[..., object] = getattr(of, name)
    has_come = False

    def interrupted(*args: object, **options: object) -> object:
        nonlocal has_come
        got = original(*args, **options)
        if not has_come and threading.current_thread() is threading.main_thread():
            has_come = True
            raise KeyboardInterrupt
        return got

    with patch.context() as patching:
        patching.setattr(of, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            work()


@pytest.mark.parametrize(
    ("of", "name"),
    [
        pytest.param(Transactions, "open", id="opened"),
        pytest.param(Engine, "_provide", id="asked"),
        pytest.param(Transactions, "_ask_identity", id="asking who it is"),
    ],
)
def test_behind_an_interrupt_in_the_middle_of_a_call_the_next_transaction_begins(
    monkeypatch: pytest.MonkeyPatch, of: type, name: str
) -> None:
    with held_broker() as (broker, _), Producer(broker.address, transactional_id="x") as producer:

        def never() -> None:
            with producer.transaction():
                producer.send(TOPIC, b"never")

        interrupted_behind(monkeypatch, of, name, never)
        assert not producer._producing.engine._running
        with producer.transaction():
            producer.send(TOPIC, b"second")
        assert values(broker) == [b"second"]


def test_behind_an_interrupt_in_the_sending_of_offsets_the_transaction_is_aborted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with held_broker() as (broker, _), Producer(broker.address, transactional_id="x") as producer:

        def unknown() -> None:
            with producer.transaction():
                producer.send(TOPIC, b"first").result(60)
                interrupted_behind(
                    monkeypatch,
                    Engine,
                    "_provide",
                    lambda: producer.send_offsets({(TOPIC, 0): 1}, GROUP),
                )
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            unknown()
        assert not producer._producing.engine._running
        with producer.transaction():
            producer.send(TOPIC, b"second")
        assert values(broker) == [b"second"]


def test_an_abort_whose_end_never_came_to_the_broker_is_ended_when_the_producer_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C left it, and then its connection broke."""

    def left(producer: Producer, proxy: CuttingProxy) -> None:
        with producer.transaction():
            producer.send(TOPIC, b"never").result(60)
            proxy.hold_at(EndTxnRequest.message_key)
            raise KeyboardInterrupt

    def ended(hurried_ms: int) -> None:
        """hurried_ms: what the abort gets, to the end of which it waits."""
        monkeypatch.setattr("segbroker.client.producer.HURRIED_MS", hurried_ms)
        with held_broker() as (broker, proxy):
            with Producer(
                proxy.address, transactional_id="x", transaction_timeout_ms=600_000, linger_ms=0
            ) as producer:
                with pytest.raises(KeyboardInterrupt):
                    left(producer, proxy)
                assert proxy.is_held.wait(60)
                proxy.cut_all()
                proxy.release()
            assert read_behind(broker) == [b"behind"]

    within_one_of((300, 10_000), ended)
