"""Debezium, unmodified: the changes of a table of PostgreSQL as records, each once.

The connector runs in a worker of Kafka Connect, which makes its topics and writes in a transaction
what it read together with its place in PostgreSQL's log.  While rows are written, changed and
deleted, the worker and the broker are killed.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

import pytest

from segbroker.client import Admin, Consumer

from ..support.daemon import Daemon, running
from ..support.program import Program, eventually
from ..support.waiting import meanwhile
from .connect_workers import DISTRIBUTED, Workers
from .java_frameworks import Jar, fetched
from .postgres import USER, Postgres, postgres

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]

VERSION: Final = "3.6.1.Final"
JARS: Final[tuple[Jar, ...]] = (
    ("io.debezium", "debezium-connector-postgres", VERSION),
    # It needs all of Connect.
    ("io.debezium", "debezium-embedded", VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
TOPIC: Final = "shop.public.orders"
JSON: Final = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
CONNECTOR: Final = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "tasks.max": "1",
    "plugin.name": "pgoutput",
    "database.hostname": "127.0.0.1",
    "database.user": USER,
    "database.password": "none",
    "database.dbname": "postgres",
    "topic.prefix": "shop",
    "table.include.list": "public.orders",
    "exactly.once.support": "required",
    "provide.transaction.metadata": "true",
    "topic.creation.default.replication.factor": "1",
    "topic.creation.default.partitions": "3",
    "topic.creation.default.cleanup.policy": "compact",
    "topic.creation.default.compression.type": "lz4",
    "status.update.interval.ms": "500",
    "retriable.restart.connector.wait.ms": "500",
}


class Shop:
    """A table whose rows are written, changed and deleted, a broker, and a connector between."""

    def __init__(self, broker: Daemon, database: Postgres, workers: Workers) -> None:
        self.broker, self._database, self._workers = broker, database, workers
        self._written = 0
        self.changes: Counter[tuple[str, int, int]] = Counter()
        database.run("create table orders (id int primary key, version int not null)")
        database.run("alter table orders replica identity full")

    def work(self, count: int = 5, *, snapshot: bool = False) -> None:
        """Write so many rows; change every second one, and delete every fourth, if they are read
        one by one."""
        first = self._written
        self._written += count
        last = self._written - 1
        self._database.run(
            f"insert into orders select n, 1 from generate_series({first}, {last}) n"
        )
        self.changes.update(("r" if snapshot else "c", n, 1) for n in range(first, last + 1))
        if not snapshot:
            where = f"id between {first} and {last} and id % "
            self._database.run(f"update orders set version = 2 where {where} 2 = 0")
            self.changes.update(("u", n, 2) for n in range(first, last + 1) if n % 2 == 0)
            self._database.run(f"delete from orders where {where} 4 = 0")
            self.changes.update(("d", n, 2) for n in range(first, last + 1) if n % 4 == 0)

    def records(self) -> list[tuple[str, int, int]]:
        """The changes that are committed, without tombstones: operation, row, version."""
        with Admin(self.broker.address) as admin:
            if TOPIC not in admin.list_topics():
                return []
        found = []
        with Consumer(self.broker.address, TOPIC, start="start", stop_at_end=True) as consumer:
            for record in consumer:
                if record.value is not None:
                    change: Any = json.loads(record.value)
                    row = change["before"] if change["op"] == "d" else change["after"]
                    found.append((change["op"], row["id"], row["version"]))
        return found

    def is_whole(self) -> bool:
        """Whether each change is there; raises when one is there twice."""
        found = Counter(self.records())
        assert not found - self.changes, f"twice: {found - self.changes}"
        return found == self.changes

    def goes_on(self, worker: Program) -> None:
        """Wait until more is there than now."""
        before = len(self.records())
        eventually(lambda: len(self.records()) > before, worker)

    @property
    def conf(self) -> dict[str, str]:
        return {**CONNECTOR, "database.port": str(self._database.port)}


@pytest.fixture
def place(tmp_path: Path, release_cache: Path) -> Iterator[tuple[Shop, Workers]]:
    path = fetched(f"debezium-{VERSION}", JARS, release_cache)
    with postgres() as database, running(tmp_path / "data") as broker:
        workers = Workers(broker.address, path, tmp_path)
        yield Shop(broker, database, workers), workers


def test_each_change_is_a_record_once_though_the_worker_and_the_broker_are_killed(
    place: tuple[Shop, Workers],
) -> None:
    shop, workers = place
    conf = DISTRIBUTED | JSON
    shop.work(100, snapshot=True)
    with workers.worker("Distributed", conf, {}) as first:
        first.put("orders", shop.conf)
        eventually(shop.is_whole, first.program)
        with meanwhile(shop.work):
            shop.goes_on(first.program)
            first.program.kill()
    with workers.worker("Distributed", conf, {}) as second:
        with meanwhile(shop.work):
            shop.goes_on(second.program)
            for _ in range(2):
                shop.broker.stop(SIGKILL)
                shop.broker.again()
                shop.goes_on(second.program)
        eventually(shop.is_whole, second.program)
        with Admin(shop.broker.address) as admin:
            made = admin.describe_topic(TOPIC)
            assert len(made.partitions) == 3
            assert made.config["cleanup.policy"].value == "compact"
            assert made.config["compression.type"].value == "lz4"
        assert second.program.terminate() in (0, 143)
