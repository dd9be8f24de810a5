"""`segbroker topic trim`: delete what is old, up to an offset or a time, in every partition.

| --before | the first record that stays |
|---|---|
| 1234 | offset 1234; where the log ends before it, nothing of what is there now |
| @TIME | the first of that time or later; none is: nothing stays |
| end | nothing of what is there now stays |

Nothing comes back: it asks first, unless --yes; --dry-run says what would go.  What was done is
said before its table is printed: where nobody takes that, it is done all the same, and what was not
done is told behind it.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import click

from .asking import ask, require_terminal, yes_option
from .command import bootstrap_option, note
from .exit_codes import ExitCode
from .failures import Failure
from .start_position import Place, parse_start
from .topic import echo_table, open_admin, topic
from .unserved import failure_of
from .words import plural

if TYPE_CHECKING:
    from segbroker.client import Admin, TopicPartition


class Cut(NamedTuple):
    """What is to be done to one partition: `start` becomes `before`."""

    start: int
    before: int


def _position(ctx: click.Context, param: click.Parameter, text: str) -> Place:
    try:
        where = parse_start(text)
    except ValueError as exc:
        problem = str(exc).replace("start, end, OFFSET, -N or @TIME", "OFFSET, @TIME or end")
        raise click.BadParameter(problem) from None
    if where == "start" or (isinstance(where, int) and where < 0):
        raise click.BadParameter(f"{text!r} is not OFFSET, @TIME or end")
    return where


@topic.command()
@click.argument("name")
@click.option(
    "--before",
    "position",
    required=True,
    callback=_position,
    metavar="OFFSET|@TIME|end",
    help="The first record that is kept; end: delete all records that are there now.",
)
@click.option("-p", "--partition", type=click.IntRange(0), metavar="N", help="Only this partition.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@yes_option
@bootstrap_option
def trim(
    name: str,
    position: Place,
    partition: int | None,
    dry_run: bool,
    yes: bool,
    bootstrap: str,
) -> None:
    """Delete the records of the topic NAME before an offset or a time.

    \b
    Examples:
      segbroker topic trim flights --before @2024-05-01T00:00:00+02:00 --dry-run
      segbroker topic trim flights --before 1000 -p 0
      segbroker topic trim flights --before end --yes
    """
    from segbroker.client import SegbrokerError

    if not yes and not dry_run:
        require_terminal("--yes")
    with open_admin(bootstrap) as admin:
        cuts, missing = _cuts(admin, name, position, partition)
        unserved = failure_of(admin, [(name, number) for number in missing])
        if unserved is not None and not cuts:
            raise unserved
        planned = sum(cut.before - cut.start for cut in cuts.values())
        what = f"{plural(planned, 'record')} of {name}"
        if dry_run or not yes:
            _show(cuts)
        if dry_run:
            note(f"would delete {what}")
        else:
            if not yes:
                ask("delete", what)
            try:
                admin.delete_records({tp: cut.before for tp, cut in cuts.items()})
            except SegbrokerError as exc:
                try:
                    _tell_what_is_gone(admin, name, cuts)
                except Exception:  # nobody takes the table
                    raise exc  # noqa: B904  of both, what is said
                raise
            note(f"deleted {what}")
    try:
        if yes and not dry_run:
            _show(cuts)
    except Exception as exc:  # nobody takes it
        raise unserved or exc  # noqa: B904
    if unserved is not None:
        raise unserved  # what can be trimmed is


def _show(cuts: "Mapping[TopicPartition, Cut]") -> None:
    rows = [
        (str(tp.partition), f"{cut.before:,}", f"{cut.before - cut.start:,}")
        for tp, cut in sorted(cuts.items())
    ]
    echo_table(("partition", "start", "deleted"), rows, {0, 1, 2})


def _tell_what_is_gone(admin: "Admin", name: str, cuts: "Mapping[TopicPartition, Cut]") -> None:
    """Behind a failure: other partitions may have been trimmed, and nothing brings that back."""
    from segbroker.client import SegbrokerError

    try:
        starts = admin.offsets(name, "start", only_served=True)
    except SegbrokerError:
        note(f"what is gone shows: segbroker topic describe {name}")
        return
    gone = {
        tp: Cut(cut.start, starts[tp].offset)
        for tp, cut in cuts.items()
        if tp in starts and starts[tp].offset > cut.start
    }
    records = sum(cut.before - cut.start for cut in gone.values())
    note(f"deleted {plural(records, 'record')} of {name}, then it failed")
    if gone:
        _show(gone)


def _cuts(
    admin: "Admin", name: str, where: Place, partition: int | None
) -> "tuple[dict[TopicPartition, Cut], list[int]]":
    """Of each partition where it begins now, and where it will; those that are not served.  Raises
    Failure."""
    from segbroker.client import TopicPartition

    starts = admin.offsets(name, "start", only_served=True)
    ends = admin.offsets(name, "end", only_served=True)
    times = {}
    if isinstance(where, datetime):
        times = admin.offsets(name, where, only_served=True)
    cuts = {}
    missing = []
    for number in range(len(admin.partitions(name))):
        if partition is not None and number != partition:
            continue
        tp = TopicPartition(name, number)
        if tp not in ends or tp not in starts or (isinstance(where, datetime) and tp not in times):
            missing.append(number)
            continue
        start = starts[tp]
        end = ends[tp].offset
        before = end
        if isinstance(where, int):
            before = where
        elif isinstance(where, datetime) and times[tp].offset >= 0:
            before = times[tp].offset
        cuts[tp] = Cut(start.offset, min(max(before, start.offset), end))
    if not cuts and not missing:
        raise Failure(
            f"topic {name!r} has no partition {partition}",
            ExitCode.NOT_FOUND,
            f"segbroker topic describe {name} shows its partitions",
        )
    return cuts, missing
