"""What may be of one thing: a set of states, made smaller by what is seen.

Changes come in rounds: some at once, by clients of their own.  A round is explained if there is an
order of its changes in which each of them, done at one moment, gives the answer that it got.  The
states behind all such orders are what may be seen afterwards.

| answer | the change |
|---|---|
| done | happened |
| refused | did not |
| a failure of the disk | did not, for whoever looks; it may come true at a crash |
| none, as the broker has ended | may have happened |

`lurking` are the states that may be there after a crash.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations
from typing import Final, Generic, TypeVar

from segbroker.protocol.errors import ErrorCode

from ..support.wire_client import WireClient

S = TypeVar("S")

FAILED: Final = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""What a failing disk, or a broker that ends, makes of an answer."""


class Difference(AssertionError):
    """The broker and the model do not agree."""


class Change(ABC, Generic[S]):
    """One change that a client asks for."""

    may_hold = False
    """Whether it may be in force though the answer is a failure: it is stored, and something else
    failed behind it."""

    nothing_there: int | None = None
    """The answer that there is nothing to take away, nor behind a crash."""

    def __init__(self) -> None:
        self.code: int | None = None
        """The answer; None: there is none."""

    @abstractmethod
    def outcomes(self, state: S) -> Sequence[tuple[S, int]]:
        """What it may make of a state, each with its answer."""

    @abstractmethod
    async def ask(self, client: WireClient) -> int:
        """Ask for it; the code of the answer."""

    @property
    def is_in_doubt(self) -> bool:
        return self.code is None or self.code in FAILED


class Belief(Generic[S]):
    """See the module."""

    def __init__(self, state: S) -> None:
        self.states: list[S] = [state]
        self.lurking: list[S] = []

    def after(self, changes: Sequence[Change[S]]) -> None:
        """A round is over.  Raises Difference: nothing explains its answers."""
        before = self.states
        self.states = _explained(before, changes, what_failed_lurks=False)
        if not self.states:
            told = ", ".join(f"{change}: {change.code}" for change in changes)
            raise Difference(f"from {before} nothing explains {told}")
        # Also those that may be seen now: the next look may find that they are not.
        self.lurking = _explained([*before, *self.lurking], changes, what_failed_lurks=True)

    def crashed(self) -> None:
        """The broker has ended: what was in doubt may have come true."""
        self.states, self.lurking = _different([*self.states, *self.lurking]), []

    def seen(self, fits: Callable[[S], S | None], what: object) -> None:
        """Only these fit what was seen.  Raises Difference: none does."""
        found = [fit for state in self.states if (fit := fits(state)) is not None]
        if not found:
            raise Difference(f"seen {what}, it should be one of {self.states}")
        self.states = _different(found)


def _explained(
    states: Sequence[S], changes: Sequence[Change[S]], *, what_failed_lurks: bool
) -> list[S]:
    """The states behind all orders that explain the answers."""
    is_loose = any(change.is_in_doubt for change in changes)
    found: list[S] = []
    for order in permutations(changes):
        some = list(states)
        for change in order:
            some = _different(
                after
                for state in some
                for after in _done(change, state, is_loose, what_failed_lurks)
            )
        found += some
    return _different(found)


def _done(change: Change[S], state: S, is_loose: bool, what_failed_lurks: bool) -> list[S]:
    """What one change has made of a state; nothing: its answer is another one."""
    outcomes = change.outcomes(state)
    if change.is_in_doubt:
        may_have = change.code is None or what_failed_lurks or change.may_hold
        return [state, *(after for after, code in outcomes if may_have and not code)]
    lurks = what_failed_lurks and change.code != change.nothing_there
    if change.code and (is_loose or lurks):
        return [state]  # because of one beside it that then failed, or of what nobody sees
    return [after for after, code in outcomes if code == change.code]


def _different(states: Iterable[S]) -> list[S]:
    return list(dict.fromkeys(states))
