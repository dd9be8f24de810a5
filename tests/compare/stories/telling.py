"""Tells a story to both brokers, up to the first difference; makes it shorter."""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import trio

from segbroker.protocol.api_keys import ApiKey

from ...support.wire_client import WireClient
from ..accepted_stories import LABEL
from ..answers import Difference, differences
from ..findings import short
from ..logins import Address
from ..rules import acceptance
from .moves import Step, Story, played
from .plots import drawn
from .scene import Scene

# How long both may take until what both have not answered counts as waiting, and how long one of
# them may take once the other has answered.
GRACE_S: Final = 0.1
PATIENCE_S: Final = 4.0
SHORTENING_S: Final = 90.0
STEP_TIMEOUT_S: Final = 60.0
HANDED_OUT: Final = "records.batches"
_titles = itertools.count()


class Two(NamedTuple):
    """Where Apache Kafka listens, and where segbroker does."""

    theirs: Address
    ours: Address


@dataclass(frozen=True)
class Ended:
    """How far a story was the same on both.

    Attributes:
        at: number of the step.
        difference: where they disagree; None if a step was not played to its end.
        what: in words.
        accepted: a rule names it.
    """

    at: int
    key: str
    difference: Difference | None
    what: str
    accepted: bool = False

    def is_like(self, other: "Ended") -> bool:
        """The same difference, of whatever step."""
        if self.difference is None or other.difference is None:
            return self.what == other.what
        return (self.key, self.difference) == (other.key, other.difference)


async def told(pair: Two, story: Story) -> tuple[Ended | None, int]:
    """Tell a story.  Returns its first difference, if any, and how many answers were compared."""
    now_ms = time.time_ns() // 1_000_000 + 600_000
    title = f"s{now_ms % 1_000_000_000}n{next(_titles)}-"
    scenes = []
    for address in pair:
        client = WireClient(await trio.open_tcp_stream(*address), "compare")
        scenes.append(Scene(address, client, title, now_ms))
    count = 0
    try:
        async with trio.open_nursery() as waiting:
            for scene in scenes:
                scene.lives_in(waiting)
            for number, one in enumerate(story):
                ended = await _step(scenes, one, number)
                count += len(scenes[0].seen)
                if ended is not None:
                    waiting.cancel_scope.cancel()
                    return ended, count
            waiting.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            for scene in scenes:
                await scene.aclose()
    return None, count


async def _step(scenes: Sequence[Scene], one: Step, number: int) -> Ended | None:
    failures: list[str] = []

    async def play(scene: Scene, whose: str) -> None:
        try:
            await played(scene, one)
        except Exception as exc:  # whatever it is, the story says where
            failures.append(f"{whose}: {type(exc).__name__} {exc}"[:300])

    for scene in scenes:
        scene.seen.clear()
    with trio.move_on_after(STEP_TIMEOUT_S) as limit:
        async with trio.open_nursery() as nursery:
            for scene, whose in zip(scenes, ("Kafka", "segbroker"), strict=True):
                nursery.start_soon(play, scene, whose)
        await _settled(scenes)
    if failures or limit.cancelled_caught:
        return Ended(number, one.move, None, "; ".join(failures) or "takes too long")
    theirs, ours = scenes
    labels = list(dict.fromkeys([*theirs.seen, *ours.seen]))
    if list(theirs.waiting) != list(ours.waiting):
        alone = set(theirs.waiting) ^ set(ours.waiting)
        who = "Kafka" if alone & set(theirs.waiting) else "segbroker"
        names = sorted(name.split()[0] for name in alone)
        return Ended(number, one.move, None, f"{who} alone lets wait: {names}")
    for label in labels:
        key = ApiKey[label.split()[0]]
        for difference in differences(theirs.seen.get(label, {}), ours.seen.get(label, {})):
            rule = acceptance(key, LABEL, difference)
            what = (
                f"{key.name} {difference.path}: Kafka {short(difference.theirs)}, "
                f"segbroker {short(difference.ours)}"
            )
            if rule is None:
                return Ended(number, key.name, difference, what)
            is_done_by_one = difference.path.endswith("error_code") and 0 in (
                difference.theirs,
                difference.ours,
            )
            if is_done_by_one or difference.path.endswith(HANDED_OUT):
                # One has done it, or more of it, than the other: they go on in their own ways.
                return Ended(number, key.name, difference, what, accepted=True)
    return None


async def _settled(scenes: Sequence[Scene]) -> None:
    """Both have answered what was asked, or both let it wait."""

    def open_on(scene: Scene) -> set[str]:
        return {label for label, one in scene.waiting.items() if one.answer is None}

    begun = trio.current_time()
    while True:
        theirs, ours = map(open_on, scenes)
        passed = trio.current_time() - begun
        if not (theirs or ours) or passed > (GRACE_S if theirs == ours else PATIENCE_S):
            break
        await trio.sleep(0.005)
    both = [set(scene.waiting) - open_on(scene) for scene in scenes]
    for scene in scenes:
        for label in [label for label in scene.waiting if label in both[0] & both[1]]:
            scene.collect(label)
    for scene, done in zip(scenes, both, strict=True):
        for label in [label for label in scene.waiting if label in done]:
            scene.collect(label)


async def shortened(pair: Two, story: Story, ended: Ended) -> tuple[Story, Ended]:
    """The story without the steps that its difference does not need."""
    limit = trio.current_time() + SHORTENING_S
    story = story[: ended.at + 1]
    size = max(1, len(story) // 2)
    while True:
        at, fewer = 0, False
        while at < len(story) and trio.current_time() < limit:
            without = story[:at] + story[at + size :]
            again, _ = await told(pair, without)
            if again is not None and again.is_like(ended):
                story, ended, fewer = without[: again.at + 1], again, True
            else:
                at += size
        if (size == 1 and not fewer) or trio.current_time() > limit:
            return story, ended
        if not fewer:
            size = max(1, size // 2)


async def tell(pair: Two, seeds: Sequence[int], length: int) -> int:
    """Tell the stories of these seeds; print what differs, in few steps.  Returns the exit code."""
    answers = accidents = accepted = 0
    found: list[int] = []
    for seed in seeds:
        story = drawn(seed, length)
        ended, count = await told(pair, story)
        answers += count
        if ended is None:
            continue
        if ended.accepted:
            accepted += 1
            print(f"seed {seed}: accepted, at step {ended.at} of {len(story)}: {ended.what}")
            continue
        again, _ = await told(pair, story)
        if again is None or not again.is_like(ended):
            accidents += 1
            print(f"seed {seed}: once, and not again: {ended.what}", flush=True)
            continue
        found.append(seed)
        short_story, ended = await shortened(pair, story, ended)
        print(f"seed {seed}: {ended.what}", *(f"    {one}" for one in short_story), sep="\n")
        print(flush=True)
    print(
        f"{len(seeds)} stories, {answers} answers; {len(found)} differ: {found}; {accepted} end at "
        f"an accepted difference, {accidents} differed once and not again"
    )
    return 1 if found else 0
