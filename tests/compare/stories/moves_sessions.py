"""Fetch sessions (KIP-227): what is said of partitions that a client names once.

Each reader has a connection of its own.  It names partitions that there are not beside those that
there are: a session of few partitions is not kept here.
"""

from random import Random
from typing import Any, Final

from segbroker.protocol.api_keys import ApiKey

from .moves import mostly, move, version
from .moves_reading import IDS_SINCE
from .scene import PARTITIONS, Reader, Scene

READERS: Final = 2
SESSIONS_SINCE: Final = 7
MORE: Final = 50
"""Partitions that there are not: as many as a session has at least."""
NOBODYS: Final = 123_456_789
OLD: Final = 12
"""The last version that has names of topics."""

Place = tuple[int, int]


def _draw(random: Random) -> dict[str, Any]:
    places = [(topic, number) for topic in range(2) for number in range(PARTITIONS)]
    return {
        "who": random.randrange(READERS),
        "version": mostly(
            random, random.choice((OLD, 18)), version(random, ApiKey.FETCH, SESSIONS_SINCE)
        ),
        "session": mostly(random, "own", "new", "end", "ahead", "nobody's", unusual=0.25),
        "names": {
            at: random.choice((0, 0, random.randrange(12)))
            for at in random.sample([*places, (2, 0)], random.choice((0, 0, 1, 2)))
        },
        "forgets": random.sample(places, mostly(random, 0, 1, 2, unusual=0.2)),
        "committed": random.random() < 0.6,
        "most": mostly(random, 1 << 20, 1, 80, unusual=0.2),
    }


@move("transactions", 3, _draw)
async def fetch_on(
    scene: Scene,
    who: int,
    version: int,
    session: str,
    names: dict[Place, int],
    forgets: list[Place],
    committed: bool,
    most: int,
) -> None:
    """A reader begins a session, goes on in it, ends it; who has none begins one."""
    one = scene.readers[who]
    begins = session in ("new", "end") or not one.session
    if session == "own" and begins:
        session = "new"
    reads = set(names) if begins else one.places | set(names)
    if reads & scene.uneven:
        return
    if session == "new":
        names = {(1, PARTITIONS + n): 0 for n in range(MORE)} | names
    number, epoch = {
        "own": (one.session, one.epoch),
        "new": (0, 0),
        "end": (one.session, -1),
        "ahead": (one.session, one.epoch + 3),
        "nobody's": (NOBODYS, 1),
    }[session]
    answer = await scene.quietly_as(
        f"reader {who}",
        ApiKey.FETCH,
        version,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=most,
        isolation_level=int(committed),
        session_id=number,
        session_epoch=epoch,
        topics=_rows(scene, version, names, "partitions"),
        forgotten_topics_data=_rows(scene, version, dict.fromkeys(forgets), "partitions"),
    )
    answer.responses = _together(answer.responses)
    answer = scene.keep(ApiKey.FETCH, version, answer)
    scene.seen[next(reversed(scene.seen))]["session_id"] = "one" if answer.session_id else "none"
    if answer.error_code:
        return
    if session == "new":
        one.session, one.epoch, one.places = answer.session_id, 1, set(names)
    elif session == "end":
        scene.readers[who] = Reader()
    else:
        one.epoch += 1
        one.places = one.places.union(names).difference(forgets)


def _together(topics: list[Any]) -> list[Any]:
    """One row for each topic: Kafka begins another one where partitions of others are between."""
    rows: dict[object, Any] = {}
    for topic in topics:
        row = rows.setdefault((topic.topic, topic.topic_id), topic)
        if row is not topic:
            row.partitions += topic.partitions
    return list(rows.values())


def _rows(
    scene: Scene, version: int, places: dict[Place, int] | dict[Place, None], under: str
) -> list[dict[str, Any]]:
    """Rows of a request, by topic."""
    rows: dict[int, dict[str, Any]] = {}
    for (topic, partition), offset in places.items():
        which: dict[str, Any] = {"topic": scene.topic(topic)}
        if version >= IDS_SINCE:
            which = {"topic_id": scene.topic_id(topic)}
        row = rows.setdefault(topic, which | {under: []})
        if offset is None:
            row[under].append(partition)
        else:
            row[under].append(
                {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            )
    return list(rows.values())
