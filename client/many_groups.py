"""Questions about many groups at once, as calls (see engine): a request for a hundred of them.

    ids -> FindCoordinator, a hundred names -> by broker -> the question, a hundred groups
                 |                                              |
                 |  no answer, or one that is for now only      |
                 +----------> asked about alone <---------------+

What is asked about alone is asked as by the calls about one group, which know what is worth another
try and say what is wrong; so do all groups of a broker that answers about one group only (before
Apache Kafka 3.0).  Each request about many has the time of a call (engine.Onward).
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias, TypeVar

from segbroker.protocol.messages_consumer_groups import ConsumerGroupDescribeRequest
from segbroker.protocol.messages_groups import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from segbroker.protocol.messages_share_groups import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    ShareGroupDescribeRequest,
)
from segbroker.protocol.messages_streams_groups import StreamsGroupDescribeRequest
from segbroker.protocol.schema import Message

from .coordinator import GROUP_KEY
from .engine import ANY, Ask, Call, Engine, Onward
from .errors import SegbrokerError
from .group_administration import Describing, committed, describe_group
from .group_descriptions import (
    DEAD,
    GroupDescription,
    of_classic,
    of_consumers,
    of_sharers,
    of_streams,
)
from .group_offsets import CommittedOffset, rows_of, stands_of
from .lists import in_pieces
from .records import TopicPartition
from .share_offsets import ShareOffset, share_offsets, share_stands

T = TypeVar("T")
Places: TypeAlias = dict[int, list[str]]
_Request: TypeAlias = Callable[[list[str]], Message]


def describe_groups(engine: Engine, group_ids: Iterable[str]) -> Call[dict[str, GroupDescription]]:
    """State and members of each, whichever protocol its members speak; state Dead: it is none."""
    names = list(dict.fromkeys(group_ids))
    places = yield from _places(engine, names)
    found: dict[str, GroupDescription] = {}
    for request, show in _KINDS:
        for broker, there in places.items():
            left = [name for name in there if name not in found or found[name].state == DEAD]
            for some in in_pieces(left):
                reply = yield from _maybe(broker, request(some))
                rows = getattr(reply, "groups", ())
                found |= {row.group_id: show(row) for row in rows if not row.error_code}
    return (yield from _with_others(engine, names, found, describe_group))


def committed_of(
    engine: Engine, group_ids: Iterable[str]
) -> Call[dict[str, dict[TopicPartition, CommittedOffset]]]:
    """Where each group stands, everywhere; nowhere, if it never committed."""
    names = list(dict.fromkeys(group_ids))

    def request(some: list[str]) -> Message:
        groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in some]
        return OffsetFetchRequest(group_id="", topics=[], groups=groups)

    found: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    for reply in (yield from _answers(engine, names, request)):
        for group in reply.groups if isinstance(reply, OffsetFetchResponse) else ():
            rows = rows_of(group.topics)
            if not group.error_code and not any(row.error_code for row in rows.values()):
                found[group.group_id] = stands_of(rows)
    return (yield from _with_others(engine, names, found, committed))


def share_offsets_of(
    engine: Engine, group_ids: Iterable[str]
) -> Call[dict[str, dict[TopicPartition, ShareOffset]]]:
    """Where each share group stands, everywhere; nowhere, if there is none."""
    names = list(dict.fromkeys(group_ids))

    def request(some: list[str]) -> Message:
        groups = [
            DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None) for name in some
        ]
        return DescribeShareGroupOffsetsRequest(groups=groups)

    found: dict[str, dict[TopicPartition, ShareOffset]] = {}
    for reply in (yield from _answers(engine, names, request)):
        for group in reply.groups if isinstance(reply, DescribeShareGroupOffsetsResponse) else ():
            with suppress(SegbrokerError):  # of a partition
                if not group.error_code:
                    found[group.group_id] = share_stands(group)
    return (yield from _with_others(engine, names, found, share_offsets))


def _asking(kind: type[Describing]) -> _Request:
    return lambda names: kind(group_ids=names, include_authorized_operations=False)


# In the order of the calls about one group: a classic answer says Dead of every other type.
_KINDS: Final[Sequence[tuple[_Request, Callable[..., GroupDescription]]]] = (
    (_asking(ConsumerGroupDescribeRequest), of_consumers),
    (lambda names: DescribeGroupsRequest(groups=names), of_classic),
    (_asking(ShareGroupDescribeRequest), of_sharers),
    (_asking(StreamsGroupDescribeRequest), of_streams),
)


def _places(engine: Engine, names: Iterable[str]) -> Call[Places]:
    """The groups of each broker; without those of which nobody can say it now."""
    places: Places = {}
    for some in in_pieces(names):
        request = FindCoordinatorRequest(key="", key_type=GROUP_KEY, coordinator_keys=some)
        reply = yield from _maybe(ANY, request)
        for row in reply.coordinators if isinstance(reply, FindCoordinatorResponse) else ():
            if not row.error_code and engine.cluster.node(row.node_id) is not None:
                places.setdefault(row.node_id, []).append(row.key)
    return places


def _answers(engine: Engine, names: Iterable[str], request: _Request) -> Call[list[Message]]:
    """What the brokers say of their groups, of a hundred each; without what did not come."""
    answers = []
    for broker, there in (yield from _places(engine, names)).items():
        for some in in_pieces(there):
            reply = yield from _maybe(broker, request(some))
            if reply is not None:
                answers.append(reply)
    return answers


def _maybe(to: int | str, request: Message) -> Call[Message | None]:
    """The answer; None: there is none, whatever the reason."""
    try:
        reply: Message = yield Ask(request, to=to)
    except SegbrokerError:
        return None
    yield Onward()
    return reply


def _with_others(
    engine: Engine,
    names: list[str],
    found: dict[str, T],
    alone: Callable[[Engine, str], Call[T]],
) -> Call[dict[str, T]]:
    """In the order of `names`; those that were not found are asked about alone."""
    for name in names:
        if name not in found:
            found[name] = yield from alone(engine, name)
    return {name: found[name] for name in names}
