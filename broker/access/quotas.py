"""Quotas at work: how much a client has used, and how long it is not read for that.

    a request, or its reply, is charged to the buckets of its client (quota_rules.py)
    a bucket below zero   ->  the reply says throttle_time_ms, and the connection is muted: not read
                              until the bucket is at zero again.  Nothing is refused.

A bucket fills at `rate` per second up to BURST_S seconds' worth and may be overdrawn by at most
DEBT_S seconds' worth: a request is served as a whole, whatever its size, and what it is beyond that
is forgiven.  A fetch is cut to what a second gives (one batch always fits) and is empty while its
client owes something.

| key | charged with |
|---|---|
| producer_byte_rate | bytes of Produce requests, as they come |
| consumer_byte_rate | bytes of records in Fetch replies |
| request_rate | requests (segbroker's own key) |
| request_percentage | time of the loop spent on requests, 100 for all of it |
| controller_mutation_rate | partitions that are made or deleted, by whom they are asked for |

Of the last one MUTATION_BURST_S seconds' worth may be used at once, as in Kafka, an hour's be owed.
A client in debt creates and deletes nothing, and is told so if its version of the request can say
it (topic_admin.py).

A client without any quota has the one of the settings, by user and address.  Before login nothing
is charged: strangers would share one allowance, and one of them could keep all others from logging
in.

At BUCKETS_MAX buckets the full ones are dropped.  If all are in use, the newcomers of a quota share
one: inventing client ids gains nothing, and costs nobody who has another quota, of whom there are
ENTITIES_MAX at most.  NAME_SIZE_MAX characters of a client id count.
`core.quotas` is None while there is no quota: one attribute test.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import trio

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.quotas import NAME_SIZE_MAX, SECTION, SET, Entity, quotas_of

from ..peers.peer import Peer
from .quota_rules import CONSUME, MUTATIONS, PRODUCE, REQUESTS, TIME, Found, Owner, find

Changes: TypeAlias = Mapping[Entity, Mapping[str, float]]
"""What entities have afterwards; nothing: they have no quota."""

BURST_S: Final = 1.0
DEBT_S: Final = 30.0
MUTATION_BURST_S: Final = 11.0
"""Kafka's controller.quota.window.num, of a second each."""
MUTATION_DEBT_S: Final = 3_600.0
BUCKETS_MAX: Final = 10_000
SWEEP_S: Final = 1.0
METERED: Final = (PRODUCE, CONSUME, REQUESTS, TIME, MUTATIONS)
UNLIMITED: Final = 1 << 62
"""Bytes of a fetch of whom no quota holds back."""


class Bucket:
    """An allowance that several connections may share."""

    __slots__ = ("_at", "_least", "_level", "_most", "rate")

    def __init__(
        self, rate: float, now: float, burst_s: float = BURST_S, debt_s: float = DEBT_S
    ) -> None:
        """rate: per second, above 0; full at `now` (trio's clock)."""
        self.rate = rate
        self._at = now
        self._most, self._least = rate * burst_s, -rate * debt_s
        self._level = self._most

    def charge(self, amount: float, now: float) -> float:
        """Take `amount`; how many seconds it takes until nothing is owed."""
        level = min(self._level + (now - self._at) * self.rate, self._most) - amount
        self._level = max(level, self._least)
        self._at = now
        return -self._level / self.rate if self._level < 0 else 0.0

    def is_full(self, now: float) -> bool:
        """Whether nobody would notice that it is gone."""
        return self._level + (now - self._at) * self.rate >= self._most


class Meter:
    """The buckets of one client, as they were looked up last."""

    __slots__ = (
        "client_id",
        "consume",
        "generation",
        "mutations",
        "produce",
        "requests",
        "time",
    )

    def __init__(self, peer: Peer, generation: int, buckets: Mapping[str, Bucket | None]) -> None:
        self.client_id = peer.client_id
        self.generation = generation
        self.produce = buckets[PRODUCE]
        self.consume = buckets[CONSUME]
        self.requests = buckets[REQUESTS]
        self.time = buckets[TIME]
        self.mutations = buckets[MUTATIONS]


class Quotas:
    """The quotas of one broker."""

    __slots__ = (
        "_buckets",
        "_defaults",
        "_generation",
        "_manager",
        "_swept_at",
        "changing",
        "rows",
    )

    def __init__(self, manager: DiskManager, defaults: Mapping[str, float]) -> None:
        """defaults: by key, for whom no quota is set; 0 for none."""
        self._manager = manager
        self._defaults = _set(defaults)
        self._buckets: dict[Owner, Bucket] = {}
        self._generation = 0
        self._swept_at = -SWEEP_S
        self.rows: dict[Entity, dict[str, float]] = {}
        # Held from reading what an entity has to storing what it has afterwards.
        self.changing = trio.Lock()
        self.reload()

    @property
    def is_active(self) -> bool:
        """Whether there is any quota."""
        return bool(self.rows or self._defaults)

    @property
    def buckets_count(self) -> int:
        """Allowances that are remembered."""
        return len(self._buckets)

    # Charging

    def arrived(self, peer: Peer, size: int, *, is_produce: bool) -> None:
        """A request of `size` bytes was received."""
        if not peer.is_admitted:
            return
        meter = self._meter(peer)
        if meter.requests is not None:
            self._charge(peer, meter.requests, 1)
        if is_produce and meter.produce is not None:
            self._charge(peer, meter.produce, size)

    def consumed(self, peer: Peer, size: int) -> None:
        """So many bytes of records are about to be sent."""
        if (bucket := self._meter(peer).consume) is not None:
            self._charge(peer, bucket, size)

    def worked(self, peer: Peer, seconds: float) -> None:
        """The loop was busy with a request for so long."""
        if peer.is_admitted and (bucket := self._meter(peer).time) is not None:
            self._charge(peer, bucket, seconds * 100)

    def mutates(self, peer: Peer, partitions: int, *, is_strict: bool) -> float:
        """So many partitions are about to be made or deleted for this client; how many seconds it
        owes.

        is_strict: nothing is charged to who owes something, and may not be done; who owes nothing
        may, whatever it owes behind that.  Otherwise it may always, and owes what is returned.
        """
        bucket = self._meter(peer).mutations
        if bucket is None:
            return 0.0
        now = trio.current_time()
        if not is_strict:
            return bucket.charge(partitions, now)
        owed = bucket.charge(0, now)
        if not owed:
            bucket.charge(partitions, now)
        return owed

    def fetch_limit(self, peer: Peer) -> int:
        """Most bytes of a fetch now; 0: its client owes something, and gets nothing."""
        bucket = self._meter(peer).consume
        if bucket is None:
            return UNLIMITED
        if owed := bucket.charge(0, trio.current_time()):
            peer.mute(owed)
            return 0
        return max(1, int(bucket.rate * BURST_S))

    def _charge(self, peer: Peer, bucket: Bucket, amount: float) -> None:
        if owed := bucket.charge(amount, trio.current_time()):
            peer.mute(owed)

    # Who has which

    def _meter(self, peer: Peer) -> Meter:
        meter = peer.meter
        # Whose it is stays: before a login nobody is charged, and the same user renews it.
        if (
            isinstance(meter, Meter)
            and meter.generation == self._generation
            and meter.client_id == peer.client_id
        ):
            return meter
        self._make_room()  # in front of the look-ups: what one has found is not dropped by the next
        buckets = {key: self._bucket(peer, key) for key in METERED}
        meter = peer.meter = Meter(peer, self._generation, buckets)
        return meter

    def _bucket(self, peer: Peer, key: str) -> Bucket | None:
        user = peer.principal.name
        found = find(self.rows, key, user, (peer.client_id or "")[:NAME_SIZE_MAX])
        if found is None and key in self._defaults:
            own = (key, "default", user, peer.address[0])
            found = Found(self._defaults[key], own, (key, "default"))
        if found is None or found.rate <= 0:
            return None
        bucket = self._buckets.get(found.owner)
        if bucket is None:
            owner = found.owner if len(self._buckets) < BUCKETS_MAX else found.sharers
            bucket = self._buckets.get(owner)
            if bucket is None:
                bucket = self._buckets[owner] = _made(key, found.rate, trio.current_time())
        return bucket

    def _make_room(self) -> None:
        """Drop the full ones where there may be too many for a client more."""
        if len(self._buckets) + len(METERED) <= BUCKETS_MAX:
            return
        now = trio.current_time()
        if now - self._swept_at < SWEEP_S:
            return  # each newcomer of a flood would look at all of them
        self._swept_at = now
        kept = {owner: one for owner, one in self._buckets.items() if not one.is_full(now)}
        if len(kept) < len(self._buckets):
            self._buckets = kept
            self._generation += 1  # who still holds a dropped one looks again

    # Changing

    def set_defaults(self, defaults: Mapping[str, float]) -> None:
        """Other ones for whom no quota is set, 0 for none; everybody begins with a full bucket."""
        self._defaults = _set(defaults)
        self.reload()

    def reload(self) -> None:
        """Go by what the storage has now; everybody begins with a full bucket."""
        self._go_by(quotas_of(self._manager.section(SECTION)))

    def store(self, changes: Changes) -> None:
        """Have entities have these quotas, and no others: durable when this returns, by one sync.
        For a lane, and whoever holds `changing`: then `go_by`.

        Raises StorageError: none of them has.
        """
        self._manager.record_all_now(
            SET,
            [
                {"entity": [list(part) for part in entity], "values": dict(values)}
                for entity, values in changes.items()
            ],
        )

    def go_by(self, changes: Changes) -> None:
        """Have what was stored in force.  Readers of `rows` go on with what they have."""
        rows = self.rows.copy()
        for entity, values in changes.items():
            if values:
                rows[entity] = dict(values)
            else:
                rows.pop(entity, None)
        self._go_by(rows)

    def _go_by(self, rows: dict[Entity, dict[str, float]]) -> None:
        self.rows = rows
        self._buckets = {}
        self._generation += 1


def _made(key: str, rate: float, now: float) -> Bucket:
    if key == MUTATIONS:
        return Bucket(rate, now, MUTATION_BURST_S, MUTATION_DEBT_S)
    return Bucket(rate, now)


def _set(defaults: Mapping[str, float]) -> dict[str, float]:
    return {key: rate for key, rate in defaults.items() if rate > 0}
