"""Readers of committed records over the wire; what they leave out is as in faults/committed_view.

Whoever reads meanwhile is told nothing that is not there in the end, under the same offset.
"""

from collections.abc import Callable
from typing import cast

import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import FetchResponse

from ..administration.belief import Difference
from ..administration.subject import Lives, answered
from ..faults.committed_view import Seen, take_committed
from ..support.wire_client import WireClient, fetch_request
from .attempts import Found, Key, Ledger
from .plan import Plan

MOVED_MAX = 100


class Readers:
    """See the module."""

    def __init__(self, lives: Lives, plan: Plan, ledger: Ledger) -> None:
        self.lives = lives
        self.plan = plan
        self.ledger = ledger
        self.random = lives.world.stream("readers")
        self.seen: dict[Key, dict[bytes, int]] = {}
        self._offsets: dict[Key, int] = {}
        kept = {one.name for one in plan.topics if one.settings["retention.bytes"] == "-1"}
        self._retained = {one.name for one in plan.topics} - kept

    @property
    def keys(self) -> list[Key]:
        topics = self.plan.topics
        return [(one.name, index) for one in topics for index in range(one.partitions)]

    async def read(self, is_over: Callable[[], bool]) -> None:
        """All the time."""
        while not is_over():
            process = await self.lives.serving()
            async with self.lives.within(process), self.lives.client(process, "reader") as client:
                while not is_over():
                    key = self.random.choice(self.keys)
                    await answered(self._step(client, key), f"fetch of {key}")
                    await trio.sleep(self.random.uniform(0, 2 * self.plan.pause_s))
            await trio.sleep(0.01)

    async def _step(self, client: WireClient, key: Key) -> None:
        seen = Seen()
        begin = self._offsets.get(key, 0)
        self._offsets[key], _ = await self._fetch(client, key, begin, seen)
        for at, value in seen.rows:
            self.lives.world.trace("saw", *key, at, value[:20])
            self.seen.setdefault(key, {})[value] = at

    async def _fetch(
        self, client: WireClient, key: Key, offset: int, seen: Seen
    ) -> tuple[int, tuple[int, int]]:
        """One answer: where to go on; the last stable offset and the high watermark."""
        size = self.random.choice((1, 300, 1 << 20))
        request = fetch_request(
            key[0],
            offset,
            partition=key[1],
            isolation_level=1,
            min_bytes=0,
            partition_max_bytes=size,
        )
        reply = await client.ask(request, FetchResponse, 12)
        row = reply.responses[0].partitions[0]
        ends = (row.last_stable_offset, row.high_watermark)
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and offset < row.log_start_offset:
            if key[0] in self._retained:
                trimmed = self.ledger.trimmed
                trimmed[key] = max(row.log_start_offset, trimmed.get(key, 0))
            return row.log_start_offset, ends
        if row.error_code:
            return offset, (-1, row.error_code)
        data = cast(bytes, row.records or b"")
        return take_committed(seen, data, row.aborted_transactions or [], offset), ends

    async def all(self, client: WireClient, key: Key) -> dict[bytes, int]:
        """Everything that is committed, where nothing is open any more.  Raises Difference."""
        seen, offset = Seen(), 0
        for _ in range(MOVED_MAX * MOVED_MAX):
            before = offset
            offset, ends = await self._fetch(client, key, offset, seen)
            if ends[0] != ends[1]:
                raise Difference(f"{key}: readers stop at {ends[0]}, or error {ends[1]}")
            if offset >= ends[0]:
                break
            if offset == before:
                raise Difference(f"{key}: nothing is sent from {offset} on, below {ends[0]}")
        found = {value: at for at, value in seen.rows}
        if len(found) < len(seen.rows):
            raise Difference(f"{key}: a record is there twice: {seen.rows}")
        return found

    def judge(self, found: Found) -> None:
        """What was seen meanwhile.  Raises Difference."""
        for key, rows in self.seen.items():
            for value, at in rows.items():
                is_judged = key in found and at >= self.ledger.trimmed.get(key, 0)
                if is_judged and found[key].get(value) != at:
                    raise Difference(f"{key}: {value!r} was seen at {at}, and is not committed")
