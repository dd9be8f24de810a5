"""A count per key in quixstreams: python count_quixstreams.py BOOTSTRAP APP FOLDER GUARANTEE.

Reads APP-in, keeps the number of records of each key in a state with a changelog, and writes each
new number to APP-out, under the key.  GUARANTEE is at-least-once or exactly-once.
"""

import sys

from quixstreams import Application, State

BOOTSTRAP, APP, FOLDER, GUARANTEE = sys.argv[1:]


def count(_: bytes, state: State) -> str:
    number: int = state.get("number", 0) + 1
    state.set("number", number)
    return str(number)


application = Application(
    broker_address=BOOTSTRAP,
    consumer_group=APP,
    auto_offset_reset="earliest",
    commit_interval=0.2,
    consumer_poll_timeout=0.1,
    state_dir=FOLDER,
    processing_guarantee=GUARANTEE,
    consumer_extra_config={"session.timeout.ms": 6000, "heartbeat.interval.ms": 500},
)
numbers = application.dataframe(application.topic(f"{APP}-in", value_deserializer="bytes"))
numbers = numbers.apply(count, stateful=True)
numbers.to_topic(application.topic(f"{APP}-out", value_serializer="str"))
application.run()
