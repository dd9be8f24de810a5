"""What an upgrade must keep, as a client sees it: topics, groups, transactions, users, rules.

`fill` writes through librdkafka, which speaks with an early version of the broker too, what that
version can do; `see` reads all of it back, before and after (upgrade_seen.py); `go_on` has the
clients that stayed do what they do.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Final

import trio
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
)
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # in its __init__ all the same
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from segbroker.protocol.api_keys import ApiKey

from ..compare.playing import ranges
from .upgrade_seen import Record, Seen

PARTITIONS: Final = 2
RECORDS: Final = 600
"""Of each partition."""
TIMEOUT_S: Final = 60

TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    "fsync": {"durability": "fsync"},
    "disk": {"durability": "disk"},
    "memory": {"durability": "memory"},
    "ephemeral": {"durability": "ephemeral"},
    "small": {"segment.bytes": "65536", "max.message.bytes": "32768"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "capped": {
        "retention.bytes": "4000000",
        "segment.bytes": "65536",
        "max.message.bytes": "32768",
    },
    "compacted": {
        "cleanup.policy": "compact",
        "segment.bytes": "16384",
        "max.message.bytes": "8192",
        "min.cleanable.dirty.ratio": "0.1",
    },
    "trimmed": {},
    "offsets": {},
    "transactions": {},
}
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
TRIMMED_AT: Final = 100
# What members are told that the version before did not write down.
_JOINS_AGAIN: Final = (
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._STATE,
)

Setting = str | int | float | bool


class Content:
    """What was written to one broker, and the clients that stay while it is replaced."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.admin = AdminClient(self._settings())
        self.topics: list[str] = []
        self.groups: list[str] = []
        self.lacking: list[str] = []
        """What that version could not do, and whether members had to join again after it."""
        self.members: list[Consumer] = []
        self.open: dict[str, Producer] = {}
        """Producers whose transactions are open."""
        host, _, port = self.address.rpartition(":")
        self.served = frozenset(trio.run(ranges, (host, int(port))))
        self._is_idempotent = ApiKey.INIT_PRODUCER_ID in self.served
        idempotent: dict[str, Setting] = {"enable.idempotence": self._is_idempotent}
        self.producer = Producer(self._settings(**idempotent))

    def _settings(self, **more: Setting) -> dict[str, Setting]:
        # Else librdkafka 2.16 looks for its only broker anew when that is away, and what then waits
        # for a coordinator waits for a handle that is ending, for ever.
        alone: dict[str, Setting] = {"metadata.recovery.strategy": "none", "log_level": 0}
        return {"bootstrap.servers": self.address, **alone, **more}

    def close(self) -> None:
        """End the clients."""
        for member in self.members:
            member.close()
        self.members.clear()

    # Writing

    def fill(self) -> None:
        """Everything that this version can do; `lacking` has what it could not."""
        for name, settings in TOPICS.items():
            self._create(name, settings)
        for index, name in enumerate(self.topics):
            if name not in ("transactions", "offsets"):
                self._produce(name, CODECS[index % len(CODECS)])
        self.send("offsets", 200)
        self._try(ApiKey.DELETE_RECORDS, "trimmed", self._trim)
        self._try(ApiKey.OFFSET_COMMIT, "offsets", self._commit_as_a_tool)
        self._try(ApiKey.JOIN_GROUP, "classic group", lambda: self._join("classic"))
        self._try(ApiKey.CONSUMER_GROUP_HEARTBEAT, "consumer group", lambda: self._join("consumer"))
        self._try(ApiKey.END_TXN, "transactions", self._transact)
        self._try(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "users", self._add_user)
        self._try(ApiKey.CREATE_ACLS, "rules", self._add_rule)

    def _try(self, key: ApiKey, what: str, does: Callable[[], None]) -> None:
        if key not in self.served:
            self.lacking.append(what)
            return
        try:
            does()
        except KafkaException as exc:
            self.lacking.append(f"{what} ({str(exc)[:70]})")

    def _create(self, name: str, settings: Mapping[str, str]) -> None:
        for attempt in (settings, {}):
            topic = NewTopic(name, PARTITIONS, 1, config=dict(attempt))
            try:
                self.admin.create_topics([topic])[name].result(TIMEOUT_S)
            except KafkaException as exc:
                if not attempt:
                    raise
                self.lacking.append(f"topic {name} ({str(exc)[:70]})")
                if name == "compacted":  # as another kind it says nothing
                    return
            else:
                self.topics.append(name)
                return

    def _produce(self, name: str, codec: str) -> None:
        settings: dict[str, Setting] = {
            "compression.codec": codec,
            "linger.ms": 5,
            "batch.size": 8_000,
            "enable.idempotence": self._is_idempotent,
        }
        producer = Producer(self._settings(**settings))
        keys = 7 if name == "compacted" else RECORDS
        failed: list[str] = []
        for number in range(RECORDS * PARTITIONS):
            producer.produce(
                name,
                f"value {number} ".encode() * (number % 20 + 1),
                f"key {number % keys}".encode(),
                partition=number % PARTITIONS,
                headers=[("number", str(number).encode())],
                on_delivery=lambda error, _: failed.append(str(error)) if error else None,
            )
            producer.poll(0)
        if producer.flush(TIMEOUT_S) or failed:
            raise AssertionError(f"{name}: records that were not acknowledged: {failed[:3]}")

    def send(self, name: str, count: int) -> None:
        """Records of the producer that stays."""
        failed: list[str] = []
        for number in range(count):
            self.producer.produce(
                name,
                f"value {number}".encode(),
                partition=number % PARTITIONS,
                on_delivery=lambda error, _: failed.append(str(error)) if error else None,
            )
        if self.producer.flush(TIMEOUT_S) or failed:
            raise AssertionError(f"{name}: records that were not acknowledged: {failed[:3]}")

    def _trim(self) -> None:
        asked = [At("trimmed", index, TRIMMED_AT) for index in range(PARTITIONS)]
        for done in self.admin.delete_records(asked).values():
            done.result(TIMEOUT_S)

    def _commit_as_a_tool(self) -> None:
        with closing(Consumer(self._settings(**{"group.id": "tool"}))) as consumer:
            stands = [At("offsets", index, 11 + index, metadata="m") for index in range(PARTITIONS)]
            consumer.commit(offsets=stands, asynchronous=False)
        self.groups.append("tool")

    def _join(self, protocol: str) -> None:
        """Two members that stay."""
        settings: dict[str, Setting] = {
            "group.id": protocol,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 500,
        }
        both = [Consumer(self._settings(**settings)) for _ in range(2)]
        self.members += both
        for member in both:
            member.subscribe(["offsets"])
        until(lambda: _shares(both) == [1, 1], f"{protocol} members")
        for member in both:
            (mine,) = member.assignment()
            member.commit(offsets=[At("offsets", mine.partition, 30)], asynchronous=False)
        self.groups.append(protocol)

    def _transact(self) -> None:
        for name, how in (("done", True), ("gone", False)):
            producer = self._begun(name)
            if how:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)
        for name in ("to commit", "to fence"):
            self.open[name] = self._begun(name)
        self.groups.append("of transactions")

    def _begun(self, name: str) -> Producer:
        settings: dict[str, Setting] = {
            "transactional.id": name,
            "transaction.timeout.ms": 600_000,
        }
        producer = Producer(self._settings(**settings))
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for index in range(20 * PARTITIONS):
            producer.produce("transactions", f"{name} {index}", partition=index % PARTITIONS)
        producer.flush(TIMEOUT_S)
        with closing(Consumer(self._settings(**{"group.id": "of transactions"}))) as consumer:
            position = [At("offsets", 0, 1_000 if name == "gone" else 50)]
            if name in ("done", "gone"):
                metadata = consumer.consumer_group_metadata()
                producer.send_offsets_to_transaction(position, metadata, TIMEOUT_S)
        return producer

    def _add_user(self) -> None:
        made = UserScramCredentialUpsertion(
            "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"of tests only"
        )
        self.admin.alter_user_scram_credentials([made])["alice"].result(TIMEOUT_S)

    def _add_rule(self) -> None:
        rule = AclBinding(
            ResourceType.TOPIC,
            "fsync",
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        self.admin.create_acls([rule])[rule].result(TIMEOUT_S)

    # Going on

    def go_on(self) -> list[str]:
        """The clients that stayed do what they do: what does not work."""
        wrong: list[str] = []
        self.send("offsets", 40)
        for protocol, both in (("classic", self.members[:2]), ("consumer", self.members[2:])):
            if not both:
                continue
            try:
                until(partial(self._commits, both), f"{protocol} members commit")
            except AssertionError as exc:
                wrong.append(str(exc))
        if self.open:
            try:
                self.open["to commit"].commit_transaction(TIMEOUT_S)
            except KafkaException as exc:
                wrong.append(f"a transaction that was open cannot be committed: {exc}")
            again = Producer(self._settings(**{"transactional.id": "to fence"}))
            again.init_transactions(TIMEOUT_S)
            values = {value for _, _, value, _, _ in self._all("transactions")}
            if b"to commit 39" not in values:
                wrong.append("a transaction that was committed is not seen")
            if {b"to fence 1", b"gone 1"} & values:
                wrong.append("a transaction that was fenced or aborted is seen")
        return wrong

    def _commits(self, both: list[Consumer]) -> bool:
        """Whether two members have all partitions between them, and commit them."""
        mine = [poll(member).assignment() for member in both]
        if sorted(one.partition for some in mine for one in some) != list(range(PARTITIONS)):
            return False
        try:
            for member, some in zip(both, mine, strict=True):
                at = [At(one.topic, one.partition, 40) for one in some]
                if at:
                    member.commit(offsets=at, asynchronous=False)
        except KafkaException as exc:
            if exc.args[0].code() not in _JOINS_AGAIN:
                raise
            if "members that are kept" not in self.lacking:
                self.lacking.append("members that are kept")
            return False
        return True

    def _all(self, topic: str) -> Iterator[Record]:
        for index in range(PARTITIONS):
            yield from self._read(topic, index, *self._bounds(topic, index))

    # Reading

    def see(self) -> Seen:
        """Everything."""
        seen = Seen()
        told = self.admin.list_topics(timeout=TIMEOUT_S).topics
        gone = [name for name in self.topics if name not in told]
        assert not gone, f"there are no topics {gone}"
        for name in self.topics:
            for index in range(PARTITIONS):
                bounds = seen.bounds[name, index] = self._bounds(name, index)
                seen.records[name, index] = self._read(name, index, *bounds)
            resource = ConfigResource("topic", name)
            rows = self.admin.describe_configs([resource])[resource].result(TIMEOUT_S)
            seen.configs[name] = {
                key: str(row.value) for key, row in rows.items() if key in TOPICS[name]
            }
        for group in self.groups:
            asked = ConsumerGroupTopicPartitions(group)
            found = self.admin.list_consumer_group_offsets([asked])[group].result(TIMEOUT_S)
            seen.offsets[group] = {
                (one.topic, one.partition): (one.offset, one.metadata or "")
                for one in found.topic_partitions or ()
            }
        if not self._lacks("users"):
            users = self.admin.describe_user_scram_credentials(["alice"])
            assert isinstance(users, dict)
            for name, row in users.items():
                of_it = row.result(TIMEOUT_S).scram_credential_infos
                seen.users[name] = [(one.mechanism.name, one.iterations) for one in of_it]
        if not self._lacks("rules"):
            every = AclBindingFilter(
                ResourceType.ANY,
                None,  # type: ignore[arg-type]  # as its own documents have it
                ResourcePatternType.ANY,
                None,  # type: ignore[arg-type]
                None,  # type: ignore[arg-type]
                AclOperation.ANY,
                AclPermissionType.ANY,
            )
            seen.rules = sorted(map(str, self.admin.describe_acls(every).result(TIMEOUT_S)))
        return seen

    def _lacks(self, what: str) -> bool:
        return any(one.startswith(what) for one in self.lacking)

    def _bounds(self, topic: str, index: int) -> tuple[int, int]:
        with closing(Consumer(self._settings(**{"group.id": "reader"}))) as consumer:
            low, high = consumer.get_watermark_offsets(At(topic, index), TIMEOUT_S)
            return low, high

    def _read(self, topic: str, index: int, low: int, high: int) -> list[Record]:
        settings: dict[str, Setting] = {
            "group.id": "reader",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "auto.offset.reset": "earliest",
        }
        found: list[Record] = []
        with closing(Consumer(self._settings(**settings))) as consumer:
            consumer.assign([At(topic, index, low)])
            ends_at = time.monotonic() + TIMEOUT_S
            while time.monotonic() < ends_at:
                message = consumer.poll(1.0)
                if message is None:
                    continue
                if message.error() is not None:
                    return found
                offset, headers = message.offset(), message.headers() or ()
                assert offset is not None
                found.append(
                    (offset, message.key(), message.value(), message.timestamp(), (*headers,))
                )
        raise AssertionError(f"{topic}-{index} cannot be read up to {high}")


def poll(member: Consumer) -> Consumer:
    """Let a member do what it has to."""
    member.poll(0.05)
    return member


def _shares(members: list[Consumer]) -> list[int]:
    """How many partitions each has; all of them are polled for it."""
    return [len(poll(one).assignment()) for one in members]


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for something.  Raises AssertionError."""
    ends_at = time.monotonic() + TIMEOUT_S
    while not holds():
        if time.monotonic() > ends_at:
            raise AssertionError(f"not within {TIMEOUT_S} s: {what}")
