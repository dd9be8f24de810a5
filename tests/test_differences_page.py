"""The page of differences from Apache Kafka says of no request that is served that it is not."""

import re
from pathlib import Path

from segbroker.broker.configuration.config import BrokerConfig
from segbroker.protocol.api_keys import SERVED

PAGE = (Path(__file__).parents[1] / "docs" / "differences.md").read_text()


def test_what_is_not_supported_is_not_served() -> None:
    rows = re.findall(r"^\| (\d[\d, to]*) \|", PAGE, re.MULTILINE)
    missing: set[int] = set()
    for row in rows:
        for part in row.split(", "):
            first, _, last = part.partition(" to ")
            missing |= set(range(int(first), int(last or first) + 1))
    assert len(missing) >= 14
    assert not missing & set(SERVED)


def test_the_defaults_that_it_tells_are_ours() -> None:
    ours = dict(re.findall(r"^\| `([^`]+)`[^|]*\| [^|]+ \| ([^|]+) \|", PAGE, re.MULTILINE))
    config = BrokerConfig()
    assert ours["num.partitions"] == f"{config.partitions}"
    assert ours["group.initial.rebalance.delay.ms"] == f"{config.group_initial_rebalance_delay_ms}"
    assert ours["fetch.max.bytes"] == f"{config.fetch_bytes_max >> 20} MiB"
    assert ours["max.connections"] == f"{config.connections_max:,}"
    assert ours["group.max.size"] == f"{config.group_size_max:,}"
    delay_ms = config.authentication_failure_delay_ms
    assert ours["connection.failed.authentication.delay.ms"] == f"{delay_ms}"
    assert ours["sasl.enabled.mechanisms"] == config.sasl_mechanisms.replace(",", ", ")
    assert ours["log.cleaner.io.max.bytes.per.second"] == (
        f"{config.cleaner_bytes_per_second >> 20} MiB"
    )
    assert ours["log.cleaner.dedupe.buffer.size"] == f"{config.cleaner_buffer_bytes >> 20} MiB"
    assert ours["queued.max.request.bytes"] == f"{config.request_bytes_max >> 20} MiB"
    assert ours["max.message.bytes"] == f"{config.message_max_bytes:,}"
