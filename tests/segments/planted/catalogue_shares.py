"""Bugs in what is kept of share groups."""

from typing import Final

from .planting import Bug

HERE: Final = "tests.segments.test_share_groups:test_"

SHARE_BUGS: Final = (
    Bug(
        "what_share_groups_did_with_a_topic_outlives_it",
        "control",
        "state.with_section(name, share_groups.without_topics(content, names))",
        "state.with_section(name, content)",
        "share_groups_of_topics_that_are_deleted",
    ),
    Bug(
        "an_acknowledgement_behind_the_deletion_of_its_topic_stands",
        "control",
        ' if _is_known(state, {"name": row[0], "id": row[1]})]',
        "]",
        "share_groups_of_topics_that_are_deleted",
    ),
    Bug(
        "an_acknowledgement_takes_the_place_of_those_before",
        "share_groups",
        "[begin, overlaid(known, spans, begin)]",
        "[begin, overlaid((), spans, begin)]",
        "records_of_share_groups",
    ),
    Bug(
        "a_later_fate_of_a_record_lies_below_the_earlier",
        "share_groups",
        "[begin, overlaid(known, spans, begin)]",
        "[begin, overlaid(spans, known, begin)]",
        "records_of_share_groups",
    ),
    Bug(
        "the_start_goes_back_with_an_acknowledgement_that_was_under_way",
        "share_groups",
        "begin = max(before, start)",
        "begin = start",
        HERE + "of_two_acknowledgements_that_were_under_way_the_farther_start_stands",
    ),
    Bug(
        "the_start_stays_where_all_behind_it_is_done",
        "share_groups",
        "start, done = spans[done][1] + 1, done + 1",
        "done += 1",
        HERE + "the_start_moves_over_what_was_done_behind_it",
    ),
    Bug(
        "a_span_that_reaches_below_the_start_stays_so",
        "share_groups",
        "    if left and left[0][0] < start:\n",
        "    if False:\n",
        HERE + "spans_laid_over_others_are_as_offset_by_offset",
    ),
    Bug(
        "a_span_that_only_touches_another_is_not_joined",
        "share_groups",
        "covers[0][0] - 1, key=_LAST",
        "covers[0][0], key=_LAST",
        HERE + "what_is_laid_over_leaves_what_it_was_laid_over_as_it_was",
    ),
    Bug(
        "neighbours_are_one_whatever_became_of_them",
        "share_groups",
        "if found and found[-1][1] == at - 1 and found[-1][2:] == [state, deliveries]:",
        "if found and found[-1][1] == at - 1:",
        "records_of_share_groups",
    ),
    Bug(
        "a_group_that_is_put_somewhere_keeps_what_it_knew",
        "share_groups",
        "        changed.rows(topic, topic_id)[str(partition)] = [start, []]\n",
        "        rows = changed.rows(topic, topic_id)\n"
        "        rows[str(partition)] = [start, rows.get(str(partition), (0, []))[1]]\n",
        "records_of_share_groups",
    ),
    Bug(
        "a_topic_of_the_same_name_has_what_was_done_with_the_one_before",
        "share_groups",
        "ChainMap({}, known if known_id == topic_id else {})",
        "ChainMap({}, known)",
        HERE + "events_to_a_section_and_back",
    ),
    Bug(
        "spans_for_which_an_event_has_no_room_are_left_out",
        "share_groups",
        "            spans = spans[fitting:]\n",
        "            spans = ()\n",
        HERE + "a_row_of_more_spans_than_an_event_has_room_for_becomes_several",
    ),
)
