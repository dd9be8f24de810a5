"""As many partitions, and as many tasks, as the page promises."""

from pathlib import Path

import pytest

from segbroker.spark.cluster import Cluster
from segbroker.spark.layouts import Layout
from segbroker.spark.options import Subscribe
from segbroker.spark.sink_options import parse_sink_options
from segbroker.spark.transactions import Committed, commit_batch, last_batch, producer_id

from ..support.daemon import running
from .topics import Topics

PARTITIONS = 10_000
TIMEOUT_MS = 60_000


def cluster_of(address: str) -> Cluster:
    given = {"kafka.bootstrap.servers": address, "topic": "any"}
    given["kafka.request.timeout.ms"] = str(TIMEOUT_MS)
    return Cluster(parse_sink_options(given, streaming=False).client)


def test_the_bounds_of_ten_thousand_partitions_are_had(tmp_path: Path) -> None:
    with running(tmp_path / "data") as daemon:
        topics = Topics(daemon.address)
        topics.create("wide", PARTITIONS)
        topics.close()
        cluster = cluster_of(daemon.address)
        layout: Layout = cluster.layout(Subscribe(("wide",)))
        keys = [("wide", n) for n in range(PARTITIONS)]
        found = cluster.bounds(layout, keys)
        cluster.close()
    assert [(key, found[key].start, found[key].end) for key in keys] == [(k, 0, 0) for k in keys]


@pytest.mark.usefixtures("segbroker_only")
def test_a_batch_is_committed_however_long_its_names_are_in_all(bootstrap: str) -> None:
    """10,000 tasks of a query with a name of 50 characters, or these."""
    query, count = "q" * 990, 1_100
    cluster = cluster_of(bootstrap)
    prepared = [producer_id(cluster, f"{query}/{n}/0", TIMEOUT_MS) for n in range(count)]
    assert commit_batch(cluster, query, 0, prepared) is Committed.NOW
    assert last_batch(cluster, query) == 0
    cluster.close()
