"""The offset at which a share group begins in a partition that is new to it (share_reset.py)."""

from segbroker.segments.partition.handler import DiskHandler

from ..groups.group_keys import SHARE_RESET
from ..groups.group_settings import GroupSettings
from ..groups.share_reset import parse_reset
from ..loop.lanes import Lanes


async def first_offset(
    settings: GroupSettings, lanes: Lanes, group_id: str, handler: DiskHandler, now_ms: int
) -> int:
    """Where the group's share.auto.offset.reset says, now.  Raises StorageError."""
    reset = parse_reset(settings.text_in_force(group_id, SHARE_RESET))
    if reset == "earliest":
        return handler.log_start_offset
    if isinstance(reset, int):
        found = await lanes.run(handler.offset_for_timestamp, max(0, now_ms - reset))
        if found is not None:
            return min(found[0], handler.high_watermark)
    return handler.high_watermark
