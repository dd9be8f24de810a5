"""What a record costs in a loop over it, without a broker; `python -m bench.loops`.

Processor time per record, the least of several rounds, the ways in turn in each round:

    for, async for         empty loops over what is ready, as the two consumers hand it out; the
                           difference is what the interpreter asks of `async for`: three calls by
                           slot (__anext__, __await__, send) instead of one
    whole, in parts        the records of a batch made at once, or a few at a time as they are
                           handed out, with a loop over them
"""

import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from segbroker.client.assigned import PartitionState
from segbroker.client.consumed import ConsumedBatch
from segbroker.client.handout import Handout
from segbroker.client.progress import Handing
from segbroker.client.records import TopicPartition
from segbroker.protocol.record_batch import decode_batch, encode_batch

ROUNDS = 15
COUNT = 200_000
LISTS = [[None] * 256] * (COUNT // 256)


def _for() -> None:
    for _ in chain.from_iterable(LISTS):
        pass


def _async_for() -> None:
    lists = iter(LISTS)

    async def refill(handout: Handout) -> Any:  # noqa: ANN401 - whatever is in the lists
        for items in lists:
            handout.items = iter(items)
            for item in handout.items:
                return item
        raise StopAsyncIteration

    async def loop() -> None:
        async for _ in Handout(refill):
            pass

    try:
        loop().send(None)
    except StopIteration:
        return
    raise AssertionError("it waited")


def _batch(count: int, size: int) -> ConsumedBatch:
    encoded = encode_batch([bytes(size)] * count, timestamps_ms=1_700_000_000_000)
    return ConsumedBatch("orders", 0, decode_batch(encoded), from_offset=0)


def _whole(batch: ConsumedBatch) -> Callable[[], None]:
    def run() -> None:
        for _ in range(COUNT // len(batch)):
            for record in batch.records():
                record.value  # noqa: B018 - what every caller does

    return run


def _in_parts(batch: ConsumedBatch) -> Callable[[], None]:
    state = PartitionState(TopicPartition(batch.topic, batch.partition), 0, {})

    def parts() -> Iterator[Iterator[Any]]:
        for _ in range(COUNT // len(batch)):
            handing = Handing(state, batch, len(batch))
            while (part := handing.more()) is not None:
                yield part

    def run() -> None:
        for record in chain.from_iterable(parts()):
            record.value  # noqa: B018 - as above

    return run


def main() -> None:
    ways: dict[str, Callable[[], None]] = {"for": _for, "async for": _async_for}
    for count, size in ((500, 100), (10_000, 100), (1_000, 1024), (10_000, 1024)):
        batch = _batch(count, size)
        ways[f"batches of {count:,} x {size} B, whole"] = _whole(batch)
        ways[f"batches of {count:,} x {size} B, in parts"] = _in_parts(batch)
    least: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, run in ways.items():
            began = time.process_time()
            run()
            took = (time.process_time() - began) / COUNT * 1e9
            least[name] = min(took, least.get(name, took))
    for name, ns in least.items():
        sys.stdout.write(f"  {name:40}{ns:8.0f} ns/record\n")


if __name__ == "__main__":
    main()
