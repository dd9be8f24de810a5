"""A count per key in bytewax: python count_bytewax.py BOOTSTRAP APP FOLDER.

Reads APP-in, keeps the number of records of each key, with snapshots in FOLDER beside the offsets
that they stand for, and writes each new number to APP-out, under the key.
"""

import sys
from datetime import timedelta
from pathlib import Path

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

BOOTSTRAP, APP, FOLDER = sys.argv[1:]


def count(number: int | None, _: bytes) -> tuple[int, int]:
    fresh = (number or 0) + 1
    return fresh, fresh


flow = Dataflow("counts")
source = KafkaSource([BOOTSTRAP], [f"{APP}-in"], tail=True, batch_size=50)
records = op.input("in", flow, source)
keyed = op.map("keyed", records, lambda record: (record.key.decode(), record.value))
counted = op.stateful_map("counted", keyed, count)
told = op.map("told", counted, lambda pair: KafkaSinkMessage(pair[0].encode(), b"%d" % pair[1]))
op.output("out", told, KafkaSink([BOOTSTRAP], f"{APP}-out"))

folder = Path(FOLDER)
if not folder.exists():
    folder.mkdir()
    init_db_dir(folder, 1)
cli_main(flow, epoch_interval=timedelta(seconds=0.2), recovery_config=RecoveryConfig(folder))
