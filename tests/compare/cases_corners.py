"""What no usual client sends: cursors, filters, rows named twice, borders of admin requests."""

from random import Random
from typing import Any, Final
from uuid import UUID

import trio

from segbroker.protocol.api_keys import ApiKey

from .cases import case
from .cases_groups import IDS_SINCE, commit, stood, synced
from .cases_produce import batch
from .cases_read import filled
from .cases_security import quota
from .cases_transactions import added, begun, completed, sent
from .stage import Stage

NOWHERE = UUID(int=4242)


@case(ApiKey.OFFSET_FOR_LEADER_EPOCH, since=2)
async def ends_of_epochs_at_the_borders(stage: Stage) -> None:
    topic = await filled(stage)

    async def ask(label: str, *rows: dict[str, int], replica: int = -1) -> None:
        basic = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
        named = [{"topic": topic, "partitions": [basic | row for row in rows]}]
        fields: dict[str, Any] = {"topics": named}
        if stage.version >= 3:
            fields |= {"replica_id": replica}
        await stage.ask(label, ApiKey.OFFSET_FOR_LEADER_EPOCH, **fields)

    await ask("current -2", {"current_leader_epoch": -2})
    await ask("of the largest", {"leader_epoch": (1 << 31) - 1})
    await ask("partition -1", {"partition": -1})
    await ask("twice", {}, {"leader_epoch": 1})
    await ask("none")
    for replica in (-2, 0, 5):
        await ask(f"replica {replica}", {}, replica=replica)


@case(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
async def pages_of_partitions(stage: Stage) -> None:
    names = [await stage.topic(f"-{n}", 3) for n in range(4)]

    async def ask(label: str, *asked: str, **more: Any) -> Any:
        rows = [{"name": name} for name in asked]
        return await stage.ask(label, ApiKey.DESCRIBE_TOPIC_PARTITIONS, topics=rows, **more)

    def at(name: str, index: int) -> dict[str, Any]:
        return {"topic_name": name, "partition_index": index}

    await ask("in disorder", *reversed(names), response_partition_limit=7)
    await ask("twice", names[0], names[0], response_partition_limit=4)
    await ask("limit 3", *names, response_partition_limit=3)
    await ask("limit 0", *names, response_partition_limit=0)
    await ask("limit -1", *names, response_partition_limit=-1)
    await ask("of a later one", *names, cursor=at(names[2], 1), response_partition_limit=4)
    await ask("beyond its end", *names, cursor=at(names[1], 3), response_partition_limit=9)
    await ask("far beyond", *names, cursor=at(names[1], 30), response_partition_limit=9)
    await ask("before its first", *reversed(names), cursor=at(names[1], -1))
    await ask("far before", names[0], names[0], cursor=at(names[1], -9), response_partition_limit=3)
    await ask("gone meanwhile", *names, cursor=at(f"{names[1]}x", 0), response_partition_limit=9)
    nowhere = f"{stage.name}-nowhere"
    await ask("one of them not there", names[0], nowhere, names[1], response_partition_limit=4)
    await ask("not there and limit", nowhere, f"{nowhere}2", names[3], response_partition_limit=1)
    row = names[0]
    answer = await stage.quietly(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        stage.version,
        topics=[],
        response_partition_limit=2000,
        cursor=at(row, 1),
    )
    answer.topics = [one for one in answer.topics if (one.name or "").startswith(stage.name)]
    answer.next_cursor = None
    stage.keep("all topics from a cursor", answer)


@case(ApiKey.LIST_TRANSACTIONS)
async def transactions_filtered(stage: Stage) -> None:
    topic, me = await stage.topic("-t"), await begun(stage)
    await added(stage, me, topic)

    async def ask(label: str, **more: Any) -> None:
        fields: dict[str, Any] = {"state_filters": [], "producer_id_filters": []} | more
        try:
            answer = await stage.quietly(ApiKey.LIST_TRANSACTIONS, stage.version, **fields)
        except Exception as exc:
            stage.seen[label] = {"": repr(exc)}
            return
        answer.transaction_states = [
            one for one in answer.transaction_states if one.transactional_id == stage.name
        ]
        stage.keep(label, answer)

    await ask("a good state and a bad one", state_filters=["Ongoing", "Nonsense", "Dead", ""])
    await ask("in other letters", state_filters=["ongoing", "ONGOING"])
    for state in ("Empty", "PrepareCommit", "PrepareEpochFence", "CompleteAbort", "PrepareAbort"):
        await ask(f"in {state}", state_filters=[state])
    await ask("both", state_filters=["Ongoing"], producer_id_filters=[me["producer_id"], 7])
    await ask("producer -1", producer_id_filters=[-1])
    if stage.version >= 1:
        for duration in (-1, -5, 0, 1 << 62, (1 << 63) - 1):
            await ask(f"for {duration}", duration_filter=duration)
        await trio.sleep(0.01)
        await ask("for a moment", duration_filter=5)
        await ask("for an hour", duration_filter=3_600_000)
    if stage.version >= 2:
        for pattern in (".*", "(?i)C.*", "a(", "\\w.*", "(c.*)\\1", "^c.*$"):
            await ask(f"pattern {pattern!r}", transactional_id_pattern=pattern)


@case(ApiKey.DESCRIBE_TRANSACTIONS)
async def transactions_named_twice(stage: Stage) -> None:
    topics = [await stage.topic(f"-{n}", 2) for n in (0, 1)]
    me = await begun(stage)
    fields = {f"v3_and_below_{name}": value for name, value in me.items()}
    known = {"v3_and_below_topics": [{"name": t, "partitions": [1, 0]} for t in topics]}
    await stage.quietly(ApiKey.ADD_PARTITIONS_TO_TXN, 1, **fields, **known)
    names = [me["transactional_id"]]
    await stage.ask("two topics", ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=names)
    await stage.ask("none", ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=[])
    for committed in (False, True):
        await stage.quietly(ApiKey.END_TXN, 1, **me, committed=committed)
        await completed(stage, me)
        label = f"behind an end, {committed}"
        await stage.ask(label, ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=names)


@case(ApiKey.DESCRIBE_PRODUCERS)
async def producers_of_several_places(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)

    async def ask(label: str, *topics: dict[str, Any]) -> None:
        await stage.ask(label, ApiKey.DESCRIBE_PRODUCERS, topics=list(topics))

    one = {"name": topic, "partition_indexes": [0, 1, -1]}
    await ask("several", one)
    await ask("no partitions", {"name": topic, "partition_indexes": []})
    me = await begun(stage)
    await added(stage, me, topic)
    await sent(stage, me, topic, 7)
    await stage.quietly(ApiKey.END_TXN, 1, **me, committed=False)
    await completed(stage, me)
    again = await begun(stage)
    await ask("behind a bump", {"name": topic, "partition_indexes": [0]})
    await added(stage, again, topic)
    await sent(stage, again, topic, 7)
    await ask("of the next epoch", {"name": topic, "partition_indexes": [0]})


@case(ApiKey.OFFSET_COMMIT, since=2)
async def commits_at_the_borders(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)
    await commit(stage, "the largest offset", topic, (1 << 63) - 1)
    await commit(stage, "-2", topic, -2)
    await commit(stage, "partition -1", topic, 5, partition_index=-1)
    await commit(stage, "metadata of two bytes each", topic, 5, committed_metadata="ß" * 4000)
    await commit(stage, "generation -2", topic, 5, generation_id_or_member_epoch=-2)
    await commit(stage, "empty metadata", topic, 5, committed_metadata="")
    if stage.version >= 6:
        for epoch in (-2, -1, 0, 9):
            await commit(stage, f"epoch {epoch}", topic, 5, committed_leader_epoch=epoch)
    if stage.version >= 7:
        await commit(stage, "an instance", topic, 5, group_instance_id="i")
        await commit(stage, "an empty instance", topic, 5, group_instance_id="")

    async def ask(label: str, *topics: dict[str, Any], **more: Any) -> None:
        fields: dict[str, Any] = {"group_id": stage.name, "member_id": ""}
        fields = fields | {"generation_id_or_member_epoch": -1} | more
        await stage.ask(label, ApiKey.OFFSET_COMMIT, topics=list(topics), **fields)

    row = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}
    which: dict[str, Any] = {"name": topic}
    if stage.version >= IDS_SINCE:
        which = {"topic_id": await stage.topic_id(topic)}
    await ask("nothing")
    twice = [row, row | {"committed_offset": 4}]
    await ask("a partition twice", which | {"partitions": twice})
    await ask("a topic twice", which | {"partitions": [row]}, which | {"partitions": [row]})
    stranger = {"member_id": "no", "generation_id_or_member_epoch": 3}
    await commit(stage, "of nobody, partition 9", topic, 5, partition_index=9, **stranger)
    long = {"committed_metadata": "m" * 5_000}
    await commit(stage, "of nobody, long metadata", topic, 5, **long, **stranger)
    if stage.version >= IDS_SINCE:
        gone = {"topic_id": NOWHERE, "partitions": [row]}
        await ask("of nobody, unknown id", gone, which | {"partitions": [row]}, **stranger)
        await ask("unknown id", {"topic_id": NOWHERE, "partitions": [row]})
        await ask("no id", {"topic_id": UUID(int=0), "partitions": [row]})
        stage.topics[NOWHERE] = "nowhere"
        await ask("both", {"topic_id": NOWHERE, "partitions": [row]}, which | {"partitions": [row]})
    else:
        gone = {"name": f"{topic}-no", "partitions": [row]}
        await ask("of nobody, no topic", gone, which | {"partitions": [row]}, **stranger)
        await ask("bad name", {"name": "a/b", "partitions": [row]})
        await ask("empty name", {"name": "", "partitions": [row]})
    if stage.version <= 4:
        for time in (-1, 0, 1, 50_000):
            await commit(stage, f"kept for {time}", topic, 5)


@case(ApiKey.OFFSET_FETCH, since=1)
async def fetched_offsets_at_the_borders(stage: Stage) -> None:
    topic, other = await stage.topic("-t", 2), await stage.topic("-o")
    await stood(stage, topic, stage.name)
    await stood(stage, other, stage.name)
    member = await synced(stage, group_id=f"{stage.name}-m")
    await stood(stage, topic, f"{stage.name}-m", member)
    stage.topics[NOWHERE] = "nowhere"
    ids = {name: await stage.topic_id(name) for name in (topic, other)}

    def which(name: str, *partitions: int) -> dict[str, Any]:
        if stage.version >= 10:
            return {"topic_id": ids.get(name, NOWHERE), "partition_indexes": list(partitions)}
        return {"name": name, "partition_indexes": list(partitions)}

    async def ask(label: str, asked: Any, group: str = stage.name, **more: Any) -> None:
        fields = {"group_id": group, "topics": asked}
        if stage.version >= 8:
            mine = {k: more.pop(k) for k in ("member_id", "member_epoch") if k in more}
            await stage.ask(
                label, ApiKey.OFFSET_FETCH, groups=[{"member_epoch": -1} | fields | mine], **more
            )
        else:
            await stage.ask(label, ApiKey.OFFSET_FETCH, **fields, **more)

    await ask("no partitions", [which(topic)])
    await ask("partition -1", [which(topic, -1)])
    await ask("unknown beside known", [which("nowhere", 0), which(other, 0)])
    if stage.version >= 2:
        await ask("all of them", None)
    if stage.version >= 9:
        group = f"{stage.name}-m"
        await ask("as a member", [which(topic, 0)], group, member_id=member.member_id)
        await ask("as nobody", [which(topic, 0)], group, member_id="x", member_epoch=1)
        epoch = {"member_id": member.member_id, "member_epoch": 9}
        await ask("of another generation", [which(topic, 0)], group, **epoch)
        epoch["member_epoch"] = member.generation_id
        await ask("of its generation", [which(topic, 0)], group, **epoch)
    if stage.version >= 8:
        one = {"group_id": stage.name, "topics": [which(topic, 0)], "member_epoch": -1}
        two = {"group_id": f"{stage.name}-no", "topics": None, "member_epoch": -1}
        await stage.ask("two groups", ApiKey.OFFSET_FETCH, groups=[one, two])
        await stage.ask("no group", ApiKey.OFFSET_FETCH, groups=[])
        answer = await stage.quietly(ApiKey.OFFSET_FETCH, stage.version, groups=[one, one])
        stage.seen["a group twice"] = {"rows": len(answer.groups)}


@case(ApiKey.ELECT_LEADERS)
async def elections_at_the_borders(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)

    async def ask(label: str, rows: Any, **more: Any) -> None:
        fields = {"topic_partitions": rows, "timeout_ms": 5_000} | more
        await stage.ask(label, ApiKey.ELECT_LEADERS, **fields)

    one = {"topic": topic, "partitions": [0]}
    await ask("nothing", [])
    await ask("no partitions", [{"topic": topic, "partitions": []}])
    await ask("one below 0", [{"topic": topic, "partitions": [0, -1]}])
    await ask("bad name", [{"topic": "a/b", "partitions": [0]}])
    if stage.version >= 1:
        await ask("unclean", [one], election_type=1)
        await ask("a type that is not there", [one], election_type=9)


@case(ApiKey.CREATE_PARTITIONS)
async def partitions_at_the_borders(stage: Stage) -> None:
    topic = await stage.topic(partitions=2)

    async def ask(label: str, count: int, assignments: Any = None, **more: Any) -> None:
        row = {"name": more.pop("name", topic), "count": count, "assignments": assignments}
        fields = {"timeout_ms": 20_000, "validate_only": False} | more
        await stage.ask(label, ApiKey.CREATE_PARTITIONS, topics=[row], **fields)

    await ask("-1", -1)
    await ask("no assignments", 3, [])
    await ask("assigned to nobody", 4, [{"broker_ids": []}])
    await ask("too few assigned", 5, [{"broker_ids": [1]}])
    await ask("tried and placed", 4, [{"broker_ids": [1]}], validate_only=True)
    await ask("bad name", 4, name="a/b")
    await ask("empty name", 4, name="")
    await stage.ask("nothing", ApiKey.CREATE_PARTITIONS, topics=[], timeout_ms=5_000)


@case(ApiKey.DELETE_RECORDS)
async def deletions_at_the_borders(stage: Stage) -> None:
    topic = await stage.topic("-t", 2, retention_ms="-1")
    await stage.produce(topic, batch())

    async def ask(label: str, *rows: tuple[int, int]) -> None:
        partitions = [{"partition_index": n, "offset": offset} for n, offset in rows]
        named = [{"name": topic, "partitions": partitions}]
        await stage.ask(label, ApiKey.DELETE_RECORDS, topics=named, timeout_ms=10_000)

    await ask("-2", (0, -2))
    await ask("the largest", (0, (1 << 63) - 1))
    await ask("partition -1", (-1, 0))
    await ask("into a batch", (0, 2))
    await ask("of an empty one", (1, 0))
    await ask("all of an empty one", (1, -1))
    await ask("beyond an empty one", (1, 1))
    me = await begun(stage)
    await added(stage, me, topic)
    await sent(stage, me, topic, 7)
    await ask("into an open transaction", (0, 5))
    await ask("all, with an open transaction", (0, -1))
    await stage.quietly(ApiKey.END_TXN, 1, **me, committed=True)
    await completed(stage, me)
    await ask("all", (0, -1))


@case(ApiKey.DESCRIBE_LOG_DIRS, since=1)
async def directories_at_the_borders(stage: Stage) -> None:
    topic = await stage.topic("-t", 3, retention_ms="-1")
    await stage.produce(topic, batch())
    for label, rows in (
        ("nothing", []),
        ("no partitions", [{"topic": topic, "partitions": []}]),
        ("twice", [{"topic": topic, "partitions": [0, 0, 7, -1]}]),
    ):
        await stage.ask(label, ApiKey.DESCRIBE_LOG_DIRS, topics=rows)
    answer = await stage.quietly(ApiKey.DESCRIBE_LOG_DIRS, stage.version, topics=None)
    for row in answer.results:
        row.topics = [one for one in row.topics if one.name == topic]
    stage.keep("all", answer)


@case(ApiKey.DELETE_GROUPS)
async def groups_deleted_twice(stage: Stage) -> None:
    topic = await stage.topic("-t")
    await stood(stage, topic, stage.name)
    for label, names in (
        ("nothing", []),
        ("empty name", [""]),
        ("once", [stage.name]),
        ("again", [stage.name]),
    ):
        await stage.ask(label, ApiKey.DELETE_GROUPS, groups_names=names)


@case(ApiKey.METADATA)
async def topics_named_oddly(stage: Stage) -> None:
    topic = await stage.topic("-m")
    if stage.version >= 1:
        answer = await stage.quietly(ApiKey.METADATA, stage.version, topics=None)
    else:
        answer = await stage.quietly(ApiKey.METADATA, stage.version, topics=[])
    answer.topics = [one for one in answer.topics if one.name == topic]
    stage.keep("all", answer)
    if stage.version >= 12:  # Kafka refuses an id in 10 and 11, whose clients send none
        known = await stage.topic_id(topic)
        for label, row in (
            ("name and id", {"name": topic, "topic_id": known}),
            ("empty and id", {"name": "", "topic_id": known}),
        ):
            await stage.ask(label, ApiKey.METADATA, topics=[row])
        rows = [{"name": None, "topic_id": known}, {"name": None, "topic_id": NOWHERE}]
        stage.topics[NOWHERE] = "nowhere"
        await stage.ask("ids twice", ApiKey.METADATA, topics=rows + rows[:1])


@case(ApiKey.DESCRIBE_CLIENT_QUOTAS)
async def quotas_of_addresses_and_defaults(stage: Stage) -> None:
    name = stage.name
    rate, connects = "producer_byte_rate", "connection_creation_rate"
    stored = [
        quota(rate, 1e6, user=name, client=None),
        quota(rate, 2e6, user=None, client=name),
        quota(rate, 3e6, user=None, client=None),
        quota(connects, 4.0, ip="127.0.9.9"),
        quota(connects, 5000.0, ip=None),
        quota("request_percentage", 150.5, user=name),
    ]
    await stage.quietly(ApiKey.ALTER_CLIENT_QUOTAS, 0, entries=stored)
    await trio.sleep(0.7)

    async def ask(label: str, *rows: tuple[str, int, str | None], strict: bool = False) -> None:
        components = [{"entity_type": k, "match_type": h, "match": m} for k, h, m in rows]
        asked = {"components": components, "strict": strict}
        await stage.ask(label, ApiKey.DESCRIBE_CLIENT_QUOTAS, **asked)

    for strict in (False, True):
        s = f", strict {strict}"
        await ask(f"everything{s}", strict=strict)
        await ask(f"user default{s}", ("user", 1, None), strict=strict)
        await ask(f"any user{s}", ("user", 2, None), strict=strict)
        await ask(f"any client{s}", ("client-id", 2, None), strict=strict)
        await ask(f"any address{s}", ("ip", 2, None), strict=strict)
        await ask(f"address default{s}", ("ip", 1, None), strict=strict)
        await ask(f"an address{s}", ("ip", 0, "127.0.9.9"), strict=strict)
        await ask(f"no address{s}", ("ip", 0, "nonsense"), strict=strict)
        await ask(f"default with a match{s}", ("user", 1, name), strict=strict)
        await ask(f"any with a match{s}", ("user", 2, name), strict=strict)
        both = ("user", 2, None), ("client-id", 1, None)
        await ask(f"user any, client default{s}", *both, strict=strict)
        await ask(f"both default{s}", ("user", 1, None), ("client-id", 1, None), strict=strict)
        await ask(f"user and address{s}", ("user", 0, name), ("ip", 0, "127.0.9.9"), strict=strict)
        await ask(f"empty name{s}", ("user", 0, ""), strict=strict)
    gone = [one | {"ops": [one["ops"][0] | {"remove": True}]} for one in stored]
    await stage.quietly(ApiKey.ALTER_CLIENT_QUOTAS, 0, entries=gone)


@case(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
async def credentials_at_the_borders(stage: Stage) -> None:
    def wanted(**more: Any) -> dict[str, Any]:
        fields = {"name": stage.name, "mechanism": 1, "iterations": 4096}
        return fields | {"salt": b"salt of sixteen.", "salted_password": b"p" * 32} | more

    async def ask(label: str, **fields: Any) -> None:
        await stage.ask(label, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, **fields)

    gone = {"name": stage.name, "mechanism": 1}
    await ask("nothing")
    await ask("twice", upsertions=[wanted(), wanted(iterations=5000)])
    await ask("4095", upsertions=[wanted(iterations=4095)])
    await ask("16384", upsertions=[wanted(iterations=16384)])
    await ask("16385", upsertions=[wanted(iterations=16385)])
    await ask("mechanism 0", upsertions=[wanted(mechanism=0)])
    await ask("gone, mechanism 0", deletions=[gone | {"mechanism": 0}])
    await ask("gone, no name", deletions=[gone | {"name": ""}])
    bad = wanted(name=f"{stage.name}2", iterations=1)
    await ask("one good, one bad", upsertions=[wanted(), bad])
    await ask("gone twice", deletions=[gone, gone])
    await ask("gone", deletions=[gone])


@case(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
async def moves_at_the_borders(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)

    async def ask(label: str, *rows: tuple[int, list[int] | None], **more: Any) -> None:
        partitions = [{"partition_index": n, "replicas": replicas} for n, replicas in rows]
        named = [{"name": more.pop("name", topic), "partitions": partitions}]
        fields = {"topics": named, "timeout_ms": 5_000} | more
        await stage.ask(label, ApiKey.ALTER_PARTITION_REASSIGNMENTS, **fields)

    await ask("twice on one", (0, [1, 1]))
    await ask("to two", (0, [1, 2]))
    await ask("a partition twice", (0, [1]), (0, [1]))
    await ask("negative", (0, [-1]))
    await ask("partition -1", (-1, [1]))
    await ask("bad name", (0, [1]), name="a/b")
    await ask("give up two", (0, None), (1, None))
    if stage.version >= 1:
        await ask("another number", (0, [1, 2]), allow_replication_factor_change=False)
    await stage.ask("nothing", ApiKey.ALTER_PARTITION_REASSIGNMENTS, topics=[], timeout_ms=5_000)


@case(ApiKey.LIST_PARTITION_REASSIGNMENTS)
async def no_moves_anywhere(stage: Stage) -> None:
    await stage.ask("all", ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=None, timeout_ms=5_000)
    await stage.ask("nothing", ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=[], timeout_ms=5_000)


# What expressions are made of that both take, or neither.
ATOMS: Final = (
    *("a", "b", "A", ".", "[ab]", "[^a]", "[a-z]", "[[:alpha:]]", "[^[:punct:]]", "[[:^alpha:]]"),
    *(
        "\\d",
        "\\W",
        "\\s",
        "\\.",
        "\\A",
        "\\z",
        "\\Z",
        "^",
        "$",
        "\\Q+a\\E",
        "\\x41",
        "\\x{62}",
        "\\t",
    ),
    *("(?i:a)", "(?s).", "(?P<n>a)", "(?:ab)", "(a|b)", "()", "[]a]", "[a-]", "[\\w-]", "[a-\\d]"),
    *("[z-a]", "[", "]", "(", ")", "{", "}", "\\", "\\1", "(?=a)", "\\01", "\\_", "|", "a|b", "-"),
)
REPEATS: Final = ("", "", "", "*", "+", "?", "*?", "{2}", "{1,2}", "{0,}", "{2,1}", "**", "{2}{3}")


@case(ApiKey.LIST_TRANSACTIONS, since=2)
async def expressions_drawn_at_random(stage: Stage) -> None:
    random = Random(1)
    ids = [f"{stage.name}:{end}" for end in ("", "a", "A", "ab", "aab", "b1", "]", "+a", "a b")]
    for one in ids:
        asked = {"transactional_id": one, "transaction_timeout_ms": 60_000}
        answer = await stage.quietly(ApiKey.INIT_PRODUCER_ID, 1, **asked)
        assert answer.error_code == 0, answer
    for _ in range(300):
        drawn = [random.choice(ATOMS) + random.choice(REPEATS) for _ in range(random.randint(1, 3))]
        pattern = "".join((stage.name, ":", *drawn))
        answer = await stage.quietly(
            ApiKey.LIST_TRANSACTIONS,
            stage.version,
            state_filters=[],
            producer_id_filters=[],
            transactional_id_pattern=pattern,
        )
        found = [row.transactional_id for row in answer.transaction_states]
        label = f"matching {pattern.replace(stage.name, '~')!r}"
        stage.seen[label] = {"": answer.error_code, "ids": sorted(i for i in found if i in ids)}
