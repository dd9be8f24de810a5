"""What new topics are like, and what connections and requests may take.

Keys of the configuration; config.py puts them together.
"""

from dataclasses import dataclass

from segbroker.protocol.limits import REQUEST_FRAME_SIZE_MAX

from .config_key import key


@dataclass(frozen=True)
class LimitKeys:
    """See the module."""

    broker_id: int = key(1, "Node id of this broker in every answer.", kafka="broker.id")
    auto_create_topics: bool = key(
        True,
        "Create a topic when a client asks for the metadata of an unknown one.",
        kafka="auto.create.topics.enable",
        dynamic=True,
    )
    auto_create_topics_max: int = key(
        10_000,
        "No topic is created by asking for it while there are this many: a client that makes "
        "names up must not fill the disk with directories. Creating by request is not limited.",
        most=1_000_000,
        dynamic=True,
    )
    delete_topics: bool = key(
        True,
        "Whether clients may delete topics. Not: DeleteTopics is refused, whoever asks "
        "(TOPIC_DELETION_DISABLED).",
        kafka="delete.topic.enable",
    )
    partitions: int = key(
        4,
        "Partitions of an auto-created topic, and of one created with a count of -1.",
        least=1,
        most=100_000,
        kafka="num.partitions",
        dynamic=True,
    )
    partitions_max: int = key(
        10_000, "Most partitions one topic may have.", least=1, most=100_000, dynamic=True
    )
    durability: str = key(
        "fsync",
        "Durability class of topics created without one: fsync (acknowledged after the sync), "
        "disk (after the write; a power cut may cost the unsynced tail), memory (after the write; "
        "a power cut may cost any of it) or ephemeral (in memory, gone with the process).",
        choices=("fsync", "disk", "memory", "ephemeral"),
        dynamic=True,
    )
    connections_max: int = key(
        10_000,
        "Most connections at once; a further one is closed at once. Of one listener: where it has "
        "as many, no further one is accepted on it until one has ended.",
        least=1,
        kafka="max.connections",
        dynamic=True,
        listener="any",
        unless=2**31 - 1,
    )
    connections_per_second: int = key(
        0,
        "Most new connections per second; what comes faster is accepted later. Of one listener: "
        "the same for that one, beside that of all together. 0: any number.",
        kafka="max.connection.creation.rate",
        dynamic=True,
        listener="any",
        unless=0,
    )
    connections_per_ip_max: int = key(
        2**31 - 1,
        "Most connections from one address at once; a further one is closed at once.",
        kafka="max.connections.per.ip",
        dynamic=True,
    )
    connections_per_ip_overrides: str = key(
        "",
        "Other numbers for some addresses: 10.0.0.1:200,10.0.0.2:5.",
        kafka="max.connections.per.ip.overrides",
        dynamic=True,
    )
    connections_per_ip_per_second: int = key(
        0,
        "Most new connections per second from one address that has no quota of its own "
        "(connection_creation_rate); a further one is closed at once. 0: any number.",
        dynamic=True,
    )
    frame_bytes_max: int = key(
        REQUEST_FRAME_SIZE_MAX,
        "Largest request, in bytes; a larger one closes its connection.",
        least=1 << 10,
        most=1 << 30,
        kafka="socket.request.max.bytes",
    )
    handshake_timeout_ms: int = key(
        10_000,
        "A connection without a complete first request after this time is closed.",
        least=1,
        dynamic=True,
    )
    idle_timeout_ms: int = key(
        600_000,
        "A connection on which nothing came or went for this long is closed; -1: never.",
        least=-1,
        kafka="connections.max.idle.ms",
        dynamic=True,
    )
    send_timeout_ms: int = key(
        60_000,
        "A client that takes none of its replies for this long is closed.",
        least=1,
        dynamic=True,
    )
    slots_max: int = key(
        2_000,
        "Most unanswered requests per connection; beyond it the connection is not read.",
        least=1,
        dynamic=True,
    )
    request_bytes_max: int = key(
        256 << 20,
        "Bytes of half-received requests on all connections together; beyond it connections in "
        "the middle of a large request wait, for at most request_wait_ms, and are then closed.",
        least=1 << 16,
        most=1 << 40,
        kafka="queued.max.request.bytes",
        dynamic=True,
    )
    request_bytes_per_ip_max: int = key(
        128 << 20,
        "The same for the connections of one address together: it waits when it alone holds more.",
        least=1 << 16,
        most=1 << 40,
        dynamic=True,
    )
    request_wait_ms: int = key(
        10_000, "Longest wait of a large request for request_bytes_max.", least=1, dynamic=True
    )
    ingest_bytes_max: int = key(
        64 << 20,
        "Bytes appended but not yet synced, over all partitions; beyond it producers are not read "
        "until the disk has caught up, beyond twice as much batches are refused for a while.",
        least=1 << 16,
        most=1 << 40,
        dynamic=True,
    )
    fetch_bytes_max: int = key(
        16 << 20,
        "Most record bytes in one fetch reply, whatever the client asks (one batch always fits).",
        least=1 << 10,
        most=1 << 30,
        kafka="fetch.max.bytes",
        dynamic=True,
    )
    fetch_buffer_bytes_max: int = key(
        256 << 20,
        "Bytes of fetch replies that are being read or sent, over all connections. Above half of "
        "it replies shrink to 1 MiB; at it the buffers of clients that do not read are taken back.",
        least=1 << 20,
        most=1 << 40,
        dynamic=True,
    )
    long_poll_max_ms: int = key(
        60_000,
        "Longest wait of a fetch for records, whatever the client asks.",
        least=0,
        dynamic=True,
    )
    produce_timeout_max_ms: int = key(
        120_000,
        "Longest wait of a produce for its durability, whatever the client asks.",
        least=1,
        dynamic=True,
    )
