"""Mutation testing of recovery: python -m tests.soak.mutations --seconds 600 --seed 1.

One place of one module is changed at a time, drawn by the seed: a comparison moves its border, a
condition is turned round, a constant or a sum is one off, a statement is left out.  A process
plants the change as a bug of the catalogue (tests/segments/planted) and runs crash scenarios until
one of them objects, then tests of tests/segments, then flips bits and damages files, within
`--seconds-each`.

| outcome | means |
|---|---|
| killed | a scenario found a violation |
| broken | it raised what it must not, outside of a recovery: any test at all would find it |
| survived | nobody objected: a check is missing, or the change makes no difference |
| late | it was still running, without end or slow |

Survivors are printed as a diff, with the number that repeats them (`--one`).  A change that makes
no difference (a cache, a bound that is never met, one sync more) is no fault: each has to be read.
"""

import argparse
import ast
import importlib
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from difflib import unified_diff
from random import Random

# What every child needs and no mutant changes, imported once.
import structlog  # noqa: F401

import segbroker.protocol.compression
import segbroker.protocol.markers
import segbroker.protocol.record_batch
import segbroker.protocol.vendor  # noqa: F401
from tests.segments.planted.planting import SEGMENTS, Bug, Outcome, run_until

MODULES = (
    "recovery",
    "survey",
    "opening",
    "repairing",
    "replaying",
    "putting_back",
    "resuming",
    "known",
    "sealing",
    "truncating",
    "producer_replay",
    "lost_tail",
    "metadata_log",
    "wal.replay",
    "wal.files",
    "wal.frames",
    "wal.shard",
    "wal.journal",
    "swapping",
    "unfinished",
    "compacting",
)
SCENARIOS = (
    "the_first_records",
    "closed_and_opened_again_of_class_disk",
    "killed_and_only_ticked",
    "damage_in_the_active_segment",
    "a_topic_becomes_safer_with_records_that_are_not_synced",
    "producers_that_begin_again",
    "a_sync_of_the_wal_fails",
    "damage_under_the_wal",
    "wal_files_fill",
    "rolls_of_class_disk",
    "records_of_class_memory",
    "truncated_after_a_checkpoint",
    "records_deleted_over_segments",
    "interleaved_transactions_over_rolls",
    "a_topic_is_deleted_with_unsynced_records",
    "a_sync_fails_and_the_process_starts_again",
    "two_batches_in_two_segments_become_one",
    "tests.soak.mutations:unit_tests",
    "tests.soak.mutations:flips_and_damages",
)
"""Run in this order on each mutant."""
UNIT_TESTS = (
    "recovery",
    "survey",
    "wal",
    "wal_room",
    "failures",
    "putting_back",
    "metadata_log",
    "compaction",
    "compaction_meanwhile",
)
PLAN = {"thin_every": 100, "alike_every": 16, "settle_every": 16, "nested_every": 60}


class Places(ast.NodeVisitor):
    """Every change that a module allows, as (line, first column, last column, new text)."""

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines(keepends=True)
        self._source = source
        self.found: list[tuple[str, int, int, str]] = []
        """(kind, begin, end, new text); positions in the source."""

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None, "parsed from text"
        assert node.end_col_offset is not None, "parsed from text"
        return (
            self._position(node.lineno, node.col_offset),
            self._position(node.end_lineno, node.end_col_offset),
        )

    def _position(self, line: int, column: int) -> int:
        # Columns count bytes of UTF-8; the source is ASCII.
        return sum(map(len, self._lines[: line - 1])) + column

    def _add(self, kind: str, node: ast.expr | ast.stmt, new: ast.expr | str) -> None:
        text = new if isinstance(new, str) else f"({ast.unparse(new)})"
        self.found.append((kind, *self._span(node), text))

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            other = _BORDERS.get(type(node.ops[0]))
            if other is not None:
                self._add("border", node, ast.Compare(node.left, [other()], node.comparators))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for place in range(len(node.values)):
            rest = [value for number, value in enumerate(node.values) if number != place]
            new = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
            self._add("condition left out", node, new)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self._add("turned round", node.test, ast.UnaryOp(ast.Not(), node.test))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Add | ast.Sub) and not isinstance(node.left, ast.Constant):
            self._add("one off", node, ast.BinOp(node, ast.Add(), ast.Constant(1)))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in ("max", "min") and node.args:
            self._add("one of many", node, node.args[0])
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and "log." not in ast.unparse(node.value.func):
            self._add("left out", node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add("left out", node, "pass")
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Nothing in it: an assertion that is gone is no bug."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if not node.name.startswith("__"):
            for statement in node.body:
                self.visit(statement)


_BORDERS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def mutants(seed: int) -> list[Bug]:
    """All of them, in an order of the seed's; a number that is appended to the name repeats one."""
    made: list[Bug] = []
    for module in MODULES:
        source = (SEGMENTS / (module.replace(".", "/") + ".py")).read_text()
        places = Places(source)
        places.visit(ast.parse(source))
        for kind, begin, end, text in places.found:
            changed = source[:begin] + text + source[end:]
            made.append(Bug(f"{module}: {kind}", module, source, changed, ""))
    made = [bug._replace(name=f"{number} {bug.name}") for number, bug in enumerate(made)]
    Random(seed).shuffle(made)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.mutations", description=__doc__)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds-each", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--module", help="mutants of this module only")
    parser.add_argument("--one", type=int, help="this mutant alone")
    options = parser.parse_args()
    chosen = [
        bug
        for bug in mutants(options.seed)
        if options.module in (None, bug.module)
        and (options.one is None or bug.name.split()[0] == str(options.one))
    ]
    deadline_s = time.monotonic() + options.seconds
    outcomes: Counter[str] = Counter()
    work = ((bug, options.seconds_each) for bug in until(chosen, deadline_s))
    with multiprocessing.Pool(options.workers) as pool:
        for bug, outcome, said in pool.imap_unordered(judge, work):
            outcomes[_WORDS[outcome]] += 1
            if outcome in (Outcome.MISSED, Outcome.LATE) or options.one is not None:
                print(f"{_WORDS[outcome].upper()} --one {bug.name} {said[:200]}\n{diff(bug)}")
                sys.stdout.flush()
    counts = ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items()))
    print(f"seed {options.seed}, {sum(outcomes.values())} of {len(chosen)} mutants: {counts}")
    return 0


_WORDS = {
    Outcome.FOUND: "killed",
    Outcome.BROKEN: "broken",
    Outcome.MISSED: "survived",
    Outcome.LATE: "late",
}


def until(chosen: list[Bug], deadline_s: float) -> Iterator[Bug]:
    for bug in chosen:
        if time.monotonic() > deadline_s:
            return
        yield bug
        time.sleep(0.5)  # the pool would take all at once, whatever the deadline is


def judge(work: tuple[Bug, float]) -> tuple[Bug, Outcome, str]:
    bug, seconds_each = work
    outcome, said, _ = run_until(bug, SCENARIOS, seconds_each, plan=PLAN)
    return bug, outcome, said


def unit_tests() -> None:
    """In the child, where the bug is planted: the plain tests of what may be changed.  Raises
    AssertionError when one fails."""
    pytest = importlib.import_module("pytest")
    paths = [f"tests/segments/test_{name}.py" for name in UNIT_TESTS]
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", *paths])
    assert code == 0, "a plain test fails"


def flips_and_damages() -> None:
    """In the child, where the bug is planted: what a crash does not do to a file.  Raises
    AssertionError for what is found."""
    damage = importlib.import_module("tests.faults.damage")
    flips = importlib.import_module("tests.faults.bit_flips")
    files = importlib.import_module("tests.faults.file_damage")
    world = damage.build(1)
    found = [x for tally in flips.flip(world, Random(1), 12).values() for x in tally.findings]
    for ending in (damage.Ending.KILLED, damage.Ending.POWER_CUT):
        cut = damage.build(1, topics=(("t", 2, "fsync"),), ending=ending)
        found += [x for tally in flips.flip(cut, Random(3), 8).values() for x in tally.findings]
    found += files.damage_each(world, 1, lambda name, kind: name not in files.TRADING).findings
    assert not found, found[0]


def diff(bug: Bug) -> str:
    lines = unified_diff(bug.old.splitlines(), bug.new.splitlines(), bug.module, "", n=1)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
