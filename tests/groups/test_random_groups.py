"""Random joins, leaves, deaths, zombies and broker kills: one owner, no way back (I15, I16)."""

from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from .ledger import SETTLED_S, Broken, Ledger
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
    """Time goes on when a test says so: a machine that stands still settles no claim."""

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


def late_ledger_of_two(clock: Clock) -> Ledger:
    """One has had partition 0 for long; two was told of it just now."""
    ledger = Ledger("g", told_late=True, clock=clock)
    for name in ("one", "two"):
        ledger.answered(name, 60)
    ledger.told("one", {0})
    clock.now_s += SETTLED_S
    ledger.told("two", {0})
    return ledger


def test_what_a_member_gives_back_at_once_binds_nobody() -> None:
    clock = Clock()
    ledger = late_ledger_of_two(clock)
    sent = ledger.sending("two", 0, 1)
    ledger.accepted("one", ledger.sending("one", 0, 21))
    ledger.accepted("two", sent)
    ledger.let_go("two", {0})
    clock.now_s += SETTLED_S
    ledger.accepted("one", ledger.sending("one", 0, 22))
    assert ledger.counts["unsettled"] == 1
    with pytest.raises(Broken, match="moved 0 back to 5"):
        ledger.accepted("one", ledger.sending("one", 0, 5))


def test_a_late_ledger_notices_a_commit_of_who_was_replaced_a_while_ago() -> None:
    clock = Clock()
    ledger = late_ledger_of_two(clock)
    clock.now_s += SETTLED_S
    with pytest.raises(Broken, match="one committed 0, which two has"):
        ledger.accepted("one", ledger.sending("one", 0, 5))
    ledger.accepted("two", ledger.sending("two", 0, 6))
    with pytest.raises(Broken, match="moved 0 back to 5"):
        ledger.accepted("two", ledger.sending("two", 0, 5))


def test_a_record_from_before_the_partition_went_and_came_again_binds_nobody() -> None:
    clock = Clock()
    ledger = late_ledger_of_two(clock)
    taken_s = clock.now_s - 0.1
    clock.now_s += 2 * SETTLED_S
    ledger.accepted("two", ledger.sending("two", 0, 21))
    ledger.accepted("two", ledger.sending("two", 0, 5, taken_s=taken_s))
    assert ledger.counts["unsettled"] == 1
