"""The questions of one share session: what one broker has locked for this member, and what it asks.

    epoch 0     a new session: all partitions are named, nothing can be acknowledged
    1, 2 ...    what came and went is named, and what is acknowledged
    -1          the last one: what is not acknowledged is free again

A session lives as long as its connection: where that breaks, the broker gives everything back.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias
from uuid import UUID

from segbroker.protocol.messages_share_groups import (
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchRequestForgottenTopic,
    ShareRequestPartition,
    ShareRequestTopic,
)

from .acknowledging import Kind, batches_of
from .records import grouped
from .share_settings import ShareSettings

FINAL_EPOCH: Final = -1
_EPOCH_MAX = (1 << 31) - 1
_MODES = {"batches": 0, "records": 1}

Key: TypeAlias = tuple[UUID, int]
Said: TypeAlias = Mapping[Key, dict[int, Kind]]


class ShareSession:
    """See the module."""

    def __init__(self, settings: ShareSettings, member_id: str) -> None:
        self.epoch = 0
        self._settings = settings
        self._member_id = member_id
        # What the broker knows to be fetched.
        self._known: dict[Key, None] = {}

    def begin_anew(self) -> None:
        self.epoch = 0
        self._known = {}

    def answered(self) -> None:
        """The broker has gone on with it."""
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def fetch(self, wanted: Iterable[Key], said: Said, *, wait_ms: int) -> ShareFetchRequest:
        """Ask for records of these, and only these, partitions.

        Args:
            said: what is acknowledged along the way, of wanted partitions.
            wait_ms: how long the broker may hold it.
        """
        settings = self._settings
        now = dict.fromkeys(wanted)
        forgotten = [key for key in self._known if key not in now]
        named = [key for key in now if key not in self._known or key in said]
        self._known = now
        return ShareFetchRequest(
            group_id=settings.group_id,
            member_id=self._member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.acquire_bytes,
            max_records=settings.acquire_count,
            batch_size=settings.acquire_count,
            share_acquire_mode=_MODES[settings.acquire],
            topics=_topics(named, said),
            forgotten_topics_data=[
                ShareFetchRequestForgottenTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in grouped(forgotten).items()
            ],
        )

    def acknowledge(
        self, said: Said, *, is_renewal: bool = False, is_final: bool = False
    ) -> ShareAcknowledgeRequest:
        """Say what became of records; `is_final`: and end the session."""
        return ShareAcknowledgeRequest(
            group_id=self._settings.group_id,
            member_id=self._member_id,
            share_session_epoch=FINAL_EPOCH if is_final else self.epoch,
            is_renew_ack=is_renewal,
            topics=_topics(said, said),
        )


def _topics(named: Iterable[Key], said: Said) -> list[ShareRequestTopic]:
    return [
        ShareRequestTopic(
            topic_id=topic_id,
            partitions=[
                ShareRequestPartition(
                    partition_index=partition,
                    acknowledgement_batches=batches_of(said.get((topic_id, partition), {})),
                )
                for partition in partitions
            ],
        )
        for topic_id, partitions in grouped(named).items()
    ]
