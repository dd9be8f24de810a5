"""The level of the log, and settings that are only tried, cannot be stored, or have no room."""

import errno

import pytest

from segbroker.broker.groups import group_settings
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
    AlterConfigsResponse,
)

from ..support.gated_storage import GatedStorage
from ..support.wire_client import WireClient, connect
from ..support.wire_settings import alter, alter_all
from .conftest import Events, serving
from .test_settings_apis import describe

LOGGER, GROUP = 8, 32
SET, DELETE, APPEND = 0, 1, 2
INVALID, WRONG = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG


async def level(client: WireClient) -> str | None:
    (row,) = (await describe(client, LOGGER, "1")).results
    (one,) = row.configs
    assert one.name == "root"
    return one.value


async def test_the_level_of_the_log_is_set_by_its_name_and_not_by_trying() -> None:
    async with serving() as broker, connect(broker.address) as client:
        before = await level(client)
        assert before not in (None, "WARN")

        async def set_to(
            value: str | None,
            *,
            operation: int = SET,
            name: str = "root",
            of: str = "1",
            validate_only: bool = False,
        ) -> int:
            code, _ = await alter_all(
                client,
                of,
                {name: value},
                kind=LOGGER,
                operation=operation,
                validate_only=validate_only,
            )
            return code

        assert await set_to("WARN", validate_only=True) == 0
        assert await set_to("WARN", of="7") == INVALID
        assert await set_to("WARN", name="kafka.server") == WRONG
        assert await set_to("LOUD") == WRONG
        assert await set_to(None) == INVALID
        for operation in (DELETE, APPEND):
            assert await set_to("WARN", operation=operation) == INVALID
        replaced = AlterConfigsRequest(
            resources=[
                AlterConfigsRequestResource(
                    resource_type=LOGGER,
                    resource_name="1",
                    configs=[AlterConfigsRequestConfig(name="root", value="WARN")],
                )
            ],
            validate_only=False,
        )
        (row,) = (await client.ask(replaced, AlterConfigsResponse, 1)).responses
        assert row.error_code == INVALID
        assert await level(client) == before
        assert await set_to("WARN") == 0
        assert await level(client) == "WARN"


async def test_settings_that_could_not_be_stored_are_not_in_force_nor_in_the_log(
    events: Events,
) -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        disk.sync_error = OSError(errno.EIO, "the disk is broken")
        code, _ = await alter(client, "1", connections_max="77")
        of_group, _ = await alter_all(
            client, "g", {"consumer__session__timeout__ms": "50000"}, kind=GROUP
        )
        disk.sync_error = None
        assert code
        assert of_group
        assert broker.core.config.connections_max != 77
        assert not broker.core.group_settings.set_on("g")
    assert not events.named("settings_changed")
    assert not events.named("group_settings_changed")


async def test_so_many_groups_have_settings_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_settings, "GROUPS_MAX", 1)
    async with serving() as broker, connect(broker.address) as client:

        async def set_on(group: str, value: str | None) -> int:
            values = {"consumer__session__timeout__ms": value}
            return (await alter_all(client, group, values, kind=GROUP))[0]

        assert await set_on("g", "50000") == 0
        assert await set_on("h", "50000") == ErrorCode.POLICY_VIOLATION
        assert await set_on("g", "55000") == 0
        assert await set_on("g", None) == 0
        assert await set_on("h", "50000") == 0
        assert await set_on("", "50000") == INVALID
        (row,) = (await describe(client, GROUP, "")).results
        assert row.error_code == INVALID
