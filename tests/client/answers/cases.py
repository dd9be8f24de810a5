"""A story with a fault, of all three clients: what is drawn from a seed, and the verdict.

Each call of the client returns, or raises an error of ours that says why, within its limit; behind
the fault the same client goes on, or has said that it is fenced; nothing acknowledged is missing,
nothing is there twice, nothing refused is there; no connection is left; the three clients come to
the same.
"""

import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

from segbroker.client.spoken import SPOKEN
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode

from .administrators import ERRANDS, Errand, administers
from .consumers import joins, joins_by_itself, joins_newer, joins_static, reads, transforms
from .deeds import (
    Code,
    Cut,
    Deed,
    Emptied,
    Fault,
    Miscounted,
    Missing,
    Older,
    Silent,
    Stranger,
    Throttled,
    places,
)
from .kits import KITS, Kit
from .producers import commits, prepares, sends
from .sharers import shares
from .story import Stage, Story
from .switchboard import CHANGES

END_S: Final = 120
"""What a story may take at most; then it hangs."""
QUIET_S: Final = 60

ANYBODY: Final = (ApiKey.API_VERSIONS, ApiKey.METADATA)
TRANSACTIONS: Final = (
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.PRODUCE,
    ApiKey.END_TXN,
)
READING: Final = (ApiKey.LIST_OFFSETS, ApiKey.FETCH)
MEMBERS: Final = (
    *READING,
    ApiKey.FIND_COORDINATOR,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
)
CLASSIC: Final = (
    *MEMBERS,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
)

# What their answers give is said once: who leaves something out has not given it.
ONCE: Final = frozenset(
    {
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
    }
)

# Codes of what may be done all the same, or is.
PERHAPS_DONE: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        # Behind an append, by who is not the leader of the partition any more.
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)


@dataclass(frozen=True)
class Plot:
    """A story.

    Attributes:
        keys: the apis that it uses.
        is_timed: what a step comes to depends on what goes on beside it.
    """

    name: str
    tells: Callable[[Story], Awaitable[None]]
    keys: tuple[ApiKey, ...]
    is_timed: bool = False


def _errand(errand: Errand) -> Plot:
    return Plot(errand.name, partial(administers, errand=errand), (errand.key, *errand.others))


STORIES: Final = (
    Plot("sends", sends, (ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE)),
    Plot("commits", commits, TRANSACTIONS),
    Plot("prepares", prepares, TRANSACTIONS),
    Plot("reads", reads, READING, is_timed=True),
    Plot("joins", joins, CLASSIC, is_timed=True),
    Plot("joins_static", joins_static, CLASSIC, is_timed=True),
    Plot("joins_by_itself", joins_by_itself, CLASSIC, is_timed=True),
    Plot("joins_newer", joins_newer, (*MEMBERS, ApiKey.CONSUMER_GROUP_HEARTBEAT), is_timed=True),
    Plot(
        "transforms", transforms, (*TRANSACTIONS, *CLASSIC, ApiKey.TXN_OFFSET_COMMIT), is_timed=True
    ),
    Plot(
        "shares",
        shares,
        (ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE),
        is_timed=True,
    ),
)
PLOTS: Final = (*STORIES, *map(_errand, ERRANDS))

CODES: Final = [code for code in ErrorCode if code != ErrorCode.NONE]


@dataclass
class Case:
    """Attributes:
    plot: what the client does.
    fault: what it meets.
    problems: what is wrong, of which client.
    told: what each came to.
    has_happened: the fault made a difference.
    """

    plot: Plot
    fault: Fault
    problems: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    has_happened: bool = False

    @classmethod
    def drawn(cls, seed: int, names: str = "") -> "Case":
        random = Random(seed)
        plots = random.choice([STORIES, STORIES, PLOTS])
        plot = random.choice([plot for plot in plots if names in plot.name] or PLOTS)
        key = random.choice(plot.keys if random.random() < 0.9 else ANYBODY)
        times = random.choice([1, 1, 1, 2, None])
        nth = random.choice([1, 1, 1, 2, 3])
        deed = _deed(random, plot, key)
        then = _deed(random, plot, key) if times and random.random() < 0.25 else None
        return cls(plot, Fault(key, deed, nth, times, then))

    def run(self, stage: Stage, kits: tuple[Kit, ...] = KITS) -> "Case":
        outcomes = {}
        for kit in kits:
            story = self._told_by(stage, kit)
            self.has_happened = self.has_happened or story.door.happened > 0
            self.problems += [f"{kit.name}: {problem}" for problem in story.problems]
            self.told += [f"{kit.name}: {line}" for line in story.told]
            outcomes[kit.name] = story.outcomes
        # Which request is the second of an api may be a matter of time.
        if not self.plot.is_timed and self.fault.nth == 1:
            first = next(iter(outcomes.values()))
            if any(other != first for other in outcomes.values()):
                self.problems.append(f"they differ: {outcomes}")
        return self

    def _told_by(self, stage: Stage, kit: Kit) -> Story:
        name = f"{self.plot.name.replace('_', '-')}-{next(stage.numbers)}"
        door = stage.board.door(self.fault)
        story = Story(stage, kit, self.fault, name, door)

        async def tell() -> None:
            try:
                await self.plot.tells(story)
            finally:
                await story.end()

        def run() -> None:
            try:
                kit.run(tell)
            except BaseException:
                story.problems.append(f"it ends by {traceback.format_exc(limit=-6)}")

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        thread.join(END_S)
        if thread.is_alive():
            story.problems.append(f"it hangs behind {story.told[-1:]}: {_stack(thread)}")
        deadline_s = time.monotonic() + QUIET_S
        while door.open_count and time.monotonic() < deadline_s:
            time.sleep(0.01)
        story.check(not door.open_count, f"{door.open_count} connections are left")
        door.close()
        return story


def _stack(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame, 12)) if frame else ""


def _deed(random: Random, plot: Plot, key: ApiKey) -> Deed:
    kind = random.choice(["code"] * 6 + ["cut", "cut", "rows", "other"])
    if kind == "code" and (codes := places(key, what="codes")):
        place = random.choice(codes)
        code = random.choice(CODES)
        return Code(place, code, code in PERHAPS_DONE and random.random() < 0.5)
    if kind in ("code", "cut"):
        where: Any = random.choice(["before", "behind", "within"])
        return Cut(where, random.random())
    rows = places(key, what="rows")
    if kind == "rows" and rows and key not in ONCE:
        # An answer to a change lacks what tells its outcome, not a part of that.
        told = {each[:-1] for each in places(key, what="codes")}
        of_change = [each for each in rows if any(one[: len(each)] == each for one in told)]
        place = random.choice((of_change if key in CHANGES else None) or rows)
        made: list[Deed] = [Emptied(place), Emptied(place, is_null=True), Missing(place)]
        return random.choice(made)
    if key == ApiKey.API_VERSIONS:
        return Older(random.choice([each for each in plot.keys if each in SPOKEN]))
    others: list[Deed] = [Throttled(), Miscounted(), Silent()]
    return random.choice(others if key in ONCE else [*others, Stranger()])
