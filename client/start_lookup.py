"""Where partitions begin, and where a bounded reading of them ends: looked up, and written down.

The end is looked up first: a reading bounded by it must not miss what is written between the two.
What was sought or assigned anew meanwhile (`generation`) is left alone.
"""

from collections.abc import Sequence

from .assigned import PartitionState
from .engine import Call, Engine
from .lookups import END_TIME, START_TIME, FoundOffset, look_up, topics_known
from .records import TopicPartition
from .starting import is_from_end, needs_end, offset_of, start_time


def find_starts(
    engine: Engine, wanted: Sequence[PartitionState], *, stop_at_end: bool, isolation_level: int
) -> Call[None]:
    """Give each of the partitions its position, and with `stop_at_end` its end."""
    generations = {state: state.generation for state in wanted}
    times: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    starts: dict[TopicPartition, int] = {}
    for state in wanted:
        time = start_time(state.start)
        if state.position is None and time is not None:
            times[state.tp] = time
        if (stop_at_end and state.stop_offset is None) or needs_end(state.start):
            ends[state.tp] = END_TIME
        if is_from_end(state.start):
            starts[state.tp] = START_TIME

    def look(asked: dict[TopicPartition, int]) -> Call[dict[TopicPartition, FoundOffset]]:
        if not asked:
            return {}
        return (yield from look_up(engine, asked, isolation_level=isolation_level))

    views = yield from topics_known(engine, {state.tp.topic for state in wanted})
    topic_ids = {view.name: view.topic_id for view in views}
    found_ends = yield from look(ends)
    found = yield from look(times)
    found_starts = yield from look(starts)
    for state in wanted:
        if state.generation != generations[state]:
            continue
        tp = state.tp
        if stop_at_end and state.stop_offset is None:
            state.stop_offset = found_ends[tp].offset
        if state.position is None:
            end = found_ends[tp].offset if tp in found_ends else 0
            offset = offset_of(state.start, found.get(tp), end, found_starts.get(tp))
            state.position = state.fetch_offset = offset
            state.topic_id = topic_ids[tp.topic]
