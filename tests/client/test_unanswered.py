"""acks=0: nobody answers, and what was taken is bounded and sent all the same."""

from contextlib import suppress

from segbroker.client import Admin, AsyncProducer, BusyError, Producer, TimedOut, TopicPartition
from segbroker.testing.embedded import EmbeddedBroker

from ..support.cutting_proxy import CuttingProxy
from ..support.ports import keep_port
from ..support.waiting import until
from .conftest import Run

VALUE = bytes(100_000)
# More than the buffer and what two sockets hold.
TOO_MANY = 120
OPTIONS = {"buffer_bytes": 1 << 20, "batch_bytes": 1 << 17, "linger_ms": 0}


def test_a_broker_that_takes_nothing_fills_the_buffer_and_not_the_memory(topic: str) -> None:
    port = keep_port()
    with (
        CuttingProxy(("127.0.0.1", port)) as proxy,
        EmbeddedBroker(listen=f"127.0.0.1:{port}", advertised=proxy.address),
        Producer(proxy.address, acks=0, **OPTIONS) as producer,  # type: ignore[arg-type]
    ):
        producer.send(topic, b"known", partition=0)
        producer.flush()
        proxy.hold()
        count, is_full = 0, False
        while count < TOO_MANY and not is_full:
            try:
                producer.send_nowait(topic, VALUE, partition=0)
                count += 1
            except BusyError:
                with suppress(TimedOut):
                    producer.flush(2.0)
                    continue
                is_full = True
        assert is_full
        proxy.release()
        producer.flush()
        with Admin(proxy.address) as admin:
            until(lambda: admin.offsets(topic)[TopicPartition(topic, 0)].offset == 1 + count)


def test_an_async_producer_hands_everything_over_before_it_ends(run: Run, topic: str) -> None:
    async def main(address: str) -> None:
        async with AsyncProducer(address, acks=0, **OPTIONS) as producer:  # type: ignore[arg-type]
            for _ in range(100):
                await producer.send(topic, VALUE, partition=0)

    with EmbeddedBroker() as broker:
        run(main, broker.address)
        with Admin(broker.address) as admin:
            until(lambda: admin.offsets(topic)[TopicPartition(topic, 0)].offset == 100)
