"""The assignor of streams groups: every task once, evenly, with few moves, copies elsewhere."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segbroker.broker.groups import task_assignor
from segbroker.broker.groups.task_assignor import NO_TASKS, Tasks, Worker, sticky

from ..support.counted import CountedName

STATEFUL = frozenset({"s"})


def of(previous: Mapping[str, Tasks] | None = None, **processes: str) -> list[Worker]:
    """Members by name, each with its process."""
    before = previous or {}
    return [Worker(name, where, before.get(name, NO_TASKS)) for name, where in processes.items()]


def actives(found: Mapping[str, Tasks]) -> dict[str, int]:
    return {name: len(mine.active) for name, mine in found.items()}


def standbys(found: Mapping[str, Tasks]) -> dict[str, int]:
    return {name: len(mine.standby) for name, mine in found.items()}


def test_everybody_does_as_many_as_anybody() -> None:
    found = sticky(of(a="p", b="p", c="q"), {"s": 4, "t": 3}, STATEFUL, 0)
    assert sorted(actives(found).values()) == [2, 2, 3]
    assert standbys(found) == {"a": 0, "b": 0, "c": 0}


def test_who_did_a_task_does_it_while_the_numbers_stay_even() -> None:
    before = sticky(of(a="p", b="q"), {"s": 6}, STATEFUL, 0)
    after = sticky(of(before, a="p", b="q", c="r"), {"s": 6}, STATEFUL, 0)
    assert actives(after) == {"a": 2, "b": 2, "c": 2}
    assert after["a"].active <= before["a"].active
    assert after["b"].active <= before["b"].active


def test_tasks_with_a_state_are_dealt_out_evenly_by_themselves() -> None:
    before = {"a": Tasks(frozenset({("s", 0), ("s", 1), ("t", 0), ("t", 1)}))}
    after = sticky(of(before, a="p", b="q"), {"s": 2, "t": 2}, STATEFUL, 0)
    assert after["a"].active == {("s", 0), ("t", 0)}
    found = sticky(of(a="p", b="q", c="r"), {"s": 4, "t": 4}, STATEFUL, 0)
    assert sorted(actives(found).values()) == [2, 3, 3]


def test_who_has_a_copy_goes_on_when_who_did_the_task_is_gone() -> None:
    before = sticky(of(a="p", b="q", c="r"), {"s": 6}, STATEFUL, 1)
    after = sticky(of(before, a="p", b="q"), {"s": 6}, STATEFUL, 1)
    taken = before["c"].active
    for name in ("a", "b"):
        assert before[name].active <= after[name].active
        assert after[name].active & taken <= before[name].standby
    assert after["a"].active | after["b"].active >= taken


def test_copies_are_on_other_processes_and_as_many_as_there_are_processes_for() -> None:
    found = sticky(of(a="p", b="p", c="q"), {"s": 4, "t": 4}, STATEFUL, 2)
    assert sum(standbys(found).values()) == 4
    for name, mine in found.items():
        others = [one for one in "abc" if ("q" if one == "c" else "p") == mine_process(name)]
        for task in mine.standby:
            assert task[0] == "s"
            assert not any(task in found[one].active for one in others)


def mine_process(name: str) -> str:
    return "q" if name == "c" else "p"


def test_copies_of_what_one_process_does_are_on_all_others_which_go_on_with_it() -> None:
    place = {"a": "p", "b": "q", "c": "r", "d": "s"}
    before = sticky(of({}, **place), {"s": 24}, STATEFUL, 1)
    for name, mine in before.items():
        others = [one.standby for other, one in before.items() if other != name]
        assert [len(mine.active & theirs) for theirs in others] == [2, 2, 2]
    del place["b"]
    after = sticky(of(before, **place), {"s": 24}, STATEFUL, 1)
    for name, mine in after.items():
        assert mine.active <= before[name].active | before[name].standby


def test_who_has_a_copy_has_the_larger_share_for_it() -> None:
    one, two, three = (frozenset({("s", n), ("s", n + 1)}) for n in (0, 2, 4))
    last = three - {("s", 5)}
    before = {"a": Tasks(one), "b": Tasks(two, last)}
    after = sticky(of(before, a="p", b="q"), {"s": 5}, STATEFUL, 0)
    assert (after["a"].active, after["b"].active) == (one, two | last)


def totals(found: Mapping[str, Tasks]) -> dict[str, int]:
    return {name: len(mine.active) + len(mine.standby) for name, mine in found.items()}


def test_who_comes_has_its_share_of_the_copies_too() -> None:
    before = sticky(of(a="p", b="q"), {"s": 36}, STATEFUL, 1)
    after = sticky(of(before, a="p", b="q", c="r"), {"s": 36}, STATEFUL, 1)
    assert totals(after) == {"a": 24, "b": 24, "c": 24}
    assert sticky(of(after, a="p", b="q", c="r"), {"s": 36}, STATEFUL, 1) == after


def test_copies_are_even_when_all_instances_were_started_anew_one_by_one() -> None:
    place = {"a": "p", "b": "q", "c": "r"}
    found = sticky(of({}, **place), {"s": 16}, STATEFUL, 1)
    for name in "abc":
        left = {one: where for one, where in place.items() if one != name}
        found = sticky(of(found, **left), {"s": 16}, STATEFUL, 1)
        place = left | {f"{name}2": f"{name}2"}
        found = sticky(of(found, **place), {"s": 16}, STATEFUL, 1)
    assert sorted(totals(found).values()) == [10, 11, 11]


def test_copies_stay_also_where_who_has_them_has_more_than_its_share() -> None:
    # Whoever is alone in its process has copies of what the others do, whose threads are many.
    place = {"a": "p", "b": "p", "c": "q", "d": "r"}
    sizes = {"s": 16}
    before = sticky(of({}, **place), sizes, STATEFUL, 1)
    assert max(totals(before).values()) > 8, "32 for four"
    assert sticky(of(before, **place), sizes, STATEFUL, 1) == before


def arranged(names: str, order: Sequence[str], size: int) -> dict[str, Tasks]:
    """An even arrangement, one process each; another one for each order of the names."""
    found = sticky(of({}, **{name: name for name in names}), {"s": size}, STATEFUL, 1)
    return {name: found[other] for name, other in zip(names, order, strict=True)}


@pytest.mark.parametrize(("names", "size"), [("abc", 7), ("abcd", 16)])
def test_whatever_is_even_stays_as_it_is(names: str, size: int) -> None:
    for order in permutations(names):
        before = arranged(names, order, size)
        place = {name: name for name in names}
        assert sticky(of(before, **place), {"s": size}, STATEFUL, 1) == before


@pytest.mark.parametrize(("names", "begun_max"), [("abc", 2), ("abcd", 3)])
def test_who_comes_has_the_others_begin_few_copies(names: str, begun_max: int) -> None:
    """Each is a state to be read from its beginning."""
    for order in permutations(names):
        before = arranged(names, order, 36)
        place = {name: name for name in (*names, "x")}
        after = sticky(of(before, **place), {"s": 36}, STATEFUL, 1)
        begun = [
            task
            for name, had in before.items()
            for task in (after[name].active | after[name].standby) - had.active - had.standby
        ]
        assert len(begun) <= begun_max


def test_copies_are_on_all_others_also_where_one_process_takes_the_place_of_another() -> None:
    """Who comes has nothing yet, and would have the copies of all that one process does."""
    for gone, new in permutations("abcdef", 2):
        names = sorted({*"abcdef"} - {gone, new})
        before = sticky(of({}, **{one: one for one in (*names, gone)}), {"s": 30}, STATEFUL, 1)
        after = sticky(of(before, **{one: one for one in (*names, new)}), {"s": 30}, STATEFUL, 1)
        for name, mine in after.items():
            others = [one.standby for other, one in after.items() if other != name]
            assert all(mine.active & theirs for theirs in others)


def test_of_those_with_a_copy_the_one_with_the_fewest_goes_on() -> None:
    copy = frozenset({("s", 0)})
    before = {"a": Tasks(frozenset({("s", 1)}), copy), "b": Tasks(standby=copy)}
    found = sticky(of(before, a="p", b="q"), {"s": 4}, STATEFUL, 0)
    assert copy < found["b"].active


def test_one_process_keeps_no_copies() -> None:
    found = sticky(of(a="p", b="p"), {"s": 4}, STATEFUL, 3)
    assert standbys(found) == {"a": 0, "b": 0}


def test_tasks_go_first_to_the_process_with_the_fewest_for_its_members() -> None:
    found = sticky(of(a="p", b="p", c="q"), {"s": 3}, STATEFUL, 0)
    assert actives(found) == {"a": 1, "b": 1, "c": 1}
    found = sticky(of(a="p", b="p", c="q"), {"s": 2}, STATEFUL, 0)
    assert actives(found)["c"] == 1


class LookedAt(CountedName):
    """A name that also counts how often something is looked up by it."""

    __slots__ = ()

    def __hash__(self) -> int:
        CountedName.compared += 1
        return super().__hash__()


def test_a_thousand_threads_of_one_process_are_dealt_with_as_fast_as_others() -> None:
    """Of each task one was looked for among all of a process, with a look at everyone."""
    count = 4_000
    members = [Worker(LookedAt(f"m{n:03}"), f"p{n % 2}", NO_TASKS) for n in range(1_000)]
    CountedName.compared = 0
    found = sticky(members, {"s": count}, STATEFUL, 1)
    assert CountedName.compared < 100 * count
    assert set(actives(found).values()) == set(standbys(found).values()) == {4}


def test_copies_that_nobody_else_can_have_are_not_looked_at_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0

    def counted(*which: Any) -> str | None:  # noqa: ANN401
        nonlocal looks
        looks += 1
        return who_has_less(*which)

    who_has_less = task_assignor._who_has_less
    monkeypatch.setattr(task_assignor, "_who_has_less", counted)
    alone = {f"m{n:02}": f"p{n}" for n in range(3)}
    place = {**alone, **{f"m{n:02}": "threads" for n in range(3, 60)}}
    found = sticky(of({}, **place), {"s": 1_000}, STATEFUL, 2)
    assert sum(totals(found)[one] for one in alone) > 1_500
    assert looks < 500


def test_nobody_is_assigned_nothing() -> None:
    assert sticky([], {"s": 4}, STATEFUL, 1) == {}
    assert sticky(of(a="p"), {}, STATEFUL, 1) == {"a": NO_TASKS}


MEMBERS = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("pqrs"), max_size=8)
SIZES = st.fixed_dictionaries({"s": st.integers(0, 9), "t": st.integers(0, 9)})


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(MEMBERS, SIZES, st.integers(0, 3)), min_size=1, max_size=5))
def test_whatever_comes_and_goes_tasks_are_dealt_out_evenly(
    steps: list[tuple[dict[str, str], dict[str, int], int]],
) -> None:
    before: dict[str, Tasks] = {}
    for processes, sizes, copies in steps:
        workers = of(before, **processes)
        found = sticky(workers, sizes, STATEFUL, copies)
        assert found.keys() == processes.keys()
        every = {(name, number) for name, count in sizes.items() for number in range(count)}
        done = Counter(task for mine in found.values() for task in mine.active)
        if processes:
            assert done == Counter(every), "each task is one member's"
            numbers = actives(found).values()
            assert max(numbers) - min(numbers) <= 1
            states = [sum(task[0] in STATEFUL for task in one.active) for one in found.values()]
            assert max(states) - min(states) <= 1
        in_process = Counter(
            (processes[name], task)
            for name, mine in found.items()
            for task in (*mine.active, *mine.standby)
        )
        assert set(in_process.values()) <= {1}, "no process has a task twice"
        wanted = min(copies, len(set(processes.values())) - 1)
        kept = Counter(task for mine in found.values() for task in mine.standby)
        if processes:
            assert kept == Counter({t: wanted for t in every if t[0] in STATEFUL and wanted})
        counts = totals(found)
        for name, other in product(counts, counts):
            if counts[name] >= counts[other] + 2:
                where = processes[other]
                movable = [t for t in found[name].standby if not in_process[where, t]]
                assert not movable, "nobody can have less of them"
                assert processes[name] != where or not found[name].standby
        again = sticky(of(found, **processes), sizes, STATEFUL, copies)
        assert again == found, "what is even stays"
        before = found
