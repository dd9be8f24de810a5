"""Bugs of the log itself: files, rolls, seals, deletions, producers, topics."""

from .planting import Bug

LOG_BUGS: tuple[Bug, ...] = (
    Bug(
        "an_opening_whose_failed_sync_could_not_be_marked_doubts_nothing",
        "failing",
        "            if isinstance(cause, Unmarked):\n                self._doubt_end()",
        "            if isinstance(cause, Unmarked):\n                pass",
        "tests.segments.test_doubted_ends:"
        "test_an_opening_whose_sync_a_full_disk_fails_leaves_the_reservation_in_doubt[True-disk]",
    ),
    Bug(
        "what_a_stop_is_in_doubt_about_asks_for_a_snapshot",
        "manager",
        "        self._end_threads()\n        failures: list[Exception] = []\n",
        "        self._end_threads()\n        self._metadata.attach(None)\n        failures = []\n",
        "tests.segments.test_doubted_ends:"
        "test_what_the_last_sync_of_a_stop_has_cost_is_told_though_no_file_can_be_made[disk]",
    ),
    Bug(
        "where_the_disk_takes_no_mark_nothing_is_doubted",
        "failing",
        "        if self._log.is_unmarked or (is_refused and self._log.sync_failed):\n",
        "        if is_refused and self._log.sync_failed:\n",
        "tests.segments.test_doubted_ends:"
        "test_where_the_disk_takes_no_mark_the_reservation_says_what_is_in_doubt[killed-True-disk]",
    ),
    Bug(
        "a_temporary_file_is_not_synced",
        "storage",
        "        if synced:\n            file.fdatasync()\n",
        "",
        "the_first_records",
    ),
    Bug(
        "a_rename_is_not_synced",
        "storage",
        '    storage.fsync_dir(path.rpartition("/")[0])\n',
        "",
        "the_first_records",
    ),
    Bug(
        "a_rename_before_the_sync",
        "storage",
        '    put_file(storage, path, content)\n    storage.fsync_dir(path.rpartition("/")[0])\n',
        '    storage.fsync_dir(path.rpartition("/")[0])\n    put_file(storage, path, content)\n',
        "the_first_records",
    ),
    Bug(
        "new_directories_are_not_synced",
        "storage",
        "            storage.fsync_dir(_above(path))\n        except OSError:\n",
        "            pass\n        except OSError:\n",
        "the_first_records",
    ),
    Bug(
        "the_rest_of_a_short_write_goes_to_the_wrong_place",
        "storage",
        "file.pwrite(view[done:], position + done)",
        "file.pwrite(view[done:], position)",
        "a_short_write_goes_on",
    ),
    Bug(
        "the_rest_of_a_short_write_is_forgotten",
        "storage",
        "    if done == len(data):\n        return\n",
        "    return\n",
        "a_short_write_goes_on",
    ),
    Bug(
        "the_directories_of_partitions_are_not_synced",
        "topic_registry",
        "        self._storage.fsync_dir(self._topic_folder(meta.name))\n",
        "",
        "the_first_records",
    ),
    Bug(
        "the_directories_of_topics_are_not_synced",
        "topic_registry",
        "                        self._storage.fsync_dir(self._topics)\n",
        "                        pass\n",
        "topics_made_and_deleted_together",
    ),
    Bug(
        "of_topics_made_together_one_is_written",
        "metadata_log",
        "                wait = self._log.control(*payloads)\n",
        "                wait = self._log.control(*payloads[:1])\n",
        "topics_made_and_deleted_together",
    ),
    Bug(
        "the_names_of_a_new_log_are_not_synced",
        "manifest_file",
        " since that began.\n        self._storage.fsync_dir(self._paths.folder)\n",
        " since that began.\n",
        "the_first_records_of_class_disk",
    ),
    Bug(
        "a_log_with_records_counts_as_a_new_one",
        "survey",
        "            not any(len(step.data) or step.rebuilt for step in self.steps)\n",
        "            not any(step.rebuilt for step in self.steps)\n",
        "killed_and_only_ticked",
    ),
    Bug(
        "a_topic_is_known_before_it_has_directories",
        "topic_registry",
        "                    if classes - {Durability.EPHEMERAL}:\n"
        "                        self._storage.fsync_dir(self._topics)\n",
        '                    self.record_all("topic_created", '
        "map(encode_topic, change.taken.values()))\n"
        "                    self._storage.fsync_dir(self._topics)\n",
        "topics_in_a_row",
    ),
    Bug(
        "a_topic_grows_before_it_has_directories",
        "topic_registry",
        "            self._make_partitions(meta, range(meta.partitions, count))\n",
        "            pass\n",
        "a_topic_grows",
    ),
    Bug(
        "what_a_growth_that_failed_has_left_is_made_use_of",
        "topic_registry",
        "                self._storage.rmdir(path)\n",
        "                continue\n",
        "the_names_of_further_partitions_are_not_synced_at_first",
    ),
    Bug(
        "what_a_change_that_failed_has_made_goes_while_it_may_come_true",
        "topic_registry",
        "        if not self._metadata.settle():\n",
        "        if self._metadata.why_unsettled == 'never':\n",
        "tests.segments.test_asked_again:test_what_comes_true_at_a_kill_has_its_directories[grown]",
    ),
    Bug(
        "a_topic_whose_deletion_is_in_doubt_is_written_to",
        "topic_registry",
        "                    self._partitions.withhold(meta.name, is_over)\n",
        "                    pass\n",
        "tests.segments.test_metadata_log:"
        "test_nobody_writes_into_a_topic_whose_deletion_may_come_true",
    ),
    Bug(
        "the_files_of_a_topic_go_before_its_deletion_is_known",
        "topic_registry",
        '                self.record_all("topic_deleted", rows)\n',
        "                remove_tree(self._storage, self._topic_folder(name))\n"
        "                self._storage.mkdir(self._topic_folder(name))\n"
        '                self.record_all("topic_deleted", rows)\n',
        "a_topic_is_deleted_with_unsynced_records",
    ),
    Bug(
        "producer_ids_are_given_again",
        "manager",
        'self._registry.record("producer_ids", next=first + count)',
        'self._registry.record("producer_ids", next=first)',
        "ids_of_producers",
    ),
    Bug(
        "an_offset_is_used_again",
        "partition_log",
        "            base_offset + header.last_offset_delta + 1,\n",
        "            base_offset + max(header.last_offset_delta, 1),\n",
        "batches_of_several_records",
    ),
    Bug(
        "a_roll_leaves_a_hole",
        "partition_log",
        "            number,\n            old.next_offset,\n",
        "            number,\n            old.next_offset + 1,\n",
        "rolls",
    ),
    Bug(
        "a_roll_steps_back",
        "partition_log",
        "            number,\n            old.next_offset,\n",
        "            number,\n            old.next_offset - 1,\n",
        "rolls",
    ),
    Bug(
        "full_segments_are_not_synced",
        "partition_log",
        "self.rotating if rotating_only else [*self.rotating, self.active]",
        "[] if rotating_only else [self.active]",
        "rolls_of_class_disk",
    ),
    Bug(
        "the_active_segment_is_not_synced",
        "partition_log",
        "self.rotating if rotating_only else [*self.rotating, self.active]",
        "self.rotating",
        "the_first_records_of_class_disk",
    ),
    Bug(
        "the_name_of_a_segment_is_not_synced",
        "partition_log",
        "        elif not all(segment.name_is_durable for segment in segments):\n",
        "        elif False:\n",
        "a_log_grows",
    ),
    Bug(
        "a_segment_counts_as_made_ahead",
        "ready",
        "        return Taken(self._storage.open(self._paths.log(number), create=True), is_made)\n",
        "        return Taken(self._storage.open(self._paths.log(number), create=True), True)\n",
        "a_log_grows",
    ),
    Bug(
        "names_of_segments_made_ahead_are_not_synced",
        "ready",
        "                self._storage.sync_names(failures)\n",
        "                pass\n",
        "rolls_behind_a_first_sync",
    ),
    Bug(
        "sealed_before_it_is_synced",
        "sealing",
        "        log.sync(rotating_only=True)\n",
        "",
        "rolls_of_class_disk",
    ),
    Bug(
        "the_row_before_the_sync",
        "sealing",
        "        log.sync(rotating_only=True)\n"
        "        rows = [_write_index(log, segment) for segment in segments]\n"
        "        log.note(rows)\n",
        "        rows = [_write_index(log, segment) for segment in segments]\n"
        "        log.note(rows)\n"
        "        log.sync(rotating_only=True)\n",
        "rolls_of_class_disk",
    ),
    Bug(
        "a_checkpoint_without_a_sync",
        "producer_snapshot",
        "    log.sync()\n    encoded = producers.encode(",
        "    encoded = producers.encode(",
        "snapshots_of_producers",
    ),
    Bug(
        "a_checkpoint_vouches_for_too_much",
        "sealing",
        "end_offset=taken.end_offset, size=taken.size",
        "end_offset=taken.end_offset + 1, size=taken.size",
        "closed_and_opened_again",
    ),
    Bug(
        "a_log_start_that_is_not_synced",
        "deleting",
        "    try:\n        log.note([row], sync=True)\n",
        "    try:\n        log.note([row])\n",
        "old_segments_expire",
    ),
    Bug(
        "a_log_start_that_is_not_written",
        "deleting",
        "    try:\n        log.note([row], sync=True)\n",
        "    try:\n        pass\n",
        "tests.segments.test_floors:"
        "test_an_index_whose_segment_is_gone_is_gone_after_the_next_opening",
    ),
    Bug(
        "files_go_before_the_log_start_is_known",
        "deleting",
        "    _begin_at(log, max(end_offset, log.log_start_offset), count, floor)\n",
        "    first = log.sealed.first_number\n"
        "    _unlink(log, list(range(first, first + count)))\n"
        "    _begin_at(log, max(end_offset, log.log_start_offset), count, floor)\n",
        "old_segments_expire",
    ),
    Bug(
        "one_segment_too_many_is_deleted",
        "deleting",
        "    log.doomed += going\n",
        "    log.doomed += [*going, following]\n",
        "old_segments_expire",
    ),
    Bug(
        "a_log_is_truncated_under_its_old_manifest",
        "truncating",
        "    replace_file(storage, paths.manifest, encode_manifest(now_ms, rows, paths.owner))\n",
        "",
        "truncated_after_a_checkpoint",
    ),
    Bug(
        "a_batch_too_much_is_truncated",
        "truncating",
        "if found.header.next_offset <= offset)",
        "if found.header.next_offset < offset)",
        "truncated_inside_the_active_segment",
    ),
    Bug(
        "a_batch_too_few_is_truncated",
        "truncating",
        "if found.header.next_offset <= offset)",
        "if found.header.base_offset <= offset)",
        "truncated_inside_the_active_segment",
    ),
    Bug(
        "a_repeated_batch_is_appended",
        "producers",
        "                return batch\n",
        "                return None\n",
        "an_idempotent_producer",
    ),
    Bug(
        "producers_are_not_replayed",
        "producer_replay",
        "table.apply(header, header.base_offset, batch, lost if is_all_known else 0)",
        "pass",
        "producers_that_begin_again",
    ),
    Bug(
        "acknowledged_from_the_page_cache",
        "handler",
        "            self._journaling.add(data, opened, opened.active, base_offset, now_ms)\n",
        "            self._journaling.add(data, opened, opened.active, base_offset, now_ms)\n"
        "            self.high_watermark = opened.log_end_offset\n",
        "the_first_records",
    ),
    Bug(
        "records_of_class_fsync_are_not_journaled",
        "handler",
        "            self._journaling.add(data, opened, opened.active, base_offset, now_ms)\n",
        "            self.high_watermark = opened.log_end_offset\n",
        "the_first_records",
    ),
    Bug(
        "offsets_are_not_reserved",
        "ceilings",
        "                self._reserve_as_asked(reserved)\n",
        "                reserved(None)\n",
        "the_first_records_of_class_disk",
    ),
    Bug(
        "a_reservation_ends_a_doubt",
        "ceilings",
        "        boot = IN_DOUBT if self._is_doubted else self._boot\n"
        "        self._reserve(Ceiling(self._asked, boot), done)\n",
        "        is_over = not self._is_doubted or done is not _whether_or_not\n"
        "        boot = self._boot if is_over else IN_DOUBT\n"
        "        self._reserve(Ceiling(self._asked, boot), done)\n",
        "tests.segments.test_doubted_ends:"
        "test_what_is_on_its_way_to_be_reserved_is_in_doubt_as_well[disk]",
    ),
    Bug(
        "what_is_on_its_way_to_be_reserved_is_not_behind_a_doubt",
        "ceilings",
        "        self._reserve(Ceiling(self._asked, boot), done)\n",
        "        offset = self.durable if done is _whether_or_not else self._asked\n"
        "        self._reserve(Ceiling(offset, boot), done)\n",
        "tests.segments.test_doubted_ends:"
        "test_what_is_on_its_way_to_be_reserved_is_so_behind_a_doubt[disk]",
    ),
    Bug(
        "what_a_class_has_left_is_left_when_the_log_was_opened_again",
        "handler",
        "        self._trust_end()\n        self._left = None\n",
        "        self._trust_end()\n",
        "tests.segments.test_doubted_ends:"
        "test_what_a_class_has_left_is_in_doubt_no_more_when_the_log_was_opened_again[disk]",
    ),
    Bug(
        "offsets_are_reserved_when_they_are_used_up",
        "handler",
        "            if end_offset > ceiling.renew_at:\n"
        "                ceiling.renew(end_offset, self._ceiling_renewed)\n"
        "            visible = min(end_offset, ceiling.durable)\n",
        "            visible = end_offset\n",
        "the_first_records_of_class_disk",
    ),
    Bug(
        "segments_made_ahead_keep_their_names_in_doubt",
        "salvaging",
        "            clear_the_way(log.storage, log.paths, number)\n",
        "            pass\n",
        "a_sync_of_names_made_ahead_fails",
    ),
    Bug(
        "an_empty_last_segment_keeps_its_name_in_doubt",
        "salvaging",
        "    empty_from = log.active.number + (log.active.size > 0)\n",
        "    empty_from = log.active.number + 1\n",
        "tests.segments.test_failing_names:"
        "test_a_sync_of_names_that_fails_costs_nothing_that_was_acknowledged[rolls_by_age-disk]",
    ),
    Bug(
        "names_that_waited_for_a_sync_that_failed_are_believed",
        "log_storage",
        "                self._on_failure(failure)\n",
        "",
        "the_sync_of_a_cleaned_name_fails_beside_names_that_wait",
    ),
    Bug(
        "a_sync_behind_one_that_failed_is_believed",
        "partition_log",
        "        if self.sync_failed:  # another failed since this sync began,",
        "        if False:  # another failed since this sync began,",
        "tests.segments.test_failing_names:"
        "test_a_sync_behind_another_of_the_names_that_failed_takes_none_for_durable",
    ),
    Bug(
        "a_manifest_is_synced_again_for_the_log_after_its_sync_failed",
        "manifest_file",
        "        if self.sync_failed:\n            raise",
        "        if False:\n            raise",
        "tests.segments.test_failing_names:"
        "test_a_manifest_that_could_not_be_synced_for_a_log_start_is_not_synced_for_the_log",
    ),
    Bug(
        "segments_made_ahead_do_not_wait_for_their_names",
        "partition_log",
        "self.manifest.sync_failed or self.ready.has_unsynced\n",
        "self.manifest.sync_failed\n",
        "tests.segments.test_failing_names:"
        "test_nothing_is_believed_of_segments_whose_maker_has_not_told_yet_that_it_failed",
    ),
)
