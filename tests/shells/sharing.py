"""Programs of two members of a share group, step by step, in one of the shells.

The steps are taken one after another: what each member is handed follows from what was said before.

| rule | broken when |
|---|---|
| done is done | a record comes again that was confirmed, by a commit or the end, to be done with |
| one at a time | a record comes to one member while the other has it, and nothing has gone wrong |
| counts | a record comes with a number of deliveries that is not above its last, or not possible |
| none lost | one that nobody is done with was not delivered as often as the limit says |

What was said and never confirmed may hold or not.  What a member was given and has not handed out
when it ends, loses its connection, or its lock, was delivered once more, unseen.
"""

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from segbroker.client import ShareConsumer, ShareRecord
from segbroker.client.errors import AcknowledgeFailed, SegbrokerError

from .life import COUNT, Broken, Place, Planned
from .shells import Shell, result

LIMITS: Final = (3, 5, 25)
"""Deliveries of a record."""
LOCK_MS: Final = 1_000
"""The shortest that there is."""
STEPS: Final = 12
LAST_POLLS: Final = 400
ACTS: Final = (
    "poll", "poll", "poll", "poll", "accept", "accept", "release", "release", "reject", "renew",
    "commit", "commit", "close", "fail", "cut", "wait",
)  # fmt: skip


@dataclass
class Member:
    """One life of it."""

    consumer: Any
    is_explicit: bool
    in_hand: dict[int, ShareRecord] = field(default_factory=dict)
    """Of what it was handed that of which nothing was said."""
    open: dict[int, str] = field(default_factory=dict)
    """What it has said, and nobody has confirmed."""


class Sharing:
    """One program in one shell."""

    def __init__(self, seed: int, shell: Shell, place: Place) -> None:
        self.random = Random(f"{seed}/sharing")
        self.shell = shell
        self.place = place
        self.told: list[str] = []
        self.lapses = self.random.random() < 0.3
        """Whether locks end by themselves, and nothing renews them."""
        self.topic = place.make(COUNT, "s")
        self.members: dict[str, Member] = {}
        self.counts: Counter[int] = Counter()
        self.times: Counter[int] = Counter()
        """How often each record has come."""
        self.unseen = 0
        """How often each may have been delivered beside that."""
        self.limit = self.random.choice(LIMITS)
        self.done: dict[int, str] = {}
        self.maybe: set[int] = set()
        """Of which somebody has said that it is done with it, and perhaps was heard."""
        place.share_group(self.topic, self.limit, LOCK_MS if self.lapses else 3_600_000)

    async def run(self) -> None:
        """All of it.  Raises Broken."""
        try:
            for _ in range(STEPS):
                name = self.random.choice("ab")
                act = self.random.choice(ACTS)
                self.told.append(f"{name} {act}")
                if name not in self.members:
                    self.members[name] = await self._begun()
                await self._step(name, act)
        finally:
            for name in list(self.members):
                await self._ends(name, None)
        await self._last()

    async def _begun(self) -> Member:
        options: dict[str, Any] = {
            "acquire": "records",
            "acquire_count": self.random.choice((1, 3, 100)),
            "acknowledge_interval_ms": self.random.choice((0, 50)),
            "max_hold_ms": 0 if self.lapses else None,
            "fetch_wait_ms": 50,
        }
        is_explicit = self.random.random() < 0.5
        consumer = self.shell.share_consumer(
            self.place.world.address,
            self.topic,
            group=self.topic,
            explicit=is_explicit,
            **options,
        )
        await self.shell.open(consumer)
        return Member(consumer, is_explicit)

    async def _step(self, name: str, act: str) -> None:
        member = self.members[name]
        try:
            match act:
                case "poll":
                    self._goes_past(member)
                    count = self.random.choice((1, 2, 5))
                    got = await result(member.consumer.poll(count, 150))
                    self._comes(name, got)
                case "commit":
                    self._goes_past(member)
                    await result(member.consumer.commit())
                    self._confirmed(member)
                case "close":
                    await self._ends(name, None)
                case "fail":
                    await self._ends(name, Planned())
                case "cut":
                    self.place.world.proxy.cut_all()
                    self._is_free()
                case "wait":
                    await self._waits()
                case _:
                    self._says(member, act)
        except AcknowledgeFailed as exc:
            self._fails(member, exc)

    async def _waits(self) -> None:
        """For longer than a lock lasts, where that is short."""
        if self.lapses:
            await self.shell.pause(1.3 * LOCK_MS / 1000)
            self._is_free()

    # What is known.

    def _is_free(self) -> None:
        """All that anybody has, by now or soon."""
        self.unseen += 1
        for member in self.members.values():
            member.in_hand = {}

    def _comes(self, name: str, got: list[Any]) -> None:
        for record in got:
            offset, count = record.offset, record.delivery_count
            what = f"{offset} comes to {name} for the {count}. time"
            self.told.append(what)
            if record.value != b"%d" % offset:
                raise Broken(f"{what}: it is {record.value!r}")
            if offset in self.done:
                raise Broken(f"{what}: {self.done[offset]} was confirmed")
            most = min(self.limit, self.times[offset] + self.unseen + 1)
            if not self.counts[offset] < count <= most:
                raise Broken(f"{what}, behind the {self.counts[offset]}., and {most} are possible")
            others = [one for other, one in self.members.items() if other != name]
            if not self.lapses and any(offset in one.in_hand for one in others):
                raise Broken(f"{what}: the other has it")
            self.counts[offset] = count
            self.times[offset] += 1
            member = self.members[name]
            member.in_hand[offset] = record
            member.open.pop(offset, None)

    def _goes_past(self, member: Member) -> None:
        """It comes back: what was handed to it is accepted."""
        if not member.is_explicit:
            self._said(member, member.in_hand, "accept")
            member.in_hand = {}

    def _said(self, member: Member, offsets: Any, kind: str) -> None:  # noqa: ANN401
        for offset in offsets:
            member.open[offset] = kind
            if kind != "release":
                self.maybe.add(offset)

    def _says(self, member: Member, kind: str) -> None:
        chosen = [one for one in member.in_hand if self.random.random() < 0.6]
        if not member.is_explicit and kind == "renew":
            return
        for offset in chosen:
            record = member.in_hand[offset] if kind == "renew" else member.in_hand.pop(offset)
            if kind != "renew":
                self._said(member, [offset], kind)
            try:
                getattr(member.consumer, kind)(record)
            except AcknowledgeFailed:
                member.open.pop(offset, None)
                member.in_hand.pop(offset, None)

    def _confirmed(self, member: Member) -> None:
        for offset, kind in member.open.items():
            if kind != "release":
                self.done[offset] = kind
        member.open = {}

    def _fails(self, member: Member, exc: AcknowledgeFailed) -> None:
        self.told.append(f"fails: {[(one.kind, one.offsets) for one in exc.failed]}")
        for one in exc.failed:
            for offset in one.offsets:
                member.open.pop(offset, None)
                member.in_hand.pop(offset, None)

    async def _ends(self, name: str, exc: Planned | None) -> None:
        member = self.members.pop(name)
        self.unseen += 1
        try:
            await self.shell.leave(member.consumer, exc)
        except AcknowledgeFailed as failed:
            self._fails(member, failed)
        if exc is None:
            self._confirmed(member)

    async def _last(self) -> None:
        """One more accepts all that there is."""
        came: set[int] = set()
        with ShareConsumer(
            self.place.world.address, self.topic, group=self.topic, explicit=True, fetch_wait_ms=50
        ) as consumer:
            self.members["last"] = Member(consumer, is_explicit=True)
            for _ in range(LAST_POLLS):
                got = consumer.poll(500, 50)
                self._comes("last", got)
                came |= {record.offset for record in got}
                consumer.accept(*got)
                consumer.commit()
                if not got and self.place.share_lag(self.topic) == 0:
                    break
            else:
                raise Broken("the group is never done")
        for offset in range(COUNT):
            is_done = offset in came or offset in self.maybe
            if not is_done and self.times[offset] + self.unseen < self.limit:
                raise Broken(f"{offset} is lost: it came {self.counts[offset]} times")


def sharing(seed: int, shell: Shell, place: Place) -> list[str]:
    """What is not as it should be."""
    program = Sharing(seed, shell, place)
    try:
        shell.run(lambda _: program.run())
    except (Broken, SegbrokerError) as exc:
        return [f"sharing {seed} in {shell.name}: {exc}; {program.told}"]
    if left := place.sockets_left():
        return [f"sharing {seed} in {shell.name}: {left} sockets are left"]
    return []
