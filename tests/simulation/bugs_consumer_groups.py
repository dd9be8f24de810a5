"""Planted bugs of KIP-848 groups; see bugs.py."""

from collections.abc import Callable
from typing import Any

from segbroker.broker.groups.consumer_group import ConsumerGroup
from segbroker.broker.groups.consumer_members import ConsumerMember
from segbroker.broker.groups.kept_consumers import KeptConsumers
from segbroker.protocol.errors import ErrorCode

from .bugs import CALM, POWER, Bug, not_as_far, replaced, told_before_kept
from .plan import Group, Topic

HAVE = (Topic("k0", 3, "fsync", 2048, use="group"),)
CREW = CALM | {"groups": (Group("crew", "k0", 3, 3, ("range",), 500, 0.0, "consumer"),)}
CUT_OFF = {
    "groups": (Group("crew", "k0", 6, 30, ("uniform",), 6_000, 0.0, "consumer"),),
    "faults": tuple((2.0 * n + 0.1 * (n % 3), "power_cut") for n in range(1, 16)),
    "sync_s": (0.05, 0.2),
}
GO_ON = {
    "groups": (Group("crew", "k0", 3, 1, ("uniform",), 6_000, 0.0, "consumer"),),
    "faults": tuple((1.5 * n, "kill") for n in range(1, 6)),
}


def _lets_go_at_once(reconcile: Callable[..., Any]) -> Callable[..., Any]:
    """Who is told to let go is not waited for."""

    def reconciled(
        self: ConsumerMember,
        target: Any,  # noqa: ANN401
        epoch: int,
        said: int,
        owned: Any,  # noqa: ANN401
        owners: Any,  # noqa: ANN401
    ) -> bool:
        return bool(reconcile(self, target, epoch, said, frozenset(), owners))

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
        replaced(ConsumerGroup, "check_commit", lambda _: lambda self, *who: ErrorCode.NONE),
        CREW,
        topics=HAVE,
        seeds_max=30,
    ),
    Bug(
        "members hear of what they are given before it is durable",
        replaced(KeptConsumers, "when_kept", told_before_kept),
        POWER | CUT_OFF,
        topics=HAVE,
        seeds_max=20,
    ),
    Bug(
        "members are restored at the epoch before theirs",
        replaced(ConsumerGroup, "restore", not_as_far),
        GO_ON,
        topics=HAVE,
    ),
)
