"""Planted bugs of KIP-848 groups; see bugs.py."""

from collections.abc import Callable
from typing import Any

from segbroker.broker.consumer_group import ConsumerGroup
from segbroker.broker.consumer_members import ConsumerMember
from segbroker.protocol.errors import ErrorCode

from .bugs import CALM, Bug, replaced
from .plan import Group, Topic

HAVE = (Topic("k0", 3, "fsync", 2048, use="group"),)
CREW = CALM | {"groups": (Group("crew", "k0", 3, 3, ("range",), 500, 0.0, "consumer"),)}


def _lets_go_at_once(reconcile: Callable[..., Any]) -> Callable[..., Any]:
    """Who is told to let go is not waited for."""

    def reconciled(
        self: ConsumerMember,
        target: Any,  # noqa: ANN401
        epoch: int,
        owned: Any,  # noqa: ANN401
        owners: Any,  # noqa: ANN401
    ) -> bool:
        return bool(reconcile(self, target, epoch, frozenset(), owners))

    return reconciled


BUGS = (
    Bug(
        "a partition is given away before its reader has let go of it",
        replaced(ConsumerMember, "reconcile", _lets_go_at_once),
        CREW,
        topics=HAVE,
    ),
    Bug(
        "commits of members that were dropped are taken",
        replaced(
            ConsumerGroup, "check_commit", lambda _: lambda self, member_id, epoch: ErrorCode.NONE
        ),
        CREW,
        topics=HAVE,
    ),
)
