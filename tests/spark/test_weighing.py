"""How many offsets make so many bytes, by a fetch of the driver's."""

from pyspark.sql.streaming.datasource import ReadMaxBytes
from pyspark.sql.types import StructType

from segbroker.protocol.messages_core import FetchRequest, FetchResponse
from segbroker.spark.data_source import SegbrokerDataSource

from .batches import batch
from .scripted_broker import TOPIC, ScriptedBroker, fetched


def test_a_driver_that_is_throttled_asks_again_what_records_weigh() -> None:
    """Apache Kafka's reply to a client that is over its quota has no partition."""
    of_ten = batch(0, [bytes(100)] * 10)
    replies = [fetched(of_ten), FetchResponse(throttle_time_ms=1, responses=[])]

    def script(_: FetchRequest) -> FetchResponse:
        return replies.pop()

    with ScriptedBroker(script, log_end=1_000).running() as broker:
        host, port = broker.address
        limit = 30 * len(of_ten) // 10
        given = {
            "kafka.bootstrap.servers": f"{host}:{port}",
            "subscribe": TOPIC,
            "maxBytesPerTrigger": str(limit),
        }
        reader = SegbrokerDataSource(given).streamReader(StructType())
        try:
            end = reader.latestOffset({TOPIC: {"0": 0}}, ReadMaxBytes(limit))
        finally:
            reader.stop()
    assert end == {TOPIC: {"0": 30}}
