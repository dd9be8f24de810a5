"""One life of a member: a real consumer, act by act, and what its callbacks do."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

import trio

from segbroker.client import AsyncConsumer, ConsumedBatch, Gap, Record, TopicPartition
from segbroker.client.errors import ClosedError, GapError, SegbrokerError

from ..simulation.clients import BOOTSTRAP, raise_others
from ..simulation.world import EPOCH_MS
from .judge import END, Group, Key, View
from .plan import TOPICS, Act, Life
from .written import Place

ACT_LIMIT_S: Final = 60.0
"""Each call has a deadline of its own; this is far beyond all of them."""
CLOSE_LIMIT_S: Final = 12.0
"""What is said at last has 5 s, and a callback that somebody else is in 4 s."""
LONG_S: Final = (1.2, 2.8, 6.0)
"""Beyond a session, and beyond the time for a rebalance."""
CLOSED_ACTS: Final = 3
"""So much is tried of one that is closed."""
BATCH_BYTES: Final = 1_000
"""No batch is larger."""


class Planned(Exception):
    """What a callback raises."""


class MemberLife:
    """See the module."""

    def __init__(self, group: Group, name: str, life: Life) -> None:
        self.life = life
        self.name = name
        self.group = group
        self.world = group.world
        self.view = View(name, group, life.options)
        self._random = self.world.stream(f"life {name}")
        self._nursery: trio.Nursery | None = None
        self._raised = 0
        self._closed_count = 0
        self._closing_s = 0.0
        """When somebody began to close it; callbacks wait in there."""
        self._waited_s = 0.0
        options: dict[str, Any] = dict(life.options)
        topics = () if life.pattern else life.topics
        self.consumer: AsyncConsumer[Gap] = AsyncConsumer(
            BOOTSTRAP,
            *topics,
            pattern=life.pattern,
            group="team",
            client_id=name,
            on_assigned=self._on_assigned,
            on_revoked=self._on_revoked,
            on_lost=self._on_lost,
            **options,
        )
        if life.end == "die":
            self.consumer._say_goodbye = _silence  # type: ignore[method-assign]
        self._records: AsyncIterator[Any] | None = None

    async def run(self) -> None:
        """All of it."""
        try:
            with trio.CancelScope() as scope:
                await self._live(scope)
        except SegbrokerError as exc:
            self._stumbles("open", exc)
        except BaseExceptionGroup as found:
            raise_others(found)
        if self.life.end == "leave" and self.view.has and self.world.counts.get("opened"):
            self.world.violation(f"{self.name} has left, and was not told of {self.view.has}")

    async def _live(self, scope: trio.CancelScope) -> None:
        async with self.consumer:
            self.world.trace("opened", self.name)
            async with trio.open_nursery() as self._nursery:
                for act in self.life.acts:
                    await self._act(act)
                    if self._closed_count == CLOSED_ACTS:
                        break
                if self.life.end in ("cancelled", "die"):
                    scope.cancel()
                else:
                    await self._close()
                self._nursery.cancel_scope.cancel()

    async def _act(self, act: Act) -> None:
        random = Random(f"{self.world.seed}/{self.name}/{act.number}")
        self.world.trace("act", self.name, act.number, act.kind)
        limit_s = random.choice((0.0, 0.001, 0.02, 0.3)) if act.is_cut else ACT_LIMIT_S
        with trio.move_on_after(limit_s) as scope:
            try:
                await getattr(self, f"_{act.kind}")(random)
            except (GapError, SegbrokerError) as exc:
                self._stumbles(act.kind, exc)
            except Planned:
                self._raised -= 1
                if self._raised:
                    self.world.violation(f"{self.name}: what a callback raised was not told")
            except ValueError as exc:
                if "not assigned" not in str(exc):
                    raise
        if scope.cancelled_caught and not act.is_cut:
            self.world.violation(f"{self.name}: {act.kind} has not come back: {ACT_LIMIT_S} s")
        prefetched = self.consumer._reading.fetching.prefetched.buffered_bytes
        limit = self.life.options["prefetch_bytes"] + 8 * BATCH_BYTES
        if prefetched > limit:
            self.world.violation(f"{self.name} holds {prefetched} bytes, more than {limit}")

    def _stumbles(self, what: str, exc: SegbrokerError) -> None:
        self.world.trace("stumbles", self.name, what, type(exc).__name__, str(exc)[:100])
        self._closed_count += isinstance(exc, ClosedError)
        if isinstance(exc, GapError):
            self.view.told_gap((exc.gap.topic, exc.gap.partition), exc.gap.reason)
        if self.group.is_calm and not isinstance(exc, ClosedError):
            self.world.violation(f"{self.name}: {what} in calm: {type(exc).__name__}: {exc}")

    # Callbacks

    async def _on_assigned(self, partitions: list[TopicPartition]) -> None:
        self.view.processes()
        self.view.assigned(partitions)
        await self._callback(partitions)

    async def _on_revoked(self, partitions: list[TopicPartition]) -> None:
        if not self._closing_s:
            self.view.processes()
        try:
            await self._callback(partitions)
        finally:
            self.view.loses(partitions, "revoked")

    async def _on_lost(self, partitions: list[TopicPartition]) -> None:
        if not self._closing_s:
            self.view.processes()
        try:
            await self._callback(partitions, is_lost=True)
        finally:
            self.view.loses(partitions, "lost")

    async def _callback(
        self, partitions: Sequence[TopicPartition], *, is_lost: bool = False
    ) -> None:
        kind = self._random.choice(self.life.callbacks)
        self.world.trace("callback", self.name, kind)
        began_s = trio.current_time()
        try:
            match kind:
                case "wait":
                    await trio.sleep(self._random.choice((0.0, 0.1)))
                case "wait_long":
                    await trio.sleep(self._random.choice(LONG_S))
                case "raise":
                    self._raised += 1
                    raise Planned
                case "commit":
                    with suppress(SegbrokerError):
                        self.view.processes()
                        await self.consumer.commit()
                case "seek" if not is_lost:
                    self._seek_to(self._random.choice(partitions), self._random)
                case "pause" if not is_lost:
                    self.consumer.pause(*partitions)
                    self.view.pauses(partitions)
                case "close":
                    await self._close()
        finally:
            self._waited_s += trio.current_time() - began_s

    # Acts

    async def _iterate(self, random: Random) -> None:
        count = random.choice((1, 2, 5, 20))
        with trio.move_on_after(random.choice((0.1, 1.0))):
            for _ in range(count):
                if self._records is None or random.random() < 0.5:
                    self._records = aiter(self.consumer)
                self.view.processes()
                self._gets(await anext(self._records))
                if random.random() < 0.1:
                    await trio.sleep(random.choice((0.0, 0.01, 0.2)))

    async def _batches(self, random: Random) -> None:
        with trio.move_on_after(random.choice((0.1, 1.0))):
            for _ in range(random.choice((1, 2, 5))):
                self.view.processes()
                got = await anext(self.consumer.batches())
                if isinstance(got, ConsumedBatch):
                    for record in got:
                        self._gets(record)
                else:
                    self._gets(got)

    async def _poll(self, random: Random) -> None:
        self.view.processes()
        count, limit_ms = random.choice((1, 3, 10, 500)), random.choice((0, 50, 300, 1_000))
        for got in await self.consumer.poll(count, limit_ms):
            self._gets(got)

    def _gets(self, got: Record | Gap) -> None:
        if isinstance(got, Gap):
            self.view.told_gap((got.topic, got.partition), got.reason)
        else:
            self.view.handed(got)

    async def _commit(self, random: Random) -> None:
        self.view.processes()
        await self.consumer.commit()

    async def _commit_beside(self, random: Random) -> None:
        async def commit() -> None:
            with suppress(SegbrokerError):
                self.view.processes()
                await self.consumer.commit()

        assert self._nursery is not None
        self._nursery.start_soon(commit)
        await trio.sleep(random.choice((0.0, 0.001)))

    async def _commit_record(self, random: Random) -> None:
        if not self.view.in_hand:
            return
        (name, ordinal, partition), offset = random.choice(self.view.in_hand)
        key = name, ordinal, partition
        if self._may_be_past(key):
            return
        self.view.processes(lambda of, at: of == key and at <= offset)
        await self.consumer.commit({(name, partition): offset + 1})

    async def _commit_below(self, random: Random) -> None:
        tp, key, position = self._somewhere(random)
        if tp is None or key is None or not position or self._may_be_past(key):
            return
        offset = random.randrange(position)
        self.view.processes(lambda of, at: of == key and at < offset)
        self.view.says(key, offset)
        await self.consumer.commit({tp: offset})

    def _may_be_past(self, key: Key) -> bool:
        """Whether it reads another topic of the name already, and was not told so."""
        present = self.group.written.present(key[0])
        is_gone = present is None or present.ordinal != key[1]
        return is_gone and bool(self.life.options["on_gap"] == "skip")

    async def _commit_old(self, random: Random) -> None:
        """What it was handed of a partition that it does not have any more."""
        # Of what it was given again it may not have heard.
        has = {*self.view.has, *self.consumer._reading.group._owned}
        gone = [key for key in sorted(self.view.last) if (key[0], key[2]) not in has]
        key = random.choice(gone) if gone else None
        present = None if key is None else self.group.written.present(key[0])
        if key is not None and present is not None and present.ordinal == key[1]:
            offset = self.view.last[key] + 1
            self.view.foreign = key, offset
            self.view.says(key, offset)
            self.group.passes(key, 0, offset)
            try:
                await self.consumer.commit({(key[0], key[2]): offset})
            finally:
                self.view.foreign = None

    def _somewhere(self, random: Random) -> tuple[Place | None, Key | None, int | None]:
        """A partition that it has, the topic that it reads there, and where it is."""
        places = sorted(self.view.has)
        if not places:
            return None, None, None
        tp = random.choice(places)
        return tp, self.view.key_of(tp), self.view.has[tp].next

    async def _seek(self, random: Random) -> None:
        tp, _, _ = self._somewhere(random)
        if tp is not None:
            self._seek_to(tp, random)

    def _seek_to(self, tp: tuple[str, int], random: Random) -> None:
        key = self.view.key_of(tp)
        topic = self.group.written.present(tp[0])
        highest = max(topic.rows.get(tp[1], {0: None})) if topic is not None else 0
        to = random.randint(0, highest + 1)
        self.consumer.seek(*tp, to)
        if key is not None and to > highest:
            self.group.beyond.add(key)
        is_sure = key is not None and topic is not None and key[1] == topic.ordinal
        is_sure = is_sure and topic is not None and topic.trimmed.get(tp[1], 0) == 0
        self.view.seeks(tp, to, is_sure=is_sure and to < highest)

    async def _seek_bound(self, random: Random) -> None:
        tp, _, _ = self._somewhere(random)
        if tp is not None:
            to = random.choice(("start", "end", -2))
            self.consumer.seek(*tp, to)
            self.view.seeks(tp, 0 if to == "start" else END)

    async def _seek_time(self, random: Random) -> None:
        tp, _, _ = self._somewhere(random)
        if tp is not None:
            at_ms = EPOCH_MS + random.uniform(0, 1000 * trio.current_time())
            self.consumer.seek(*tp, datetime.fromtimestamp(at_ms / 1000, UTC))
            self.view.seeks(tp, END)

    async def _pause(self, random: Random) -> None:
        tp, _, _ = self._somewhere(random)
        if tp is not None:
            partitions = random.choice(((tp,), ()))
            self.consumer.pause(*partitions)
            self.view.pauses(partitions or self.view.has)

    async def _resume(self, random: Random) -> None:
        self.consumer.resume()
        self.view.pauses(self.view.has, is_so=False)

    async def _subscribe(self, random: Random) -> None:
        self.consumer.subscribe(random.choice((TOPICS, TOPICS[:1], TOPICS[1:], ())))
        if random.random() < 0.8:
            await trio.sleep(0.05)
            self.consumer.subscribe(self.life.topics)

    async def _work(self, random: Random) -> None:
        await trio.sleep(random.choice((0.0, 0.05, 0.3)))

    async def _work_long(self, random: Random) -> None:
        await trio.sleep(random.choice(LONG_S))

    async def _ask(self, random: Random) -> None:
        match random.choice(("positions", "committed", "end_offsets")):
            case "positions":
                self.view.stands_at(await self.consumer.positions())
            case "committed":
                await self.consumer.committed()
            case "end_offsets":
                await self.consumer.end_offsets()
        self.consumer.lag()

    async def _close_beside(self, random: Random) -> None:
        """Another task closes it a little later."""
        if random.random() < 0.7:
            return
        wait_s = random.choice((0.0, 0.05, 0.5))

        async def close() -> None:
            await trio.sleep(wait_s)
            await self._close()

        assert self._nursery is not None
        self._nursery.start_soon(close)

    async def _close(self) -> None:
        began_s, waited_s = trio.current_time(), self._waited_s
        self._closing_s = began_s
        self.world.trace("closes", self.name)
        try:
            await self.consumer.aclose()
        except Planned:
            self._raised = 0
        took_s = trio.current_time() - began_s - (self._waited_s - waited_s)
        self.world.trace("closed", self.name, f"{took_s:.3f}")
        if took_s > CLOSE_LIMIT_S:
            self.world.violation(f"{self.name}: to close took {took_s:.1f} s")


async def _silence(hurried: bool) -> None:
    """Say nothing."""
