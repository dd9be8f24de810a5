"""What a seed does: drawn before it runs, so that it can be printed.

A run leaves out most of what could happen: each kind of fault is in about a third of the seeds, and
every size and rate is drawn anew (small seeds find what an average of everything would hide).
"""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from segbroker.client.settings import Acquire
from segbroker.segments.log.caches import OPEN_LOGS_MAX

# What the nemesis can do; see nemesis.py.
NETWORK: Final = ("cut", "cut_all", "slow_network")
CRASHES: Final = ("kill", "power_cut", "drain")
DISK: Final = ("slow_disk", "cold", "full_disk", "sync_error", "write_error", "wal_error")
FAULTS: Final = (*NETWORK, *CRASHES, *DISK, "clock_jump")

WEAKER: Final = ("disk", "disk", "memory", "ephemeral")


# Shares of the seeds that have them.
GROUPS_SHARE: Final = 0.3
TRANSACTIONS_SHARE: Final = 0.3
CONSUMER_GROUPS_SHARE: Final = 0.2
STREAMS_GROUPS_SHARE: Final = 0.2
SHARE_GROUPS_SHARE: Final = 0.25
COMMITTED_SHARE: Final = 0.4
"""Of the seeds with transactions: where a share group works on what is committed."""
EXPRESS_SHARE: Final = 0.5
YOUNG_SHARE: Final = 0.1
CLASS_CHANGES_SHARE: Final = 0.25
NAMES_SHARE: Final = 0.25
FILES_SHARE: Final = 0.2
FILES: Final = ("remove_file", "replace_file", "cut_file", "take_file")
"""What somebody does to files of a running broker."""
HASTY_SHARE: Final = 0.5
PARKING_SHARE: Final = 0.25
"""Of the seeds in which logs give their descriptors back all the time."""
STAYING: Final = ("fsync", "fsync", "disk", "memory")
"""Classes between which a topic is moved: each keeps its records over the end of a process."""

LONG_SESSION_MS: Final = 6_000
ACQUIRE: Final[tuple[Acquire, ...]] = ("batches", "records")


@dataclass(frozen=True)
class Topic:
    """A topic; `churned` ones are deleted and created again while clients work."""

    name: str
    partitions: int
    durability: str
    segment_bytes: int
    churned: bool = False
    use: str = "plain"  # or "group", "transactions": who works on it
    retention: tuple[tuple[str, str], ...] = ()

    @property
    def config(self) -> dict[str, str]:
        return {
            "durability": self.durability,
            "segment.bytes": str(self.segment_bytes),
            **dict(self.retention),
        }


@dataclass(frozen=True)
class Producer:
    name: str
    topic: Topic
    idempotent: bool
    records: int
    value_bytes: int
    pause_s: float
    linger_ms: int
    many: bool  # sends with send_many
    lives: int  # is broken off and begins again, so many times
    delivery_timeout_ms: int
    request_timeout_ms: int


@dataclass(frozen=True)
class Pipeline:
    """A producer of plain requests that do not wait for each other."""

    name: str
    topic: Topic
    rounds: int
    pause_s: float


@dataclass(frozen=True)
class Consumer:
    name: str
    topic: Topic
    fetch_wait_ms: int
    prefetch_bytes: int
    pause_s: float
    lives: int
    request_timeout_ms: int


@dataclass(frozen=True)
class Group:
    """Members that join, commit, leave and die; `consumer` ones by KIP-848, `streams` ones by
    KIP-1071."""

    name: str
    topic: str
    members: int
    lives: int
    assignors: tuple[str, ...]
    session_timeout_ms: int
    pause_s: float
    protocol: str = "classic"
    standbys: int = 0
    initial_delay_ms: int = 0

    @property
    def is_static(self) -> bool:
        """Whether its members are static ones: where a life begins before the last is missed."""
        return self.protocol == "classic" and self.session_timeout_ms == LONG_SESSION_MS


@dataclass(frozen=True)
class ShareGroup:
    """Members that share the records of a topic (KIP-932); see shares.py."""

    name: str
    topic: str
    members: int
    lives: int
    reset: str  # where it begins: "earliest", "latest"
    deliveries: int  # of a record, at most
    lock_ms: int
    max_hold_ms: int | None  # how long members renew their locks
    acquire: Acquire
    acquire_count: int
    pause_s: float
    isolation: str = "read_uncommitted"

    @property
    def settings(self) -> dict[str, str]:
        """What is set on it."""
        return {
            "share.auto.offset.reset": self.reset,
            "share.delivery.count.limit": str(self.deliveries),
            "share.record.lock.duration.ms": str(self.lock_ms),
            "share.isolation.level": self.isolation,
            "share.session.timeout.ms": "3000",
            "share.heartbeat.interval.ms": "500",
        }


@dataclass(frozen=True)
class Transactor:
    """A producer of transactions over all partitions of its topics, and of a group's offsets."""

    name: str
    topics: tuple[str, ...]
    transactions: int
    timeout_ms: int
    pause_s: float
    lives: int
    moves_group: bool


@dataclass(frozen=True)
class Admin:
    """What administrators do, at what times (s)."""

    steps: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class Plan:
    """See the module.  Times in seconds of virtual time."""

    duration_s: float
    last_crash: str
    topics: tuple[Topic, ...] = ()
    producers: tuple[Producer, ...] = ()
    consumers: tuple[Consumer, ...] = ()
    admin: Admin = Admin(())
    faults: tuple[tuple[float, str], ...] = ()
    settings: dict[str, str | int | bool] = field(default_factory=dict)
    latency_s: float = 0.001
    window: tuple[int, int] = (65_536, 65_536)
    short: float = 0.0
    short_writes: float = 0.0
    preempts: float = 0.1
    sync_s: tuple[float, float] = (0.0002, 0.003)

    # How many shards the WAL may have, drawn anew at each start; bytes of a file and of a shard.
    shards: tuple[int, ...] = (1,)
    wal: tuple[int, int] = (1 << 16, 1 << 18)

    groups: tuple[Group, ...] = ()
    share_groups: tuple[ShareGroup, ...] = ()
    transactors: tuple[Transactor, ...] = ()

    express: bool = False
    """Whether plain producers take the express way, as they do on Linux."""
    pipelines: tuple[Pipeline, ...] = ()

    class_changes: tuple[tuple[float, str, str], ...] = ()
    """When (s) which topic becomes of which class."""

    open_logs: int = OPEN_LOGS_MAX
    """How many partitions keep a descriptor; the others open their file when it is needed."""
    name_errors: float = 0.0
    """Which share of the syncs of directories fails, or begins a streak of such."""
    hasty: bool = False
    """Whether a producer sends batches behind its first one before that is answered, as others'
    clients do; what overtakes it then is for the broker to refuse (docs/decisions/0080)."""

    def topic(self, name: str) -> Topic:
        (found,) = (topic for topic in self.topics if topic.name == name)
        return found

    @property
    def broker_settings(self) -> dict[str, str | int | bool]:
        """Those drawn, and what is the broker's of KIP-848 and streams groups: their sessions."""
        found = dict(self.settings)
        for group in self.groups:
            if group.protocol == "consumer":
                found["group_consumer_session_timeout_ms"] = group.session_timeout_ms
                found["group_consumer_heartbeat_interval_ms"] = group.session_timeout_ms // 5
            elif group.protocol == "streams":
                found["group_streams_session_timeout_ms"] = group.session_timeout_ms
                found["group_streams_heartbeat_interval_ms"] = group.session_timeout_ms // 5
                found["group_streams_num_standby_replicas"] = group.standbys
                found["group_streams_initial_rebalance_delay_ms"] = group.initial_delay_ms
        return found

    @property
    def has(self) -> set[str]:
        """The kinds of faults in it."""
        kinds = {kind for _, kind in self.faults} | {self.last_crash}
        return kinds | {"power_cut"} if kinds & {"young_cut", "take_file"} else kinds

    def classes(self, topic: Topic) -> set[str]:
        """All that a topic is of in the run."""
        return {topic.durability} | {to for _, name, to in self.class_changes if name == topic.name}

    def with_durability(self, durability: str | None) -> "Plan":
        """The same with all topics of one class; None: as they are."""
        if durability is None:
            return self
        changed = {topic: replace(topic, durability=durability) for topic in self.topics}
        return replace(
            self,
            topics=tuple(changed.values()),
            producers=tuple(replace(p, topic=changed[p.topic]) for p in self.producers),
            consumers=tuple(replace(c, topic=changed[c.topic]) for c in self.consumers),
            pipelines=tuple(replace(p, topic=changed[p.topic]) for p in self.pipelines),
            class_changes=(),
        )


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    random = Random(f"{seed}/plan")
    duration_s = random.choice((1.0, 2.0, 4.0))
    topics = [
        Topic(
            f"t{n}",
            random.choice((1, 1, 2)),
            random.choice(WEAKER) if random.random() < 0.45 else "fsync",
            random.choice((1024, 2048, 8192)),
            churned=n > 0 and random.random() < 0.15,
            retention=_retention(random),
        )
        for n in range(random.choice((1, 1, 2, 3)))
    ]
    producers = [_producer(random, n, topics, duration_s) for n in range(random.choice((1, 2, 3)))]
    written = [producer.topic for producer in producers]
    consumers = [_consumer(random, n, written) for n in range(random.choice((1, 1, 2)))]
    plain = list(topics)
    groups, transactors = [], []
    if random.random() < GROUPS_SHARE:
        topics.append(Topic("g0", random.choice((2, 3)), "fsync", 2048, use="group"))
        producers.append(_producer(random, len(producers), topics[-1:], duration_s))
        groups.append(_group(random, duration_s))
    if random.random() < TRANSACTIONS_SHARE:
        durability = random.choice(("fsync", "fsync", "disk", "memory"))
        names = ("x0", "x1")[: random.choice((1, 2))]
        topics += [Topic(name, 2, durability, 2048, use="transactions") for name in names]
        transactors = [
            _transactor(random, n, names, duration_s) for n in range(random.choice((1, 1, 2)))
        ]
    # Chance of its own: what was drawn before there were such groups is as it was.
    own = Random(f"{seed}/consumer groups")
    if own.random() < CONSUMER_GROUPS_SHARE:
        topics.append(Topic("k0", own.choice((2, 3)), "fsync", 2048, use="group"))
        producers.append(_producer(own, len(producers), topics[-1:], duration_s))
        groups.append(_consumer_group(own))
    own = Random(f"{seed}/streams groups")
    if own.random() < STREAMS_GROUPS_SHARE:
        topics.append(Topic("m0", own.choice((2, 3, 4)), "fsync", 2048, use="group"))
        producers.append(_producer(own, len(producers), topics[-1:], duration_s))
        groups.append(_streams_group(own))
    own = Random(f"{seed}/share groups")
    share_groups = []
    if own.random() < SHARE_GROUPS_SHARE:
        durability = own.choice(("fsync", "fsync", "disk"))
        retention = _retention(own)
        topics.append(Topic("s0", own.choice((1, 2)), durability, 2048, False, "group", retention))
        producers.append(_producer(own, len(producers), topics[-1:], duration_s))
        share_groups = [
            _share_group(own, name) for name in ("hands", "more")[: own.choice((1, 1, 2))]
        ]
    own = Random(f"{seed}/committed shares")
    if transactors and own.random() < COMMITTED_SHARE:
        clean = _share_group(own, "clean")
        share_groups.append(replace(clean, topic="x0", isolation="read_committed"))
    own = Random(f"{seed}/express")
    express, pipelines = own.random() < EXPRESS_SHARE, []
    if express:
        producers = [replace(p, idempotent=p.idempotent and own.random() < 0.5) for p in producers]
        pipelines = [_pipeline(own, n, plain, duration_s) for n in range(own.choice((1, 2, 4)))]
    admin = _admin(random, duration_s, plain)
    faults = _faults(random, duration_s)
    own = Random(f"{seed}/young cuts")
    if own.random() < YOUNG_SHARE:
        faults = tuple(sorted([*faults, (own.uniform(0.0, duration_s / 2), "young_cut")]))
    own = Random(f"{seed}/files")
    if own.random() < FILES_SHARE:
        count = own.choice((1, 1, 2, 4))
        meddling = [(own.uniform(0.1, duration_s), own.choice(FILES)) for _ in range(count)]
        faults = tuple(sorted([*faults, *meddling]))
    own = Random(f"{seed}/names")
    name_errors = own.choice((0.003, 0.01, 0.03)) if own.random() < NAMES_SHARE else 0.0
    own = Random(f"{seed}/parking")
    open_logs = own.choice((1, 1, 2)) if own.random() < PARKING_SHARE else OPEN_LOGS_MAX
    own = Random(f"{seed}/class changes")
    return Plan(
        open_logs=open_logs,
        hasty=Random(f"{seed}/hasty").random() < HASTY_SHARE,
        name_errors=name_errors,
        class_changes=_class_changes(own, topics, duration_s, faults),
        topics=tuple(topics),
        producers=tuple(producers),
        consumers=tuple(consumers),
        groups=tuple(groups),
        share_groups=tuple(share_groups),
        transactors=tuple(transactors),
        express=express,
        pipelines=tuple(pipelines),
        admin=admin,
        faults=faults,
        duration_s=duration_s,
        last_crash=random.choice(("none", "kill", "power_cut", "power_cut", "drain")),
        settings=_settings(random),
        latency_s=random.choice((0.0002, 0.001, 0.005, 0.05)),
        window=random.choice(((65_536, 65_536), (200, 4_000), (2_000, 70_000))),
        short=random.choice((0.0, 0.1, 0.5)),
        short_writes=random.choice((0.0, 0.0, 0.2)),
        preempts=random.choice((0.0, 0.1, 0.5)),
        shards=random.choice(((1,), (1,), (1, 2, 3))),
        wal=random.choice(((1 << 14, 1 << 15), (1 << 14, 1 << 16), (1 << 16, 1 << 18))),
        sync_s=random.choice(((0.0002, 0.003), (0.001, 0.02), (0.01, 0.2))),
    )


def _retention(random: Random) -> tuple[tuple[str, str], ...]:
    """Nothing, mostly; or a limit that a run comes to."""
    if random.random() < 0.85:
        return ()
    name, values = random.choice(
        (
            ("retention.bytes", (3_000, 20_000)),
            ("retention.records", (10, 60)),
            ("retention.ms", (500, 3_000)),
        )
    )
    return ((name, str(random.choice(values))),)


def _group(random: Random, duration_s: float) -> Group:
    return Group(
        name="team",
        topic="g0",
        members=random.choice((2, 2, 3)),
        lives=random.choice((1, 2, 3)),
        assignors=random.choice((("cooperative-sticky",), ("range",), ("sticky", "range"))),
        session_timeout_ms=random.choice((500, 1_500, LONG_SESSION_MS)),
        pause_s=random.choice((0.0, 0.05)) * duration_s,
    )


def _consumer_group(random: Random) -> Group:
    return Group(
        name="crew",
        topic="k0",
        members=random.choice((2, 3, 4)),
        lives=random.choice((1, 2, 3)),
        assignors=random.choice((("uniform",), ("range",))),
        session_timeout_ms=random.choice((500, 1_500, 6_000)),
        pause_s=0.0,
        protocol="consumer",
    )


def _streams_group(random: Random) -> Group:
    return Group(
        name="app",
        topic="m0",
        members=random.choice((2, 3, 4)),
        lives=random.choice((1, 2, 3)),
        assignors=(),
        session_timeout_ms=random.choice((500, 1_500, 6_000)),
        pause_s=0.0,
        protocol="streams",
        standbys=random.choice((0, 1)),
        initial_delay_ms=random.choice((0, 200)),
    )


def _share_group(random: Random, name: str) -> ShareGroup:
    return ShareGroup(
        name=name,
        topic="s0",
        members=random.choice((1, 2, 3)),
        lives=random.choice((1, 2, 4)),
        reset=random.choice(("earliest", "latest")),
        deliveries=random.choice((2, 5, 25)),
        lock_ms=random.choice((1_000, 1_000, 5_000)),
        max_hold_ms=random.choice((0, 500, None)),
        acquire=random.choice(ACQUIRE),
        acquire_count=random.choice((1, 10, 500)),
        pause_s=random.choice((0.0, 0.02)),
    )


def _transactor(
    random: Random, number: int, topics: tuple[str, ...], duration_s: float
) -> Transactor:
    count = random.choice((5, 10, 20))
    return Transactor(
        name=f"tx{number}",
        topics=topics,
        transactions=count,
        timeout_ms=random.choice((1_000, 5_000, 60_000)),
        pause_s=duration_s / count / 4,
        lives=random.choice((1, 1, 3)),
        moves_group=random.random() < 0.5,
    )


def _producer(random: Random, number: int, topics: list[Topic], duration_s: float) -> Producer:
    records = random.choice((20, 50, 120))
    # Most work as long as faults come; some are done at once.
    pause_s = duration_s / records * random.uniform(0.5, 1.5)
    return Producer(
        name=f"p{number}",
        topic=random.choice(topics),
        idempotent=random.random() < 0.8,
        records=records,
        value_bytes=random.choice((20, 60, 300)),
        pause_s=random.choice((0.0, pause_s, pause_s, pause_s)),
        linger_ms=random.choice((0, 0, 5, 30)),
        many=random.random() < 0.3,
        lives=random.choice((1, 1, 1, 3)),
        delivery_timeout_ms=random.choice((2_000, 20_000, 20_000)),
        request_timeout_ms=random.choice((1_000, 5_000, 10_000)),
    )


def _pipeline(random: Random, number: int, topics: list[Topic], duration_s: float) -> Pipeline:
    rounds = random.choice((5, 15))
    return Pipeline(
        name=f"w{number}",
        topic=random.choice(topics),
        rounds=rounds,
        pause_s=random.choice((0.0, duration_s / rounds)),
    )


def _consumer(random: Random, number: int, topics: list[Topic]) -> Consumer:
    return Consumer(
        name=f"c{number}",
        topic=random.choice(topics),
        fetch_wait_ms=random.choice((50, 500, 500, 15_000)),
        prefetch_bytes=random.choice((1_000, 20_000, 1 << 20)),
        pause_s=random.choice((0.0, 0.0, 0.02)),
        lives=random.choice((1, 1, 3)),
        request_timeout_ms=random.choice((2_000, 6_000)),
    )


def _admin(random: Random, duration_s: float, topics: list[Topic]) -> Admin:
    kinds = ["offsets", "alter", "create", "describe"]
    if random.random() < 0.5:
        kinds += ["delete_records"] * 2
    if random.random() < 0.3:
        kinds += ["grow"]
    if any(topic.churned for topic in topics):
        kinds += ["churn"] * 3
    count = random.choice((0, 2, 5))
    times = sorted(random.uniform(0.1, duration_s) for _ in range(count))
    return Admin(tuple((time, random.choice(kinds)) for time in times))


def _class_changes(
    random: Random,
    topics: list[Topic],
    duration_s: float,
    faults: tuple[tuple[float, str], ...],
) -> tuple[tuple[float, str, str], ...]:
    """Of topics that somebody reads who does not go by their class; some just before a crash."""
    names = [
        topic.name
        for topic in topics
        if topic.use != "group" and topic.durability in STAYING and not topic.churned
    ]
    if not names or random.random() >= CLASS_CHANGES_SHARE:
        return ()
    times = [random.uniform(0.05, duration_s) for _ in range(random.choice((1, 2, 4, 8)))]
    times += [
        max(0.05, time - random.choice((0.02, 0.1, 0.3)))
        for time, kind in faults
        if kind in CRASHES
    ]
    return tuple((time, random.choice(names), random.choice(STAYING)) for time in sorted(times))


def _faults(random: Random, duration_s: float) -> tuple[tuple[float, str], ...]:
    kinds = [kind for kind in FAULTS if random.random() < 0.35]
    count = random.choice((0, 1, 3, 6)) if kinds else 0
    times = sorted(random.uniform(0.05, duration_s) for _ in range(count))
    return tuple((time, random.choice(kinds)) for time in times)


def _settings(random: Random) -> dict[str, str | int | bool]:
    return {
        "flushers": random.choice((1, 2, 3)),
        "lanes": random.choice((1, 2, 4)),
        "slots_max": random.choice((1, 4, 2_000)),
        "ingest_bytes_max": random.choice((1 << 16, 64 << 20)),
        "open_files_max": random.choice((16, 1_000)),
        "housekeeping_interval_ms": random.choice((100, 250, 1_000)),
        "handshake_timeout_ms": 5_000,
        "idle_timeout_ms": 60_000,
        "send_timeout_ms": 10_000,
        "produce_timeout_max_ms": 15_000,
        "long_poll_max_ms": 20_000,
        "group_min_session_timeout_ms": 100,
        "group_initial_rebalance_delay_ms": random.choice((0, 100)),
        "drain_timeout_ms": random.choice((100, 2_000)),
    }
