"""Few file descriptors: how they are divided, and who is refused then."""

from pathlib import Path

import pytest
import trio

from segbroker.broker.configuration.config import merge
from segbroker.broker.configuration.descriptors import NO_LIMIT, divide
from segbroker.protocol.messages_core import MetadataRequest, MetadataResponse

from ..support.wire_client import connect
from ..support.wire_settings import alter
from .conftest import Events, serving

ENOUGH = 64 + 8 + 2 * 4_096 + 1_000 + 10_000


def test_the_page_says_how_many_are_enough() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    assert f"{ENOUGH:,} are enough" in page


@pytest.mark.parametrize(
    ("limit", "most"),
    [(None, None), (ENOUGH, 8_192), (ENOUGH + 1, 8_193), (1 << 30, (1 << 30) - 11_072)],
)
def test_with_enough_descriptors_nothing_is_limited_but_by_the_settings_and_what_is_there(
    limit: int | None, most: int | None
) -> None:
    found = divide(limit, merge({}))
    assert (found.open_logs, found.open_logs_most) == (4_096, most)
    assert (found.open_files, found.connections) == (1_000, 10_000)
    assert not found.are_few


@pytest.mark.parametrize(
    ("limit", "settings", "logs", "most", "files", "connections"),
    [
        (ENOUGH - 1, {}, 4_096, 8_192, 1_000, 9_999),
        (4_096, {}, 754, 1_509, 503, 2_012),
        (1_024, {}, 178, 357, 119, 476),
        (200, {}, 24, 48, 16, 64),
        (64, {}, 6, 12, 4, 16),
        (8, {}, 1, 2, 1, 2),
        # What one side does not need is the other's.
        (1_024, {"connections_max": 100}, 319, 639, 213, 100),
        (20_000, {"connections_max": 20_000}, 4_096, 8_192, 1_000, 10_736),
        (1_024, {"open_files_max": 16}, 230, 460, 16, 476),
        # Sixteen shards of the write-ahead log have 32 files at least.
        (1_024, {"wal_shards": 16, "wal_bytes_max": 512 << 20}, 174, 348, 116, 464),
    ],
)
def test_few_descriptors_are_divided(
    limit: int, settings: dict[str, int], logs: int, most: int | None, files: int, connections: int
) -> None:
    found = divide(limit, merge(settings))
    assert (found.open_logs, found.open_logs_most) == (logs, most)
    assert (found.open_files, found.connections) == (files, connections)
    assert found.are_few
    taken = 2 * found.open_logs + found.open_files + found.connections
    assert taken <= limit, "of each there is one at least"
    assert found.wanted > limit
    assert not divide(found.wanted, merge(settings)).are_few


def test_who_wants_any_number_of_connections_has_few_only_where_the_files_are_cut() -> None:
    config = merge({"connections_max": NO_LIMIT})
    found = divide(65_536, config)
    assert found.connections == 65_536 - 64 - 8 - 2 * 4_096 - 1_000
    assert (found.open_logs, found.open_logs_most, found.are_few) == (4_096, 8_192, False)
    assert divide(1_024, config).are_few


async def test_a_connection_that_has_no_descriptor_is_refused_as_one_too_many(
    events: Events,
) -> None:
    async with serving(descriptors_max=8) as broker:
        (told,) = events.named("descriptors_few")
        assert (told["limit"], told["connections"], told["open_partitions"]) == (8, 2, 1)
        assert f"{ENOUGH} (LimitNOFILE" in told["advice"]
        async with connect(broker.address) as first, connect(broker.address) as second:
            for client in (first, second):
                await client.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
            async with connect(broker.address) as third:
                with trio.fail_after(60):
                    assert await third.is_closed()
            (line,) = events.named("connection_refused")
            assert (line["limit"], line["reason"]) == (2, "too few file descriptors (LimitNOFILE)")
            assert broker.core.counters.connections_refused == 1


async def test_a_setting_that_is_raised_stays_below_what_there_are(events: Events) -> None:
    async with serving(descriptors_max=1_024) as broker, connect(broker.address) as client:
        core, manager = broker.core, broker.core.topics.manager
        await alter(client, "1", open_files_max="100000", connections_max="20000")
        assert core.config.connections_max == 20_000
        assert core.descriptors.connections == 476
        assert manager.files.open_files_max == 119
        await alter(client, "1", connections_max="100")
        assert core.descriptors.connections == 100
        assert (manager.files.open_files_max, manager.open_logs.most) == (213, 639)
        told = [line["connections"] for line in events.named("descriptors_few")]
        assert told == [476, 476, 100]
