"""The internal topics of a streams group, made for the member whose heartbeat finds them missing.

They are made with the right of that client: to create in the cluster, or each of these topics.  The
heartbeat is answered meanwhile, with the status MISSING_INTERNAL_TOPICS, and what became of the
last try is said in it; the next one finds the topics there, or has them made again.

Limits: one task per group makes topics at a time, of as many partitions together as a CreateTopics
request may ask for (topic_admin.py).
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final

import structlog

from segbroker.protocol.messages_admin import (
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)
from segbroker.segments.directory.manager import NewTopic
from segbroker.segments.errors import StorageError, TopicExists

from ..access.authorizer import CREATE, TOPIC
from ..core import Core
from ..error_map import STORAGE_FAILURES, wire_error
from ..groups.streams_group import StreamsGroup
from ..groups.streams_topology import InternalTopic
from ..loop.pace import Pace
from ..peers.peer import Peer
from ..refused import Refused
from .topic_admin import EXCESSIVE, PARTITIONS_ASKED_MAX, new_topic

log = structlog.get_logger()

_DEFAULT: Final = -1
_TOLD: Final = 10
"""Topics that are named."""


def make_internal(core: Core, peer: Peer, group: StreamsGroup) -> str:
    """Have what is missing be made; what is to be said beside, of this try or the last one."""
    missing = group.work.configured.missing
    if not missing:
        group.not_made = ""
        return ""
    if refused := _unauthorized(core, peer, missing):
        return f"; Unauthorized to CREATE on topics {_told(refused)}."
    told = group.not_made
    if not group.is_making_topics:
        group.is_making_topics = True
        core.spawn(lambda: _make(core, peer, group, missing))
    return f"; Creation failed: {told}." if told else ""


def _told(names: Sequence[str]) -> str:
    """The first of many."""
    rest = ", ..." if len(names) > _TOLD else ""
    return ", ".join(names[:_TOLD]) + rest


def _unauthorized(core: Core, peer: Peer, missing: Sequence[InternalTopic]) -> list[str]:
    """Those that a client may not make; of many as many as it takes to tell that there are more.

    Each heartbeat asks anew, and each refusal is in the audit log.
    """
    authorizer = core.authorizer
    if authorizer is None or authorizer.allows_by_cluster(peer, CREATE):
        return []
    refused = (one.name for one in missing if not authorizer.allows(peer, CREATE, TOPIC, one.name))
    return list(islice(refused, _TOLD + 1))


async def _make(
    core: Core, peer: Peer, group: StreamsGroup, missing: Sequence[InternalTopic]
) -> None:
    try:
        failures = await _made(core, peer, missing)
    finally:
        group.is_making_topics = False
    before = group.not_made
    group.not_made = _told([f"{name} ({why})" for name, why in failures.items()])
    if failures and group.not_made != before:  # each heartbeat tries again
        log.warning("internal_topics_not_created", group=group.group_id, topics=group.not_made)


async def _made(core: Core, peer: Peer, missing: Sequence[InternalTopic]) -> dict[str, str]:
    """Make topics; why some could not be, by name."""
    failures: dict[str, str] = {}
    wanted: list[NewTopic] = []
    possible = core.config.partitions_max
    count = sum(one.partitions for one in missing if one.partitions <= possible)
    if count > max(PARTITIONS_ASKED_MAX, possible):
        return {one.name: EXCESSIVE for one in missing}
    pace = Pace()
    for one in missing:
        await pace.step()
        try:
            new = new_topic(core, _asked(one))
            quotas = core.quotas
            if quotas is not None and quotas.mutates(peer, new.partitions, is_strict=True):
                failures[one.name] = "the quota of changes is used up"
                continue
            wanted.append(new)
        except Refused as exc:
            failures[one.name] = exc.message
        except TopicExists:
            continue  # somebody was first
        except STORAGE_FAILURES as exc:
            failures[one.name] = wire_error(exc)[1] or str(exc)
    try:
        outcomes = await core.topics.create_all(wanted, peer.asker)
    except STORAGE_FAILURES as exc:
        return failures | {new.name: str(exc) for new in wanted}
    for new, outcome in zip(wanted, outcomes, strict=True):
        if isinstance(outcome, StorageError) and not isinstance(outcome, TopicExists):
            failures[new.name] = wire_error(outcome)[1] or str(outcome)
    return failures


def _asked(one: InternalTopic) -> CreateTopicsRequestTopic:
    """As a client would ask for it."""
    return CreateTopicsRequestTopic(
        name=one.name,
        num_partitions=one.partitions,
        replication_factor=one.replication_factor or _DEFAULT,
        assignments=[],
        configs=[CreateTopicsRequestConfig(name=name, value=value) for name, value in one.configs],
    )
