"""`segbroker verify DIR`: every file of a data directory checked, offline; repaired when asked.

    stdout   a finding each, in sentences, or one JSON object with --json; a summary at the end
    stderr   a counter of the bytes on a terminal; with --repair the log of what is done

Without --repair not a byte is changed, and the directory is locked so that no broker starts
meanwhile.  With it what a start of the broker would do happens now, for all partitions, and then
everything is checked once more.

The exit code says whether damage was found, also when it has been repaired: who scripts a repair
hears of what was lost.  Running it again ends with 0.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .command import Command, Place
from .directory_owner import for_owner
from .exit_codes import ExitCode
from .standard_error import log_to_stderr
from .words import plural

if TYPE_CHECKING:
    from segbroker.segments.checks.findings import Finding, Progress
    from segbroker.segments.report import RecoveryReport


@click.command(cls=Command)
@click.argument(
    "directory",
    metavar="DIR",
    type=Place(is_directory=True),
)
@click.option(
    "--repair",
    is_flag=True,
    help="Make the repairs that a start of the broker and its scrub would make.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def verify(ctx: click.Context, directory: Path, repair: bool, as_json: bool) -> None:
    """Check the data directory DIR: segments, indexes, manifests, producers, WAL, metadata.

    No broker may run on it. Each finding says what is wrong, which offsets are lost by it, and what
    a start of the broker does about it. Nothing is written without --repair.

    The exit code is 8 when damage was found, repaired or not, and 0 when there was none: what a
    crash leaves behind (a torn tail, an index that was not written) is said, but is not damage.

    \b
    Examples:
      segbroker verify ./segbroker-data
      segbroker verify --json ./segbroker-data | jq '.findings[] | select(.level == "damage")'
      segbroker verify --repair ./segbroker-data
    """
    with log_to_stderr(), for_owner(directory) if repair else nullcontext():
        result = _verified(directory, repair, as_json)
    if as_json:
        click.echo(result.to_json())
    ctx.exit(ExitCode.DAMAGED if result.is_damaged else ExitCode.OK)


def _verified(directory: Path, repair: bool, as_json: bool) -> "Result":
    """Check, and repair when asked; told as it goes, but for JSON."""
    from segbroker.segments.checks.directory_check import lock_directory, repair_directory
    from segbroker.segments.disk.posix import PosixStorage

    os.listdir(directory)  # where that is not allowed nothing seems to be there
    storage, root = PosixStorage(), str(directory)
    now_ms = time.time_ns() // 1_000_000
    lock = lock_directory(storage, root)
    try:
        first = _check(root, now_ms, quiet=as_json)
    finally:
        if lock is not None:
            lock.release()
    result = Result(root, first)
    if not as_json:
        result.tell(first)
    if repair and first.findings:
        result.report = repair_directory(storage, root, now_ms).report
        result.second = _check(root, now_ms, quiet=as_json)
        if not as_json:
            result.tell_repair(result.report, result.second)
    return result


@dataclass
class Check:
    """What one pass over the directory found."""

    files: int = 0
    bytes: int = 0
    findings: "list[Finding]" = field(default_factory=list)

    @property
    def damaged(self) -> "list[Finding]":
        return [finding for finding in self.findings if finding.is_damage]

    @property
    def offsets_lost(self) -> int:
        return sum(one.to_offset - one.from_offset for one in self.findings if one.from_offset >= 0)


@dataclass
class Result:
    """Everything that is printed."""

    path: str
    first: Check
    report: "RecoveryReport | None" = None
    second: Check | None = None

    @property
    def is_damaged(self) -> bool:
        return bool(self.first.damaged or (self.second is not None and self.second.damaged))

    def to_json(self) -> str:
        found = self.first
        whole: dict[str, object] = {
            "path": self.path,
            "files": found.files,
            "bytes": found.bytes,
            "damaged": len(found.damaged),
            "offsets_lost": found.offsets_lost,
            "findings": [one.as_map() for one in found.findings],
        }
        if self.report is not None and self.second is not None:
            whole["repairs"] = [row.as_map() for row in self.report.rows]
            whole["left"] = [one.as_map() for one in self.second.findings]
        return json.dumps(whole, indent=2)

    def tell(self, check: Check) -> None:
        for finding in check.findings:
            for line in _lines(finding, self.path):
                click.echo(line)
        notes = len(check.findings) - len(check.damaged)
        click.echo(
            f"checked {plural(check.files, 'file')}, {plural(check.bytes, 'byte')}: "
            f"{len(check.damaged)} damaged, {plural(check.offsets_lost, 'offset')} lost, "
            f"{plural(notes, 'note')}"
        )

    def tell_repair(self, report: "RecoveryReport", check: Check) -> None:
        click.echo("")
        for row in report.rows:
            lost = f" offsets [{row.from_offset}, {row.to_offset})" if row.from_offset >= 0 else ""
            reason = f": {row.reason}" if row.reason else ""
            click.echo(f"{row.what.replace('_', ' ')} {_short(row.path, self.path)}{lost}{reason}")
        click.echo("after the repair:")
        self.tell(check)


def _lines(finding: "Finding", root: str) -> Iterator[str]:
    lost = ""
    if finding.from_offset >= 0:
        lost = f", offsets [{finding.from_offset}, {finding.to_offset}) are lost"
    word = "DAMAGE" if finding.is_damage else "note"
    yield f"{word}: {_short(finding.path, root)}: {finding.text}{lost}"
    yield f"        a start of the broker: {finding.action}"


def _short(path: str, root: str) -> str:
    return path.removeprefix(root.rstrip("/") + "/")


def _check(root: str, now_ms: int, *, quiet: bool) -> Check:
    from segbroker.segments.checks.directory_check import DirectoryChecker
    from segbroker.segments.disk.posix import PosixStorage

    with _counter(quiet=quiet) as progress:
        checker = DirectoryChecker(PosixStorage(), root, now_ms, progress)
        findings = list(checker.check())
    return Check(checker.files_count, checker.bytes_count, findings)


@contextmanager
def _counter(*, quiet: bool) -> "Iterator[Progress]":
    """A counter on a terminal; nothing elsewhere."""
    from .progress import counter

    if quiet:
        yield lambda count: None
        return
    with counter("checked", None, unit="files") as update:
        total = files = 0

        def add(count: int) -> None:
            nonlocal total, files
            total += count
            files += 1
            update(files, total)

        yield add
