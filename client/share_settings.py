"""What can be set on a share consumer, see settings; checked once, before anything is opened."""

from collections.abc import Iterable
from dataclasses import dataclass

from segbroker.protocol.limits import FRAME_SIZE_MAX

from .other_names import check_names
from .settings import MIB, Acquire, AdminOptions, ClientSettings, OnGap, Settings, split_options


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSettings(Settings):
    """What a consumer in a share group has besides.

    explicit: nothing is accepted by going past it: the caller says so of every record.
    acquire: "batches" locks whole batches of about acquire_count records, "records" exactly so
        many, by one broker at a time, which then holds a question for its share of fetch_wait_ms.
    acquire_count, acquire_bytes: how much is locked at a time, of which the caller has nothing yet.
    fetch_wait_ms: how long the broker may hold a question that finds fewer than fetch_min_bytes.
    acknowledge_interval_ms: how long what was said of a record may wait for the next question.
    max_hold_ms: locks are renewed as long as the caller has come back within this; None: always,
        0: never.
    held_count: how many records may be handed out and not acknowledged.
    """

    group_id: str
    explicit: bool = False
    on_gap: OnGap = "raise"
    acquire: Acquire = "batches"
    acquire_count: int = 500
    acquire_bytes: int = 8 * MIB
    fetch_wait_ms: int = 500
    fetch_min_bytes: int = 1
    acknowledge_interval_ms: int = 1_000
    max_hold_ms: int | None = None
    held_count: int = 10_000

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        if not self.group_id:
            raise ValueError(f"group={self.group_id!r} is not the name of a group")
        if self.acquire_bytes > FRAME_SIZE_MAX // 2:
            raise ValueError(f"acquire_bytes={self.acquire_bytes} > {FRAME_SIZE_MAX // 2}")


class ShareOptions(AdminOptions, total=False):
    """What the share consumers' constructors take besides topics and group; see ShareConsumer."""

    acquire: Acquire
    acquire_count: int
    acquire_bytes: int
    fetch_wait_ms: int
    fetch_min_bytes: int
    acknowledge_interval_ms: int
    max_hold_ms: int | None
    held_count: int
    metadata_max_age_ms: int


_NAMED_BY_SHARE_CONSUMER = frozenset({"explicit", "group", "on_failed", "on_gap"})


def share_settings(
    bootstrap: str | Iterable[str],
    group: str,
    on_gap: OnGap,
    options: ShareOptions,
    *,
    explicit: bool,
) -> tuple[ClientSettings, ShareSettings]:
    """The options, sorted and checked.  TypeError for one that does not exist, ValueError."""
    check_names("ShareConsumer", options, ShareOptions.__annotations__, _NAMED_BY_SHARE_CONSUMER)
    client, of_share = split_options(bootstrap, options)
    return client, ShareSettings(group_id=group, explicit=explicit, on_gap=on_gap, **of_share)
