"""A count per key in faust-streaming: python count_faust.py BOOTSTRAP APP FOLDER GUARANTEE.

Reads APP-in, keeps the number of records of each key in a table with a changelog, and writes each
new number to APP-out, under the key.  GUARANTEE is faust's processing_guarantee.
"""

import sys

import faust

BOOTSTRAP, APP, FOLDER, GUARANTEE = sys.argv[1:]
PARTITIONS = 2

app = faust.App(
    APP,
    broker=f"kafka://{BOOTSTRAP}",
    store="memory://",
    datadir=FOLDER,
    processing_guarantee=GUARANTEE,
    topic_partitions=PARTITIONS,
    topic_replication_factor=1,
    broker_commit_interval=0.2,
    broker_session_timeout=6.0,
    broker_heartbeat_interval=0.5,
    consumer_auto_offset_reset="earliest",
    web_enabled=False,
)
incoming = app.topic(
    f"{APP}-in",
    key_type=bytes,
    value_type=bytes,
    key_serializer="raw",
    value_serializer="raw",
    partitions=PARTITIONS,
)
outgoing = app.topic(
    f"{APP}-out",
    key_type=bytes,
    value_type=bytes,
    key_serializer="raw",
    value_serializer="raw",
    partitions=PARTITIONS,
)
counts = app.Table("counts", default=int, partitions=PARTITIONS)


async def count(stream: faust.Stream) -> None:
    async for event in stream.events():
        word = event.key.decode()
        counts[word] += 1
        await outgoing.send(key=event.key, value=b"%d" % counts[word])


app.agent(incoming)(count)
sys.argv = ["faust", "worker", "--without-web", "--loglevel=warn"]
app.main()
