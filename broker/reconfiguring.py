"""Settings that were changed take effect: every part that keeps one of them is told.

Most parts look at `config` each time that they need a key; those that keep a number of their own
are in `reconfigure`, and so is what a change does to what there is already: groups take the new
limits, waiting connections look again whether there is room, everybody's default quotas begin anew.
What is only counted at its beginning (an open transaction's time-out, a handshake's) is as it was.

Called on the loop, between two awaits.
"""

import structlog

from segbroker.segments.directory.manager import DiskManager

from .access.address_limits import AddressLimits
from .access.quota_rules import CONSUME, PRODUCE, REQUESTS
from .configuration.config import BrokerConfig
from .configuration.connection_overrides import parse_overrides
from .configuration.descriptors import Descriptors, divide
from .configuration.logs import set_level
from .core import Core
from .loop.half_requests import HalfRequests

log = structlog.get_logger()


def default_quotas(config: BrokerConfig) -> dict[str, float]:
    """Quotas of whom none is set for, by their keys; 0 for none."""
    return {
        PRODUCE: config.quota_produce_bytes_per_second,
        CONSUME: config.quota_consume_bytes_per_second,
        REQUESTS: config.quota_requests_per_second,
    }


def limit_open(manager: DiskManager, descriptors: Descriptors) -> None:
    """Have no more files open than there are descriptors for them."""
    manager.limit_open(
        files_max=descriptors.open_files,
        logs_max=descriptors.open_logs,
        logs_most=descriptors.open_logs_most,
    )


def reconfigure(
    core: Core,
    limits: AddressLimits,
    half: HalfRequests,
    before: BrokerConfig,
    after: BrokerConfig,
) -> None:
    """Have `after` hold in all parts of the broker."""
    core.config = after
    core.topics.config = after
    core.transactions.config = after
    core.transaction_upkeep.config = after
    core.groups.reconfigure(after)
    limits.reconfigure(
        most=after.connections_per_ip_max,
        overrides=parse_overrides(after.connections_per_ip_overrides),
        rate=after.connections_per_ip_per_second,
    )
    core.listener_limits.reconfigure(after)
    half.reconfigure(after.request_bytes_max, after.request_bytes_per_ip_max)
    core.ingest.reconfigure(after.ingest_bytes_max)
    core.pool.reconfigure(after.fetch_buffer_bytes_max)
    core.scrubber.reconfigure(after.scrub_bytes_per_second, after.scrub_interval_ms)
    core.cleaner.reconfigure(
        after.cleaner_bytes_per_second, after.cleaner_buffer_bytes, after.cleaner_backoff_ms
    )
    known, core.descriptors = core.descriptors, divide(core.descriptors.limit, after)
    if core.descriptors.are_few and core.descriptors != known:
        log.warning("descriptors_few", **core.descriptors.facts())
    core.topics.manager.reconfigure(
        retention_interval_ms=after.retention_interval_ms,
        producer_expiration_ms=after.producer_id_expiration_ms,
    )
    limit_open(core.topics.manager, core.descriptors)
    if default_quotas(after) != default_quotas(before):
        core.all_quotas.set_defaults(default_quotas(after))
        core.quotas = core.all_quotas if core.all_quotas.is_active else None
    if core.authorizer is not None:
        core.authorizer.audit.lines_max = after.audit_lines_max
        core.authorizer.audit.allowed_too = after.audit_allowed
    if after.log_level != before.log_level:
        set_level(after.log_level)
