"""Stories of consumers: each record once and in order, also behind a fault; nothing is committed
that was not gone past; a group misses nothing.
"""

from collections import Counter
from functools import partial
from typing import Any, Final

from segbroker.client import (
    FencedInstanceId,
    Outgoing,
    ProducerFenced,
    TopicPartition,
)
from segbroker.client.errors import (
    GroupAuthorizationFailed,
    InvalidProducerIdMapping,
    InvalidTxnState,
    TopicAuthorizationFailed,
)

from .producers import PARTITIONS, fill
from .story import Failed, Story

COUNT: Final = 6
ALL: Final = PARTITIONS * COUNT
POLLS: Final = 4
FINAL: Final = (FencedInstanceId, GroupAuthorizationFailed, TopicAuthorizationFailed)
"""What ends a membership for good."""


class Seen:
    """What a reader was given: each place once, in order, from the start of the log on."""

    def __init__(self, story: Story, *, may_repeat: bool = False) -> None:
        self.story = story
        self.may_repeat = may_repeat
        self.next = dict.fromkeys(range(PARTITIONS), 0)
        self.all: set[tuple[int, int]] = set()

    def take(self, got: Any) -> None:  # noqa: ANN401
        for record in [] if isinstance(got, Failed) else got:
            at = self.next[record.partition]
            value = b"%d-%d" % (record.partition, record.offset)
            self.story.check(record.value == value, f"{record.value!r} at {record.offset}")
            is_right = record.offset <= at if self.may_repeat else record.offset == at
            self.story.check(is_right, f"{record.partition}: {record.offset} behind {at}")
            self.next[record.partition] = record.offset + 1
            self.all.add((record.partition, record.offset))


async def reads(story: Story) -> None:
    """To the end; what it is asked besides; and from the start once more."""
    kit, topic = story.kit, story.name
    fill(story, COUNT)
    options: dict[str, Any] = {"stop_at_end": True, "fetch_wait_ms": 50}
    consumer = kit.consumer(story.address, topic, **options)
    seen = Seen(story)
    if not await story.open("open", consumer):
        story.heal()
        consumer = kit.consumer(story.address, topic, **options)
        await story.again("open again", partial(kit.open, consumer))
        story._opened.append(consumer)

    async def poll(wait_ms: int = 100) -> Any:  # noqa: ANN401
        return await kit.do(consumer.poll(5, wait_ms))

    for _ in range(POLLS):
        if not consumer.is_at_end:
            seen.take(await story.step("poll", poll))
    await story.step("lag", lambda: _called(kit, consumer.lag))
    await story.step("position", lambda: kit.do(consumer.position(topic, 0)))
    await story.step("ends", lambda: kit.do(consumer.end_offsets()))
    await story.step("beginnings", lambda: kit.do(consumer.beginning_offsets((topic, 0))))
    await story.step("times", lambda: kit.do(consumer.offsets_for_times({(topic, 0): 0})))
    await story.step("partitions", lambda: kit.do(consumer.partitions_for(topic)))
    story.heal()
    for _ in story.stage.polls:
        if consumer.is_at_end:
            break
        seen.take(await story.step("poll, when all is well", poll))
    story.check(consumer.is_at_end, "never at the end")
    story.check(len(seen.all) == ALL, f"{len(seen.all)} records")
    ends = await story.again("ends again", lambda: kit.do(consumer.end_offsets()))
    story.check(ends == {TopicPartition(topic, p): COUNT for p in range(PARTITIONS)}, f"{ends}")
    for partition in range(PARTITIONS):
        await story.again("seek", partial(_called, kit, consumer.seek, topic, partition, "start"))
    once_more = Seen(story)
    for _ in story.stage.polls:
        if len(once_more.all) == ALL:
            break
        once_more.take(await story.again("poll again", poll))
    story.check(len(once_more.all) == ALL, f"{len(once_more.all)} records behind a seek")
    await story.end()


async def _called(kit: Any, call: Any, *args: Any) -> Any:  # noqa: ANN401
    return await kit.do(call(*args))


async def _member(story: Story, **options: Any) -> None:  # noqa: ANN401
    kit, topic = story.kit, story.name
    fill(story, COUNT)
    settings: dict[str, Any] = {
        "group": story.name,
        "fetch_wait_ms": 50,
        "auto_commit": False,
        "rebalance_timeout_ms": 2_000,
        **options,
    }
    if settings.get("group_protocol") != "consumer":
        settings |= {"session_timeout_ms": story.stage.session_ms, "heartbeat_interval_ms": 50}
    consumer = kit.consumer(story.address, topic, **settings)
    seen = Seen(story, may_repeat=True)
    said: dict[int, int] = {}
    is_by_hand = not settings["auto_commit"]
    past: dict[int, int] = {}
    """Where it was when it asked for more."""

    async def poll() -> Any:  # noqa: ANN401
        past.update(seen.next)
        return await kit.do(consumer.poll(3, 200))

    async def commit() -> Any:  # noqa: ANN401
        at = dict(seen.next)
        await kit.do(consumer.commit())
        said.update(at)

    if not await story.open("open", consumer):
        story.heal()
        consumer = kit.consumer(story.address, topic, **settings)
        await story.again("open again", partial(kit.open, consumer))
        story._opened.append(consumer)
    for _ in range(POLLS):
        seen.take(await story.step("poll", poll))
        if is_by_hand and story.outcomes[-1].endswith("ok"):
            await story.step("commit", commit)
    await story.step("committed", lambda: kit.do(consumer.committed((topic, 0))))
    await story.step("lag", lambda: _called(kit, consumer.lag))
    story.heal()
    for _ in story.stage.polls:
        if len(seen.all) == ALL:
            break
        got = await story.step("poll, when all is well", poll)
        if isinstance(got, Failed) and isinstance(got.error, FINAL):
            break
        seen.take(got)
    else:
        story.problems.append(f"{len(seen.all)} records of {ALL}")
    if is_by_hand and len(seen.all) == ALL:
        # What was lost to a fault is told once.
        await story.step("commit, when all is well", commit)
        await story.step("poll once more", poll)
        await story.again("commit again", commit)
    committed = _committed(story)
    for partition, offset in committed.items():
        most = seen.next[partition] if is_by_hand else past[partition]
        story.check(offset <= most, f"{offset} is committed in {partition}, of {most}")
    for partition, offset in said.items():
        story.check(
            committed.get(partition, 0) >= offset,
            f"{offset} was committed in {partition}, and {committed} is",
        )
    await story.close("close", consumer)
    after = await _rest(story, settings)
    missing = set(_places()) - seen.all - after
    story.check(not missing, f"nobody was given {sorted(missing)}")
    for partition in range(PARTITIONS):
        again = {at for p, at in after if p == partition}
        story.check(
            not again or min(again) >= committed.get(partition, 0),
            f"{min(again, default=0)} of {partition} comes again, behind {committed}",
        )


def _places() -> list[tuple[int, int]]:
    return [(p, at) for p in range(PARTITIONS) for at in range(COUNT)]


def _committed(story: Story) -> dict[int, int]:
    from segbroker.client import Admin

    with Admin(story.stage.broker.address) as admin:
        return {tp.partition: it.offset for tp, it in admin.committed(story.name).items()}


async def _rest(story: Story, settings: dict[str, Any]) -> set[tuple[int, int]]:
    """What the next member is given."""
    kit = story.kit
    seen = Seen(story, may_repeat=True)
    consumer = kit.consumer(story.address, story.name, **settings, stop_at_end=True)
    begun = _committed(story)
    seen.next |= {p: begun.get(p, 0) for p in range(PARTITIONS)}
    await story.open("open the next", consumer)
    for _ in story.stage.polls:
        if consumer.is_at_end:
            break
        got = await story.again("poll of the next", lambda: kit.do(consumer.poll(5, 200)))
        if isinstance(got, Failed):
            break
        seen.take(got)
    await story.end()
    return seen.all


async def joins(story: Story) -> None:
    """A member of the classic protocol."""
    await _member(story)


async def joins_by_itself(story: Story) -> None:
    """It commits what was gone past by itself."""
    await _member(story, auto_commit=True, commit_interval_ms=20)


async def joins_static(story: Story) -> None:
    await _member(story, instance_id="i")


async def joins_newer(story: Story) -> None:
    """A member by KIP-848."""
    await _member(story, group_protocol="consumer")


async def transforms(story: Story) -> None:
    """Each record to another topic, with the position: each once."""
    kit, topic, out = story.kit, story.name, f"{story.name}-out"
    fill(story, COUNT)
    story.stage.broker.create_topic(out)
    of_consumer: dict[str, Any] = {
        "group": story.name,
        "auto_commit": False,
        "stop_at_end": True,
        "fetch_wait_ms": 50,
        "session_timeout_ms": story.stage.session_ms,
        "heartbeat_interval_ms": 50,
        "rebalance_timeout_ms": 2_000,
    }
    of_producer = {"transactional_id": story.name, "delivery_timeout_ms": story.stage.limit_ms}

    def make() -> tuple[Any, Any]:
        consumer = kit.consumer(story.address, topic, **of_consumer)
        return consumer, kit.producer(story.address, **of_producer)

    async def go() -> None:
        await kit.do(
            kit.transform(
                consumer,
                producer,
                lambda record: [Outgoing(out, record.value, partition=0)],
                max_records=5,
                wait_ms=200,
            )
        )

    consumer, producer = make()
    is_open = await story.open("open consumer", consumer)
    is_open = await story.open("open producer", producer) and is_open
    if is_open:
        for _ in range(2):
            got = await story.step("transform", go, calls=5)
            if not isinstance(got, Failed):
                break
    story.heal()
    final = (*FINAL, ProducerFenced, InvalidProducerIdMapping, InvalidTxnState)
    for _ in range(3) if is_open else ():
        got = await story.step("transform, when all is well", go, calls=5)
        if not isinstance(got, Failed) or isinstance(got.error, final):
            break
    else:
        story.check(not is_open, "it does not go on")
    await story.end()
    consumer, producer = make()
    await story.open("open another consumer", consumer)
    await story.open("open another producer", producer)
    await story.again("transform of others", go)
    await story.end()
    found = story.values(out)
    wanted: Counter[bytes | None] = Counter(b"%d-%d" % place for place in _places())
    story.check(found == wanted, f"twice: {found - wanted}, missing: {wanted - found}")
