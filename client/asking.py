"""Asking until there is an answer that lasts: one rule for all calls of an admin client.

So are the topics of a pattern asked for.

    look     a question changes nothing: asked again after a lost connection and after an answer
             that is for now only ("still loading", "no leader yet"), until the deadline of the call
    change   asked again only after an answer that says that nothing was done, and where there was
             no connection to send it; when it breaks behind the request the caller hears
             of it: it may have been done, and "already exists" would then be a false answer

Of several rows in the answer to a change the first that failed decides, and all of them are asked
again: doing them once more must do no harm.  Rules and settings are so; `delete_acls` then returns
what it still found, and the rows of `delete_user` are of one user, who has one row in the answer.

`check` raises what an answer says: a BrokerError.  That a topic or a broker does not exist is an
answer that lasts: waiting would hide a typing mistake.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.schema import Message

from .engine import ANY, CONTROLLER, Ask, Call, Engine, Pause, Refresh
from .errors import (
    BrokerError,
    BrokerUnreachable,
    ConnectionLost,
    PeerError,
    SegbrokerError,
    TimedOut,
    UnknownTopicId,
    UnknownTopicOrPartition,
    broker_error,
    check_code,
)
from .spoken import Request, VendorReply, VendorRequest

Answer = TypeVar("Answer")

NOT_DONE: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)


def look(
    engine: Engine,
    request: Request,
    kind: type[Answer],
    check: Callable[[Answer], object] | None = None,
    *,
    to: int | str = ANY,
) -> Call[Answer]:
    """The answer to a question, see the module; `to` one broker, the controller, or any."""
    backoff = engine.backoff()
    while True:
        yield from _known(engine, to)
        try:
            reply = yield Ask(request, to=to)
            assert isinstance(reply, kind), reply
            if check is not None:
                check(reply)
            return reply
        except SegbrokerError as exc:
            if not exc.retryable or isinstance(exc, UnknownTopicOrPartition):
                raise
            why = exc
        yield Pause(backoff.next_delay_ms(), why)


def look_vendor(
    engine: Engine, request: VendorRequest, about: str, *, to: int | str = ANY
) -> Call[Mapping[str, Any]]:
    """The answer to a question of segbroker's own; `about` begins what an error says.

    Raises UnsupportedByBroker: it is another make.
    """

    def check(reply: VendorReply) -> None:
        if failed := reply.body.get("error"):
            raise broker_error(failed["code"], about, failed["detail"])

    reply = yield from look(engine, request, VendorReply, check, to=to)
    return reply.body


def change(
    engine: Engine,
    request: Request,
    kind: type[Answer],
    check: Callable[[Answer], object],
    *,
    to: int | str = CONTROLLER,
) -> Call[Answer]:
    """The answer to what changes something, see the module."""
    backoff = engine.backoff()
    while True:
        yield from _known(engine, to)
        why: SegbrokerError
        try:
            reply = yield Ask(request, to=to)
            assert isinstance(reply, kind), reply
            check(reply)
            return reply
        except BrokerError as exc:
            if exc.code not in NOT_DONE:
                raise
            why = exc
        except (ConnectionLost, TimedOut) as exc:
            if exc.may_be_done:
                raise
            why = exc
        yield Pause(backoff.next_delay_ms(), why)
        yield Refresh()


def until_it_lasts(engine: Engine, asks: Callable[[], Call[Answer]]) -> Call[Answer]:
    """What such a call comes to: of a question, or of a change that may be made twice, that is
    asked of whoever knows it (see coordinator), and raises what is wrong with the answer."""
    backoff = engine.backoff()
    while True:
        try:
            return (yield from asks())
        except BrokerError as exc:
            if not is_for_now(exc):
                raise
            why = exc
        yield Pause(backoff.next_delay_ms(), why)


def is_for_now(error: BrokerError) -> bool:
    """Whether what is refused so may be done a moment later.  That there is no such topic is an
    answer that lasts."""
    return error.retryable and not isinstance(error, UnknownTopicId | UnknownTopicOrPartition)


def refused(about: str) -> Callable[[Message], None]:
    """A check that raises the first refusal in an answer, all of which is about that; PeerError
    where it does not say what became of it."""

    def look(reply: Message) -> bool:
        is_said = False
        for field in type(reply).fields():
            value = getattr(reply, field.name)
            if field.name == "error_code":
                check_code(value, about, getattr(reply, "error_message", None))
                is_said = True
            elif field.struct is not None and field.is_array:
                for row in value or ():
                    is_said |= look(row)
        return is_said

    def check(reply: Message) -> None:
        if not look(reply):
            raise unsaid(about)

    return check


def unsaid(about: str) -> PeerError:
    """The error of an answer without a row of what was asked for: it may be done, or not."""
    return PeerError(f"{about}: the answer does not say what became of it")


def _known(engine: Engine, to: int | str) -> Call[None]:
    """Raises BrokerUnreachable when the cluster has no such broker."""
    if isinstance(to, int) and engine.cluster.node(to) is None:
        yield Refresh()
        if engine.cluster.node(to) is None:
            raise BrokerUnreachable(f"broker {to} is not in the cluster's metadata")
