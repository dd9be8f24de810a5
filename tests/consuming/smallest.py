"""Of a seed with a finding what is needed for it: acts, lives, members, changes and faults are left
out one by one, as long as one is found."""

from collections.abc import Iterator
from dataclasses import replace

from .plan import Life, Member, Plan, draw
from .run import run_seed


def smallest(seed: int, word: str = "") -> Plan:
    """The plan that is left.  word: what is found has it."""
    plan = draw(seed)
    is_less = True
    while is_less:
        is_less = False
        for less in _less(plan):
            if any(word in text for text in run_seed(seed, plan=less).violations):
                plan, is_less = less, True
                break
    return plan


def _less(plan: Plan) -> Iterator[Plan]:
    for n in range(len(plan.members)):
        if len(plan.members) > 1:
            yield replace(plan, members=(*plan.members[:n], *plan.members[n + 1 :]))
    for n, member in enumerate(plan.members):
        for less in _less_of(member):
            yield replace(plan, members=(*plan.members[:n], less, *plan.members[n + 1 :]))
    for n in range(len(plan.changes)):
        yield replace(plan, changes=plan.changes[:n] + plan.changes[n + 1 :])
    for n in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:n] + plan.faults[n + 1 :])
    if plan.aborts:
        yield replace(plan, aborts=0.0)


def _less_of(member: Member) -> Iterator[Member]:
    lives = member.lives
    for n in range(len(lives)):
        if len(lives) > 1:
            yield replace(member, lives=lives[:n] + lives[n + 1 :])
    for n, life in enumerate(lives):
        for less in _less_of_life(life):
            yield replace(member, lives=(*lives[:n], less, *lives[n + 1 :]))


def _less_of_life(life: Life) -> Iterator[Life]:
    acts, size = life.acts, len(life.acts)
    while size >= 1:
        for start in range(0, len(acts), size):
            if len(acts) > size or size == 1:
                yield replace(life, acts=acts[:start] + acts[start + size :])
        size //= 2
    if len(life.callbacks) > 1:
        for kind in life.callbacks[1:]:
            yield replace(life, callbacks=tuple(k for k in life.callbacks if k != kind))
