"""SQL over topics: `SELECT carrier, count(*) FROM topic('flights') GROUP BY carrier`.

    topic('flights')                                  JSON objects as columns, types by a sample;
                                                      other values as text
    topic('flights', 'carrier STRING, distance INT')  these fields
    topic('flights', 'text' | 'binary')               as decoding has them
    topic('flights', 'arrow')                         values that are Arrow IPC streams, as rows

Each topic('...') becomes a temporary view over a batch source, from the beginning to the end of the
log as it is when the query is planned.  Only committed records are read.
"""

import re
from typing import TYPE_CHECKING

from .arrow_values import ArrowValues
from .data_source import FORMAT
from .decoding import decode, guess
from .errors import OptionError
from .pipelines import Broker
from .sampling import sample

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TOPIC = re.compile(r"\btopic\s*\(\s*'([^']*)'\s*(?:,\s*'([^']*)'\s*)?\)", re.IGNORECASE)


def ask(
    spark: "SparkSession", broker: Broker, sql: str, *, skips_lost: bool = False
) -> "DataFrame":
    """The frame of a query over topics.  Raises OptionError, and what Spark says of the SQL.

    skips_lost: what a topic has lost is passed over, where it would end the query.
    """
    views: dict[tuple[str, str], str] = {}

    def view_of(found: re.Match[str]) -> str:
        topic, form = found[1], found[2] or ""
        if not topic:
            raise OptionError("topic('') names no topic")
        name = views.get((topic, form))
        if name is None:
            name = views[topic, form] = f"segbroker_topic_{len(views)}"
            _frame(spark, broker, topic, form, skips_lost=skips_lost).createOrReplaceTempView(name)
        return name

    text = _TOPIC.sub(view_of, sql)
    return spark.sql(text)


def _frame(
    spark: "SparkSession", broker: Broker, topic: str, form: str, *, skips_lost: bool
) -> "DataFrame":
    is_arrow = form.strip().lower() == "arrow"
    if is_arrow:
        spark.dataSource.register(ArrowValues)
    options = {
        **broker.options,
        "subscribe": topic,
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": str(not skips_lost),
    }
    frame = spark.read.format(ArrowValues.name() if is_arrow else FORMAT).options(**options).load()
    if is_arrow:
        return frame
    looked_at = sample(spark, options)
    return decode(frame, form or guess(looked_at), looked_at).frame
