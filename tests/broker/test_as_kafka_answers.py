"""Answers in which segbroker once differed from Apache Kafka: what tests/compare found."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
import trio

from segbroker.protocol.api_keys import SERVED, ApiKey
from segbroker.protocol.messages_core import ApiVersionsRequest, ApiVersionsResponse
from segbroker.segments.disk.memory import MemoryStorage

from ..compare.cases_groups import joining, stood, synced
from ..compare.stage import Stage
from ..support.waiting import DEADLINE_S
from ..support.wire_client import connect
from ..support.wire_consumers import beat, described
from ..support.wire_consumers import joining as joining_848
from ..support.wire_groups import WireMember
from ..support.wire_groups import described as classic_described
from ..support.wire_transactions import until
from .classic_member import ClassicMember
from .conftest import serving
from .restarts import broker_on
from .test_group_migration import kind

GROUP_SUBSCRIBED_TO_TOPIC = 86
NOT_LEADER, UNSUPPORTED_VERSION = 6, 35
INVALID_SESSION_TIMEOUT, MEMBER_ID_REQUIRED = 26, 79
UNKNOWN_MEMBER, INCONSISTENT, INVALID_CONFIG, INVALID_REQUEST = 25, 23, 40, 42
INVALID_REPLICA_ASSIGNMENT, FENCED_LEADER_EPOCH, NOT_NEEDED = 39, 74, 84
TOPIC = 2


@asynccontextmanager
async def stage(key: ApiKey) -> AsyncIterator[Stage]:
    """A broker, and a connection that asks `key` in the newest version of it."""
    async with serving() as broker, connect(broker.address) as client:
        yield Stage(broker.address, client, "s", SERVED[key].max)


async def test_a_topic_setting_without_a_value_is_refused() -> None:
    async with stage(ApiKey.CREATE_TOPICS) as s:
        wanted = {"name": "t", "num_partitions": 1, "replication_factor": 1}
        wanted["configs"] = [{"name": "retention.ms", "value": None}]
        answer = await s.ask("", ApiKey.CREATE_TOPICS, topics=[wanted], timeout_ms=1000)
        assert answer.topics[0].error_code == INVALID_CONFIG


async def test_settings_are_not_replaced_by_one_without_a_value() -> None:
    async with stage(ApiKey.ALTER_CONFIGS) as s:
        row = {"resource_type": TOPIC, "resource_name": await s.topic("", retention_ms="7")}
        row["configs"] = [{"name": "retention.ms", "value": None}]
        answer = await s.ask("", ApiKey.ALTER_CONFIGS, resources=[row], validate_only=False)
        assert answer.responses[0].error_code == INVALID_REQUEST


async def test_a_setting_is_changed_once_in_a_request() -> None:
    async with stage(ApiKey.INCREMENTAL_ALTER_CONFIGS) as s:
        row = {"resource_type": TOPIC, "resource_name": await s.topic()}
        one = {"name": "retention.ms", "config_operation": 0, "value": "5"}
        for configs, code in (([one, one], INVALID_REQUEST), ([one], 0)):
            resources = [row | {"configs": configs}]
            answer = await s.quietly(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources)
            assert answer.responses[0].error_code == code


@pytest.mark.parametrize(("policy", "code"), [("", 0), ("compact,delete", 0), ("compact", 44)])
async def test_only_what_is_compacted_alone_keeps_its_records(policy: str, code: int) -> None:
    async with stage(ApiKey.DELETE_RECORDS) as s:
        row = {"partition_index": 0, "offset": 0}
        topics = [{"name": await s.topic(cleanup_policy=policy), "partitions": [row]}]
        answer = await s.quietly(ApiKey.DELETE_RECORDS, s.version, topics=topics, timeout_ms=9_000)
        assert answer.topics[0].partitions[0].error_code == code


async def test_a_name_that_no_topic_can_have_has_no_settings() -> None:
    async with stage(ApiKey.DESCRIBE_CONFIGS) as s:
        for name, code in (("a/b", 17), ("nowhere", 3)):
            row = {"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}
            answer = await s.quietly(ApiKey.DESCRIBE_CONFIGS, s.version, resources=[row])
            assert answer.results[0].error_code == code


@pytest.mark.parametrize("name", ["", "no spaces please", "-dash"])
async def test_software_with_a_name_that_is_none_is_told_so(name: str) -> None:
    async with stage(ApiKey.API_VERSIONS) as s:
        fields = {"client_software_name": name, "client_software_version": "1.0"}
        answer = await s.ask("", ApiKey.API_VERSIONS, **fields)
        assert answer.error_code == INVALID_REQUEST
        assert answer.api_keys
        answer = await s.quietly(ApiKey.API_VERSIONS, 2)
        assert answer.error_code == 0


async def test_offsets_of_a_group_without_members_may_be_set_whoever_one_says_to_be() -> None:
    async with stage(ApiKey.OFFSET_COMMIT) as s:
        row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        topics = [{"name": await s.topic(), "partitions": [row]}]
        fields = {"group_id": "g", "member_id": "admin", "topics": topics}
        for generation, code in ((-1, 0), (0, UNKNOWN_MEMBER), (3, UNKNOWN_MEMBER)):
            answer = await s.quietly(
                ApiKey.OFFSET_COMMIT, 8, generation_id_or_member_epoch=generation, **fields
            )
            assert answer.topics[0].partitions[0].error_code == code


async def test_a_member_names_the_protocol_that_it_syncs() -> None:
    async with stage(ApiKey.SYNC_GROUP) as s:
        member = await synced(s)
        fields = {"group_id": "s", "member_id": member.member_id, "generation_id": 1}
        names = {"protocol_type": "consumer", "protocol_name": "range"}
        for missing in names:
            wrong = names | {missing: None}
            answer = await s.quietly(ApiKey.SYNC_GROUP, 5, **fields, **wrong)
            assert answer.error_code == INCONSISTENT
        answer = await s.quietly(ApiKey.SYNC_GROUP, 5, **fields, **names)
        assert (answer.error_code, bytes(answer.assignment)) == (0, b"yours")


async def test_a_member_without_a_place_is_not_the_one_of_another_place() -> None:
    async with stage(ApiKey.HEARTBEAT) as s:
        member = await synced(s)
        fields = {"group_id": "s", "member_id": member.member_id, "generation_id": 1}
        for place, code in (("place-9", UNKNOWN_MEMBER), (None, 0)):
            answer = await s.quietly(ApiKey.HEARTBEAT, 4, group_instance_id=place, **fields)
            assert answer.error_code == code


async def test_a_group_that_is_not_stable_has_no_protocol_to_show() -> None:
    async with stage(ApiKey.DESCRIBE_GROUPS) as s:
        await s.quietly(ApiKey.JOIN_GROUP, 3, **joining(s))
        answer = await s.ask("", ApiKey.DESCRIBE_GROUPS, groups=["s"])
        (group,) = answer.groups
        assert group.group_state == "CompletingRebalance"
        assert group.protocol_data == ""
        assert [bytes(member.member_metadata) for member in group.members] == [b""]


async def kinds(stage: Stage, group: str) -> tuple[str, str]:
    """What a group is one of, as it is listed and as it is described."""
    listed = await stage.quietly(ApiKey.LIST_GROUPS, 5)
    (kind,) = [row.protocol_type for row in listed.groups if row.group_id == group]
    described = await stage.quietly(ApiKey.DESCRIBE_GROUPS, 5, groups=[group])
    return kind, described.groups[0].protocol_type


async def test_a_group_is_of_no_kind_until_somebody_was_in_it_and_of_that_kind_from_then_on() -> (
    None
):
    disk = MemoryStorage()
    async with broker_on(disk) as (broker, (client,)):
        s = Stage(broker.address, client, "s", 0)
        topic = await s.topic()
        await stood(s, topic, "simple")
        for name, kind in (("s", "consumer"), ("other", "connect")):
            member = await synced(s, group_id=name, protocol_type=kind)
            await stood(s, topic, name, member)
            assert await kinds(s, name) == (kind, kind)
            await s.quietly(ApiKey.LEAVE_GROUP, 1, group_id=name, member_id=member.member_id)
        wanted = {"simple": ("", ""), "s": ("consumer",) * 2, "other": ("connect",) * 2}
        assert {name: await kinds(s, name) for name in wanted} == wanted
        image = disk.after_kill()
    async with broker_on(image) as (broker, (client,)):
        s = Stage(broker.address, client, "s", 0)
        assert {name: await kinds(s, name) for name in wanted} == wanted


async def test_a_group_of_consumers_to_be_joined_as_a_classic_one_is_of_no_kind_until_it_is() -> (
    None
):
    async with stage(ApiKey.JOIN_GROUP) as s:
        topic = await s.topic()
        await beat(s.client, joining_848(group_id="s", subscribed_topic_names=[topic]))
        await beat(s.client, joining_848(group_id="s", member_epoch=-1))
        answer = await s.ask("", ApiKey.JOIN_GROUP, **joining(s))
        assert answer.error_code == MEMBER_ID_REQUIRED
        assert await kinds(s, "s") == ("", "")
        await s.ask("again", ApiKey.JOIN_GROUP, **joining(s, member_id=answer.member_id))
        assert await kinds(s, "s") == ("consumer", "consumer")


async def test_offsets_of_who_subscribes_to_nobody_knows_what_are_not_deleted() -> None:
    async with stage(ApiKey.OFFSET_DELETE) as s:
        topic = await s.topic()
        member = await synced(s, protocols=[{"name": "range", "metadata": b""}])
        await stood(s, topic, "s", member)
        topics = [{"name": topic, "partitions": [{"partition_index": 0}]}]
        answer = await s.ask("", ApiKey.OFFSET_DELETE, group_id="s", topics=topics)
        assert answer.topics[0].partitions[0].error_code == GROUP_SUBSCRIBED_TO_TOPIC


async def test_a_time_that_no_record_has_is_of_no_epoch() -> None:
    async with stage(ApiKey.LIST_OFFSETS) as s:
        asked = [{"partition_index": 0, "timestamp": 0, "current_leader_epoch": -1}]
        topics = [{"name": await s.topic(), "partitions": asked}]
        answer = await s.ask("", ApiKey.LIST_OFFSETS, replica_id=-1, topics=topics)
        row = answer.topics[0].partitions[0]
        assert (row.error_code, row.offset, row.leader_epoch) == (0, -1, -1)


async def test_a_topic_that_is_asked_for_twice_is_described_once() -> None:
    async with stage(ApiKey.METADATA) as s:
        topic = {"name": await s.topic()}
        answer = await s.ask("", ApiKey.METADATA, topics=[topic, topic])
        assert [row.name for row in answer.topics] == [topic["name"]]


async def test_an_empty_transactional_id_is_an_invalid_request() -> None:
    async with stage(ApiKey.END_TXN) as s:
        me = {"transactional_id": "", "producer_id": 1, "producer_epoch": 0}
        answer = await s.ask("", ApiKey.END_TXN, **me, committed=True)
        assert answer.error_code == INVALID_REQUEST
        fields = {f"v3_and_below_{name}": value for name, value in me.items()}
        topics = [{"name": "t", "partitions": [0]}]
        answer = await s.quietly(
            ApiKey.ADD_PARTITIONS_TO_TXN, 3, **fields, v3_and_below_topics=topics
        )
        (row,) = answer.results_by_topic_v3_and_below[0].results_by_partition
        assert row.partition_error_code == INVALID_REQUEST


async def test_settings_without_a_meaning_here_are_taken_checked_and_shown() -> None:
    async with stage(ApiKey.DESCRIBE_CONFIGS) as s:
        topic = await s.topic("", delete_retention_ms="900", compression_type="lz4")
        row = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": None}
        answer = await s.ask("", ApiKey.DESCRIBE_CONFIGS, resources=[row])
        shown = {one.name: one.value for one in answer.results[0].configs}
        assert (shown["delete.retention.ms"], shown["compression.type"]) == ("900", "lz4")
        assert (shown["min.insync.replicas"], shown["preallocate"]) == ("1", "false")
        for name, value in (("min.insync.replicas", "0"), ("preallocate", "perhaps")):
            wanted = {"name": "u", "num_partitions": 1, "replication_factor": 1}
            wanted["configs"] = [{"name": name, "value": value}]
            refused = await s.quietly(ApiKey.CREATE_TOPICS, 5, topics=[wanted], timeout_ms=1000)
            assert refused.topics[0].error_code == INVALID_CONFIG


async def test_an_id_that_is_not_there_is_answered_where_names_cannot_be_null() -> None:
    async with stage(ApiKey.METADATA) as s:
        for version, name in ((10, ""), (11, ""), (12, None)):
            asked = [{"name": None, "topic_id": UUID(int=7)}]
            answer = await s.quietly(ApiKey.METADATA, version, topics=asked)
            assert [(row.name, row.error_code) for row in answer.topics] == [(name, 100)]


async def test_an_empty_id_is_no_group_that_could_be_described() -> None:
    async with stage(ApiKey.CONSUMER_GROUP_DESCRIBE) as s:
        for name, code in (("", 24), ("nobody", 69)):
            answer = await s.quietly(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[name])
            assert answer.groups[0].error_code == code


@pytest.mark.parametrize("version", [4, 12, 14, 15, 18])
async def test_who_fetches_as_a_follower_has_no_replica_here(version: int) -> None:
    async with stage(ApiKey.FETCH) as s:
        topic = await s.topic()
        named = {"topic": topic} if version < 13 else {"topic_id": await s.topic_id(topic)}
        for replica, code in ((-1, 0), (-2, 0), (0, NOT_LEADER), (1, NOT_LEADER), (5, NOT_LEADER)):
            who = (
                {"replica_id": replica}
                if version < 15
                else {"replica_state": {"replica_id": replica}}
            )
            rows = [{"partition": 0, "partition_max_bytes": 1000}]
            topics = [named | {"partitions": rows}]
            answer = await s.quietly(ApiKey.FETCH, version, **who, topics=topics)
            row = answer.responses[0].partitions[0]
            assert (row.error_code, row.high_watermark) == (code, -1 if code else 0)


async def test_a_session_may_be_as_short_as_the_settings_say() -> None:
    async with broker_on(None, group_min_session_timeout_ms=0) as (_, (client,)):
        none = ClassicMember(client, session_ms=0)
        assert (await none.join_once()).error_code == MEMBER_ID_REQUIRED
        assert (await none.join_once(version=3)).error_code == 0
        none.session_ms = -1
        assert (await none.join_once()).error_code == INVALID_SESSION_TIMEOUT
        assert (await ClassicMember(client, session_ms=10_000).join()).error_code == 0


async def test_the_consumer_protocol_can_be_switched_off() -> None:
    disk = MemoryStorage()
    keys: dict[str, Any] = {
        "group_consumer_session_timeout_ms": 60,
        "group_consumer_heartbeat_interval_ms": 20,
    }
    async with broker_on(disk) as (_, (client,)):
        await client.create("t")
        assert (await beat(client, joining_848())).error_code == 0
        image = disk.after_kill()
    keys["group_protocols"] = "classic"
    async with broker_on(image, **keys, authorizer="acl") as (_, (client,)):
        # Whatever the rules say, and offered all the same.
        answer = await beat(client, joining_848())
        assert (answer.error_code, answer.error_message) == (UNSUPPORTED_VERSION, None)
        assert (await described(client)).error_code == UNSUPPORTED_VERSION
        offered = await client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        assert 68 in [row.api_key for row in offered.api_keys]
    async with broker_on(image.after_kill(), **keys) as (_, (client,)):
        member = ClassicMember(client)
        with trio.fail_after(60):
            while (await member.join()).error_code:
                pass
        while (await kind(client))[0] != "classic":
            pass


async def test_further_partitions_that_are_assigned_to_nobody_are_refused() -> None:
    async with stage(ApiKey.CREATE_PARTITIONS) as s:
        row = {"name": await s.topic(), "count": 3}
        for assignments, code in (([], INVALID_REPLICA_ASSIGNMENT), (None, 0)):
            topics = [row | {"assignments": assignments}]
            answer = await s.quietly(
                ApiKey.CREATE_PARTITIONS, s.version, topics=topics, timeout_ms=9_000
            )
            assert answer.results[0].error_code == code


async def test_an_election_of_a_type_that_there_is_not_is_refused() -> None:
    async with stage(ApiKey.ELECT_LEADERS) as s:
        rows = [{"topic": await s.topic(), "partitions": [0]}]
        fields = {"topic_partitions": rows, "timeout_ms": 1_000}
        for kind, codes in ((0, (0, NOT_NEEDED)), (9, (INVALID_REQUEST, INVALID_REQUEST))):
            answer = await s.quietly(ApiKey.ELECT_LEADERS, 2, election_type=kind, **fields)
            (found,) = answer.replica_election_results[0].partition_result
            assert (answer.error_code, found.error_code) == codes


@pytest.mark.parametrize("key", [ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH])
async def test_a_leader_epoch_below_that_of_nobody_is_an_old_one(key: ApiKey) -> None:
    async with stage(key) as s:
        topic = await s.topic()
        row = {"partition_index": 0, "timestamp": -1}
        named: dict[str, Any] = {"name": topic}
        if key is ApiKey.OFFSET_FOR_LEADER_EPOCH:
            row, named = {"partition": 0, "leader_epoch": 0}, {"topic": topic}
        for epoch, code in ((-2, FENCED_LEADER_EPOCH), (-1, 0), (0, 0)):
            rows = [row | {"current_leader_epoch": epoch}]
            topics = [named | {"partitions": rows}]
            answer = await s.quietly(key, s.version, replica_id=-1, topics=topics)
            assert answer.topics[0].partitions[0].error_code == code


async def test_defaults_of_groups_and_topics_are_told_by_kafkas_names_of_the_brokers() -> None:
    async with stage(ApiKey.DESCRIBE_CONFIGS) as s:
        topic = await s.topic()
        for kind, name, key, told in (
            (32, "g", "share.session.timeout.ms", "group.share.session.timeout.ms"),
            (TOPIC, topic, "cleanup.policy", "log.cleanup.policy"),
            (TOPIC, topic, "min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
        ):
            row = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
            answer = await s.quietly(
                ApiKey.DESCRIBE_CONFIGS, s.version, resources=[row], include_synonyms=True
            )
            assert [one.name for one in answer.results[0].configs[0].synonyms] == [told]


async def test_a_setting_that_is_true_or_false_may_have_spaces_and_is_told_in_small_letters() -> (
    None
):
    async with stage(ApiKey.DESCRIBE_CONFIGS) as s:
        topic = await s.topic(preallocate=" TRUE ")
        row = {"resource_type": TOPIC, "resource_name": topic}
        row["configuration_keys"] = ["preallocate"]
        answer = await s.quietly(ApiKey.DESCRIBE_CONFIGS, s.version, resources=[row])
        assert answer.results[0].configs[0].value == "true"


async def test_a_number_of_a_group_may_have_spaces_and_is_told_without() -> None:
    async with stage(ApiKey.INCREMENTAL_ALTER_CONFIGS) as s:
        row: dict[str, Any] = {"resource_type": 32, "resource_name": "g"}
        name = "consumer.session.timeout.ms"
        wanted = [{"name": name, "config_operation": 0, "value": " 50000 "}]
        changed = await s.quietly(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, s.version, resources=[row | {"configs": wanted}]
        )
        assert changed.responses[0].error_code == 0
        row["configuration_keys"] = [name]
        answer = await s.quietly(ApiKey.DESCRIBE_CONFIGS, 4, resources=[row])
        assert answer.results[0].configs[0].value == "50000"


async def test_a_member_that_subscribes_by_names_has_an_empty_expression() -> None:
    async with stage(ApiKey.CONSUMER_GROUP_DESCRIBE) as s:
        fields: dict[str, Any] = {"group_id": "g", "member_id": "A" * 22, "member_epoch": 0}
        fields |= {"rebalance_timeout_ms": 9_000, "subscribed_topic_names": ["t"]}
        await s.quietly(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **fields, topic_partitions=[])
        answer = await s.ask("", ApiKey.CONSUMER_GROUP_DESCRIBE, group_ids=["g"])
        (member,) = answer.groups[0].members
        assert member.subscribed_topic_regex == ""


async def test_who_joins_a_share_group_with_an_id_of_before_is_told_what_kind_of_group_it_is() -> (
    None
):
    async with stage(ApiKey.JOIN_GROUP) as s:
        fields = {"group_id": "s", "member_id": "A" * 22, "member_epoch": 0}
        await s.quietly(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **fields, subscribed_topic_names=["t"])
        for member in ("of-before", ""):
            answer = await s.quietly(ApiKey.JOIN_GROUP, s.version, **joining(s, member_id=member))
            assert (answer.error_code, answer.member_id) == (INCONSISTENT, "")


async def test_who_is_in_a_rebalance_is_described_with_what_it_was_told_last() -> None:
    async with (
        serving() as broker,
        connect(broker.address) as first,
        connect(broker.address) as second,
        connect(broker.address) as asking,
    ):
        old, new = WireMember(first), WireMember(second)
        await old.join()
        await old.deal()
        told = old.member_id.encode()

        async def assignments() -> tuple[str, list[bytes]]:
            row = await classic_described(asking)
            return row.group_state, sorted(bytes(one.member_assignment) for one in row.members)

        assert await assignments() == ("Stable", [told])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(new.join)
            await until(old.is_to_join)
            assert await assignments() == ("PreparingRebalance", [b"", told])
            nursery.start_soon(old.join)
        assert await assignments() == ("CompletingRebalance", [b"", told])


async def test_the_first_of_a_group_that_waits_for_nobody_does_not_wait_for_a_given_id() -> None:
    async with (
        serving(group_initial_rebalance_delay_ms=0) as broker,
        connect(broker.address) as never,
        connect(broker.address) as first,
    ):
        given = await ClassicMember(never, session_ms=1_800_000).join_once(version=5)
        assert given.error_code == MEMBER_ID_REQUIRED
        with trio.fail_after(DEADLINE_S):  # and not until the other one's session is over
            joined = await ClassicMember(first).join()
        assert (joined.error_code, joined.generation_id) == (0, 1)
        assert [row.member_id for row in joined.members] == [joined.member_id]
