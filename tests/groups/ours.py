"""Members that our client makes, of either protocol, as those of librdkafka (rdkafka.py)."""

import time
from contextlib import suppress
from typing import Any

from segbroker.client import Consumer, Record, TopicPartition
from segbroker.client.errors import SegbrokerError

from .rdkafka import RdkafkaMember
from .watched import SESSION_S


class OurMember(RdkafkaMember):
    """Subscribes, reads, commits what it read; closes and comes back as another."""

    def _live(self, name: str) -> None:
        protocol = self._protocol_of_life()
        options: Any = {"group_protocol": protocol}
        if protocol == "classic":
            options |= {
                "session_timeout_ms": int(SESSION_S["classic"] * 1000),
                "heartbeat_interval_ms": 200,
                "assignors": [self._strategy],
            }
        moves = 0

        def moved(_: list[TopicPartition]) -> None:
            nonlocal moves
            moves += 1

        ends_s = time.monotonic() + self._random.uniform(1, 4)
        # The broker is killed now and then: what cannot be done while it is away is done later.
        with (
            suppress(SegbrokerError),
            Consumer(
                self._address,
                self._topic,
                group=self._group,
                client_id=name,
                auto_commit=False,
                on_assigned=moved,
                on_revoked=moved,
                **options,
            ) as consumer,
        ):
            while time.monotonic() < ends_s and not self._end.is_set():
                before = moves
                taken: list[Record] = []
                with suppress(SegbrokerError):
                    taken = consumer.poll(20, timeout_ms=100)
                    if taken and moves == before:
                        consumer.commit(taken[0])
