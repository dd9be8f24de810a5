"""Bugs of recovery: what is cut, kept, repaired, believed."""

from typing import Final

from .planting import Bug

FAILURES: Final = "tests.segments.test_failures:test_"
TWO_FAILURES: Final = "tests.segments.test_two_failures:test_"
LOG_STARTS: Final = (
    "tests.segments.test_floors:test_a_log_start_that_a_process_was_killed_before_it_had_synced"
    "_is_synced_before_it_is_gone_by"
)

RECOVERY_BUGS: tuple[Bug, ...] = (
    Bug(
        "the_checksum_of_a_batch_is_not_checked",
        "behind_damage",
        "        header = check_batch(data[position : position + size], stored=True)\n",
        "        header = read_header(data, position)\n",
        "the_first_records_of_class_disk",
    ),
    Bug(
        "a_hole_is_cut_instead_of_repaired",
        "decisions",
        "    if tail in (Tail.HOLE, Tail.FOREIGN) or is_short:\n",
        "    if is_short:\n",
        "damage_after_a_kill",
    ),
    Bug(
        "a_repair_tells_nobody",
        "decisions",
        "        parts.extend(loss.batches(gaps[-1]))\n",
        "",
        "damage_in_the_active_segment",
    ),
    Bug(
        "a_repair_ends_at_the_damage",
        "decisions",
        "        if found.tail is not Tail.HOLE:\n            break\n",
        "        break\n",
        "damage_in_the_active_segment",
    ),
    Bug(
        "the_length_of_a_damaged_batch_is_believed",
        "behind_damage",
        "        for length in _but_for_a_byte(header.batch_length):\n",
        "        for length in ():\n",
        "tests.segments.test_resuming_scan:"
        "test_a_damaged_byte_costs_its_batch_whatever_the_values_hold[1]",
    ),
    Bug(
        "only_the_first_damaged_batch_has_bytes_of_its_own",
        "behind_damage",
        "        begin, own = own.end, behind\n",
        "        break\n",
        "tests.segments.test_resuming_scan:"
        "test_batches_inside_the_value_of_a_second_damaged_one_are_not_where_the_log_goes_on",
    ),
    Bug(
        "a_batch_that_continues_a_damaged_one_needs_another",
        "behind_damage",
        "            and following.base_offset == following_offset\n",
        "            and False\n",
        "tests.segments.test_resuming_scan:"
        "test_a_batch_that_the_damaged_one_in_front_of_it_speaks_of_needs_no_other",
    ),
    Bug(
        "what_a_damaged_length_claims_is_within",
        "behind_damage",
        "        self.end = position  # what lies",
        "        pass  # what lies",
        "tests.segments.test_resuming_scan:"
        "test_a_length_that_is_damaged_claims_nothing_behind_the_end_that_the_checksum_says[4000]",
    ),
    Bug(
        "what_recovery_keeps_is_not_synced",
        "opening",
        "                sync_or_mark(self._storage, self._paths, file, end_offset)\n",
        "                pass\n",
        "killed_behind_two_batches_and_only_ticked",
    ),
    Bug(
        "what_recovery_keeps_is_not_written_again",
        "opening",
        "                write_all(segment.opened(), self._steps[place].data[: segment.size], 0)\n",
        "                pass\n",
        "the_sync_of_a_tick_fails_and_another_process",
    ),
    Bug(
        "names_that_recovery_keeps_are_not_synced",
        "opening",
        "                sync_names_or_mark(self._storage, self._paths)\n",
        "                pass\n",
        "tests.segments.test_second_life:test_what_a_start_after_a_kill_has_seen_outlives_a_power_cut[closed_while_empty]",
    ),
    Bug(
        "a_lost_tail_is_silent",
        "resuming",
        "            if one.log.log_end_offset < ceiling.offset:\n",
        "            if False:\n",
        "the_first_records_of_class_disk",
    ),
    Bug(
        "every_start_counts_as_another_boot",
        "resuming",
        "            if ceiling is None or ceiling.boot == state.boot:\n",
        "            if ceiling is None:\n",
        "the_first_records_of_class_disk",
    ),
    Bug(
        "what_a_killed_process_left_unsynced_waits_for_who_asks",
        "opened_partitions",
        "        places = list(dict.fromkeys([*replayed, *self._resuming.unsynced()]))\n",
        "        places = list(replayed)\n",
        "tests.segments.test_classes:"
        "test_what_a_killed_process_left_unsynced_in_class_disk_is_synced_by_the_next",
    ),
    Bug(
        "what_class_disk_left_unsynced_waits_where_it_is_fsync_by_now",
        "resuming",
        "in (Durability.DISK, Durability.FSYNC)\n",
        "in (Durability.DISK,)\n",
        "tests.segments.test_classes:"
        "test_what_class_disk_left_unsynced_is_synced_by_a_start_that_finds_it_to_be_fsync",
    ),
    Bug(
        "a_lost_tail_begins_no_epoch",
        "resuming",
        "            max(one.log.leader_epoch, state.leader_epoch(one.meta, one.partition)) + 1\n",
        "            max(one.log.leader_epoch, state.leader_epoch(one.meta, one.partition))\n",
        "the_first_records_of_class_disk",
    ),
    Bug(
        "a_lost_tail_is_not_made_durable",
        "lost_tail",
        "        opened.sync()\n",
        "        pass\n",
        "the_first_records_of_class_disk",
    ),
    Bug(
        "a_lost_tail_keeps_its_producers",
        "lost_tail",
        "        opened.producers.lose_tail()\n",
        "",
        "snapshots_of_producers",
    ),
    Bug(
        "an_open_transaction_is_not_in_the_snapshot",
        "producers",
        "            first_offset = opened.get(producer_id, -1)\n",
        "            first_offset = -1\n",
        "a_snapshot_inside_a_transaction",
    ),
    Bug(
        "aborted_ranges_are_not_in_the_snapshot",
        "producers",
        "        opened, aborted = self.transactions.open, self.transactions.aborted\n",
        "        opened, aborted = self.transactions.open, []\n",
        "a_snapshot_inside_a_transaction",
    ),
    Bug(
        "a_lost_tail_ends_what_is_open",
        "producers",
        "            producer_id: known._replace(resumes=True)\n"
        "            for producer_id, known in self._producers.items()\n        }\n",
        "            producer_id: known._replace(resumes=True)\n"
        "            for producer_id, known in self._producers.items()\n        }\n"
        "        self.transactions = TransactionIndex()\n",
        "markers_of_class_disk",
    ),
    Bug(
        "the_epoch_of_a_deleted_topic_is_forgotten",
        "metadata",
        "            retired[name] = max(",
        "            _ = max(",
        "a_topic_is_made_again",
    ),
    Bug(
        "a_damaged_row_of_the_manifest_is_believed",
        "manifest",
        "        if checksum != xxh3_64(whole[position : position + 56]):\n            break\n",
        "",
        "rolls_of_class_disk",
    ),
    Bug(
        "snapshots_without_the_offsets_of_groups",
        "metadata",
        "                    name: _stored(name, content) for name, content in"
        " self.sections.items()\n",
        "",
        "offsets_of_groups",
    ),
    Bug(
        "an_ephemeral_log_begins_at_zero_again",
        "opened_partitions",
        "            offset, epoch = ceiling.offset, self._resuming.begin_epoch(meta, partition)\n",
        "            offset, epoch = 0, self._resuming.begin_epoch(meta, partition)\n",
        "records_of_class_ephemeral",
    ),
    Bug(
        "what_was_disk_is_judged_as_fsync",
        "opening",
        "    loses_tails = evidence.acks_unsynced or config.durability is not Durability.FSYNC\n",
        "    loses_tails = config.durability is not Durability.FSYNC\n",
        "a_topic_becomes_safer_with_records_that_are_not_synced",
    ),
    Bug(
        "what_a_disk_lost_of_a_sealed_segment_is_not_put_back",
        "replaying",
        "            restore(storage, paths, row, known.epochs, found, report, anew=is_marked)\n",
        "            pass\n",
        "damage_of_a_sealed_segment_under_the_wal",
    ),
    Bug(
        "a_sealed_segment_that_was_put_back_is_believed_behind_a_failed_sync",
        "replaying",
        "anew=is_marked)",
        "anew=False)",
        "tests.segments.test_restoring:"
        "test_what_was_put_back_under_a_name_that_could_not_be_synced_is_put_back_again[another]",
    ),
    Bug(
        "a_log_without_a_descriptor_to_read_it_is_lost",
        "doubting",
        "        if isinstance(exc, OSError) and exc.errno in NO_DESCRIPTORS:\n            raise\n",
        "",
        "tests.segments.test_doubted_ends:"
        "test_a_log_with_a_mark_that_is_not_read_for_want_of_a_descriptor_is_no_loss[disk]",
    ),
    Bug(
        "a_mark_speaks_of_an_end_that_was_cut",
        "salvaging",
        "                mark_cut(log.storage, log.paths, promised)\n",
        "",
        "tests.segments.test_doubted_ends:"
        "test_an_end_that_nobody_was_told_of_is_cut_and_is_no_loss_wherever_that_is_interrupted"
        "[disk]",
    ),
    Bug(
        "a_mark_is_emptied_before_it_is_written_again",
        "unsynced",
        '        write_all(file, b"%019d\\n" % end_offset, 0)\n',
        '        file.truncate(0)\n        write_all(file, b"%019d\\n" % end_offset, 0)\n',
        "tests.segments.test_doubted_ends:"
        "test_a_mark_says_what_it_said_where_a_full_disk_takes_no_other[disk]",
    ),
    Bug(
        "a_sealed_segment_that_was_put_back_is_not_synced",
        "restoring",
        "    replace_or_mark(storage, paths, path, found.content)\n",
        "    storage.open(path, create=True).pwrite(found.content, 0)\n",
        "damage_of_a_sealed_segment_under_the_wal",
    ),
    Bug(
        "what_a_disk_lost_of_a_segment_in_use_is_not_put_back",
        "mending",
        "    recalled = None if inspected.is_whole else recall(row, inspected)\n",
        "    recalled = None\n",
        "damage_of_a_sealed_segment_found_in_use",
    ),
    Bug(
        "a_segment_in_use_that_was_put_back_is_not_synced",
        "mending",
        "    _replace(log, row.number, inspected, content, comes_again=False)\n",
        "    log.storage.open(path, create=True).pwrite(content, 0)\n",
        "damage_of_a_sealed_segment_found_in_use",
    ),
    Bug(
        "a_log_start_is_shown_that_nobody_knows_to_be_synced",
        "opening",
        "        _write_manifest_again(storage, paths, found)\n",
        "        pass\n",
        LOG_STARTS + "[1]",
    ),
    Bug(
        "names_of_a_closed_log_that_could_not_be_synced_are_not_marked",
        "unsynced",
        "        if exc.errno not in NO_DESCRIPTORS:\n            mark_unsynced(storage, paths)\n",
        "        del exc\n",
        "tests.segments.test_failing_names:"
        "test_an_opening_that_lifts_the_mark_hides_no_failed_sync_from_itself",
    ),
    Bug(
        "a_failed_sync_of_names_is_not_marked",
        "partition_log",
        "        self._mark_unsynced()  # in any case",
        "        pass  # in any case",
        "tests.segments.test_second_life:"
        "test_what_a_start_finds_where_the_process_before_could_not_sync_names_outlives_a_power_cut"
        "[a_sync_of_names_made_ahead_fails]",
    ),
    Bug(
        "what_a_failed_sync_of_an_opening_has_cost_is_not_looked_for",
        "opened_partitions",
        "                self._check_lost(meta, partition, paths)\n",
        "                pass\n",
        "tests.segments.test_dropped_pages:"
        "test_no_offset_is_given_twice_where_a_failed_sync_takes_it_from_memory"
        "[killed_and_started_again_of_class_disk]",
    ),
    Bug(
        "what_a_failed_sync_has_cost_is_not_looked_for",
        "doubting",
        "    return any(low < begin or high > end for low, high in missing)\n",
        "    return False\n",
        "tests.segments.test_doubted_ends:"
        "test_a_hole_that_a_failed_sync_has_left_tears_what_has_records_there[disk]",
    ),
    Bug(
        "a_log_start_is_synced_behind_what_it_deletes",
        "opening",
        "        _write_manifest_again(storage, paths, found)\n"
        "    if not found.is_clean:\n"
        "        steps = carry_out(storage, paths, found, report)\n",
        "        pass\n"
        "    if not found.is_clean:\n"
        "        steps = carry_out(storage, paths, found, report)\n"
        "    if evidence.writes_again and known.size and known.deletes and not found.is_empty:\n"
        "        _write_manifest_again(storage, paths, found)\n",
        LOG_STARTS + "[5]",
    ),
    Bug(
        "what_follows_a_cut_is_kept",
        "salvaging",
        "            content = whole[:0] if is_cut else whole\n",
        "            content = whole\n",
        FAILURES + "behind_what_memory_lost_with_the_sync_nothing_is_kept_that_nobody_was_told_of",
    ),
    Bug(
        "a_log_is_opened_again_while_a_sync_goes_on",
        "failing",
        "                with old.sync_lock:  #",
        "                if True:  #",
        TWO_FAILURES + "a_log_is_not_opened_again_before_the_sync_that_goes_on_has_ended[False]",
    ),
    Bug(
        "without_a_manifest_a_segment_is_of_its_last_epoch",
        "survey",
        "        return known._replace(epochs=epochs)\n",
        "        return known\n",
        "tests.segments.test_epochs:test_without_a_manifest_no_record_of_an_earlier_epoch_is_lost",
    ),
    Bug(
        "a_copy_that_is_found_in_quarantine_is_believed",
        "repairing",
        "        storage.rename(target, target + TEMPORARY)\n"
        "        storage.rename(target + TEMPORARY, target)\n"
        "        storage.fsync_dir(paths.quarantine)\n",
        "        pass\n",
        "tests.segments.test_damage:"
        "test_the_damaged_original_is_kept_durably_by_who_tries_again_behind_a_failed_sync",
    ),
    Bug(
        "the_copy_of_a_log_start_is_not_looked_at_where_no_batch_is_left",
        "survey",
        "    copy = None if manifest_lost else read_start_copy(storage, paths)\n",
        "    copy = None\n",
        "tests.segments.test_floors:test_a_request_to_delete_all_survives_the_loss_of_the_manifest"
        "[missing]",
    ),
)
