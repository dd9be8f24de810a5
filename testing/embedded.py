"""A whole broker inside this process: real sockets, the in-memory storage, a thread of its own.

    caller's thread                        broker's thread
        start()  ------------------------>  trio.run
                 <--- address or error ---    serving on 127.0.0.1, a free port
        ... any Kafka client ...
        stop()   ------ drain ----------->    answers what is in flight, closes
                 <----- joined -----------

It is the broker that `segbroker serve` runs, minus the disk: nothing is written anywhere, and
nothing outlives `stop`.  `fsync` topics are acknowledged as soon as memory has the bytes.  It logs
warnings and errors (quiet.py), and more where the setting `log_level` says so.
"""

import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

import trio

from segbroker.broker.configuration.config import BrokerConfig, join_address
from segbroker.broker.server import Broker, call_soon_here
from segbroker.client import Admin, Consumer, Producer, Record
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.wal.journal import WalConfig

from .clock import Clock
from .quiet import show_from, show_no_more

START_TIMEOUT_S = 10
STOP_TIMEOUT_S = 20
# Clients that a test forgot to close are cut off after this.
DRAIN_TIMEOUT_MS = 200
LANES = 2
LOG_LEVEL = "warning"


class _Ready:
    """Tells another thread that the broker has started; what a nursery would tell a task."""

    def __init__(self, ready: threading.Event) -> None:
        self._ready = ready

    def started(self, value: object = None) -> None:
        self._ready.set()


class EmbeddedBroker:
    """One broker in memory; `with EmbeddedBroker() as broker: ... broker.address ...`."""

    def __init__(self, **settings: str | int | bool) -> None:
        """
        Args:
            settings: keys of the broker's configuration (docs/configuration.md); `data` has no
                meaning here and `listen` is a free port of 127.0.0.1 unless given.

        Raises:
            InvalidConfig: a key or value that the broker does not take.
        """
        defaults: dict[str, str | int | bool] = {
            "listen": "127.0.0.1:0",
            "data": "memory",
            "lanes": LANES,
            "drain_timeout_ms": DRAIN_TIMEOUT_MS,
            "log_level": LOG_LEVEL,
        }
        # It checks the type of each by itself.
        self.config = BrokerConfig(**(defaults | settings))  # type: ignore[arg-type]
        self.clock = Clock()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._broker: Broker | None = None
        self._manager: DiskManager | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    # ------------------------------------------------------------------------------ life

    def start(self) -> Self:
        """Start and wait until clients can connect.

        Raises:
            OSError: the address cannot be bound.
            RuntimeError: it was started before.
        """
        if self._thread is not None or self._ready.is_set():
            raise RuntimeError("an embedded broker is started once: make another one")
        self._thread = threading.Thread(target=self._main, name="segbroker", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S):
            raise TimeoutError(f"the broker was not ready after {START_TIMEOUT_S} s")
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def stop(self) -> None:
        """End the broker and forget its records; again: nothing.

        Raises:
            Exception: what the broker died of, if it did.
        """
        if self._thread is None:
            return
        if self._token is not None and self._broker is not None:
            # It may have ended before us; `_failure` says of what.
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._broker.drain)
        self._thread.join(STOP_TIMEOUT_S)
        assert not self._thread.is_alive(), f"the broker did not end in {STOP_TIMEOUT_S} s"
        self._thread = None
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _main(self) -> None:
        level = self.config.log_level
        show_from(level)
        try:
            trio.run(self._serve)
        except BaseException as exc:
            self._failure = exc
        finally:
            show_no_more(level)
            self._ready.set()

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._manager = DiskManager(
            self.config.data,
            storage=MemoryStorage(),
            call_soon=call_soon_here(),
            flushers=self.config.flushers,
            wal=WalConfig(file_bytes=1 << 20, shard_bytes=4 << 20),
            open_files_max=self.config.open_files_max,
            now_ms=self.clock.now_ms(),
        )
        self._broker = Broker(self.config, manager=self._manager, now_ms=self.clock.now_ms)
        await self._broker.run(task_status=_Ready(self._ready))

    # ------------------------------------------------------------------------------ use

    def __repr__(self) -> str:
        return f"<EmbeddedBroker {self.address if self._broker is not None else 'not started'}>"

    @property
    def address(self) -> str:
        """`host:port`, for the bootstrap setting of any Kafka client."""
        assert self._broker is not None, "the broker has not started"
        return join_address(*self._broker.address)

    @property
    def addresses(self) -> dict[str, str]:
        """`host:port` by name of the listener, where the settings name several."""
        assert self._broker is not None, "the broker has not started"
        return {one.spec.name: join_address(*one.bound) for one in self._broker.listeners}

    def create_topic(
        self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic; returns its name.

        Args:
            name: of the topic.
            partitions: how many.
            config: settings of the topic, such as {"message.timestamp.type": "LogAppendTime"}.

        Raises:
            BrokerError: the broker refuses it, such as TopicAlreadyExists.
        """
        with Admin(self.address) as admin:
            admin.create_topic(name, partitions=partitions, config=config)
        return name

    def send(self, topic: str, values: Iterable[bytes], *, partition: int | None = None) -> None:
        """Append records to a topic and wait until they are acknowledged.

        Raises:
            DeliveryFailed: the broker refuses them.
            TypeError: one value instead of several, or one that is not bytes.
        """
        with Producer(self.address) as producer:
            producer.send_many(topic, values, partition=partition)

    def records(self, topic: str) -> list[Record]:
        """All records that a topic holds now, in offset order within each partition."""
        with Consumer(self.address, topic, start="start", stop_at_end=True) as consumer:
            return list(consumer)

    def segments_count(self, topic: str, partition: int = 0) -> int:
        """How many segments a partition has, the one that is appended to included.

        Raises:
            UnknownTopic: there is no such topic or partition.
        """
        assert self._manager is not None, "the broker has not started"
        return self._manager.get_handler(topic, partition).segments_count

    def housekeep(self) -> None:
        """Do at once what the broker does in the background: roll segments by age, delete what
        retention has decided on, close idle ones.

        After `clock.advance`, a test need not wait for the next round.
        """
        assert self._manager is not None, "the broker has not started"
        assert self._token is not None, "the broker has not started"
        trio.from_thread.run(
            trio.to_thread.run_sync,
            self._manager.keep_house_now,
            self.clock.now_ms(),
            trio_token=self._token,
        )
