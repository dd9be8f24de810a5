"""An Apache Kafka and a segbroker for one run."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench.peers.apache_kafka import ApacheKafka
from bench.peers.programs import Missing

from ..support.daemon import running

__all__ = ["Missing", "both"]

Address = tuple[str, int]
# Share groups are finished since 4.2.
VERSION: Final = "4.3.1"


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
            kafka = ApacheKafka.start(place, durable=False, version=VERSION)
            theirs = stack.enter_context(kafka).host_and_port
        else:
            host, _, port = given.rpartition(":")
            theirs = host, int(port)
        yield theirs, stack.enter_context(running(folder / "segbroker")).host_and_port
