"""An option that does not exist: the one that may be meant, by the names that other clients have.

confluent-kafka, kafka-python, aiokafka and the Java client are meant; dots and underscores are
the same here.
"""

from collections.abc import Iterable
from difflib import get_close_matches

# What other clients of Kafka call it, where that is far from our name.
OTHER_NAMES = {
    "auto_offset_reset": "start",
    "batch_size": "batch_bytes",
    "bootstrap_servers": "bootstrap",
    "buffer_memory": "buffer_bytes",
    "compression_type": "compression",
    "consumer_timeout_ms": "stop_at_end",
    "enable_auto_commit": "auto_commit",
    "enable_partition_eof": "stop_at_end",
    "fetch_max_bytes": "prefetch_bytes",
    "group_id": "group",
    "group_instance_id": "instance_id",
    "isolation_level": "isolation",
    "message_timeout_ms": "delivery_timeout_ms",
    "on_assign": "on_assigned",
    "on_revoke": "on_revoked",
    "partition_assignment_strategy": "assignors",
    "max_batch_size": "batch_bytes",
    "max_poll_records": "acquire_count",
    "offset_reset": "start",
    "queue_buffering_max_kbytes": "buffer_bytes",
    "queue_buffering_max_ms": "linger_ms",
    "queued_max_messages_kbytes": "prefetch_bytes",
    "request_required_acks": "acks",
    "share_acknowledgement_mode": "explicit",
    "share_acquire_mode": "acquire",
    "socket_timeout_ms": "request_timeout_ms",
}
# ... and what begins so, the files and names for TLS and a login.
OF_SECURITY = ("sasl_", "security_", "ssl_")


# What other clients have and this one does otherwise, by class.
INSTEAD = {
    "Admin": {},
    "Producer": {
        "api_timeout_ms": "send() waits up to delivery_timeout_ms, send_nowait() not at all",
        "key_serializer": "keys are bytes: encode them first",
        "max_block_ms": "send() waits up to delivery_timeout_ms, send_nowait() not at all",
        "max_in_flight_requests_per_connection": "five per partition, in order all the same;"
        " one with idempotent=False",
        "max_request_size": "the topic's max.message.bytes limits it",
        "message_max_bytes": "the topic's max.message.bytes limits it",
        "message_send_max_retries": "a record is tried again until delivery_timeout_ms",
        "metadata_max_age_ms": "a minute; metadata that turns out wrong is refreshed at once",
        "on_delivery": "send() returns a delivery: its result() waits",
        "retries": "a record is tried again until delivery_timeout_ms",
        "value_serializer": "values are bytes: encode them first",
    },
    "Consumer": {
        "client_rack": "the client always reads from the leader",
        "enable_auto_offset_store": "auto_commit=False, and commit(record) when it is done",
        "key_deserializer": "keys are bytes: decode them where you read them",
        "max_poll_records": "it is an argument: poll(max_records=...)",
        "on_commit": "commit() waits, and raises what went wrong",
        "retries": "a call is tried again until api_timeout_ms",
        "topic": "topics follow the address: Consumer(address, 'orders')",
        "topics": "topics follow the address: Consumer(address, 'orders', 'payments')",
        "value_deserializer": "values are bytes: decode them where you read them",
    },
    "ShareConsumer": {
        "auto_commit": "explicit=True turns automatic acceptance off",
        "enable_auto_commit": "explicit=True turns automatic acceptance off",
        "heartbeat_interval_ms": "it is a setting of the group, share.heartbeat.interval.ms",
        "isolation": "it is a setting of the group, share.isolation.level",
        "isolation_level": "it is a setting of the group, share.isolation.level",
        "key_deserializer": "keys are bytes: decode them where you read them",
        "session_timeout_ms": "it is a setting of the group, share.session.timeout.ms",
        "start": "it is a setting of the group, share.auto.offset.reset",
        "auto_offset_reset": "it is a setting of the group, share.auto.offset.reset",
        "topic": "topics follow the address: ShareConsumer(address, 'orders', group='work')",
        "topics": "topics follow the address: ShareConsumer(address, 'orders', group='work')",
        "value_deserializer": "values are bytes: decode them where you read them",
    },
}


def check_names(
    of: str, given: Iterable[str], known: Iterable[str], named: Iterable[str] = ()
) -> None:
    """TypeError for an option that class `of` does not have, with the one that may be meant.

    `named`: what the constructor takes besides `bootstrap` and those that are `known`.
    """
    unknown = sorted(set(given) - set(known))
    if not unknown:
        return
    plain = unknown[0].replace(".", "_")
    # What another kind of client takes would only lead to the next TypeError.
    taken = ["bootstrap", *named, *known]
    if plain.startswith(OF_SECURITY):
        near = ["security"]
    elif plain in OTHER_NAMES:
        near = [OTHER_NAMES[plain]]
    else:
        near = get_close_matches(plain, taken, 1)
    near = [name for name in near if name in taken]
    if plain in INSTEAD[of]:
        raise TypeError(f"{of} has no option {unknown[0]!r}: {INSTEAD[of][plain]}")
    hint = f"; did you mean {near[0]}?" if near else f"; help({of}) lists them"
    raise TypeError(f"{of} has no option {unknown[0]!r}{hint}")
