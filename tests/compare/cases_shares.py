"""Share groups (KIP-932): their members, the records that they acquire, and where they begin."""

import secrets
from typing import Any, Final
from uuid import UUID

import trio

from segbroker.protocol.api_keys import ApiKey

from .cases import case
from .cases_groups import IDS_SINCE, PROTOCOLS, joining, synced
from .cases_produce import batch
from .stage import ANSWER_TIMEOUT_S, SETTLE_TIMEOUT_S, Stage

GROUP: Final = 32
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
MEMBER: Final = "BBBBBBBBBBBBBBBBBBBBBQ"
NOWHERE: Final = UUID(int=77)
# What is to come has come by then; what is not is waited for no longer than that.
COMES_MS: Final = 5_000
NOT_MS: Final = 50


async def settings(stage: Stage, group: str, **values: str) -> None:
    """Settings of a group, by Kafka's names with _ for a dot."""
    rows = [{"name": key.replace("_", "."), "value": it} for key, it in values.items()]
    asked = {"resource_type": GROUP, "resource_name": group, "configs": rows}
    answer = await stage.quietly(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[asked])
    assert answer.responses[0].error_code == 0, answer
    await stage.caught_up()  # Kafka answers a change before its groups go by it


def beat(stage: Stage, *topics: str, **more: Any) -> dict[str, Any]:
    """What a member says that joins."""
    fields = {"group_id": stage.name, "member_id": MEMBER, "member_epoch": 0}
    return fields | {"subscribed_topic_names": list(topics)} | more


async def joined(stage: Stage, *topics: str, group: str = "", member: str = MEMBER) -> int:
    """A member that has been told all partitions of its topics; its epoch.  The group begins at
    the first record."""
    group = group or stage.name
    await settings(stage, group, share_auto_offset_reset="earliest")
    fields = {"group_id": group, "member_id": member}
    answer = await stage.quietly(
        ApiKey.SHARE_GROUP_HEARTBEAT, 1, **fields, member_epoch=0, subscribed_topic_names=topics
    )
    with trio.fail_after(SETTLE_TIMEOUT_S):
        while True:
            assert answer.error_code == 0, answer
            if answer.assignment and len(answer.assignment.topic_partitions) == len(topics):
                epoch: int = answer.member_epoch
                return epoch
            await trio.sleep(0.1)
            answer = await stage.quietly(
                ApiKey.SHARE_GROUP_HEARTBEAT, 1, **fields, member_epoch=answer.member_epoch
            )


async def left(stage: Stage, group: str = "") -> None:
    """The member is gone."""
    answer = await stage.quietly(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        1,
        group_id=group or stage.name,
        member_id=MEMBER,
        member_epoch=-1,
    )
    assert answer.error_code == 0, answer


async def filled(stage: Stage, suffix: str = "") -> str:
    """A topic of three batches of three records."""
    topic = await stage.topic(suffix)
    for _ in range(3):
        await stage.produce(topic, batch())
    return topic


def done(first: int, last: int, *kinds: int) -> dict[str, Any]:
    """What became of some records."""
    return {"first_offset": first, "last_offset": last, "acknowledge_types": list(kinds)}


def _has_records(answer: Any) -> bool:
    return any(row.acquired_records for topic in answer.responses for row in topic.partitions)


class Reader:
    """A member's session with the broker."""

    def __init__(self, stage: Stage, topic: UUID, member: str = MEMBER) -> None:
        self.epoch = 0
        self._stage = stage
        self._topic = topic
        self._member = member

    def _said(self, values: dict[str, Any]) -> dict[str, Any]:
        row: dict[str, Any] = {"partition_index": values.pop("partition", 0)}
        rows = [row | {"acknowledgement_batches": values.pop("acks", [])}]
        if "again" in values:  # the same partition a second time
            rows.append(row | {"acknowledgement_batches": values.pop("again")})
        named = [{"topic_id": values.pop("topic", self._topic), "partitions": rows}]
        fields: dict[str, Any] = {"group_id": self._stage.name, "member_id": self._member}
        fields |= {"share_session_epoch": self.epoch, "topics": named}
        return fields | values

    def _asked(self, values: dict[str, Any]) -> dict[str, Any]:
        fields = {"max_wait_ms": COMES_MS, "min_bytes": 1, "max_bytes": 1 << 20}
        fields |= {"max_records": 500, "batch_size": 500}
        return self._said(fields | values)

    async def fetch(self, label: str, **values: Any) -> Any:
        """Ask for records; acks: what became of others.  Right answers count the epoch on.

        A Kafka that looks a partition up for the first time may hand out nothing yet.
        """
        if "max_wait_ms" in values or "acks" in values:
            answer = await self._stage.ask(label, ApiKey.SHARE_FETCH, **self._asked(values))
            return self._counted(answer)
        version = self._stage.version
        with trio.fail_after(4 * SETTLE_TIMEOUT_S):
            while True:
                asked = self._asked(dict(values))
                answer = await self._stage.quietly(ApiKey.SHARE_FETCH, version, **asked)
                self._counted(answer)
                if answer.error_code != 0 or _has_records(answer):
                    break
        self._stage.keep(label, answer)
        return answer

    async def took(self, **values: Any) -> Any:
        """The same, not compared."""
        while True:
            asked = self._asked(dict(values))
            answer = await self._stage.quietly(ApiKey.SHARE_FETCH, 1, **asked)
            assert answer.error_code == 0, answer
            self._counted(answer)
            if "max_wait_ms" in values or "acks" in values or _has_records(answer):
                return answer

    async def say(self, label: str, **values: Any) -> Any:
        """Acknowledge, and ask for nothing."""
        answer = await self._stage.ask(label, ApiKey.SHARE_ACKNOWLEDGE, **self._said(values))
        return self._counted(answer)

    async def said(self, **values: Any) -> None:
        """The same, not compared."""
        answer = await self._stage.quietly(ApiKey.SHARE_ACKNOWLEDGE, 1, **self._said(values))
        assert answer.error_code == 0, answer
        self._counted(answer)

    def _counted(self, answer: Any) -> Any:
        if answer is not None and answer.error_code == 0:
            self.epoch += 1
        return answer


async def reader(stage: Stage, topic: str, member: str = MEMBER) -> Reader:
    return Reader(stage, await stage.topic_id(topic), member)


async def looked_up(stage: Stage, topic: str) -> None:
    """Kafka knows the topic as one of the group: the first fetch of a partition may be over before
    Kafka has looked it up, and is then answered without its row."""
    mine = await reader(stage, topic)
    with trio.fail_after(SETTLE_TIMEOUT_S):
        while not (await mine.took(max_wait_ms=NOT_MS)).responses:
            mine.epoch = 0


async def warmed(stage: Stage) -> None:
    """Kafka's first share group waits until it has made a topic of its own."""
    topic = await filled(stage, f"-{secrets.token_hex(3)}")
    await joined(stage, topic)
    mine = await reader(stage, topic)
    with trio.fail_after(4 * SETTLE_TIMEOUT_S):
        await mine.took()


@case(ApiKey.SHARE_GROUP_HEARTBEAT)
async def members_of_share_groups(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)

    async def ask(label: str, **more: Any) -> Any:
        return await stage.ask(label, ApiKey.SHARE_GROUP_HEARTBEAT, **beat(stage, topic, **more))

    await ask("empty group id", group_id="")
    await ask("empty member id", member_id="")
    await ask("long member id", member_id="m" * 37)
    await ask("no subscription", subscribed_topic_names=None)
    await ask("empty subscription", subscribed_topic_names=[])
    await ask("empty rack", rack_id="")
    await ask("epoch below", member_epoch=-2)
    await ask("unknown member of no group", member_epoch=4)
    await ask("leaves what is not there", member_epoch=-1)
    await joined(stage, topic)
    await ask("unknown member", member_id="somebody", member_epoch=4)
    await ask("unknown member leaves", member_id="somebody", member_epoch=-1)
    await ask("epoch of the future", member_epoch=99)
    await ask("leaves", member_epoch=-1, subscribed_topic_names=None)
    await ask("leaves again", member_epoch=-1, subscribed_topic_names=None)


@case(ApiKey.SHARE_GROUP_HEARTBEAT)
async def what_members_are_told(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)
    await stage.topic_id(topic)
    epoch = await joined(stage, topic)

    async def ask(label: str, **more: Any) -> Any:
        fields = {"group_id": stage.name, "member_id": MEMBER, "member_epoch": epoch}
        return await stage.ask(label, ApiKey.SHARE_GROUP_HEARTBEAT, **(fields | more))

    await ask("nothing new")
    await ask("its subscription once more", subscribed_topic_names=[topic])
    await ask("joins again", member_epoch=0, subscribed_topic_names=[topic])


@case(ApiKey.SHARE_GROUP_HEARTBEAT)
async def groups_of_another_type(stage: Stage) -> None:
    topic = await stage.topic("-t")
    await synced(stage)
    await stage.ask("a classic one", ApiKey.SHARE_GROUP_HEARTBEAT, **beat(stage, topic))
    other = f"{stage.name}-2"
    await stage.quietly(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        group_id=other,
        member_id="",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    of_consumers = beat(stage, topic, group_id=other)
    await stage.ask("one of consumers", ApiKey.SHARE_GROUP_HEARTBEAT, **of_consumers)


@case(ApiKey.JOIN_GROUP)
async def a_share_group_is_joined_as_a_classic_one(stage: Stage) -> None:
    await joined(stage, await stage.topic("-t"))
    await stage.ask("first", ApiKey.JOIN_GROUP, **joining(stage, protocols=PROTOCOLS))


@case(ApiKey.CONSUMER_GROUP_HEARTBEAT)
async def a_share_group_is_joined_as_one_of_consumers(stage: Stage) -> None:
    topic = await stage.topic("-t")
    await joined(stage, topic)
    fields = {"group_id": stage.name, "member_id": MEMBER, "member_epoch": 0}
    fields |= {"rebalance_timeout_ms": 30_000, "topic_partitions": []}
    fields |= {"subscribed_topic_names": [topic]}
    await stage.ask("joins", ApiKey.CONSUMER_GROUP_HEARTBEAT, **fields)


@case(ApiKey.SHARE_GROUP_DESCRIBE)
async def share_groups_described(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)
    await stage.topic_id(topic)

    async def ask(label: str, *groups: str, **more: Any) -> None:
        await stage.ask(label, ApiKey.SHARE_GROUP_DESCRIBE, group_ids=groups, **more)

    await ask("not there", f"{stage.name}-no")
    await ask("empty id", "")
    await ask("none")
    await joined(stage, topic)
    await ask("with a member", stage.name)
    await ask("with rights", stage.name, include_authorized_operations=True)
    await left(stage)
    await ask("empty", stage.name, f"{stage.name}-no")
    await synced(stage, group_id=f"{stage.name}-classic")
    await ask("a classic one", f"{stage.name}-classic")


@case(ApiKey.CONSUMER_GROUP_DESCRIBE)
async def a_share_group_as_one_of_consumers(stage: Stage) -> None:
    await joined(stage, await stage.topic("-t"))
    await stage.ask("described", ApiKey.CONSUMER_GROUP_DESCRIBE, group_ids=[stage.name])


@case(ApiKey.DESCRIBE_GROUPS)
async def a_share_group_as_a_classic_one(stage: Stage) -> None:
    await joined(stage, await stage.topic("-t"))
    await stage.ask("described", ApiKey.DESCRIBE_GROUPS, groups=[stage.name])


@case(ApiKey.LIST_GROUPS)
async def share_groups_listed(stage: Stage) -> None:
    async def ask(label: str, **filters: Any) -> None:
        answer = await stage.quietly(ApiKey.LIST_GROUPS, stage.version, **filters)
        answer.groups = [group for group in answer.groups if group.group_id == stage.name]
        stage.keep(label, answer)

    await joined(stage, await stage.topic("-t"))
    await ask("all")
    if stage.version >= 4:
        await ask("stable ones", states_filter=["Stable"])
    if stage.version >= 5:
        await ask("share groups", types_filter=["share"])
        await ask("share groups, otherwise", types_filter=["Share"])
        await ask("others", types_filter=["consumer", "classic"])
    await left(stage)
    await ask("empty")


@case(ApiKey.OFFSET_COMMIT, since=2)
async def offsets_of_a_share_group(stage: Stage) -> None:
    topic = await stage.topic("-t")
    await joined(stage, topic)
    row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    which: dict[str, Any] = {"name": topic}
    if stage.version >= IDS_SINCE:
        which = {"topic_id": await stage.topic_id(topic)}
    named = [which | {"partitions": [row]}]
    fields: dict[str, Any] = {"group_id": stage.name, "member_id": "", "topics": named}
    await stage.ask("nobody's", ApiKey.OFFSET_COMMIT, generation_id_or_member_epoch=-1, **fields)
    fields |= {"member_id": MEMBER}
    await stage.ask("a member's", ApiKey.OFFSET_COMMIT, generation_id_or_member_epoch=1, **fields)


@case(ApiKey.DELETE_GROUPS)
async def share_groups_deleted(stage: Stage) -> None:
    topic = await filled(stage, "-t")
    await joined(stage, topic)
    mine = await reader(stage, topic)
    await mine.took()
    await mine.took(acks=[done(0, 8, ACCEPT)], max_wait_ms=NOT_MS)
    await stage.ask("with a member", ApiKey.DELETE_GROUPS, groups_names=[stage.name])
    await mine.took(share_session_epoch=-1, topics=[], max_wait_ms=0)
    await left(stage)
    await stage.ask("empty", ApiKey.DELETE_GROUPS, groups_names=[stage.name])
    await stage.ask("again", ApiKey.DELETE_GROUPS, groups_names=[stage.name])


@case(ApiKey.SHARE_FETCH)
async def records_are_acquired(stage: Stage) -> None:
    topic = await filled(stage)
    await joined(stage, topic)
    mine = await reader(stage, topic)
    await mine.fetch("one is enough", max_records=1, batch_size=1)
    await mine.fetch("four", max_records=4, batch_size=2)
    await mine.fetch("all", acks=[done(0, 0, ACCEPT), done(1, 2, ACCEPT, RELEASE)])
    await mine.fetch("nothing is left", max_wait_ms=NOT_MS)
    await mine.fetch("some are given back", acks=[done(3, 5, RELEASE, REJECT, RELEASE)])
    await mine.fetch("done", acks=[done(2, 3, ACCEPT), done(5, 8, ACCEPT)], max_wait_ms=NOT_MS)
    await mine.fetch("ended", share_session_epoch=-1, topics=[], max_wait_ms=0)


@case(ApiKey.SHARE_FETCH, since=2)
async def not_more_records_than_wanted(stage: Stage) -> None:
    topic = await filled(stage)
    await joined(stage, topic)
    mine = await reader(stage, topic)
    strict = {"share_acquire_mode": 1}
    await mine.fetch("one", max_records=1, batch_size=1, **strict)
    await mine.fetch("three", max_records=3, batch_size=10, **strict)
    await mine.fetch("one, given back", max_records=2, acks=[done(0, 0, RELEASE)], **strict)
    await mine.fetch("all", **strict)
    await mine.fetch("a mode that there is not", share_acquire_mode=7, max_wait_ms=NOT_MS)


@case(ApiKey.SHARE_FETCH)
async def two_members_of_a_share_group(stage: Stage) -> None:
    topic = await filled(stage)
    await joined(stage, topic)
    other_id = "CCCCCCCCCCCCCCCCCCCCCQ"
    await joined(stage, topic, member=other_id)
    mine, other = await reader(stage, topic), await reader(stage, topic, other_id)
    await mine.fetch("three", max_records=3)
    await other.fetch("the rest", max_records=100)
    await other.fetch("another's", acks=[done(0, 2, ACCEPT)], max_wait_ms=NOT_MS)
    await mine.fetch("its own", acks=[done(0, 2, ACCEPT)], max_wait_ms=NOT_MS)
    await other.fetch("leaves", share_session_epoch=-1, topics=[], max_wait_ms=0)
    await mine.fetch("what that one had", max_records=100)


@case(ApiKey.SHARE_FETCH)
async def acknowledgements_with_a_fetch(stage: Stage) -> None:
    topic = await filled(stage)
    await joined(stage, topic)
    mine = await reader(stage, topic)
    await mine.took()
    for label, rows in WRONG.items():
        await mine.fetch(label, acks=rows, max_wait_ms=NOT_MS)
    await mine.fetch("gaps", acks=[done(0, 2, 0, ACCEPT, 0)], max_wait_ms=NOT_MS)
    await mine.fetch("once more", acks=[done(0, 2, ACCEPT)], max_wait_ms=NOT_MS)
    await mine.fetch("a part of a batch", acks=[done(4, 4, ACCEPT)], max_wait_ms=NOT_MS)
    await mine.fetch("the rest of it", acks=[done(3, 5, ACCEPT)], max_wait_ms=NOT_MS)
    await mine.fetch("over two batches", acks=[done(5, 7, ACCEPT)], max_wait_ms=NOT_MS)


# Of records 0 to 8, all acquired.
WRONG: Final[dict[str, list[dict[str, Any]]]] = {
    "backwards": [done(2, 1, ACCEPT)],
    "overlapping": [done(0, 2, ACCEPT), done(1, 3, ACCEPT)],
    "out of order": [done(3, 5, ACCEPT), done(0, 2, ACCEPT)],
    "no types": [done(0, 2)],
    "too few types": [done(0, 2, ACCEPT, ACCEPT)],
    "too many types": [done(0, 2, *[ACCEPT] * 4)],
    "a type that there is not": [done(0, 2, 9)],
    "a negative type": [done(0, 2, -1)],
    "more time, not announced": [done(0, 2, RENEW)],
    "above all": [done(100, 102, ACCEPT)],
    "reaching above all": [done(6, 20, ACCEPT)],
    "below all": [done(-5, -2, ACCEPT)],
}


@case(ApiKey.SHARE_FETCH)
async def a_partition_twice_with_a_fetch(stage: Stage) -> None:
    topic = await filled(stage)
    await joined(stage, topic)
    mine = await reader(stage, topic)
    await mine.took()
    more = {"max_wait_ms": NOT_MS, "max_records": 0}
    await mine.fetch("the last", acks=[done(3, 5, ACCEPT)], again=[done(0, 2, ACCEPT)], **more)
    await mine.fetch("not the first", acks=[done(3, 5, ACCEPT)], **more)
    await mine.fetch("the last is wrong", acks=[done(6, 8, ACCEPT)], again=[done(0, 2, 9)], **more)
    await mine.fetch("nor then", acks=[done(6, 8, ACCEPT)], **more)


@case(ApiKey.SHARE_FETCH)
async def share_sessions(stage: Stage) -> None:
    topic = await filled(stage)
    nothing: dict[str, Any] = {"topics": [], "max_wait_ms": NOT_MS}
    await joined(stage, topic)
    mine = await reader(stage, topic)
    await mine.fetch("without a group", group_id=None)
    await mine.fetch("without a member", member_id=None)
    await mine.fetch("empty member id", member_id="")
    await mine.fetch("long member id", member_id="m" * 37)
    await mine.fetch("an epoch without a session", share_session_epoch=3, **nothing)
    await mine.fetch("ended before it began", share_session_epoch=-1, **nothing)
    await mine.fetch("begins with acknowledgements", acks=[done(0, 0, ACCEPT)])
    await mine.fetch("begins", max_wait_ms=COMES_MS)
    await mine.fetch("an epoch too far", share_session_epoch=9, **nothing)
    await mine.fetch("an epoch of before", share_session_epoch=0, **nothing)
    mine.epoch = 0
    await mine.fetch("begins anew", max_wait_ms=NOT_MS)
    await mine.fetch("goes on", **nothing)
    gone = [{"topic_id": await stage.topic_id(topic), "partitions": [0]}]
    await mine.fetch("forgotten", forgotten_topics_data=gone, **nothing)
    await mine.fetch("ends with more", share_session_epoch=-1, max_wait_ms=0)
    await mine.fetch("after its end", **nothing)


@case(ApiKey.SHARE_FETCH)
async def no_records_are_asked_for(stage: Stage) -> None:
    """Then nobody waits for any: the wait that is allowed is longer than an answer may take."""
    topic = await filled(stage)
    await joined(stage, topic)
    mine = await reader(stage, topic)
    await mine.took()
    patient: dict[str, Any] = {"topics": [], "max_wait_ms": round(ANSWER_TIMEOUT_S * 2_000)}
    await mine.fetch("no record", max_records=0, **patient)
    await mine.fetch("no byte", max_bytes=0, **patient)
    gone = [{"topic_id": await stage.topic_id(topic), "partitions": [0]}]
    await mine.fetch("forgotten", forgotten_topics_data=gone, **patient)
    await mine.fetch("of nowhere", **patient)


@case(ApiKey.SHARE_FETCH)
async def places_that_a_share_group_does_not_find(stage: Stage) -> None:
    topic = await filled(stage)
    await joined(stage, topic)
    mine = await reader(stage, topic)
    some = [done(0, 0, ACCEPT)]
    await mine.fetch("partition 7", partition=7, max_wait_ms=NOT_MS)
    await mine.fetch("acknowledged in 7", partition=7, acks=some, max_wait_ms=NOT_MS)
    await mine.fetch("acknowledged before acquired", acks=some)
    await mine.fetch("acknowledged nowhere", topic=NOWHERE, acks=some, max_wait_ms=NOT_MS)


@case(ApiKey.SHARE_FETCH)
async def a_session_with_an_unknown_topic(stage: Stage) -> None:
    topic = await filled(stage)
    await joined(stage, topic)
    mine = await reader(stage, topic)
    await mine.fetch("begins with an unknown topic", topic=NOWHERE, max_wait_ms=NOT_MS)


@case(ApiKey.SHARE_FETCH, since=2)
async def more_time_with_a_fetch(stage: Stage) -> None:
    topic = await filled(stage)
    await joined(stage, topic)
    mine = await reader(stage, topic)
    await mine.took(max_records=3)
    rows = [done(0, 2, RENEW)]
    await mine.fetch("and records", acks=rows, is_renew_ack=True, max_wait_ms=NOT_MS)
    none: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    await mine.fetch("and no records", acks=rows, is_renew_ack=True, **none)
    some = [done(0, 2, ACCEPT, RENEW, RELEASE)]
    await mine.fetch("of some", acks=some, is_renew_ack=True, **none)
    await mine.fetch("of others", acks=rows, is_renew_ack=True, **none)
    await settings(stage, stage.name, share_renew_acknowledge_enable="false")
    await mine.fetch("not here", acks=[done(1, 1, RENEW)], is_renew_ack=True, **none)


@case(ApiKey.SHARE_FETCH)
async def so_often_and_no_more(stage: Stage) -> None:
    topic = await stage.topic()
    await stage.produce(topic, batch())
    await settings(stage, stage.name, share_delivery_count_limit="2")
    await joined(stage, topic)
    mine = await reader(stage, topic)
    await mine.fetch("once")
    # Released by the fetch that asks for them again, they sometimes never come from a Kafka: it
    # answers without records when the time of the fetch is over, and so each time from then on.
    await mine.said(acks=[done(0, 2, RELEASE)])
    await mine.fetch("twice")
    await mine.said(acks=[done(0, 2, RELEASE)])
    await mine.fetch("no more", max_wait_ms=NOT_MS)


@case(ApiKey.SHARE_ACKNOWLEDGE)
async def acknowledgements(stage: Stage) -> None:
    topic = await filled(stage)
    await joined(stage, topic)
    mine = await reader(stage, topic)
    await mine.say("without a session", acks=[done(0, 0, ACCEPT)], share_session_epoch=1)
    await mine.say("beginning one", acks=[done(0, 0, ACCEPT)], share_session_epoch=0)
    await mine.took()
    for label, rows in WRONG.items():
        await mine.say(label, acks=rows)
    await mine.say("without a group", acks=[done(0, 0, ACCEPT)], group_id=None)
    await mine.say("without a member", acks=[done(0, 0, ACCEPT)], member_id=None)
    await mine.say("an epoch too far", acks=[done(0, 0, ACCEPT)], share_session_epoch=99)
    await mine.say("in partition 7", acks=[done(0, 0, ACCEPT)], partition=7)
    await mine.say("in an unknown topic", acks=[done(0, 0, ACCEPT)], topic=NOWHERE)
    await mine.say("nothing", topics=[])
    await mine.say("some", acks=[done(0, 3, ACCEPT, REJECT, RELEASE, ACCEPT)])
    await mine.say("again", acks=[done(0, 0, ACCEPT)])
    await mine.say("what was released", acks=[done(2, 2, ACCEPT)])
    await mine.say("ended", acks=[done(4, 4, ACCEPT)], share_session_epoch=-1)
    mine.epoch = 0
    await mine.say("after its end", acks=[done(5, 5, ACCEPT)], share_session_epoch=3)


@case(ApiKey.SHARE_ACKNOWLEDGE)
async def a_partition_twice(stage: Stage) -> None:
    topic = await filled(stage)
    await joined(stage, topic)
    mine = await reader(stage, topic)
    await mine.took()
    await mine.say("the last", acks=[done(3, 5, ACCEPT)], again=[done(0, 2, ACCEPT)])
    await mine.say("not the first", acks=[done(3, 5, ACCEPT)])
    await mine.say("the last is wrong", acks=[done(6, 8, ACCEPT)], again=[done(0, 2, 9)])
    await mine.say("nor then", acks=[done(6, 8, ACCEPT)])


@case(ApiKey.SHARE_ACKNOWLEDGE, since=2)
async def more_time(stage: Stage) -> None:
    topic = await filled(stage)
    await joined(stage, topic)
    mine = await reader(stage, topic)
    await mine.took()
    await mine.say("of some", acks=[done(0, 2, RENEW)], is_renew_ack=True)
    await mine.say("and then", acks=[done(0, 2, ACCEPT)])
    await mine.say("of those", acks=[done(0, 2, RENEW)], is_renew_ack=True)


async def ask_offsets(stage: Stage, label: str, group: str, topics: Any) -> None:
    asked = {"group_id": group, "topics": topics}
    await stage.ask(label, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, groups=[asked])


@case(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
async def where_share_groups_begin(stage: Stage) -> None:
    topic = await filled(stage)
    await stage.topic_id(topic)
    await ask_offsets(stage, "not there", f"{stage.name}-no", None)
    await ask_offsets(stage, "empty id", "", None)
    await joined(stage, topic)
    mine = await reader(stage, topic)
    await mine.took()
    await mine.took(acks=[done(0, 3, ACCEPT)], max_wait_ms=NOT_MS)
    await ask_offsets(stage, "all", stage.name, None)
    await ask_offsets(stage, "none", stage.name, [])
    some = [{"topic_name": topic, "partitions": [0]}]
    await ask_offsets(stage, "some", stage.name, some)
    away = [{"topic_name": f"{stage.name}-nowhere", "partitions": [0]}]
    await ask_offsets(stage, "of a topic that is not there", stage.name, away)
    await stage.ask("of nobody", ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, groups=[])
    classic = f"{stage.name}-classic"
    await synced(stage, group_id=classic)
    await ask_offsets(stage, "of a classic one", classic, None)


@case(ApiKey.ALTER_SHARE_GROUP_OFFSETS)
async def share_groups_begin_elsewhere(stage: Stage) -> None:
    topic = await filled(stage)
    await stage.topic_id(topic)

    async def ask(label: str, offset: int, **more: Any) -> None:
        row = {"partition_index": more.get("partition", 0), "start_offset": offset}
        named = [{"topic_name": more.get("topic", topic), "partitions": [row]}]
        group = more.get("group", stage.name)
        await stage.ask(label, ApiKey.ALTER_SHARE_GROUP_OFFSETS, group_id=group, topics=named)

    await ask("empty id", 1, group="")
    await ask("a group that is new", 4, group=f"{stage.name}-new")
    await joined(stage, topic)
    await ask("with a member", 4)
    mine = await reader(stage, topic)
    await mine.took()
    await mine.took(share_session_epoch=-1, topics=[], max_wait_ms=0)
    await left(stage)
    await ask("empty", 4)
    await ask("beyond the end", 400)
    await ask("below the beginning", -4)
    await ask("partition 7", 4, partition=7)
    await ask("a topic that is not there", 4, topic=f"{stage.name}-nowhere")
    await stage.ask("nothing", ApiKey.ALTER_SHARE_GROUP_OFFSETS, group_id=stage.name, topics=[])
    await synced(stage, group_id=f"{stage.name}-classic")
    await ask("a classic one", 4, group=f"{stage.name}-classic")


@case(ApiKey.DELETE_SHARE_GROUP_OFFSETS)
async def share_groups_forget(stage: Stage) -> None:
    topic = await filled(stage)
    await stage.topic_id(topic)

    async def ask(label: str, *topics: str, group: str = stage.name) -> None:
        named = [{"topic_name": one} for one in topics]
        await stage.ask(label, ApiKey.DELETE_SHARE_GROUP_OFFSETS, group_id=group, topics=named)

    await ask("empty id", topic, group="")
    await ask("a group that is not there", topic, group=f"{stage.name}-no")
    await joined(stage, topic)
    mine = await reader(stage, topic)
    await mine.took()
    await mine.took(acks=[done(0, 3, ACCEPT)], max_wait_ms=NOT_MS)
    await ask("with a member", topic)
    await mine.took(share_session_epoch=-1, topics=[], max_wait_ms=0)
    await left(stage)
    other = await stage.topic("-other")
    await stage.topic_id(other)
    await ask("some", topic, other, f"{stage.name}-nowhere")
    await ask("again", topic)
    await ask("nothing")
    await synced(stage, group_id=f"{stage.name}-classic")
    await ask("a classic one", topic, group=f"{stage.name}-classic")
