"""segbroker itself, behind the same interface as its peers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from ..machine import commit
from ..servers import segbroker
from .kafka_wire import KafkaPeer


class Segbroker(KafkaPeer):
    name = "segbroker"
    stored = "`disk`: acknowledged after the write"
    synced = "`fsync`: acknowledged after fdatasync"

    @classmethod
    @contextmanager
    def start(cls, folder: Path, durable: bool) -> Iterator[Self]:
        with segbroker(data=folder / "data") as server:
            yield cls(server.address, server.pid, commit())

    def topic_config(self, durable: bool) -> dict[str, str]:
        return {"durability": "fsync" if durable else "disk"}
