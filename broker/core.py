"""What every request may need, in one place: the broker without its sockets.

`Core` holds the parts of one broker: topics, groups, transactions, access rules, threads, limits.
assembling.py makes it, once; handlers get it with every call, so nothing of a broker is global.  It
belongs to the event loop.  No logic goes in here: what a part does is in its own package.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import trio

from segbroker.protocol.messages_core import MetadataResponseTopic
from segbroker.segments.directory.cleaner import Cleaner
from segbroker.segments.directory.scrubbing import Scrubber

from .access.authentication import Authentication
from .access.authorizer import Authorizer
from .access.closing_lines import ClosingLines
from .access.listener_limits import ListenerLimits
from .access.quotas import Quotas
from .configuration.config import BrokerConfig
from .configuration.descriptors import Descriptors
from .configuration.file_system import FileSystem
from .configuration.settings import BrokerSettings
from .failed_changes import FailedChanges
from .failed_reads import FailedReads
from .groups.group_settings import GroupSettings
from .groups.groups import Groups
from .loop.deadlines import Deadlines
from .loop.ingest import Ingest
from .loop.lanes import Lanes
from .loop.large_requests import LargeRequests
from .loop.pool import BufferPool
from .loop.strangers import Strangers
from .loop.together import Together
from .loop.turn import Turn
from .partitions.refusals import Refusals
from .partitions.topics import Topics
from .peers.fetch_session import Sessions
from .peers.long_answers import LongAnswers
from .peers.peer import Peer
from .peers.tls import Certificate
from .peers.unanswered import Unanswered
from .shares.shares import Shares
from .tally import Tally
from .transactions.coordinator import Coordinator
from .transactions.producer_ids import ProducerIds
from .transactions.query_batches import QueryBatches
from .transactions.transaction_upkeep import TransactionUpkeep


@dataclass(slots=True)
class Counters:
    """What has happened since the start; read by SERVER_INFO and the metrics page."""

    connections: int = 0
    connections_refused: int = 0
    connections_failed: int = 0
    produce_requests: int = 0
    produced_bytes: int = 0
    fetch_requests: int = 0
    fetched_bytes: int = 0
    lane_reads: int = 0
    # Bytes received from clients, and sent on connections that have ended since; and how often one
    # was not read for a while since its client was over a quota.
    received_bytes: int = 0
    sent_bytes: int = 0
    quota_pauses: int = 0
    tally: Tally = field(default_factory=Tally)

    @property
    def requests(self) -> int:
        """How many have come."""
        return self.tally.all_requests

    def told(self) -> dict[str, int]:
        """As SERVER_INFO has them."""
        return {
            "connections": self.connections,
            "connections_refused": self.connections_refused,
            "connections_failed": self.connections_failed,
            "requests": self.requests,
            "produce_requests": self.produce_requests,
            "produced_bytes": self.produced_bytes,
            "fetch_requests": self.fetch_requests,
            "fetched_bytes": self.fetched_bytes,
            "lane_reads": self.lane_reads,
        }


@dataclass(slots=True)
class Core:
    """The parts of one broker that requests work with."""

    # What is in force of `settings`.
    config: BrokerConfig
    settings: BrokerSettings
    descriptors: Descriptors
    # Where the data is; None: unknown, or no file system.
    file_system: FileSystem | None
    group_settings: GroupSettings
    topics: Topics
    refusals: Refusals
    producer_ids: ProducerIds
    groups: Groups
    shares: Shares
    transactions: Coordinator
    query_batches: QueryBatches
    failed_changes: FailedChanges
    authentication: Authentication
    transaction_upkeep: TransactionUpkeep
    lanes: Lanes
    pool: BufferPool
    ingest: Ingest
    turn: Turn
    deadlines: Deadlines
    # Starts a task that lives as long as the broker serves: lane reads, drains of slow readers.
    spawn: Callable[[Callable[[], Awaitable[None]]], None]
    bound: tuple[str, int]
    # On the wall clock, and on trio's: a clock that is set changes no time that has passed.
    started_ms: int
    started_at: float
    now_ms: Callable[[], int]
    open_connections: Callable[[], int]
    listener_limits: ListenerLimits
    # Those of the listeners with TLS, each once.
    certificates: Sequence[Certificate]
    scrubber: Scrubber
    cleaner: Cleaner
    # Rows of topics by name for Metadata, for all who ask at the same time (apis/metadata.py).
    listing: "Together[tuple[Core, Iterable[str]], Mapping[str, MetadataResponseTopic]]"
    all_quotas: Quotas
    # None: everybody may do everything.
    authorizer: Authorizer | None = None
    # `all_quotas`; None while there is none.
    quotas: Quotas | None = None
    counters: Counters = field(default_factory=Counters)
    failed_reads: FailedReads = field(default_factory=FailedReads)
    fetch_sessions: Sessions = field(default_factory=Sessions)
    unanswered: Unanswered = field(default_factory=Unanswered)
    closing_lines: ClosingLines = field(default_factory=ClosingLines)
    large_requests: LargeRequests = field(default_factory=LargeRequests)
    long_answers: LongAnswers = field(default_factory=LongAnswers)
    strangers: Strangers = field(default_factory=Strangers)
    # The broker ends: nobody waits for what may come.
    is_draining: bool = False

    @property
    def uptime_s(self) -> float:
        """Time since the start."""
        return trio.current_time() - self.started_at

    def advertised(self, peer: Peer) -> tuple[str, int]:
        """host and port that this peer is told to connect to."""
        return peer.listener.advertised(peer.local_address[0])


def wall_ms() -> int:
    """The wall clock in ms since 1970: timestamps of records, never a deadline."""
    return time.time_ns() // 1_000_000
