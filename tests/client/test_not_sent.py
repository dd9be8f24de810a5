"""Who gets an exception in place of a delivery has sent nothing: it may send the record again."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from segbroker.client import AsyncProducer, BrokerUnreachable, DeliveryFailed, Producer
from segbroker.testing.embedded import EmbeddedBroker

from ..support.cutting_proxy import CuttingProxy
from .conftest import Run
from .test_left_transactions import TOPIC, held_broker, values

LIMITED: Any = {"delivery_timeout_ms": 3_000, "buffer_bytes": 40_000, "batch_bytes": 4_000}


class Ledger:
    """What became of each record, as the sender was told."""

    def __init__(self) -> None:
        self.accepted = [b"first"]
        self.refused: list[bytes] = []
        self.failed: list[bytes] = []
        self.count = 0

    @contextmanager
    def sending(self) -> Iterator[bytes]:
        """One more record, which the block sends."""
        self.count += 1
        assert self.count < 10_000, "the buffer has room for some 300"
        value = b"%06d" % self.count * 20
        try:
            yield value
        except DeliveryFailed as exc:
            self.refused.append(value)
            self.failed_with(exc)
        except BrokerUnreachable:  # it has waited for room for as long as any record may
            self.count -= 1
        else:
            self.accepted.append(value)

    def failed_with(self, error: DeliveryFailed) -> None:
        self.failed += [record.value or b"" for record in error.undelivered]

    def check(self, broker: EmbeddedBroker) -> None:
        stored = [value or b"" for value in values(broker)]
        assert not set(self.refused) & {*stored, *self.failed}
        assert sorted([*stored, *self.failed]) == sorted(self.accepted)


def test_who_hears_of_failures_has_not_sent() -> None:
    ledger = Ledger()

    def send(producer: Producer) -> None:
        with ledger.sending() as value:
            producer.send(TOPIC, value)

    def run(proxy: CuttingProxy) -> None:
        with Producer(proxy.address, **LIMITED) as producer:
            producer.send(TOPIC, b"first").result(60)
            proxy.go_away()
            while not ledger.refused:
                send(producer)
            proxy.come_back()
            for _ in range(500):
                send(producer)

    with held_broker() as (broker, proxy):
        try:
            run(proxy)
        except DeliveryFailed as exc:
            ledger.failed_with(exc)
        ledger.check(broker)


def test_who_hears_of_failures_in_a_loop_has_not_sent(run: Run) -> None:
    ledger = Ledger()

    async def main(proxy: CuttingProxy) -> None:
        async with AsyncProducer(proxy.address, **LIMITED) as producer:
            await (await producer.send(TOPIC, b"first"))
            proxy.go_away()
            while not ledger.refused:
                with ledger.sending() as value:
                    await producer.send(TOPIC, value)
            proxy.come_back()

    with held_broker() as (broker, proxy):
        try:
            run(main, proxy)
        except DeliveryFailed as exc:
            ledger.failed_with(exc)
        ledger.check(broker)
