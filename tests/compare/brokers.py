"""An Apache Kafka and a segbroker for one run."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.peers.apache_kafka import ApacheKafka
from bench.peers.programs import Missing

from ..support.daemon import running

__all__ = ["Missing", "both"]

Address = tuple[str, int]


@contextmanager
def both(folder: Path, given: str | None = None) -> Iterator[tuple[Address, Address]]:
    """Addresses of (Apache Kafka, segbroker).

    Args:
        folder: gets the data of both.
        given: `host:port` of a Kafka that runs already; otherwise one is started.

    Raises:
        Missing: no Kafka can be had here.
    """
    with ExitStack() as stack:
        if given is None:
            place = folder / "kafka"
            place.mkdir()
            theirs = stack.enter_context(ApacheKafka.start(place, durable=False)).host_and_port
        else:
            host, _, port = given.rpartition(":")
            theirs = host, int(port)
        yield theirs, stack.enter_context(running(folder / "segbroker")).host_and_port
