"""Who may see a group and not join it hears of that in every client, and is in no group."""

import asyncio
import time
from collections.abc import Callable, Iterator

import aiokafka
import pytest
from aiokafka.errors import GroupAuthorizationFailedError as AiokafkaRefused
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaException
from kafka import KafkaConsumer
from kafka.errors import GroupAuthorizationFailedError as KafkaPythonRefused

from segbroker.client import Acl, Admin, Consumer, Security
from segbroker.client.errors import GroupAuthorizationFailed

from ..support.daemon import Daemon
from .guarded_daemon import PASSWORD, running_guarded

USER = "bob"
GROUP, TOPIC = "billing", "orders"
TIMEOUT_S = 60


def security(user: str) -> Security:
    return Security(mechanism="SCRAM-SHA-256", user=user, password=PASSWORD)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_guarded(tmp_path_factory.mktemp("refused")) as daemon:
        with Admin(daemon.address, security=security("admin")) as admin:
            admin.create_topic(TOPIC, partitions=1)
            admin.set_password(USER, PASSWORD)
            principal = f"User:{USER}"
            admin.create_acls(
                [Acl(principal, "read", "topic", TOPIC), Acl(principal, "describe", "group", GROUP)]
            )
        yield daemon


def confluent(protocol: str) -> Callable[[str], object]:
    def read(address: str) -> object:
        consumer = ConfluentConsumer(
            {
                "bootstrap.servers": address,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": USER,
                "sasl.password": PASSWORD,
                "group.id": GROUP,
                "group.protocol": protocol,
            }
        )
        consumer.subscribe([TOPIC])
        try:
            ends = time.monotonic() + TIMEOUT_S
            while time.monotonic() < ends:
                message = consumer.poll(0.2)
                if message is not None and (error := message.error()) is not None:
                    assert "Group authorization failed" in error.str(), error
                    raise KafkaException(error)
        finally:
            consumer.close()
        return None

    return read


def kafka_python(address: str) -> object:
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=address,
        group_id=GROUP,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username=USER,
        sasl_plain_password=PASSWORD,
    )
    try:
        return consumer.poll(timeout_ms=TIMEOUT_S * 1_000)
    finally:
        consumer.close()


def aiokafka_consumer(address: str) -> object:
    async def read() -> object:
        consumer = aiokafka.AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=address,
            group_id=GROUP,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username=USER,
            sasl_plain_password=PASSWORD,
        )
        try:
            await consumer.start()
            return await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
        finally:
            await consumer.stop()

    return asyncio.run(read())


def own(address: str) -> object:
    with Consumer(address, TOPIC, group=GROUP, security=security(USER)) as consumer:
        return next(iter(consumer))


@pytest.mark.parametrize(
    ("read", "refusal"),
    [
        (confluent("classic"), KafkaException),
        (confluent("consumer"), KafkaException),
        (kafka_python, KafkaPythonRefused),
        (aiokafka_consumer, AiokafkaRefused),
        (own, GroupAuthorizationFailed),
    ],
    ids=["confluent classic", "confluent consumer", "kafka-python", "aiokafka", "ours"],
)
def test_who_may_not_join_is_told_so(
    guarded: Daemon, read: Callable[[str], object], refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        read(guarded.address)
    with Admin(guarded.address, security=security("admin")) as admin:
        assert GROUP not in [one.group_id for one in admin.list_groups()]
