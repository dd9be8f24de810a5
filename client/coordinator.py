"""The one broker that knows a group, or a transactional id: found when needed, found again.

    ask ---> known? ---no---> FindCoordinator, of any broker
              |yes              |
              v                 v
           request ---> "not me", "not yet", or no answer: forget it, back off, from the start

`ask_once` is the same without the way back: for who says something else the next time.
Every question here ends with the deadline of its call.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final, TypeAlias

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import FindCoordinatorRequest, FindCoordinatorResponse
from segbroker.protocol.schema import Message

from .engine import Ask, Call, Engine, Pause
from .errors import ClosedError, SegbrokerError, broker_error
from .network import CONTROL
from .spoken import AtNewest, ById

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
ELSEWHERE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
_IsWanted: TypeAlias = Callable[[], bool]


def _always() -> bool:
    """It is wanted whatever happens."""
    return True


def _nobody(_: SegbrokerError) -> None:
    """Is told."""


class Coordinator:
    """See the module."""

    def __init__(self, engine: Engine, key: str, key_type: int) -> None:
        self.node_id: int | None = None
        self.engine = engine
        self.key = key
        self._key_type = key_type

    def forget(self) -> None:
        """It is another broker by now, or away."""
        self.node_id = None

    def _find(self) -> Call[int]:
        """The broker's id.  Raises what is not worth another try."""
        backoff = self.engine.backoff()
        while True:
            if self.node_id is not None and self.engine.cluster.node(self.node_id) is not None:
                return self.node_id
            try:
                found = yield Ask(
                    FindCoordinatorRequest(
                        key=self.key, key_type=self._key_type, coordinator_keys=[self.key]
                    )
                )
                assert isinstance(found, FindCoordinatorResponse)
                row = found.coordinators[0] if found.coordinators else found
                if row.error_code != ErrorCode.NONE:
                    raise broker_error(row.error_code, f"coordinator of {self.key!r}")
            except SegbrokerError as exc:
                if not exc.retryable:
                    raise
                why: SegbrokerError | None = exc
            else:
                why = None
                self.node_id = row.node_id
                if self.engine.cluster.node(row.node_id) is not None:
                    return row.node_id
                self.engine.cluster.invalidate()
            yield Pause(backoff.next_delay_ms(), why)

    def ask(
        self,
        request: Message | AtNewest | ById,
        *,
        lane: str = CONTROL,
        timeout_ms: int | None = None,
        repeat: bool = True,
        is_wanted: _IsWanted = _always,
        refused: Callable[[SegbrokerError], None] = _nobody,
    ) -> Call[Message]:
        """The coordinator's answer, once it is the coordinator's.

        Not `repeat`: a connection that was lost meanwhile is the caller's to know of.
        Not `is_wanted`: as of `ask_once`.
        refused: told of each answer that it is not, or not yet.
        """
        backoff = self.engine.backoff()
        while True:
            try:
                reply = yield from self.ask_once(
                    request, lane=lane, timeout_ms=timeout_ms, is_wanted=is_wanted
                )
            except SegbrokerError as exc:
                self.forget()
                if not repeat or not exc.retryable:
                    raise
                why = exc
            else:
                said = codes_in([reply])
                if not (passing := said & ELSEWHERE):
                    return reply
                why = broker_error(min(passing), f"coordinator of {self.key!r}")
                refused(why)
                if ErrorCode.COORDINATOR_LOAD_IN_PROGRESS not in said:
                    self.forget()
            yield Pause(backoff.next_delay_ms(), why)

    def ask_once(
        self,
        request: Message | AtNewest | ById,
        *,
        lane: str = CONTROL,
        timeout_ms: int | None = None,
        is_wanted: _IsWanted = _always,
    ) -> Call[Message]:
        """The coordinator's answer, whatever is in it.

        Not `is_wanted` any more, when the coordinator is found: ClosedError, and nothing is asked.
        """
        node_id = yield from self._find()
        if not is_wanted():
            raise ClosedError("it is over for whom this was to be asked")
        reply: Message = yield Ask(request, to=node_id, lane=lane, timeout_ms=timeout_ms)
        return reply


def codes_in(messages: Sequence[Message]) -> set[int]:
    """All error codes in these, and in what is in them; 0 for what went well."""
    codes: set[int] = set()
    for field in type(messages[0]).fields() if messages else ():
        if field.name.endswith("error_code"):
            codes.update(getattr(each, field.name) for each in messages)
        elif field.struct is not None:
            inner = [value for each in messages if (value := getattr(each, field.name))]
            codes |= codes_in(list(chain.from_iterable(inner)) if field.is_array else inner)
    return codes
