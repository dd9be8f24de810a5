"""What a seed does: drawn before it runs, so that parts of it can be left out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from ..simulation import plan as simulation

ACTS: Final = (
    "iterate", "iterate", "iterate", "batches", "poll", "poll", "poll", "poll", "commit", "commit",
    "commit_record", "commit_beside", "seek", "seek_bound", "seek_time", "pause", "resume",
    "commit_old", "commit_below", "subscribe", "subscribe", "work", "work_long", "ask",
    "close_beside",
)  # fmt: skip
CALM_ACTS: Final = (
    "iterate", "iterate", "batches", "poll", "poll", "commit", "commit_record", "pause", "resume",
    "work", "ask", "commit_beside",
)  # fmt: skip
FAULTS: Final = (
    "cut", "cut_all", "slow_network", "kill", "drain", "silence", "silence", "cut_at",
    "refuse", "refuse", "refuse", "refuse",
)  # fmt: skip
OF_TOPICS: Final = ("delete", "recreate", "recreate", "grow", "grow", "trim", "trim")
PROTOCOLS: Final = ("classic", "classic", "consumer")
SESSION_MS: Final = 1_500
TOPICS: Final = ("t0", "t1")


@dataclass(frozen=True)
class Act:
    """What a member does; its number makes it draw the same whatever is left out before it."""

    number: int
    kind: str
    is_cut: bool
    """Whether it is cancelled in the middle."""


@dataclass(frozen=True)
class Life:
    """One consumer, from its making to its end."""

    pause_s: float
    """Before it begins."""
    topics: tuple[str, ...]
    pattern: str | None
    options: dict[str, Any]
    callbacks: tuple[str, ...]
    """Of which some are drawn each time that one is called."""
    acts: tuple[Act, ...]
    end: str
    """leave, die, cancelled or closed_twice."""


@dataclass(frozen=True)
class Member:
    """Several lives, one after the other."""

    name: str
    lives: tuple[Life, ...]


@dataclass(frozen=True)
class Plan:
    """See the module.  Times in s of virtual time."""

    is_calm: bool
    """Whether nothing goes wrong and nobody goes back: then nothing comes twice."""
    protocol: str
    partitions: dict[str, int]
    members: tuple[Member, ...]
    changes: tuple[tuple[float, str], ...]
    faults: tuple[tuple[float, str], ...]
    aborts: float
    """The share of the writing that is a transaction, of which half are aborted."""
    pause_s: float
    """Between two writings."""
    broker: simulation.Plan = field(repr=False)


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    random = Random(f"{seed}/consuming")
    is_calm = random.random() < 0.15
    protocol = random.choice(PROTOCOLS)
    duration_s = random.choice((1.0, 2.0, 4.0))
    assignors = random.choice(
        (("cooperative-sticky",), ("cooperative-sticky",), ("range",), ("sticky", "range"))
    )
    isolation = random.choice(("read_committed", "read_committed", "read_uncommitted"))
    shared: dict[str, Any] = {"isolation": isolation}
    if protocol == "classic":
        shared |= {
            "assignors": assignors,
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": 300,
        }
    members = tuple(
        _member(random, f"m{n}", protocol, shared, is_calm=is_calm)
        for n in range(random.choice((1, 2, 3)))
    )
    changes: tuple[tuple[float, str], ...] = ()
    faults: tuple[tuple[float, str], ...] = ()
    if not is_calm:
        changes = _at_times(random, OF_TOPICS, duration_s, (0, 1, 3, 5))
        faults = _at_times(random, FAULTS, duration_s, (0, 2, 4, 8))
    return Plan(
        is_calm=is_calm,
        protocol=protocol,
        partitions={name: random.choice((1, 2, 3)) for name in TOPICS},
        members=members,
        changes=changes,
        faults=faults,
        aborts=random.choice((0.0, 0.0, 0.3)),
        pause_s=random.choice((0.02, 0.1)),
        broker=_broker(random, duration_s),
    )


def _at_times(
    random: Random, kinds: Sequence[str], duration_s: float, counts: Sequence[int]
) -> tuple[tuple[float, str], ...]:
    count = random.choice(counts)
    times = sorted(random.uniform(0.1, duration_s) for _ in range(count))
    return tuple((time, random.choice(kinds)) for time in times)


def _member(
    random: Random, name: str, protocol: str, shared: dict[str, Any], *, is_calm: bool
) -> Member:
    instance_id = name if random.random() < 0.2 else None
    lives = random.choice((1, 2, 3))
    return Member(
        name,
        tuple(
            _life(random, protocol, shared, instance_id, 100 * n, is_calm=is_calm)
            for n in range(lives)
        ),
    )


def _life(
    random: Random,
    protocol: str,
    shared: dict[str, Any],
    instance_id: str | None,
    number: int,
    *,
    is_calm: bool,
) -> Life:
    prefetch_bytes = random.choice((300, 2_000, 1 << 20))
    options: dict[str, Any] = shared | {
        "group_protocol": protocol,
        "instance_id": instance_id,
        "auto_commit": random.random() < 0.7 or is_calm,
        "commit_interval_ms": random.choice((50, 500, 5_000)),
        "rebalance_timeout_ms": random.choice((2_000, 5_000)),
        "max_poll_interval_ms": None if is_calm else random.choice((None, None, 1_000)),
        "on_reset": "error" if is_calm else random.choice(("error", "start", "end")),
        "on_gap": random.choice(("raise", "skip", "yield")),
        "start": "start" if is_calm else random.choice(("start", "start", "start", "end")),
        "prefetch_bytes": prefetch_bytes,
        "fetch_partition_bytes": random.choice((300, 2_000, 1 << 20)),
        "fetch_wait_ms": random.choice((20, 200)),
        "request_timeout_ms": 3_000,
        "api_timeout_ms": 10_000,
        "metadata_max_age_ms": random.choice((500, 3_000)),
    }
    kinds = list(CALM_ACTS)
    callbacks: tuple[str, ...] = ("nothing",)
    if not is_calm:
        kinds = [kind for kind in ACTS if random.random() < 0.6] or ["poll"]
        others = ("wait", "wait_long", "raise", "commit", "seek", "pause", "close")
        callbacks = ("nothing", *(kind for kind in others if random.random() < 0.35))
    cut_share = 0.0 if is_calm else random.choice((0.0, 0.1, 0.4))
    acts = tuple(
        Act(number + n, random.choice(kinds), random.random() < cut_share)
        for n in range(random.choice((10, 20, 40)))
    )
    return Life(
        pause_s=random.choice((0.0, random.uniform(0.0, 1.0))),
        topics=random.choice((TOPICS, TOPICS, ("t0",))),
        pattern="t.*" if random.random() < 0.15 else None,
        options=options,
        callbacks=callbacks,
        acts=acts,
        end="leave" if is_calm else random.choice(("leave", "leave", "die", "cancelled")),
    )


def _broker(random: Random, duration_s: float) -> simulation.Plan:
    return simulation.Plan(
        duration_s=duration_s,
        last_crash="none",
        settings={
            "auto_create_topics": False,
            "flushers": 1,
            "lanes": 1,
            "group_min_session_timeout_ms": 100,
            "group_initial_rebalance_delay_ms": random.choice((0, 100)),
            "group_consumer_session_timeout_ms": SESSION_MS,
            "group_consumer_heartbeat_interval_ms": 300,
            "drain_timeout_ms": 500,
        },
        latency_s=random.choice((0.0002, 0.001, 0.005)),
        short_writes=0.0,
        preempts=0.0,
        shards=(1,),
        wal=(1 << 16, 1 << 18),
        sync_s=(0.0002, 0.003),
        express=False,
    )
