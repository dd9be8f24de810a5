"""Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords, Metadata and who produces."""

from typing import Any

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.compression import Codec

from .cases import case
from .cases_produce import NOW_MS, batch
from .stage import Stage


async def filled(stage: Stage) -> str:
    """A topic of three batches: offsets 0-2, 3-5 (gzip), 6-8, a second apart each."""
    topic = await stage.topic()
    for n, codec in enumerate((Codec.NONE, Codec.GZIP, Codec.NONE)):
        times = [NOW_MS + 1_000 * (3 * n + i) for i in range(3)]
        await stage.produce(topic, batch(codec=codec, timestamps_ms=times))
    return topic


async def fetch(stage: Stage, label: str, topic: str, offset: int, **more: Any) -> Any:
    row = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    fields: dict[str, Any] = {"replica_id": -1, "max_wait_ms": 10, "min_bytes": 1}
    fields |= {"max_bytes": 1 << 20, "session_epoch": -1}
    for name, value in more.items():
        (fields if name in (*fields, "isolation_level", "replica_state", "rack_id") else row)[
            name
        ] = value
    named: dict[str, Any] = {"topic": topic, "partitions": [row]}
    if stage.version >= 13:
        named = {"topic_id": await stage.topic_id(topic), "partitions": [row]}
    return await stage.ask(label, ApiKey.FETCH, topics=[named], **fields)


@case(ApiKey.FETCH)
async def reading_at_every_kind_of_offset(stage: Stage) -> None:
    topic = await filled(stage)
    for offset in (0, 3, 4, 8, 9, 10, 1_000, -1, -2):
        await fetch(stage, f"at {offset}", topic, offset)
    await fetch(stage, "read committed", topic, 0, isolation_level=1)
    await fetch(stage, "isolation 7", topic, 0, isolation_level=7)


@case(ApiKey.FETCH)
async def reading_what_a_topic_compressed_anew(stage: Stage) -> None:
    for wanted in ("uncompressed", "snappy", "zstd"):
        topic = await stage.topic(f"-{wanted}", compression_type=wanted)
        for codec in (Codec.NONE, Codec.GZIP):
            await stage.produce(topic, batch(codec=codec))
        await fetch(stage, wanted, topic, 0)
    topic = await stage.topic()
    await stage.produce(topic, batch(codec=Codec.ZSTD))
    await fetch(stage, "zstd by its producer", topic, 0)


@case(ApiKey.FETCH)
async def reading_as_a_follower(stage: Stage) -> None:
    topic = await filled(stage)
    for replica in (-2, 0, 1, 5):
        if stage.version < 15:
            await fetch(stage, f"replica {replica}", topic, 0, replica_id=replica)
        else:
            state = {"replica_id": replica, "replica_epoch": 0}
            await fetch(stage, f"replica {replica}", topic, 0, replica_state=state)


@case(ApiKey.FETCH)
async def small_limits(stage: Stage) -> None:
    topic = await filled(stage)
    await fetch(stage, "one byte of the partition", topic, 0, partition_max_bytes=1)
    await fetch(stage, "one byte in all", topic, 0, max_bytes=1)
    await fetch(stage, "no bytes", topic, 3, max_bytes=0, partition_max_bytes=0)
    await fetch(stage, "waiting for more than there is", topic, 6, min_bytes=1 << 19)


@case(ApiKey.FETCH)
async def partitions_that_do_not_exist(stage: Stage) -> None:
    topic = await filled(stage)
    await fetch(stage, "partition 5", topic, 0, partition=5)
    if stage.version < 13:
        await fetch(stage, "unknown topic", f"{stage.name}-nowhere", 0)
        await fetch(stage, "empty name", "", 0)


@case(ApiKey.FETCH, since=9)
async def leader_epochs_of_a_fetch(stage: Stage) -> None:
    topic = await filled(stage)
    await fetch(stage, "current", topic, 0, current_leader_epoch=0)
    await fetch(stage, "of the future", topic, 0, current_leader_epoch=5)


@case(ApiKey.FETCH, since=7)
async def fetch_sessions(stage: Stage) -> None:
    topic, other = await filled(stage), await stage.topic("-other")
    for _ in range(9):
        await stage.produce(other, batch(1))
    many = await stage.topic("-many", partitions=60)  # ours keeps none of few
    ids = {name: await stage.topic_id(name) for name in (topic, other, many)}

    def named(name: str) -> dict[str, Any]:
        return {"topic_id": ids[name]} if stage.version >= 13 else {"topic": name}

    async def ask(label: str, number: int, epoch: int, at: dict[str, int], *gone: str) -> Any:
        row = {"partition": 0, "partition_max_bytes": 1 << 20}
        more = [row | {"partition": n, "fetch_offset": 0} for n in range(60 if epoch == 0 else 0)]
        return await stage.ask(
            label,
            ApiKey.FETCH,
            replica_id=-1,
            max_wait_ms=10,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=number,
            session_epoch=epoch,
            topics=[
                named(name) | {"partitions": [row | {"fetch_offset": offset}]}
                for name, offset in at.items()
            ]
            + ([named(many) | {"partitions": more}] if more and at else []),
            forgotten_topics_data=[named(name) | {"partitions": [0]} for name in gone],
        )

    began = await ask("a full fetch", 0, 0, {topic: 9, other: 6})
    number = began.session_id
    assert number > 0
    await ask("an incremental one, not moved on", number, 1, {})
    await ask("nothing is new", number, 2, {other: 9})
    await stage.produce(topic, batch())
    await ask("something is", number, 3, {})
    await ask("and was read", number, 4, {topic: 10})
    await ask("of an epoch before", number, 4, {})
    await ask("of an epoch to come", number, 9, {})
    await ask("of a session that there is not", number + 1, 5, {})
    await ask("outside of the log", number, 5, {other: 1_000})
    await ask("and again", number, 6, {})
    await ask("forgotten", number, 7, {}, other)
    await ask("and again forgotten", number, 8, {}, other)
    await ask("added anew", number, 9, {other: 3})
    await ask("all forgotten", number, 10, {}, topic, other)
    await ask("gone", number, 11, {})
    began = await ask("another", 0, 0, {topic: 0})
    await ask("ended", began.session_id, -1, {topic: 10})
    await ask("after its end", began.session_id, 1, {})
    began = await ask("a third", 0, 0, {topic: 0})
    await ask("begun again", began.session_id, 0, {topic: 10})
    await ask("after that", began.session_id, 1, {})
    await ask("nothing at all", 0, 0, {})
    await ask("an epoch without a session", 0, 5, {topic: 0})
    await ask("an epoch below", 0, -2, {topic: 0})


async def list_offsets(stage: Stage, label: str, topic: str, time: int, **more: Any) -> Any:
    row = {"partition_index": 0, "timestamp": time, "current_leader_epoch": -1} | more
    return await stage.ask(
        label, ApiKey.LIST_OFFSETS, replica_id=-1, topics=[{"name": topic, "partitions": [row]}]
    )


@case(ApiKey.LIST_OFFSETS, since=1)
async def offsets_by_time(stage: Stage) -> None:
    topic = await filled(stage)
    for time in (-1, -2, 0, NOW_MS, NOW_MS + 3_500, NOW_MS + 8_000, NOW_MS + 9_000):
        await list_offsets(stage, f"at {time}", topic, time)
    if stage.version >= 7:
        await list_offsets(stage, "greatest", topic, -3)
    if stage.version >= 8:
        await list_offsets(stage, "earliest local", topic, -4)
    empty = await stage.topic("-empty")
    for time in (-1, -2, 0, *((-3,) if stage.version >= 7 else ())):
        await list_offsets(stage, f"empty at {time}", empty, time)


@case(ApiKey.LIST_OFFSETS, since=1)
async def offsets_of_what_is_not_there(stage: Stage) -> None:
    topic = await filled(stage)
    await list_offsets(stage, "partition 5", topic, -1, partition_index=5)
    await list_offsets(stage, "unknown topic", f"{stage.name}-nowhere", -1)
    await list_offsets(stage, "a time that means nothing", topic, -9)
    if stage.version >= 4:
        await list_offsets(stage, "epoch 0", topic, -1, current_leader_epoch=0)
        await list_offsets(stage, "epoch 7", topic, -1, current_leader_epoch=7)
    row = {"partition_index": 0, "timestamp": -1}
    again = [{"name": topic, "partitions": [row, row]}]
    await stage.ask("twice", ApiKey.LIST_OFFSETS, replica_id=-1, topics=again)


@case(ApiKey.OFFSET_FOR_LEADER_EPOCH, since=2)
async def ends_of_epochs(stage: Stage) -> None:
    topic = await filled(stage)

    async def ask(label: str, name: str, **row: int) -> None:
        fields = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0} | row
        await stage.ask(
            label,
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            replica_id=-1,
            topics=[{"topic": name, "partitions": [fields]}],
        )

    await ask("of epoch 0", topic)
    await ask("of epoch 5", topic, leader_epoch=5)
    await ask("of epoch -1", topic, leader_epoch=-1)
    await ask("with the current epoch", topic, current_leader_epoch=0)
    await ask("with an epoch of the future", topic, current_leader_epoch=3)
    await ask("of a partition that is not there", topic, partition=5)
    await ask("of a topic that is not there", f"{stage.name}-nowhere")


@case(ApiKey.DELETE_RECORDS)
async def records_are_deleted(stage: Stage) -> None:
    topic = await filled(stage)

    async def ask(label: str, offset: int, name: str = topic, partition: int = 0) -> None:
        row = {"partition_index": partition, "offset": offset}
        named = [{"name": name, "partitions": [row]}]
        await stage.ask(label, ApiKey.DELETE_RECORDS, topics=named, timeout_ms=10_000)

    for label, offset in (
        ("inside a batch", 4),
        ("below the start", 2),
        ("the same again", 4),
        ("beyond the end", 99),
        ("negative", -5),
        ("all", -1),
    ):
        await ask(label, offset)
    for policy in ("compact", "compact,delete", ""):
        name = await stage.topic(f"-{policy.replace(',', '-')}", cleanup_policy=policy)
        await ask(f"policy {policy!r}", 0, name)
    await ask("a partition that is not there", 1, partition=5)
    await ask("a topic that is not there", 1, f"{stage.name}-nowhere")


async def metadata(stage: Stage, label: str, names: list[str], **more: Any) -> Any:
    topics = [{"name": name} for name in names]
    return await stage.ask(label, ApiKey.METADATA, topics=topics, **more)


@case(ApiKey.METADATA)
async def topics_by_name(stage: Stage) -> None:
    topic = await stage.topic("-m", 3)
    await metadata(stage, "one", [topic])
    await metadata(stage, "twice", [topic, topic])
    if stage.version >= 1:
        await metadata(stage, "none", [])
    for bad in ("no/such name", "", "..", "x" * 250):
        await metadata(stage, f"bad name {bad[:20]!r}", [bad])


@case(ApiKey.METADATA, since=4)
async def topics_that_are_not_there(stage: Stage) -> None:
    name = f"{stage.name}-nowhere"
    await metadata(stage, "not made", [name], allow_auto_topic_creation=False)


@case(ApiKey.METADATA, since=8)
async def operations_when_asked_for(stage: Stage) -> None:
    topic = await stage.topic("-m")
    await metadata(stage, "of topics", [topic], include_topic_authorized_operations=True)
    if stage.version <= 10:
        await metadata(stage, "of the cluster", [], include_cluster_authorized_operations=True)


@case(ApiKey.METADATA, since=12)
async def topics_by_id(stage: Stage) -> None:
    topic = await stage.topic("-m", 2)
    known = await stage.topic_id(topic)
    for label, topic_id in (("known", known), ("unknown", type(known)(int=12345))):
        asked = [{"name": None, "topic_id": topic_id}]
        await stage.ask(label, ApiKey.METADATA, topics=asked)


@case(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
async def partitions_described(stage: Stage) -> None:
    topic = await stage.topic("-d", 5)

    async def ask(label: str, name: str, **more: Any) -> None:
        named = [{"name": name}]
        await stage.ask(label, ApiKey.DESCRIBE_TOPIC_PARTITIONS, topics=named, **more)

    await ask("all of them", topic, response_partition_limit=2000)
    await ask("some", topic, response_partition_limit=2)
    cursor = {"topic_name": topic, "partition_index": 3}
    await ask("from a cursor", topic, response_partition_limit=2000, cursor=cursor)
    await ask("of a topic that is not there", f"{stage.name}-nowhere")
    await ask("of a name that is none", "a/b")


@case(ApiKey.DESCRIBE_PRODUCERS)
async def who_produces(stage: Stage) -> None:
    topic = await stage.topic("-p")
    answer = await stage.quietly(
        ApiKey.INIT_PRODUCER_ID, 0, transactional_id=None, transaction_timeout_ms=60_000
    )
    numbers = {"producer_id": answer.producer_id, "producer_epoch": 0, "base_sequence": 0}
    await stage.produce(topic, batch(**numbers))

    async def ask(label: str, name: str, *partitions: int) -> None:
        named = [{"name": name, "partition_indexes": list(partitions)}]
        await stage.ask(label, ApiKey.DESCRIBE_PRODUCERS, topics=named)

    await ask("one", topic, 0)
    await ask("a partition that is not there", topic, 4)
    await ask("a topic that is not there", f"{stage.name}-nowhere", 0)


@case(ApiKey.DESCRIBE_LOG_DIRS, since=1)
async def where_logs_are(stage: Stage) -> None:
    topic = await filled(stage)
    await stage.ask(
        "one topic", ApiKey.DESCRIBE_LOG_DIRS, topics=[{"topic": topic, "partitions": [0]}]
    )
    nowhere = [{"topic": f"{stage.name}-nowhere", "partitions": [0]}]
    await stage.ask("a topic that is not there", ApiKey.DESCRIBE_LOG_DIRS, topics=nowhere)
