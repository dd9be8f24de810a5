"""Changes of one place that make no difference, each read by a person: not to be judged again.

By module, function, what stands there, what would, and how many of the same stand before it in the
function.  Whoever changes the line takes its row out; tests/segments/test_planted_bugs.py holds
that every row still speaks of a place.

| kind | why the condition, call or sum stays all the same |
|---|---|
| cost | it saves a write, a sync, a look or a wait; nobody sees another outcome |
| second line | something else holds the same promise; one of the two may change some day |
| model | it matters where a directory loses an earlier change and keeps a later one |
"""

from typing import Final, TypeAlias

from .equivalent_wal import WAL

Key: TypeAlias = tuple[str, str, str, str, int]

EQUIVALENT: Final[dict[Key, str]] = {
    **WAL,
    (
        "opening",
        "_Opening._write_and_sync",
        "segment.size and self._evidence.writes_again",
        "(segment.size)",
        0,
    ): "cost: the same bytes are written once more",
    (
        "opening",
        "_Opening._write_and_sync",
        "segment.size or self._steps",
        "(segment.size)",
        0,
    ): "second line: a file that was cut to nothing was synced by who cut it",
    ("resuming", "_chunks", "start + ROWS_MAX", "(start + ROWS_MAX + 1)", 0): (
        "cost: a row in two events says the same twice"
    ),
    (
        "known",
        "Known.knows_base",
        "self.start.max_timestamp >= 0",
        "(self.start.max_timestamp > 0)",
        0,
    ): ("second line: a first segment that begins at 0 is read as if nobody knew, and found at 0"),
    ("truncating", "truncate_log", "offset < s.next_offset", "(offset <= s.next_offset)", 0): (
        "cost: a cut at the end of a segment leaves one empty segment less"
    ),
    ("metadata_log", "MetadataLog._save", "self._number + 1", "(self._number + 1 + 1)", 0): (
        "second line: numbers of snapshots rise, whether or not they have holes"
    ),
    ("truncating", "truncate_log", "storage.fsync_dir(paths.folder)", "pass", 0): (
        "model: a snapshot that came back alone covers more than the log has, and is not used"
    ),
    (
        "producer_snapshot",
        "covers",
        "log.producers_saved >= end_offset or not len(log.producers)",
        "(not len(log.producers))",
        0,
    ): ("cost: a snapshot that says nothing new"),
    ("rolling", "Rolling._make_ready", "self._owner.fail(exc)", "pass", 0): (
        "cost: the log has failed; the next sync of it tells, or the tick"
    ),
    ("swapping", "_put", "storage.sync_names(failures)", "pass", 0): (
        "model: what is unlinked later is in the same directory"
    ),
    (
        "deleting",
        "unlink_doomed",
        "log.is_superseded or not (log.doomed or log.stuck)",
        "(not (log.doomed or log.stuck))",
        0,
    ): ("second line: the log that was opened instead does not have these segments either"),
    (
        "deleting",
        "_begin_at",
        "count and log.failed is None and not covers(log, base_offset)",
        "(count and log.failed is None)",
        0,
    ): ("cost: a snapshot that says nothing new"),
    (
        "deleting",
        "compact_manifest",
        "not is_over and log.manifest.is_long(rows_count)",
        "(not is_over)",
        0,
    ): ("cost: a manifest that is short is written anew"),
    (
        "deleting",
        "compact_manifest",
        "len(log.sealed) + len(log.epochs) + 1",
        "(len(log.sealed) + len(log.epochs) + 1 + 1)",
        0,
    ): ("cost: a manifest may have a row of history more"),
    ("deleting", "_unlink", "log.storage.fsync_dir(log.paths.folder)", "pass", 0): (
        "second line: a file that came back is removed by the next opening"
    ),
    ("swapping", "_put", "log.files.indexes.put((paths.folder, row.number), index)", "pass", 0): (
        "cost: the first reader reads the index from its file"
    ),
    ("mending", "_take_up", "log.files.indexes.put((paths.folder, number), index)", "pass", 0): (
        "cost: the first reader reads the index from its file"
    ),
    ("evicting", "Evicting.look_at_ages", "self._age_ms = age_ms", "pass", 0): (
        "cost: what is sealed behind the round goes with the next one"
    ),
    (
        "manifest_file",
        "ManifestFile.is_long",
        "rows > rows_count + max(rows_count, HISTORY_ROWS_MAX)",
        "(rows >= rows_count + max(rows_count, HISTORY_ROWS_MAX))",
        0,
    ): ("cost: a manifest is written anew a row earlier"),
    ("dirtiness", "dirt_of", "end <= first", "(end < first)", 0): (
        "cost: nothing is added up, to nothing"
    ),
    ("truncating", "truncate_log", "file.fdatasync()", "pass", 0): (
        "second line: the opening that follows syncs what it keeps"
    ),
    ("producer_snapshot", "save_producers", "log.producers_saved = taken.end_offset", "pass", 0): (
        "cost: a snapshot that says nothing new"
    ),
    (
        "share_groups",
        "pieces",
        "size_max - _EVENT_OVERHEAD",
        "(size_max - _EVENT_OVERHEAD + 1)",
        0,
    ): ("second line: what a row takes is estimated from above"),
    ("share_groups", "_laid_over", "cover[1] > last", "(cover[1] >= last)", 0): (
        "cost: the next span passes over it"
    ),
    ("witness", "say_least", "one < number", "(one <= number)", 0): (
        "second line: the number itself was looked for before"
    ),
}
"""Why, by what it is."""
