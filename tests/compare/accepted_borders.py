"""More differences from Apache Kafka 4.3 that are on purpose: of what no usual client sends.

The rules are as those of accepted.py; these are about the cases of cases_codecs.py,
cases_corners.py, cases_fetches.py, cases_kinds.py, cases_sequences.py, cases_settings.py,
cases_time.py and cases_waiting.py.
"""

from typing import Final

from segbroker.protocol.api_keys import ApiKey

from .accepted import Accepted
from .answers import ABSENT, ROW

_GONE_GROUP: Final = "to a member of a group that is gone: UNKNOWN_MEMBER_ID makes it join again"
_GIVES_WAY: Final = "a group that nobody is in and that stands nowhere gives way to another kind"
_ONE_MORE: Final = "Kafka 4.3 counts one epoch more for a group that is new; 4.0 and 4.1 do not"
_OWN_CODE_FAILS: Final = "Kafka's own code fails at an isolation level nobody knows"

AT_THE_BORDERS: Final = (
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.error_code",
        "Kafka's own code fails; INVALID_RECORD is the error for it, and no client sends it again",
        label=r"(snappy|gzip|lz4|zstd)(,| of| and| without) .*",
        theirs=-1,
        ours=87,
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.(error_code|base_offset)",
        "Kafka reads to the last record, and no further: neither what follows nor a sum",
        label=r"snappy, two streams|\w+ and (more|zeros)|lz4 of another sum",
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.(error_code|base_offset)",
        "LZ4 itself lets frames follow each other",
        label="lz4, two frames",
    ),
    Accepted(
        ApiKey.ELECT_LEADERS,
        r"replica_election_results\[.*",
        "a partition is answered once however often it is named: a row outweighs a number",
        label="twice|a topic twice",
    ),
    Accepted(
        ApiKey.LIST_TRANSACTIONS,
        "unknown_state_filters",
        "the order is of a hash table",
        label="a good state and a bad one|in other letters",
    ),
    Accepted(
        ApiKey.DESCRIBE_TRANSACTIONS,
        r"transaction_states\.topics\.partitions",
        "the order is of a hash table",
        label="two topics",
    ),
    Accepted(
        ApiKey.DESCRIBE_TRANSACTIONS,
        r"transaction_states\.transaction_start_time_ms",
        "nothing is open: there is no time since when",
        label="behind an end.*",
        ours=-1,
    ),
    Accepted(ApiKey.LIST_OFFSETS, r"topics\.partitions\..*", _OWN_CODE_FAILS, label="isolation 7"),
    Accepted(
        ApiKey.LIST_OFFSETS,
        r"topics\.partitions\..*",
        "Kafka names a record that is deleted",
        label="emptied, -3",
    ),
    Accepted(
        ApiKey.LIST_OFFSETS,
        r"topics\.partitions\.(offset|leader_epoch)",
        "where no record has a timestamp none has the greatest",
        label="without stamps, -3",
        ours=-1,
    ),
    Accepted(
        ApiKey.FETCH,
        r"responses\.partitions\.records\.batch.*",
        "the first batch of every partition may be larger than the partition's limit",
        label="each (one|no) byte",
    ),
    Accepted(
        ApiKey.FETCH,
        r"responses\.partitions\.records\.batch\.leader_epoch",
        "a topic that was made again goes on in another epoch, which fences who knew the old one",
        label="made again.*|the new one.*|and then|its offset|the old one.*|and at last",
        theirs=0,
        ours=1,
    ),
    Accepted(
        ApiKey.FETCH,
        r"responses\.partitions\.error_code",
        "an id is nobody's once its topic is deleted; a session keeps no names beside it",
        label="deleted.*|made again.*|the new one.*|and then",
        ours=100,
    ),
    Accepted(
        ApiKey.FETCH,
        r"partitions\.error_code",
        "an id is nobody's once its topic is deleted",
        label="deleted",
        theirs=3,
        ours=100,
    ),
    Accepted(
        ApiKey.FETCH,
        "soon",
        "an error is told at once, whatever it is; of a partition that is not there Kafka waits",
        label="one that is not there",
        theirs=False,
        ours=True,
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.error_code",
        "a negative epoch beside a producer id is malformed, not old",
        label="without an epoch|below -1",
        theirs=47,
        ours=87,
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.error_code",
        "its transaction is looked at first: it says what is wrong, a right or a sequence do not",
        label="transactional, nobody's|not transactional, in between",
        ours=48,
    ),
    Accepted(
        ApiKey.JOIN_GROUP,
        "error_code",
        "Kafka's own code fails; the member is unknown",
        label="consumer",
        theirs=-1,
        ours=25,
    ),
    Accepted(ApiKey.JOIN_GROUP, "error_code|member_id", _GIVES_WAY, label="share, empty"),
    Accepted(
        ApiKey.OFFSET_COMMIT, r"topics\.partitions\.error_code", _GIVES_WAY, label="share, empty"
    ),
    Accepted(
        ApiKey.TXN_OFFSET_COMMIT,
        r"topics\.partitions\.error_code",
        _GIVES_WAY,
        label="share, empty",
    ),
    Accepted(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        r"groups\.(group_epoch|assignment_epoch|members\.member_epoch)",
        _ONE_MORE,
        label="consumer(, empty)?",
    ),
    Accepted(ApiKey.CONSUMER_GROUP_HEARTBEAT, "error_code", _GONE_GROUP, theirs=69, ours=25),
    Accepted(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        "member_epoch",
        _ONE_MORE,
        label="offsets|consumer|consumer, empty|none",
    ),
    Accepted(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        "member_epoch",
        "a group counts on when it turns into one of another kind",
        label="classic, empty",
    ),
    Accepted(ApiKey.CONSUMER_GROUP_HEARTBEAT, ".*", _GIVES_WAY, label="(share|streams), empty"),
    Accepted(ApiKey.SHARE_GROUP_HEARTBEAT, ".*", _GIVES_WAY, label="(consumer|streams), empty"),
    Accepted(ApiKey.STREAMS_GROUP_HEARTBEAT, ".*", _GIVES_WAY, label="(consumer|share), empty"),
    Accepted(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        "member_epoch",
        "a group counts on when it turns into one of another kind",
        label="classic, empty",
    ),
    Accepted(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        r"error_code|responses\[.*",
        _GIVES_WAY,
        label="(consumer|streams), empty",
    ),
    Accepted(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        r"groups\[.*\]\.topics\[.*",
        "a partition is told from its first fetch on, not from its assignment",
        label="share(, empty)?",
        theirs=ROW,
        ours=ABSENT,
    ),
    Accepted(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        r"responses\[.*",
        "a partition is told from its first fetch on, not from its assignment",
        label="share, empty",
    ),
)
