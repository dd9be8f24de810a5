"""Share groups as Java's Admin sees them, and who may do what."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ..support.certificates import Authority
from ..support.daemon import running
from .java_shares import JavaShares, Refused
from .share_scenes import EXPLICIT, fill, from_start, taken_all, topic, values

PASSWORD = "correct horse"


def test_admin(java: JavaShares, bootstrap: str, name: str) -> None:
    topic(bootstrap, name)
    from_start(java, name)
    fill(bootstrap, name, range(10), per_batch=5)
    consumer = java.consumer(f"{name}-a", name, name, **EXPLICIT)
    taken_all(consumer, 10)
    assert java.state(name) == "Stable"
    assert java.members(name) == {f"{name}-a": [f"{name}-0"]}
    assert ["group", name, "Share", "Stable", "share"] in java.tell("list")
    for words in (("alter", name, name, 0, 3), ("forget", name, name), ("delete", name)):
        with pytest.raises(Refused) as refused:
            java.tell(*words)
        assert refused.value.name == "GroupNotEmptyException", words
    consumer.close()
    assert java.state(name) == "Empty"
    assert java.lag(name, name) == 0
    java.tell("alter", name, name, 0, 7)
    assert java.offsets(name) == {(name, 0): (7, 3)}
    consumer = java.consumer(f"{name}-b", name, name, **EXPLICIT)
    assert values(taken_all(consumer, 3)) == [7, 8, 9]
    consumer.close()
    java.tell("forget", name, name)
    assert java.offsets(name) == {}
    java.tell("delete", name)
    with pytest.raises(Refused, match="GroupIdNotFoundException"):
        java.tell("describe", name)


def test_a_group_is_of_one_kind(java: JavaShares, bootstrap: str, name: str) -> None:
    topic(bootstrap, name)
    with_offsets = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    with_offsets.commit(offsets=[TopicPartition(name, 0, 0)], asynchronous=False)
    with_offsets.close()
    consumer = java.consumer(f"{name}-a", name, name)
    with pytest.raises(Refused, match="GroupIdNotFoundException"):
        consumer.nothing_for(100)


class Guarded(NamedTuple):
    """A broker with access rules, by TLS and logins.

    Attributes:
        plain: the address of who may do everything.
        alice: the address of who may do what rules say, and the settings that she logs in with.
    """

    plain: str
    alice: tuple[str, dict[str, object]]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    authority = Authority(folder)
    flags = (
        "--listeners=PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        f"--ssl-certificate={authority.server()}",
        "--authorizer=acl",
        "--super-users=User:ANONYMOUS",
    )
    with running(folder / "data", *flags) as daemon:
        found = re.search(r'"SASL_SSL://([^"]+)"', daemon.log.read_text())
        assert found is not None
        admin = AdminClient({"bootstrap.servers": daemon.address})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        wanted = UserScramCredentialUpsertion("alice", info, PASSWORD.encode())
        admin.alter_user_scram_credentials([wanted])["alice"].result(60)
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        settings: dict[str, object] = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{module} required username="alice" password="{PASSWORD}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": authority.file,
        }
        yield Guarded(daemon.address, (found[1], settings))


def grant(address: str, kind: ResourceType, name: str, operation: AclOperation) -> None:
    """A rule that lets alice do something."""
    rule = AclBinding(
        kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_acls([rule]).values():
        future.result(60)


def test_by_tls_and_as_rules_say(guarded: Guarded, release_cache: Path) -> None:
    name, address = "of-alice", guarded.plain
    topic(address, name)
    fill(address, name, range(3))
    with JavaShares(address, release_cache) as java:
        from_start(java, name)
    place, settings = guarded.alice
    with JavaShares(place, release_cache, settings) as alice:

        def refused(*words: object) -> str:
            with pytest.raises(Refused) as exc:
                alice.tell(*words)
            return exc.value.name

        consumer = alice.consumer("a", name, name)
        with pytest.raises(Refused, match="TopicAuthorizationException"):
            consumer.nothing_for(100)
        consumer.close()
        grant(address, ResourceType.TOPIC, name, AclOperation.READ)
        consumer = alice.consumer("b", name, name)
        with pytest.raises(Refused, match="GroupAuthorizationException"):
            consumer.nothing_for(100)
        consumer.close()
        assert refused("describe", name) == "GroupAuthorizationException"
        grant(address, ResourceType.GROUP, name, AclOperation.READ)
        consumer = alice.consumer("c", name, name, **EXPLICIT)
        assert values(taken_all(consumer, 3)) == [0, 1, 2]
        assert alice.members(name)["c"] == [f"{name}-0"]
        assert alice.lag(name, name) == 0
        consumer.close()
        alice.tell("alter", name, name, 0, 1)
        assert refused("set", name, "share.auto.offset.reset=latest") == (
            "GroupAuthorizationException"
        )
        assert refused("forget", name, name) == "GroupAuthorizationException"
        assert refused("delete", name) == "GroupAuthorizationException"
        grant(address, ResourceType.GROUP, name, AclOperation.DELETE)
        alice.tell("forget", name, name)
        alice.tell("delete", name)
