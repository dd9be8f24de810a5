"""A broker that nobody can use says so when it starts, and what to do."""

from typing import Any, Final

import pytest

from segbroker.protocol.acls import Operation, PatternType, Permission, ResourceType
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata.acls import CREATED, Acl

from .conftest import Events, serving

SASL: Final[dict[str, Any]] = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
RULES: Final[dict[str, Any]] = {"authorizer": "acl"}
TOKENS: Final[dict[str, Any]] = {
    "sasl_mechanisms": "PLAIN,OAUTHBEARER",
    "sasl_oauthbearer_jwks_endpoint_url": "http://127.0.0.1:1/keys",
    "sasl_oauthbearer_expected_issuer": "issuer",
    "sasl_oauthbearer_expected_audience": "segbroker",
}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, []),
        (SASL, ["nobody_can_log_in"]),
        ({**SASL, "initial_user": "a", "initial_password": "b"}, []),
        ({**SASL, **TOKENS}, []),  # whoever has a token can
        (RULES, ["nobody_is_allowed"]),
        ({**RULES, "super_users": "User:admin"}, []),
        ({**RULES, "allow_everyone_if_no_acl_found": True}, []),
        ({**SASL, **RULES}, ["nobody_can_log_in", "nobody_is_allowed"]),
    ],
)
async def test_what_nobody_can_do_is_told_with_what_to_do(
    events: Events, settings: dict[str, Any], told: list[str]
) -> None:
    async with serving(**settings):
        pass
    warned = [event for event in events if event["event"].startswith("nobody_")]
    assert [event["event"] for event in warned] == told
    assert all(event["level"] == "warning" and event["advice"] for event in warned)


async def test_a_rule_is_enough(events: Events) -> None:
    disk = MemoryStorage()
    rule = Acl(
        ResourceType.TOPIC,
        "t",
        PatternType.LITERAL,
        "User:a",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )
    async with serving(storage=disk, **RULES) as broker:
        broker.core.topics.manager.record_now(CREATED, rows=[list(rule)])
    events.clear()
    async with serving(storage=disk, **RULES):
        pass
    assert not events.named("nobody_is_allowed")
