"""What a seed does: drawn before it runs."""

from dataclasses import dataclass
from random import Random
from typing import Final

from ..simulation import plan as simulation

FAULTS: Final = (
    "kill", "kill", "power_cut", "power_cut", "drain", "kill_at", "kill_at", "power_cut_at",
    "power_cut_at", "slow_disk", "full_disk", "sync_error", "sync_error", "write_error",
    "wal_error", "wal_error",
)  # fmt: skip
"""`..._at`: at one of the next operations that change the disk."""
LAST: Final = ("kill", "power_cut", "power_cut", "drain")


@dataclass(frozen=True)
class Plan:
    """See the module.  Times in s of virtual time."""

    topics: tuple[tuple[str, bool], ...]
    """By name, whether their settings leave all records."""
    clients: int
    rounds: int
    pause_s: float
    faults: tuple[tuple[float, str], ...]
    broker: simulation.Plan
    """What the simulation has to know of the broker and of its disk."""


def draw(seed: int, *, rounds: int | None = None, faults: tuple[str, ...] = FAULTS) -> Plan:
    """The plan of a seed; rounds: of each subject, else by chance."""
    random = Random(f"{seed}/administration")
    count = random.choice((1, 2, 3))
    topics = tuple((f"t{n}", random.random() < 0.7) for n in range(count))
    rounds = rounds or random.choice((6, 12, 25))
    pause_s = random.choice((0.005, 0.02, 0.1))
    duration_s = rounds * pause_s * 2 + 0.5
    kinds = [kind for kind in faults if random.random() < 0.5]
    times = sorted(random.uniform(0.02, duration_s) for _ in range(random.choice((1, 2, 4, 8))))
    return Plan(
        topics=topics,
        clients=random.choice((2, 3)),
        rounds=rounds,
        pause_s=pause_s,
        faults=tuple((time, random.choice(kinds)) for time in times) if kinds else (),
        broker=simulation.Plan(
            duration_s=duration_s,
            last_crash=random.choice(LAST),
            settings=_settings(random),
            latency_s=random.choice((0.0002, 0.001)),
            short_writes=random.choice((0.0, 0.0, 0.2)),
            preempts=random.choice((0.0, 0.1, 0.5)),
            shards=random.choice(((1,), (1,), (1, 2, 3))),
            wal=random.choice(((1 << 14, 1 << 15), (1 << 14, 1 << 16), (1 << 16, 1 << 18))),
            sync_s=random.choice(((0.0002, 0.003), (0.001, 0.02))),
            name_errors=random.choice((0.0, 0.0, 0.0, 0.01, 0.03)) if faults is FAULTS else 0.0,
            express=random.random() < 0.5,
        ),
    )


def _settings(random: Random) -> dict[str, str | int | bool]:
    return {
        "authorizer": "acl",
        "super_users": "User:ANONYMOUS",
        "auto_create_topics": False,
        "flushers": random.choice((1, 2)),
        "lanes": random.choice((1, 2, 4)),
        "open_files_max": random.choice((16, 1_000)),
        "housekeeping_interval_ms": random.choice((100, 250, 1_000)),
        "cleaner_backoff_ms": random.choice((50, 500)),
        "retention_interval_ms": random.choice((50, 1_000)),
        "idle_timeout_ms": 600_000,
        "send_timeout_ms": 10_000,
        "drain_timeout_ms": random.choice((100, 2_000)),
    }
