"""How a broker is doing, in words, for `broker status`.

First what an operator has to look at, if there is anything; then the numbers, one subject a line.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from .tables import table_lines
from .unserved import unserved_sentence
from .words import about, age, moment, plural

ROWS_SHOWN: Final = 20
"""Rows of a kind: the newest of the recovery report.  What the broker tells is in --json."""

CLOCK_AHEAD_MS: Final = 86_400_000
"""A broker that was off for less than a day may have been off on purpose."""

Info: TypeAlias = Mapping[str, Any]

UNCOUNTED_LOSSES: Final = {
    "wal_damaged": "the write-ahead log was damaged or missing: what was acknowledged shortly"
    " before the stop may be lost",
    "unknown_topic": "records of a topic that the metadata does not know are in quarantine/, and"
    " not served",
    "not_replayed": "records of the write-ahead log had no place in their segment",
}
"""What recovery found, and may be a loss of which nobody knows the offsets."""


def status_lines(info: Info) -> Iterator[str]:
    """info: what SERVER_INFO answers."""
    yield (
        f"broker {info['broker_id']} at {info['address']}, cluster {info['cluster_id']},"
        f" up {age(info['uptime_ms'])}"
    )
    found = list(concerns(info))
    yield "problems:" if found else "no problems"
    yield from (f"  {line}" for line in found)
    first, *others = _numbers(info)
    yield from table_lines(first, others)
    yield from _recovered(info["recovery"])


def concerns(info: Info) -> Iterator[str]:
    """What an operator has to look at, one line each."""
    if why := info.get("metadata_unsettled"):
        yield f"the metadata cannot be written, and changes to it are refused: {why}"
    elif why := info.get("metadata_not_saved"):
        yield (
            "the snapshot of the metadata cannot be written; until it can the write-ahead log keeps"
            f" what has changed, as far as it has room: {why}"
        )
    if (held := info.get("clock_held")) and held["ahead_ms"] >= CLOCK_AHEAD_MS:
        yield (
            f"the clock is {age(held['ahead_ms'])} ahead of where it was: if it is wrong, set it"
            f" right within {age(held['left_ms'])}; then what is too old by it is deleted"
        )
    yield from info.get("volume_full", ())
    yield from _of_partitions(info)
    yield from _of_listeners(info)
    for one in info.get("settings_left_out", ()):
        setting = f"{one['key']} = {one['value']}"
        yield f"{setting}, set while the broker ran, has no effect: {one['why']}"
    if why := (keys := info.get("signing_keys") or {}).get("why_not_read"):
        effect = "those read before stay in force" if keys["count"] else "no token can be checked"
        yield f"the keys that sign tokens cannot be read, {effect}: {why}"
    yield from _of_wal(info["wal"])
    if (newest := (info.get("failed_reads") or {}).get("newest")) is not None:
        count, where = info["failed_reads"]["count"], _where(newest)
        yield (
            f"{plural(count, 'read')} failed since the start, the last one of {where} at"
            f" {moment(newest['at_ms'])}: {newest['why']}; check the disk"
        )
    yield from _of_recovery(info["recovery"]["counts"])
    if count := info["scrub"]["errors"]:
        yield f"the scrub found damage {plural(count, 'time')}: check the disk"
    if count := info["cleaner"]["failures"]:
        yield f"{plural(count, 'cleaning')} failed: the log says why"


def _of_partitions(info: Info) -> Iterator[str]:
    for row in sorted(info.get("read_only", ()), key=_where)[:ROWS_SHOWN]:
        yield str(row["why"])
    if (more := info["storage"]["partitions_read_only"] - ROWS_SHOWN) > 0:
        yield f"{plural(more, 'more partition')} of the same kind"
    if count := info["storage"].get("not_removed_count"):
        yield (
            f"the files of {count:,} deleted segments or topics"
            " cannot be removed, and take room: the log says why"
        )
    not_opened = sorted(info.get("not_opened", ()), key=_where)
    for row in not_opened[:ROWS_SHOWN]:
        yield unserved_sentence(row["topic"], row["partition"], row["why"])
    if (more := len(not_opened) - ROWS_SHOWN) > 0:
        yield f"{plural(more, 'more partition')} not served: --json lists them"


def _of_listeners(info: Info) -> Iterator[str]:
    if (count := info.get("connections", 0)) >= info.get("connections_max", math.inf):
        yield f"the broker is full, with {plural(count, 'connection')}"
    for one in info.get("listeners", ()):
        if one["connections"] >= one["connections_max"]:
            yield f"listener {one['name']} is full, with {plural(one['connections'], 'connection')}"
    for one in info.get("certificates", ()):
        yield from _of_certificate(one)


def _of_wal(wal: Info) -> Iterator[str]:
    if count := wal["shards_failed"]:
        why = wal.get("why_failed")
        said = "failed" if why is None else f"cannot be written: {why}"
        yield f"{plural(count, 'shard')} of the write-ahead log {said}; check the disk"
    if count := wal.get("syncs_slow"):
        what = f"{plural(count, 'sync')} of the write-ahead log"
        yield f"the disk is slow: {what} took over a second, within a minute"
    if seconds := wal.get("stuck_s"):
        since = age(int(seconds * 1000))
        yield f"the write-ahead log is stuck: a write has not ended for {since}; check the disk"


def _of_recovery(counts: Mapping[str, int]) -> Iterator[str]:
    at_most = counts.get("offsets_lost_at_most", 0)
    if count := counts.get("offsets_lost", 0) - at_most:
        yield f"{plural(count, 'offset')} lost since the start: see recovery below"
    if at_most:
        yield (
            f"at most {plural(at_most, 'offset')} lost at the ends of logs (lost_tail): they were"
            " reserved, and how many had a record nobody knows: see recovery below"
        )
    for what, sentence in UNCOUNTED_LOSSES.items():
        if counts.get(what):
            yield f"{sentence}: see recovery below"


def _of_certificate(info: Info) -> Iterator[str]:
    if info["standing"] != "valid":
        verb = "has expired" if info["standing"] == "expired" else "expires soon"
        named, until = ", ".join(info["listeners"]), moment(info["valid_until_ms"])
        yield f"the certificate of listener {named} {verb}: {until}"
    if why := info["why_not_reloaded"]:
        yield f"an older certificate is in force, and a restart would fail: {why}"


def _numbers(info: Info) -> Iterator[tuple[str, str]]:
    counters, storage, wal = info["counters"], info["storage"], info["wal"]
    scrub, cleaner = info["scrub"], info["cleaner"]
    if ground := info.get("file_system"):
        weakness = f": {ground['weakness']}" if ground["weakness"] else ""
        yield "file system", f"{ground['kind']} at {ground['mount_point']}{weakness}"
    yield (
        "connections",
        f"{info['connections']:,} open, {counters['connections']:,} since the start,"
        f" {counters['connections_refused']:,} refused",
    )
    yield (
        "topics",
        f"{info['topics']:,}, with {plural(info['partitions'], 'partition')},"
        f" {info['partitions_open']:,} of them open",
    )
    yield (
        "open logs",
        f"{about(storage['log_bytes'])} in {plural(storage['segments_count'], 'segment')},"
        f" {plural(storage['open_files'] + storage['open_logs'], 'open file')}",
    )
    yield (
        "produced",
        f"{about(counters['produced_bytes'])} in {plural(counters['produce_requests'], 'request')}",
    )
    yield (
        "fetched",
        f"{about(counters['fetched_bytes'])} in {plural(counters['fetch_requests'], 'request')}",
    )
    yield (
        "not yet synced",
        f"{about(info['unsynced_bytes'])} of {about(info['unsynced_bytes_max'])};"
        f" producers had to wait {plural(info['ingest_stalls'], 'time')}",
    )
    yield (
        "write-ahead log",
        f"{plural(wal['frames_written'], 'frame')} in {plural(wal['syncs'], 'sync')},"
        f" {about(wal['bytes_written'])}; {plural(wal['files'], 'file')},"
        f" {wal['files_full']:,} of at most {wal['files_max']:,} full",
    )
    yield (
        "scrub",
        f"{plural(scrub['segments'], 'segment')}, {about(scrub['bytes'])} read again;"
        f" last pass ended: {moment(scrub['last_pass_ended_ms'])}",
    )
    yield (
        "cleaner",
        f"{plural(cleaner['cleanings'], 'cleaning')}, {about(cleaner['bytes_freed'])} freed;"
        f" last ended: {moment(cleaner['last_ended_ms'])}",
    )


def _recovered(recovery: Info) -> Iterator[str]:
    counts = {what: count for what, count in recovery["counts"].items() if count}
    if not counts:
        yield "recovery: nothing to repair since the start"
        return
    yield "recovery: " + ", ".join(f"{what} {count:,}" for what, count in counts.items())
    rows = recovery["rows"][-ROWS_SHOWN:]
    table = [(row["what"], _place(row), _offsets(row), row.get("reason", "")) for row in rows]
    yield from table_lines(("what", "where", "offsets", "reason"), table)


def _place(row: Info) -> str:
    """Of what belongs to no topic of the broker, where it was put."""
    return str(row["path"]) if row["what"] == "unknown_topic" else _where(row)


def _where(row: Info) -> str:
    return f"{row['topic']}-{row['partition']}" if "topic" in row else str(row["path"])


def _offsets(row: Info) -> str:
    return f"{row['from']}..{row['to'] - 1}" if "from" in row else ""
