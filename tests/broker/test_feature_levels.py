"""Levels of features: told by ApiVersions, not changed by UpdateFeatures."""

from collections.abc import Iterator

import pytest

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import ApiVersionsRequest, ApiVersionsResponse
from segbroker.protocol.messages_placement import (
    UpdateFeaturesRequest,
    UpdateFeaturesRequestFeature,
    UpdateFeaturesResponse,
)

from ..support.wire_client import WireClient, connect
from .conftest import serving

UP, DOWN, UNSAFE = 1, 2, 3
REFUSED = ErrorCode.INVALID_UPDATE_VERSION


async def update(
    client: WireClient, *asked: tuple[str, int, int], version: int = 2, tried: bool = False
) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(
        feature_updates=[
            UpdateFeaturesRequestFeature(
                feature=name,
                max_version_level=level,
                **({"upgrade_type": kind} if version else {"allow_downgrade": kind > UP}),
            )
            for name, level, kind in asked
        ],
        **({"validate_only": tried} if version else {}),
    )
    return await client.ask(request, UpdateFeaturesResponse, version)


async def told(client: WireClient, version: int = 4) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    return await client.ask(request, ApiVersionsResponse, version)


async def levels(client: WireClient) -> dict[str, tuple[int, int, int]]:
    """Of each feature the levels that there are, and that which it has."""
    answer = await told(client)
    there = {row.name: row.max_version_level for row in answer.finalized_features}
    return {
        row.name: (row.min_version, row.max_version, there.get(row.name, 0))
        for row in answer.supported_features
    }


ALL = {
    "group.version": (0, 1, 1),
    "metadata.version": (30, 30, 30),
    "share.version": (0, 1, 1),
    "streams.version": (0, 1, 1),
    "transaction.version": (2, 2, 2),
}


def refusals() -> Iterator[tuple[tuple[str, int, int], str]]:
    yield ("transaction.version", 3, UP), "this broker has levels 2 to 2"
    yield ("transaction.version", 1, DOWN), "this broker has levels 2 to 2"
    yield ("group.version", -1, DOWN), "levels begin with 0"
    yield ("group.version", 0, UP), "at level 1, and no downgrade was asked for"
    yield ("share.version", 0, DOWN), "group_protocols says so"
    yield ("share.version", 0, UNSAFE), "group_protocols says so"
    yield ("metadata.version", 31, UP), "this broker has levels 30 to 30"
    yield ("metadata.version", 29, DOWN), "this broker has levels 30 to 30"
    yield ("kraft.version", 1, UP), "no such feature"
    yield ("no.such", 0, DOWN), "no such feature"


async def test_a_program_that_asks_which_kafka_this_is_like_is_told() -> None:
    """Web interfaces look for the level of metadata.version that is in force: where there is none
    they take the cluster for an ancient one, and offer neither quotas nor changes of rules."""
    async with serving() as broker, connect(broker.address) as client:
        assert (await levels(client))["metadata.version"] == (30, 30, 30), "4.3-IV0"
        assert (await update(client, ("metadata.version", 30, UP))).error_code == 0


async def test_who_asks_in_version_3_is_told_what_it_can_read() -> None:
    """Java's clients before 3.9 do, as web interfaces have them: levels that begin with 0 they
    cannot read (KAFKA-17011), those in force they can, all of them."""
    async with serving() as broker, connect(broker.address) as client:
        answer = await told(client, 3)
    assert {row.name: (row.min_version, row.max_version) for row in answer.supported_features} == {
        name: (low, high) for name, (low, high, _) in ALL.items() if low
    }
    assert {
        row.name: (row.min_version_level, row.max_version_level)
        for row in answer.finalized_features
    } == {name: (level, level) for name, (_, _, level) in ALL.items()}
    assert answer.finalized_features_epoch == 0


async def test_no_level_is_changed_and_the_refusal_says_why() -> None:
    async with serving() as broker, connect(broker.address) as client:
        for asked, why in refusals():
            for tried in (False, True):
                answer = await update(client, asked, tried=tried)
                assert answer.error_code == REFUSED
                said = answer.error_message
                assert said is not None
                assert f"{asked[0]} cannot have level {asked[1]}" in said
                assert why in said
        assert await levels(client) == ALL


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_level_that_there_is_is_done_and_one_error_is_that_of_all(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        as_it_is = [(name, level, UP) for name, (_, _, level) in ALL.items()]
        answer = await update(client, *as_it_is, version=version)
        rows = [(row.feature, row.error_code) for row in answer.results]
        assert (answer.error_code, rows) == (0, [(name, 0) for name in ALL] if version < 2 else [])
        answer = await update(client, *as_it_is, ("share.version", 2, UP), version=version)
        assert (answer.error_code, answer.results) == (REFUSED, [])


async def test_the_first_version_says_a_downgrade_in_its_own_way() -> None:
    async with serving() as broker, connect(broker.address) as client:
        for kind, why in ((UP, "no downgrade was asked for"), (DOWN, "group_protocols")):
            answer = await update(client, ("group.version", 0, kind), version=0)
            assert why in (answer.error_message or "")


async def test_a_protocol_that_is_switched_off_is_a_feature_at_level_0() -> None:
    async with serving(group_protocols="classic") as broker, connect(broker.address) as client:
        off = dict.fromkeys(("group.version", "share.version", "streams.version"), (0, 1, 0))
        switched_off = ALL | off
        assert await levels(client) == switched_off
        assert (await update(client, ("share.version", 0, DOWN))).error_code == 0
        answer = await update(client, ("share.version", 1, UP))
        assert answer.error_code == REFUSED
        assert "it is at level 0: group_protocols says so" in (answer.error_message or "")
        answer = await update(client, ("share.version", 1, DOWN))
        assert "a downgrade was asked for" in (answer.error_message or "")
        answer = await update(client, ("share.version", 1, 9))
        assert "9 is no type of upgrade" in (answer.error_message or "")
        assert await levels(client) == switched_off
