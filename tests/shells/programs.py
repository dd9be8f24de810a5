"""What a program does: acts at moments.

| moment | the act is done |
|---|---|
| first | right behind the opening, before anything was asked for |
| assigned | in `on_assigned`, before the first record |
| hand | with three records in hand |
| body | in the body of a loop over records, which goes on |
| pieces | in the body of a loop over batches, which goes on |
| beside | by another thread or task, while the program waits for a record |
| away | while no broker can be reached |
| cut | while no broker can be reached, and the call is cut; then there is one again |
| idle | where there is nothing to read, and the call is cut |
| revoked | in `on_revoked`, at the end |
| raised | with three records in hand, and the block is left by an exception behind it |
| closed | behind the end |

Each act at each moment that it fits is a program of its own; behind these, programs are drawn that
have an act at several moments.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from random import Random
from typing import Final

READS: Final = ("poll", "next", "batch")
ASKS: Final = (
    "commit", "commit_record", "commit_offset", "commit_wrong", "committed", "positions",
    "position", "end_offsets", "beginning_offsets", "offsets_for_times", "partitions_for",
)  # fmt: skip
SAYS: Final = (
    "seek", "seek_start", "seek_wrong", "pause", "resume", "pause_wrong", "subscribe_same",
    "subscribe_other", "assign", "assignment", "lag", "is_at_end", "lost_counts", "group_metadata",
)  # fmt: skip
ENDS: Final = ("close", "close_twice")
ALL: Final = (*READS, *ASKS, *SAYS, *ENDS)
KINDS: Final = ("classic", "consumer", "reader")

# Of what a member is not given yet there is nothing to say.
_FIRST: Final = (*READS, "commit", "commit_wrong", "end_offsets_of", "partitions_for", *ENDS)
_IN_LOOPS: Final = tuple(act for act in ALL if act != "subscribe_same")
MOMENTS: Final[dict[str, tuple[str, ...]]] = {
    "first": tuple(act for act in _FIRST if act in ALL),
    "assigned": (*ALL, "raise"),
    "hand": ALL,
    "body": ALL,
    "pieces": ALL,
    "beside": ALL,
    "away": ALL,
    "cut": ASKS,
    "idle": READS,
    "revoked": (*(act for act in ALL if act not in ("subscribe_other", "subscribe_same")), "raise"),
    "raised": ALL,
    "closed": ALL,
}
OF_MEMBERS: Final = ("assigned", "revoked")


@dataclass(frozen=True)
class Program:
    """Attributes:
    kind: of the consumer: a member by the classic protocol, by the newer one, or none.
    acts: what is done at each moment that has an act.
    """

    number: int
    kind: str
    acts: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.kind}: " + ", ".join(f"{act} at {moment}" for moment, act in self.acts)

    def at(self, moment: str) -> str | None:
        """What is done then."""
        return dict(self.acts).get(moment)


def singles() -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    """Each act at each moment."""
    for kind in KINDS:
        for moment, acts in MOMENTS.items():
            if kind != "reader" or moment not in OF_MEMBERS:
                yield from ((kind, ((moment, act),)) for act in acts)


def programs() -> Iterator[Program]:
    """All: there is no end to them."""
    numbers = count()
    for kind, acts in singles():
        yield Program(next(numbers), kind, acts)
    for number in numbers:
        yield _drawn(number)


SINGLES: Final = sum(1 for _ in singles())


def program(number: int) -> Program:
    """The one of the number."""
    if number >= SINGLES:
        return _drawn(number)
    return next(islice(programs(), number, None))


def _drawn(number: int) -> Program:
    random = Random(f"{number}/shells")
    kind = random.choice(KINDS)
    fitting = [
        one
        for one in MOMENTS
        if (kind != "reader" or one not in OF_MEMBERS) and one not in ("raised", "idle")
    ]
    chosen = sorted(random.sample(fitting, random.choice((2, 3, 4))), key=list(MOMENTS).index)
    if "cut" in chosen and "away" in chosen:
        chosen.remove("away")  # what is cut has more time than anybody waits
    return Program(number, kind, tuple((one, random.choice(MOMENTS[one])) for one in chosen))
