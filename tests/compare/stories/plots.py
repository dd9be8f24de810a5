"""Sequences of steps that belong together, and the drawing of a whole story."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from segbroker.protocol.api_keys import SERVED, ApiKey

from . import (  # noqa: F401 - for the moves that they add
    moves_cluster,
    moves_consumers,
    moves_groups,
    moves_reading,
    moves_sessions,
    moves_settings,
    moves_shares,
    moves_streams,
    moves_topics,
    moves_transactions,
)
from .moves import MOVES, Step, Story, mostly, step
from .moves_streams import STREAMS_GROUP
from .scene import GROUPS, PARTITIONS, TOPICS

PLOT_SHARE: Final = 0.3
Plot = Callable[[Random], Iterator[Step]]


def right(random: Random, name: str, **fixed: Any) -> Step:
    """A step of which nothing is wrong on purpose."""
    usual = {"off": 0, "sequence_off": 0, "acks": -1, "timeout_ms": 60_000}
    drawn = step(random, name)
    return Step(
        name, {**drawn.says, **{k: v for k, v in usual.items() if k in drawn.says}, **fixed}
    )


def a_transaction(random: Random) -> Iterator[Step]:
    """Begun, written to, read, mostly ended."""
    who, newer = random.randrange(3), random.random() < 0.5
    at = {"topic": random.randrange(2), "partition": random.randrange(PARTITIONS)}
    if random.random() < 0.6:
        yield right(random, "init", who=who, as_own=False)
    old = 11 if not newer else SERVED[ApiKey.PRODUCE].max
    if not newer:
        yield right(random, "add", who=who, **at)
    for _ in range(random.randint(1, 2)):
        yield right(random, "produce", who=who, version=old, transactional=True, **at)
    if random.random() < 0.4:
        group = random.randrange(GROUPS)
        if not newer:
            yield right(random, "add_offsets", who=who, group=group)
        staged = {"who": who, "group": group, "member": None, "topic": 0, "partition": 0}
        yield right(random, "stage", version=5 if newer else 3, **staged)
    if random.random() < 0.5:
        yield step(random, "fetch", **at, offset=0)
    if random.random() < 0.8:
        span = SERVED[ApiKey.END_TXN]
        yield right(random, "end", who=who, version=span.max if newer else 3)
    yield step(random, "fetch", **at, offset=0, committed=True)


def a_round(random: Random) -> Iterator[Step]:
    """Members of a group join until all are in one generation, and are dealt their parts."""
    here = random.choice((["c0"], ["c0", "c1"], ["c0", "c2"], ["c0", "c1", "c2"], ["c4", "c5"]))
    usual = {"identity": "own", "kind": "consumer", "offers": ["range"]}
    for who in here:
        for _ in range(2):  # the first time one is told its id
            yield step(random, "join", who=who, version=9, **usual)
    for who in here[:-1]:
        yield step(random, "join", who=who, version=9, **usual)
    for who in here:
        yield right(random, "sync", who=who, leads=None)


def newer_members(random: Random) -> Iterator[Step]:
    """Members of KIP-848 join, and heartbeat until they have their parts."""
    here = random.choice((["k1"], ["k1", "k2"], ["k1", "k3"], ["k5"], ["k0"]))
    usual = {"epoch": "own", "topics": [0], "assignor": None, "owned": "all"}
    for _ in range(3):
        for who in here:
            yield step(random, "heartbeat", who=who, **usual)


def a_share(random: Random) -> Iterator[Step]:
    """Records of a share group: acquired by one or two members, mostly done, acquired again."""
    here = random.choice((["s0"], ["s0", "s1"], ["s2"]))
    group = GROUPS - 1 if here == ["s2"] else GROUPS
    at = {"topic": random.randrange(2), "partition": random.randrange(PARTITIONS)}
    reset = {"setting": "share.auto.offset.reset", "value": "earliest", "operation": 0}
    if random.random() < 0.7:
        yield step(random, "set_for_group", group=group, only_validate=False, **reset)
    for who in here:
        yield step(random, "share_heartbeat", who=who, epoch="own", topics=[0, 1])
    yield step(random, "share_fetch", who=here[0], session="own", most=500, **at)
    for _ in range(2):
        yield right(random, "produce", who=None, version=11, **at)
        for who in here:
            yield step(random, "share_fetch", who=who, session="own", **at)
            if random.random() < 0.7:
                yield step(random, "share_done", who=who, session="own", which="all", **at)
    yield step(random, "share_offsets", group=group, topics=None)


def an_emptied_partition(random: Random) -> Iterator[Step]:
    """Records are written and deleted; what is left is read and committed."""
    at = {"topic": random.randrange(2), "partition": random.randrange(PARTITIONS)}
    for _ in range(random.randint(1, 3)):
        yield right(random, "produce", who=mostly(random, None, 3, unusual=0.4), **at)
    yield step(random, "delete_records", **at)
    yield step(random, "fetch", **at, offset=random.randrange(6))
    for time in random.sample((-1, -2, -3, -4, -5, 0, 2), 3):
        yield step(random, "list_offsets", **at, time=time)
    yield step(random, "epoch_end", **at)
    yield right(random, "commit", who=None, **at)
    yield step(random, "offsets")


def a_session(random: Random) -> Iterator[Step]:
    """A reader names two partitions; what is written to them or deleted it is told."""
    who = random.randrange(2)
    at = {"topic": random.randrange(2), "partition": random.randrange(PARTITIONS)}
    usual = {"who": who, "forgets": [], "most": 1 << 20, "version": random.choice((12, 18))}
    both = {(at["topic"], number): 0 for number in range(PARTITIONS)}
    yield step(random, "fetch_on", session="new", **usual | {"names": both})
    for _ in range(2):
        if random.random() < 0.7:
            yield right(random, "produce", who=mostly(random, None, 3, unusual=0.4), **at)
        else:
            yield step(random, "delete_records", **at)
        yield step(random, "fetch_on", session="own", **usual | {"names": {}})
        yield step(random, "fetch_on", session="own", **usual)


def an_application(random: Random) -> Iterator[Step]:
    """Members of a streams group join, and heartbeat until they have their tasks."""
    here = random.choice((["w0"], ["w0", "w1"], ["w2"]))
    topology = random.choice(("one", "two", "both"))
    usual = {"epoch": "own", "topology": topology, "topology_epoch": 0, "owned": "all"}
    for _ in range(3):
        for who in here:
            yield step(random, "streams_heartbeat", who=who, shuts_down=False, **usual)


PLOTS: Final[dict[str, tuple[Plot, ...]]] = {
    "transactions": (a_transaction, a_transaction, an_emptied_partition, a_session),
    "groups": (a_round, newer_members),
    "shares": (a_share,),
    "streams": (an_application,),
}
THEMES: Final = (
    {"transactions": 1.0},
    {"transactions": 0.8, "topics": 0.2},
    {"groups": 1.0},
    {"groups": 0.8, "topics": 0.2},
    {"transactions": 0.5, "groups": 0.5},
    {"transactions": 0.4, "groups": 0.4, "topics": 0.2},
    {"topics": 0.7, "cluster": 0.3},
    {"cluster": 1.0},
    {"shares": 1.0},
    {"shares": 0.6, "transactions": 0.3, "topics": 0.1},
    {"shares": 0.5, "groups": 0.3, "cluster": 0.2},
    {"streams": 0.8, "topics": 0.2},
    {"streams": 0.5, "groups": 0.3, "cluster": 0.2},
)


def beginning() -> Iterator[Step]:
    """Two topics are there."""
    for number in range(2):
        yield Step(
            "create",
            {
                "topic": number,
                "version": SERVED[ApiKey.CREATE_TOPICS].max,
                "partitions": PARTITIONS,
                "replicas": 1,
                "settings": {},
                "only_validate": False,
            },
        )


def ending() -> Iterator[Step]:
    """Everything that has come of it is looked at."""
    yield Step("describe_transactions", {})
    for topic in range(TOPICS):
        for partition in range(PARTITIONS):
            at = {"topic": topic, "partition": partition}
            if topic < 2:
                yield Step("describe_producers", at)
            for committed in (False, True):
                yield Step("fetch", at | {"version": 18, "offset": 0, "committed": committed})
    for group in range(GROUPS):
        everything = {"topics": None, "stable": False, "version": 9, "who": None, "off": 0}
        yield Step("offsets", {"group": group} | everything)
        yield Step("describe_group", {"group": group, "version": 6})
        yield Step("describe_consumers", {"group": group, "version": 1})
    yield Step("describe_workers", {"group": STREAMS_GROUP})
    yield Step("share_offsets", {"group": GROUPS, "topics": None, "version": 1})
    yield Step("describe_sharers", {"group": GROUPS})
    yield Step("list_groups", {"version": 5, "states": [], "kinds": []})
    yield Step("metadata", {"version": 13})
    for topic in range(TOPICS):
        yield Step("describe_settings", {"topic": topic, "version": 4, "synonyms": False})


def drawn(seed: int, length: int) -> Story:
    """The story of a seed: so many steps, and those of its beginning and its end."""
    random = Random(seed)
    theme = random.choice(THEMES)
    middle: list[Step] = []
    while len(middle) < length:
        kind = random.choices(list(theme), list(theme.values()))[0]
        if kind in PLOTS and random.random() < PLOT_SHARE:
            middle += random.choice(PLOTS[kind])(random)
        else:
            known = {name: one.weight for name, one in MOVES.items() if one.theme == kind}
            middle.append(step(random, random.choices(list(known), list(known.values()))[0]))
    return (*beginning(), *middle[:length], *ending())
