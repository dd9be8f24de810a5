"""Our own client at the other end of a scenario."""

from segbroker.client import Consumer

from ..support.clients import lots


def check_that_our_client_reads(bootstrap: str, topic: str) -> None:
    """The whole lot of a scenario, record for record."""
    with Consumer(bootstrap, topic, start="start", stop_at_end=True) as consumer:
        records = list(consumer)
    numbered = range(lots.COUNT)
    assert [record.offset for record in records] == list(numbered)
    assert [record.value for record in records] == [lots.value(n) for n in numbered]
    assert [record.key for record in records] == [lots.key(n) for n in numbered]
    assert [list(record.headers) for record in records] == [lots.headers(n) for n in numbered]
    assert [record.timestamp_ms for record in records] == [lots.timestamp_ms(n) for n in numbered]
