"""A compacted log against its model, through every operation in any order.

The model: what was written at each offset, which of it was aborted, and how far the log is clean.
Class `fsync`: what was appended is durable, so a power cut changes nothing the model knows.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from segbroker.protocol.compression import Codec
from segbroker.protocol.markers import Outcome
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.log.sealing import seal

from .compacted import DAY, Compacted

KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
RECORDS = st.lists(
    st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=120))), min_size=1, max_size=3
)
CODECS = st.sampled_from([Codec.NONE, Codec.LZ4])


class CompactedMachine(RuleBasedStateMachine):
    """A compacted partition with transactions, restarts and power cuts."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Compacted(MemoryStorage(), delete_retention_ms=DAY)
        self.sequences = {7: 0, 8: 0}
        self.open: dict[int, list[int]] = {}

    @rule(records=RECORDS, codec=CODECS)
    def send(self, records: list[tuple[bytes, bytes | None]], codec: Codec) -> None:
        self.log.send(*records, codec=codec)

    @rule(records=RECORDS, producer=st.sampled_from([7, 8]))
    def send_in_a_transaction(
        self, records: list[tuple[bytes, bytes | None]], producer: int
    ) -> None:
        sequence = self.sequences[producer]
        base = self.log.send(*records, producer=(producer, 0, sequence), transactional=True)
        self.sequences[producer] += len(records)
        offsets = range(base, base + len(records))
        self.open.setdefault(producer, []).extend(offsets)

    @rule(producer=st.sampled_from([7, 8]), outcome=st.sampled_from(Outcome))
    def end_the_transaction(self, producer: int, outcome: Outcome) -> None:
        if producer in self.open:
            self.log.end(outcome, (producer, 0), self.open.pop(producer))

    @rule()
    def clean_all(self) -> None:
        self.log.clean()

    @rule(steps=st.integers(0, 6))
    def clean_in_part(self, steps: int) -> None:
        """A cleaning that is given up after some steps, as by the end of the process."""
        log = self.log
        seal(log.handler._log)
        log.touched_offset = log.handler._log.active.base_offset
        running = log.handler.compacting.clean(log.now_ms, log.now_ms, 1 << 20)
        for _ in range(steps):
            if next(running, None) is None:
                return
        assert hasattr(running, "close")
        running.close()

    @rule(offset=st.integers(0, 60))
    def read(self, offset: int) -> None:
        if self.log.handler.log_start_offset <= offset <= self.log.handler.high_watermark:
            self.log.check(offset)

    @rule()
    def close_and_open(self) -> None:
        self.log.manager.close()
        self.log.open()

    @rule()
    def kill(self) -> None:
        self.log.disk = self.log.disk.after_kill()
        self.log.open()

    @rule()
    def cut_the_power(self) -> None:
        self.log.disk = self.log.disk.after_power_cut()
        self.log.open()

    @rule(name=st.sampled_from([".index", ".producers", ".manifest"]))
    def lose_files(self, name: str) -> None:
        """What the log itself can say again."""
        disk = self.log.disk.after_kill()
        folder = "/data/topics/t/partition_0"
        for one in disk.listdir(folder):
            if one.endswith(name):
                disk.unlink(f"{folder}/{one}")
        self.log.disk = disk
        self.log.open()

    @rule(ms=st.sampled_from([1, 2_000, DAY]))
    def let_time_pass(self, ms: int) -> None:
        self.log.now_ms += ms
        self.log.manager.housekeeping(self.log.now_ms)

    @invariant()
    def the_ends_agree(self) -> None:
        handler = self.log.handler
        assert handler.log_start_offset == 0
        assert handler.log_end_offset == handler.high_watermark
        assert set(handler.transactions.open) == set(self.open)

    def teardown(self) -> None:
        self.log.check()
        self.log.manager.close()


TestCompacted = CompactedMachine.TestCase
TestCompacted.settings = settings(max_examples=8, stateful_step_count=20, deadline=None)
