"""What is not compared, and how a rule of the files accepted*.py is found.

NORMALISED fields have a value that only its broker can know: both sides must have the field, what
is in it is not looked at.
"""

import re
from dataclasses import dataclass
from typing import Final

from segbroker.protocol.api_keys import ApiKey

from . import accepted
from .accepted import ANY, Accepted
from .accepted_borders import AT_THE_BORDERS
from .accepted_breaks import OVER_A_BREAK
from .accepted_guarded import WHERE_GUARDED
from .accepted_settings import OF_ALL_SETTINGS
from .accepted_stories import IN_STORIES
from .answers import Difference, Fields


@dataclass(frozen=True)
class Normalised:
    """Fields whose value is not compared.

    Attributes:
        path: regular expression for the whole path, without the positions in lists.
        reason: why.
        key: the api, None for every one.
    """

    path: str
    reason: str
    key: ApiKey | None = None


ACCEPTED: Final = (
    *accepted.ACCEPTED,
    *AT_THE_BORDERS,
    *OF_ALL_SETTINGS,
    *WHERE_GUARDED,
    *OVER_A_BREAK,
    *IN_STORIES,
)

NORMALISED: Final = (
    Normalised(r".*throttle_time_ms", "how busy the broker is"),
    Normalised(r".*\b(host|port|node_endpoints.*)", "where it listens"),
    Normalised(r"(.*\.)?cluster_id", "every cluster has its own"),
    Normalised(r"(.*\.)?topic_id", "drawn at random"),
    Normalised(r".*error_message", "a sentence for people"),
    Normalised(r"(.*\.)?(member_id|leader)", "drawn at random", ApiKey.JOIN_GROUP),
    Normalised(r"(.*\.)?member_id", "drawn at random", ApiKey.DESCRIBE_GROUPS),
    Normalised(r"(.*\.)?member_id", "drawn at random", ApiKey.LEAVE_GROUP),
    Normalised(r"member_id", "drawn at random", ApiKey.CONSUMER_GROUP_HEARTBEAT),
    Normalised(
        r"member_epoch",
        "how often members were assigned anew until all was known",
        ApiKey.SHARE_GROUP_HEARTBEAT,
    ),
    Normalised(
        r"groups\.(group_epoch|assignment_epoch|members\.member_epoch)",
        "how often members were assigned anew until all was known",
        ApiKey.SHARE_GROUP_DESCRIBE,
    ),
    Normalised(
        r"groups\.topics\.partitions\.start_offset",
        "Kafka writes it down a write later; the lag says how much is done",
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ),
    Normalised(r"(.*\.)?producer_id", "given in turn"),
    Normalised(r"session_id", "given in turn", ApiKey.FETCH),
    Normalised(r".*log_append_time_ms|.*last_timestamp|.*transaction_start_time_ms", "the time"),
    Normalised(r".*\.crc", "covers the fields that are compared one by one"),
    Normalised(
        r"topics\.partitions\.(leader_epoch|high_watermark|current_voters\..*)|nodes\..*\.name",
        "how much of metadata there is, and where its keeper listens",
        ApiKey.DESCRIBE_QUORUM,
    ),
    Normalised(r"results\.(log_dir|total_bytes|usable_bytes)", "its own disk"),
    Normalised(r".*documentation", "a sentence for people"),
)


def normalised(key: ApiKey, fields: Fields) -> Fields:
    """The fields with what is not compared made alike; throttle_time_ms is left out."""
    rules = [re.compile(rule.path) for rule in NORMALISED if rule.key in (None, key)]
    made: Fields = {}
    for path, value in fields.items():
        if any(rule.fullmatch(bare(path)) for rule in rules):
            # Null, empty and the number for "none" stay what they are.
            made[path] = value if value in (None, "", -1) and "error" not in path else "*"
        else:
            made[path] = value
    return made


def acceptance(key: ApiKey, label: str, difference: Difference) -> Accepted | None:
    """The rule by which a difference is on purpose."""
    for rule in ACCEPTED:
        if (
            rule.key == key
            and (
                re.fullmatch(rule.path, bare(difference.path))
                or re.fullmatch(rule.path, difference.path)
            )
            and re.fullmatch(rule.label, label)
            and rule.theirs in (ANY, difference.theirs)
            and rule.ours in (ANY, difference.ours)
        ):
            return rule
    return None


def bare(path: str) -> str:
    """A path without what tells the rows of its lists apart."""
    return re.sub(r"\[[^\]]*\]", "", path)


__all__ = ["ACCEPTED", "NORMALISED", "acceptance", "bare", "normalised"]
