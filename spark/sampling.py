"""Records of a topic to look at before it is read: its oldest, and the newest of each partition.

Only the oldest would be those of months ago where the newest have fields that they had not.

What is lost of them ends nothing: who reads the topic says what is lost of what it reads.

Limits: SAMPLE_ROWS records of each kind; of the newest at most those behind the last NEWEST_OFFSETS
of a partition, and more where there are few partitions.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from .data_source import FORMAT
from .options import parse_options
from .planning import Planner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLE_ROWS = 500
NEWEST_OFFSETS = 50


def sample(spark: "SparkSession", options: Mapping[str, str]) -> Iterator["DataFrame"]:
    """The two samples.

    options: of a batch source that subscribes to the topic.
    Raises TopicMissing and SourceUnavailable.
    """
    options = {**options, "failOnDataLoss": "false"}
    oldest = spark.read.format(FORMAT).options(**options)
    yield oldest.load().limit(SAMPLE_ROWS)
    with closing(Planner(parse_options(options, streaming=False))) as planner:
        first, end = planner.start(), planner.end()
    count = max(NEWEST_OFFSETS, -(-SAMPLE_ROWS // max(1, len(end.at))))
    starts: dict[str, dict[int, int]] = {}
    for (topic, partition), to in end.at.items():
        starts.setdefault(topic, {})[partition] = max(
            first.at.get((topic, partition), 0), to - count
        )
    if not starts:
        return
    # The partitions that were asked for, also where there are more by now.
    chosen = {name: value for name, value in options.items() if name != "subscribe"}
    chosen["assign"] = json.dumps({topic: list(offsets) for topic, offsets in starts.items()})
    chosen["startingOffsets"] = json.dumps(starts)
    yield spark.read.format(FORMAT).options(**chosen).load().limit(SAMPLE_ROWS)
