"""What a seed does: drawn before it runs."""

from dataclasses import dataclass
from random import Random
from typing import Final

from ..simulation import plan as simulation

FAULTS: Final = (
    "kill", "kill_at", "kill_at", "kill_at", "drain",
    "power_cut", "power_cut", "power_cut_at", "power_cut_at",
    "kill@decided", "power_cut@decided", "power_cut@decided",
    "slow_disk", "full_disk", "sync_error", "sync_error", "write_error", "wal_error", "wal_error",
    "cold", "clock_jump",
)  # fmt: skip
LAST: Final = ("kill", "power_cut", "drain")
CLASSES: Final = ("fsync", "fsync", "fsync", "disk", "disk", "memory")
NAMES: Final = ("tx-a", "tx-b", "tx-c")


@dataclass(frozen=True)
class Topic:
    """One that transactions write to.  is_doomed: it is deleted at some time."""

    name: str
    partitions: int
    settings: dict[str, str]
    is_doomed: bool


@dataclass(frozen=True)
class Plan:
    """See the module.  Times in s of virtual time."""

    topics: tuple[Topic, ...]
    names: tuple[str, ...]
    """Transactional ids."""
    instances: int
    """Of each id, at once."""
    attempts: int
    """Of each instance of each of its lives."""
    lives: int
    pause_s: float
    trims: int
    group_acts: int
    """Of others, in the group of each id."""
    duration_s: float
    faults: tuple[tuple[float, str], ...]
    broker: simulation.Plan


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    random = Random(f"{seed}/transactions")
    topics = tuple(_topic(random, f"t{n}") for n in range(random.choice((1, 2, 3))))
    attempts, lives = random.choice((2, 4, 8)), random.choice((1, 2, 4))
    pause_s = random.choice((0.002, 0.01, 0.05))
    duration_s = attempts * lives * pause_s * 8 + 0.3
    times = sorted(random.uniform(0.02, duration_s) for _ in range(random.choice((0, 2, 4, 8))))
    return Plan(
        topics=topics,
        names=NAMES[: random.choice((1, 2, 3))],
        instances=random.choice((1, 1, 2)),
        attempts=attempts,
        lives=lives,
        pause_s=pause_s,
        trims=random.choice((0, 0, 1, 3)),
        group_acts=random.choice((0, 0, 2, 5)),
        duration_s=duration_s,
        faults=tuple((time, random.choice(FAULTS)) for time in times),
        broker=simulation.Plan(
            topics=(),
            producers=(),
            consumers=(),
            admin=simulation.Admin(()),
            faults=(),
            duration_s=duration_s,
            last_crash=random.choice(LAST),
            settings={
                "auto_create_topics": False,
                "flushers": random.choice((1, 2)),
                "lanes": random.choice((1, 2, 4)),
                "open_files_max": random.choice((16, 1_000)),
                "housekeeping_interval_ms": random.choice((100, 500)),
                "idle_timeout_ms": 600_000,
                "drain_timeout_ms": random.choice((100, 2_000)),
                # Whoever asks again does so within ten seconds, mostly.
                "transactional_id_expiration_ms": random.choice((300, 5_000, 1 << 30)),
                "producer_id_expiration_ms": random.choice((20_000, 1 << 30)),
            },
            latency_s=random.choice((0.0002, 0.001)),
            short_writes=random.choice((0.0, 0.0, 0.2)),
            preempts=random.choice((0.0, 0.1, 0.5)),
            shards=random.choice(((1,), (1,), (1, 2, 3))),
            wal=random.choice(((1 << 14, 1 << 15), (1 << 14, 1 << 16), (1 << 16, 1 << 18))),
            sync_s=random.choice(((0.0002, 0.003), (0.001, 0.02))),
            express=random.random() < 0.5,
        ),
    )


def _topic(random: Random, name: str) -> Topic:
    settings = {
        "durability": random.choice(CLASSES),
        "segment.bytes": random.choice(("700", "4096", "1048576")),
        "retention.bytes": random.choice(("-1", "-1", "-1", "2000")),
    }
    is_doomed = name != "t0" and random.random() < 0.2
    return Topic(name, random.choice((1, 2, 3)), settings, is_doomed)
