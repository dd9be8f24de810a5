"""Random joins, leaves, deaths, zombies and broker kills: one owner, no way back (I15, I16)."""

from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from .ledger import Broken, Ledger
from .play import play


def test_random_groups_keep_one_owner_per_partition_and_never_go_back(tmp_path: Path) -> None:
    seed = Random().randrange(1 << 32)
    print(f"seed {seed}")
    outcome = play(tmp_path / "data", seed, seconds=8, members=4, kills=1, rdkafka=2)
    print(outcome)
    for name in ("told", "commits", "fetched", "seeks"):
        assert outcome.counts[name] > 0, f"nothing was {name}"


@dataclass
class Clock:
    """Time goes on when a test says so."""

    now_s: float = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def ledger_of_two() -> Ledger:
    ledger = Ledger("g")
    for name in ("one", "two"):
        ledger.answered(name, 60)
    ledger.told("one", {0}, 1)
    return ledger


def test_the_ledger_notices_a_second_owner() -> None:
    with pytest.raises(Broken, match="which one has"):
        ledger_of_two().told("two", {0}, 2)


def test_the_ledger_notices_a_second_owner_of_one_generation() -> None:
    ledger = ledger_of_two()
    ledger.let_go("one")
    with pytest.raises(Broken, match="has one and two"):
        ledger.told("two", {0}, 1)


def test_the_ledger_notices_a_commit_of_who_was_replaced() -> None:
    ledger = ledger_of_two()
    ledger.let_go("one")
    ledger.told("two", {0}, 2)
    with pytest.raises(Broken, match="one committed 0, which two has"):
        ledger.accepted("one", ledger.sending("one", 0, 5))


def test_the_ledger_notices_a_step_back() -> None:
    ledger = ledger_of_two()
    ledger.accepted("one", ledger.sending("one", 0, 5))
    with pytest.raises(Broken, match="moved 0 back to 4"):
        ledger.accepted("one", ledger.sending("one", 0, 4))
    with pytest.raises(Broken, match="stands at 4"):
        ledger.fetched(0, 4, ledger.stands(0))
    ledger.sought(0, 2)
    ledger.fetched(0, 2, ledger.stands(0))


def test_who_was_silent_for_its_session_binds_nobody() -> None:
    clock = Clock()
    ledger = Ledger("g", clock=clock)
    ledger.answered("one", 10)
    ledger.told("one", {0}, 1)
    clock.now_s += 10
    ledger.answered("two", 60)
    ledger.told("two", {0}, 2)


def test_a_commit_that_nobody_judges_may_move_the_group_either_way() -> None:
    ledger = ledger_of_two()
    ledger.accepted("one", ledger.sending("one", 0, 21))
    for offset in (5, 43):
        ledger.accepted("two", ledger.sending("two", 0, offset, is_judged=False))
        ledger.fetched(0, 5, ledger.stands(0))
    ledger.accepted("one", ledger.sending("one", 0, 22))
    assert ledger.counts["unjudged"] == 2
    with pytest.raises(Broken, match="moved 0 back to 6 from 22"):
        ledger.accepted("one", ledger.sending("one", 0, 6))


def test_of_two_commits_at_a_time_of_which_nobody_judges_one_neither_may_be_the_last() -> None:
    ledger = ledger_of_two()
    ledger.accepted("one", ledger.sending("one", 0, 21))
    unjudged = ledger.sending("two", 0, 5, is_judged=False)
    ledger.fetched(0, 5, ledger.stands(0))
    ledger.accepted("one", ledger.sending("one", 0, 22))
    ledger.accepted("two", unjudged)
    ledger.fetched(0, 5, ledger.stands(0))
