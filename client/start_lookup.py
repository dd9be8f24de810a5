"""Where partitions begin, and where a bounded reading of them ends: looked up, and written down.

The end is looked up first: a reading bounded by it must not miss what is written between the two.
What was sought or assigned anew meanwhile (`generation`), or goes on in another topic of the name
(`round`), is left alone, and so is what is not served: the others do not wait for it.
"""

from collections.abc import Sequence

from .assigned import PartitionState
from .engine import Call, Engine
from .errors import BrokerError
from .lookups import END_TIME, START_TIME, FoundOffset, look_up, topics_known
from .records import TopicPartition
from .starting import is_from_end, needs_end, offset_of, start_time


def find_starts(
    engine: Engine, wanted: Sequence[PartitionState], *, stop_at_end: bool, isolation_level: int
) -> Call[dict[TopicPartition, BrokerError]]:
    """Give each of the partitions its position, and with `stop_at_end` its end; those that are not
    served, and why."""
    asked = {state: state.version for state in wanted}
    times: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    starts: dict[TopicPartition, int] = {}
    unserved: dict[TopicPartition, BrokerError] = {}
    for state in wanted:
        time = start_time(state.start)
        if state.position is None and time is not None:
            times[state.tp] = time
        if (stop_at_end and state.stop_offset is None) or needs_end(state.start):
            ends[state.tp] = END_TIME
        if is_from_end(state.start):
            starts[state.tp] = START_TIME

    def look(asked: dict[TopicPartition, int]) -> Call[dict[TopicPartition, FoundOffset]]:
        asked = {tp: time for tp, time in asked.items() if tp not in unserved}
        if not asked:
            return {}
        level = isolation_level
        return (yield from look_up(engine, asked, isolation_level=level, unserved=unserved))

    views = yield from topics_known(engine, {state.tp.topic for state in wanted})
    topic_ids = {view.name: view.topic_id for view in views}
    found_ends = yield from look(ends)
    found = yield from look(times)
    found_starts = yield from look(starts)
    for state in wanted:
        tp = state.tp
        if state.version != asked[state] or tp in unserved:
            continue
        if stop_at_end and state.stop_offset is None:
            state.stop_offset = found_ends[tp].offset
        if state.position is None:
            end = found_ends[tp].offset if tp in found_ends else 0
            offset = offset_of(state.start, found.get(tp), end, found_starts.get(tp))
            state.position = state.fetch_offset = offset
            state.topic_id = topic_ids[tp.topic]
    return unserved
