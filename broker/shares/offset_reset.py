"""The offset at which a share group begins in a partition that is new to it (share_reset.py)."""

from collections.abc import Sequence

from segbroker.segments.partition.handler import DiskHandler

from ..error_map import STORAGE_FAILURES
from ..groups.group_keys import SHARE_RESET
from ..groups.group_settings import GroupSettings
from ..groups.share_reset import parse_reset
from ..loop.lanes import Lanes


async def first_offsets(
    settings: GroupSettings,
    lanes: Lanes,
    group_id: str,
    handlers: Sequence[DiskHandler],
    now_ms: int,
) -> Sequence[int | Exception]:
    """Where the group's share.auto.offset.reset says, now, in each of these; or one of
    STORAGE_FAILURES."""
    reset = parse_reset(settings.text_in_force(group_id, SHARE_RESET))
    if reset == "earliest":
        return [handler.log_start_offset for handler in handlers]
    if isinstance(reset, int):
        at_ms = max(0, now_ms - reset)
        # Groups have a turn together: a client may have a thousand of them.
        return [await lanes.search("", _from, handler, at_ms) for handler in handlers]
    return [handler.high_watermark for handler in handlers]


def _from(handler: DiskHandler, timestamp_ms: int) -> int | Exception:
    """In a lane: the first record of this time or later, or the end."""
    end = handler.high_watermark  # before: what comes behind it is younger
    try:
        found = handler.offset_for_timestamp(timestamp_ms)
    except STORAGE_FAILURES as exc:
        return exc
    return end if found is None else min(found[0], end)
