# ruff: noqa: E402 - a notebook imports where it needs
"""A tour of the Spark side on the flights data, cell by cell.

Open it in an editor or notebook that knows `# %%` cells, or run it as a program:

    python demo/flights_notebook.py [HOST:PORT]

It needs a broker with the topic `flights` (`make demo` sends 336,776 of them; without the topic it
sends a few of its own), and `pip install '.[spark]'`.
"""

# %% [markdown]
# ## A session
# `session()` finds a Java or brings one, starts Spark on this machine, and knows the format.

# %%
import json
import sys
import tempfile
from pathlib import Path

import segbroker.spark
from segbroker.client import Admin, Producer

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
spark = segbroker.spark.session({"spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "2"})
folder = Path(tempfile.mkdtemp(prefix="flights-"))

# %% [markdown]
# ## Something to look at

# %%
with Admin(bootstrap) as admin:
    if "flights" not in admin.list_topics():
        admin.create_topic("flights", partitions=4)
        carriers = ["UA", "AA", "B6", "DL"]
        with Producer(bootstrap) as producer:
            for n in range(1000):
                flight = {"carrier": carriers[n % 4], "dep_delay": n % 120 - 20, "distance": 1000}
                producer.send("flights", json.dumps(flight).encode(), key=carriers[n % 4].encode())

# %% [markdown]
# ## A batch query
# The topic is a table of keys, values, offsets and times; the values are JSON.

# %%
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "flights"}
records = spark.read.format("segbroker").options(**options).load()
records.printSchema()
flights = records.selectExpr(
    "from_json(CAST(value AS STRING), 'carrier STRING, dep_delay DOUBLE, distance DOUBLE') AS f",
    "timestamp",
).select("f.*", "timestamp")
flights.groupBy("carrier").agg({"dep_delay": "avg", "*": "count"}).orderBy("carrier").show()

# %% [markdown]
# ## The same as SQL
# `ask` is what `segbroker spark sql` runs: `topic('flights')` looks at the values by itself.

# %%
from segbroker.spark.asking import ask
from segbroker.spark.pipelines import Broker

late = ask(
    spark,
    Broker(bootstrap=bootstrap),
    "SELECT carrier, count(*) AS late FROM topic('flights')"
    " WHERE dep_delay > 60 GROUP BY carrier ORDER BY late DESC",
)
late.show(5)

# %% [markdown]
# ## A stream into another topic, exactly once
# Run this cell again: it takes up where its checkpoint is, and sends nothing twice.

# %%
stream = spark.readStream.format("segbroker").options(**options, startingOffsets="earliest").load()
query = (
    stream.selectExpr("key", "value", "get_json_object(CAST(value AS STRING), '$.dep_delay') AS d")
    .where("CAST(d AS DOUBLE) > 60")
    .select("key", "value")
    .writeStream.format("segbroker")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("topic", "late-flights")
    .option("checkpointLocation", str(folder / "late"))
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
sent = spark.read.format("segbroker").options(**options | {"subscribe": "late-flights"})
print(sent.option("kafka.isolation.level", "read_committed").load().count(), "late flights")

# %% [markdown]
# ## Into files
# What `segbroker spark export` does: run it again, and it writes what came since.

# %%
from segbroker.spark.pipelines import export_topic

export_topic(
    spark,
    Broker(bootstrap=bootstrap),
    "flights",
    str(folder / "lake"),
    values="carrier STRING, dep_delay DOUBLE, distance DOUBLE",
    tell=print,
)
spark.read.parquet(str(folder / "lake")).groupBy("date").count().show()

# %%
spark.stop()
