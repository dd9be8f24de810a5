"""Instances of transactional producers, request by request, as thin as the protocol.

Each asks again what has no answer, or is to be asked again; what is refused for good ends it.  Now
and then it does not wait for an answer, or only for a moment.  A request that begins when somebody
was told of a later epoch must not succeed.

Under version 1 of the protocol a request that was given up may come later, into the next
transaction (docs/decisions/0105): so who has given one up begins anew behind the end of this one.
"""

from collections.abc import Awaitable, Callable
from typing import Final, cast

import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.markers import Outcome
from segbroker.protocol.messages_groups import DeleteGroupsRequest, DeleteGroupsResponse

from ..administration.belief import Difference
from ..administration.subject import Lives, answered
from ..simulation.world import World
from ..support.wire_client import WireClient
from ..support.wire_groups import WireMember
from ..support.wire_transactions import V1, V2, Tx, commit_batch
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
        self.partner: Tx | None = None
        """Under another id, whose transaction is to be committed as one with this one's."""
        self.batches = 0
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
        given = (self.tx.producer_id, self.tx.epoch)
        newest = self.ledger.newest.get(self.name, (-1, -1))
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
        self.world.trace("asked", self.label, what, f"producer {given}", code)
        if guarded and code == 0 and given < newest:
            raise Difference(f"{what} of {self.label}: {given} is heard behind {newest}")
        if code == 0:
            self.ledger.told(self.name, (self.tx.producer_id, self.tx.epoch))
        return code

    async def _asked(
        self, client: WireClient, ask: Callable[[], Awaitable[int]], got: list[int]
    ) -> None:
        self.tx.client = client
        if self.partner is not None:
            self.partner.client = client
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
        self.partner = None
        is_batch = self.random.random() < 0.15
        if is_batch and self.random.random() < 0.7:
            await self._join_in(attempt)
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
        if is_batch:
            await self._commit_batch(attempt)
        elif draw < 0.7:
            await self._commit(attempt)
        else:
            await self._abort(attempt)
        if self.may_come_later:
            raise Over("it begins anew")

    async def _join_in(self, attempt: Attempt) -> None:
        """Another id has a record in a transaction that is to be committed with this one."""
        partner = self.partner = Tx(None, f"{self.label}/{attempt.number}", self.tx.version)  # type: ignore[arg-type]
        key = self.random.choice(self.keys)
        sent = Sent(key, f"{partner.name}/with".encode())

        async def init() -> int:
            return await partner.init(self.random.choice(TIMEOUTS_MS))

        async def send() -> int:
            return await partner.send(key[0], sent.value, partition=key[1])

        if code := await self._until("init of a partner", init, 100, guarded=False):
            raise Over(f"init of a partner: {code}")
        attempt.sent.append(sent)
        if code := await self._until("send of a partner", send, 10, guarded=False):
            raise Over(f"send of a partner: {code}")
        sent.offset = partner.base_offset

    async def _commit_batch(self, attempt: Attempt) -> None:
        """As `_commit`, with a partner's or alone, as a batch of a query; this epoch ends."""
        self.batches += 1
        members = [self.tx] if self.partner is None else [self.tx, self.partner]

        async def ask() -> int:
            reply = await commit_batch(self.tx.client, self.label, self.batches, *members)
            error = cast(dict[str, int], reply.get("error", {}))
            return error.get("code", 0)

        for _ in range(self.random.choice(TRIES)):
            before = attempt.asks_commit()
            # Who asks again is answered that it was committed, whoever has come since.
            guarded = Outcome.COMMIT not in before
            code = await self._ask("commit of a batch", ask, guarded=guarded)
            if code == 0:
                attempt.ended(Outcome.COMMIT)
                break
            if code != SILENCE and code not in AGAIN:
                if Outcome.COMMIT not in before:
                    attempt.ended(Outcome.ABORT)
                break
            await trio.sleep(self.random.choice((0.001, 0.05, 0.3)))
        raise Over("its epoch has ended")

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

        is_member = self.tx.version == V2 and self.random.random() < 0.3
        is_stale = self.random.random() < 0.3

        async def ask() -> int:
            if not is_member:
                return await self.tx.stage(group_of(self.name), topic, offset)
            return await self._stage_as_member(topic, offset, is_stale=is_stale)

        place = len(attempt.staged)
        attempt.staged.append((offset, False))
        before = self.ledger.group_deletions[self.name]
        code = await self._until("stage", ask, self.random.choice(TRIES))
        is_beside = self.ledger.group_deletions[self.name] != before
        attempt.staged[place] = (offset, code == 0 and not is_beside)
        if code:
            raise Over(f"stage: {code}")
        if self.random.random() < 0.15:
            process = await self.lives.serving()
            async with self.lives.within(process), self.lives.client(process, "other") as client:
                await delete_group(self.world, self.ledger, client, self.name)

    async def _stage_as_member(self, topic: str, offset: int, *, is_stale: bool) -> int:
        """Joined for that; is_stale: with the generation before.  Raises Difference."""
        member = member_of(self.tx.client, self.name)
        if code := (await member.join()).error_code:
            return code
        await member.deal()
        generation = member.generation - is_stale
        code = await member.stage(self.tx, topic, offset, generation=generation)
        if is_stale and code == 0:
            raise Difference(f"an offset of {self.label} is staged in a generation that is over")
        if self.random.random() < 0.7:
            await member.leave()
        return code

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


def member_of(client: WireClient, name: str) -> WireMember:
    """One of that group, who waits for nobody for long."""
    return WireMember(
        client, group=group_of(name), session_timeout_ms=6_000, rebalance_timeout_ms=300
    )


async def delete_group(world: World, ledger: Ledger, client: WireClient, name: str) -> None:
    """Somebody deletes it, whatever waits for a commit; the broker may end meanwhile."""
    gone = ledger.delete_group(name)
    request = DeleteGroupsRequest(groups_names=[group_of(name)])
    try:
        reply = await client.ask(request, DeleteGroupsResponse, 2)
    finally:
        ledger.group_deletions[name] += 1
    code = reply.results[0].error_code
    world.trace("deleted", group_of(name), code)
    if code in (0, ErrorCode.GROUP_ID_NOT_FOUND):
        ledger.group_is_deleted(gone)
