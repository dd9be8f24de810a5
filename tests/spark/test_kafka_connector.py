"""Spark's own Kafka connector against our broker: the same query, the same result.

Its jars come from Maven Central (bench/peers/spark_kafka.py, which says what stands in for the one
that Central may not have: it is for delegation tokens only).  In the matrix, because they have to
be fetched.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.peers.programs import Missing
from bench.peers.spark_kafka import spark_kafka_jars

from ..support.daemon import running
from .topics import Topics

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]

ROOT = Path(__file__).parent.parent.parent

# In a process of its own: a session has its jars from its beginning.
PROGRAM = """
import json, sys
from segbroker.spark import session
bootstrap, jars, folder = sys.argv[1:]
spark = session({"spark.jars": jars, "spark.master": "local[2]", "spark.log.level": "OFF"})
found = {}
for name in ("segbroker", "kafka"):
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "clicks"}
    options["includeHeaders"] = "true"
    rows = spark.read.format(name).options(**options).load()
    texts = sorted(map(str, rows.collect()))
    stream = spark.readStream.format(name).options(**options)
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 150)
    query = stream.load().select("value").writeStream.format("kafka").trigger(availableNow=True)
    query = query.options(**{"kafka.bootstrap.servers": bootstrap, "topic": "to-" + name})
    query = query.option("checkpointLocation", folder + "/" + name).start()
    query.awaitTermination()
    ends = [json.loads(each.json)["sources"][0]["endOffset"] for each in query.recentProgress]
    ends = [json.loads(end) if isinstance(end, str) else end for end in ends]
    found[name] = [rows.schema.simpleString(), texts, [end["clicks"] for end in ends]]
print(json.dumps(found))
spark.stop()
"""


@pytest.mark.usefixtures("brief_java")
def test_sparks_kafka_source_and_sink_give_what_ours_give(tmp_path: Path) -> None:
    try:
        jars = ",".join(map(str, spark_kafka_jars().glob("*.jar")))
    except Missing as exc:
        pytest.skip(str(exc))
    with running(tmp_path / "data") as daemon:
        topics = Topics(daemon.address)
        topics.create("clicks", 2)
        for name in ("segbroker", "kafka"):
            topics.create(f"to-{name}")
        for partition in range(2):
            values = [b"%d" % n for n in range(200)]
            headers: list[tuple[str, str | bytes | None]] = [("h", b"1"), ("n", None)]
            topics.produce("clicks", values[:150], partition=partition, key=b"k", headers=headers)
            topics.produce("clicks", values[150:], partition=partition)
        command = [sys.executable, "-c", PROGRAM, daemon.address, jars, str(tmp_path)]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
        assert run.returncode == 0, run.stderr
        found = json.loads(run.stdout.splitlines()[-1])
        assert len(found["kafka"][1]) == 400
        assert found["segbroker"] == found["kafka"]
        for name in found:
            rows = topics.read(f"to-{name}", 400)
            assert sorted(int(row.value or b"") for row in rows) == sorted([*range(200)] * 2)
        topics.close()
