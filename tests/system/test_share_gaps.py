"""A share consumer of Java's client meets records that were lost: it gets all others."""

from pathlib import Path

import pytest

from ..support.damage import TOPIC, with_a_lost_batch
from .java_shares import JavaShares
from .share_scenes import EXPLICIT, from_start, values


@pytest.mark.parametrize("mode", [{}, EXPLICIT], ids=["implicit", "explicit"])
def test_lost_records_hold_no_consumer_up(
    tmp_path: Path, mode: dict[str, str], release_cache: Path
) -> None:
    with (
        with_a_lost_batch(tmp_path / "data") as daemon,
        JavaShares(daemon.address, release_cache) as java,
    ):
        consumer = java.consumer("one", from_start(java, "g"), TOPIC, **mode)
        seen: list[int] = []
        while len(seen) < 20:
            records = consumer.until(1)
            for record in records if mode else ():
                consumer.acknowledge(record, "ACCEPT")
            seen += values(records)
        assert seen == [*range(10), *range(20, 30)]
        assert set(consumer.commit().values()) == {"None"}
        assert java.lag("g", TOPIC) == 0
