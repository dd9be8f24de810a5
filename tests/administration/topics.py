"""A topic: made, grown, altered, deleted, made again; and where a group and a share group stand.

One state has all of it, so that an offset of a topic that was deleted is seen if it stands in the
next one.  What the settings say is in force: asked by requests that they decide about.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from segbroker.protocol import messages_admin as admin
from segbroker.protocol import messages_core as core
from segbroker.protocol import messages_groups as groups
from segbroker.protocol import messages_share_groups as shares
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.record_batch import encode_batch
from segbroker.segments.errors import InvalidConfig
from segbroker.segments.settings.topic_config import TopicConfig, check_class_change

from ..simulation.process import Process
from ..support.wire_client import WireClient, produce_request
from ..support.wire_settings import DELETE_KEY, SET_KEY
from .belief import FAILED, Change, Difference
from .subject import Lives, Subject

TOPIC: Final = 2
OF_TOPIC: Final = 1
"""The source of a setting that is set on the topic."""
VALUES: Final[dict[str, tuple[str, ...]]] = {
    "cleanup.policy": ("delete", "compact", "compact,delete", ""),
    "segment.bytes": ("1024", "2048", "8192"),
    "segment.ms": ("200", "2000"),
    "segment.records": ("2", "20"),
    "max.message.bytes": ("300", "900", "4000"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "message.timestamp.after.max.ms": ("1000", "3600000"),
    "compression.type": ("producer", "uncompressed", "lz4", "zstd"),
    "min.insync.replicas": ("1", "3"),
    "flush.messages": ("1", "1000"),
    "min.compaction.lag.ms": ("0", "500"),
    "max.compaction.lag.ms": ("300", "60000"),
    "min.cleanable.dirty.ratio": ("0.0", "0.5"),
    "retention.bytes": ("-1", "3000"),
    "retention.ms": ("-1", "1000"),
    "retention.records": ("10",),
    "retention.full.policy": ("drop-old", "reject"),
    "durability": ("fsync", "fsync", "disk", "memory", "ephemeral"),
}
TAKES_RECORDS: Final = ("retention.bytes", "retention.ms", "retention.records")
"""With these records go."""

Settings: TypeAlias = tuple[tuple[str, str], ...]


class State(NamedTuple):
    """What is of a topic; `topic_id` None: there is none."""

    topic_id: UUID | str | None
    """A name of our own until somebody has seen the id."""
    partitions: int
    settings: Settings
    offset: int
    """Where the group stands in partition 0; -1: nowhere."""
    share: int

    @property
    def durability(self) -> str:
        return dict(self.settings).get("durability", "fsync")


NONE: Final = State(None, 0, (), -1, -1)


def settings_of(values: Mapping[str, str]) -> Settings:
    return tuple(sorted(values.items()))


def random_settings(random: Random, most: int) -> dict[str, str]:
    names = random.sample(sorted(VALUES), random.randint(0, most))
    return {name: random.choice(VALUES[name]) for name in names}


class Create(Change[State]):
    """CreateTopics."""

    def __init__(
        self, topic: str, partitions: int, settings: Mapping[str, str], number: int
    ) -> None:
        """number: that no other of this topic has."""
        super().__init__()
        self.topic = topic
        self.partitions = partitions
        self.settings = settings
        self.topic_id: UUID | str = f"new-{number}"

    def __str__(self) -> str:
        return f"create {self.partitions} {self.settings}"

    def outcomes(self, state: State) -> Sequence[tuple[State, int]]:
        try:
            TopicConfig.parse(self.settings)
        except InvalidConfig:
            # Told of either first.
            return [(state, ErrorCode.INVALID_CONFIG), (state, ErrorCode.TOPIC_ALREADY_EXISTS)]
        if state.topic_id is not None:
            return [(state, ErrorCode.TOPIC_ALREADY_EXISTS)]
        made = State(self.topic_id, self.partitions, settings_of(self.settings), -1, -1)
        return [(made, 0)]

    async def ask(self, client: WireClient) -> int:
        configs = [
            admin.CreateTopicsRequestConfig(name=name, value=value)
            for name, value in self.settings.items()
        ]
        topic = admin.CreateTopicsRequestTopic(
            name=self.topic,
            num_partitions=self.partitions,
            replication_factor=1,
            assignments=[],
            configs=configs,
        )
        request = admin.CreateTopicsRequest(topics=[topic])
        (row,) = (await client.ask(request, admin.CreateTopicsResponse, 7)).topics
        if not row.error_code:
            self.topic_id = row.topic_id
        return row.error_code


class Delete(Change[State]):
    """DeleteTopics, by name or by an id that it has, or had."""

    def __init__(self, topic: str, topic_id: UUID | None) -> None:
        super().__init__()
        self.topic = topic
        self.topic_id = topic_id
        if topic_id is None:
            self.nothing_there = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def __str__(self) -> str:
        return f"delete {self.topic_id or 'by name'}"

    def outcomes(self, state: State) -> Sequence[tuple[State, int]]:
        if self.topic_id is not None and state.topic_id != self.topic_id:
            if isinstance(state.topic_id, str):  # it may be this one
                return [(state, ErrorCode.UNKNOWN_TOPIC_ID), (NONE, 0)]
            return [(state, ErrorCode.UNKNOWN_TOPIC_ID)]
        if state.topic_id is None:
            return [(state, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        return [(NONE, 0)]

    async def ask(self, client: WireClient) -> int:
        meant = admin.DeleteTopicsRequestTopic(name=self.topic, topic_id=ZERO_UUID)
        if self.topic_id is not None:
            meant = admin.DeleteTopicsRequestTopic(name=None, topic_id=self.topic_id)
        request = admin.DeleteTopicsRequest(topics=[meant], timeout_ms=1000)
        (row,) = (await client.ask(request, admin.DeleteTopicsResponse, 6)).responses
        return row.error_code


class Grow(Change[State]):
    """CreatePartitions."""

    def __init__(self, topic: str, count: int) -> None:
        super().__init__()
        self.topic = topic
        self.count = count

    def __str__(self) -> str:
        return f"grow to {self.count}"

    def outcomes(self, state: State) -> Sequence[tuple[State, int]]:
        if state.topic_id is None:
            return [(state, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        if self.count <= state.partitions:
            return [(state, ErrorCode.INVALID_PARTITIONS)]
        return [(state._replace(partitions=self.count), 0)]

    async def ask(self, client: WireClient) -> int:
        topic = admin.CreatePartitionsRequestTopic(
            name=self.topic, count=self.count, assignments=None
        )
        request = admin.CreatePartitionsRequest(
            topics=[topic], timeout_ms=1000, validate_only=False
        )
        (row,) = (await client.ask(request, admin.CreatePartitionsResponse, 3)).results
        return row.error_code


class Alter(Change[State]):
    """IncrementalAlterConfigs, or AlterConfigs: then all that is set."""

    may_hold = True

    def __init__(self, topic: str, values: Mapping[str, str | None], *, whole: bool) -> None:
        super().__init__()
        self.topic = topic
        self.values = values
        self.whole = whole

    def __str__(self) -> str:
        return f"{'replace by' if self.whole else 'alter'} {self.values}"

    def outcomes(self, state: State) -> Sequence[tuple[State, int]]:
        if state.topic_id is None:
            return [(state, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        values = {} if self.whole else dict(state.settings)
        for name, value in self.values.items():
            values.pop(name, None)
            if value is not None:
                values[name] = value
        try:
            before, after = TopicConfig.parse(dict(state.settings)), TopicConfig.parse(values)
            check_class_change(before.durability, after.durability)
        except InvalidConfig:
            return [(state, ErrorCode.INVALID_CONFIG)]
        return [(state._replace(settings=settings_of(values)), 0)]

    async def ask(self, client: WireClient) -> int:
        if self.whole:
            whole = admin.AlterConfigsRequestResource(
                resource_type=TOPIC,
                resource_name=self.topic,
                configs=[
                    admin.AlterConfigsRequestConfig(name=name, value=value)
                    for name, value in self.values.items()
                ],
            )
            replacing = admin.AlterConfigsRequest(resources=[whole], validate_only=False)
            (row,) = (await client.ask(replacing, admin.AlterConfigsResponse, 2)).responses
            return row.error_code
        part = admin.IncrementalAlterConfigsRequestResource(
            resource_type=TOPIC,
            resource_name=self.topic,
            configs=[
                admin.IncrementalAlterConfigsRequestConfig(
                    name=name,
                    config_operation=DELETE_KEY if value is None else SET_KEY,
                    value=value,
                )
                for name, value in self.values.items()
            ],
        )
        request = admin.IncrementalAlterConfigsRequest(resources=[part], validate_only=False)
        (row,) = (await client.ask(request, admin.IncrementalAlterConfigsResponse, 1)).responses
        return row.error_code


class Commit(Change[State]):
    """OffsetCommit of a group without members, for partition 0; by name, or by an id."""

    def __init__(self, topic: str, topic_id: UUID | None, offset: int) -> None:
        super().__init__()
        self.topic = topic
        self.topic_id = topic_id
        self.offset = offset

    def __str__(self) -> str:
        return f"commit {self.offset} {self.topic_id or 'by name'}"

    def outcomes(self, state: State) -> Sequence[tuple[State, int]]:
        done = (state._replace(offset=self.offset), 0)
        if self.topic_id is not None and state.topic_id != self.topic_id:
            other = (state, ErrorCode.UNKNOWN_TOPIC_ID)
            return [other, done] if isinstance(state.topic_id, str) else [other]
        if state.topic_id is None:
            return [(state, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        return [done]

    async def ask(self, client: WireClient) -> int:
        one = groups.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=self.offset, committed_metadata=None
        )
        topic = groups.OffsetCommitRequestTopic(name=self.topic, partitions=[one])
        if self.topic_id is not None:
            topic.topic_id = self.topic_id
        request = groups.OffsetCommitRequest(
            group_id=group_of(self.topic), member_id="", topics=[topic]
        )
        version = 9 if self.topic_id is None else 10
        reply = await client.ask(request, groups.OffsetCommitResponse, version)
        return reply.topics[0].partitions[0].error_code


class Forget(Change[State]):
    """OffsetDelete, or DeleteGroups."""

    nothing_there = ErrorCode.GROUP_ID_NOT_FOUND

    def __init__(self, topic: str, *, whole: bool) -> None:
        super().__init__()
        self.topic = topic
        self.whole = whole

    def __str__(self) -> str:
        return "delete the group" if self.whole else "delete the offset"

    def outcomes(self, state: State) -> Sequence[tuple[State, int]]:
        done = state._replace(offset=-1)
        if state.offset >= 0:
            return [(done, 0)]
        # A group without offsets may be there or not.
        codes = (0, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return [(done, code) for code in codes]

    async def ask(self, client: WireClient) -> int:
        group = group_of(self.topic)
        if self.whole:
            asked = groups.DeleteGroupsRequest(groups_names=[group])
            (row,) = (await client.ask(asked, groups.DeleteGroupsResponse, 2)).results
            return row.error_code
        topic = groups.OffsetDeleteRequestTopic(
            name=self.topic, partitions=[groups.OffsetDeleteRequestPartition(partition_index=0)]
        )
        request = groups.OffsetDeleteRequest(group_id=group, topics=[topic])
        reply = await client.ask(request, groups.OffsetDeleteResponse, 0)
        return reply.error_code or reply.topics[0].partitions[0].error_code


class Share(Change[State]):
    """AlterShareGroupOffsets, for partition 0; or with -1 DeleteShareGroupOffsets."""

    def __init__(self, topic: str, start: int) -> None:
        super().__init__()
        self.topic = topic
        self.start = start

    def __str__(self) -> str:
        return f"share from {self.start}"

    def outcomes(self, state: State) -> Sequence[tuple[State, int]]:
        if self.start < 0 and state.share < 0:
            codes = (0, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return [(state, code) for code in codes]
        if state.topic_id is None:
            return [(state, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        return [(state._replace(share=self.start), 0)]

    async def ask(self, client: WireClient) -> int:
        group = f"share-{self.topic}"
        if self.start < 0:
            gone = shares.DeleteShareGroupOffsetsRequestTopic(topic_name=self.topic)
            deletion = shares.DeleteShareGroupOffsetsRequest(group_id=group, topics=[gone])
            told = await client.ask(deletion, shares.DeleteShareGroupOffsetsResponse, 0)
            return told.error_code or told.responses[0].error_code
        one = shares.AlterShareGroupOffsetsRequestPartition(
            partition_index=0, start_offset=self.start
        )
        topic = shares.AlterShareGroupOffsetsRequestTopic(topic_name=self.topic, partitions=[one])
        request = shares.AlterShareGroupOffsetsRequest(group_id=group, topics=[topic])
        reply = await client.ask(request, shares.AlterShareGroupOffsetsResponse, 0)
        return reply.error_code or reply.responses[0].partitions[0].error_code


def group_of(topic: str) -> str:
    return f"group-{topic}"


class Topic(Subject[State]):
    """See the module."""

    def __init__(self, name: str, lives: Lives, clients: int, *, keeps: bool) -> None:
        """keeps: none of its settings takes records away."""
        super().__init__(name, NONE, lives, clients)
        self.keeps = keeps
        self.ids: list[UUID] = []
        """All that were seen, the last one at the end."""
        self.epochs: dict[int, int] = {}
        """By partition the highest leader epoch that was seen."""
        self.epoch_of: UUID | None = None
        self.states: list[list[State]] = [[NONE]]
        """What may have been, over time: before a round, within it, after it."""
        self._made = 0
        self.hardened: Callable[[UUID, float], None] = lambda topic_id, until: None
        """Told that the topic has become of class fsync, and since when (s)."""
        self._is_firm = False
        """Whether the last change of settings was answered, and nothing has failed since."""

    # Changes

    def draw(self, random: Random) -> Change[State]:
        state = self.belief.states[0]
        if state.topic_id is None and random.random() < 0.9:
            return self._create(random)
        match random.randrange(20):
            case 0:
                return self._create(random)
            case 1:
                return Delete(self.name, None)
            case 2:
                return Delete(self.name, random.choice(self.ids) if self.ids else None)
            case 3 | 4:
                return Grow(self.name, min(5, state.partitions + random.choice((0, 1, 1, 2))))
            case 5 | 6:
                return Alter(self.name, self._settings(random, 3), whole=True)
            case 7 | 8 | 9 | 10 | 11 | 12 | 13:
                some: dict[str, str | None] = dict(self._settings(random, 2))
                if random.random() < 0.5:
                    some |= self._class(random)
                for name, _ in state.settings:
                    if random.random() < 0.3:
                        some[name] = None
                return Alter(self.name, some, whole=False)
            case 14 | 15 | 16:
                topic_id = random.choice((None, random.choice(self.ids))) if self.ids else None
                return Commit(self.name, topic_id, random.randint(0, 50))
            case 17:
                return Forget(self.name, whole=random.random() < 0.5)
            case _:
                return Share(self.name, random.choice((-1, random.randint(0, 50))))

    def _create(self, random: Random) -> Create:
        self._made += 1
        return Create(self.name, random.randint(1, 3), self._settings(random, 3), self._made)

    def _class(self, random: Random) -> dict[str, str]:
        """One that may be changed to."""
        return {"durability": random.choice(("fsync", "fsync", "disk", "memory"))}

    def _settings(self, random: Random, most: int) -> dict[str, str]:
        found = random_settings(random, most)
        if self.keeps:
            for name in TAKES_RECORDS:
                found.pop(name, None)
            if found.get("durability") == "ephemeral":
                del found["durability"]
        return found

    def begins(self, changes: list[Change[State]]) -> None:
        """Whatever any of them would make of it may be within the round."""
        may_be = list(self.belief.states)
        for _ in changes:
            may_be += [
                after for change in changes for one in may_be for after, _ in change.outcomes(one)
            ]
            may_be = list(dict.fromkeys(may_be))
        self.states.append(may_be)

    def heard(self, changes: list[Change[State]]) -> None:
        """What was answered in a round."""
        if any(change.is_in_doubt for change in changes):
            self._is_firm = False
            self.lives.lag()
        elif any(isinstance(change, Alter) and not change.code for change in changes):
            self._is_firm = True

    def restarted(self) -> None:
        self._is_firm = False

    def ended(self) -> None:
        self.states.append(list(self.belief.states))

    def was_compacted(self, topic_id: UUID) -> bool:
        """Whether records of this one may have gone for later ones of their keys."""
        return any(
            "compact" in dict(one.settings).get("cleanup.policy", "")
            for some in self.states
            for one in some
            if one.topic_id == topic_id or isinstance(one.topic_id, str)
        )

    # Looks

    async def look(self, process: Process, client: WireClient) -> None:
        since = self.world.now()
        topic_id, partitions = await self._described(client)
        settings = await self._settings_told(client) if topic_id is not None else ()
        offset, share = await self._offset(client), await self._share(client)
        seen = State(topic_id, partitions, settings, offset, share)

        def fits(state: State) -> State | None:
            known = state.topic_id
            if isinstance(known, str) and topic_id is not None and topic_id not in self.ids:
                known = topic_id
            # The group of a topic that is not there has no offset that anybody could be told.
            return seen if state._replace(topic_id=known) == seen else None

        self.belief.seen(fits, seen)
        if topic_id is not None and topic_id not in self.ids:
            self.ids.append(topic_id)
        self.ended()
        if topic_id is not None:
            if self._is_firm and seen.durability == "fsync":
                self.hardened(topic_id, since)
            await self._in_force(process, client, seen)

    async def _described(self, client: WireClient) -> tuple[UUID | None, int]:
        asked = core.MetadataRequest(
            topics=[core.MetadataRequestTopic(name=self.name)], allow_auto_topic_creation=False
        )
        (row,) = (await client.ask(asked, core.MetadataResponse, 12)).topics
        if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None, 0
        if row.error_code or sorted(p.partition_index for p in row.partitions) != list(
            range(len(row.partitions))
        ):
            raise Difference(f"metadata of {self.name}: {row}")
        for one in row.partitions:
            least = self.epochs.get(one.partition_index, -1)
            is_new = self.epoch_of != row.topic_id
            if one.leader_epoch < least + (is_new and least >= 0):
                raise Difference(
                    f"the leader epoch of {self.name}-{one.partition_index} is {one.leader_epoch}, "
                    f"it was {least} {'of the topic before' if is_new else ''}"
                )
        if self.epoch_of != row.topic_id:
            highest = max((one.leader_epoch for one in row.partitions), default=0)
            self.epochs = dict.fromkeys(self.epochs, highest)
            self.epoch_of = row.topic_id
        self.epochs |= {one.partition_index: one.leader_epoch for one in row.partitions}
        return row.topic_id, len(row.partitions)

    async def _settings_told(self, client: WireClient) -> Settings:
        wanted = admin.DescribeConfigsRequestResource(
            resource_type=TOPIC, resource_name=self.name, configuration_keys=None
        )
        request = admin.DescribeConfigsRequest(resources=[wanted])
        (row,) = (await client.ask(request, admin.DescribeConfigsResponse, 4)).results
        if row.error_code:
            raise Difference(f"settings of {self.name}: {row.error_code} {row.error_message}")
        return settings_of(
            {one.name: one.value or "" for one in row.configs if one.config_source == OF_TOPIC}
        )

    async def _offset(self, client: WireClient) -> int:
        topic = groups.OffsetFetchRequestGroupTopic(name=self.name, partition_indexes=[0])
        group = groups.OffsetFetchRequestGroup(group_id=group_of(self.name), topics=[topic])
        request = groups.OffsetFetchRequest(groups=[group])
        (row,) = (await client.ask(request, groups.OffsetFetchResponse, 9)).groups
        return row.topics[0].partitions[0].committed_offset if row.topics else -1

    async def _share(self, client: WireClient) -> int:
        group = shares.DescribeShareGroupOffsetsRequestGroup(
            group_id=f"share-{self.name}", topics=None
        )
        request = shares.DescribeShareGroupOffsetsRequest(groups=[group])
        (row,) = (await client.ask(request, shares.DescribeShareGroupOffsetsResponse, 1)).groups
        found = [one.start_offset for topic in row.topics for one in topic.partitions]
        return found[0] if found else -1

    async def _in_force(self, process: Process, client: WireClient, state: State) -> None:
        """What is described is what is done: asked by a batch that the settings decide about."""
        manager, topics = process.manager, process.broker.core.topics
        async with topics._administration:  # defaults of all topics may be about to change
            config = manager.topics[self.name].config
            if settings_of(config.overrides) != state.settings:
                raise Difference(f"{config} is in force, {state.settings} is described")
            for (name, index), handler in list(manager.handlers.items()):
                if name != self.name or handler.config == config or handler.read_only is not None:
                    continue
                if self.lives.lagging is not process:
                    raise Difference(
                        f"{name}-{index} goes by {told(handler.config)}, not by {told(config)}"
                    )
        size = self.random.choice((100, 500, 1500))
        key = None if self.random.random() < 0.2 else b"probe"
        now_ms = self.world.wall_ms()
        records = encode_batch([b"%" * size], keys=[key], timestamps_ms=now_ms)
        request = produce_request(self.name, records)
        reply = await client.ask(request, core.ProduceResponse, 9)
        row = reply.responses[0].partition_responses[0]
        self.world.trace("probe", self.name, size, row.error_code, row.base_offset)
        is_other = manager.topics[self.name].config != config  # meanwhile
        if row.error_code in FAILED or row.error_code == ErrorCode.POLICY_VIOLATION or is_other:
            return
        if self.lives.lagging is process:
            return
        expected = 0
        if config.compacts and key is None:
            expected = ErrorCode.INVALID_RECORD
        if len(records) > config.max_message_bytes and config.recompression is None:
            expected = ErrorCode.MESSAGE_TOO_LARGE
        if config.recompression is not None and row.error_code == ErrorCode.MESSAGE_TOO_LARGE:
            return
        if row.error_code != expected:
            raise Difference(
                f"a batch of {len(records)} bytes, key {key!r}: {row.error_code}, it should be "
                f"{expected} by {config}"
            )
        if not expected and (row.log_append_time_ms >= 0) != config.stamps_append_time:
            raise Difference(f"appended at {row.log_append_time_ms}: {config}")


def told(config: TopicConfig) -> str:
    return f"{config.overrides} over {config.inherited}"
