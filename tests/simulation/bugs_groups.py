"""Planted bugs of groups, transactions, the weaker classes and retention; see bugs.py."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import segbroker.broker.fetching.fetch
import segbroker.broker.fetching.fetch_reply
import segbroker.broker.fetching.fetch_target
import segbroker.broker.fetching.offsets
import segbroker.broker.partitions.isolation
import segbroker.client.classic_membership
import segbroker.segments.directory.opened_partitions
import segbroker.segments.log.retention
import segbroker.segments.replay.resuming
from segbroker.broker.groups.group_rounds import Rounds
from segbroker.broker.groups.groups import Groups
from segbroker.broker.groups.kept_generations import KeptGenerations
from segbroker.client.records import TopicPartition
from segbroker.segments.recovery.lost_tail import begin_at

from .bugs import CALM, POWER, Bug, replaced, told_before_kept
from .plan import LONG_SESSION_MS, Topic, Transactor
from .plan import Group as GroupPlan

TEAM = GroupPlan("team", "g0", 3, 3, ("range",), 500, 0.05)
GROUP = {"groups": (TEAM,)}
TRANSACTIONS = {
    "transactors": tuple(Transactor(f"tx{n}", ("x0",), 20, 60_000, 0.05, 1, True) for n in (0, 1))
}
HAVE_GROUP = (Topic("g0", 3, "fsync", 2048, use="group"),)
HAVE_TRANSACTIONS = (Topic("x0", 2, "fsync", 2048, use="transactions"),)
CUT_OFF = {
    "groups": (GroupPlan("team", "g0", 3, 6, ("range",), 500, 0.05),),
    "faults": tuple((1.3 * n, "power_cut") for n in range(1, 8)),
    "sync_s": (0.01, 0.05),
}
COME_AND_GO = {
    "groups": (GroupPlan("team", "g0", 6, 20, ("range",), 500, 0.05),),
    "faults": tuple((2.0 * n + 0.1 * (n % 3), "power_cut") for n in range(1, 12)),
    "sync_s": (0.05, 0.2),
}
COME_BACK = {
    "groups": (GroupPlan("team", "g0", 4, 12, ("range",), LONG_SESSION_MS, 0.05),),
    "faults": tuple((1.5 * n, "kill") for n in range(1, 6)),
}
KILLS = {"faults": ((0.5, "kill"), (1.0, "kill")), "last_crash": "kill"}


def _renamed(*places: tuple[object, str], by: object) -> Callable[[], AbstractContextManager[None]]:
    """The same function, wherever it was imported."""

    @contextmanager
    def plant() -> Any:  # noqa: ANN401
        with ExitStack() as stack:
            for module, name in places:
                stack.enter_context(patch.object(module, name, by))
            yield

    return plant


def _everything_to_everybody(assignor: str, members: Any, counts: Any) -> Any:  # noqa: ANN401
    every = [TopicPartition(t, p) for t, count in counts.items() for p in range(count)]
    return {member.member_id: every for member in members}


def _told_before_stored(commit: Callable[..., Any]) -> Callable[..., Any]:
    def committed(
        self: Groups,
        group_id: str,
        rows: Any,  # noqa: ANN401
        at_ms: int,
        done: Any,  # noqa: ANN401
        expire_ms: int | None,
    ) -> None:
        commit(self, group_id, rows, at_ms, lambda error: None, expire_ms)
        done(None)

    return committed


def _seated_and_not_kept(join: Callable[..., Any]) -> Callable[..., Any]:
    def joined(self: Rounds, member: Any, asked_as: str, **options: bool) -> None:  # noqa: ANN401
        done, member.on_joined = member.on_joined, None
        done(self._joined(member, **options))

    return joined


def _counts_anew(restore: Callable[..., Any]) -> Callable[..., Any]:
    def restored(self: Rounds, *args: Any) -> None:  # noqa: ANN401
        restore(self, *args)
        self.generation = 0

    return restored


def _begins_at_0(storage: Any, paths: Any, offset: int, epoch: int, now_ms: int) -> None:  # noqa: ANN401
    begin_at(storage, paths, 0, epoch, now_ms)


_visible = [
    (module, "visible_end")
    for module in (
        segbroker.broker.fetching.fetch,
        segbroker.broker.fetching.fetch_target,
        segbroker.broker.fetching.offsets,
        segbroker.broker.partitions.isolation,
    )
]

BUGS = (
    Bug(
        "two members are given one partition",
        _renamed((segbroker.client.classic_membership, "deal_out"), by=_everything_to_everybody),
        CALM | GROUP,
        topics=HAVE_GROUP,
    ),
    Bug(
        "commits are answered before they are durable",
        replaced(Groups, "commit", _told_before_stored),
        POWER | CUT_OFF,
        topics=HAVE_GROUP,
        seeds_max=20,
        seed=7,
    ),
    Bug(
        "members hear of their generation before it is durable",
        replaced(KeptGenerations, "keep", told_before_kept),
        POWER | COME_AND_GO,
        topics=HAVE_GROUP,
        seeds_max=20,
    ),
    Bug(
        "the place that a static member takes is not written down",
        replaced(Rounds, "_join_when_recorded", _seated_and_not_kept),
        COME_BACK,
        topics=HAVE_GROUP,
    ),
    Bug(
        "a restored group counts its generations anew",
        replaced(Rounds, "restore", _counts_anew),
        GROUP | KILLS,
        topics=HAVE_GROUP,
    ),
    Bug(
        "aborted records are handed out",
        _renamed(
            (segbroker.broker.fetching.fetch_reply, "committed_part"),
            by=lambda ranges, offset, records: (records, []),
        ),
        CALM | TRANSACTIONS,
        topics=HAVE_TRANSACTIONS,
    ),
    Bug(
        "readers of committed records see open transactions",
        _renamed(*_visible, by=lambda handler, isolation: handler.high_watermark),
        CALM | TRANSACTIONS,
        topics=HAVE_TRANSACTIONS,
    ),
    Bug(
        "an ephemeral log begins at 0 again",
        _renamed((segbroker.segments.directory.opened_partitions, "begin_at"), by=_begins_at_0),
        KILLS,
        durability="ephemeral",
    ),
    Bug(
        "a lost tail is not told",
        _renamed(
            (segbroker.segments.replay.resuming, "write_lost_tail"),
            by=lambda log, ceiling, epoch, reason, now_ms: None,
        ),
        POWER | {"faults": ((0.5, "power_cut"),)},
        durability="memory",
        seeds_max=20,
    ),
    Bug(
        "retention takes what is not due",
        _renamed((segbroker.segments.log.retention, "_over_cap"), by=lambda log, config: 1),
        CALM,
    ),
)
