"""The parts of a broker, each made of those above it; nothing runs yet.

    settings                        what is in force: the configuration, and what was changed since
    turn, ingest, deadlines         the loop
    topics                          what is served, with the defaults that the settings choose
    producer ids                    whom a transaction belongs to
    authentication                  logins, and the keys that tokens are signed with
    markers, ledger                 transactions
    quotas, authorizer              who may do what, and how much of it
    group settings, groups, shares  groups, which ask the authorizer who sees them, and the
                                    ledger which offsets are pending
    core                            all of them, with what needs nothing: counters, sessions, pools

What may fail, fails here, before a task runs: settings that are not durable, keys that nobody has.
server.py runs them.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio

from segbroker.segments.directory.cleaner import Cleaner
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.directory.scrubbing import Scrubber

from .access.audit import Audit
from .access.authentication import Authentication
from .access.authorizer import Authorizer
from .access.listener_limits import ListenerLimits
from .access.quotas import Quotas
from .apis.metadata import list_together
from .configuration.config import BrokerConfig
from .configuration.descriptors import divide
from .configuration.file_system import FileSystem
from .configuration.settings import BrokerSettings
from .core import Core
from .failed_changes import FailedChanges
from .groups.group_settings import GroupSettings
from .groups.groups import Groups
from .groups.kept_groups import KeptGroups
from .groups.viewers import sight_of
from .loop.deadlines import Deadlines
from .loop.ingest import Ingest
from .loop.lanes import Lanes
from .loop.pool import BufferPool
from .loop.together import Together
from .loop.turn import Turn
from .partitions.topics import Topics
from .peers.tls import Certificate
from .principal import parse_principals
from .reconfiguring import default_quotas
from .shares.shares import Shares
from .transactions.coordinator import Coordinator
from .transactions.ledger import Ledger
from .transactions.markers import Markers
from .transactions.producer_ids import ProducerIds
from .transactions.query_batches import QueryBatches
from .transactions.transaction_upkeep import TransactionUpkeep


async def assemble(
    base: BrokerConfig,
    manager: DiskManager,
    lanes: Lanes,
    spawn: Callable[[Callable[[], Awaitable[None]]], None],
    *,
    bound: tuple[str, int],
    certificates: Sequence[Certificate],
    descriptors_max: int | None,
    file_system: FileSystem | None,
    open_connections: Callable[[], int],
    now_ms: Callable[[], int],
) -> Core:
    """A broker on the data of `manager`, which is open.

    base: the settings that it was started with.  spawn: starts a task once the broker serves.
    descriptors_max: how many the process may have; None: nobody has said.  The others are as in
    Core.

    Raises StorageError: what the settings ask for cannot be stored.  InvalidConfig, OSError: they
    ask for what is not there.
    """
    settings = BrokerSettings(base, manager)
    config = settings.config
    turn = Turn()
    ingest = Ingest(config.ingest_bytes_max)
    deadlines = Deadlines(turn.end)
    topics = Topics(manager, config, lanes, ingest, turn)
    await topics.choose_defaults()
    producer_ids = ProducerIds(manager, lanes)
    authentication = Authentication(manager, config)
    await lanes.run(authentication.prepare)
    if authentication.keys is not None:
        await authentication.keys.start()
    markers = Markers(topics, lanes, turn)
    failed = FailedChanges()
    ledger = Ledger(manager, markers, producer_ids, spawn, now_ms, failed)
    batches = QueryBatches(ledger, manager)
    upkeep = TransactionUpkeep(ledger, batches, manager, config, markers, spawn, now_ms)
    quotas = Quotas(manager, default_quotas(config))
    authorizer = _authorizer_of(config, manager)
    group_settings = GroupSettings(manager, config, lanes)
    groups = Groups(
        manager,
        config,
        await lanes.run(KeptGroups.of, manager, turn.end, failed),
        deadlines,
        group_settings,
        turn.end,
        partial(sight_of, authorizer),
        ledger.table.pending,
        now_ms,
        failed,
    )
    await groups.take_up(lanes)
    group_settings.on_change = groups.settings_changed
    shares = Shares(
        manager, topics, group_settings, deadlines, lanes, spawn, turn.end, now_ms, failed
    )
    return Core(
        config=config,
        settings=settings,
        descriptors=divide(descriptors_max, config),
        file_system=file_system,
        group_settings=group_settings,
        topics=topics,
        refusals=topics.refusals,
        producer_ids=producer_ids,
        failed_changes=failed,
        groups=groups,
        shares=shares,
        transactions=Coordinator(ledger, manager, config, now_ms),
        query_batches=batches,
        transaction_upkeep=upkeep,
        authentication=authentication,
        lanes=lanes,
        pool=BufferPool(config.fetch_buffer_bytes_max),
        ingest=ingest,
        turn=turn,
        deadlines=deadlines,
        spawn=spawn,
        bound=bound,
        started_ms=now_ms(),
        started_at=trio.current_time(),
        now_ms=now_ms,
        open_connections=open_connections,
        listener_limits=ListenerLimits(config.listener_specs, config),
        certificates=certificates,
        scrubber=Scrubber(manager, config.scrub_bytes_per_second, config.scrub_interval_ms),
        cleaner=Cleaner(
            manager,
            config.cleaner_bytes_per_second,
            config.cleaner_buffer_bytes,
            config.cleaner_backoff_ms,
        ),
        listing=Together(list_together, trio.Lock(), sys.maxsize),
        authorizer=authorizer,
        all_quotas=quotas,
        quotas=quotas if quotas.is_active else None,
    )


def _authorizer_of(config: BrokerConfig, manager: DiskManager) -> Authorizer | None:
    if config.authorizer == "none":
        return None
    return Authorizer(
        manager,
        super_users=parse_principals(config.super_users),
        allow_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found,
        audit=Audit(lines_max=config.audit_lines_max, allowed_too=config.audit_allowed),
    )
