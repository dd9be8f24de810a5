"""Changes of one place of the write-ahead log that make no difference: as equivalent.py says."""

from typing import Final

WAL: Final[dict[tuple[str, str, str, str, int], str]] = {
    (
        "wal.scanning",
        "_resume",
        'int.from_bytes(data[found + 16 : found + 24], "big") > after',
        "(int.from_bytes(data[found + 16:found + 24], 'big') >= after)",
        0,
    ): ("second line: no two have the same"),
    ("wal.scanning", "_end_of", "end_offset < 0", "(end_offset <= 0)", 0): (
        "second line: no batch ends at 0"
    ),
    (
        "wal.scanning",
        "_suspects",
        "len(data) - position >= overhead",
        "(len(data) - position > overhead)",
        0,
    ): ("cost: a frame of nothing but its overhead has no batches to tell of"),
    ("wal.scanning", "_suspects", "len(data) - position", "(len(data) - position + 1)", 0): (
        "cost: a frame of a byte too few has no batches to tell of"
    ),
    ("wal.supply", "Supply.next_file", "raise self._is_full()", "pass", 0): (
        "second line: without a thread a checkpoint has made room, or said why not, by then"
    ),
    ("wal.replay", "_replay_shard", "found.follow(number)", "pass", 0): (
        "second line: a number is used again only when no file has it, and its header has to agree"
    ),
    (
        "wal.missing",
        "_room_below",
        "room + given_up.position",
        "(room + given_up.position + 1)",
        0,
    ): ("second line: room for a frame is asked for, and that has more than a byte"),
    (
        "wal.missing",
        "_room_below",
        "room + given_up.position - FRAMES_BEGIN",
        "(room + given_up.position - FRAMES_BEGIN + 1)",
        0,
    ): ("second line: the same"),
    ("wal.missing", "missing_in_front", "place + 1", "(place + 1 + 1)", 0): (
        "second line: what was given up stands in no later file than what says so"
    ),
    (
        "wal.missing",
        "_room_below",
        "scanned.size - FRAMES_BEGIN",
        "(scanned.size - FRAMES_BEGIN + 1)",
        0,
    ): ("second line: the same"),
    (
        "wal.missing",
        "missing_in_front",
        "first.position - FRAMES_BEGIN",
        "(first.position - FRAMES_BEGIN + 1)",
        0,
    ): ("second line: the same"),
    ("wal.missing", "events_in", "place + 1", "(place + 1 + 1)", 0): (
        "second line: no magic begins at the second byte of another"
    ),
    ("wal.replay", "_sum_up_losses", "max(unnamed, 0)", "(unnamed)", 0): (
        "second line: no more frames are named than are missing"
    ),
    ("wal.replay", "Replay.follow", "number + 1", "(number + 1 + 1)", 0): (
        "second line: numbers of files rise, whether or not they have holes"
    ),
    ("wal.replay", "Replay.follow", "number < NUMBERS_MAX", "(number <= NUMBERS_MAX)", 0): (
        "second line: names have room for the number behind it as well"
    ),
    ("wal.files", "ShardFiles.open", "free[-1] + 1", "(free[-1] + 1 + 1)", 0): (
        "second line: numbers of free files rise, too"
    ),
    ("wal.files", "discard_used", "free[-1] + 1", "(free[-1] + 1 + 1)", 0): (
        "second line: numbers of free files rise, too"
    ),
    (
        "wal.missing",
        "missing_in_front",
        "max(later, default=0) >= lsn",
        "(max(later, default=0) > lsn)",
        0,
    ): ("second line: a group that begins with the first frame is that one's own"),
    ("wal.scanning", "_resume", "found + 16", "(found + 16 + 1)", 0): (
        "second line: no lsn has eight bytes"
    ),
    ("wal.scanning", "_resume", "position + 1", "(position + 1 + 1)", 0): (
        "second line: no frame has one byte"
    ),
    (
        "wal.scanning",
        "_suspects",
        "kind == FrameType.BATCHES and length > overhead",
        "(length > overhead)",
        0,
    ): ("second line: an event is no batches"),
    ("wal.scanning", "_suspects", "min(length, len(data) - position)", "(length)", 0): (
        "second line: the checksum and the trailer behind batches are none"
    ),
    ("wal.scanning", "_suspects", "end_offset >= 0", "(end_offset > 0)", 0): (
        "second line: no batch ends at 0"
    ),
    ("wal.replay", "_fold", "found.next_lsn = max(found.next_lsn, frame.lsn + 1)", "pass", 0): (
        "second line: all files are absorbed before an lsn is given again"
    ),
    ("wal.replay", "_fold", "frame.lsn + 1", "(frame.lsn + 1 + 1)", 0): (
        "second line: between two lives an lsn may be left out"
    ),
    ("wal.replay", "_was_given_up", "frame.lsn > suspect.lsn", "(frame.lsn >= suspect.lsn)", 0): (
        "second line: no two have the same"
    ),
    ("wal.journal", "Wal.absorbed", "shard.supply.prepare_soon()", "pass", 0): (
        "cost: the first write waits for its file"
    ),
    (
        "wal.shard",
        "Shard._commit",
        "group.size >= GROUP_BYTES_MAX",
        "(group.size > GROUP_BYTES_MAX)",
        0,
    ): ("cost: a group may have a byte more"),
    ("wal.frames", "encode_frame", "len(payload) <= _SMALL", "(not len(payload) <= _SMALL)", 0): (
        "cost: two ways to the same bytes"
    ),
    (
        "wal.frames",
        "later_version",
        "len(head) == HEADER_SIZE and head.endswith( xxhash.xxh3_64_digest(head[: HEADER_SIZE"
        " - SUM_SIZE]) )",
        "(head.endswith(xxhash.xxh3_64_digest(head[:HEADER_SIZE - SUM_SIZE])))",
        0,
    ): ("second line: no bytes end with their own checksum"),
    ("wal.group", "crosses_a_page", "first >= 0", "(first > 0)", 0): (
        "second line: no frame lies in the page of the header"
    ),
    (
        "wal.pending",
        "Pending.add",
        "len(self._payload) + size > self._limit",
        "(len(self._payload) + size >= self._limit)",
        0,
    ): ("cost: a frame more, where batches fill one to the byte"),
    (
        "wal.shard",
        "Shard.commit_here",
        "self.vouching.has_riders # as many as there are partitions: the thread's or "
        "self.failure is not None or self._asked != self._settled or active is None or "
        "self._given_up is not None or active.end + size > active.frames_end",
        "(self.vouching.has_riders or self._asked != self._settled or active is None or "
        "(self._given_up is not None) or (active.end + size > active.frames_end))",
        0,
    ): ("second line: a group of a shard that failed is refused when it is written, and told"),
    (
        "wal.shard",
        "Shard.commit_here",
        "self.vouching.has_riders # as many as there are partitions: the thread's or "
        "self.failure is not None or self._asked != self._settled or active is None or "
        "self._given_up is not None or active.end + size > active.frames_end",
        "(self.vouching.has_riders or self.failure is not None or active is None or "
        "(self._given_up is not None) or (active.end + size > active.frames_end))",
        0,
    ): ("second line: it was looked at before the lock, and who asks in between is no earlier"),
    ("wal.shard", "Shard._retire", "self._has_control = False", "pass", 0): (
        "cost: a snapshot more"
    ),
    ("wal.trailers", "trailers_in", "found + 1", "(found + 1 + 1)", 0): (
        "second line: no magic begins in the second byte of another"
    ),
    ("wal.shard", "Shard._absorb", "self._events_given_up = False", "pass", 0): (
        "cost: a snapshot before each event"
    ),
    ("wal.trailers", "trailers_in", "found >= 0", "(found > 0)", 0): (
        "second line: no trailer lies in the page of the header"
    ),
    (
        "wal.pending",
        "Pending.add",
        "len(self._payload) + size",
        "(len(self._payload) + size + 1)",
        0,
    ): ("cost: a frame more, where batches fill one to the byte"),
    ("wal.journal", "Wal.close", "self._shards = []", "pass", 0): (
        "second line: nothing is called after it"
    ),
    ("wal.shard", "Shard.close", "self._thread = None", "pass", 0): (
        "second line: nothing is asked for after it"
    ),
    ("wal.shard", "Shard.release", "self._active = None", "pass", 0): (
        "second line: nothing is written after it"
    ),
    ("wal.group", "Group.refuse_events", "self.has_control = False", "pass", 0): (
        "cost: a snapshot more"
    ),
    (
        "wal.shard",
        "Shard._commit",
        "OVERHEAD + len(frame.payload)",
        "(OVERHEAD + len(frame.payload) + 1)",
        0,
    ): ("cost: the bound of a group comes a few bytes earlier"),
    ("wal.shard", "Shard._retire", "self._ends = {}", "pass", 0): (
        "cost: what rode with groups of earlier files rides once more with each"
    ),
    ("wal.trailers", "trailers_in", "trailer.lsn > after", "(trailer.lsn >= after)", 0): (
        "second line: no two have the same"
    ),
    (
        "wal.shard",
        "Shard._append",
        "self._next_lsn > begin.lsn",
        "(self._next_lsn >= begin.lsn)",
        0,
    ): ("cost: a frame that gives nothing up"),
    (
        "wal.shard",
        "Shard._append_all",
        "group.has_control and crosses_a_page(frames[place:], active.end, limit)",
        "(crosses_a_page(frames[place:], active.end, limit))",
        0,
    ): ("cost: a look at frames none of which is an event"),
    (
        "wal.shard",
        "Shard._write_group",
        "group.has_control and self._events_given_up",
        "(self._events_given_up)",
        0,
    ): ("cost: a snapshot with the next group, not with the next event"),
    ("wal.files", "ShardFiles._make_of", "file.fdatasync()", "pass", 0): (
        "cost: the sync of the header, the first one, is that of the zeros"
    ),
    ("wal.files", "unlink_free", "is_given", "(not is_given)", 0): (
        "model: a free file that comes back is used, or given up again"
    ),
    ("wal.frames", "frame_at", "len(data) - position", "(len(data) - position + 1)", 0): (
        "second line: no length is right where there is a byte too few"
    ),
    (
        "wal.frames",
        "frame_at",
        "len(data) - position < overhead",
        "(len(data) - position <= overhead)",
        0,
    ): ("second line: a frame of nothing at the very end is made again from its trailer"),
    ("wal.frames", "frame_at", "kind not in TYPES or ordinal > lsn", "(kind not in TYPES)", 0): (
        "second line: its checksum says that we wrote it"
    ),
    (
        "wal.frames",
        "later_version",
        "magic == MAGIC and version > VERSION",
        "(version > VERSION)",
        0,
    ): ("second line: no bytes end with their own checksum"),
    ("wal.journal", "Wal.absorbed", "self._threaded", "(not self._threaded)", 0): (
        "cost: the first write waits for its file"
    ),
    ("wal.shard", "Shard._append_all", "place - first", "(place - first + 1)", 0): (
        "cost: a group of 65,536 frames takes a second sync"
    ),
    (
        "wal.shard",
        "Shard.commit_here",
        "size > HERE_BYTES_MAX or self._asked != self._settled or not "
        "self._inline_budget.is_quick or not self._writing.acquire(blocking=False)",
        "(size > HERE_BYTES_MAX or not self._inline_budget.is_quick or (not "
        "self._writing.acquire(blocking=False)))",
        0,
    ): ("second line: it is looked at again under the lock"),
    (
        "wal.frames",
        "frame_at",
        "magic != FRAME_MAGIC or flags & ~(AFTER_FAILURE | AWAITS_MARK) or not overhead <= "
        "length <= len(data) - position",
        "(flags & ~(AFTER_FAILURE | AWAITS_MARK) or not overhead <= length <= len(data) - "
        "position)",
        0,
    ): ("second line: its checksum says that we wrote it"),
    (
        "wal.shard",
        "Shard._append_all",
        "place - first <= ORDINAL_MAX",
        "(place - first < ORDINAL_MAX)",
        0,
    ): ("cost: a group of 65,536 frames takes a second sync"),
    (
        "wal.trailers",
        "trailers_in",
        "isinstance(data.obj, bytes | bytearray)",
        "(not isinstance(data.obj, bytes | bytearray))",
        0,
    ): ("cost: the file is copied; nobody brings anything but bytes"),
    ("wal.frames", "encode_frame", "len(payload) <= _SMALL", "(len(payload) < _SMALL)", 0): (
        "cost: two ways to the same bytes"
    ),
    ("wal.replay", "_scan_files", "found.follow(number)", "pass", 0): (
        "second line: a number is used again only when no file has it"
    ),
    ("wal.missing", "events_in", "lsn > after", "(lsn >= after)", 0): (
        "second line: no two have the same"
    ),
    ("wal.missing", "frames_max_in", "FRAME_SIZE + SUM_SIZE", "(FRAME_SIZE + SUM_SIZE + 1)", 0): (
        "second line: frames of today are longer"
    ),
    ("wal.scanning", "scan_file", "frame is None or frame.lsn <= after", "(frame is None)", 0): (
        "second line: right behind a frame stands what was written behind it"
    ),
    ("wal.replay", "_fold", "told[0].lsn < frame.lsn", "(told[0].lsn <= frame.lsn)", 0): (
        "second line: no two have the same"
    ),
    ("wal.replay", "_look_for_holes", "not hole.durable and awaits_a_mark", "(awaits_a_mark)", 0): (
        "second line: what was durable is told as that, torn or not"
    ),
    ("wal.journal", "Wal.absorbed", "self._replayed = Replay()", "pass", 0): (
        "cost: what a start has read stays in memory"
    ),
    (
        "wal.frames",
        "header_of",
        "HEADER_COPY + HEADER_SIZE",
        "(HEADER_COPY + HEADER_SIZE + 1)",
        0,
    ): ("second line: what stands behind a header is not looked at"),
    ("wal.files", "unlink_free", "storage.fsync_dir(folder)", "pass", 0): (
        "cost: a file system that needs its journal for the space writes it then"
    ),
    (
        "wal.scanning",
        "_suspects",
        "kind == FrameType.BATCHES and length > overhead",
        "(kind == FrameType.BATCHES)",
        0,
    ): ("second line: a frame of nothing but its overhead has no batches to tell of"),
    ("wal.scanning", "_suspects", "length > overhead", "(length >= overhead)", 0): (
        "second line: a frame of nothing but its overhead has no batches to tell of"
    ),
    ("wal.scanning", "_resume", "found >= 0", "(found > 0)", 0): (
        "second line: nothing is found in front of where the search begins"
    ),
    (
        "wal.scanning",
        "_suspects",
        "position + length + FRAME_SIZE",
        "(position + length + FRAME_SIZE + 1)",
        0,
    ): ("second line: a byte behind the last batch is no batch"),
    ("wal.scanning", "_suspects", "position + length", "(position + length + 1)", 0): (
        "second line: a byte behind the last batch is no batch"
    ),
    (
        "wal.scanning",
        "_suspects",
        "position + length + FRAME_SIZE - overhead",
        "(position + length + FRAME_SIZE - overhead + 1)",
        0,
    ): ("second line: a byte behind the last batch is no batch"),
    ("wal.scanning", "_suspects", "len(data) - position", "(len(data) - position + 1)", 1): (
        "second line: a byte behind the last batch is no batch"
    ),
    ("wal.scanning", "_name", "max(trailer.end_offset, 0)", "(trailer.end_offset)", 0): (
        "second line: who says no offset is not asked for one"
    ),
    ("wal.scanning", "scan_file", "frame.lsn <= after", "(frame.lsn < after)", 0): (
        "second line: no two have the same"
    ),
    ("wal.missing", "is_in", "m.lsn + m.frames", "(m.lsn + m.frames + 1)", 0): (
        "second line: right behind a hole stands a frame that is there"
    ),
    (
        "wal.scanning",
        "_resume",
        "isinstance(data.obj, bytes | bytearray)",
        "(not isinstance(data.obj, bytes | bytearray))",
        0,
    ): ("cost: the file is copied; nobody brings anything but bytes"),
    (
        "wal.missing",
        "missing_in_front",
        "scanned.size - FRAMES_BEGIN",
        "(scanned.size - FRAMES_BEGIN + 1)",
        0,
    ): ("second line: room for a frame is asked for, and that has more than a byte"),
    (
        "wal.missing",
        "_room_below",
        "given_up.position and scanned.header.sequence & SEQUENCE_MASK == given_up.segment",
        "(scanned.header.sequence & SEQUENCE_MASK == given_up.segment)",
        0,
    ): ("second line: a frame of this kind that is whole says where"),
    ("wal.missing", "Missing.what", "self.lsn < 0", "(self.lsn <= 0)", 0): (
        "second line: nothing stands in front of the first frame of all"
    ),
    ("wal.scanning", "_suspects", "lsn += 1", "pass", 0): (
        "second line: those of one hole are told together, whatever their numbers"
    ),
    ("wal.scanning", "_resume", "found + 1", "(found + 1 + 1)", 0): (
        "second line: no magic begins at the second byte of another"
    ),
}
