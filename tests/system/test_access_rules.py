"""Access rules and quotas as foreign clients meet them: users who log in, on a daemon that denies.

admin is a super user; alice gets rules; bob gets none.
"""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    ThrottleEvent,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaAdminClient
from kafka import admin as kafka_python

from segbroker.client import Admin

from ..support.daemon import Daemon
from ..support.java import START_S, program
from .guarded_daemon import PASSWORD, running_guarded

TIMEOUT_S = 60
USERS = ("alice", "bob")


def login(daemon: Daemon, user: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "bootstrap.servers": daemon.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": PASSWORD,
        **more,
    }


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_guarded(tmp_path_factory.mktemp("rules")) as daemon:
        admin = AdminClient(login(daemon, "admin"))
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        upsertions: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, info, PASSWORD.encode()) for user in USERS
        ]
        for future in admin.alter_user_scram_credentials(upsertions).values():
            future.result(TIMEOUT_S)
        yield daemon


@pytest.fixture(scope="module")
def admin(guarded: Daemon) -> AdminClient:
    return AdminClient(login(guarded, "admin"))


def binding(
    kind: ResourceType, name: str, operation: AclOperation, user: str = "alice"
) -> AclBinding:
    return AclBinding(
        kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation,
        AclPermissionType.ALLOW,
    )  # fmt: skip


def create_topic(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1)])[topic].result(TIMEOUT_S)


def grant(admin: AdminClient, *bindings: AclBinding) -> None:
    for future in admin.create_acls(list(bindings)).values():
        future.result(TIMEOUT_S)


def produced(daemon: Daemon, user: str, topic: str) -> KafkaError | None:
    """What became of one record."""
    outcome: list[KafkaError | None] = []
    conf = login(daemon, user, **{"enable.idempotence": True, "message.timeout.ms": 20_000})
    producer = Producer(conf)
    producer.produce(topic, b"x", on_delivery=lambda error, _: outcome.append(error))
    producer.flush(TIMEOUT_S)
    return outcome[0]


def consumed(daemon: Daemon, user: str, topic: str, group: str) -> KafkaError | bytes:
    """The first record, or the first error."""
    conf = login(daemon, user, **{"group.id": group, "auto.offset.reset": "earliest"})
    consumer = Consumer(conf)
    consumer.subscribe([topic])
    try:
        ends = time.monotonic() + TIMEOUT_S
        while time.monotonic() < ends:
            message = consumer.poll(0.2)
            if message is None:
                continue
            if (error := message.error()) is not None:
                return error
            value = message.value()
            assert value is not None
            return value
    finally:
        consumer.close()
    raise AssertionError("neither a record nor an error")


def test_alice_produces_and_consumes_and_bob_does_not_see_that_there_is_anything(
    guarded: Daemon, admin: AdminClient
) -> None:
    create_topic(admin, "orders")
    grant(
        admin,
        binding(ResourceType.TOPIC, "orders", AclOperation.WRITE),
        binding(ResourceType.TOPIC, "orders", AclOperation.READ),
        binding(ResourceType.GROUP, "billing", AclOperation.READ),
    )
    assert produced(guarded, "alice", "orders") is None
    assert consumed(guarded, "alice", "orders", "billing") == b"x"

    assert set(AdminClient(login(guarded, "alice")).list_topics(timeout=TIMEOUT_S).topics) == {
        "orders"
    }
    assert AdminClient(login(guarded, "bob")).list_topics(timeout=TIMEOUT_S).topics == {}
    error = produced(guarded, "bob", "orders")
    assert error is not None
    assert error.code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,  # of the producer id, which comes first
    )
    refusal = consumed(guarded, "bob", "orders", "billing")
    assert isinstance(refusal, KafkaError)
    assert refusal.code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    )
    refusal = consumed(guarded, "alice", "orders", "another-group")
    assert isinstance(refusal, KafkaError)
    assert refusal.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_elections_are_refused_without_rules(guarded: Daemon, admin: AdminClient) -> None:
    """The code of the whole answer is what clients tell; rows of partitions stand beside it."""
    create_topic(admin, "led")
    bob = AdminClient(login(guarded, "bob"))
    for partitions in ([TopicPartition("led", 0)], None):
        with pytest.raises(KafkaException) as refused:
            bob.elect_leaders(ElectionType.PREFERRED, partitions).result(TIMEOUT_S)
        assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_administration_is_refused_without_rules(guarded: Daemon, admin: AdminClient) -> None:
    create_topic(admin, "kept")
    bob = AdminClient(login(guarded, "bob"))
    for future in (
        bob.create_topics([NewTopic("mine", 1)])["mine"],
        bob.delete_topics(["kept"])["kept"],
        *bob.create_acls([binding(ResourceType.TOPIC, "*", AclOperation.ALL, "bob")]).values(),
    ):
        with pytest.raises(KafkaException) as refused:
            future.result(TIMEOUT_S)
        assert refused.value.args[0].code() in (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        )
    grant(admin, binding(ResourceType.TOPIC, "kept", AclOperation.DELETE, "bob"))
    bob.delete_topics(["kept"])["kept"].result(TIMEOUT_S)


def test_confluent_kafka_creates_describes_and_deletes_rules(admin: AdminClient) -> None:
    wanted = [
        binding(ResourceType.TOPIC, "described", operation, "carol")
        for operation in (AclOperation.READ, AclOperation.ALTER_CONFIGS)
    ]
    grant(admin, *wanted)
    anything: Any = None  # of a filter; their types have no word for it
    which = AclBindingFilter(
        ResourceType.ANY,
        anything,
        ResourcePatternType.ANY,
        "User:carol",
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert set(admin.describe_acls(which).result(TIMEOUT_S)) == set(wanted)
    (gone,) = [future.result(TIMEOUT_S) for future in admin.delete_acls([which]).values()]
    assert set(gone) == set(wanted)
    assert admin.describe_acls(which).result(TIMEOUT_S) == []


def test_kafka_python_creates_describes_and_deletes_rules(guarded: Daemon) -> None:
    client = KafkaAdminClient(
        bootstrap_servers=guarded.address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="admin",
        sasl_plain_password=PASSWORD,
    )
    try:
        rule = kafka_python.ACL(
            principal="User:dave",
            host="10.0.0.1",
            operation=kafka_python.ACLOperation.READ,
            permission_type=kafka_python.ACLPermissionType.DENY,
            resource_pattern=kafka_python.ResourcePattern(
                kafka_python.ResourceType.TOPIC,
                "dave-",
                kafka_python.ACLResourcePatternType.PREFIXED,
            ),
        )
        made = client.create_acls([rule])
        assert not made["failed"], made
        which = kafka_python.ACLFilter(
            principal="User:dave",
            host=None,
            operation=kafka_python.ACLOperation.ANY,
            permission_type=kafka_python.ACLPermissionType.ANY,
            resource_pattern=kafka_python.ResourcePatternFilter(
                kafka_python.ResourceType.ANY, None, kafka_python.ACLResourcePatternType.ANY
            ),
        )
        found, _ = client.describe_acls(which)
        assert found == [rule]
        client.delete_acls([which])
        found, _ = client.describe_acls(which)
        assert found == []
    finally:
        client.close()


def test_the_java_client_manages_rules_and_quotas(guarded: Daemon, release_cache: Path) -> None:
    ran = subprocess.run(
        [*program("KafkaClientsSecurity", release_cache), guarded.address, "admin", PASSWORD],
        capture_output=True,
        text=True,
        timeout=START_S,
    )
    assert "all steps done" in ran.stdout, ran.stderr[-3_000:]


def test_librdkafka_hears_of_its_throttling(daemon: Daemon) -> None:
    topic = "throttled"
    with Admin(daemon.address) as ours:
        ours.create_topic(topic, partitions=1, config={"durability": "disk"})
        ours.alter_quotas({"client-id": "heavy"}, {"producer_byte_rate": 50_000})
    heard: list[float] = []
    conf = {"bootstrap.servers": daemon.address, "linger.ms": 0, "batch.size": 20_000}

    def throttled(event: ThrottleEvent) -> None:
        heard.append(event.throttle_time)

    producer = Producer({**conf, "client.id": "heavy", "throttle_cb": throttled})
    began = time.monotonic()
    for _ in range(20):
        producer.produce(topic, b"x" * 10_000)
        producer.poll(0)
    unheard: list[ThrottleEvent] = []
    light = Producer({**conf, "client.id": "light", "throttle_cb": unheard.append})
    light.produce(topic, b"y" * 10_000)
    assert light.flush(TIMEOUT_S) == 0
    assert not unheard, "another client is not held up"
    assert producer.flush(TIMEOUT_S) == 0
    took = time.monotonic() - began
    assert heard
    assert max(heard) > 0
    # 200 kB, a second's worth of which is free, and the last of them is not waited for.
    assert took >= 2
    with Admin(daemon.address) as ours:
        ours.alter_quotas({"client-id": "heavy"}, {"producer_byte_rate": None})
        assert ours.list_quotas({"client-id": "heavy"}) == []
    consumer = Consumer({"bootstrap.servers": daemon.address, "group.id": "unused"})
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)[1] == 21
    consumer.close()
