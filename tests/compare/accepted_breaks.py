"""More differences from Apache Kafka 4.3 that are on purpose: behind a restart, or after a while.

The rules are as those of accepted.py; these are about cases_restarts.py and cases_expiry.py.
"""

from typing import Final

from segbroker.protocol.api_keys import ApiKey

from .accepted import Accepted
from .answers import ABSENT, ROW

_REMEMBERS: Final = "the five last batches of a producer are known after a restart; Kafka knows one"
_ONE_EPOCH: Final = "a restart changes no leader: it begins no leader epoch"

OVER_A_BREAK: Final = (
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.error_code",
        _REMEMBERS,
        label="the fifth last again|partly, the first again",
        theirs=45,
        ours=0,
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.base_offset",
        _REMEMBERS,
        label="the fifth last again|partly, the first again",
        theirs=-1,
    ),
    Accepted(
        ApiKey.PRODUCE,
        r"responses\.partition_responses\.(base_offset|log_start_offset)",
        "a producer is known though its records are deleted; Kafka forgets it with a restart",
        label="deleted, .*",
    ),
    Accepted(
        ApiKey.FETCH,
        r"responses\.partitions\.records\.batch.*\.leader_epoch",
        _ONE_EPOCH,
        label=r"isolation \d at \d+|the open one aborted|cut",
        theirs=2,
        ours=0,
    ),
    Accepted(
        ApiKey.LIST_OFFSETS,
        r"topics\.partitions\.leader_epoch",
        _ONE_EPOCH,
        label=r"\w -\d, isolation \d",
        theirs=2,
        ours=0,
    ),
    Accepted(
        ApiKey.LIST_OFFSETS,
        r"topics\.partitions\.(timestamp|offset|leader_epoch)",
        "Kafka names a record that is deleted",
        label=r"[te] -3, isolation \d",
    ),
    Accepted(
        ApiKey.DESCRIBE_TRANSACTIONS,
        r"transaction_states\.transaction_start_time_ms",
        "nothing is open: there is no time since when",
        label="-e",
        ours=-1,
    ),
    Accepted(
        ApiKey.LIST_GROUPS,
        r"groups\[~-share(,-empty)?\]",
        "a share group that nobody read in is forgotten like any other; Kafka keeps it",
        label="left",
        theirs=ROW,
        ours=ABSENT,
    ),
)
