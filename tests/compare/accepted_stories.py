"""More differences from Apache Kafka 4.3 that are on purpose: in stories drawn at random.

The rules are as those of accepted.py; the label of what a story asks is always the same.  A story
ends where one broker has done what the other has refused.
"""

from typing import Final

from segbroker.protocol.api_keys import ApiKey

from .accepted import Accepted
from .answers import ABSENT, ROW

LABEL: Final = "a story"

IN_STORIES: Final = (
    Accepted(
        ApiKey.JOIN_GROUP,
        "error_code",
        "an id that nobody was given is nobody's, in groups of both protocols",
        label=LABEL,
        theirs=0,
        ours=25,
    ),
    Accepted(
        ApiKey.FETCH,
        r"responses\[.*\]\.partitions\[.*\]\.aborted_transactions\[\d+\]",
        "Kafka also names transactions that begin behind what it sends",
        label=LABEL,
        theirs=ROW,
        ours=ABSENT,
    ),
    Accepted(
        ApiKey.LEAVE_GROUP,
        r"(members\.)?error_code",
        "an id that was given is known also once the group speaks another protocol",
        label=LABEL,
        theirs=25,
        ours=0,
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.error_code",
        "a negative epoch beside a producer id is malformed, not old",
        label=LABEL,
        theirs=47,
        ours=87,
    ),
    Accepted(
        ApiKey.DESCRIBE_GROUPS,
        r"groups\.members\.member_assignment",
        "a member has what it was told last, also behind a round that nobody dealt out",
        label=LABEL,
        theirs=b"",
    ),
    Accepted(
        ApiKey.END_TXN,
        "error_code",
        "Kafka takes the producer that was fenced for the present one, one epoch ago",
        label=LABEL,
        theirs=0,
        ours=90,
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.error_code",
        "of wrong acks and a wrong producer: either may be said",
        label=LABEL,
        theirs=47,
        ours=21,
    ),
    *(
        Accepted(
            ApiKey.CREATE_TOPICS,
            rf"topics\[~t\d\]\.configs\[{setting}\]\.value",
            "a setting is told as it is in force (decision 0231), not as it was written",
            label=LABEL,
            theirs=written,
            ours=in_force,
        )
        for setting, written, in_force in (
            (r"unclean\.leader\.election\.enable", "TRUE", "true"),
            (r"unclean\.leader\.election\.enable", " false ", "false"),
            (r"min\.cleanable\.dirty\.ratio", "1", "1.0"),
            (r"cleanup\.policy", "delete,delete", "delete"),
        )
    ),
    Accepted(
        ApiKey.END_TXN,
        "error_code",
        "as in version 1; Kafka Streams goes on behind PRODUCER_FENCED (decision 0205)",
        label=LABEL,
        theirs=48,
        ours=90,
    ),
    Accepted(
        ApiKey.DESCRIBE_CONFIGS,
        r"results\[.*\]\.configs\[(segment|retention)\.ms\]\.synonyms\[0\]",
        "the default is told as a synonym; Kafka's setting for it is not set where hours are",
        label=LABEL,
        theirs=ABSENT,
        ours=ROW,
    ),
    Accepted(
        ApiKey.FETCH,
        r"responses\.partitions\.aborted_transactions",
        "none, or null, beside an error; clients look at neither",
        label=LABEL,
        theirs=None,
        ours="(rows)",
    ),
    Accepted(
        ApiKey.DESCRIBE_TRANSACTIONS,
        r"transaction_states\.transaction_start_time_ms",
        "nothing is open: there is no time since when",
        label=LABEL,
        ours=-1,
    ),
    Accepted(
        ApiKey.JOIN_GROUP,
        "error_code",
        "what a member offered before, it offers no more: that is not in common with anybody",
        label=LABEL,
        theirs=23,
        ours=0,
    ),
    Accepted(
        ApiKey.DESCRIBE_TRANSACTIONS,
        r"transaction_states\[.*\]\.topics\[__consumer_offsets\]",
        "offsets are not kept in a topic (decision 0149)",
        label=LABEL,
        theirs=ROW,
        ours=ABSENT,
    ),
    *(
        Accepted(
            key,
            r"topics\.partitions\.error_code",
            "to a member of a group that is gone: UNKNOWN_MEMBER_ID makes every client join again",
            label=LABEL,
            theirs=theirs,
            ours=25,
        )
        for key in (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT)
        for theirs in (22, 69)
    ),
    Accepted(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        "error_code",
        "Kafka's own code fails; a group that cannot turn stays what it is",
        label=LABEL,
        theirs=-1,
        ours=69,
    ),
    *(
        Accepted(
            key,
            r"responses\.error_code",
            "a setting of a topic that there is not, and a wrong one: either may be said",
            label=LABEL,
            theirs=theirs,
            ours=3,
        )
        for key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
        for theirs in (40, 42)
    ),
    *(
        Accepted(
            key,
            r"topics\.partitions\.error_code",
            "who has lost its place to another is told so, in groups of both protocols",
            label=LABEL,
            theirs=25,
            ours=82,
        )
        for key in (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT)
    ),
    Accepted(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        r"topics\.topic_authorized_operations",
        "nobody may do anything to a topic that is not there",
        label=LABEL,
        theirs=3576,
        ours=-2147483648,
    ),
    Accepted(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        "error_code",
        "to a member of a group that is gone: UNKNOWN_MEMBER_ID makes every client join again",
        label=LABEL,
        theirs=69,
        ours=25,
    ),
    Accepted(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        r"groups\[.*\]\.topics\[~t\d\](\.partitions\[\d\])?",
        "a partition is told from its first fetch on, not from its assignment",
        label=LABEL,
        theirs=ROW,
        ours=ABSENT,
    ),
    Accepted(
        ApiKey.SHARE_ACKNOWLEDGE,
        r"responses\.partitions\.error_code",
        "of a partition that is there: nothing of it was handed out",
        label=LABEL,
        theirs=3,
        ours=121,
    ),
    Accepted(
        ApiKey.SHARE_FETCH,
        r"responses\.partitions\.records\.batches",
        "who asks for few is given whole batches as they were written; Kafka as they were taken",
        label=LABEL,
    ),
    Accepted(
        ApiKey.JOIN_GROUP,
        "member_id",
        "who is sent away while it waits is told who it was; clients look at the error alone",
        label=LABEL,
        theirs="",
        ours="<somebody>",
    ),
    Accepted(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        "status",
        "Kafka forgets that it is to end what was asked to by the heartbeat that made the group",
        label=LABEL,
        theirs=ABSENT,
        ours=ROW,
    ),
    Accepted(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        "error_code",
        "to a member of a group that is gone: UNKNOWN_MEMBER_ID makes every client join again",
        label=LABEL,
        theirs=69,
        ours=25,
    ),
    Accepted(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        "error_code",
        "who has said a newer epoch has been told it; Kafka also takes the one before",
        label=LABEL,
        theirs=0,
        ours=110,
    ),
    Accepted(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        r"(active|standby)_tasks",
        "who has other tasks than it was given is told them again",
        label=LABEL,
        theirs=None,
        ours="(rows)",
    ),
    Accepted(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        r"groups\.topics\.partitions\.(start_offset|lag)",
        "Kafka writes it down a write later",
        label=LABEL,
        theirs=-1,
    ),
    *(
        Accepted(
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            r"groups\.topics\.partitions\.lag",
            "who begins behind the end of a partition is not behind it; in Kafka by less than none",
            label=LABEL,
            theirs=lag,
            ours=0,
        )
        for lag in range(-9, -1)
    ),
)
