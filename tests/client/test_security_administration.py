"""Access rules and quotas through our own admin clients, blocking and on both event loops."""

from collections.abc import Callable
from typing import Any

import pytest

from segbroker.broker.apis import user_apis
from segbroker.broker.refused import Refused
from segbroker.client import (
    Acl,
    AclFilter,
    Admin,
    AsyncAdmin,
    BrokerUnreachable,
    ConnectionLost,
    Quota,
)
from segbroker.client.errors import InvalidRequest, SecurityDisabled
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.testing.embedded import EmbeddedBroker

from ..support.cutting_proxy import CuttingProxy
from ..support.ports import keep_port

READ = Acl("User:alice", "read", "topic", "flights", pattern="prefixed")
DENY = Acl("User:*", "all", "topic", "secret", host="10.0.0.1", permission="deny")


def test_rules_are_created_found_by_what_they_concern_and_deleted() -> None:
    with (
        EmbeddedBroker(authorizer="acl", super_users="User:ANONYMOUS") as broker,
        Admin(broker.address) as admin,
    ):
        admin.create_acls([READ, DENY, READ])
        assert admin.list_acls() == sorted([READ, DENY])
        concerning = AclFilter(resource_type="topic", resource_name="flights-eu", pattern="match")
        assert admin.list_acls(concerning) == [READ]
        assert admin.list_acls(AclFilter(permission="deny")) == [DENY]
        with pytest.raises(InvalidRequest, match="kafka-cluster"):
            admin.create_acls([Acl("User:a", "alter", "cluster", "another")])
        with pytest.raises(ValueError, match="none of"):
            admin.create_acls([Acl("User:a", "fly", "topic", "t")])
        assert admin.delete_acls(AclFilter(principal="User:alice")) == [READ]
        assert admin.list_acls() == [DENY]


def test_without_an_authorizer_there_are_no_rules() -> None:
    with (
        EmbeddedBroker() as broker,
        Admin(broker.address) as admin,
        pytest.raises(SecurityDisabled),
    ):
        admin.list_acls()


async def test_quotas_and_rules_on_an_event_loop() -> None:
    with EmbeddedBroker(authorizer="acl", super_users="User:ANONYMOUS") as broker:
        async with AsyncAdmin(broker.address) as admin:
            await admin.create_acls([READ])
            assert await admin.list_acls() == [READ]
            assert await admin.delete_acls(AclFilter()) == [READ]
            await admin.alter_quotas({"user": "alice"}, {"producer_byte_rate": 1e6})
            await admin.alter_quotas({"user": None}, {"consumer_byte_rate": 5})
            assert await admin.list_quotas({"user": "alice"}) == [
                Quota({"user": "alice"}, {"producer_byte_rate": 1e6})
            ]
            assert len(await admin.list_quotas()) == 2
            await admin.alter_quotas({"user": "alice"}, {"producer_byte_rate": None})
            assert await admin.list_quotas({"user": "alice"}) == []


QUESTIONS: list[Callable[[Admin], object]] = [
    Admin.list_acls,
    Admin.list_quotas,
    Admin.list_users,
    lambda admin: admin.describe_broker(None),
    lambda admin: admin.describe_broker(1),
    Admin.list_groups,
    lambda admin: admin.cleanings("t"),
    lambda admin: admin.describe_topic("t"),
    Admin.describe_cluster,
]


def test_every_question_is_asked_again_when_its_connection_breaks() -> None:
    port = keep_port()
    with (
        CuttingProxy(("127.0.0.1", port)) as proxy,
        EmbeddedBroker(
            listen=f"127.0.0.1:{port}",
            advertised=proxy.address,
            authorizer="acl",
            super_users="User:ANONYMOUS",
        ) as broker,
        Admin(proxy.address) as admin,
    ):
        broker.create_topic("t")
        for ask in QUESTIONS:
            before = proxy.cuts
            # The api versions pass, the answer does not; the third connection lives.
            proxy.cut_replies(1, 1)
            proxy.cut_all()
            ask(admin)
            # Two, unless the client gave one of the connections up: on a machine that stalls.
            assert proxy.cuts > before


def test_a_group_that_was_deleted_is_not_said_to_be_unknown_when_the_answer_is_lost() -> None:
    port = keep_port()
    with (
        CuttingProxy(("127.0.0.1", port)) as proxy,
        EmbeddedBroker(listen=f"127.0.0.1:{port}", advertised=proxy.address) as broker,
        Admin(proxy.address) as admin,
    ):
        broker.create_topic("t")
        admin.commit("g", {("t", 0): 0})
        proxy.cut_reply_to(ApiKey.DELETE_GROUPS)
        with pytest.raises(ConnectionLost):
            admin.delete_group("g")
        assert proxy.cuts == 1
        assert admin.list_groups() == []


def test_users_of_a_broker_that_takes_a_user_once_in_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Apache Kafka: tests/system/test_our_client_on_apache_kafka.py asks a real one."""
    wanted = user_apis._wanted

    def once(known: Any, name: str, change: user_apis._Change, *, has_room: bool) -> Any:  # noqa: ANN401
        if len(change.deletions) + len(change.upsertions) > 1:
            raise Refused(ErrorCode.DUPLICATE_RESOURCE, user_apis._ALTERED_TWICE)
        return wanted(known, name, change, has_room=has_room)

    monkeypatch.setattr(user_apis, "_wanted", once)
    with EmbeddedBroker() as broker, Admin(broker.address) as admin:
        admin.set_password("alice", "wonderland", iterations=4_096)
        both = {"SCRAM-SHA-256": 4_096, "SCRAM-SHA-512": 4_096}
        assert [(one.name, dict(one.iterations)) for one in admin.list_users()] == [("alice", both)]
        admin.delete_user("alice")
        assert admin.list_users() == []


def test_the_settings_of_a_broker_that_is_not_there_are_not_waited_for() -> None:
    with (
        EmbeddedBroker() as broker,
        Admin(broker.address) as admin,
        pytest.raises(BrokerUnreachable, match="broker 7"),
    ):
        admin.describe_broker(7)
