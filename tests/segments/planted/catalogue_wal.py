"""Bugs of the write-ahead log: writes, syncs, names, recycling, replay, control events."""

from .planting import Bug

WAL_BUGS: tuple[Bug, ...] = (
    Bug(
        "the_wal_is_not_synced",
        "wal.shard",
        "                active.file.fdatasync()\n",
        "                pass\n",
        "the_first_records",
    ),
    Bug(
        "acknowledged_before_the_sync_of_the_wal",
        "wal.shard",
        "            if group.frames:\n                self._append(group)\n",
        "            group.settle(None, call_soon)\n"
        "            if group.frames:\n                self._append(group)\n",
        "the_first_records",
    ),
    Bug(
        "a_lone_writer_is_acknowledged_before_its_own_sync",
        "wal.shard",
        "            self._commit_one(source, call_soon or reports.append, acknowledge)\n",
        "            source.wal_synced(source._log().log_end_offset)\n"
        "            self._commit_one(source, call_soon or reports.append, acknowledge)\n",
        "a_lone_writer_syncs_for_itself",
    ),
    Bug(
        "a_lone_writer_is_answered_before_its_own_sync",
        "wal.shard",
        "        active = self._active\n        at = ",
        "        if group.acknowledge is not None:\n"
        "            group.acknowledge()\n"
        "        active = self._active\n        at = ",
        "a_lone_writer_syncs_for_itself",
    ),
    Bug(
        "a_lone_writer_is_answered_whatever_its_sync_said",
        "wal.shard",
        "                self._given_up = begin\n            raise\n",
        "                self._given_up = begin\n"
        "            if group.acknowledge is not None:\n"
        "                group.acknowledge()\n"
        "            raise\n",
        "a_sync_of_a_lone_writer_fails",
    ),
    Bug(
        "a_lone_writer_is_told_of_success_whatever_its_sync_said",
        "wal.shard",
        "        for report in reports:\n            report()\n        return True\n",
        "        source.wal_synced(source._log().log_end_offset)\n        return True\n",
        "a_sync_of_a_lone_writer_fails",
    ),
    Bug(
        "a_lone_writer_takes_what_it_has_not_synced_for_done",
        "journaling",
        "        return self._shard.commit_here(self, pending.frames_size, call_soon, "
        "acknowledge)\n",
        "        _, mark = pending.take()\n"
        "        self._owner.wal_synced(mark)\n"
        "        return True\n",
        "a_lone_writer_syncs_for_itself",
    ),
    Bug(
        "acknowledged_after_a_failed_sync_of_the_wal",
        "wal.shard",
        "            error = exc\n            self._events_given_up |= group.has_control\n",
        "            pass\n",
        "a_sync_of_the_wal_fails",
    ),
    Bug(
        "frames_are_synced_before_they_are_written",
        "wal.shard",
        '                write_all(active.file, b"".join(parts), active.end)\n'
        "                active.file.fdatasync()\n",
        "                active.file.fdatasync()\n"
        '                write_all(active.file, b"".join(parts), active.end)\n',
        "the_first_records",
    ),
    Bug(
        "a_failed_shard_goes_on",
        "wal.shard",
        "            if self.failure is not None:\n"
        "                raise ShardFailed(self.failure)\n            if group",
        "            if group",
        "a_sync_of_the_wal_fails_under_two_partitions",
    ),
    Bug(
        "the_end_of_a_wal_file_is_not_moved",
        "wal.shard",
        "            active.end = end\n",
        "",
        "the_first_records",
    ),
    Bug(
        "the_name_of_a_wal_file_is_not_synced",
        "wal.files",
        "            self._storage.rename(path, target)\n"
        "            self._storage.fsync_dir(self.folder)\n",
        "            self._storage.rename(path, target)\n",
        "the_first_records",
    ),
    Bug(
        "a_wal_file_without_a_header",
        "wal.files",
        "            for position, block in header_blocks(header):\n"
        "                write_all(file, block, position)\n",
        "",
        "the_first_records",
    ),
    Bug(
        "the_checksum_of_a_frame_is_not_checked",
        "wal.frames",
        "    if xxhash.xxh3_64_intdigest(data[position:end], salt) != checksum:\n"
        "        return None\n",
        "",
        "the_first_records",
    ),
    Bug(
        "wal_files_are_recycled_before_the_segments_are_synced",
        "wal.journal",
        "        failed = {source for source in sources if not source.wal_checkpoint()}\n",
        "        failed: set[Source] = set()\n",
        "wal_files_fill_and_are_freed",
    ),
    Bug(
        "a_failed_checkpoint_recycles",
        "wal.journal",
        "            shard.free_oldest(failed)\n",
        "            shard.free_oldest(set())\n",
        "a_segment_cannot_be_synced_for_a_checkpoint",
    ),
    Bug(
        "control_events_are_recycled_without_a_snapshot",
        "wal.journal",
        "        if any(file.has_control for file in full):\n",
        "        if False:\n",
        "wal_files_fill_and_are_freed",
    ),
    Bug(
        "what_a_checkpoint_synced_for_a_flusher_is_told_nobody",
        "journaling",
        "            self._asks_flusher = True\n",
        "            pass\n",
        "tests.segments.test_journaling:"
        "test_a_batch_for_a_flusher_is_acknowledged_where_a_checkpoint_synced_it_first",
    ),
    Bug(
        "a_checkpoint_syncs_nothing",
        "handler",
        "            end_offset = opened.sync()\n            opened.look()\n",
        "            return True\n",
        "wal_files_fill_and_are_freed",
    ),
    Bug(
        "the_wal_is_emptied_although_a_sync_failed",
        "manager",
        "self.wal.close(empty=is_durable)",
        "self.wal.close(empty=True)",
        "tests.segments.test_failures:"
        "test_a_stop_that_can_neither_sync_nor_write_anew_leaves_the_write_ahead_log",
    ),
    Bug(
        "only_the_first_wal_file_is_replayed",
        "wal.replay",
        "    for number in numbers:\n",
        "    for number in numbers[:1]:\n",
        "wal_files_fill",
    ),
    Bug(
        "only_the_first_shard_is_replayed",
        "wal.replay",
        "    for shard, folder in folders.items():\n",
        "    for shard, folder in list(folders.items())[:1]:\n",
        "fewer_shards_after_a_restart",
    ),
    Bug(
        "what_is_put_back_is_not_synced",
        "replaying",
        "            file.fdatasync()\n",
        "            pass\n",
        "the_wal_of_a_killed_process",
    ),
    Bug(
        "the_names_of_what_is_put_back_are_not_synced",
        "replaying",
        "    sync_names_or_mark(storage, paths)\n"
        "    return PutBack(durable_end, frozenset(synced))\n",
        "    return PutBack(durable_end, frozenset(synced))\n",
        "the_wal_of_a_killed_process",
    ),
    Bug(
        "the_name_of_a_snapshot_that_is_found_is_not_synced",
        "metadata_log",
        "            self._storage.rename(found, path)\n"
        "            self._storage.fsync_dir(self._folder)\n",
        "            self._storage.rename(found, path)\n",
        "tests.segments.test_metadata_log:"
        "test_a_snapshot_whose_name_a_kill_left_unsynced_survives_a_power_cut",
    ),
    Bug(
        "the_name_of_a_snapshot_that_is_found_is_not_given_anew",
        "metadata_log",
        "            self._number += 1\n"
        "            found, path = path, self._path(self._number)\n"
        "            self._storage.rename(found, path)\n"
        "            self._storage.fsync_dir(self._folder)\n",
        "            self._storage.fsync_dir(self._folder)\n",
        "tests.segments.test_metadata_log:"
        "test_a_snapshot_that_a_kill_left_and_a_start_could_not_sync_survives_a_power_cut",
    ),
    Bug(
        "what_has_no_place_goes_under_the_name_that_is_there",
        "putting_back",
        "        replace_file(self._storage, path, content)\n",
        "        file = self._storage.open(path, create=True)\n"
        "        file.pwrite(content, 0)\n"
        "        file.fdatasync()\n"
        "        self._storage.fsync_dir(folder)\n",
        "tests.segments.test_putting_back:"
        "test_records_that_a_start_could_not_keep_by_their_name_are_kept_by_the_next",
    ),
    Bug(
        "what_stands_in_memory_is_not_written_again_by_replay",
        "replaying",
        "        if len(content):\n            write_all(file, content, 0)\n",
        "",
        "a_failed_checkpoint_and_another_process",
    ),
    Bug(
        "the_last_batch_is_not_put_back",
        "replaying",
        "    return missing\n",
        "    return missing[:-1]\n",
        "the_first_records",
    ),
    Bug(
        "nothing_is_put_back_into_the_active_segment",
        "replaying",
        "        if number >= first and batches:\n",
        "        if number > first and batches:\n",
        "the_first_records",
    ),
    Bug(
        "the_wal_of_a_deleted_topic_is_put_into_another",
        "putting_back",
        "            meta = by_id.get(key[0])\n",
        "            meta = next(iter(by_id.values()), None)\n",
        "deleted_and_made_again_while_the_wal_remembers",
    ),
    Bug(
        "control_events_are_not_written",
        "metadata_log",
        "                wait = self._log.control(*payloads)\n",
        "                wait = len(payloads).bit_length\n",
        "topics_in_a_row",
    ),
    Bug(
        "the_old_snapshot_goes_before_the_new_one_is_there",
        "metadata_log",
        "            replace_file(self._storage, self._path(new), data)\n",
        "            if old:\n"
        "                self._storage.unlink(self._path(old))\n"
        "                self._storage.fsync_dir(self._folder)\n"
        "                old = 0\n"
        "            replace_file(self._storage, self._path(new), data)\n",
        "closed_and_opened_again",
    ),
    Bug(
        "events_of_several_pages_never_count",
        "wal.replay",
        "    return bool(one.flags & AWAITS_MARK) and one.lsn >= below\n",
        "    return bool(one.flags & AWAITS_MARK)\n",
        "control_events_of_several_pages",
    ),
    Bug(
        "what_is_torn_is_told_as_lost",
        "wal.replay",
        "    return bool(one.flags & AWAITS_MARK) and one.lsn >= below\n",
        "    return False\n",
        "control_events_of_several_pages",
    ),
    Bug(
        "what_was_given_up_is_not_said",
        "wal.shard",
        "            self._append_all([given_up(*self._given_up)], Group())\n",
        "",
        "the_log_goes_on_behind_a_group_that_was_given_up",
    ),
    Bug(
        "what_was_given_up_is_said_in_the_group_behind_it",
        "wal.shard",
        "            self._append_all([given_up(*self._given_up)], Group())\n",
        "            self.vouching._riders[b'', 0] = given_up(*self._given_up)\n",
        "tests.segments.test_wal_given_up:"
        "test_of_a_torn_first_group_after_a_failure_nothing_is_told_as_lost[True]",
    ),
    Bug(
        "what_was_given_up_begins_behind_what_failed",
        "wal.shard",
        "self._given_up = begin",
        "self._given_up = begin._replace(lsn=self._next_lsn)",
        "the_log_goes_on_behind_a_group_that_was_given_up",
    ),
    Bug(
        "what_was_given_up_is_replayed",
        "wal.missing",
        "    return [(path, _without(one, given_up)) for path, one in files] if given_up else",
        "    return",
        "the_log_goes_on_behind_a_group_that_was_given_up",
    ),
    Bug(
        "an_event_is_written_though_one_was_given_up_in_front_of_it",
        "wal.shard",
        "            self._absorb_events()\n",
        "            pass\n",
        "an_event_finds_no_room_and_a_smaller_one_does",
    ),
    Bug(
        "what_vouches_for_a_log_goes_with_its_file",
        "wal.journal",
        "        shard.keep_ends()\n",
        "",
        "tests.segments.test_wal:test_the_end_of_a_synced_log_is_known_as_long_as_there_is_a_wal",
    ),
    Bug(
        "what_rode_with_a_failed_group_is_forgotten",
        "wal.shard",
        "        self.vouching.rode(durable=error is None)\n",
        "        self.vouching.rode(durable=True)\n",
        "tests.segments.test_wal_given_up:"
        "test_what_rode_with_a_group_that_failed_rides_with_the_next_that_is_written",
    ),
    Bug(
        "an_earlier_end_replaces_a_later_one",
        "wal.vouching",
        "    if known is None or known.base_offset <= frame.base_offset:\n",
        "    if True:\n",
        "tests.segments.test_vouching_again:"
        "test_an_older_end_in_a_file_that_goes_does_not_replace_a_later_one",
    ),
    Bug(
        "a_checkpoint_forgets_what_is_being_written",
        "wal.vouching",
        "self._kept, ends, self._riding, riders)",
        "self._kept, ends, riders)",
        "tests.segments.test_vouching_again:"
        "test_an_end_that_is_being_written_is_kept_by_the_checkpoint_of_that_moment",
    ),
    Bug(
        "nothing_speaks_of_a_kept_file",
        "wal.kept",
        "    make_marker(storage, folder, KEPT, header.sequence)\n",
        "",
        "tests.segments.test_wal_kept:"
        "test_a_kept_file_that_is_gone_is_told_whatever_was_written_since",
    ),
    Bug(
        "the_name_of_a_marker_is_not_synced",
        "witness",
        "        storage.open(path, create=True).close()\n        storage.fsync_dir(folder)\n",
        "        storage.open(path, create=True).close()\n",
        "tests.segments.test_wal_markers:test_a_file_in_use_that_is_gone_is_told",
    ),
    Bug(
        "what_could_not_be_said_counts_as_said",
        "witness",
        "        with suppress(OSError):  # nobody takes it for said\n"
        "            storage.unlink(path)\n",
        "",
        "tests.segments.test_failing_wal_names:"
        "test_what_could_not_be_said_is_said_by_the_next_who_does",
    ),
    Bug(
        "a_marker_whose_sync_failed_is_synced_again",
        "witness",
        "            storage.unlink(path)  # a sync",
        "            pass  # a sync",
        "tests.segments.test_wal_kept:"
        "test_a_marker_whose_directory_could_not_be_synced_is_made_anew",
    ),
    Bug(
        "the_marker_of_a_kept_file_comes_before_it",
        "wal.kept",
        "        with naming:\n            storage.rename(temporary, path)\n",
        "        make_marker(storage, folder, KEPT, header.sequence)\n"
        "        with naming:\n            storage.rename(temporary, path)\n",
        "what_a_checkpoint_kept_is_put_back",
    ),
    Bug(
        "the_marker_of_what_was_put_back_goes_after_it",
        "wal.markers",
        "        if going:\n            storage.fsync_dir(place)\n",
        "",
        "what_a_checkpoint_kept_is_put_back",
    ),
    Bug(
        "the_marker_of_what_was_put_back_stays",
        "wal.journal",
        "        remove_markers(self._storage, self._root, going)\n",
        "",
        "what_a_start_cannot_put_back_is_kept_by_each",
    ),
    Bug(
        "the_marker_of_what_a_start_keeps_goes_with_the_others",
        "wal.journal",
        "        going.discard(Marked(SHARD_OF_STARTS, KEPT, kept))\n",
        "",
        "tests.segments.test_wal_kept:test_a_kept_file_is_missed_with_the_directory_of_its_shard",
    ),
    Bug(
        "nothing_speaks_of_a_file_in_use",
        "wal.files",
        "        make_marker(self._storage, self.folder, WAL, sequence)\n",
        "",
        "tests.segments.test_wal_markers:test_a_file_in_use_that_is_gone_is_told",
    ),
    Bug(
        "the_marker_of_a_file_in_use_comes_before_its_name",
        "wal.files",
        "            self._storage.rename(path, target)\n",
        "            make_marker(self._storage, self.folder, WAL, sequence)\n"
        "            self._storage.rename(path, target)\n",
        "wal_files_fill_and_are_freed",
    ),
    Bug(
        "the_marker_of_a_file_that_is_freed_goes_after_it",
        "witness",
        "        storage.unlink(path)\n        storage.fsync_dir(folder)\n",
        "        storage.unlink(path)\n",
        "wal_files_fill_and_are_freed",
    ),
    Bug(
        "a_file_whose_directory_could_not_be_synced_counts_as_freed",
        "wal.files",
        "                self._rename(used, name)\n",
        "                pass\n",
        "tests.segments.test_failing_wal_names:"
        "test_a_file_that_could_not_be_freed_is_freed_whole_by_the_next_checkpoint",
    ),
    Bug(
        "a_file_gets_its_name_beside_another_whose_sync_fails",
        "wal.files",
        "        with self._naming:\n            self._storage.rename(path, target)\n",
        "        if self._naming:\n            self._storage.rename(path, target)\n",
        "tests.segments.test_failing_wal_names:"
        "test_a_file_that_gets_its_name_while_another_cannot_be_freed_outlives_a_power_cut",
    ),
    Bug(
        "nobody_gets_a_name_while_what_is_kept_is_written",
        "wal.files",
        "        return write_kept("
        "self._storage, self.folder, number, frames, self._naming, self._owner)\n",
        "        with self._naming:\n"
        "            return write_kept(self._storage, self.folder, number, frames)\n",
        "tests.segments.test_failing_wal_names:"
        "test_a_file_is_made_while_a_checkpoint_writes_what_it_keeps",
    ),
    Bug(
        "who_starts_takes_the_markers_that_there_are",
        "wal.markers",
        "                with suppress(OSError):\n"
        "                    storage.open(path, create=True).close()\n",
        "                pass\n",
        "tests.segments.test_failing_wal_names:"
        "test_a_marker_that_a_start_could_not_take_for_good_is_taken_by_the_next",
    ),
    Bug(
        "the_marker_of_a_file_that_was_given_back_stays",
        "wal.files",
        "        remove_markers(storage, root, going)\n",
        "        pass\n",
        "tests.segments.test_full_start:"
        "test_a_ready_file_that_was_given_back_is_not_missed_by_the_next_start",
    ),
    Bug(
        "an_orderly_stop_settles_no_log_of_class_fsync",
        "ending",
        "    if before is None and not end_offset:\n",
        "    if handler.ceiling is None or (before is None and not end_offset):\n",
        "tests.segments.test_parts_of_a_backup:"
        "test_what_an_orderly_stop_has_settled_vouches_in_every_later_life",
    ),
    Bug(
        "what_is_widened_is_not_in_doubt_any_more",
        "resuming",
        "boot if boot == IN_DOUBT else state.boot",
        "state.boot",
        "tests.segments.test_doubted_ends:test_a_lost_event_hides_no_doubt[disk]",
    ),
    Bug(
        "what_became_fsync_is_never_doubted",
        "handler",
        "            return ceiling if self._log.recovery_point < end_offset else None\n",
        "            return None\n",
        "tests.segments.test_doubted_ends:"
        "test_the_sync_that_a_change_of_class_needs_may_lose_what_the_old_class_acknowledged[disk]",
    ),
    Bug(
        "who_opens_a_settled_log_forgets_how_far_it_reached",
        "resuming",
        "            return boot != SETTLED\n",
        "            return state.ceiling(one.key) is not None\n",
        "tests.segments.test_parts_of_a_backup:"
        "test_what_an_orderly_stop_has_settled_vouches_in_every_later_life",
    ),
    Bug(
        "what_vouches_is_kept_after_the_files_have_gone",
        "wal.journal",
        "        shard.keep_ends()\n"
        "        for _ in full:\n            shard.free_oldest(failed)\n",
        "        for _ in full:\n            shard.free_oldest(failed)\n"
        "        shard.keep_ends()\n",
        "tests.segments.test_vouched_always:test_a_checkpoint_may_be_interrupted_anywhere",
    ),
    Bug(
        "the_newest_of_what_vouches_goes_before_it_is_replaced",
        "wal.vouching",
        "        try:\n            newest = self._files.keep_ends(",
        "        if self._newest is not None:\n"
        "            self._files.remove_kept(self._newest.number)\n"
        "            self._newest = None\n"
        "        try:\n            newest = self._files.keep_ends(",
        "tests.segments.test_vouched_always:"
        "test_what_vouches_is_replaced_without_a_moment_in_which_nothing_does",
    ),
    Bug(
        "what_vouches_is_no_more_once_it_was_opened_again",
        "wal.vouching",
        " and key not in self._barred:\n",
        ":\n",
        "tests.segments.test_vouched_always:"
        "test_a_log_that_was_opened_again_is_vouched_for_behind_its_barrier",
    ),
    Bug(
        "a_start_empties_the_wal_before_it_vouches_again",
        "starting",
        "            self._keep_what_vouches()\n",
        "",
        "tests.segments.test_vouched_always:"
        "test_a_start_on_a_damaged_disk_that_is_killed_anywhere_tells_it_all_the_same",
    ),
    Bug(
        "the_write_ahead_log_alone_speaks_of_its_files",
        "wal.markers",
        '    return f"{root}/{name}", f"{witness_folder(root)}/{name}"\n',
        '    return (f"{root}/{name}",)  # type: ignore[return-value]\n',
        "tests.segments.test_parts_of_a_backup:"
        "test_a_file_of_the_write_ahead_log_that_is_removed_with_its_marker_is_told",
    ),
    Bug(
        "the_end_of_a_file_is_said_before_it_is_synced",
        "wal.shard",
        "(active.sequence, end)\n",
        "(active.sequence, end + 1)\n",
        "tests.segments.test_parts_of_a_backup:test_the_end_of_a_file_in_use_is_known_after_a_minute",
    ),
    Bug(
        "numbers_of_files_begin_anew_after_an_orderly_stop",
        "wal.replay",
        "    found.follow(least(storage, witness_folder(root), WAL_FROM) - 1)\n",
        "",
        "tests.segments.test_parts_of_a_backup:test_no_number_of_a_file_is_used_in_two_lives",
    ),
    Bug(
        "a_snapshot_is_spoken_of_before_it_is_there",
        "metadata.metadata_log",
        "            replace_file(self._storage, self._path(new), data)\n",
        "            self._number = new\n            self._tell_witness()\n"
        "            replace_file(self._storage, self._path(new), data)\n",
        "the_first_records",
    ),
    Bug(
        "what_a_flusher_acknowledged_is_vouched_for_by_the_next_group",
        "handler",
        "        if self.ceiling is None:\n            self._journaling.say_end()\n",
        "",
        "tests.segments.test_vouched_always:"
        "test_a_batch_too_large_for_the_write_ahead_log_is_vouched_for_as_it_is_acknowledged",
    ),
    Bug(
        "what_was_opened_again_is_vouched_for_by_the_next_group",
        "journaling",
        "        self._wal.barrier(*self.wal_key, end)\n",
        "        self._wal.barrier(*self.wal_key)\n",
        "tests.segments.test_vouched_always:"
        "test_a_log_that_is_opened_again_after_a_failure_is_vouched_for_at_every_moment",
    ),
    Bug(
        "what_was_opened_again_without_frames_is_vouched_for_by_the_next_group",
        "handler",
        "        self.say_end()  # a class without frames has no BARRIER either\n",
        "",
        "tests.segments.test_vouched_always:"
        "test_a_log_that_is_opened_again_after_a_failure_is_vouched_for_at_once[memory]",
    ),
    Bug(
        "what_an_opening_has_found_is_vouched_for_by_the_next_group",
        "opened_partitions",
        "            handler.say_end()\n",
        "            pass\n",
        "tests.segments.test_vouched_at_start:"
        "test_what_a_repeated_batch_is_answered_by_is_vouched_for",
    ),
    Bug(
        "no_header_at_the_end_of_a_wal_file",
        "wal.files",
        "            for position, block in header_blocks(header):\n",
        "            for position, block in header_blocks(header)[:1]:\n",
        "tests.segments.test_wal_pages:"
        "test_a_file_that_is_used_again_has_no_header_of_its_earlier_use_at_its_end",
    ),
    Bug(
        "what_the_loop_has_not_heard_of_was_promised_to_nobody",
        "failing",
        "        promised = max(stopped, self.high_watermark)\n",
        "        promised = self.high_watermark\n",
        "tests.segments.test_answers_under_way:"
        "test_what_the_wal_has_synced_is_not_cut_though_the_loop_hears_of_it_late",
    ),
    Bug(
        "behind_damage_no_failure_counts",
        "failing",
        "        if self.read_only is None or isinstance(self.read_only, PartitionDamaged):\n",
        "        if self.read_only is None:\n",
        "tests.segments.test_damaged_and_failing:"
        "test_what_was_acknowledged_before_the_damage_is_durable_behind_a_failed_sync[disk]",
    ),
    Bug(
        "what_memory_lost_with_a_failed_sync_is_no_loss_to_the_next_process",
        "failing",
        "            self._doubt_end()\n            raise\n",
        "            raise\n",
        "tests.segments.test_doubted_ends:test_a_lost_event_hides_no_doubt[disk]",
    ),
    Bug(
        "what_is_left_in_the_queue_is_taken_behind_an_opening",
        "journaling",
        "        self._direct_end = -1\n        self._asks_flusher = False\n        segment",
        "        self._direct_end = -1\n        self._asks_flusher = self._gave_up = False\n"
        "        segment",
        "tests.segments.test_answers_under_way:"
        "test_what_was_still_in_the_queue_moves_no_high_watermark",
    ),
    Bug(
        "a_file_of_another_shard_is_believed",
        "wal.replay",
        "        if scanned is not None and scanned.header.shard == shard:\n",
        "        if scanned is not None:\n",
        "tests.segments.test_wal_names:test_a_file_of_another_shard_in_the_place_of_one_is_damage",
    ),
)
