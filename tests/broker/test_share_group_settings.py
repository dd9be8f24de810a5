"""Settings of share groups, as a client sees them and as the parts of the broker read them."""

import pytest

from segbroker.broker.configuration.config import BrokerConfig, InvalidConfig
from segbroker.broker.groups import group_keys
from segbroker.broker.groups.share_reset import parse_reset
from segbroker.protocol.errors import ErrorCode
from segbroker.segments.disk.memory import MemoryStorage

from ..support.wire_client import connect
from ..support.wire_settings import DEFAULT, DYNAMIC_GROUP, GROUP, alter, alter_all, describe, told
from .conftest import serving

HOUR_MS = 60 * 60 * 1000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latest", "latest"),
        ("earliest", "earliest"),
        ("by_duration:PT1H", HOUR_MS),
        ("by_duration:P1DT2H3M4.5S", 26 * HOUR_MS + 3 * 60_000 + 4_500),
        ("by_duration:p2d", 48 * HOUR_MS),
        ("by_duration:PT0S", 0),
        ("by_duration:PT1H-30M", HOUR_MS // 2),
        ("by_duration:-PT-1H", HOUR_MS),
        ("by_duration:PT1,25S", 1_250),
        ("by_duration:PT1.S", 1_000),
    ],
)
def test_where_a_share_group_begins_is_an_end_or_an_age(text: str, expected: str | int) -> None:
    assert parse_reset(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "none",
        "LATEST",
        "by_duration",
        "by_duration:",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:P1DT",
        "by_duration:P1Y",
        "by_duration:-PT1S",
        "by_duration:PT-1S",
        "by_duration:1H",
        "by_duration:PT1H ",
        "by_duration:P" + "9" * 30 + "D",
    ],
)
def test_any_other_beginning_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"by_duration:PnDTnHnMn\.nS"):
        parse_reset(text)


DEFAULTS = {
    "share.session.timeout.ms": "45000",
    "share.heartbeat.interval.ms": "5000",
    "share.record.lock.duration.ms": "30000",
    "share.delivery.count.limit": "5",
    "share.partition.max.record.locks": "2000",
    "share.auto.offset.reset": "latest",
    "share.isolation.level": "read_uncommitted",
    "share.renew.acknowledge.enable": "true",
}
OTHERS = {
    "share.session.timeout.ms": "50000",
    "share.heartbeat.interval.ms": "6000",
    "share.record.lock.duration.ms": "15000",
    "share.delivery.count.limit": "10",
    "share.partition.max.record.locks": "100",
    "share.auto.offset.reset": "by_duration:PT1H",
    "share.isolation.level": "read_committed",
    "share.renew.acknowledge.enable": "False",
}


async def test_a_share_group_goes_by_its_own_settings_at_once_and_after_a_restart() -> None:
    disk = MemoryStorage()
    kept = OTHERS | {"share.renew.acknowledge.enable": "false"}
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        rows = await describe(client, "g", kind=GROUP)
        for name, value in DEFAULTS.items():
            assert told(rows[name])[:2] == (value, DEFAULT)
        assert await alter_all(client, "g", OTHERS, kind=GROUP) == (0, None)
        settings = broker.core.group_settings
        assert {name: settings.text_in_force("g", name) for name in kept} == kept
        assert {name: settings.text_in_force("other", name) for name in kept} == DEFAULTS
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        rows = await describe(client, "g", kind=GROUP)
        for name, value in kept.items():
            assert told(rows[name]) == (
                value,
                DYNAMIC_GROUP,
                [(value, DYNAMIC_GROUP), (DEFAULTS[name], DEFAULT)],
            )
        in_force = broker.core.group_settings.in_force
        assert in_force("g", group_keys.SHARE_RECORD_LOCK) == 15_000
        assert await alter_all(client, "g", dict.fromkeys(OTHERS), kind=GROUP) == (0, None)
        assert in_force("g", group_keys.SHARE_RECORD_LOCK) == 30_000


async def test_share_groups_without_settings_of_their_own_go_by_those_of_the_broker() -> None:
    async with serving() as broker, connect(broker.address) as client:
        changed = {"group.share.record.lock.duration.ms": "20000"}
        assert await alter_all(client, "", changed) == (0, None)
        assert broker.core.group_settings.in_force("g", group_keys.SHARE_RECORD_LOCK) == 20_000
        assert await alter_all(client, "g", {"share.session.timeout.ms": "6000"}, kind=GROUP) == (
            0,
            None,
        )
        assert await alter(client, "", group_share_heartbeat_interval_ms="10000") == (0, None)
        # Below the session of the group, or its members would be lost for it.
        assert broker.core.group_settings.in_force("g", group_keys.SHARE_HEARTBEAT) == 2_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.session.timeout.ms", "5000"),
        ("share.heartbeat.interval.ms", "45000"),
        ("share.record.lock.duration.ms", "999"),
        ("share.record.lock.duration.ms", "3600001"),
        ("share.delivery.count.limit", "1"),
        ("share.delivery.count.limit", "26"),
        ("share.partition.max.record.locks", "99"),
        ("share.partition.max.record.locks", "10001"),
        ("share.auto.offset.reset", "none"),
        ("share.isolation.level", "READ_COMMITTED"),
        ("share.renew.acknowledge.enable", "yes"),
        ("share.assignors", "simple"),
    ],
)
async def test_what_a_share_group_cannot_go_by_is_refused(name: str, value: str) -> None:
    async with serving() as broker, connect(broker.address) as client:
        code, message = await alter_all(client, "g", {name: value}, kind=GROUP)
        assert code == ErrorCode.INVALID_CONFIG
        assert message is not None
        assert name in message
        assert list(broker.core.group_settings.groups()) == []


def test_an_interval_of_share_groups_is_below_their_session() -> None:
    with pytest.raises(InvalidConfig, match="group_share_heartbeat_interval_ms=5000"):
        BrokerConfig(group_share_session_timeout_ms=5_000)
