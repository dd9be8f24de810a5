"""Connections, requests, bytes, what waits, and the loop: numbers that others count anyway.

Nothing here takes longer than the listeners and the apis there are; the bytes that open connections
have sent are summed by who has the connections (`live_sent_bytes`), in one go, so that none of them
is counted twice when it ends meanwhile.
"""

import platform
from collections.abc import Callable
from importlib.metadata import version

from segbroker.protocol.api_keys import api_name
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.kernel import KERNEL_IS_NATIVE

from ..core import Core
from .numbers import Numbers

UNKNOWN = "unknown"
"""As what requests count whose api or version is not served."""


def add_broker(numbers: Numbers, core: Core, *, is_ready: bool) -> None:
    """What it is, and since when."""
    kernel = "native" if KERNEL_IS_NATIVE else "python"
    labels = version("segbroker"), platform.python_version(), kernel
    numbers.add("segbroker_build_info", 1, *labels)
    numbers.add("segbroker_start_time_seconds", core.started_ms / 1000)
    numbers.add("segbroker_uptime_seconds", core.uptime_s)
    numbers.add("segbroker_ready", is_ready)


def add_listeners(numbers: Numbers, core: Core) -> None:
    """Connections, certificates, and keys of tokens."""
    for one in core.certificates:
        expires_s, has_failed = one.valid_until_ms / 1000, one.why_not_reloaded is not None
        for name in one.listeners:
            numbers.add("segbroker_certificate_expiry_timestamp_seconds", expires_s, name)
            numbers.add("segbroker_certificate_reload_failed", has_failed, name)
    if core.authentication.keys is not None:
        has_failed = bool(core.authentication.keys.error)
        numbers.add("segbroker_signing_keys_read_failed", has_failed)
    most = core.descriptors.connections
    numbers.add("segbroker_all_connections_max", most)
    for gate in core.listener_limits.gates.values():
        numbers.add("segbroker_connections", gate.connections, gate.name)
        numbers.add("segbroker_connections_max", min(gate.connections_max, most), gate.name)


def add_traffic(numbers: Numbers, core: Core, live_sent_bytes: Callable[[], int]) -> None:
    """Connections in all, requests, bytes, errors."""
    counters, tally = core.counters, core.counters.tally
    numbers.add("segbroker_connections_accepted_total", counters.connections)
    numbers.add("segbroker_connections_refused_total", counters.connections_refused)
    numbers.add("segbroker_connections_failed_total", counters.connections_failed)
    for key, count in sorted(tally.requests.items()):
        numbers.add("segbroker_requests_total", count, api_name(key))
    numbers.add("segbroker_requests_total", tally.unserved, UNKNOWN)
    for (key, code), count in sorted(tally.errors.items()):
        numbers.add("segbroker_errors_total", count, api_name(key), ErrorCode.of(code).name)
    numbers.add("segbroker_requests_throttled_total", counters.quota_pauses, "quota")
    numbers.add("segbroker_requests_throttled_total", core.ingest.stalls, "disk")
    numbers.add("segbroker_received_bytes_total", counters.received_bytes)
    numbers.add("segbroker_sent_bytes_total", counters.sent_bytes + live_sent_bytes())
    numbers.add("segbroker_produced_bytes_total", counters.produced_bytes)
    numbers.add("segbroker_fetched_bytes_total", counters.fetched_bytes)
    numbers.add("segbroker_lane_reads_total", counters.lane_reads)


def add_waiting(numbers: Numbers, core: Core) -> None:
    """What waits, its limits, and whether the loop did."""
    numbers.add("segbroker_unsynced_bytes", core.ingest.unsynced_bytes)
    numbers.add("segbroker_unsynced_bytes_max", core.config.ingest_bytes_max)
    numbers.add("segbroker_fetch_buffer_bytes", core.pool.lent_bytes)
    numbers.add("segbroker_fetch_buffer_bytes_max", core.config.fetch_buffer_bytes_max)
    requests, answers, members = core.large_requests, core.long_answers, core.groups.room
    for of, held, most in (
        ("large_requests", requests.held_bytes, requests.bytes_max),
        ("long_answers", answers.held_bytes, answers.bytes_max),
        ("group_members", members.size, members.size_max),
    ):
        numbers.add("segbroker_room_bytes", held, of)
        numbers.add("segbroker_room_bytes_max", most, of)
    numbers.add("segbroker_room_waiting", len(requests), "large_requests")
    numbers.add("segbroker_room_waiting", len(answers), "long_answers")
    numbers.add("segbroker_lanes_busy", core.lanes.busy)
    numbers.add("segbroker_lanes", core.config.lanes)
    numbers.add("segbroker_loop_stood_still_total", core.deadlines.stood_still_count)
    numbers.add("segbroker_loop_stood_still_seconds_total", core.deadlines.stood_still_s)
