"""Instances of transactional producers, request by request, as thin as the protocol.

Each asks again what has no answer, or is to be asked again; what is refused for good ends it.  Now
and then it does not wait for an answer, or only for a moment.  A request that begins when somebody
was told of a later epoch must not succeed.

Under version 1 of the protocol a request that was given up may come later, into the next
transaction (docs/decisions/0105): so who has given one up begins anew behind the end of this one.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.markers import Outcome

from ..administration.belief import Difference
from ..administration.subject import Lives, answered
from ..support.wire_client import WireClient
from ..support.wire_transactions import V1, V2, Tx
from .attempts import Attempt, Key, Ledger, Sent
from .plan import Plan

AGAIN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
SILENCE: Final = -2
"""There was no answer."""
TRIES: Final = (1, 3, 10)
PATIENCE_S: Final = (*[1_000.0] * 12, 0.0, 0.001, 0.005, 0.03)
TIMEOUTS_MS: Final = (200, 1_000, 10_000)


class Over(Exception):
    """This instance cannot go on."""


class Instance:
    """One producer with a transactional id."""

    def __init__(self, lives: Lives, plan: Plan, ledger: Ledger, name: str, number: int) -> None:
        self.lives = lives
        self.plan = plan
        self.ledger = ledger
        self.world = lives.world
        self.random = self.world.stream(f"instance {name} {number}")
        self.name = name
        self.tx = Tx(None, name, self.random.choice((V1, V2)))  # type: ignore[arg-type]
        self.values = 0
        self.may_come_later = False
        """Whether something of before may be heard now."""
        self.label = f"{name}/{number}"

    @property
    def keys(self) -> list[Key]:
        """Partitions to write to."""
        topics = self.plan.topics
        return [(one.name, index) for one in topics for index in range(one.partitions)]

    async def live(self) -> None:
        """All lives of it, one after the other."""
        for _ in range(self.plan.lives):
            try:
                await self._begin()
                for _ in range(self.plan.attempts):
                    await self._attempt()
                    await self._pause()
            except Over as exc:
                self.world.trace("over", self.label, exc)
            await self._pause()

    async def _pause(self) -> None:
        await trio.sleep(self.random.uniform(0, 2 * self.plan.pause_s))

    async def _ask(self, what: str, ask: Callable[[], Awaitable[int]], *, guarded: bool) -> int:
        """One request; its code.  guarded: it must not succeed for who was fenced.

        Raises Difference.
        """
        process = await self.lives.serving()
        epoch, newest = self.tx.epoch, self.ledger.newest.get(self.name, -1)
        code = SILENCE
        got = [code]
        patience_s = self.random.choice(PATIENCE_S)
        with trio.move_on_after(patience_s):
            async with (
                self.lives.within(process),
                self.lives.client(process, self.label) as client,
            ):
                await answered(self._asked(client, ask, got), f"{what} of {self.label}")
        code = got[0]
        self.may_come_later |= code == SILENCE and self.tx.version == V1
        self.world.trace("asked", self.label, what, f"epoch {epoch}", code)
        if guarded and code == 0 and epoch < newest:
            raise Difference(f"{what} of {self.label}: epoch {epoch} is heard behind {newest}")
        if code == 0:
            self.ledger.told(self.name, self.tx.epoch)
        return code

    async def _asked(
        self, client: WireClient, ask: Callable[[], Awaitable[int]], got: list[int]
    ) -> None:
        self.tx.client = client
        got[0] = await ask()

    async def _until(
        self, what: str, ask: Callable[[], Awaitable[int]], tries: int, *, guarded: bool = True
    ) -> int:
        """Ask until there is an answer that is one, so many times at most."""
        code = SILENCE
        for _ in range(tries):
            code = await self._ask(what, ask, guarded=guarded)
            if code != SILENCE and code not in AGAIN:
                break
            await trio.sleep(self.random.choice((0.001, 0.05, 0.3)))
        return code

    # What it does

    async def _begin(self, *, tries: int = 100) -> None:
        timeout_ms = self.random.choice(TIMEOUTS_MS)

        async def ask() -> int:
            return await self.tx.init(timeout_ms)

        if code := await self._until("init", ask, tries, guarded=False):
            raise Over(f"init: {code}")
        self._given()
        self.may_come_later = False

    def _given(self) -> None:
        given = (self.tx.producer_id, self.tx.epoch)
        if given in self.ledger.given:
            raise Difference(f"{self.label} is given {given}, as somebody before")
        self.ledger.given.add(given)

    async def _attempt(self) -> None:
        attempt = self.ledger.begin(self.name, (self.tx.producer_id, self.tx.epoch))
        for _ in range(self.random.randint(1, 4)):
            if self.random.random() < 0.25:
                await self._stage(attempt)
            else:
                await self._send(attempt)
            if self.random.random() < 0.5:
                await self._pause()
        if self.random.random() < 0.1:
            await trio.sleep(self.random.choice((0.3, 1.5)))
        draw = self.random.random()
        if draw < 0.1:
            raise Over("it is gone")
        if draw < 0.7:
            await self._commit(attempt)
        else:
            await self._abort(attempt)
        if self.may_come_later:
            raise Over("it begins anew")

    async def _send(self, attempt: Attempt) -> None:
        key = self.random.choice(self.keys)
        sent = []
        for _ in range(self.random.choice((1, 1, 2))):
            self.values += 1
            value = f"{self.label}/{attempt.number}/{self.values}".encode()
            sent.append(Sent(key, value + b"." * self.random.choice((0, 100))))
        attempt.sent += sent
        values = [one.value for one in sent]
        # Now and then one of version 1 does not say first that the partition takes part.
        version = 8 if self.tx.version == V1 and self.random.random() < 0.05 else None

        async def ask() -> int:
            return await self.tx.send(key[0], *values, partition=key[1], version=version)

        code = await self._until(f"send to {key}", ask, self.random.choice(TRIES))
        if code == 0:
            for place, one in enumerate(sent):
                one.offset = self.tx.base_offset + place
        elif self.random.random() < 0.5:
            await self._abort(attempt)
            raise Over(f"send: {code}, and aborted")
        else:
            raise Over(f"send: {code}")

    async def _stage(self, attempt: Attempt) -> None:
        offset = attempt.number + 1
        topic = self.plan.topics[0].name

        async def ask() -> int:
            return await self.tx.stage(group_of(self.name), topic, offset)

        place = len(attempt.staged)
        attempt.staged.append((offset, False))
        code = await self._until("stage", ask, self.random.choice(TRIES))
        attempt.staged[place] = (offset, code == 0)
        if code:
            raise Over(f"stage: {code}")

    async def _commit(self, attempt: Attempt) -> None:
        """Ask for it, and again where there is no answer; or, then, for the other."""

        async def ask() -> int:
            return await self.tx.end(commit=True)

        for _ in range(self.random.choice(TRIES)):
            before = attempt.asks_commit()
            code = await self._ask("commit", ask, guarded=True)
            if code == 0:
                attempt.ended(Outcome.COMMIT)
                return
            if code != SILENCE and code not in AGAIN:
                if Outcome.COMMIT not in before:
                    attempt.ended(Outcome.ABORT)
                raise Over(f"commit: {code}")
            await trio.sleep(self.random.choice((0.001, 0.05, 0.3)))
        if self.random.random() < 0.5:
            await self._abort(attempt)
        raise Over("commit: no answer")

    async def _abort(self, attempt: Attempt) -> None:
        async def ask() -> int:
            return await self.tx.end(commit=False)

        code = await self._until("abort", ask, self.random.choice(TRIES))
        if code:
            raise Over(f"abort: {code}")
        if Outcome.ABORT not in attempt.may:
            raise Difference(f"{attempt} is aborted")
        attempt.ended(Outcome.ABORT)


def group_of(name: str) -> str:
    """The group whose offsets a transactional id moves."""
    return f"of-{name}"
