"""The steps that scenarios are made of: each does something and says in the model what it promises.

driver.create("t", 2)           a topic
driver.append("t", 0, 3)        three batches, each acknowledged or not as its class says
driver.tick()                   what the broker does once a second
driver.close(); driver.open()   in order; `kill` and `cut` are the other two ways to end
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from segbroker.protocol.compression import Codec
from segbroker.protocol.markers import Outcome, encode_marker
from segbroker.protocol.record_batch import check_batch, encode_batch, read_header
from segbroker.segments.directory.cleaner import Cleaner
from segbroker.segments.directory.manager import DiskManager, NewTopic, TopicMeta
from segbroker.segments.disk.memory import _Directory
from segbroker.segments.disk.storage import read_file
from segbroker.segments.errors import StorageError
from segbroker.segments.files.manifest import HEADER_SIZE, ROW_SIZE, decode_manifest
from segbroker.segments.metadata.committed import COMMITTED, FORGOTTEN, CommitRow
from segbroker.segments.metadata.consumer_groups import CONSUMER_GROUP
from segbroker.segments.metadata.control import Event, apply, decode_event
from segbroker.segments.metadata.generations import GENERATION, Generation, KeptMember
from segbroker.segments.metadata.share_groups import (
    FORGOTTEN as SHARES_FORGOTTEN,
)
from segbroker.segments.metadata.share_groups import (
    OFFSETS_SET,
    STATES,
    RecordState,
    ShareRow,
    Span,
    offsets_set_fields,
    state_of,
    states_fields,
)
from segbroker.segments.metadata.share_groups import (
    SECTION as SHARES,
)
from segbroker.segments.metadata.streams_groups import STREAMS_GROUP, Both, Task
from segbroker.segments.metadata.streams_groups import KeptMember as StreamsMember
from segbroker.segments.names import partition_paths
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import Durability, TopicConfig
from segbroker.segments.settings.topic_defaults import SET
from segbroker.segments.wal.group import Item
from segbroker.segments.wal.journal import WalConfig

from .explorer import Explorer, Plan
from .model import Life, PartitionModel, Sent
from .observing import ROOT, TINY_WAL, broker_opener, text_of

TICK_MS = 1_000
SMALL = {"segment.bytes": "512", "index.interval.bytes": "4096"}


class Driver:
    """A DiskManager without threads on a recording disk."""

    def __init__(self, plan: Plan, name: str = "", wal: WalConfig = TINY_WAL) -> None:
        """wal: of the recovery of images; `self.wal` is that of the scenario itself."""
        self.explorer = Explorer(broker_opener(wal), plan, name)
        self.wal = wal
        self.explorer.refresh = self._refresh
        self.disk = self.explorer.disk
        self.model = self.explorer.model
        self.now_ms = 1_000
        self.number = 0
        self.epochs: dict[str, int] = {}
        """The highest topic epoch of each name."""
        self.manager: DiskManager | None = None

    # The process

    def open(self) -> None:
        manager = DiskManager(
            ROOT,
            storage=self.disk,
            flushers=0,
            wal=self.wal,
            now_ms=self.now_ms,
            clock=lambda: 0.0,
        )
        manager.open()
        self.manager = manager
        self.model.identity = manager.cluster_id
        self._changed()

    @property
    def running(self) -> DiskManager:
        assert self.manager is not None, "opened"
        return self.manager

    def close(self) -> None:
        """In order: everything written is durable, where nothing failed."""
        sound = [key for key, handler in self.running.handlers.items() if not handler.read_only]
        with contextlib.suppress(ExceptionGroup):
            self.running.close()
            for topic, number in sound:
                partition = self.model.partition(topic, number)
                partition.durable = max(partition.durable, partition.acked)
                partition.settled_at = len(partition.sent)
        self.manager = None
        self.disk.failed.clear()  # whoever opens it again has no descriptor of before
        self._changed()

    def kill(self) -> None:
        """The process ends here; what was written is still there."""
        self.manager = None
        self.disk.restart()

    def handler(self, topic: str, partition: int = 0) -> DiskHandler:
        return self.running.get_handler(topic, partition)

    # What has been acknowledged

    def _refresh(self) -> None:
        if self.manager is None:
            return
        changed = False
        for (topic, number), handler in self.manager.handlers.items():
            lives = self.model.topics.get(topic, [])
            life = lives[0] if lives else None
            if life is None or number >= len(life.partitions):
                continue
            model = life.partitions[number]
            acked = min(handler.high_watermark, model.end)
            if acked > model.acked:
                model.acked = acked
                changed = True
            if model.durability is Durability.FSYNC and model.durable < model.acked:
                model.durable = model.acked
                changed = True
        if changed:
            self.model.changed()

    def _changed(self) -> None:
        self.model.changed()
        self.explorer.step_done()

    # Topics

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        overrides = {**SMALL, **{key.replace("_", "."): text for key, text in config.items()}}
        durability = TopicConfig(overrides).durability
        life = Life(
            [PartitionModel(durability) for _ in range(partitions)], partitions, [overrides]
        )
        before = self.model.topics.get(name, [None])
        self.model.topics[name] = [life, *before]
        try:
            meta = self.running.create_topic(name, partitions, TopicConfig(overrides))
        except StorageError:
            return  # there or not
        life.topic_id = meta.topic_id.bytes
        self.model.topics[name] = [life]
        for partition in life.partitions:
            partition.epoch_min = meta.epoch
        highest = self.epochs.get(name, -1)
        assert meta.epoch > highest, f"I4: {name} begins in epoch {meta.epoch}, was in {highest}"
        self.epochs[name] = meta.epoch
        self._changed()

    def create_all(self, *names: str) -> None:
        """Topics of one partition, made together."""
        wanted = [NewTopic(name, 1, TopicConfig(SMALL)) for name in names]
        for new in wanted:
            life = Life([PartitionModel(new.config.durability)], 1, [dict(SMALL)])
            self.model.topics[new.name] = [life, *self.model.topics.get(new.name, [None])]
        for outcome in self.running.create_topics(wanted):
            assert isinstance(outcome, TopicMeta), outcome
            made = self.model.topics[outcome.name][0]
            assert made is not None
            made.topic_id, made.partitions[0].epoch_min = outcome.topic_id.bytes, outcome.epoch
            self.model.topics[outcome.name] = [made]
            assert outcome.epoch > self.epochs.get(outcome.name, -1), "I4"
            self.epochs[outcome.name] = outcome.epoch
        self._changed()

    def delete(self, name: str) -> None:
        self.delete_all(name)

    def delete_all(self, *names: str) -> None:
        for name in names:
            self.model.topics[name] = [*self.model.topics[name], None]
        after = self._may_delete(names)
        for outcome in self.running.delete_topics(names):
            if isinstance(outcome, StorageError):
                raise outcome  # gone or not
        for name in names:
            self.model.topics[name] = [None]
        self.model.sections = {after}
        self._changed()

    def _may_delete(self, names: Iterable[str]) -> str:
        """From now on topics are deleted, one behind the other, and with each what share groups did
        with it; what is known of all others in the end."""
        state = self.running._metadata.state
        known = [text_of(state.sections)]
        for name in names:
            fields = {"name": name, "id": self.running.topics[name].topic_id.bytes}
            state = apply(state, Event(state.seq + 1, "topic_deleted", fields))
            known.append(text_of(state.sections))
        self.model.sections = set(known)
        self.model.changed()
        return known[-1]

    def grow(self, name: str, count: int) -> None:
        life = self.model.topics[name][0]
        assert life is not None
        durability = life.partitions[0].durability
        life.partitions += [PartitionModel(durability) for _ in range(count - len(life.partitions))]
        self.model.changed()
        self.running.create_partitions(name, count)
        life.partitions_min = count
        self._changed()

    def alter(self, name: str, **config: str) -> None:
        life = self.model.topics[name][0]
        assert life is not None
        overrides = {**life.configs[-1]}
        overrides |= {key.replace("_", "."): text for key, text in config.items()}
        durability = TopicConfig(overrides).durability
        if durability is not Durability.FSYNC:
            self._set_durability(life, durability)  # less is promised from now on
        life.configs.append(overrides)
        self.model.changed()
        self.running.alter_topic(name, overrides)
        life.configs = [overrides]
        for partition in life.partitions:
            partition.may_be_refused &= overrides.get("on.corruption") == "refuse"
        if durability is Durability.FSYNC:
            self._set_durability(life, durability)
        self._changed()

    def _set_durability(self, life: Life, durability: Durability) -> None:
        # What was settled as another class has no reservation yet, and gets it with this one.
        life.partitions = [
            replace(p, durability=durability, settled_at=-1) for p in life.partitions
        ]

    def allocate(self, count: int) -> range:
        ids = self.running.allocate_producer_ids(count)
        self.model.producer_ids = ids.stop
        self._changed()
        return ids

    # Records

    def batch(
        self,
        records: int = 1,
        size: int = 40,
        producer: tuple[int, int, int] = (-1, -1, -1),
        codec: Codec = Codec.NONE,
    ) -> memoryview:
        """Values that nobody else has."""
        batch = batch_with(self.number, records, size, self.now_ms, producer, codec)
        self.number += records
        return batch

    def append(
        self,
        topic: str,
        partition: int = 0,
        count: int = 1,
        *,
        records: int = 1,
        size: int = 40,
        producer: tuple[int, int, int] | None = None,
        codec: Codec = Codec.NONE,
        here: bool = False,
    ) -> bool:
        """Append `count` batches; whether all of them were taken.

        here: who appends syncs for himself, as the loop does for a lone writer, where he may.
        """
        handler = self.handler(topic, partition)
        handler.flushes_on_append = not here
        for _ in range(count):
            self.now_ms += 1
            batch = self.batch(records, size, producer or (-1, -1, -1), codec)
            header = check_batch(batch)
            model = self.model.partition(topic, partition)
            base = handler.log_end_offset
            sent = Sent(base, base + records, batch, producer or (-1, -1, -1))
            model.sent.append(sent)
            self.model.changed()
            try:
                result = handler.append(batch, header, self.now_ms)
            except StorageError:
                return False  # there or not, nobody was told
            finally:
                if producer is not None:
                    producer = (*producer[:2], producer[2] + records)
            assert result.base_offset == base, f"I4: {result.base_offset} assigned, {base} expected"
            if here and not handler.flush_here(acknowledge=partial(self._answered, model, sent)):
                handler.flush_soon()
            self.explorer.step_done()
        return True

    def _answered(self, model: PartitionModel, sent: Sent) -> None:
        """A batch of class `fsync` is acknowledged, whatever the watermark says yet."""
        model.acked = model.durable = max(model.acked, sent.next_offset)
        self.model.changed()

    def append_together(self, topic: str, *sizes: int) -> None:
        """A batch of this size for each partition, all of them in one group of the WAL."""
        with self.one_group(topic):
            for partition, size in enumerate(sizes):
                self.append(topic, partition, size=size)

    @contextlib.contextmanager
    def one_group(self, topic: str) -> Iterator[None]:
        """What is appended meanwhile is one group of the WAL, written when it ends."""
        waiting: list[Item] = []
        shard = self.running.wal.shard_of(self.running.topics[topic].topic_id.bytes, 0)
        with patch.object(shard, "_put", waiting.append):
            yield
        with shard._writing:
            shard._commit(waiting, shard._call_soon)
        self.explorer.step_done()

    def put(
        self,
        topic: str,
        *pairs: tuple[bytes, bytes | None],
        producer: tuple[int, int, int] = (-1, -1, -1),
        transactional: bool = False,
        codec: Codec = Codec.NONE,
    ) -> None:
        """Append one batch of records with keys to partition 0."""
        batch = encode_batch(
            [value for _, value in pairs],
            keys=[key for key, _ in pairs],
            timestamps_ms=self.now_ms,
            codec=codec,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            transactional=transactional,
        )
        self._put(topic, 0, memoryview(bytearray(batch)), producer, records=len(pairs))

    def clean(self, topic: str, *, may_go: Iterable[int], buffer_bytes: int = 1 << 16) -> None:
        """Clean partition 0; `may_go` are the offsets that this may take, and some of it does."""
        self.model.partition(topic, 0).may_go.update(may_go)
        self.model.changed()
        handler = self.handler(topic)
        cleaner = Cleaner(self.running, 0, buffer_bytes, 0)
        cleaner.clean_now(handler, self.now_ms)
        self._changed()

    def transact(
        self, topic: str, producer: tuple[int, int, int], partition: int = 0, count: int = 1
    ) -> None:
        """Append batches of a transaction; the first of them begins it."""
        for n in range(count):
            sequence = (*producer[:2], producer[2] + n)
            batch = batch_with(self.number, 1, 40, self.now_ms, sequence, transactional=True)
            self.number += 1
            self._put(topic, partition, batch, sequence)

    def mark(self, topic: str, outcome: Outcome, producer_id: int, epoch: int = 0) -> None:
        """End the transaction of a producer in partition 0."""
        batch = memoryview(encode_marker(outcome, producer_id, epoch, self.now_ms))
        self._put(topic, 0, batch, (-1, -1, -1))

    def _put(
        self,
        topic: str,
        partition: int,
        batch: memoryview,
        producer: tuple[int, int, int],
        *,
        records: int = 1,
    ) -> None:
        handler = self.handler(topic, partition)
        self.now_ms += 1
        base = handler.log_end_offset
        sent = Sent(base, base + records, batch, producer)
        self.model.partition(topic, partition).sent.append(sent)
        self.model.changed()
        handler.append(batch, read_header(batch), self.now_ms)
        self.explorer.step_done()

    def choose(self, **values: str) -> None:
        """Choose settings for all topics, and no others."""
        chosen = {key.replace("_", "."): text for key, text in values.items()}
        after = self._may_record(SET, values=chosen)
        self.running.set_topic_defaults(chosen)
        self.model.sections = {after}
        self._changed()

    def _may_record(self, kind: str, **fields: object) -> str:
        """From now on this control event is known, or is not; what is known with it."""
        state = self.running._metadata.state
        before = text_of(state.sections)
        event = Event(state.seq + 1, kind, fields)
        after = text_of(apply(state, decode_event(event.encode())).sections)
        self.model.sections = {before, after}
        self.model.changed()
        return after

    def record(self, kind: str, **fields: object) -> None:
        """Write a control event; until it is durable what it says is known, or is not."""
        after = self._may_record(kind, **fields)
        failed: list[OSError] = []
        self.running.record_soon(lambda exc: failed.append(exc) if exc else None, kind, **fields)
        if not failed:
            self.model.sections = {after}
        self._changed()

    def repeat_last(self, topic: str, partition: int = 0) -> None:
        """The last batch of an idempotent producer once more: I5."""
        sent = self.model.partition(topic, partition).sent[-1]
        again = memoryview(bytearray(sent.batch))
        result = self.handler(topic, partition).append(again, check_batch(again), self.now_ms)
        assert (result.duplicate, result.base_offset) == (True, sent.base_offset), "I5"

    def sync(self, topic: str, partition: int = 0) -> None:
        handler = self.handler(topic, partition)
        end = handler.log_end_offset
        handler.sync()
        self._durable(topic, partition, end)

    def _durable(self, topic: str, partition: int, end: int) -> None:
        model = self.model.partition(topic, partition)
        model.durable = max(model.durable, min(end, model.acked))
        self._changed()

    def tick(self, *, by_ms: int = TICK_MS) -> None:
        """Time passes and the house is kept; what class disk had written is durable then."""
        self.now_ms += by_ms
        ends = {
            key: handler.log_end_offset
            for key, handler in self.running.handlers.items()
            if handler.config.durability is Durability.DISK
        }
        self.running.housekeeping(self.now_ms)
        for (topic, partition), end in ends.items():
            handler = self.handler(topic, partition)
            if handler.read_only is None and not handler.wants_attention:
                self._durable(topic, partition, end)
        self.explorer.step_done()

    def forget_unsent(self, topic: str, partition: int = 0) -> None:
        """What a failed write left was cut off: the offsets are assigned anew."""
        handler = self.handler(topic, partition)
        assert handler.read_only is None, "writable again"
        model = self.model.partition(topic, partition)
        model.sent = [sent for sent in model.sent if sent.next_offset <= handler.log_end_offset]
        self._changed()

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        model = self.model.partition(topic, partition)
        model.start_max = max(model.start_max, offset)
        self.model.changed()
        self.handler(topic, partition).delete_records_before(offset)
        model.start_min = model.start_max
        self._changed()

    def forget_all(self, topic: str, partition: int = 0) -> None:
        """Class ephemeral, and the process has ended: the log begins where offsets are free."""
        model = self.model.partition(topic, partition)
        handler = self.handler(topic, partition)
        assert handler.log_start_offset == handler.log_end_offset >= model.acked, "I4"
        model.sent.clear()
        self._changed()

    # Groups

    def commit(self, group: str, topic: str, offset: int, *, metadata: str = "") -> None:
        """A group stands at `offset` of partition 0."""
        meta = self.running.topics[topic]
        row = CommitRow(topic, meta.topic_id, 0, offset, 0, metadata)
        self.record(COMMITTED, group=group, at=self.now_ms, rows=[row.pack()])

    def forget(self, group: str) -> None:
        """Nothing is known of the group any more."""
        self.record(FORGOTTEN, group=group, rows=None)

    def generation(self, group: str, number: int, **assignments: bytes) -> None:
        """A classic group has this generation; assignments: by member id, none for nobody."""
        members = tuple(
            KeptMember(member_id, None, "c", "h", 10_000, 10_000, {"range": b"t"}, assignment)
            for member_id, assignment in assignments.items()
        )
        kept = Generation(number, "consumer", "range", next(iter(assignments), ""), members)
        self.record(GENERATION, group=group, **kept.fields())

    def forget_generation(self, group: str) -> None:
        """Nothing is known of its members any more."""
        self.record(GENERATION, group=group, members=None)

    def consumer_group(self, group: str, epoch: int, **members: int | None) -> None:
        """A KIP-848 group is at this epoch; members: partitions that each has, None: it left."""
        rows = {
            name: None if count is None else [None, None, "c", "h", 10_000, ["t"], "", "", None]
            for name, count in members.items()
        }
        has = {
            name: [epoch, epoch - 1, "stable", [[name.encode() * 16, list(range(count))]], [], None]
            for name, count in members.items()
            if count is not None
        }
        self.record(
            CONSUMER_GROUP,
            group=group,
            epoch=epoch,
            assignment_epoch=epoch,
            assignor="uniform",
            whole=False,
            says=rows,
            has=has,
        )

    def streams_group(
        self, group: str, epoch: int, *, topology: bool = False, **members: int | None
    ) -> None:
        """A streams group is at this epoch; members: tasks that each does, None: it left."""
        nothing: Both = (frozenset(), frozenset())
        rows: dict[str, list[Any] | None] = {}
        for name, count in members.items():
            rows[name] = None
            if count is not None:
                tasks = frozenset((name, number) for number in range(count))
                says = ["c", "h", None, 10_000, 0, name, ["h", 80], []]
                both = (tasks, frozenset[Task]())
                since = dict.fromkeys(tasks, epoch)
                kept = StreamsMember(says, epoch, 0, "stable", both, nothing, both, since)
                rows[name] = kept.row()
        self.record(
            STREAMS_GROUP,
            group=group,
            epoch=epoch,
            assignment_epoch=epoch,
            topology=[0, [[name, ["t"], [], [], [], []] for name in members]] if topology else None,
            whole=False,
            members=rows,
        )

    def share(self, group: str, topic: str, start: int, *spans: tuple[int, int, int, int]) -> None:
        """A share group is done with all below `start` of partition 0, and these have a fate."""
        row = self._share_row(topic, start, spans)
        begin = max(start, self.share_start(group, topic))
        fates = {at: fate for at, fate in self._shared(group, row).items() if at >= begin}
        for first, last, *fate in spans:
            fates |= dict.fromkeys(range(max(first, begin), last + 1), tuple(fate))
        while fates.get(begin, (RecordState.AVAILABLE,))[0] != RecordState.AVAILABLE:
            del fates[begin]
            begin += 1
        self.record(STATES, **states_fields(group, [row]))
        assert self._shared(group, row) == fates, "I1: what stands of others stays"
        assert self.share_start(group, topic) == begin, "I1: what it is done with it is done with"

    def share_start(self, group: str, topic: str) -> int:
        """Where a share group stands in partition 0; 0: nowhere."""
        row = self._share_row(topic, 0)
        content = self.running.section(SHARES) or {}
        known = state_of(content, group, topic, row.topic_id, 0)
        return known.start if known else 0

    def set_share(self, group: str, topic: str, start: int) -> None:
        """A share group begins there, in partition 0."""
        row = self._share_row(topic, start)
        self.record(OFFSETS_SET, **offsets_set_fields(group, [row]))
        assert not self._shared(group, row), "I1: it begins anew"

    def forget_share(self, group: str, *topics: str) -> None:
        """Nothing is known of these topics any more; none: of all."""
        self.record(SHARES_FORGOTTEN, group=group, topics=list(topics) or None)

    def _share_row(self, topic: str, start: int, spans: Sequence[tuple[int, ...]] = ()) -> ShareRow:
        topic_id = self.running.topics[topic].topic_id
        return ShareRow(topic, topic_id, 0, start, [Span(*span) for span in spans])

    def _shared(self, group: str, row: ShareRow) -> dict[int, tuple[int, ...]]:
        """What is known of each offset: its state, and how often it was handed out."""
        content = self.running.section(SHARES) or {}
        known = state_of(content, group, row.topic, row.topic_id, row.partition)
        return {
            offset: (span.state, span.deliveries)
            for span in (known.spans if known else ())
            for offset in range(span.first, span.last + 1)
        }

    def damage(self, topic: str, partition: int, base_offset: int, *, in_use: bool = False) -> None:
        """A byte of the batch at `base_offset` is another, on the disk; nobody has it open, but
        `in_use`."""
        assert in_use or self.manager is None, "closed or killed"
        model = self.model.partition(topic, partition)
        (sent,) = [s for s in model.sent if s.base_offset == base_offset]
        paths = partition_paths(ROOT, topic, partition)
        whole = bytes(sent.batch)
        for name in self.disk.listdir(paths.folder):
            if paths.segment_number(name) is None:
                continue
            place = read_file(self.disk, f"{paths.folder}/{name}").find(whole)
            if place >= 0:
                self._spoil(f"{paths.folder}/{name}", place + len(whole) - 3)
        model.damaged.append((base_offset, sent.next_offset))
        life = self.model.topics[topic][0]
        assert life is not None
        model.may_be_refused = any(c.get("on.corruption") == "refuse" for c in life.configs)
        self.model.changed()

    def damage_row(self, topic: str, partition: int, number: int) -> None:
        """A byte of the newest row of segment `number` is another, in the manifest of a log that
        nobody has open: it takes nothing."""
        assert self.manager is None, "closed or killed"
        path = partition_paths(ROOT, topic, partition).manifest
        manifest = decode_manifest(read_file(self.disk, path))
        assert manifest is not None, "it is whole so far"
        places = [place for place, row in enumerate(manifest.rows) if row.number == number]
        self._spoil(path, HEADER_SIZE + places[-1] * ROW_SIZE + 20)

    def _spoil(self, path: str, position: int) -> None:
        """A byte of a file is another, on the disk."""
        directory, name = self.disk._parent(path)
        inode = directory.names[name]
        assert not isinstance(inode, _Directory), "a file"
        inode.content[position] ^= 1
        inode.synced = bytes(inode.content)
        self.disk.pending.pop(inode, None)
        self.disk.versions[inode] = self.disk.versions.get(inode, 0) + 1

    def park(self) -> None:
        """Close the descriptors of everything that is not in use."""
        self.running.open_logs.open_max = 0
        self.running.open_logs.park_surplus()


def batch_with(
    number: int,
    records: int,
    size: int,
    now_ms: int,
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: Codec = Codec.NONE,
    *,
    transactional: bool = False,
) -> memoryview:
    """A batch whose values carry the numbers from `number` on."""
    values = [(b"record %06d " % (number + i)).ljust(size, b"x") for i in range(records)]
    producer_id, epoch, sequence = producer
    return memoryview(
        bytearray(
            encode_batch(
                values,
                timestamps_ms=now_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                codec=codec,
                transactional=transactional,
            )
        )
    )
