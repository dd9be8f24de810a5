"""A member of a share group: what was accepted, and taken, does not come again; each comes."""

from functools import partial
from typing import Any

from segbroker.client import AcknowledgeFailed, Admin, BrokenError

from .consumers import ALL, POLLS
from .producers import fill
from .story import Failed, Story


async def shares(story: Story) -> None:
    kit, topic = story.kit, story.name
    story.is_idempotent = False  # what was said of a record is said once
    fill(story, ALL // 2)
    lock = {"share.record.lock.duration.ms": str(story.stage.lock_ms)}
    with Admin(story.stage.broker.address) as admin:
        admin.alter_share_offsets(story.name, {(topic, 0): 0, (topic, 1): 0})
        admin.alter_group_config(story.name, lock)
    settings: dict[str, Any] = {"group": story.name, "fetch_wait_ms": 50, "acquire": "records"}
    seen: set[tuple[int, int]] = set()
    over: set[tuple[int, int]] = set()
    said: set[tuple[int, int]] = set()

    def take(got: Any) -> None:  # noqa: ANN401
        for record in [] if isinstance(got, Failed) else got:
            place = record.partition, record.offset
            story.check(place not in over, f"accepted, and there again: {place}")
            story.check(record.value == b"%d-%d" % place, f"{record.value!r} at {place}")
            seen.add(place)
            said.add(place)

    def heard(got: Any) -> None:  # noqa: ANN401
        """What of it does not hold."""
        error = got.error if isinstance(got, Failed) else None
        if isinstance(error, AcknowledgeFailed):
            for each in error.failed:
                said.difference_update((each.partition, at) for at in each.offsets)
        elif isinstance(error, BrokenError):
            said.clear()

    async def poll() -> Any:  # noqa: ANN401
        return await kit.do(consumer.poll(2, 200))

    async def commit() -> Any:  # noqa: ANN401
        await kit.do(consumer.commit())

    async def committed(name: str) -> None:
        got = await story.step(name, commit)
        heard(got)
        if not isinstance(got, Failed):
            over.update(said)
            said.clear()

    consumer = kit.sharer(story.address, topic, **settings)
    if not await story.open("open", consumer):
        story.heal()
        consumer = kit.sharer(story.address, topic, **settings)
        await story.again("open again", partial(kit.open, consumer))
        story._opened.append(consumer)
    for _ in range(POLLS):
        got = await story.step("poll", poll)
        heard(got)
        take(got)
        await committed("commit")
    story.heal()
    for _ in story.stage.polls:
        if len(seen) == ALL:
            break
        got = await story.step("poll, when all is well", poll)
        heard(got)
        take(got)
        await committed("commit, when all is well")
    story.check(len(seen) == ALL, f"{len(seen)} records of {ALL}")
    await committed("last commit")
    await story.close("close", consumer)
    await story.end()
