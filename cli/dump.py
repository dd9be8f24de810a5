"""`segbroker dump FILE`: what a file of a data directory holds; offline, read only.

The name says what a file is; each kind has one reader.  Nothing is opened for writing, and the
directory need not be free: a broker may run on it (a tail that is just being written then looks
torn).
"""

import re
from pathlib import Path

import click

from .command import Command, Place
from .dump_report import Report
from .exit_codes import ExitCode

SUFFIXES = (".log", ".cleaned", ".index", ".manifest", ".start", ".producers", ".msgpack")
KEPT = re.compile(r"(.*\.log)\.\d+")
"""A damaged segment in quarantine/."""
SEGMENT = re.compile(r"(.*_segment_)(\d+)\.log")


@click.command(cls=Command)
@click.argument("file", type=Place(is_directory=False))
@click.option("-r", "--records", is_flag=True, help="Of a log: each record, not only the batches.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def dump(ctx: click.Context, file: Path, records: bool, as_json: bool) -> None:
    """Show what FILE holds: a segment's log or index, a manifest, producer state, a file of the
    write-ahead log, a snapshot of the metadata, or a damaged segment in quarantine/.

    The exit code is 8 when damage is found. A torn tail, as a crash leaves it, is said but is not
    damage: the broker cuts it off when it starts.

    \b
    Examples:
      segbroker dump segbroker-data/topics/flights/partition_0/flights_partition_0_segment_0.log
      segbroker dump --json segbroker-data/meta/snapshot-7.msgpack
      segbroker dump segbroker-data/wal/shard-00/wal-12.log
    """
    report = read_file(file, with_records=records)
    if as_json:
        click.echo(report.to_json(str(file)))
    else:
        for line in report.to_lines(str(file)):
            click.echo(line)
    ctx.exit(ExitCode.DAMAGED if report.damage else ExitCode.OK)


def read_file(path: Path, *, with_records: bool) -> Report:
    """The report on a file, by its name.

    Raises:
        click.UsageError: it is none of ours.
    """
    kept = KEPT.fullmatch(path.name)
    suffix = ".log" if kept else path.suffix
    if suffix not in SUFFIXES:  # before it is read: it may be an image of a whole disk
        raise click.UsageError(f"{path.name} is none of {', '.join(f'*{one}' for one in SUFFIXES)}")
    content = path.read_bytes()
    match suffix:
        case ".log" | ".cleaned":
            from .wal_dump import dump_wal, is_wal_file

            if is_wal_file(path.name, content):
                return dump_wal(content, path.name)
            from .log_dump import dump_log

            later = has_later_segment(path)
            return dump_log(content, later_segment=later, with_records=with_records)
        case ".index":
            from .index_dump import dump_index

            log = path.with_suffix(".log")
            return dump_index(content, log.read_bytes() if log.exists() else None)
        case ".manifest" | ".start":
            from .manifest_dump import dump_manifest

            return dump_manifest(content)
        case ".producers":
            from .state_dump import dump_producers

            return dump_producers(content)
        case _:
            from .state_dump import dump_metadata

            return dump_metadata(content, str(path))


def has_later_segment(path: Path) -> bool:
    """Whether the partition goes on behind this segment, in one that is not empty.

    Its number need not be the next one: where a topic was compacted there are holes.
    """
    match = SEGMENT.fullmatch(path.name)
    if match is None:
        return False
    for other in path.parent.iterdir():
        later = SEGMENT.fullmatch(other.name)
        if later is not None and later[1] == match[1] and int(later[2]) > int(match[2]):
            try:
                if other.stat().st_size > 0:
                    return True
            except FileNotFoundError:  # deleted meanwhile, by a broker that runs
                continue
    return False
