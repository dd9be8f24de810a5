"""More differences from Apache Kafka 4.3 that are on purpose: of all settings, as they are told.

The rules are as those of accepted.py; these are about every_setting_there_is and
lists_of_the_broker in cases_settings.py.
"""

from typing import Final

from segbroker.protocol.api_keys import ApiKey

from .accepted import ANY, Accepted
from .answers import ABSENT, ROW

_ALL: Final = "every setting of .*"
_OF_BROKER: Final = "every setting of the broker.*"
_STARTED_WITH: Final = "Kafka was started with a file that says so"
_OWN_INTERVAL: Final = "the daemons of tests look at ages once a day"
_OTHER_DEFAULT: Final = (
    r"message\.max\.bytes|max\.message\.bytes|(log\.)?segment\.bytes|index\.interval\.bytes"
    r"|(log\.)?message\.timestamp\.after\.max\.ms|group\.(consumer\.|streams\.)?max\.size"
    r"|max\.connections|fetch\.max\.bytes|queued\.max\.request\.bytes|sasl\.enabled\.mechanisms"
    r"|connection\.failed\.authentication\.delay\.ms|group\.initial\.rebalance\.delay\.ms"
    r"|group\.coordinator\.rebalance\.protocols"
    r"|log\.cleaner\.(io\.max\.bytes\.per\.second|dedupe\.buffer\.size)"
)
_AT_START: Final = (
    r"listeners|listener\.security\.protocol\.map|ssl\.client\.auth|ssl\.key\.password"
    r"|ssl\.(key|trust)store\.location"
)
_FROM_FILE: Final = (
    r"listeners|advertised\.listeners|listener\.security\.protocol\.map|num\.partitions|broker\.id"
    r"|group\.initial\.rebalance\.delay\.ms"
)
_NO_SUCH_OF_BROKER: Final = (
    r"local\.retention\.(ms|bytes)|flush\.messages|file\.delete\.delay\.ms|preallocate"
    r"|index\.interval\.bytes|segment\.index\.bytes"
)


def _told(path: str, reason: str, theirs: object, ours: object, keys: str = r"[\w.]+") -> Accepted:
    """A rule about what is told of these keys."""
    where = rf".*configs\[({keys})\]{path}"
    return Accepted(ApiKey.DESCRIBE_CONFIGS, where, reason, _ALL, theirs, ours)


def _value(keys: str, reason: str) -> Accepted:
    """A rule about the values of these keys, whatever they are."""
    where = rf".*configs\[({keys})\]\.(value|synonyms\[\w+\]\.value)"
    return Accepted(ApiKey.DESCRIBE_CONFIGS, where, reason, _ALL)


OF_ALL_SETTINGS: Final = (
    _told("", "every setting is told by our own name too", ABSENT, ROW, r"\w+"),
    _told(
        "",
        "Kafka's authorizer reads it, and its broker does not tell it",
        ABSENT,
        ROW,
        r"super\.users|allow\.everyone\.if\.no\.acl\.found",
    ),
    _told("", "of what there is not here, or without effect here and not set", ROW, ABSENT),
    _told(r"\.read_only", "it can be changed while the broker runs", True, False),
    _told(
        r"\.read_only",
        "it is read at the start; certificates are read again when their files change",
        False,
        True,
        _AT_START,
    ),
    _told(r"\.config_type", "every whole number of the broker is a long", 3, 5),
    _told(r"\.config_type", "bytes per second are a whole number", 6, 5),
    _told(r"\.config_type", "a list of the broker is a text: it is set as a whole", 7, 2),
    _told(r"\.(config_source|synonyms\[\w+\]\.source)", _STARTED_WITH, 4, 5, _FROM_FILE),
    _told(
        r"\.(config_source|synonyms\[\w+\]\.source)",
        _OWN_INTERVAL,
        5,
        4,
        r"log\.retention\.check\.interval\.ms",
    ),
    _value(r"log\.retention\.check\.interval\.ms", _OWN_INTERVAL),
    _told(r"\.synonyms\[1\]", _STARTED_WITH, ROW, ABSENT, _FROM_FILE),
    _told(r"\.synonyms\[0\]", "the default is told as a synonym, as of every setting", ABSENT, ROW),
    _told(
        r"\.synonyms\[0\]\.name",
        "the broker has no setting for all topics: a name that it refuses would mislead",
        theirs=ANY,
        ours=ANY,
        keys=_NO_SUCH_OF_BROKER,
    ),
    Accepted(
        ApiKey.DESCRIBE_CONFIGS,
        r".*configs\[[\w.]+\]\.synonyms\[\w+\]\.name",
        "synonyms of a broker's setting have its name in the configuration file",
        _OF_BROKER,
        ANY,
        ANY,
    ),
    _value(_OTHER_DEFAULT, "another default"),
    _value(r"(advertised\.)?listeners", "where it listens"),
    _value(r"listener\.security\.protocol\.map", _STARTED_WITH),
    _value(
        r"max\.connection\.creation\.rate",
        "0 is no limit; of Kafka's 2147483647 a second nobody is kept waiting either",
    ),
    _told(
        r"\.value",
        "the time in force; Kafka tells it of log.retention.hours and log.roll.hours",
        None,
        "604800000",
        r"log\.(retention|roll)\.ms",
    ),
    _told(
        r"\.value",
        "nothing is set: a configuration file has no null, and the empty text means none",
        None,
        "",
        r"sasl\.oauthbearer\.(jwks\.endpoint\.url|expected\.issuer)|ssl\.(key|trust)store\.location",
    ),
    _told(
        r"\.synonyms\[(0\]\.source|1\])",
        "Kafka 4.1 sets it for every cluster (KIP-966); here is one replica",
        ANY,
        ANY,
        r"min\.insync\.replicas",
    ),
    Accepted(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        r"responses\.error_code",
        "Kafka keeps what nobody reads; here a setting that there is not is a slip",
        label="(an unknown key|a key of topics) 1?",
        theirs=0,
        ours=42,
    ),
)
