"""The brokers beside which segbroker is measured, each behind the interface of base.py."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from .apache_kafka import ApacheKafka
from .base import Peer
from .nats import Nats
from .ours import Segbroker
from .programs import Missing
from .rabbitmq import RabbitMQ
from .redis import Redis

PEERS: tuple[type[Peer], ...] = (Redis, RabbitMQ, Nats, ApacheKafka)
BY_NAME: dict[str, type[Peer]] = {
    kind.__name__: kind for kind in (Segbroker, Redis, RabbitMQ, Nats, ApacheKafka)
}

__all__ = [
    "BY_NAME",
    "PEERS",
    "ApacheKafka",
    "Missing",
    "Nats",
    "Peer",
    "Redis",
    "Segbroker",
    "running",
]


@contextmanager
def running(durable: bool = False) -> Iterator[tuple[Segbroker, list[Peer], list[str]]]:
    """Ours, the peers that can be had, and a sentence for each one that cannot."""
    with ExitStack() as stack:
        peers: list[Peer] = []
        left_out: list[str] = []

        def folder() -> Path:
            return Path(stack.enter_context(TemporaryDirectory(prefix="segbroker-bench-")))

        for kind in PEERS:
            if durable and not kind.synced:
                left_out.append(f"{kind.name} left out: {kind.stored}")
                continue
            try:
                peers.append(stack.enter_context(kind.start(folder(), durable)))
            except (Missing, RuntimeError, OSError) as exc:
                left_out.append(f"{kind.name} left out: {exc}")
        yield stack.enter_context(Segbroker.start(folder(), durable)), peers, left_out
