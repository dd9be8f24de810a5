"""Runs a scenario, and after every operation recovers and judges every disk a crash may leave.

    operation -> images -> examine: recover, see          once per image, or per kind of image
                         -> settle: power cut, recover,   once per kind of disk that recovery made
                            without indexes, append, power cut, recover
                         -> judge against the model       once per image and promise
                         -> crash inside this recovery    for one image of `nested_every`

An image that was examined is judged again, from memory, when more has been promised.  So an
acknowledgement that comes before its sync is found although the image is an old one.  Scenarios
that share a `Memory` examine a disk that several of them may leave once: what recovery makes of it
does not depend on who asks, and each judges it by what it was promised itself.

Images are of one kind when they differ in nothing that recovery takes from them (alike.py).  With
`alike_every` 1 each is recovered; with n, the first of a kind and one of n of the others, which
has to be seen as the first was and to leave the same.

The first violation ends the run (`Found`) unless `collect` is set.
"""

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import structlog

from segbroker.segments.disk.memory import MemoryStorage

from .images import Image, Images, Kind, kinds_of
from .invariants import violations
from .model import Model
from .observing import Opener, Seen, quick_snapshots, without_indexes
from .recording import Fault, RecordingStorage

MORE = b"appended after the recovery"


class Found(BaseException):
    """A violation, with where it was found.  No `Exception`: it is raised out of what the disk is
    asked to do, where those are caught."""


@dataclass
class Counts:
    """What a run did."""

    operations: int = 0
    images: int = 0
    """Different disks of which the outcome was judged, those of crashes inside recovery included.
    """
    recovered: int = 0
    """Those of them that were recovered, by this scenario or one that it shares a memory with; the
    others are of a kind with one of these."""
    nested: int = 0
    covered: int = 0
    """Disks that a crash after one of the operations may leave, and what became of which is known:
    most are disks that some other crash leaves as well."""
    judged: int = 0
    """Different pairs of an image and what was promised at that moment."""
    settled: int = 0
    seconds: float = 0.0
    found: list[str] = field(default_factory=list)

    def add(self, other: "Counts") -> None:
        self.operations += other.operations
        self.images += other.images
        self.recovered += other.recovered
        self.nested += other.nested
        self.covered += other.covered
        self.judged += other.judged
        self.settled += other.settled
        self.seconds += other.seconds
        self.found += other.found


class Memory:
    """What recovery makes of disks, each of which is opened in one way."""

    __slots__ = ("examined", "sights")

    def __init__(self) -> None:
        self.examined: dict[tuple[tuple[int, int], int], _Examined] = {}
        """By the key of an image, and what its random bytes come from."""
        self.sights: dict[Seen, tuple[int, Seen]] = {}
        """Each once, numbered."""


@dataclass(frozen=True)
class Plan:
    """How far to go."""

    thorough: bool = False
    alike_every: int = 1
    """Of the images that are of a kind with an earlier one recover one of so many; 1: all."""
    settle_every: int = 1
    """Recover once more, and write to, one recovered disk of so many."""
    thin_every: int = 0
    """After so many images were recovered look at one kind of two that were not met yet, after as
    many more at one of three, and so on; 0: at every one.  What is of a kind with an earlier one is
    looked at always.  Images that a crash inside a recovery leaves do not count."""
    nested_every: int = 0
    """Crash inside the recovery of one image of so many; 0: never."""
    nested_depth: int = 1
    inner_every: int = 1
    """Of the kinds of images that such a crash leaves look at one of so many."""
    collect: bool = False
    instead: "Callable[[Explorer], None] | None" = None
    """Done after each operation in place of all that (second_life.py)."""
    faults: tuple[Fault, ...] = ()
    """Of the disk, beside those that the scenario has."""
    deadline_s: float = float("inf")
    """On the monotonic clock; what is left then is not looked at."""
    memories: dict[Opener, Memory] | None = None
    """Of all scenarios that get this plan; None: each has one of its own."""


class _Examined:
    """What recovering an image gave: what was seen, and the kind of disk that it left."""

    __slots__ = ("left", "number", "problem", "seen")

    def __init__(self, seen: Seen | None, problem: str, left: int = 0, number: int = -1) -> None:
        self.seen = seen
        self.problem = problem
        self.left = left
        self.number = number
        """The same for equal sights."""


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Recovery has much to say about disks that are broken on purpose.  And it leaves some hundred
    objects in cycles: the collector takes them while the processor's caches have them."""
    before, thresholds = structlog.get_config(), gc.get_threshold()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    gc.set_threshold(1_000, 50, 50)
    try:
        with quick_snapshots():
            yield
    finally:
        gc.set_threshold(*thresholds)
        structlog.configure(**before)


class Explorer:
    """One scenario's disk and model, under observation."""

    def __init__(self, opener: Opener, plan: Plan, name: str = "") -> None:
        self.name = name
        self.model = Model()
        self.disk = RecordingStorage()
        self.disk.faults += plan.faults
        self.counts = Counts()
        self.refresh: Callable[[], None] = lambda: None
        """Brings the model up to date with what has been acknowledged by now."""
        self.further: Callable[[Image], str] = lambda image: ""
        """What else is wrong with a disk that was recovered as it should, or nothing."""
        self.opener = opener
        self._plan = plan
        self._images = Images(self.disk, thorough=plan.thorough)
        memories = {} if plan.memories is None else plan.memories
        self._memory = memories.setdefault(opener, Memory())
        self._examined: dict[tuple[int, int], _Examined] = {}
        self._judged: set[tuple[tuple[int, int], int, bool]] = set()
        self._kinds: dict[Kind, _Examined] = {}
        self._settled: dict[tuple[int, int], Seen] = {}
        self._sound: set[tuple[int, int, bool]] = set()
        """(number of a sight, promise, whether killed) that was judged and found right."""
        self._left_out: set[tuple[tuple[int, int], int]] = set()
        """(key, depth) of images that are not looked at."""
        self._recovered = 0
        """Images of the scenario itself, without those of crashes inside recovery."""
        self._looked_at = -1
        self._began_s = time.process_time()
        self._last = ""
        self.disk.on_change = self._on_change
        self.disk.on_sync = self._on_sync

    def _on_change(self, call: str, path: str) -> None:
        self._last = f"{call} {path}"
        self.refresh()
        self.look()

    def _on_sync(self, call: str, path: str) -> None:
        # A sync makes no new image, it only takes some away: but more may be promised by now.
        self._last = f"{call} {path}"
        self.refresh()
        if self.model.version != self._looked_at:
            self.look()

    def step_done(self) -> None:
        """The driver has said in the model what its last step promises."""
        self.disk.last_written = None
        self.refresh()
        if self.model.version != self._looked_at:
            self.look()
        if self.disk.violations:
            self.report(self.disk.violations.pop())

    def finish(self) -> Counts:
        """The scenario is over: look once more, and say what was done."""
        self.step_done()
        self.counts.operations = self.disk.operations
        self.counts.seconds = time.process_time() - self._began_s
        return self.counts

    def look(self) -> None:
        """Examine and judge every image of this moment."""
        self._looked_at = self.model.version
        if self._plan.instead is not None:
            self._plan.instead(self)
            return
        self.look_at_images()

    def look_at_images(self) -> None:
        """Those of this moment, whatever the plan says is to be done instead."""
        for image in self._images.now():
            self._check(image, 0, is_kill=image.is_kill)

    def _check(self, image: Image, depth: int, *, is_kill: bool) -> None:
        """is_kill: no power cut lies between the scenario and this image."""
        key = (image.key, self.model.version, is_kill)
        if key in self._judged:
            self.counts.covered += 1
            return
        examined = self._examined.get(image.key)
        is_new = examined is None
        if examined is None:
            if (image.key, depth) in self._left_out:
                return
            kind = image.kind
            if kind not in self._kinds and kind[0] % self._of_so_many(depth):
                self._left_out.add((image.key, depth))
                return
            if time.monotonic() > self._plan.deadline_s:
                return
            before = self.counts.recovered
            examined = self._examined[image.key] = self._outcome(image, kind)
            self.counts.images += 1
            if depth:
                self.counts.nested += 1
            else:
                self._recovered += self.counts.recovered - before
        self._judged.add(key)
        self.counts.covered += 1
        self.counts.judged += 1
        if examined.problem:
            self.report(examined.problem, image)
        elif examined.seen is not None:
            sound = (examined.number, self.model.version, is_kill)
            if sound not in self._sound:
                found = list(violations(self.model, examined.seen, is_kill=is_kill))
                for one in found:
                    self.report(one, image)
                if not found:
                    self._sound.add(sound)
            if further := self.further(image):
                self.report(further, image)
        every = self._plan.nested_every
        is_deeper = is_new and every and depth < self._plan.nested_depth
        if is_deeper and image.key[0] // 64 % every == 0:
            self._crash_inside_recovery(image, depth + 1, is_kill=is_kill)

    def _of_so_many(self, depth: int) -> int:
        """Of the kinds that were not met yet one of so many is looked at, by now."""
        if depth:
            return self._plan.inner_every
        thin = self._plan.thin_every
        return 1 + self._recovered // thin if thin else 1

    def _outcome(self, image: Image, kind: Kind) -> _Examined:
        """Of its kind, where that is known; now and then, and with `alike_every` 1, of itself."""
        known = self._kinds.get(kind)
        every = self._plan.alike_every
        if known is not None and (every == 0 or image.key[0] // 8 % every):
            return known
        self.counts.recovered += 1
        found = self._remembered(image)
        if known is None:
            self._kinds[kind] = found
        elif not found.problem and (found.number, found.left) != (known.number, known.left):
            assert found.seen is not None
            told = "nothing was seen" if known.seen is None else differ(known.seen, found.seen)
            what = "are seen" if found.number != known.number else "are left"
            return _Examined(found.seen, f"two disks that are alike {what} in two ways: {told}")
        return found

    def _remembered(self, image: Image) -> _Examined:
        examined, of = self._memory.examined, (image.key, image.chance)
        found = examined.get(of)
        if found is None:
            found = examined[of] = self._examine(image)
        return found

    def _examine(self, image: Image) -> _Examined:
        disk = image.build()
        try:
            session = self.opener(disk)
            seen = session.see()
        except Exception as exc:
            return _Examined(None, f"I1: recovery failed: {type(exc).__name__}: {exc}")
        if session.events_lost:
            return _Examined(seen, f"I7: {session.events_lost} events are told as lost, none is")
        if session.files_missed:
            return _Examined(seen, f"I7: {session.files_missed} files are told as gone, none is")
        sights = self._memory.sights
        number, seen = sights.setdefault(seen, (len(sights), seen))
        every_file, left = kinds_of(disk)
        try:
            self._settle(disk, seen, every_file)
        except AssertionError as exc:
            return _Examined(seen, str(exc))
        except Exception as exc:
            return _Examined(seen, f"I10: after recovery: {type(exc).__name__}: {exc}")
        return _Examined(seen, "", left, number)

    def _settle(self, disk: MemoryStorage, seen: Seen, left: int) -> None:
        """What was recovered is durable, the same again, the same without indexes, writable."""
        key = (left, disk._boot)
        known = self._settled.get(key)
        if known is not None:
            assert known == seen, f"I10: one disk was seen in two ways: {differ(known, seen)}"
            return
        self._settled[key] = seen
        if left // 512 % self._plan.settle_every:
            return
        self.counts.settled += 1
        cut = without_indexes(disk.after_power_cut())
        session = self.opener(cut)
        again = session.see()
        assert continues(seen, again), f"I10 or I11: recovered twice: {differ(seen, again)}"
        if any(partition.error for _, _, partition in seen.partitions()):
            return
        more = session.append_everywhere(again, MORE)
        written = self.opener(cut.after_power_cut()).see()
        assert continues(more, written), (
            f"I1: appended after recovery, then cut off: {differ(more, written)}"
        )

    def _crash_inside_recovery(self, image: Image, depth: int, *, is_kill: bool) -> None:
        disk = RecordingStorage.over(image.build())
        images = Images(disk)

        def look(call: str, path: str) -> None:
            for inner in images.now():
                self._check(inner, depth, is_kill=is_kill and inner.is_kill)

        disk.on_change = look
        try:
            self.opener(disk).see()
        except Exception:
            return  # told already, by the examination

    def report(self, what: str, image: Image | None = None) -> None:
        files = ""
        if image is not None:
            kind = "process killed" if image.is_kill else "power cut"
            listing = [
                f"    {path} {len(content)}" + (" all zeros" if not any(content) else "")
                for path, content in sorted(image.files().items())
                if content is not None
            ]
            files = f" | {kind} after operation {self.disk.operations} ({self._last})\n"
            files += "\n".join(listing)
        told = f"{self.name}: {what}{files}"
        self.counts.found.append(told)
        if not self._plan.collect:
            raise Found(told)


def continues(one: Seen, later: Seen) -> bool:
    """Whether `later` is the same log after a power cut.

    Class disk and memory end, after each, with a gap up to the offsets that were reserved, in an
    epoch of its own, and take producers at their word; nothing else may differ.
    """
    if one == later:
        return True
    if (
        replace(one, topics={}) != replace(later, topics={})
        or one.topics.keys() != later.topics.keys()
    ):
        return False
    for name, topic in one.topics.items():
        after = later.topics[name]
        if replace(topic, partitions=(), epoch=0) != replace(after, partitions=(), epoch=0):
            return False
        if after.epoch < topic.epoch:
            return False
        if len(topic.partitions) != len(after.partitions):
            return False
        durability = dict(topic.overrides).get("durability", "fsync")
        loses_tails = durability in ("disk", "memory")
        for a, b in zip(topic.partitions, after.partitions, strict=True):
            tail = b.items[len(a.items) :]
            if durability == "ephemeral" and not b.items:
                if not (a.end <= b.start == b.end and a.epoch <= b.epoch):
                    return False
                continue
            is_same = a == b or (
                loses_tails
                and bool(tail)
                and all(item.reason == "lost_tail" and item.epoch > a.epoch for item in tail)
                and b.items[: len(a.items)] == a.items
                and (a.start, a.end) == (b.start, tail[0].base_offset)
                and b.end == tail[-1].next_offset
                and b.newest == tuple((*last, True) for *last, _ in a.newest)
            )
            if not is_same:
                return False
    return True


def differ(one: Seen, other: Seen) -> str:
    """Where two observations part, in a few words."""
    if one.topics.keys() != other.topics.keys():
        return f"topics {sorted(one.topics)} and {sorted(other.topics)}"
    if (one.identity, one.next_producer_id) != (other.identity, other.next_producer_id):
        return f"{one.identity} {one.next_producer_id}, {other.identity} {other.next_producer_id}"
    for name, topic in one.topics.items():
        theirs = other.topics[name]
        if topic == theirs:
            continue
        for number, (a, b) in enumerate(zip(topic.partitions, theirs.partitions, strict=False)):
            if a != b:
                return f"{name}/{number}: {_brief(a)} and {_brief(b)}"
        return f"{name}: {topic.overrides} {topic.epoch}, {theirs.overrides} {theirs.epoch}"
    return "nothing"


def _brief(partition: object) -> str:
    text = repr(partition)
    items = getattr(partition, "items", ())
    spans = [(i.base_offset, i.next_offset, i.epoch, i.reason) for i in items]
    if not isinstance(items, tuple):
        return text
    return (
        f"[{getattr(partition, 'start', '?')}, {getattr(partition, 'end', '?')}) "
        f"visible {getattr(partition, 'visible', '?')} epoch {getattr(partition, 'epoch', '?')} "
        f"producers {getattr(partition, 'newest', '?')} {getattr(partition, 'error', '')} {spans}"
    )
