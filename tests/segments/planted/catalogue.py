"""All planted bugs."""

from .catalogue_cleaning import CLEANING_BUGS
from .catalogue_log import LOG_BUGS
from .catalogue_producers import PRODUCER_BUGS
from .catalogue_recovery import RECOVERY_BUGS
from .catalogue_shares import SHARE_BUGS
from .catalogue_wal import WAL_BUGS
from .planting import Bug

BUGS: tuple[Bug, ...] = (
    *LOG_BUGS,
    *WAL_BUGS,
    *RECOVERY_BUGS,
    *CLEANING_BUGS,
    *PRODUCER_BUGS,
    *SHARE_BUGS,
)
assert len({bug.name for bug in BUGS}) == len(BUGS), "names are unique"
