"""Files of a data directory that are missing, swapped, stale, cut, zeroed, or grown.

| damage | what stands under the name |
|---|---|
| missing | nothing |
| empty, cut | a beginning of it: nothing, half a header, any part, all but a byte |
| zeros, zeroed range | zeros, from some byte on or altogether |
| grown | zeros, chance or itself again behind it |
| garbage | chance, of the same size |
| stale | what it was at an earlier time |
| swapped | another file of the same kind, and the other way round |
| replaced | a copy of another file of any kind |
| directory | a directory of that name |

One file at a time in the quick tier; two and three in the long one.  Of each: no record lost
without a word, none handed out that was not acknowledged there, no crash.  Refusing to open is an
answer.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from .damage import World, disk_with, examine, kinds_of

Files = dict[str, bytes]


def missing(files: Files, world: World, path: str, random: Random) -> None:
    del files[path]


def cut(files: Files, world: World, path: str, random: Random) -> None:
    size = len(files[path])
    at = random.choice((0, 1, 8, 24, size // 2, size - 1, random.randrange(size + 1)))
    files[path] = files[path][:at]


def zeros(files: Files, world: World, path: str, random: Random) -> None:
    size = len(files[path])
    begin = random.choice((0, 0, random.randrange(size + 1)))
    end = random.choice((size, random.randrange(begin, size + 1)))
    content = files[path]
    files[path] = content[:begin] + bytes(end - begin) + content[end:]


def grown(files: Files, world: World, path: str, random: Random) -> None:
    content = files[path]
    files[path] = content + random.choice((bytes(random.randrange(1, 5_000)), content, b"\x00\x01"))
    if random.random() < 0.3:
        files[path] = content + random.randbytes(random.randrange(1, 500))


def garbage(files: Files, world: World, path: str, random: Random) -> None:
    files[path] = random.randbytes(len(files[path]))


def stale(files: Files, world: World, path: str, random: Random) -> None:
    versions = world.earlier.get(path)
    if versions:
        files[path] = random.choice(versions)
    else:
        missing(files, world, path, random)


def swapped(files: Files, world: World, path: str, random: Random) -> None:
    kinds = kinds_of(files)
    others = sorted(other for other, kind in kinds.items() if kind == kinds[path] and other != path)
    if others:
        other = random.choice(others)
        files[path], files[other] = files[other], files[path]


def replaced(files: Files, world: World, path: str, random: Random) -> None:
    files[path] = files[random.choice(sorted(kinds_of(files)))]


def directory(files: Files, world: World, path: str, random: Random) -> None:
    del files[path]
    files[path + "/"] = b""


DAMAGES: dict[str, Callable[[Files, World, str, Random], None]] = {
    damage.__name__: damage
    for damage in (missing, cut, zeros, grown, garbage, stale, swapped, replaced, directory)
}


UNVOUCHED = ("lost without a word", "given again", "taken for a new one")
"""What may follow when a log and all that vouches for its end are damaged together."""

TRADING = ("swapped", "replaced")
"""Two of these move whole files about: two partitions that changed places cannot be told."""


@dataclass
class Tally:
    """How damages came out."""

    count: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


def damage_once(world: World, names: list[tuple[str, str]], random: Random, tally: Tally) -> None:
    """Do (damage, path) one after the other, open, and judge."""
    files = dict(world.files)
    done: list[str] = []
    for name, path in names:
        if path in files:
            DAMAGES[name](files, world, path, random)
            done.append(f"{name} {path}")
    if files == world.files:
        return
    tally.count += 1
    verdict = examine(world, disk_with(files))
    tally.outcomes[verdict.outcome] += 1
    what = ", ".join(done)
    unvouched = _unvouched(done)
    for violation in verdict.violations:
        if not (unvouched and violation.endswith(UNVOUCHED)):
            tally.findings.append(f"{what}: {violation}")


def _unvouched(done: list[str]) -> bool:
    """Whether a log lost its end together with the manifest that vouches for it: nothing else
    knows where a log that was closed in order ended."""
    paths = [one.partition(" ")[2] for one in done]
    folders = [path.rpartition("/")[0] for path in paths if path.endswith(".manifest")]
    return any(path.endswith(".log") and path.rpartition("/")[0] in folders for path in paths)


def damage_each(
    world: World, seed: int, wanted: Callable[[str, str], bool] = lambda name, kind: True
) -> Tally:
    """Every damage to every file, once; `wanted(damage, kind of file)` chooses."""
    tally = Tally()
    random = Random(seed)
    for path, kind in sorted(kinds_of(world.files).items()):
        for name in DAMAGES:
            if wanted(name, kind):
                damage_once(world, [(name, path)], random, tally)
    return tally


def damage_some(world: World, random: Random, tally: Tally) -> None:
    """One to three damages drawn by chance; `tally` counts."""
    paths = sorted(kinds_of(world.files))
    count = random.choice((1, 2, 2, 3))
    names = [name for name in DAMAGES if count == 1 or name not in TRADING]
    damage_once(
        world, [(random.choice(names), random.choice(paths)) for _ in range(count)], random, tally
    )
