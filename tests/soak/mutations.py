"""Mutation testing of segments/: python -m tests.soak.mutations --seconds 600 --seed 1.

One place of one module is changed at a time, drawn by the seed (tests/segments/planted/places.py).
A process of its own puts the changed functions in the place of the right ones and shows them to the
plain tests and crash scenarios that run them (reach.py), the quickest first, until one objects or
`--seconds-each` of processor time are over.

    imports, pytest collects -> fork: what runs what -> fork: a worker -> fork: a mutant, its tests
                                                                       -> fork: the next mutant

A mutant costs a fork and the tests that it is shown to: these were collected before, and wait in
the session of pytest that everything is forked from.  Nobody imports anything again; who has taken
a function by its name has the same object as its module, whose code is changed in place.

| outcome | means |
|---|---|
| killed | a test fails, or a scenario finds a violation |
| survived | nobody objected: a check is missing, or the change makes no difference |
| unreached | nobody runs the function |
| late | it did not end: waits for ever, or turns for ever |

Survivors are printed as a diff, with the number that repeats them (`--one`, then with more time).
A change that makes no difference (a cache, a bound that is never met, one sync more) is no fault:
each has to be read, and then stands in equivalent.py, or equivalent_wal.py, and is left out.

What every function is run by is measured first; `--reach FILE` keeps it.  What opens a log is run
by nearly every test: `--first survey,recovery` shows a mutant first to the tests of the files that
have one of these words in their names.
"""

import argparse
import gc
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import unified_diff
from functools import partial
from operator import attrgetter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import CodeType, FunctionType
from typing import NamedTuple

from tests.faults import bit_flips, damage, file_damage
from tests.segments.crash.explorer import Found, Plan, silence
from tests.segments.crash.scenarios import SCENARIOS
from tests.segments.planted.places import Place, places
from tests.segments.planted.planting import SAID_BYTES_MAX, STUCK, Outcome, in_child, path_of

from .equivalent import EQUIVALENT, Key
from .reach import IMPORTED, Items, Probe, Reach, load, measure, run_tests, save, with_tests

MODULES = (
    *("decisions", "survey", "opening", "repairing", "replaying", "putting_back", "resuming"),
    *("known", "manifest_rows", "ownership", "sealing", "truncating", "survivors"),
    *("producer_replay", "producer_snapshot"),
    *("lost_tail", "metadata_log", "metadata", "control", "manifest", "manifest_file"),
    *("wal.replay", "wal.files", "wal.frames", "wal.group", "wal.journal", "wal.pending"),
    *("wal.missing", "wal.scanning", "wal.kept", "wal.supply", "log_storage"),
    *("witness", "wal.markers", "wal.reached", "wal.recall", "wal.vouching", "wal.sync_times"),
    *("starting", "opened_partitions", "unopened", "mending_partition"),
    *("wal.inline_sync", "wal.shard", "wal.trailers", "swapping", "unfinished", "compacting"),
    *("cleaning", "clean_points", "deleting", "evicting", "mending", "salvaging", "rolling"),
    *("ceilings", "retention", "producers", "transaction_index", "columns", "age_clock"),
    *("transactions", "committed", "first_stamps", "dirtiness", "identity", "journaling"),
    *("share_groups", "epochs", "restoring", "renewing", "doubting", "unsynced"),
)
PLAN = Plan(thin_every=70, alike_every=16, settle_every=16, nested_every=60)
MUTANTS_PER_LINE = 50
FORKING = multiprocessing.get_context("fork")


class Mutant(NamedTuple):
    """One place of one module, changed."""

    number: int
    module: str
    source: str
    place: Place

    @property
    def file(self) -> str:
        """What its functions say where they are."""
        return str(IMPORTED / (self.module.replace(".", "/") + ".py"))

    @property
    def diff(self) -> str:
        old, new = self.source.splitlines(), self.place.changed(self.source).splitlines()
        return "\n".join([*unified_diff(old, new, self.module, "", n=2, lineterm="")][2:])


class Warm:
    """What every process that is forked finds there."""

    items: Items
    functions: Mapping[str, list[FunctionType]]
    work: Sequence[tuple[Mutant, list[Probe], float]]
    deadline_s: float


WARM = Warm()


def mutants(seed: int) -> list[Mutant]:
    """All of them, in an order of the seed's; the number of each is the same for every seed."""
    made: list[Mutant] = []
    for module in MODULES:
        source = path_of(module).read_text()
        made += (
            Mutant(number, module, source, place)
            for number, place in enumerate(places(source), len(made))
        )
    Random(seed).shuffle(made)
    return made


def keys(some: Iterable[Mutant]) -> dict[Key, Mutant]:
    """By what they are, whatever their numbers."""
    found: dict[Key, Mutant] = {}
    for mutant in sorted(some, key=attrgetter("number")):
        place = mutant.place
        old = " ".join(mutant.source[place.begin : place.end].split())
        new = " ".join(place.text.split())
        like = 0
        while (key := (mutant.module, place.function, old, new, like)) in found:
            like += 1
        found[key] = mutant
    return found


def put_in_place(mutant: Mutant) -> None:
    """Have every function of the module that lives in this process run the changed code."""
    old = _codes(compile(mutant.source, mutant.file, "exec"))
    new = _codes(compile(mutant.place.changed(mutant.source), mutant.file, "exec"))
    assert [code.co_qualname for code in old] == [code.co_qualname for code in new]
    by_place = {
        (code.co_qualname, code.co_firstlineno): changed
        for code, changed in zip(old, new, strict=True)
    }
    met = 0
    for function in WARM.functions.get(mutant.file, []):
        code = function.__code__
        changed = by_place.get((code.co_qualname, code.co_firstlineno))  # None: a lambda
        if changed is not None and changed.co_freevars == code.co_freevars:
            function.__code__ = changed
            met += code.co_qualname == mutant.place.function
    assert met, f"{mutant.place.function} is not there to be changed"


def _codes(code: CodeType) -> list[CodeType]:
    """Every function under a code, but no lambda or comprehension, of which a change may make
    another number; those come with the function that they are in."""
    found = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if "<" not in constant.co_name:
                found.append(constant)
            found += _codes(constant)
    return found


def judge(mutant: Mutant, probes: list[Probe], seconds_each: float) -> tuple[Outcome, str]:
    """Show a mutant to those who run it, in a process of its own."""
    limit_s = max(2, round(seconds_each))

    with TemporaryDirectory() as folder:

        def look(told: int) -> Outcome:
            resource.setrlimit(resource.RLIMIT_CPU, (2 * limit_s, 2 * limit_s))
            _be_quiet_in(folder)
            put_in_place(mutant)
            found = _first_objection(probes, time.process_time() + limit_s)
            os.write(told, found.encode()[:SAID_BYTES_MAX])
            return Outcome.FOUND if found else Outcome.MISSED

        outcome, said, _ = in_child(look, STUCK * limit_s)
    return outcome, said


def _be_quiet_in(folder: str) -> None:
    """Say nothing, and leave files there only: nobody tidies up behind this process."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.tempdir = folder


def _first_objection(probes: list[Probe], deadline_s: float) -> str:
    """What somebody said against the code as it is now, or nothing."""
    half_s = (time.process_time() + deadline_s) / 2  # the rest is for the scenarios
    tests = [WARM.items[probe.name] for probe in probes if probe.is_test]
    if found := run_tests(tests, lambda: time.process_time() > half_s):
        return found
    with silence():
        for probe in probes:
            if probe.is_test:
                continue
            if time.process_time() > deadline_s:
                break
            try:
                OTHERS[probe.name]()
            except (Exception, Found) as exc:
                return f"{probe.name}: {type(exc).__name__}: {exc}"
    return ""


def flips_and_damages() -> None:
    """What a crash does not do to a file.  Raises AssertionError for what is found."""
    world = damage.build(1)
    found = [x for tally in bit_flips.flip(world, Random(1), 12).values() for x in tally.findings]
    for ending in (damage.Ending.KILLED, damage.Ending.POWER_CUT):
        cut = damage.build(1, topics=(("t", 2, "fsync"),), ending=ending)
        found += [x for tally in bit_flips.flip(cut, Random(3), 8).values() for x in tally.findings]
    found += file_damage.damage_each(
        world, 1, lambda name, kind: name not in file_damage.TRADING
    ).findings
    assert not found, found[0]


OTHERS: dict[str, Callable[[], object]] = {
    **{name: partial(scenario, PLAN) for name, scenario in SCENARIOS.items()},
    "flips_and_damages": flips_and_damages,
}
"""What mutants are shown to besides plain tests."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.mutations", description=__doc__)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds-each", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--module", help="mutants of these modules only, a,b,c")
    parser.add_argument("--one", help="these mutants alone, by their numbers: 1,2,3")
    parser.add_argument("--reach", type=Path, help="where what is run by whom is kept")
    parser.add_argument("--first", help="tests of files with these words in their names come first")
    options = parser.parse_args()
    modules = options.module.split(",") if options.module else MODULES
    numbers = [int(number) for number in options.one.split(",")] if options.one else None
    drawn = mutants(options.seed)
    known = {mutant.number for key, mutant in keys(drawn).items() if key in EQUIVALENT}
    chosen = [
        mutant
        for mutant in drawn
        if mutant.module in modules
        and (mutant.number not in known if numbers is None else mutant.number in numbers)
    ]
    with_tests(lambda items: _judge_all(chosen, items, options))
    return 0


def _judge_all(chosen: list[Mutant], items: Items, options: argparse.Namespace) -> None:
    """With the tests collected: measure, then judge until the time is over; print what is found."""
    WARM.items = items
    WARM.functions = _functions()
    reach = _reach(options.reach)
    WARM.work = [
        (mutant, _ordered(reach, mutant, options.first), options.seconds_each) for mutant in chosen
    ]
    WARM.deadline_s = time.monotonic() + options.seconds
    gc.freeze()  # what a fork looks at is not copied by looking
    outcomes: Counter[str] = Counter()
    with FORKING.Pool(options.workers) as pool:
        for number, word, said in pool.imap_unordered(_judge, range(len(chosen))):
            if word == "left":
                continue
            mutant = chosen[number]
            outcomes[word] += 1
            if sum(outcomes.values()) % MUTANTS_PER_LINE == 0:
                print(f"so far {_told(outcomes)}", flush=True)
            if word != "killed" or options.one:
                print(f"{word.upper()} --one {mutant.number}: {mutant.place.kind}", flush=True)
                print(f"{said}\n{mutant.diff}\n", flush=True)
    judged = sum(outcomes.values())
    print(f"seed {options.seed}, {judged} of {len(chosen)} mutants: {_told(outcomes)}", flush=True)


def _functions() -> dict[str, list[FunctionType]]:
    """Every function of segments/ that lives in this process, by its file."""
    found: dict[str, list[FunctionType]] = {}
    gc.unfreeze()  # what was collected is frozen, and would not be told (tests/conftest.py)
    for function in gc.get_objects():
        if type(function) is FunctionType:
            file = function.__code__.co_filename
            if file.startswith(str(IMPORTED)):
                found.setdefault(file, []).append(function)
    assert found, "a mutant that replaces nothing survives"
    return found


def _ordered(reach: Reach, mutant: Mutant, first: str | None) -> list[Probe]:
    """Who runs the function: those of `first`, then the others, the quickest first."""
    probes = reach.get(f"{mutant.module} {mutant.place.function}", [])
    words = first.split(",") if first else []

    def is_late(probe: Probe) -> bool:
        return not any(word in probe.name.partition("::")[0] for word in words)

    return sorted(probes, key=is_late)


def _told(outcomes: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items()))


def _reach(path: Path | None) -> Reach:
    if path is not None and path.exists():
        return load(path)
    with FORKING.Pool(1) as pool:
        reach, seconds = pool.apply(_measure)
    print(f"{len(reach)} functions, measured in {seconds:.0f} s", flush=True)
    if path is not None:
        save(reach, path)
    return reach


def _measure() -> tuple[Reach, float]:
    with TemporaryDirectory() as folder:
        _be_quiet_in(folder)
        others = [(name, partial(_in_silence, call)) for name, call in OTHERS.items()]
        return measure(WARM.items, others), time.process_time()


def _in_silence(call: Callable[[], object]) -> None:
    """Not for plain tests: some look at what is logged."""
    with silence():
        call()


_WORDS = {
    Outcome.FOUND: "killed",
    Outcome.BROKEN: "broken",
    Outcome.MISSED: "survived",
    Outcome.LATE: "late",
}


def _judge(number: int) -> tuple[int, str, str]:
    """In a worker: one of the work; "left": the time is over."""
    if time.monotonic() > WARM.deadline_s:
        return number, "left", ""
    mutant, probes, seconds_each = WARM.work[number]
    if not probes:
        return number, "unreached", ""
    outcome, said = judge(mutant, probes, seconds_each)
    return number, _WORDS[outcome], said


if __name__ == "__main__":
    sys.exit(main())
