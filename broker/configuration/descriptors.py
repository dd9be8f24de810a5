"""File descriptors: how a process that may have few of them divides them (RLIMIT_NOFILE).

    | RESERVE, the write-ahead log | partitions, sealed segments | connections |
    | what the process itself uses | half of the rest at most    | the rest    |

Nobody gets more than is useful: OPEN_LOGS_MAX partitions, `open_files_max`, `connections_max`; what
one side does not need the other may have.  Where there are enough for all nothing is limited but
by the settings, and partitions that are in use all at once by what these leave: whoever writes to
twenty thousand of them within a second takes the descriptor of no connection.
"""

from dataclasses import dataclass
from typing import Final

from segbroker.segments.log.caches import OPEN_LOGS_MAX

from .config import BrokerConfig

RESERVE: Final = 64
"""Sockets that are listened on, files that are open for a moment in any of the threads, what the
interpreter uses."""
OF_A_LOG: Final = 2
"""Descriptors of a partition that is written: the active segment, one made ahead."""
NO_LIMIT: Final = 2**31 - 1
"""`connections_max` of who wants none."""


@dataclass(frozen=True, slots=True)
class Descriptors:
    """What may be open at once."""

    limit: int | None
    """Of the process; None: nobody has said."""
    open_logs: int
    """Partitions that stay open when nobody uses them."""
    open_logs_most: int | None
    """Partitions, also where all of them are written; None: nobody has said."""
    open_files: int
    """Files of sealed segments."""
    connections: int
    wanted: int
    """The limit with which nothing is cut."""

    @property
    def are_few(self) -> bool:
        """Whether something is less than the settings say."""
        return self.limit is not None and self.limit < self.wanted

    def facts(self) -> dict[str, object]:
        """What a line says of few."""
        return {
            "limit": self.limit,
            "open_partitions": self.open_logs,
            "open_files": self.open_files,
            "connections": self.connections,
            "advice": f"a limit of {self.wanted} (LimitNOFILE, ulimit -n) is enough for all that"
            " the settings allow",
        }


def divide(limit: int | None, config: BrokerConfig) -> Descriptors:
    """How `limit` descriptors are divided; None: as if there were enough."""
    files_of_wal = config.wal_shards * max(
        2, config.wal_bytes_max // config.wal_shards // config.wal_file_bytes
    )
    open_files, connections = config.open_files_max, config.connections_max
    own, storage = RESERVE + files_of_wal, OF_A_LOG * OPEN_LOGS_MAX + open_files
    # Who wants no limit gets what there is, and is not told that it is less.
    wanted = own + storage + (connections if connections < NO_LIMIT else 0)
    if limit is None or limit >= own + storage + connections:
        most = None if limit is None else limit - own - open_files - connections
        return Descriptors(limit, OPEN_LOGS_MAX, most, open_files, connections, wanted)
    rest = limit - min(own, limit // 2)
    of_storage = min(storage, max(rest // 2, rest - connections))
    of_files = min(open_files, max(1, of_storage // 4))
    of_logs = max(OF_A_LOG, of_storage - of_files)
    return Descriptors(
        limit,
        of_logs // OF_A_LOG,
        of_logs,
        of_files,
        min(connections, max(1, rest - of_storage)),
        wanted,
    )
