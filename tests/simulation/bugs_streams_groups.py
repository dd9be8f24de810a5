"""Planted bugs of streams groups; see bugs.py."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from segbroker.broker.groups import group_start
from segbroker.broker.groups.kept_streams import KeptStreams, restored_member
from segbroker.broker.groups.streams_group import StreamsGroup
from segbroker.broker.groups.streams_members import Holders, StreamsMember
from segbroker.broker.groups.task_assignor import NO_TASKS
from segbroker.protocol.errors import ErrorCode
from segbroker.segments.metadata.streams_groups import KeptMember

from .bugs import CALM, POWER, Bug, not_as_far, replaced, told_before_kept
from .plan import Group, Topic

HAVE = (Topic("m0", 4, "fsync", 2048, use="group"),)


def _app(members: int, lives: int, session_ms: int, standbys: int = 0) -> tuple[Group, ...]:
    return (Group("app", "m0", members, lives, (), session_ms, 0.0, "streams", standbys),)


CREW = CALM | {"groups": _app(3, 3, 500)}
COPIES = CALM | {"groups": _app(4, 3, 500, standbys=1)}
CUT_OFF = {
    "groups": _app(6, 30, 6_000),
    "faults": tuple((2.0 * n + 0.1 * (n % 3), "power_cut") for n in range(1, 16)),
    "sync_s": (0.05, 0.2),
}
GO_ON = {
    "groups": _app(3, 1, 6_000),
    "faults": tuple((1.5 * n, "kill") for n in range(1, 6)),
}
COME_AND_GO_ON = {
    "groups": _app(6, 30, 6_000),
    "faults": tuple((0.4 * n, "kill") for n in range(1, 40)),
}


def _lets_go_at_once(reconcile: Callable[..., Any]) -> Callable[..., Any]:
    """Who is told to let go is not waited for."""

    def reconciled(
        self: StreamsMember,
        target: Any,  # noqa: ANN401
        epoch: int,
        owned: Any,  # noqa: ANN401
        holders: Holders,
    ) -> bool:
        return bool(reconcile(self, target, epoch, NO_TASKS, holders))

    return reconciled


def _lets_go_by_a_restart(member_id: str, kept: KeptMember) -> StreamsMember:
    """What members were told to let go of is nobody's after a start."""
    return restored_member(member_id, kept._replace(revoking=NO_TASKS))


def _is_nowhere(_: Callable[..., Any]) -> Callable[..., Any]:
    """Copies in a process are not seen, and those of two threads count as one."""
    return lambda self, process_id, task: False


def _keeps_silent(take: Callable[..., Any]) -> Callable[..., Any]:
    """What was told to a member that stays is not written down: every third time."""
    count = 0

    def taken(self: KeptStreams, group: StreamsGroup, writing: Any, members: Any) -> Any:  # noqa: ANN401
        nonlocal count
        count += 1
        fields = take(self, group, writing, members)
        if fields is not None and count % 3 == 0 and not fields["whole"]:
            here = {name: row for name, row in fields["members"].items() if row is None}
            return fields | {"members": here}
        return fields

    return taken


BUGS = (
    Bug(
        "a task is given away before who does it has let go of it",
        replaced(StreamsMember, "reconcile", _lets_go_at_once),
        CREW,
        topics=HAVE,
    ),
    Bug(
        "commits of threads that were dropped are taken",
        replaced(StreamsGroup, "check_commit", lambda _: lambda self, *who: ErrorCode.NONE),
        CREW,
        topics=HAVE,
    ),
    Bug(
        "a process has a task twice",
        replaced(Holders, "is_in", _is_nowhere),
        COPIES,
        topics=HAVE,
    ),
    Bug(
        "threads hear of tasks before it is durable",
        replaced(KeptStreams, "when_kept", told_before_kept),
        POWER | CUT_OFF,
        topics=HAVE,
        seeds_max=20,
    ),
    Bug(
        "threads are restored at the epoch before theirs",
        replaced(StreamsGroup, "restore", not_as_far),
        GO_ON,
        topics=HAVE,
    ),
    Bug(
        "what threads are to let go of is free after a start",
        lambda: patch.object(group_start, "restored_member", _lets_go_by_a_restart),
        COME_AND_GO_ON,
        topics=HAVE,
        seeds_max=20,
        seed=8,
    ),
    Bug(
        "what a thread was told is not written down",
        replaced(KeptStreams, "_taken", _keeps_silent),
        CREW,
        topics=HAVE,
    ),
)
