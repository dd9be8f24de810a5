"""One broker as a case sees it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import UUID

import trio

from segbroker.protocol.api_keys import ApiKey, request_class, response_class
from segbroker.protocol.fields import NEW_LIST, ZERO_UUID, Field
from segbroker.protocol.schema import Message

from ..support.wire_client import Closed, WireClient
from .answers import CLOSED, Fields, flatten
from .logins import ADMIN, Address, Crowd

SETTLE_TIMEOUT_S: Final = 20.0
ANSWER_TIMEOUT_S: Final = 30.0

_ZERO: Final[dict[str, object]] = {"string": "", "bytes": b"", "bool": False, "uuid": ZERO_UUID}


def build(cls: type[Message], values: Mapping[str, Any]) -> Message:
    """A message from nested mappings; what is left out is zero, empty, null where it may be."""
    names = {field.name for field in cls.fields()}
    unknown = values.keys() - names
    assert not unknown, f"{cls.__name__} has no {unknown}"
    return cls(**{field.name: _value(field, values) for field in cls.fields()})


def _value(field: Field, values: Mapping[str, Any]) -> object:
    if field.name not in values:
        if not field.required:
            return [] if field.default is NEW_LIST else field.default
        if field.is_array:
            return []
        return None if field.nullable_from == 0 else _ZERO.get(field.kind.name, 0)
    value = values[field.name]
    if field.struct is None or value is None:
        return value
    struct: Any = field.struct
    return [build(struct, item) for item in value] if field.is_array else build(struct, value)


class Stage:
    """A connection to one broker, the version under test, and what was asked on it.

    Attributes:
        version: the version that the case is about.
        name: distinct for each case and version: a name for topics and groups.
        seen: label -> the fields of the answer, in the order of asking.
        topics: the names behind the ids of topics that a case has met.
        crowd: the users of a guarded broker; the stage itself is a super user's there.
    """

    def __init__(
        self,
        address: Address,
        client: WireClient,
        name: str,
        version: int,
        crowd: Crowd | None = None,
        user: str = ADMIN,
    ) -> None:
        """user: whose connection it is, if there is a crowd."""
        self.address = address
        self.crowd = crowd
        self._user = user
        self.client = client
        self.name = name
        self.version = version
        self.seen: dict[str, Fields] = {}
        self.topics: dict[UUID, str] = {}

    async def of(self, user: str) -> "Stage":
        """The same stage as another user has it: what is asked there is kept here."""
        assert self.crowd is not None, "the brokers are not guarded"
        client = await self.crowd.client(user)
        other = Stage(self.address, client, self.name, self.version, self.crowd, user)
        other.seen, other.topics = self.seen, self.topics
        return other

    @asynccontextmanager
    async def another(self) -> AsyncIterator["Stage"]:
        """A further connection to the same broker, where there are no users."""
        stream = await trio.open_tcp_stream(*self.address)
        client = WireClient(stream, "compare")
        async with stream:
            yield Stage(self.address, client, self.name, self.version)

    async def ask(self, label: str, key: ApiKey, /, **values: Any) -> Any:
        """Ask in the version under test and keep the answer for the comparison.

        Returns the answer, None if the connection was closed instead (a new one is made).
        """
        assert label not in self.seen, label
        try:
            answer = await self.quietly(key, self.version, **values)
        except Closed:
            self.seen[label] = CLOSED
            return None
        self.seen[label] = flatten(answer, self.version, self.name, self.topics)
        return answer

    async def quietly(self, key: ApiKey, version: int, /, **values: Any) -> Any:
        """Ask in any version; nothing is compared.  Raises Closed, after connecting again."""
        request = build(request_class(key), values)
        with trio.fail_after(ANSWER_TIMEOUT_S):
            try:
                return await self.client.ask(request, response_class(key), version)
            except Closed:
                await self.client.stream.aclose()
                if self.crowd is not None:
                    self.client = await self.crowd.dial(self._user)
                else:
                    self.client = WireClient(await trio.open_tcp_stream(*self.address), "compare")
                raise

    def keep(self, label: str, answer: Message) -> None:
        """Compare an answer that `quietly` brought."""
        self.seen[label] = flatten(answer, self.version, self.name, self.topics)

    async def topic(self, suffix: str = "", partitions: int = 1, **config: str) -> str:
        """Make a topic and wait until its partitions have a leader that answers."""
        name = f"{self.name}{suffix}"
        made = await self.quietly(
            ApiKey.CREATE_TOPICS,
            5,
            topics=[
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "configs": [
                        {"name": key.replace("_", "."), "value": value}
                        for key, value in config.items()
                    ],
                }
            ],
        )
        assert made.topics[0].error_code == 0, made
        await self.settled(name, partitions)
        return name

    async def settled(self, topic: str, partitions: int = 1) -> None:
        """Kafka answers a change before every part of it has heard."""
        asked = [{"partition_index": n, "timestamp": -1} for n in range(partitions)]
        with trio.fail_after(SETTLE_TIMEOUT_S):
            while True:
                answer = await self.quietly(
                    ApiKey.LIST_OFFSETS,
                    5,
                    replica_id=-1,
                    topics=[{"name": topic, "partitions": asked}],
                )
                rows = answer.topics[0].partitions
                if all(row.error_code == 0 for row in rows):
                    return
                await trio.sleep(0.02)

    async def caught_up(self) -> None:
        """Every part of the broker has heard of what was changed last.

        Kafka's tell each other in the order of the changes: when the second of two further ones can
        be seen, all have heard what was before the first.  Here a quota is set, and removed.
        """
        whose = [{"entity_type": "user", "entity_name": "sees changes"}]
        asked = [{"entity_type": "user", "match_type": 0, "match": "sees changes"}]
        for remove in (False, True):
            ops = [{"key": "producer_byte_rate", "value": 1.0, "remove": remove}]
            await self.quietly(
                ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": whose, "ops": ops}]
            )
            with trio.fail_after(SETTLE_TIMEOUT_S):
                while True:
                    answer = await self.quietly(
                        ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=asked, strict=True
                    )
                    if bool(answer.entries) is not remove:
                        break
                    await trio.sleep(0.005)

    async def topic_id(self, topic: str) -> UUID:
        """The id of a topic."""
        answer = await self.quietly(
            ApiKey.METADATA, 12, topics=[{"name": topic}], allow_auto_topic_creation=False
        )
        found: UUID = answer.topics[0].topic_id
        self.topics[found] = topic
        return found

    async def produce(self, topic: str, records: bytes, partition: int = 0) -> Any:
        """Append and answer the row."""
        answer = await self.quietly(
            ApiKey.PRODUCE,
            7,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                {"name": topic, "partition_data": [{"index": partition, "records": records}]}
            ],
        )
        row = answer.responses[0].partition_responses[0]
        assert row.error_code == 0, row
        return row


__all__ = ["ApiKey", "Closed", "Stage", "build"]
