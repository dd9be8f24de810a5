"""One program in one shell: what it does, and what it is told.

What it is told is a list of texts, which is the same in each shell.  Where the time decides (which
records a member is handed that has just subscribed to other topics) that is left out of it.
"""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from segbroker.client import Admin, Producer
from segbroker.client.errors import ConnectionLost, SegbrokerError, TopicAlreadyExists
from segbroker.client.transport import Transport

from ..client.cut_short import World
from ..client.cut_short import world as cut_world
from .programs import Program
from .shells import OVER, TRIO, Cut, Shell, result

T = TypeVar("T")

COUNT: Final = 10
"""Records of a topic, in two batches."""
FIRST_BATCH: Final = 6
OTHERS: Final = 3
"""Records of the other topic."""
AT_MS: Final = 1_700_000_000_000
API_TIMEOUT_MS: Final = 1_000
LIMIT_S: Final = 10.0
"""What a call may take beyond its time, on a machine that stands still for a while."""
ASK_MAX: Final = 5
RESUMED_S: Final = 0.02


class Planned(Exception):
    """Raised on purpose."""


class Broken(AssertionError):
    """A promise was broken."""


class Place:
    """A broker, and what the programs of all shells need beside it."""

    def __init__(self, world: World, admin: Admin, producer: Producer) -> None:
        self.world = world
        self.admin = admin
        self.producer = producer
        self._count = 0
        self.other = self.make(OTHERS, "other")

    def make(self, count: int, about: str) -> str:
        """A topic with records, in two batches."""
        self._count += 1
        topic = f"{about}-{self._count}"
        with suppress(TopicAlreadyExists):
            self._asked(lambda: self.admin.create_topic(topic, partitions=1))
        for low, high in ((0, min(count, FIRST_BATCH)), (FIRST_BATCH, count)):
            self.write(topic, low, high)
        return topic

    def committed(self, group: str) -> dict[str, int]:
        """Where a group stands, by the kind of topic: at 0 is nowhere, as whoever is given a
        partition and leaves at once may know already where it begins."""
        stands = self._asked(lambda: self.admin.committed(group))
        return {tp.topic.partition("-")[0]: one.offset for tp, one in stands.items() if one.offset}

    def share_group(self, group: str, deliveries: int, lock_ms: int) -> None:
        """Have it begin at the start, with these limits."""
        settings = {
            "share.auto.offset.reset": "earliest",
            "share.delivery.count.limit": str(deliveries),
            "share.record.lock.duration.ms": str(lock_ms),
        }
        self._asked(lambda: self.admin.alter_group_config(group, settings))

    def share_lag(self, group: str) -> int:
        """How many records it is not done with."""
        offsets = self._asked(lambda: self.admin.share_offsets(group))
        return sum(one.lag or 0 for one in offsets.values()) if offsets else COUNT

    def sockets_left(self) -> int:
        """How many are open, but for those of this."""
        gc.collect()
        mine = {
            *self.admin._driver._transports.values(),
            *self.producer._driver._transports.values(),
        }
        return sum(
            one not in mine and one.socket is not None and one.socket.fileno() >= 0
            for one in gc.get_objects()
            if isinstance(one, Transport)
        )

    def _asked(self, ask: Callable[[], T]) -> T:
        """The broker's answer, whose connection may just have been cut."""
        for _ in range(ASK_MAX):
            with suppress(ConnectionLost):
                return ask()
        return ask()

    def write(self, topic: str, low: int, high: int) -> None:
        """Those from one offset to another."""
        values = [b"%d" % number for number in range(low, high)]
        if values:
            self.producer.send_many(topic, values, partition=0)
            self.producer.flush()


@contextmanager
def place(folder: Path) -> Iterator[Place]:
    """A broker for programs."""
    with cut_world(folder) as world:
        address = world.address
        with Admin(address) as admin, Producer(address, linger_ms=60_000) as producer:
            admin.alter_broker_config({"group_initial_rebalance_delay_ms": "0"})
            yield Place(world, admin, producer)


def told_by(program: Program, shell: Shell, place: Place) -> list[str]:
    """What the program is told there.  Raises Broken."""
    life = Life(program, shell, place)
    try:
        shell.run(lambda _: life.run())
    except AssertionError as exc:
        raise Broken(f"{program} in {shell.name}: {exc}; {life.told}") from exc
    finally:
        if program.at("away") or program.at("cut"):
            place.world.in_order()
    if left := place.sockets_left():
        raise Broken(f"{program} in {shell.name}: {left} sockets are left")
    return life.told


def differences(program: Program, shells: tuple[Shell, ...], place: Place) -> list[str]:
    """Where another shell tells another thing than that of trio, and what else is not as it should
    be."""
    found = []
    try:
        wanted = told_by(program, TRIO, place)
    except Broken as exc:
        return [str(exc)]
    for shell in shells:
        try:
            told = told_by(program, shell, place)
        except Broken as exc:
            found.append(str(exc))
            continue
        if told != wanted:
            found.append(f"{program}:\n    {TRIO.name}: {wanted}\n    {shell.name}: {told}")
    return found


class Life:
    """See the module."""

    def __init__(self, program: Program, shell: Shell, place: Place) -> None:
        self.program = program
        self.shell = shell
        self.place = place
        self.told: list[str] = []
        self.topic = place.make(COUNT, "t")
        self._beside: list[Any] = []
        self._last: Any = None
        self._moment = ""
        self._is_moved = False
        """Whether it has subscribed to other topics."""
        self._others: list[int] = []
        """What it was handed of these."""
        self._reader = 0
        self._is_revoked = False
        is_member = program.kind != "reader"
        options: dict[str, Any] = {
            "request_timeout_ms": 5_000,
            "api_timeout_ms": 60_000 if program.at("cut") else API_TIMEOUT_MS,
            "fetch_wait_ms": 100,
        }
        if is_member:
            options |= {
                "group": self.topic,
                "commit_interval_ms": 600_000,
                "on_assigned": shell.callback(self._assigned),
                "on_revoked": shell.callback(self._revoked),
                "group_protocol": program.kind,
            }
        if program.kind == "classic":
            options |= {"session_timeout_ms": 60_000, "heartbeat_interval_ms": 20}
        self.consumer = shell.consumer(
            place.world.address, self.topic, stop_at_end=not self._waits, **options
        )

    @property
    def _waits(self) -> bool:
        return self.program.at("beside") is not None or self.program.at("idle") is not None

    async def run(self) -> None:
        """All of it."""
        await self.shell.open(self.consumer)
        cut: Exception | None = None
        try:
            await self._work()
        except Planned as exc:
            cut = exc
        finally:
            self._moment = "end"
            await self._timed(lambda: self._end(cut))
            await self._join()
        if (act := self.program.at("closed")) is not None:
            await self._act("closed", act)
            await self._join()
        self._say("of the other topic", self._others)
        self._say_committed()

    async def _join(self) -> None:
        """Wait for what was begun beside."""
        beside, self._beside = self._beside, []
        for one in beside:
            await one.join()

    def _say_committed(self) -> None:
        if self.program.kind == "reader":
            return
        offsets = self.place.committed(self.topic)
        if not self._is_moved:
            self._say("committed", offsets)

    async def _end(self, cut: Exception | None) -> None:
        try:
            await self.shell.leave(self.consumer, cut)
        except Planned:
            self._say("the end raises what was planned")

    async def _work(self) -> None:
        at = self.program.at
        if (act := at("first")) is not None:
            await self._act("first", act)
        if at("body") is None and at("pieces") is None:
            await self._read(3)
        for moment in ("hand", "raised"):
            if (act := at(moment)) is not None:
                await self._act(moment, act)
                if moment == "raised":
                    raise Planned
        if (act := at("body")) is not None:
            await self._in_loop("body", act, lambda: self.consumer)
        if (act := at("pieces")) is not None:
            await self._in_loop("pieces", act, self.consumer.batches)
        if (act := at("away")) is not None:
            with self._away():
                await self._act("away", act)
        if (act := at("cut")) is not None:
            with self._away():
                await self._act("cut", act, is_cut=True)
        await self._rest()
        if (act := at("idle")) is not None:
            await self._act("idle", act, is_cut=True)
        if (act := at("beside")) is not None:
            await self._act_beside(act)

    @contextmanager
    def _away(self) -> Iterator[None]:
        self.place.world.proxy.go_away()
        try:
            yield
        finally:
            self.place.world.proxy.come_back()

    # Callbacks.

    async def _assigned(self, partitions: Any) -> None:  # noqa: ANN401
        await self._called("assigned", partitions)

    async def _revoked(self, partitions: Any) -> None:  # noqa: ANN401
        await self._called("revoked", partitions)

    async def _called(self, moment: str, partitions: Any) -> None:  # noqa: ANN401
        if not self._is_moved:
            self._say(f"{moment} {sorted(tp.topic.partition('-')[0] for tp in partitions)}")
        if not self._reader or self._reader != threading.get_ident():
            raise Broken("a callback runs in another thread than that which reads")
        act = self.program.at(moment)
        if act is None or (moment == "assigned" and self._is_moved):
            return
        if moment == "revoked" and self._is_revoked:
            return
        self._is_revoked = self._is_revoked or moment == "revoked"
        if act == "raise":
            raise Planned
        await self._act(moment, act)

    # What it does.

    def _say(self, *what: object) -> None:
        self.told.append(" ".join(map(str, what)))

    async def _timed(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        began_s, self._reader = time.monotonic(), threading.get_ident()
        try:
            return await result(call())
        finally:
            took_s = time.monotonic() - began_s
            if took_s > LIMIT_S + API_TIMEOUT_MS / 1000:
                raise Broken(f"a call took {took_s:.1f} s")

    async def _act(self, moment: str, act: str, *, is_cut: bool = False) -> None:
        before, self._moment = self._moment, moment
        do: Callable[[], Any] = getattr(self, f"_{act}")
        try:
            got = await self._timed(lambda: self.shell.cut(do) if is_cut else do())
        except Exception as exc:
            self._say(f"{act} at {moment} raises", _name(exc))
        else:
            self._say(f"{act} at {moment} gives", got)
        self._moment = before

    async def _read(self, count: int) -> None:
        """So many records, or what else comes."""
        for _ in range(2):  # a callback may raise once
            try:
                got = await self._timed(lambda: self.consumer.poll(count, 10_000))
                self._note(got)
                return
            except Exception as exc:
                self._say("poll raises", _name(exc))

    async def _rest(self) -> None:
        """What there is to the end."""
        self.consumer.resume() if self._is_open else None
        offsets: list[int] = []
        wanted = None if not self._waits else COUNT - 1
        for _ in range(50):
            try:
                got = await self._timed(lambda: self.consumer.poll(500, 2_000))
            except Exception as exc:
                self._say("poll raises", _name(exc))
                if not self._is_open:
                    break
                continue
            offsets += self._offsets(got)
            if got:
                self._last = got[-1]
            if (not got and self.consumer.is_at_end) or (
                wanted is not None and (not got or offsets[-1:] == [wanted])
            ):
                break
        self._say("the rest", offsets)

    @property
    def _is_open(self) -> bool:
        return repr(self.consumer).find(", closed") < 0

    def _offsets(self, got: Any) -> list[int]:  # noqa: ANN401
        """Of records, as long as it has not subscribed to others: when these go is not said."""
        self._others += [one.offset for one in got if one.topic == self.place.other]
        return [] if self._is_moved else [one.offset for one in got]

    def _note(self, got: Any) -> None:  # noqa: ANN401
        if got:
            self._last = got[-1]
        self._say("handed", self._offsets(got))

    async def _in_loop(self, moment: str, act: str, over: Callable[[], Any]) -> None:
        offsets: list[int] = []
        done = False
        try:
            loop = self.shell.loop(over())
            for _ in range(3 * COUNT):
                got = await self._timed(lambda: self.shell.next(loop))
                if got is OVER:
                    break
                records = [got] if moment == "body" else list(got.records())
                self._last = records[-1]
                offsets += self._offsets(records)
                if self._waits and offsets[-1:] == [COUNT - 1]:
                    break
                if not done and len(offsets) >= 2:
                    done = True
                    await self._act(moment, act)
        except Exception as exc:
            self._say("the loop raises", _name(exc))
        self._say("the loop hands out", offsets)

    async def _act_beside(self, act: str) -> None:
        """While this one waits for a record, which comes behind that."""

        async def do() -> None:
            await self.shell.pause(0.02)
            try:
                await self._act("beside", act)
            finally:
                self.place.write(self.topic, COUNT, COUNT + 1)

        beside = self.shell.beside(do)
        try:
            try:
                got = await self._wait_for_one()
                meanwhile = f"meanwhile {self._offsets(got)[:1]}"
            except Exception as exc:
                meanwhile = f"meanwhile poll raises {_name(exc)}"
        finally:
            await beside.join()
        self._say(meanwhile)
        if self._is_moved and self._is_open:
            for _ in range(OTHERS):
                if len(self._others) < OTHERS:
                    self._offsets(await self._timed(lambda: self.consumer.poll(500, 5_000)))

    async def _wait_for_one(self) -> Any:  # noqa: ANN401
        """What comes next."""
        return await result(self.consumer.poll(1, 5_000))

    # Acts.

    async def _poll(self) -> object:
        got = await result(self.consumer.poll(3, 2_000 if self._moment != "idle" else 60_000))
        if got:
            self._last = got[-1]
        return self._offsets(got)

    async def _next(self) -> object:
        got = await self.shell.next(self.shell.loop(self.consumer))
        if got is OVER:
            return "the end"
        self._last = got
        return self._offsets([got])

    async def _batch(self) -> object:
        got = await self.shell.next(self.shell.loop(self.consumer.batches()))
        if got is OVER:
            return "the end"
        self._last = got.records()[-1]
        return self._offsets(got.records())

    async def _commit(self) -> object:
        return await result(self.consumer.commit())

    async def _commit_record(self) -> object:
        if self._last is None:
            return "there is none"
        return await result(self.consumer.commit(self._last))

    async def _commit_offset(self) -> object:
        return await result(self.consumer.commit({(self.topic, 0): 2}))

    async def _commit_wrong(self) -> object:
        return await result(self.consumer.commit({(self.topic, 7): 2}))

    async def _committed(self) -> object:
        got = await result(self.consumer.committed((self.topic, 0)))
        return [one.offset for one in got.values()]

    async def _positions(self) -> object:
        got = await result(self.consumer.positions())
        return None if self._is_moved else list(got.values())

    async def _position(self) -> object:
        return await result(self.consumer.position(self.topic, 0))

    async def _end_offsets(self) -> object:
        return list((await result(self.consumer.end_offsets((self.topic, 0)))).values())

    async def _beginning_offsets(self) -> object:
        return list((await result(self.consumer.beginning_offsets((self.topic, 0)))).values())

    async def _offsets_for_times(self) -> object:
        at = datetime.fromtimestamp(AT_MS / 1000, UTC)
        got = await result(self.consumer.offsets_for_times({(self.topic, 0): at}))
        return [one.offset for one in got.values() if one is not None]

    async def _partitions_for(self) -> object:
        return await result(self.consumer.partitions_for(self.topic))

    async def _seek(self) -> object:
        return self.consumer.seek(self.topic, 0, 4)

    async def _seek_start(self) -> object:
        return self.consumer.seek(self.topic, 0, "start")

    async def _seek_wrong(self) -> object:
        return self.consumer.seek(self.topic, 7, 4)

    async def _pause(self) -> object:
        self.consumer.pause()
        self._resume_soon()
        return None

    async def _pause_wrong(self) -> object:
        return self.consumer.pause((self.topic, 7))

    def _resume_soon(self) -> None:
        async def resume() -> None:
            await self.shell.pause(RESUMED_S)
            if self._is_open:
                self.consumer.resume()

        self._beside.append(self.shell.beside(resume))

    async def _resume(self) -> object:
        return self.consumer.resume()

    async def _subscribe_same(self) -> object:
        return self.consumer.subscribe([self.topic])

    async def _subscribe_other(self) -> object:
        self.consumer.subscribe([self.place.other])
        self._is_moved = True
        return None

    async def _assign(self) -> object:
        return self.consumer.assign([(self.topic, 0)])

    async def _assignment(self) -> object:
        return [] if self._is_moved else [tp.partition for tp in self.consumer.assignment]

    async def _lag(self) -> object:
        return len(self.consumer.lag()) <= 1 or self._is_moved

    async def _is_at_end(self) -> object:
        return self.consumer.is_at_end in (True, False)

    async def _lost_counts(self) -> object:
        return self.consumer.lost_counts

    async def _group_metadata(self) -> object:
        return self.consumer.group_metadata.group_id == self.topic

    async def _close(self) -> None:
        await self.shell.close(self.consumer)

    async def _close_twice(self) -> None:
        await self.shell.close(self.consumer)
        await self.shell.close(self.consumer)


KNOWN: Final = (SegbrokerError, TypeError, ValueError, Planned, Cut)
"""What a caller is told."""


def _name(exc: Exception) -> str:
    if isinstance(exc, AssertionError) or not isinstance(exc, KNOWN):
        raise Broken(f"{exc!r} is no error that a caller should see") from exc
    return type(exc).__name__
