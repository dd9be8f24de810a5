"""Planted bugs of the cleaner: each is found by a scenario of crash/scenarios_cleaning.py."""

from .planting import Bug

CLEANING_BUGS = (
    Bug(
        "a_cleaned_segment_is_not_synced",
        "swapping",
        "        self._file.fdatasync()\n        self._close()\n",
        "        self._close()\n",
        "two_batches_in_two_segments_become_one",
    ),
    Bug(
        "the_decision_of_a_cleaning_is_not_synced",
        "swapping",
        "            log.note([row], sync=True)\n        except Exception:\n"
        "            if not log.manifest.is_doubtful:\n",
        "            log.note([row])\n        except Exception:\n"
        "            if not log.manifest.is_doubtful:\n",
        "segments_become_one",
    ),
    Bug(
        "what_a_segment_stands_for_goes_before_the_decision",
        "swapping",
        "            log.note([row], sync=True)\n        except Exception:\n"
        "            if not log.manifest.is_doubtful:\n",
        "            for old in new.rows[:-1]:\n"
        "                log.storage.unlink(log.paths.log(old.number))\n"
        "            log.note([row], sync=True)\n        except Exception:\n"
        "            if not log.manifest.is_doubtful:\n",
        "segments_of_class_disk_become_one",
    ),
    Bug(
        "a_decision_without_its_rename_counts_as_a_clean_log",
        "survey",
        "    if known.pending is not None or known.swapped is not None:\n",
        "    if False:\n",
        "cleaned_where_nothing_was_written_since_the_last_start",
    ),
    Bug(
        "a_log_is_clean_though_a_cleaned_segment_waits_for_its_name",
        "survey",
        "    if known.pending is not None or known.swapped is not None:\n",
        "    if known.pending is not None:\n",
        "tests.segments.test_swap_fails:"
        "test_a_segment_that_stands_for_itself_alone_gets_its_name_anew[False]",
    ),
    Bug(
        "a_cleaned_segment_is_listed_with_its_old_size",
        "swapping",
        "            self._written,\n            self._records,\n",
        "            self.rows[-1].size,\n            self._records,\n",
        "a_segment_is_cleaned",
    ),
    Bug(
        "a_decided_cleaning_is_not_finished",
        "repairing",
        "        _finish(storage, paths, pending)\n",
        "",
        "two_batches_in_two_segments_become_one",
    ),
    Bug(
        "rows_in_front_of_a_damaged_one_are_believed",
        "known",
        "        self._is_merged = merged < len(self.rows)\n",
        "        self._is_merged = False\n",
        "the_row_of_segments_that_became_one_is_damaged",
    ),
    Bug(
        "a_segment_that_waits_for_its_name_is_missing",
        "known",
        "row.number in {*present, self.pending})\n",
        "row.number in present)\n",
        "tests.segments.test_cleaned_and_damaged:"
        "test_a_segment_that_waits_for_its_name_is_there[True]",
    ),
    Bug(
        "the_last_record_of_a_key_goes",
        "survivors",
        "            key is not None and last <= offset\n",
        "            key is not None and last < offset\n",
        "a_segment_is_cleaned",
    ),
    Bug(
        "cleaned_past_the_last_stable_offset",
        "compacting",
        "        return Limits(self._owner.last_stable_offset, buffer_bytes, now_ms, age_ms)\n",
        "        return Limits(1 << 62, buffer_bytes, now_ms, age_ms)\n",
        "cleaned_beside_an_open_transaction",
    ),
    Bug(
        "tombstones_go_at_once",
        "survivors",
        "        if since is None or self._age_ms is None:\n            return False\n",
        "        if since is None or self._age_ms is None:\n            return True\n",
        "tombstones_go",
    ),
    Bug(
        "markers_go_with_their_records",
        "survivors",
        "        if has_data or not self._is_over(header.base_offset) or "
        "self._is_last_marker(header):\n",
        "        if has_data and False:\n",
        "transactions_are_cleaned",
    ),
    Bug(
        "aborted_records_replace_others",
        "survivors",
        "        if not header.is_control and header.records_count and not "
        "self._is_aborted(header):\n",
        "        if not header.is_control and header.records_count:\n",
        "transactions_are_cleaned",
    ),
    Bug(
        "the_new_name_of_a_cleaned_segment_is_not_given_once_more",
        "repairing",
        "    if swapped is not None and is_segment(storage, paths.log(swapped.number), swapped):\n",
        "    if swapped is not None and not is_segment:\n",
        "the_sync_of_the_new_name_of_a_cleaned_segment_fails",
    ),
    Bug(
        "rows_whose_sync_failed_stay_for_the_next_process",
        "manifest_file",
        "                file.truncate(self.size)\n",
        "                pass\n",
        "tests.segments.test_manifest_file:test_rows_whose_sync_failed_are_found_by_nobody",
    ),
)
