"""The differences from Apache Kafka 4.3 that are on purpose, each with its reason.

Every other difference is an error of the run; a rule that nothing needed any more is told.
"""

from dataclasses import dataclass
from typing import Final

from segbroker.protocol.api_keys import ApiKey

from .answers import ABSENT, ROW

ANY: Final = object()


@dataclass(frozen=True)
class Accepted:
    """A difference that is on purpose.

    Attributes:
        key: the api.
        path: regular expression for the path, with or without what tells rows apart.
        reason: why segbroker does otherwise.
        label: regular expression for the request's label.
        theirs: Apache Kafka's value, ANY for every one.
        ours: segbroker's.
    """

    key: ApiKey
    path: str
    reason: str
    label: str = ".*"
    theirs: object = ANY
    ours: object = ANY


_OWN: Final = (
    r"durability|on\.corruption|retention\.full\.policy|retention\.records|segment\.records"
)
_OTHER_DEFAULT: Final = (
    r"index\.interval\.bytes|max\.message\.bytes|segment\.bytes|message\.timestamp\.after\.max\.ms"
)


def _settings(key: ApiKey) -> tuple[Accepted, ...]:
    return (
        Accepted(key, rf".*configs\[({_OWN})\]", "segbroker's own", theirs=ABSENT, ours=ROW),
        Accepted(key, rf".*configs\[({_OTHER_DEFAULT})\]\.value", "another default"),
        Accepted(
            key,
            r".*configs\[min\.insync\.replicas\]\.config_source",
            "Kafka 4.1 sets it for every cluster (KIP-966); here is one replica",
            theirs=3,
            ours=5,
        ),
    )


ACCEPTED: Final = (
    Accepted(
        ApiKey.WRITE_TXN_MARKERS,
        r"markers\.topics\.partitions\.error_code",
        "Kafka's own code fails; an epoch below 0 is below that of the producer",
        label="older epoch",
        theirs=-1,
        ours=47,
    ),
    *_settings(ApiKey.CREATE_TOPICS),
    *_settings(ApiKey.DESCRIBE_CONFIGS),
    Accepted(
        ApiKey.DESCRIBE_CONFIGS,
        r".*configs\[(num\.partitions|auto\.create\.topics\.enable)\]\.read_only",
        "these can be changed while the broker runs",
        theirs=True,
        ours=False,
    ),
    Accepted(
        ApiKey.DESCRIBE_CONFIGS,
        r".*configs\[max\.message\.bytes\]\.synonyms\[1\]\.value",
        "another default",
        label="max.message.bytes set, with synonyms",
        theirs="1048588",
        ours="1048576",
    ),
    Accepted(
        ApiKey.DESCRIBE_QUORUM,
        r"nodes\[1\]\.listeners\[CONTROLLER\]",
        "the keeper of the metadata has no listener of its own: it is reached as the broker is",
        theirs=ROW,
        ours=ABSENT,
    ),
    Accepted(
        ApiKey.DESCRIBE_QUORUM,
        r"nodes\[1\]\.listeners\[PLAINTEXT\]",
        "the keeper of the metadata has no listener of its own: it is reached as the broker is",
        theirs=ABSENT,
        ours=ROW,
    ),
    Accepted(
        ApiKey.API_VERSIONS,
        r"supported_features\[(metadata|transaction)\.version\]\.min_version",
        "what cannot be lowered is not said to have lower levels",
        label="good",
    ),
    Accepted(
        ApiKey.API_VERSIONS,
        r"supported_features\[transaction\.version\]",
        "what does not begin with 0 is told in version 3, too",
        label="good",
        theirs=ABSENT,
        ours=ROW,
    ),
    Accepted(
        ApiKey.API_VERSIONS,
        r"(supported|finalized)_features\[(kraft|eligible\.leader\.replicas)\.version\]",
        "agreements of a cluster's controllers and replicas",
        label="good",
        theirs=ROW,
        ours=ABSENT,
    ),
    Accepted(
        ApiKey.API_VERSIONS,
        "finalized_features_epoch",
        "levels are fixed: there is one epoch of them",
        ours=0,
    ),
    Accepted(
        ApiKey.API_VERSIONS,
        r"(supported|finalized)_features.*",
        "who gives a name that is none is told what there is all the same",
        label="software .*",
        theirs=ABSENT,
        ours=ROW,
    ),
    Accepted(
        ApiKey.UPDATE_FEATURES,
        r"error_code|results\[\d\]",
        "a protocol is switched off by a setting, at the start",
        label="tried, off",
    ),
    Accepted(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        r"responses\.error_code",
        "Kafka's own code fails; the request is invalid",
        label="an operation that is not there",
        theirs=-1,
        ours=42,
    ),
    Accepted(
        ApiKey.DESCRIBE_GROUPS,
        r"groups\.(error_code|group_state|protocol_type|members.*)",
        "Kafka may not have written its record of a group that just began; then it is Dead",
        label="between join and sync",
    ),
    Accepted(
        ApiKey.OFFSET_COMMIT,
        r"topics\.partitions\.error_code",
        "to a member of a group that is gone: UNKNOWN_MEMBER_ID makes every client join again",
        label="(a|no) member, a generation",
        ours=25,
    ),
    Accepted(
        ApiKey.END_TXN,
        r"error_code",
        "as in version 1; Kafka Streams goes on behind PRODUCER_FENCED (decision 0205)",
        label="commit of what the broker aborted",
        theirs=48,
        ours=90,
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.error_code",
        "of a magic that nobody knows, UNSUPPORTED_FOR_MESSAGE_FORMAT says more than a checksum",
        label="magic 3",
        theirs=2,
        ours=43,
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.error_code",
        "an old message set is one in every version of the request",
        label="magic 1",
        theirs=87,
        ours=43,
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.(error_code|base_offset)",
        "the broker writes the base offset, whatever it was",
        label="base offset 99",
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.(error_code|base_offset|log_start_offset)",
        "Kafka drops what begins behind the batch; here somebody counted wrong",
        label="and a byte|and half a batch",
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.(error_code|base_offset|log_start_offset)",
        "records go to readers as they came, so they are checked as readers would",
        label="offset delta 1|a key of -2 bytes",
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.error_code",
        "Kafka's own code fails; UNSUPPORTED_COMPRESSION_TYPE is the error for it",
        label="unknown codec",
        theirs=-1,
        ours=76,
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.error_code",
        "Kafka's own code fails; INVALID_RECORD is the error for it, and no client sends it again",
        label=r"\w+ by broken .*",
        theirs=-1,
        ours=87,
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.(error_code|base_offset)",
        "what nothing asks for the records of is not opened (decision 0002)",
        label="gzip by broken GZIP",
    ),
    Accepted(
        ApiKey.FETCH,
        r"responses\.partitions\.records\.batch.*\.batch_length",
        "the same codec by another library",
        label="snappy|zstd",
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.(error_code|base_offset)",
        "the bit is the broker's to set: with it, all records would show one time",
        label="broker's timestamp type|good after all",
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.log_start_offset",
        "of a refused batch it is not said where the log starts; nobody asks",
        theirs=0,
        ours=-1,
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.log_append_time_ms",
        "also a duplicate has its own times, so long as the topic does not stamp",
        label=".* again",
        ours=-1,
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.error_code",
        "a negative epoch beside a producer id is malformed, not old",
        label="negative epoch",
        theirs=47,
        ours=87,
    ),
    Accepted(
        ApiKey.FETCH,
        r"responses\.partitions\.(high_watermark|last_stable_offset|log_start_offset)",
        "an error says between which offsets there are records: our client tells its user",
        theirs=-1,
    ),
    Accepted(
        ApiKey.FETCH,
        r"responses\.partitions\.current_leader.*",
        "a follower is not told who leads; there is one broker",
        label="replica .*",
    ),
    Accepted(
        ApiKey.FETCH,
        r"responses\.partitions\.aborted_transactions",
        "null beside an error; clients look at neither",
        theirs="(rows)",
        ours=None,
    ),
    Accepted(
        ApiKey.FETCH,
        r"error_code|responses\.partitions\.(error_code|aborted_transactions|records.*)",
        "Kafka's own code fails at an isolation level nobody knows; here it is read_uncommitted",
        label="isolation 7",
    ),
    Accepted(
        ApiKey.FETCH,
        r"responses\[\]",
        "by topic id Kafka leaves the topic out when its own code fails",
        label="isolation 7",
    ),
    Accepted(
        ApiKey.DESCRIBE_CONFIGS,
        r"results\.configs\.config_source",
        "Kafka was started with a file that says so",
        label="(num.partitions|broker.id) of the broker",
        theirs=4,
        ours=5,
    ),
    Accepted(
        ApiKey.DESCRIBE_CONFIGS,
        r"results\.configs\.config_type",
        "every whole number of the broker is a long",
        label="(num.partitions|broker.id) of the broker",
        theirs=3,
        ours=5,
    ),
    Accepted(
        ApiKey.DESCRIBE_CONFIGS,
        r".*synonyms\[1\]",
        "the default is told as a synonym, as Kafka tells it of a setting that its file sets",
        theirs=ABSENT,
        ours=ROW,
    ),
    Accepted(
        ApiKey.DESCRIBE_CONFIGS,
        r"results\.configs\.(value|documentation)",
        "from which level on is logged; documentation nobody asked for is null",
        label="the root logger.*",
    ),
    Accepted(
        ApiKey.DESCRIBE_CONFIGS,
        r"results\.error_code|.*configs\[(interval\.ms|match|metrics)\]",
        "no metrics of clients are taken (KIP-714): nothing could be set",
        label="metrics of clients",
    ),
    Accepted(
        ApiKey.DESCRIBE_CLUSTER,
        r"endpoint_type",
        "beside an error it says what was asked for",
        label="controllers|endpoint 9",
        theirs=1,
    ),
    Accepted(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        r"topics\.topic_authorized_operations",
        "nobody may do anything to a topic that is not there",
        label="of a topic that is not there|of a name that is none",
    ),
    Accepted(
        ApiKey.HEARTBEAT,
        r"error_code",
        "a static member that is away keeps its place for its session",
        label="dealt out|not dealt out",
        theirs=25,
        ours=22,
    ),
    Accepted(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        r"error_code",
        "to a member of a group that is gone: UNKNOWN_MEMBER_ID makes every client join again",
        label="unknown member",
        theirs=69,
        ours=25,
    ),
    Accepted(
        ApiKey.END_TXN,
        r"error_code",
        "Kafka answers a commit before its markers are written, and is busy for a moment",
        label="(commit again|abort after the commit)",
        theirs=51,
    ),
    Accepted(
        ApiKey.LIST_OFFSETS,
        r"topics.*\.partitions.*",
        "the marker of a transaction is no record: no search by time finds one",
        label="(between the records and a marker|greatest, with a marker behind)",
    ),
    Accepted(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        r"member_epoch",
        "Kafka 4.3 counts one epoch more for a group that is new; 4.0 and 4.1 begin with 1",
        label="joins|beats",
        theirs=2,
        ours=1,
    ),
    *(
        Accepted(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            rf"groups\.members\.{field}",
            "who joins says everything: what it leaves out is not as in its last life",
            label="of who came back by names",
            theirs=theirs,
            ours=ours,
        )
        for field, theirs, ours in (
            ("rack_id", "r", None),
            ("subscribed_topic_regex", "none.*", ""),
        )
    ),
    Accepted(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        r"error_code",
        "to a member of a group that is gone: UNKNOWN_MEMBER_ID makes every client join again",
        label="unknown member of no group|leaves what is not there",
        theirs=69,
        ours=25,
    ),
    Accepted(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        r"error_code",
        "to a member of a group that is gone: UNKNOWN_MEMBER_ID makes every client join again",
        label="unknown member of no group|leaves what is not there|a beat",
        theirs=69,
        ours=25,
    ),
    Accepted(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        r"error_code",
        "Kafka's own code fails; the topology is invalid",
        label="out of range|twice",
        theirs=-1,
        ours=130,
    ),
    Accepted(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        r"status\.status_detail",
        "the names are in order",
        label="internal",
    ),
    Accepted(
        ApiKey.SHARE_FETCH,
        r"responses\.partitions\.acquired_records(\.last_offset)?",
        "neighbours that were delivered as often are one row, whatever batch they are of",
        label="three",
    ),
    Accepted(
        ApiKey.SHARE_FETCH,
        r"error_code|acquisition_lock_timeout_ms|responses\[\d\]",
        "Kafka's own code fails; an unknown mode is the usual one, an unknown topic has its error",
        label="a mode that there is not|acknowledged nowhere|begins with an unknown topic",
    ),
    Accepted(
        ApiKey.SHARE_FETCH,
        r"responses\.partitions\.acknowledge_error_code",
        "of a partition that is there: nothing of it was handed out",
        label="acknowledged before acquired",
        theirs=3,
        ours=121,
    ),
    Accepted(
        ApiKey.SHARE_FETCH,
        r"responses\.partitions\.current_leader\..*",
        "no leader is told: some clients go to any that is, beside an error",
        theirs=0,
        ours=-1,
    ),
    Accepted(
        ApiKey.SHARE_ACKNOWLEDGE,
        r"responses\.partitions\.current_leader\..*",
        "no leader is told: some clients go to any that is, beside an error",
        theirs=0,
        ours=-1,
    ),
    Accepted(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        r"responses\.partitions\.error_code",
        "no group can begin below 0",
        label="below the beginning",
        theirs=0,
        ours=42,
    ),
)
