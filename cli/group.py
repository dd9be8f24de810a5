"""`segbroker group list | describe | settings | alter | seek | delete`.

What a script would read goes to standard output (names, descriptions, --json); that something was
done is said on standard error.

Where `seek` puts a group, in each partition:

start, end     the first record that is kept; behind the last
1234           offset 1234
+5, -5         5 records further, or back, from where the group stands
@TIME          the first record of that time or later, as `consume -o`
"""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

from .asking import ask, yes_option
from .closed_pipe import ended_by_reader
from .command import Group, Seconds, bootstrap_option, note
from .exit_codes import ExitCode
from .failures import STOP_THEM, Failure
from .group_lag import SHARE, Ages, Facts, facts_of, facts_of_all, listed, without_offset
from .start_position import is_number, parse_start
from .tables import number, shown, table_lines
from .topic import (
    changes_of,
    check_known,
    echo_table,
    json_option,
    open_admin,
    settings_option,
)
from .unserved import failure_of, unserved_in
from .words import plural

if TYPE_CHECKING:
    from segbroker.client import (
        Admin,
        CommittedOffset,
        GroupDescription,
        ShareOffset,
        TopicPartition,
    )
# How many partitions are named that a position does not reach.
HELD_SHOWN: Final = 10


@click.group(cls=Group)
def group() -> None:
    """List, describe, seek and delete groups; change their settings.

    \b
    Example:
      segbroker group describe billing
    """


@group.command("list")
@click.option("-l", "--long", is_flag=True, help="With state, type, members and lag.")
@json_option
@bootstrap_option
def list_(long: bool, as_json: bool, bootstrap: str) -> None:
    """List the groups, one per line.

    With --json each has the keys of `describe --json`. Without --long those that need further
    requests are null: protocol, members, lag, lag_seconds, partitions.

    \b
    Examples:
      segbroker group list
      segbroker group list --long
    """
    with open_admin(bootstrap) as admin:
        if not long:
            found = admin.list_groups()
            if as_json:
                click.echo(json.dumps([listed(row) for row in found]))
            else:
                click.echo("".join(f"{shown(row.group_id)}\n" for row in found), nl=False)
            return
        facts, failed = facts_of_all(admin, Ages(bootstrap))
        unserved = failure_of(admin, unserved_in(facts))
    if as_json:
        click.echo(json.dumps(facts))
    else:
        _echo_list(facts)
    for failure in (failed, unserved):  # the others are said all the same
        if failure is not None:
            raise failure


def _echo_list(facts: Iterable[Facts]) -> None:
    rows = [
        (
            fact["group"],
            fact["state"],
            fact["type"],
            f"{len(fact['members']):,}",
            f"{fact['lag']:,}" + ("+?" if _is_more_unknown(fact) else ""),
            _seconds(fact["lag_seconds"]),
        )
        for fact in facts
    ]
    head = ("group", "state", "type", "members", "lag", "seconds")
    echo_table(head, rows, numbers={3, 4, 5})


def _is_more_unknown(fact: Facts) -> bool:
    """Whether the lag is more than the sum that is known."""
    return bool(unserved_in([fact]) or without_offset(fact["partitions"]))


@group.command()
@click.argument("name")
@click.option("--watch", is_flag=True, help="Describe it again and again, until Ctrl-C.")
@click.option(
    "--interval",
    "interval_s",
    type=Seconds(0.1, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often, with --watch.",
)
@json_option
@bootstrap_option
def describe(name: str, watch: bool, interval_s: float, as_json: bool, bootstrap: str) -> None:
    """Describe the group NAME: its members, committed offsets and lag.

    The lag in seconds is the age of the next record that the group will read.  The offset of a
    share group is that of its first unfinished record, its lag the number of unfinished records.
    --watch redraws on a terminal; elsewhere one description follows another, with --json each on a
    line.

    \b
    Examples:
      segbroker group describe billing
      segbroker group describe billing --watch
    """
    ages = Ages(bootstrap)
    with open_admin(bootstrap) as admin:
        if not watch:
            facts = facts_of(admin, name, ages)
            click.echo(json.dumps(facts, indent=2) if as_json else "\n".join(_described(facts)))
            if (unserved := failure_of(admin, unserved_in([facts]))) is not None:
                raise unserved
            return
        with ended_by_reader():
            while True:
                facts = facts_of(admin, name, ages)
                if as_json:
                    click.echo(json.dumps(facts))
                else:
                    click.clear()  # of a terminal; nothing elsewhere
                    click.echo("\n".join([*_described(facts), ""]))
                sys.stdout.flush()
                time.sleep(interval_s)


def _described(facts: Facts) -> Iterator[str]:
    """The lines of a description."""
    rows = facts["partitions"]
    members = plural(len(facts["members"]), "member")
    lag = f"{plural(facts['lag'], 'record')} behind"
    if facts["lag"] and facts["lag_seconds"] is not None:
        lag += f", {_seconds(facts['lag_seconds'])}"
    if unknown := len(unserved_in([facts])):
        lag += f", not counting {plural(unknown, 'partition')} that cannot be read"
    if nowhere := len(without_offset(rows)):
        lag += f", not counting {plural(nowhere, 'partition')} where it has no offset"
    kind = "share group" if facts["type"] == SHARE else "group"
    yield f"{kind} {shown(facts['group'])}: {facts['state']}, {members}, {lag}"
    yield ""
    table = [
        (
            row["topic"],
            str(row["partition"]),
            "-" if row["offset"] is None else f"{row['offset']:,}",
            number(row["end"]),
            "-" if row["lag"] is None and row["end"] is not None else number(row["lag"]),
            _seconds(row["lag_seconds"]),
            row["member"] or (plural(len(row["members"]), "member") if row["members"] else "-"),
        )
        for row in rows
    ]
    head = ("topic", "partition", "offset", "end", "lag", "seconds", "member")
    yield from table_lines(head, table, numbers={1, 2, 3, 4, 5})


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:,.1f} s"


@group.command()
@click.argument("name")
@json_option
@bootstrap_option
def settings(name: str, as_json: bool, bootstrap: str) -> None:
    """Print the settings of the group NAME, and where each is set.

    The group need not exist yet.

    \b
    Example:
      segbroker group settings workers
    """
    with open_admin(bootstrap) as admin:
        found = admin.describe_group_config(name)
    if as_json:
        rows = {key: {"value": one.value, "source": one.source} for key, one in found.items()}
        click.echo(json.dumps(rows, indent=2))
        return
    lines = [(key, one.value or "", one.source) for key, one in sorted(found.items())]
    echo_table(("setting", "value", "from"), lines, numbers=frozenset())


@group.command()
@click.argument("name")
@settings_option("group", "group settings")
@click.option(
    "--unset",
    metavar="KEY",
    multiple=True,
    help="Remove a setting of the group; the broker's value applies again.",
)
@bootstrap_option
def alter(name: str, settings: dict[str, str], unset: tuple[str, ...], bootstrap: str) -> None:
    """Change settings of the group NAME, which need not exist yet.

    A change is in force when the command returns, and holds after a restart as well.

    \b
    Examples:
      segbroker group alter workers -c share.auto.offset.reset=earliest
      segbroker group alter workers -c share.record.lock.duration.ms=60000
      segbroker group alter workers --unset share.auto.offset.reset
    """
    changes = changes_of(settings, unset)
    if not changes:
        raise click.UsageError("nothing to change; give -c or --unset")
    with open_admin(bootstrap) as admin:
        if unset:
            check_known("group", unset, admin.describe_group_config(name))
        admin.alter_group_config(name, changes)
    note(f"changed {', '.join(changes)} of group {name}")


# -10 is a position: what is no option is an argument here, and one too many is an error.
@group.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("topic")
@click.argument("position")
@click.option("--dry-run", is_flag=True, help="Show the new offsets, and change nothing.")
@click.option(
    "--share", "is_new_share", is_flag=True, help="If there is no such group, create a share group."
)
@bootstrap_option
def seek(
    name: str, topic: str, position: str, dry_run: bool, is_new_share: bool, bootstrap: str
) -> None:
    """Set the offsets of the group NAME in a topic.

    They are set to POSITION in every partition of TOPIC: start, end, OFFSET, +N or -N (counted
    from the committed offset) or @TIME. The group must have no members: stop its consumers first.
    For a share group the state of single records is discarded.

    \b
    Examples:
      segbroker group seek billing orders start
      segbroker group seek workers orders start --share
      segbroker group seek billing orders -10 --dry-run
      segbroker group seek billing orders @2024-05-01T12:00:00+02:00 --dry-run
    """
    move = None
    try:
        if position[:1] in ("+", "-") and is_number(position[1:]):
            move = int(position)
        where = None if move is not None else parse_start(position)
    except ValueError as exc:
        raise click.BadParameter(str(exc).replace("-N", "+N, -N")) from None
    with open_admin(bootstrap) as admin:
        described = admin.describe_group(name)
        is_share = _is_share(described, is_new_share)
        targets, held = _targets(admin, name, topic, where, move, is_share)
        if dry_run:
            if described.members:
                raise Failure(f"group {name!r} has members", ExitCode.REFUSED, STOP_THEM)
        elif is_share:
            admin.alter_share_offsets(name, targets)
        else:
            admin.commit(name, targets)
    done = "would move" if dry_run else "moved"
    note(f"{done} group {name} to these offsets of {topic}")
    if held:
        partitions = ", ".join(str(tp.partition) for tp in sorted(held)[:HELD_SHOWN])
        more = f" and {len(held) - HELD_SHOWN} more" if len(held) > HELD_SHOWN else ""
        note(
            f"{position} is outside of the log of partition {partitions}{more}:"
            " the nearest offset of the log is taken there"
        )
    rows = [(str(tp.partition), f"{offset:,}") for tp, offset in sorted(targets.items())]
    echo_table(("partition", "offset"), rows, {0, 1})


def _is_share(described: "GroupDescription", is_new_share: bool) -> bool:
    """Raises Failure: it is to be a share group, and is another."""
    from segbroker.client.group_descriptions import DEAD

    if described.state == DEAD:
        return is_new_share
    if is_new_share and described.group_type != SHARE:
        raise Failure(
            f"group {described.group_id!r} is not a share group",
            ExitCode.REFUSED,
            "leave out --share, or choose another name",
        )
    return described.group_type == SHARE


def _targets(
    admin: "Admin",
    name: str,
    topic: str,
    where: str | int | datetime | None,
    move: int | None,
    is_share: bool,
) -> "tuple[dict[TopicPartition, int], set[TopicPartition]]":
    """The offset of each partition, inside of what is kept; those where another was asked for.

    Raises Failure.
    """
    starts, ends = admin.offsets(topic, "start"), admin.offsets(topic, "end")
    stands: Mapping[TopicPartition, CommittedOffset | ShareOffset] = {}
    if move is not None:
        stands = admin.share_offsets(name) if is_share else admin.committed(name)
    times = admin.offsets(topic, where) if isinstance(where, datetime) else {}
    targets: dict[TopicPartition, int] = {}
    held: set[TopicPartition] = set()
    if move is not None and not stands.keys() & starts.keys():
        raise Failure(
            f"group {name!r} {'has no offsets in' if is_share else 'has committed nothing of'}"
            f" topic {topic!r}: there is no offset to count from",
            ExitCode.NOT_FOUND,
            f"segbroker group seek {name} {topic} start, end, an OFFSET or a @TIME",
        )
    for tp, start in starts.items():
        end = ends[tp].offset
        if where == "start":
            target = start.offset
        elif where == "end":
            target = end
        elif isinstance(where, int):
            target = where
        elif move is not None:
            if tp not in stands:
                continue  # it stands nowhere: there is nothing to move
            target = stands[tp].offset + move
        else:
            target = times[tp].offset if times[tp].offset >= 0 else end
        targets[tp] = min(max(target, start.offset), end)
        if targets[tp] != target:
            held.add(tp)
    return targets, held


@group.command()
@click.argument("name")
@yes_option
@bootstrap_option
def delete(name: str, yes: bool, bootstrap: str) -> None:
    """Delete the group NAME and its offsets; it must have no members.

    \b
    Example:
      segbroker group delete billing --yes
    """
    if not yes:
        ask("delete", f"group {name} and its offsets")
    with open_admin(bootstrap) as admin:
        admin.delete_group(name)
    note(f"deleted group {name}")
