"""What groups tell of themselves, as lines of the log: limited as limited_lines.py says.

    {"event": "group_member_removed", "group": "billing", "type": "classic", "generation": 7,
     "members": 2, "reason": "session ended", "member": "app-1b4...", "client_id": "app",
     "host": "10.0.0.7"}

`generation` is that of a classic group, `epoch` that of a KIP-848, share or streams group.  Lines
about what administrators did say who asked instead.
"""

from collections.abc import Collection, Mapping
from typing import Final

from ..limited_lines import LimitedLines
from .group_news import News, Tell

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"
TOPICS_TOLD_MAX: Final = 10
"""Topics that a line names."""
OFFSETS_ALTERED: Final = "group_offsets_altered"
OFFSETS_DELETED: Final = "group_offsets_deleted"


class GroupLines(LimitedLines):
    """Those of one broker."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("group_lines_omitted")

    def of(self, group_id: str, group_type: str) -> Tell:
        """Whom a group tells its news."""
        number = "generation" if group_type == CLASSIC else "epoch"

        def tell(news: News) -> None:
            member_id, instance_id, client_id, host = news.who or (None, None, None, None)
            self.tell(
                news.event,
                group_id,
                group=group_id,
                type=group_type,
                **{number: news.number},
                members=news.members,
                reason=news.reason,
                client_reason=news.said,
                member=member_id,
                instance=instance_id,
                client_id=client_id,
                host=host,
            )

        return tell

    def offsets(
        self, event: str, group_id: str, topics: Collection[str], asker: Mapping[str, str]
    ) -> None:
        """Somebody who is no member has changed where a group stands.  asker: who did."""
        named = ", ".join(sorted(topics)[:TOPICS_TOLD_MAX])
        rest = ", ..." if len(topics) > TOPICS_TOLD_MAX else ""
        self.tell(event, group_id, group=group_id, topics=f"{named}{rest}", **asker)
