"""Queries whose JVM is killed at each of the four points; for long in tests/soak/spark.py."""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from ..conftest import BRIEF_JAVA
from ..kill_round import SOURCE_PARTITIONS, Copies
from ..killing import OFFSETS_PER_BATCH, POINTS, start_copy
from ..topics import Topics
from ..warm_python import warm_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# 20 to 25 s of it on a quiet machine, and two minutes on one with very much else to do; a third is
# for the queries that go on.
DEADLINE_S = 480


@pytest.mark.spark
@pytest.mark.usefixtures("segbroker_only")
def test_a_query_whose_jvm_is_killed_at_any_point_has_every_record_once(
    spark: "SparkSession", topics: Topics, name: Callable[[], str], tmp_path: Path
) -> None:
    deadline = time.monotonic() + DEADLINE_S
    with warm_python(tmp_path) as python:
        names = [name() for _ in POINTS]
        copies = Copies(
            *(topics, tmp_path, python, names),
            timeout_s=DEADLINE_S * 2 / 3,
            java_options=BRIEF_JAVA,
        )
        copies.create()
        copies.produce(OFFSETS_PER_BATCH)
        killed_at = copies.kill(Random(1))
    assert set(killed_at.values()) == set(POINTS)
    # The session of the other tests goes on where the dead one was.
    running = [
        start_copy(spark, "segbroker", topics.bootstrap, each, tmp_path / each / "checkpoint")
        for each in copies.names
    ]
    try:
        for each, query in zip(copies.names, running, strict=True):
            ended = query.awaitTermination(max(1, int(deadline - time.monotonic())))
            assert ended, {name: query.status for name, query in zip(names, running, strict=True)}
            copies.check(each, dict.fromkeys(range(SOURCE_PARTITIONS), OFFSETS_PER_BATCH))
    finally:
        for query in running:
            query.stop()
