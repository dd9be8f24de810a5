"""Queries whose JVM is killed at each of the four points; for long in tests/soak/spark.py."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from .kill_round import SOURCE_PARTITIONS, Copies
from .killing import OFFSETS_PER_BATCH, POINTS, start_copy
from .topics import Topics
from .warm_python import warm_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("segbroker_only")
def test_a_query_whose_jvm_is_killed_at_any_point_has_every_record_once(
    spark: "SparkSession", topics: Topics, name: Callable[[], str], tmp_path: Path
) -> None:
    with warm_python(tmp_path) as python:
        copies = Copies(topics, tmp_path, python, [name() for _ in POINTS])
        copies.create()
        copies.produce(OFFSETS_PER_BATCH)
        killed_at = copies.kill(Random(1))
    assert set(killed_at.values()) == set(POINTS)
    # The session of the other tests goes on where the dead one was.
    running = [
        start_copy(spark, "segbroker", topics.bootstrap, each, tmp_path / each / "checkpoint")
        for each in copies.names
    ]
    for each, query in zip(copies.names, running, strict=True):
        query.awaitTermination()
        copies.check(each, dict.fromkeys(range(SOURCE_PARTITIONS), OFFSETS_PER_BATCH))
