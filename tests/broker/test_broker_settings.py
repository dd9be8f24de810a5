"""Settings of the broker that change while it runs, as a client sees them."""

from pathlib import Path

import pytest
import structlog
import trio

from segbroker.broker.configuration.config import keys
from segbroker.broker.configuration.kafka_settings import KAFKA_SETTINGS
from segbroker.cli.broker_status import concerns
from segbroker.protocol import messages_admin as messages
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.vendor import VendorKey
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata.broker_settings import SET

from ..support.wire_client import Closed, connect
from ..support.wire_consumers import beat, joining
from ..support.wire_settings import (
    APPEND_KEY,
    DEFAULT,
    DELETE_KEY,
    DYNAMIC_BROKER,
    DYNAMIC_DEFAULT,
    DYNAMIC_GROUP,
    DYNAMIC_LOGGER,
    GROUP,
    LOGGER,
    SET_KEY,
    STATIC,
    SUBTRACT_KEY,
    alter,
    alter_all,
    describe,
    replace,
    told,
)
from .conftest import Events, manager, serving

ROOT = Path(__file__).parent.parent.parent
INT, LONG, DOUBLE, LIST = 3, 5, 6, 7
NO_LIST = "Can't APPEND to key slots_max because its type is not LIST."


async def test_a_setting_of_this_broker_hides_that_of_every_broker_and_of_the_start() -> None:
    async with serving(slots_max=500) as broker, connect(broker.address) as client:
        assert told((await describe(client, "1"))["slots_max"]) == (
            "500", STATIC, [("500", STATIC), ("2000", DEFAULT)],
        )  # fmt: skip
        assert await alter(client, "", slots_max="70") == (0, None)
        assert told((await describe(client, "1"))["slots_max"]) == (
            "70", DYNAMIC_DEFAULT, [("70", DYNAMIC_DEFAULT), ("500", STATIC), ("2000", DEFAULT)],
        )  # fmt: skip
        assert await alter(client, "1", slots_max="9") == (0, None)
        assert broker.core.config.slots_max == 9
        row = (await describe(client, "1"))["slots_max"]
        assert told(row)[:2] == ("9", DYNAMIC_BROKER)
        assert [one.source for one in row.synonyms] == [
            DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT,
        ]  # fmt: skip
        assert not row.read_only
        assert await alter(client, "1", slots_max=None) == (0, None)
        assert broker.core.config.slots_max == 70
        assert await alter(client, "", slots_max=None) == (0, None)
        assert broker.core.config.slots_max == 500


async def test_every_broker_is_described_by_what_is_set_there_alone() -> None:
    async with serving() as broker, connect(broker.address) as client:
        assert await describe(client, "") == {}
        assert (await alter(client, "", max__connections="70"))[0] == 0
        rows = await describe(client, "")
        assert {name: row.value for name, row in rows.items()} == {
            "connections_max": "70", "max.connections": "70",
        }  # fmt: skip


async def test_changes_outlive_a_restart_whatever_the_flags_say() -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await alter(client, "1", connections_per_ip_max="2", retention_interval_ms="4000")
        await alter(client, "", num__io__threads="4", quota_requests_per_second="900")
    async with (
        serving(storage=disk, connections_per_ip_max=5) as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
    ):
        rows = await describe(client, "1")
        assert rows["connections_per_ip_max"].value == "2"
        assert rows["num.io.threads"].config_source == DYNAMIC_DEFAULT
        await describe(other, "1")
        async with connect(broker.address) as third:
            with pytest.raises((Closed, trio.BrokenResourceError)):
                await describe(third, "1")
        assert broker.core.quotas is not None
        assert await alter(client, "1", connections_per_ip_max=None) == (0, None)
        async with connect(broker.address) as third:
            assert (await describe(third, "1"))["connections_per_ip_max"].value == "5"


async def test_a_change_is_in_force_when_it_is_answered() -> None:
    async with serving() as broker, connect(broker.address) as client:
        core = broker.core
        await alter(client, "1", quota_requests_per_second="1", auto_create_topics_max="0")
        assert core.quotas is not None
        assert not core.topics.auto_create_room
        await alter(client, "1", quota_requests_per_second=None, ingest_bytes_max="65536")
        assert core.quotas is None
        assert core.ingest.bound == 2 * 65536 + (1 << 20)
        await alter(client, "1", fetch_buffer_bytes_max="1048576", slots_max="3")
        assert core.pool.allowance == 1 << 20
        await alter(client, "1", transactional_ids_max="7", groups_max="8", open_files_max="16")
        assert core.transactions.config.transactional_ids_max == 7
        assert core.groups.config.groups_max == 8
        assert core.topics.manager.files.open_files_max == 16


async def test_a_partition_opened_after_a_change_goes_by_it_as_those_that_were_open() -> None:
    async with serving() as broker, connect(broker.address) as client:
        core = broker.core
        await core.topics.create("t", 2, core.topics.topic_config({}))
        early = await core.topics.open("t", 0)
        await alter(client, "1", producer_id_expiration_ms="5000")
        late = await core.topics.open("t", 1)
        assert early is not None
        assert late is not None
        assert early.handler.producer_expiration_ms == 5_000
        assert late.handler.producer_expiration_ms == 5_000


async def test_a_connection_is_closed_by_a_limit_that_came_after_it() -> None:
    async with (
        serving() as broker,
        connect(broker.address) as client,
        connect(broker.address) as idle,
    ):
        await describe(idle, "1")
        await alter(client, "1", idle_timeout_ms="40")
        with trio.fail_after(60):
            assert await idle.stream.receive_some(1) == b""


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"slots_max": "0"}, "slots_max = 0 is outside [1, 2147483647]"),
        ({"slots_max": "many"}, "'many' is not a whole number"),
        ({"durability": "hope"}, "'hope' is none of fsync, disk, memory, ephemeral"),
        ({"max__connections__per__ip__overrides": "here"}, "'here' is not address:count"),
        ({"lanes": "3"}, "lanes is read at the start"),
        ({"super__users": "User:mallory"}, "super_users is read at the start"),
        ({"slotsmax": "3"}, "no broker setting 'slotsmax'; did you mean slots_max?"),
        (
            {"log__retention__hours": "3"},
            "there is no broker setting 'log.retention.hours': what Kafka calls"
            " log.retention.hours is log_retention_ms here, Kafka's log.retention.ms,"
            " in milliseconds: 10800000",
        ),
        ({"log__roll__hours": "24"}, "Kafka's log.roll.ms, in milliseconds: 86400000"),
        ({"retention__ms": "3"}, "segbroker topic alter NAME -c retention.ms=..."),
        ({"log__retention__ms": "-2"}, "log_retention_ms = -2 is outside [-1, "),
        ({"log__cleanup__policy": "hope"}, "log_cleanup_policy = 'hope' is none of"),
        ({"log__segment__bytes": "600", "message__max__bytes": "700"}, "exceeds segment.bytes=600"),
        ({"num__io__threads": "none"}, "'none' is not a whole number"),
        ({"group_min_session_timeout_ms": "9000000"}, "group_max_session_timeout_ms"),
        ({"durability": "x" * 20_000}, "at most 10000"),
    ],
)
async def test_what_cannot_be_is_refused_in_words_and_changes_nothing(
    values: dict[str, str], words: str
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        for resource in ("", "1"):
            code, message = await alter_all(client, resource, {**values, "handshakes_max": "11"})
            assert code == ErrorCode.INVALID_REQUEST
            assert words in str(message)
        assert broker.core.config == broker.config
        assert await describe(client, "") == {}


async def test_a_change_that_is_only_tried_changes_nothing() -> None:
    async with serving() as broker, connect(broker.address) as client:
        assert await alter_all(client, "1", {"slots_max": "3"}, validate_only=True) == (0, None)
        code, _ = await alter_all(client, "1", {"slots_max": "0"}, validate_only=True)
        assert code == ErrorCode.INVALID_REQUEST
        assert broker.core.config == broker.config


async def test_a_setting_has_one_spelling_whatever_it_is_called() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await alter(client, "1", max__connections="50")
        await alter(client, "1", connections_max="60")
        assert broker.core.config.connections_max == 60
        code, _ = await alter(client, "1", connections_max="1", max__connections="2")
        assert code == ErrorCode.INVALID_REQUEST
        await alter(client, "1", max__connections=None)
        assert broker.core.config == broker.config


async def test_a_value_is_told_as_a_number_whatever_it_was_written_as() -> None:
    written = {"request_bytes_max": "64 MiB", "idle_timeout_ms": "10 s", "audit_allowed": "YES"}
    told_as = {"request_bytes_max": "67108864", "idle_timeout_ms": "10000", "audit_allowed": "true"}
    async with serving() as broker, connect(broker.address) as client:
        for resource in ("", "1"):
            assert await alter_all(client, resource, written) == (0, None)
            rows = await describe(client, resource)
            assert {name: rows[name].value for name in written} == told_as


async def test_a_list_of_the_broker_is_lengthened_and_shortened_as_in_kafka() -> None:
    async with serving() as broker, connect(broker.address) as client:
        for where in ("1", ""):
            for name in ("log__cleanup__policy", "log_cleanup_policy"):
                added = await alter_all(client, where, {name: "compact"}, operation=APPEND_KEY)
                assert added == (0, None)
                row = (await describe(client, where))["log.cleanup.policy"]
                assert (row.value, row.config_type) == ("delete,compact", LIST)
                taken = await alter_all(client, where, {name: "delete"}, operation=SUBTRACT_KEY)
                assert taken == (0, None)
                assert (await describe(client, where))["log.cleanup.policy"].value == "compact"
                assert (await alter_all(client, where, {name: None}))[0] == 0
        code, _ = await alter_all(client, "1", {"log__cleanup__policy": "x"}, operation=APPEND_KEY)
        assert code == ErrorCode.INVALID_REQUEST
        kinds = {name: row.config_type for name, row in (await describe(client, "1")).items()}
        assert kinds["log.cleaner.min.cleanable.ratio"] == DOUBLE
        assert (kinds["log.segment.bytes"], kinds["log.retention.ms"]) == (INT, LONG)


async def test_alter_configs_replaces_all_that_was_set() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await alter(client, "1", slots_max="3", groups_max="4")
        assert await replace(client, "1", groups_max="5") == 0
        assert broker.core.config.slots_max == 2000
        assert broker.core.config.groups_max == 5
        assert await replace(client, "1", no_such="5") == ErrorCode.INVALID_REQUEST
        assert broker.core.config.groups_max == 5


async def test_another_broker_and_another_operation_are_refused() -> None:
    async with serving() as broker, connect(broker.address) as client:
        for name in ("2", "one", "01"):
            code, message = await alter(client, name, slots_max="3")
            assert (code, "no broker" in str(message)) == (ErrorCode.INVALID_REQUEST, True)
        code, message = await alter_all(client, "1", {"slots_max": "3"}, operation=APPEND_KEY)
        assert (code, message) == (ErrorCode.INVALID_CONFIG, NO_LIST)


async def test_read_only_says_what_a_change_would_say() -> None:
    async with serving() as broker, connect(broker.address) as client:
        rows = await describe(client, "1")
        for spec in keys():
            assert rows[spec.name].read_only is not spec.metadata["dynamic"]
            if spec.metadata["secret"]:
                continue
            code, _ = await alter_all(client, "1", {spec.name: rows[spec.name].value or ""})
            expected = 0 if spec.metadata["dynamic"] else ErrorCode.INVALID_REQUEST
            assert code == expected, spec.name
        for name, setting in KAFKA_SETTINGS.items():
            key = name.replace(".", "__")
            assert await alter_all(client, "1", {key: setting.default}) == (0, None)


async def test_the_level_of_the_log_changes_for_good_or_until_the_restart(events: Events) -> None:
    disk = MemoryStorage()
    try:
        async with serving(storage=disk) as broker, connect(broker.address) as client:
            assert (await alter_all(client, "1", {"root": "ERROR"}, kind=LOGGER))[0] == 0
            row = (await describe(client, "1", kind=LOGGER))["root"]
            assert (row.value, row.config_source) == ("ERROR", DYNAMIC_LOGGER)
            assert (row.synonyms, row.config_type) == ([], 0)
            structlog.get_logger().warning("not_told")
            assert (await alter(client, "1", log_level="warning"))[0] == 0
            structlog.get_logger().warning("told")
            structlog.get_logger().info("not_told")
            for key, level in (("root", "LOUD"), ("tree", "INFO")):
                code, _ = await alter_all(client, "1", {key: level}, kind=LOGGER)
                assert code == ErrorCode.INVALID_CONFIG
            for operation in (SET_KEY, DELETE_KEY):
                code, _ = await alter_all(
                    client, "1", {"root": None}, kind=LOGGER, operation=operation
                )
                assert code == ErrorCode.INVALID_REQUEST
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(0))
        async with serving(storage=disk) as broker, connect(broker.address) as client:
            row = (await describe(client, "1", kind=LOGGER))["root"]
            assert row.value == "WARN"
    finally:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(0))
    assert (len(events.named("told")), len(events.named("not_told"))) == (1, 0)


async def test_what_is_stored_and_cannot_be_any_more_is_left_out_and_told(events: Events) -> None:
    disk = MemoryStorage()
    older = manager(disk)
    older.open()
    older.record_now(SET, resource="1", values={"slots_max": "9", "gone": "1", "groups_max": "0"})
    older.close()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        assert broker.core.config.slots_max == 9
        assert broker.core.config.groups_max == 100_000
        said = list(concerns(await client.ask_vendor(VendorKey.SERVER_INFO, {})))
        assert said[0].startswith("gone = 1, set while the broker ran, has no effect: ")
        assert said[1].startswith("groups_max = 0, set while the broker ran, has no effect: ")
        assert len(said) == 2
        assert [event["key"] for event in events.named("setting_ignored")] == ["gone", "groups_max"]
        assert (await alter(client, "1", gone=None, groups_max=None))[0] == 0
        assert not list(concerns(await client.ask_vendor(VendorKey.SERVER_INFO, {})))


async def test_what_is_stored_and_cannot_be_any_more_can_be_repaired_in_any_order() -> None:
    disk = MemoryStorage()
    older = manager(disk)
    older.open()
    older.record_now(SET, resource="", values={"gone": "1", "slots_max": "many"})
    older.record_now(SET, resource="1", values={"lost": "1", "groups_max": "0"})
    older.close()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        stored = await describe(client, "")
        assert {name: one.value for name, one in stored.items()} == {
            "gone": "1", "slots_max": "many",
        }  # fmt: skip
        assert told((await describe(client, "1"))["slots_max"]) == (
            "2000", DEFAULT, [("2000", DEFAULT)],
        )  # fmt: skip
        assert told((await describe(client, "1"))["lost"]) == (
            "1", DYNAMIC_BROKER, [("1", DYNAMIC_BROKER)],
        )  # fmt: skip
        assert await alter(client, "1", connections_per_ip_max="7") == (0, None)
        assert (await alter(client, "1", gone="1"))[0] == ErrorCode.INVALID_REQUEST
        assert (await alter(client, "1", groups_max="-1"))[0] == ErrorCode.INVALID_REQUEST
        assert await alter(client, "1", groups_max="9") == (0, None)
        assert await alter(client, "", slots_max=None) == (0, None)
        assert await alter(client, "", gone=None) == (0, None)
        assert await alter(client, "1", lost=None) == (0, None)
        config = broker.core.config
        assert (config.connections_per_ip_max, config.groups_max) == (7, 9)
        assert dict(broker.core.settings.set_on("")) == {}


async def test_no_connection_from_anywhere_is_no_limit_unless_some_addresses_have_their_own() -> (
    None
):
    async with serving() as broker, connect(broker.address) as client:
        assert (await alter(client, "1", connections_per_ip_max="0"))[
            0
        ] == ErrorCode.INVALID_REQUEST
        overrides = "127.0.0.1:9"
        assert await alter(client, "1", connections_per_ip_overrides=overrides) == (0, None)
        assert await alter(client, "1", connections_per_ip_max="0") == (0, None)


async def test_a_change_that_is_not_durable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    async with serving(storage=storage) as broker, connect(broker.address) as client:
        before = broker.core.config
        with monkeypatch.context() as patched:
            patched.setattr(broker.core.topics.manager, "record_soon", _fails)
            code, _ = await alter(client, "1", slots_max="3")
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.core.config == before


def _fails(done: object, kind: str, **fields: object) -> None:
    assert callable(done)
    done(OSError(28, "no space left"))


def test_the_page_says_which_settings_can_change() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text().partition("## Topic settings")[0]
    for spec in keys():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{spec.name}` |"))
        changes = "running" if spec.metadata["dynamic"] else "start"
        assert row.split(" | ")[4] == changes, spec.name
    for name in KAFKA_SETTINGS:
        assert f"`{name}`" in page


async def test_a_group_goes_by_its_own_times_at_once_and_after_a_restart() -> None:
    disk = MemoryStorage()
    session, interval = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        member = await beat(client, joining())
        assert member.heartbeat_interval_ms == 5_000
        values = {session: "50000", interval: "700"}
        assert await alter_all(client, "g", values, kind=GROUP) == (0, None)
        again = await beat(client, joining(member_epoch=member.member_epoch, topic_partitions=None))
        assert again.heartbeat_interval_ms == 700
        group = broker.core.groups.get_consumer("g")
        assert group is not None
        assert group.session_timeout_ms == 50_000
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        rows = await describe(client, "g", kind=GROUP)
        assert told(rows[session]) == (
            "50000", DYNAMIC_GROUP, [("50000", DYNAMIC_GROUP), ("45000", DEFAULT)],
        )  # fmt: skip
        member = await beat(client, joining())
        assert member.heartbeat_interval_ms == 700
        listed = await client.ask(
            messages.ListConfigResourcesRequest(resource_types=[GROUP]),
            messages.ListConfigResourcesResponse,
            1,
        )
        assert [row.resource_name for row in listed.config_resources] == ["g"]
        assert await alter_all(client, "g", {session: None, interval: None}, kind=GROUP) == (
            0,
            None,
        )
        rows = await describe(client, "g", kind=GROUP)
        assert told(rows[interval])[:2] == ("5000", DEFAULT)


async def test_a_member_is_asked_to_be_heard_of_before_its_session_ends() -> None:
    session, interval = "consumer.session.timeout.ms", "group_consumer_heartbeat_interval_ms"
    async with serving() as broker, connect(broker.address) as client:
        assert (await alter(client, "", **{interval: "45000"}))[0] == ErrorCode.INVALID_REQUEST
        assert await alter_all(client, "g", {session: "6000"}, kind=GROUP) == (0, None)
        assert await alter(client, "", **{interval: "10000"}) == (0, None)
        assert (await beat(client, joining())).heartbeat_interval_ms == 2_000


async def test_the_pause_between_assignments_is_taken_and_shown_as_by_kafka_4_3() -> None:
    async with serving() as broker, connect(broker.address) as client:
        for kind in ("consumer", "share", "streams"):
            key = f"{kind}.assignment.interval.ms"
            default = ("1000", DEFAULT)
            assert told((await describe(client, "g", kind=GROUP))[key]) == (*default, [default])
            assert await alter_all(client, "1", {f"group.{key}": "500"}) == (0, None)
            assert await alter_all(client, "g", {key: "0"}, kind=GROUP) == (0, None)
            row = (await describe(client, "g", kind=GROUP))[key]
            own, below = ("0", DYNAMIC_GROUP), ("500", DYNAMIC_BROKER)
            assert told(row) == (*own, [own, below, default])
            assert row.synonyms[1].name == f"group.{key}"


@pytest.mark.parametrize(
    ("name", "values", "code"),
    [
        ("g", {"consumer.session.timeout.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ("g", {"consumer.session.timeout.ms": "0"}, ErrorCode.INVALID_CONFIG),
        ("g", {"consumer.session.timeout.ms": "5000"}, ErrorCode.INVALID_CONFIG),
        ("g", {"consumer.heartbeat.interval.ms": "45000"}, ErrorCode.INVALID_CONFIG),
        ("g", {"consumer.session.timeout.ms": "9" * 5_000}, ErrorCode.INVALID_CONFIG),
        ("g", {"streams.session.timeout.ms": "0"}, ErrorCode.INVALID_CONFIG),
        ("g", {"share.assignment.interval.ms": "15001"}, ErrorCode.INVALID_CONFIG),
        ("", {"consumer.session.timeout.ms": "50000"}, ErrorCode.INVALID_REQUEST),
        ("g" * 1_001, {"consumer.session.timeout.ms": "50000"}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_a_group_cannot_go_by_is_refused(
    name: str, values: dict[str, str], code: ErrorCode
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        for validate_only in (True, False):
            answer = await alter_all(client, name, values, kind=GROUP, validate_only=validate_only)
            assert answer[0] == code
        assert list(broker.core.group_settings.groups()) == []
