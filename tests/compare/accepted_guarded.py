"""More differences from Apache Kafka 4.3 that are on purpose: where access rules are in force.

The rules are as those of accepted.py; these are about the cases of cases_acls.py and
cases_rules*.py, whose labels are the names of users.
"""

from typing import Final

from segbroker.protocol.api_keys import ApiKey

from .accepted import Accepted
from .answers import ABSENT, ROW

_USER: Final = "nothing|all|only-.*|all-but-.*"
_CLOSES: Final = "Kafka closes the connection, which says less than INVALID_REQUEST"
_SAYS_NOTHING: Final = "a filter of a kind that there is not finds nothing; INVALID_REQUEST says so"
_NOT_THERE: Final = "nobody may do anything to a topic that is not there"
_LATER: Final = "Kafka assigns in a later answer"
_ONE_MORE: Final = "Kafka 4.3 counts one epoch more for a group that is new; 4.0 and 4.1 do not"

WHERE_GUARDED: Final = (
    *(
        Accepted(key, ".*", _CLOSES, label=label)
        for key in (ApiKey.DESCRIBE_ACLS, ApiKey.DELETE_ACLS, ApiKey.CREATE_ACLS)
        for label in (
            "an unknown .*|a good one and a wrong one"
            if key is not ApiKey.CREATE_ACLS
            else r"\w+ 0|two",
        )
    ),
    Accepted(ApiKey.DESCRIBE_ACLS, "error_code", _SAYS_NOTHING, label="an? .*", theirs=0, ours=42),
    Accepted(
        ApiKey.CREATE_ACLS,
        r"results\.error_code",
        "Kafka's own code fails; the rule is invalid",
        label=r"\w+ \d+",
        theirs=-1,
        ours=42,
    ),
    Accepted(
        ApiKey.CREATE_ACLS,
        r"results\.error_code",
        "a rule for no user, or from no host, never matches",
        label="no host|an empty kind of principal|an empty user",
        theirs=0,
        ours=42,
    ),
    Accepted(
        ApiKey.FETCH,
        r"responses\.partitions\.current_leader.*",
        "a follower is not told who leads; there is one broker",
        label=_USER,
    ),
    Accepted(
        ApiKey.METADATA,
        r"topics\[~-nowhere\]\.topic_authorized_operations",
        _NOT_THERE,
        label=_USER,
    ),
    Accepted(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        r"topics\[~-nowhere\]\.topic_authorized_operations",
        _NOT_THERE,
        label=_USER,
    ),
    Accepted(
        ApiKey.METADATA,
        r"topics\[~-(all|only)[\w-]*\]\.error_code",
        "a topic that is made by being asked for is there with the answer",
        label=_USER,
        theirs=3,
        ours=0,
    ),
    Accepted(
        ApiKey.METADATA,
        r"topics\[~-(all|only)[\w-]*\]\.partitions\[\d\]",
        "a topic that is made by being asked for is there with the answer",
        label=_USER,
        theirs=ABSENT,
        ours=ROW,
    ),
    Accepted(
        ApiKey.DELETE_TOPICS,
        r"responses\.(error_code|name)",
        "a right to the whole cluster deletes no topic (decision 0236)",
        label="all-but-topic-delete|only-cluster-all",
    ),
    Accepted(
        ApiKey.DELETE_TOPICS,
        "responses.error_code",
        "of a topic without a name a right to the whole cluster shows nothing (decision 0236)",
        label="all",
        theirs=3,
        ours=29,
    ),
    Accepted(
        ApiKey.DESCRIBE_PRODUCERS,
        "topics.partitions.error_code",
        "who may not read a topic is not told that its name is none",
        label="nothing|all",
        theirs=17,
        ours=29,
    ),
    Accepted(
        ApiKey.DELETE_TOPICS,
        r"responses\[(\d|~-twice|~-missing)\]",
        "who may not delete a topic is told so, however often it is named",
        label=_USER,
    ),
    Accepted(
        ApiKey.DELETE_RECORDS,
        r"topics\[(\d|~-twice|~-missing)\]",
        "a topic is answered as often as it is named",
        label=_USER,
    ),
    Accepted(
        ApiKey.DELETE_GROUPS,
        r"results\[(\d|~-twice)\]",
        "a group is answered as often as it is named",
        label=_USER,
    ),
    *(
        Accepted(
            key,
            r"groups\[(\d|~-twice)\]",
            "what is described twice is answered once: an answer is many times the question",
            label=_USER,
        )
        for key in (ApiKey.DESCRIBE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE)
    ),
    Accepted(
        ApiKey.ALTER_CONFIGS,
        r"responses\[8 1\]\.error_code",
        "this request alters no logger, and who may alter nothing is told only that",
        label=_USER,
        theirs=42,
        ours=31,
    ),
    Accepted(
        ApiKey.DESCRIBE_QUORUM,
        r"nodes\[1\]\.listeners\[SASL_PLAINTEXT\]",
        "the keeper of the metadata has no listener of its own: it is reached as the broker is",
        theirs=ABSENT,
        ours=ROW,
    ),
    Accepted(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        r"results\[\]",
        "beside the code of the whole answer, a row without a name tells nothing",
        label=_USER,
        theirs=ROW,
        ours=ABSENT,
    ),
    Accepted(
        ApiKey.FIND_COORDINATOR,
        r"coordinators\[(~:.*|nonsense)\].*",
        "who keeps the state of a share group only brokers ask",
        label=_USER,
    ),
    Accepted(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, "member_epoch", _ONE_MORE, label=_USER, theirs=2, ours=1
    ),
    Accepted(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        r"assignment\.topic_partitions\[0\]",
        _LATER,
        label=_USER,
        theirs=ABSENT,
        ours=ROW,
    ),
    Accepted(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        r"groups\.(group_epoch|assignment_epoch|members\.member_epoch)",
        _ONE_MORE,
        label=_USER,
        theirs=2,
        ours=1,
    ),
    Accepted(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        r"assignment\.topic_partitions\[0\]",
        _LATER,
        label=_USER,
        theirs=ABSENT,
        ours=ROW,
    ),
    Accepted(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        r"status\.status_detail",
        "the names are in order",
        label=_USER,
    ),
    Accepted(
        ApiKey.DESCRIBE_TRANSACTIONS,
        r"transaction_states\.(producer_id|producer_epoch)",
        "0 may be somebody's id; -1 is nobody's",
        label=_USER,
        ours=-1,
    ),
)
