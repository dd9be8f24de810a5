"""Which user the subject of a client's certificate is."""

from pathlib import Path

import pytest

from segbroker.broker.configuration.config import InvalidConfig, merge
from segbroker.broker.configuration.subject_rules import parse_rules, user_of
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

from ..support.certificates import Authority
from .authorization_case import GROUP, READ, TOPIC
from .conftest import Events
from .guarded import allow, rule
from .test_tls import connect_tls, is_served, protected, trusting


@pytest.mark.parametrize(
    ("rules", "subject", "user"),
    [
        ("DEFAULT", "CN=alice,O=x", "CN=alice,O=x"),
        ("", "CN=alice,O=x", "CN=alice,O=x"),
        # Those of Kafka's own tests.
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", "CN=kafka-Svc,OU=ServiceUsers", "kafka-svc"),
        (
            "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,"
            " RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
            " RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT",
            "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
            "adminuser@admin",
        ),
        ("RULE:^.*[Cc][Nn]=([a-z0-9.]*).*$/$1/U, DEFAULT", "cn=test1,ou=,dc=,dc=,dc=", "TEST1"),
        ("RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/", "CN=x,OU=y", "x"),
        (r"RULE:^\/CN=(.*?)$/$1/", "/CN=x", "x"),
        (r"RULE:^CN=(.*?)$/a\/$1\$1$7/", "CN=x", "a/x$1$7"),
        ("RULE:CN=(.*)/$12$0/", "CN=x", "$12CN=x"),
        ("RULE:(.*)(y)?/$1$2/", "CN=x", "CN=x"),
        # Of the whole subject.
        ("RULE:CN=alice/root/", "CN=alice,O=evil", None),
        ("RULE:CN=(.*?),O=us/$1/, RULE:^CN=(b.*)$/$1/U", "CN=alice,O=them", None),
        ("RULE:CN=(.*?),O=us/$1/, RULE:^CN=(b.*)$/$1/U", "CN=bob", "BOB"),
    ],
)
def test_the_first_rule_that_matches_says_the_name(
    rules: str, subject: str, user: str | None
) -> None:
    assert user_of(subject, rules) == user


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT,foo",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/LU",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L RULE:x/y/",
        "RULE:^CN=(.*$/$1/",
        "RULE:^CN=(.*)$/${name}/",
    ],
)
def test_what_is_no_rule_is_an_error_of_the_start(rules: str) -> None:
    with pytest.raises(InvalidConfig, match="ssl_principal_mapping_rules"):
        parse_rules(rules)
    with pytest.raises(InvalidConfig, match="ssl_principal_mapping_rules"):
        merge({"ssl_principal_mapping_rules": rules})


async def test_who_shows_a_certificate_is_the_user_whom_the_rules_name(
    tmp_path: Path, events: Events
) -> None:
    authority = Authority(tmp_path)
    keys = {
        "ssl_client_auth": "required",
        "ssl_ca": str(authority.file),
        "ssl_principal_mapping_rules": "RULE:^.*CN=(a[^,]*).*$/$1/U",
    }
    async with protected(authority, **keys) as broker:
        alice = trusting(authority, authority.client("alice", "Wonder, Land"))
        async with connect_tls(broker, alice) as client:
            assert await is_served(client)
            assert {str(one.peer.principal) for one in broker._connections} == {"User:ALICE"}
        bob = trusting(authority, authority.client("bob"))
        async with connect_tls(broker, bob) as client:
            assert not await is_served(client)
    (line,) = events.named("tls_handshake_failed")
    assert "no rule of ssl_principal_mapping_rules is about" in line["error"]
    assert "CN=bob" in line["error"]


def test_a_listener_may_have_rules_of_its_own() -> None:
    told = {
        "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:0",
        "listener_security_protocol_map": "IN:SSL,OUT:SSL",
        "ssl_certificate": "c.pem",
    }
    config = merge({**told, "listener_name_out_ssl_principal_mapping_rules": "RULE:x/y/"})
    assert config.of_listener("OUT", "ssl_principal_mapping_rules") == "RULE:x/y/"
    assert config.of_listener("IN", "ssl_principal_mapping_rules") == "DEFAULT"
    own = "^listener_name_out_ssl_principal_mapping_rules: 'x' is neither DEFAULT nor"
    with pytest.raises(InvalidConfig, match=own):
        merge({**told, "listener_name_out_ssl_principal_mapping_rules": "x"})


async def test_whom_the_rules_give_an_empty_name_may_subscribe_by_an_expression(
    tmp_path: Path, events: Events
) -> None:
    authority = Authority(tmp_path)
    keys = {
        "ssl_client_auth": "required",
        "ssl_ca": str(authority.file),
        "ssl_principal_mapping_rules": "RULE:^.*CN=([A-Z]*).*$/$1/",
        "authorizer": "acl",
    }
    async with protected(authority, **keys) as broker:
        for kind, name in ((GROUP, "g"), (TOPIC, "t")):
            await allow(broker, rule(READ, kind, name, principal="User:*"))
        nobody = trusting(authority, authority.client("alice"))
        async with connect_tls(broker, nobody) as client:
            request = ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="member",
                member_epoch=0,
                rebalance_timeout_ms=1_000,
                subscribed_topic_regex=".*",
                topic_partitions=[],
            )
            reply = await client.ask(request, ConsumerGroupHeartbeatResponse, 1)
            assert {str(one.peer.principal) for one in broker._connections} == {"User:"}
    assert reply.error_code == 0
    assert not events.named("request_failed")
