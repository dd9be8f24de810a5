"""Bugs in what a partition knows of producers whose epochs begin behind a gap, and of transactions
whose marker was lost in one."""

from typing import Final

from .planting import Bug

BORDERS: Final = "tests.segments.test_producer_borders:test_"
LOST_MARKERS: Final = (
    "tests.broker.test_lost_markers:test_a_reply_ends_with_the_first_gap_that_a_range_ends_in"
)

PRODUCER_BUGS: Final = (
    Bug(
        "what_is_lost_in_front_of_an_epoch_is_not_counted",
        "producer_replay",
        "lost if is_all_known else 0",
        "0",
        "the_first_batches_of_a_producer",
    ),
    Bug(
        "only_a_producer_that_is_new_begins_behind_a_gap",
        "producers",
        "        window: tuple[KnownBatch, ...] = (batch,)\n",
        "        window: tuple[KnownBatch, ...] = (batch,)\n        lacks_first = False\n",
        "five_batches_that_begin_an_epoch",
    ),
    Bug(
        "an_epoch_begins_behind_a_gap_until_its_second_batch",
        "producers",
        "            lacks_first = known.lacks_first and is_all and header.base_sequence != 0\n",
        "            lacks_first = False\n",
        "the_first_batches_of_a_producer",
    ),
    Bug(
        "a_sixth_batch_is_taken_in_front_of_five",
        "producers",
        "            is_room = len(self.batches) < WINDOW\n",
        "            is_room = True\n",
        "more_first_batches_than_a_client_has_in_flight",
    ),
    Bug(
        "four_are_too_many_for_one_in_front_of_them",
        "producers",
        "            is_room = len(self.batches) < WINDOW\n",
        "            is_room = len(self.batches) < WINDOW - 1\n",
        "five_batches_that_begin_an_epoch",
    ),
    Bug(
        "a_snapshot_does_not_say_that_an_epoch_begins_behind_a_gap",
        "producers",
        "RESUMES * known.resumes | LACKS_FIRST * known.lacks_first",
        "RESUMES * known.resumes",
        "the_first_batches_of_a_producer",
    ),
    Bug(
        "a_gap_has_room_for_any_number_of_sequences",
        "producers",
        "0 < header.base_sequence <= lost",
        "0 < header.base_sequence and lost > 0",
        BORDERS + "nothing_in_front_of_an_epoch_is_taken_where_more_is_lost_of_it_than_the_gap_has",
    ),
    Bug(
        "a_gap_has_room_for_a_sequence_less_than_it_has_offsets",
        "producers",
        "0 < header.base_sequence <= lost",
        "0 < header.base_sequence < lost",
        "the_first_batches_of_a_producer",
    ),
    Bug(
        "what_is_taken_in_front_of_an_epoch_may_reach_into_it",
        "producers",
        "            return is_room and last_delta < self.batches[0].first_sequence\n",
        "            return is_room\n",
        BORDERS + "in_front_of_an_epoch_that_began_with_a_gap_only_what_has_room_there_is_taken",
    ),
    Bug(
        "the_begin_of_an_epoch_is_taken_twice",
        "producers",
        " and is_all and header.base_sequence != 0\n",
        " and is_all\n",
        BORDERS + "in_front_of_an_epoch_that_began_with_a_gap_only_what_has_room_there_is_taken",
    ),
    Bug(
        "a_log_whose_begin_is_gone_counts_as_known",
        "producer_replay",
        "is_all_known = end >= 0 or opened.log_start_offset == 0",
        "is_all_known = True",
        BORDERS + "nothing_in_front_of_an_epoch_is_taken_where_the_begin_of_the_log_is_not_known",
    ),
    Bug(
        "a_segment_that_cannot_be_read_counts_as_known",
        "producer_replay",
        "            table.lose_tail()\n            is_all_known = False\n",
        "            table.lose_tail()\n",
        BORDERS + "nothing_in_front_of_an_epoch_is_taken_behind_a_segment_that_cannot_be_read",
    ),
    Bug(
        "a_reply_goes_on_behind_the_gap_of_a_lost_marker",
        "broker.partitions.isolation",
        "    return records[:size], rows\n",
        "    return records, rows\n",
        LOST_MARKERS,
    ),
    Bug(
        "no_range_ends_in_what_a_reply_brings",
        "broker.partitions.isolation",
        "ranges.lasts_from(fetch_offset, len(records) // HEADER_SIZE)",
        "ranges.lasts_from(fetch_offset, 0)",
        LOST_MARKERS,
    ),
    Bug(
        "a_marker_at_the_offset_asked_for_is_taken_for_one_before_it",
        "transaction_index",
        "        place = bisect_left(self.lasts, begin, 0, self.rows_count)\n        return",
        "        place = bisect_left(self.lasts, begin + 1, 0, self.rows_count)\n        return",
        LOST_MARKERS,
    ),
    Bug(
        "producers_are_held_to_a_snapshot_although_segments_behind_it_are_gone",
        "producer_replay",
        "        table.lose_tail()\n        is_all_known = False\n    for",
        "        is_all_known = False\n    for",
        "segments_go_and_what_is_known_of_a_producer_has_no_room",
    ),
    Bug(
        "who_has_nothing_left_but_a_marker_is_to_begin_with_0",
        "producer_replay",
        "    if is_front_gone:\n        table.lose_front()\n",
        "",
        BORDERS + "a_producer_of_whom_only_a_marker_is_left_goes_on",
    ),
)
