"""What new topics are like, and what connections and requests may take.

Keys of the configuration; config.py puts them together.
"""

from dataclasses import dataclass

from segbroker.protocol.limits import REQUEST_FRAME_SIZE_MAX, TOPIC_PARTITIONS_MAX

from .config_key import key


@dataclass(frozen=True)
class LimitKeys:
    """See the module."""

    broker_id: int = key(1, "Node id of this broker.", kafka="broker.id")
    auto_create_topics: bool = key(
        True,
        "Whether an unknown topic is created when a client asks for its metadata.",
        kafka="auto.create.topics.enable",
        dynamic=True,
    )
    auto_create_topics_max: int = key(
        10_000,
        "No topic is auto-created when there are this many, so that a client that invents names "
        "cannot fill the disk with directories. CreateTopics is not limited by it.",
        most=1_000_000,
        dynamic=True,
    )
    delete_topics: bool = key(
        True,
        "Whether clients may delete topics. If not, DeleteTopics is refused, whoever asks "
        "(TOPIC_DELETION_DISABLED).",
        kafka="delete.topic.enable",
    )
    partitions: int = key(
        4,
        "Number of partitions of an auto-created topic, and of one that is created with a count "
        "of -1; never more than partitions_max.",
        least=1,
        most=TOPIC_PARTITIONS_MAX,
        kafka="num.partitions",
        dynamic=True,
    )
    partitions_max: int = key(
        10_000,
        "Maximum number of partitions of a topic.",
        least=1,
        most=TOPIC_PARTITIONS_MAX,
        dynamic=True,
    )
    durability: str = key(
        "fsync",
        "Durability class of topics created without one: fsync (acknowledged after the sync), "
        "disk (after the write; a power cut may lose the unsynced end), memory (after the write; "
        "a power cut may lose any of it) or ephemeral (in memory, gone with the process).",
        choices=("fsync", "disk", "memory", "ephemeral"),
        dynamic=True,
    )
    connections_max: int = key(
        10_000,
        "Maximum number of connections; a further one is closed at once. For a single listener: "
        "the maximum there; at it, further connections wait until one has ended.",
        least=1,
        kafka="max.connections",
        dynamic=True,
        listener="any",
        unless=2**31 - 1,
    )
    connections_per_second: int = key(
        0,
        "Maximum number of new connections per second; further ones are accepted later. For a "
        "single listener: the maximum there, beside the one for all listeners together. 0: no "
        "limit.",
        kafka="max.connection.creation.rate",
        dynamic=True,
        listener="any",
        unless=0,
    )
    connections_per_ip_max: int = key(
        2**31 - 1,
        "Maximum number of connections from one address; a further one is closed at once. "
        "0: none but from those of connections_per_ip_overrides.",
        kafka="max.connections.per.ip",
        dynamic=True,
    )
    connections_per_ip_overrides: str = key(
        "",
        "Other maximums for single addresses: 10.0.0.1:200,10.0.0.2:5.",
        kafka="max.connections.per.ip.overrides",
        dynamic=True,
    )
    connections_per_ip_per_second: int = key(
        0,
        "Maximum number of new connections per second from an address without a quota of its own "
        "(connection_creation_rate); a further one is closed at once. 0: no limit.",
        dynamic=True,
    )
    frame_bytes_max: int = key(
        REQUEST_FRAME_SIZE_MAX,
        "Largest request, in bytes. A larger one closes its connection.",
        least=1 << 10,
        most=1 << 30,
        kafka="socket.request.max.bytes",
    )
    handshake_timeout_ms: int = key(
        10_000,
        "A connection that keeps the broker waiting for so long before its first request is "
        "complete, or before it has logged in, is closed.",
        least=1,
        dynamic=True,
    )
    idle_timeout_ms: int = key(
        600_000,
        "A connection without traffic for this long is closed. -1: never.",
        least=-1,
        kafka="connections.max.idle.ms",
        dynamic=True,
    )
    send_timeout_ms: int = key(
        60_000,
        "A connection whose client takes none of its replies for this long is closed.",
        least=1,
        dynamic=True,
    )
    slots_max: int = key(
        2_000,
        "Maximum number of unanswered requests per connection; at it the connection is not read.",
        least=1,
        dynamic=True,
    )
    request_bytes_max: int = key(
        256 << 20,
        "Maximum bytes of the buffers of half-received requests, all connections together. Beyond "
        "it, connections in the middle of a large request wait for at most request_wait_ms and are "
        "then closed; the first of them goes on.",
        least=1 << 16,
        most=1 << 40,
        kafka="queued.max.request.bytes",
        dynamic=True,
    )
    request_bytes_per_ip_max: int = key(
        128 << 20,
        "The same for the connections of one address: beyond it, only they wait.",
        least=1 << 16,
        most=1 << 40,
        dynamic=True,
    )
    request_wait_ms: int = key(
        10_000,
        "Longest wait of a large request for request_bytes_max. Who has sent half of one, and "
        "nothing more for half of this time while others wait for that room, is closed.",
        least=1,
        dynamic=True,
    )
    ingest_bytes_max: int = key(
        64 << 20,
        "Bytes appended and not yet synced, all partitions together. Beyond it, producers are not"
        " read until the disk has caught up; beyond twice as much, batches are refused for a "
        "while.",
        least=1 << 16,
        most=1 << 40,
        dynamic=True,
    )
    fetch_bytes_max: int = key(
        16 << 20,
        "Maximum bytes of records in a fetch reply, whatever the client asks for; one batch is "
        "always returned.",
        least=1 << 10,
        most=1 << 30,
        kafka="fetch.max.bytes",
        dynamic=True,
    )
    fetch_buffer_bytes_max: int = key(
        256 << 20,
        "Maximum bytes of fetch replies that are being read or sent, all connections together. "
        "Above half of it replies shrink to 1 MiB; at it, the broker takes back the buffers of "
        "clients that do not read.",
        least=1 << 20,
        most=1 << 40,
        dynamic=True,
    )
    long_poll_max_ms: int = key(
        60_000,
        "Longest time that a fetch waits for records, whatever the client asks for.",
        least=0,
        dynamic=True,
    )
    produce_timeout_max_ms: int = key(
        120_000,
        "Longest time that a produce request waits for its durability, whatever the client asks "
        "for.",
        least=1,
        dynamic=True,
    )
