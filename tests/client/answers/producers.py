"""Stories of producers: what is acknowledged is there once, what is refused is not, and behind the
fault the producer goes on."""

from functools import partial
from typing import Any, Final

from segbroker.client import Admin, BrokerError, ProducerFenced, TransactionAborted
from segbroker.client.errors import (
    BrokenError,
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    PeerError,
)
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode

from .story import Failed, Story

PARTITIONS: Final = 2


# By these a broker says that a batch is, or is not, in its log.
KNOWING: Final = frozenset(
    {
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
)


def _is_lie(story: Story) -> bool:
    """Whether the broker says what is not so, of what is in its log."""
    codes = {each.code for each in story.fault.codes} & KNOWING
    return ErrorCode.DUPLICATE_SEQUENCE_NUMBER in codes or (
        bool(codes) and len(story.fault.deeds) > 1
    )


async def sends(story: Story) -> None:
    """One record, and some more, and many; flush; and the same once more."""
    kit, topic = story.kit, story.name
    story.stage.broker.create_topic(topic, partitions=PARTITIONS)
    options = {"delivery_timeout_ms": story.stage.limit_ms, "linger_ms": 0}
    producer = kit.producer(story.address, **options)
    deliveries: dict[bytes, Any] = {}
    never: set[bytes] = set()

    async def send(value: bytes, partition: int) -> Any:  # noqa: ANN401
        delivery = await kit.do(producer.send(topic, value, partition=partition))
        deliveries[value] = delivery
        return delivery

    async def sent(value: bytes, partition: int) -> Any:  # noqa: ANN401
        return await kit.delivered(await send(value, partition))

    async def many(name: bytes) -> Any:  # noqa: ANN401
        values = [b"%s-%d" % (name, number) for number in range(5)]
        some = await kit.do(producer.send_many(topic, values, partition=1))
        deliveries.update(zip(values, some, strict=True))
        return await kit.delivered(some)

    if not await story.open("open", producer):
        story.heal()
        producer = kit.producer(story.address, **options)
        await story.again("open again", partial(kit.open, producer))
        story._opened.append(producer)
    for number in range(3):
        got = await story.step(f"send {number}", partial(sent, b"%d" % number, number % 2))
        if isinstance(got, Failed) and b"%d" % number not in deliveries:
            never.add(b"%d" % number)
    for number in range(3, 6):
        if isinstance(await story.step("send", partial(send, b"%d" % number, 0)), Failed):
            never.add(b"%d" % number)
    await story.step("flush", lambda: kit.do(producer.flush()))
    await story.step("many", partial(many, b"many"))
    await story.step("partitions", lambda: kit.do(producer.partitions_for(topic)))
    story.heal()
    await story.step("settled", lambda: kit.do(producer.flush()))
    again = await story.step("send again", partial(sent, b"again", 0))
    if isinstance(again, Failed):
        # Without an id it can do nothing more, as Java's.
        is_final = story.fault.key == ApiKey.INIT_PRODUCER_ID and isinstance(
            again.error, BrokerError | PeerError
        )
        story.check(is_final, f"send again, when all is well: {again.error!r}")
    else:
        await story.again("many again", partial(many, b"more"))
    if not isinstance(await story.close("close", producer), Failed):
        story.check(repr(producer).endswith(", closed>"), repr(producer))
    found = story.values(topic)
    for value, delivery in deliveries.items():
        is_once = found[value] <= 1 or _is_lie(story)
        story.check(is_once, f"there {found[value]} times: {value!r}")
        try:
            where = delivery.metadata()
        except BrokerError as exc:
            story.check(not found[value], f"refused, and there: {value!r}: {exc!r}")
        except BrokenError:
            pass
        else:
            story.check(_is_lie(story) or found[value], f"not there: {value!r}, {where}")
    for value in never:
        story.check(not found[value], f"send has raised, and it is there: {value!r}")


FINAL: Final = (ProducerFenced, InvalidProducerIdMapping, InvalidTxnState)


async def commits(story: Story) -> None:
    """Transactions of two records each, and one behind the fault."""
    kit, topic = story.kit, story.name
    story.stage.broker.create_topic(topic, partitions=PARTITIONS)
    options = {
        "delivery_timeout_ms": story.stage.limit_ms,
        "transactional_id": story.name,
    }
    ended: dict[bytes, Any] = {}

    async def transaction(name: bytes) -> str:
        async with kit.block(producer.transaction()):
            for partition in range(PARTITIONS):
                value = b"%s-%d" % (name, partition)
                await kit.delivered(await kit.do(producer.send(topic, value, partition=partition)))
        return "committed"

    producer = kit.producer(story.address, **options)
    if not await story.open("open", producer):
        story.heal()
        producer = kit.producer(story.address, **options)
        await story.again("open again", partial(kit.open, producer))
        story._opened.append(producer)
    for name in (b"one", b"two"):
        ended[name] = await story.step("transaction", partial(transaction, name), calls=3)
    story.heal()
    last = await story.step("transaction, when all is well", partial(transaction, b"last"))
    ended[b"last"] = last
    if isinstance(last, Failed):
        is_final = isinstance(last.error, FINAL)
        if not is_final:
            # One that could not be ended before has been found to be so.
            again = partial(transaction, b"very last")
            ended[b"very last"] = await story.again("the one behind that", again)
            story.check(
                isinstance(last.error, TransactionAborted | ConcurrentTransactions),
                f"transaction, when all is well: {last.error!r}",
            )
        else:
            story.told.append(f"final: {last.error!r}")
            producer = kit.producer(story.address, **options)
            await story.open("open another", producer)
            ended[b"other"] = await story.again("of another", partial(transaction, b"other"))
    await story.end()
    found = story.values(topic)
    for name, got in ended.items():
        counts = [found[b"%s-%d" % (name, partition)] for partition in range(PARTITIONS)]
        story.check(counts in ([0, 0], [1, 1]), f"of {name!r} there is {counts}")
        if not isinstance(got, Failed):
            story.check(counts == [1, 1], f"committed, and not there: {name!r}")
        elif not isinstance(got.error, BrokenError):
            story.check(counts == [0, 0], f"{got.error!r}, and it is there: {name!r}")


async def prepares(story: Story) -> None:
    """Takes the id over, and leaves a transaction to another: who never comes."""
    kit, topic = story.kit, story.name
    story.stage.broker.create_topic(topic)
    options = {"delivery_timeout_ms": story.stage.limit_ms, "transactional_id": story.name}

    async def prepared() -> Any:  # noqa: ANN401
        async with kit.block(producer.transaction()):
            await kit.do(producer.send(topic, b"v"))
            return await kit.do(producer.prepare())

    producer = kit.producer(story.address, **options)
    if await story.open("open", producer):
        await story.step("init", lambda: kit.do(producer.init_transactions()))
        await story.step("prepare", prepared, calls=3)
    await story.end()
    producer = kit.producer(story.address, **options)
    await story.open("open another", producer)
    await story.again("init of another", lambda: kit.do(producer.init_transactions()))
    await story.end()
    story.check(not story.values(topic), "seen, and never committed")


def fill(story: Story, count: int) -> None:
    """Records in each partition of the story's topic, by their numbers."""
    with Admin(story.stage.broker.address) as admin:
        admin.create_topic(story.name, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        values = [b"%d-%d" % (partition, number) for number in range(count)]
        story.stage.broker.send(story.name, values, partition=partition)
