"""A share group meets offsets that were lost: one of its members gets the notice."""

from segbroker.protocol.record_batch import GapReason, gap_reason, iter_batches, read_header
from segbroker.protocol.schema import records_view
from segbroker.segments.disk.memory import MemoryStorage

from ..support.wire_client import connect
from ..support.wire_shares import GAP, Sharing, topic_id
from .restarts import broker_on
from .test_share_fetch import GROUP, offsets, sharing

WAIT = 30_000


async def test_the_last_offset_of_a_gap_is_handed_out_once_with_the_notice_of_it() -> None:
    storage = MemoryStorage()
    # Nothing is synced before the power is cut.
    async with broker_on(storage, housekeeping_interval_ms=3_600_000) as (_, (client,)):
        await client.create("t", durability="disk")
        await client.produce("t", b"a", b"b")
        assert offsets(await (await sharing(client)).fetch(0)) == [0, 1]
        after = storage.after_power_cut()
    async with broker_on(after) as (broker, (client,)), connect(broker.address) as other:
        topic = await topic_id(client, "t")
        one, two = Sharing(client, GROUP, topic), Sharing(other, GROUP, topic)
        await client.produce("t", b"new")
        partition = broker.core.topics.served_partition("t", 0)
        assert partition is not None
        end = partition.handler.high_watermark - 1
        assert end >= 2, "what was not synced is lost"

        assert await one.fetch(0, max_records=1, wait_ms=WAIT) == [], "no record"
        (acquired,) = one.rows[0].acquired_records
        assert (acquired.first_offset, acquired.last_offset) == (end - 1, end - 1)
        (notice,) = map(read_header, iter_batches(records_view(one.rows[0].records)))
        assert (notice.base_offset, notice.next_offset) == (0, end)
        assert gap_reason(notice) is GapReason.LOST_TAIL

        assert offsets(await two.fetch(0, wait_ms=WAIT)) == [end], "the other one hears nothing"
        (acquired,) = two.rows[0].acquired_records
        assert (acquired.first_offset, acquired.last_offset) == (end, end)
        assert await one.fetch(said={0: [(end - 1, end - 1, [GAP])]}) == []
        assert broker.core.shares.start_offset(GROUP, one.topic, 0) == end
