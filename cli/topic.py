"""`segbroker topic create | list | describe | alter | delete`; trim.py has the rest.

What a script would read goes to standard output (names, descriptions, --json); that something was
done is said on standard error.
"""

import json
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from segbroker.protocol.limits import TOPIC_PARTITIONS_MAX
from segbroker.segments.settings.inert_settings import INERT
from segbroker.segments.settings.units import expected, units_of, whole_with_unit

from .asking import ask, require_terminal, yes_option
from .batch_limit import LIMITS, small_batches
from .command import (
    ACCEPT_TIMEOUT_MS,
    API_TIMEOUT_MS,
    CONNECT_TIMEOUT_MS,
    AnyCallable,
    Group,
    bootstrap_option,
    is_text,
    note,
)
from .durability import promise_lines, weakness_of
from .exit_codes import ExitCode
from .failures import BROKER_SETTINGS_HINT, GROUP_SETTINGS_HINT, Failure, topic_setting_hint
from .properties import security
from .retention import cleaning_lines, retention_lines
from .tables import number, table_lines
from .topic_facts import Facts, count_records, durability_of, facts_of, facts_of_all
from .unserved import failure_of, unserved_in
from .words import plural

if TYPE_CHECKING:
    from segbroker.client import Admin

_FROM: Final = {
    "topic": "set here",
    "broker": "the broker",
    "every broker": "all brokers",
    "start": "the broker's start",
}
_OF_SOME_UNIT: Final = re.compile(r"-?[\d.]+\s*[A-Za-z]+")


@click.group(cls=Group)
def topic() -> None:
    """Create, list, describe, alter, trim and delete topics.

    \b
    Example:
      segbroker topic create flights --partitions 4 -c durability=disk
    """


def open_admin(bootstrap: str) -> "Admin":
    from segbroker.client import Admin

    return Admin(
        bootstrap,
        security=security(),
        accept_timeout_ms=ACCEPT_TIMEOUT_MS,
        connect_timeout_ms=CONNECT_TIMEOUT_MS,
        api_timeout_ms=API_TIMEOUT_MS,
    )


def _settings(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    settings: dict[str, str] = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE")
        if not is_text(text):
            raise click.BadParameter(f"{text!r} is not text in UTF-8")
        settings[key] = _without_unit(key, value)
    return settings


def _without_unit(key: str, value: str) -> str:
    """7d of retention.ms as the number that every broker takes; what is none stays as it is."""
    units = units_of(key)
    try:
        return str(whole_with_unit(value, units))
    except ValueError:
        if units and _OF_SOME_UNIT.fullmatch(value):
            whole = f"{key}={value} is not a whole number{expected(units)}"
            raise click.BadParameter(whole) from None
        return value


def settings_option(whose: str, listed_by: str) -> Callable[[AnyCallable], AnyCallable]:
    return click.option(
        "-c",
        "--config",
        "settings",
        metavar="KEY=VALUE",
        multiple=True,
        callback=_settings,
        help=f"A setting of the {whose}; `{listed_by}` lists them. Sizes and times may have a unit"
        " (16MiB, 7d). May be repeated.",
    )


config_option = settings_option("topic", "describe")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


@topic.command()
@click.argument("name")
@click.option(
    "--partitions",
    metavar="N",
    type=click.IntRange(1, TOPIC_PARTITIONS_MAX),
    help="How many partitions.  [default: the broker's]",
)
@config_option
@click.option("--if-not-exists", is_flag=True, help="Succeed when the topic exists already.")
@bootstrap_option
def create(
    name: str,
    partitions: int | None,
    settings: dict[str, str],
    if_not_exists: bool,
    bootstrap: str,
) -> None:
    """Create the topic NAME.

    \b
    Examples:
      segbroker topic create greetings
      segbroker topic create flights --partitions 4 -c durability=disk -c segment.bytes=16777216
    """
    from segbroker.client.errors import SegbrokerError, TopicAlreadyExists

    with open_admin(bootstrap) as admin:
        try:
            admin.create_topic(
                name, partitions=-1 if partitions is None else partitions, config=settings
            )
        except TopicAlreadyExists:
            if not if_not_exists:
                raise
            note(f"topic {name} is there already")
            return
        count, warning = partitions, None
        with suppress(SegbrokerError):  # it is created, whoever may look at it
            found = admin.describe_topic(name)
            count, warning = len(found.partitions), small_batches(found.config)
    note(f"created topic {name}" + (f" with {plural(count, 'partition')}" if count else ""))
    if warning is not None:
        note(warning)


@topic.command("list")
@click.option("-l", "--long", is_flag=True, help="With partitions, records and durability.")
@json_option
@bootstrap_option
def list_(long: bool, as_json: bool, bootstrap: str) -> None:
    """List the topics, one per line.

    \b
    Examples:
      segbroker topic list
      segbroker topic list --long
    """
    with open_admin(bootstrap) as admin:
        names = admin.list_topics()
        keys = None if as_json else ("durability",)
        facts, failed = facts_of_all(admin, names, keys) if long else ([], None)
        unserved = failure_of(admin, unserved_in(facts))
    if as_json:
        click.echo(json.dumps(facts if long else names))
    elif not long:
        click.echo("".join(f"{name}\n" for name in names), nl=False)
    else:
        rows = [
            (
                str(fact["name"]),
                f"{len(fact['partitions']):,}",
                f"{count_records(fact):,}" + ("+?" if unserved_in([fact]) else ""),
                "?" if fact["config"] is None else durability_of(fact),
            )
            for fact in facts
        ]
        echo_table(("topic", "partitions", "records", "durability"), rows, numbers={1, 2})
    for failure in (failed, unserved):  # the others are said all the same
        if failure is not None:
            raise failure


@topic.command()
@click.argument("name")
@click.option("-v", "--verbose", is_flag=True, help="Say what each setting means.")
@json_option
@bootstrap_option
def describe(name: str, verbose: bool, as_json: bool, bootstrap: str) -> None:
    """Describe the topic NAME: partitions, offsets, settings.

    It also says which records a kill or a power cut may take, by the topic's durability class.

    \b
    Example:
      segbroker topic describe flights
    """
    with open_admin(bootstrap) as admin:
        facts, refused = facts_of(admin, name)
        compacts = any(
            row["key"] == "cleanup.policy" and "compact" in (row["value"] or "")
            for row in facts["config"] or ()
        )
        cleanings = admin.cleanings(name) if compacts else {}
        unserved = failure_of(admin, unserved_in([facts]))
        weakness = "" if as_json else weakness_of(admin)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    else:
        more = cleaning_lines(cleanings.values())
        _echo_description(name, facts, weakness, more, verbose=verbose)
    for failure in (refused, unserved):  # the rest is said all the same
        if failure is not None:
            raise failure


def _echo_description(
    name: str, facts: Facts, weakness: str, cleanings: Iterable[str], *, verbose: bool
) -> None:
    click.echo(f"topic {name}: {plural(len(facts['partitions']), 'partition')}, ", nl=False)
    unknown = len(unserved_in([facts]))
    more = f", and those of {plural(unknown, 'partition')} that cannot be read" if unknown else ""
    click.echo(plural(count_records(facts), "record") + more)
    click.echo()
    if facts["config"] is not None:
        in_force = {row["key"]: row["value"] or "" for row in facts["config"]}
        promised = promise_lines(durability_of(facts), weakness)
        lines = [*promised, *retention_lines(in_force)]
        for line in (*lines, *cleanings):
            click.echo(line)
        click.echo()
    rows = [
        (str(row["partition"]), *(number(row[key]) for key in ("start", "end", "records")))
        for row in facts["partitions"]
    ]
    echo_table(("partition", "start", "end", "records"), rows, numbers={0, 1, 2, 3})
    if facts["config"] is None:
        return
    click.echo()
    settings = [
        (
            row["key"],
            row["value"] or "",
            _FROM.get(row["source"], row["source"]),
            row["documentation"] or "",
        )
        for row in facts["config"]
        if verbose or not _is_idle(facts, row)
    ]
    width = 4 if verbose else 3
    head = ("setting", "value", "from", "meaning")[:width]
    echo_table(head, [row[:width] for row in settings], numbers=frozenset())


@topic.command()
@click.argument("name")
@config_option
@click.option(
    "--unset",
    metavar="KEY",
    multiple=True,
    help="Remove a setting of the topic; the default applies again. May be repeated.",
)
@click.option(
    "--partitions",
    metavar="N",
    type=click.IntRange(1, TOPIC_PARTITIONS_MAX),
    help="Grow to N partitions. Keys may then go to other partitions than before.",
)
@bootstrap_option
def alter(
    name: str,
    settings: dict[str, str],
    unset: tuple[str, ...],
    partitions: int | None,
    bootstrap: str,
) -> None:
    """Change settings of the topic NAME, or give it more partitions.

    \b
    Examples:
      segbroker topic alter flights -c segment.bytes=4194304
      segbroker topic alter flights --partitions 8
    """
    from segbroker.client.errors import SegbrokerError

    changes = changes_of(settings, unset)
    if not changes and partitions is None:
        raise click.UsageError("nothing to change; give -c, --unset or --partitions")
    with open_admin(bootstrap) as admin:
        if unset:
            check_known("topic", unset, admin.describe_topic(name).config)
        if changes:
            admin.alter_topic_config(name, changes)
            note(f"changed {', '.join(changes)} of topic {name}")
            with suppress(SegbrokerError):  # it is changed, whoever may look at it
                if changes.keys() & LIMITS and (
                    warning := small_batches(admin.describe_topic(name).config)
                ):
                    note(warning)
        if partitions is not None:
            admin.create_partitions(name, partitions)
            note(f"topic {name} now has {plural(partitions, 'partition')}")


_HINTS = {"broker": BROKER_SETTINGS_HINT, "group": GROUP_SETTINGS_HINT}


def changes_of(settings: Mapping[str, str], unset: Iterable[str]) -> dict[str, str | None]:
    """What -c and --unset ask for; None unsets.  Raises UsageError: both, of one setting."""
    if both := next((key for key in unset if key in settings), None):
        raise click.UsageError(f"both -c and --unset of {both}")
    return {**settings, **dict.fromkeys(unset)}


def check_known(whose: str, keys: Iterable[str], known: Container[str]) -> None:
    """A broker that is told to forget a setting it never had is content; who mistyped it is not."""
    for key in keys:
        if key not in known:
            name = click.get_current_context().params.get("name", "")
            hint = topic_setting_hint(key) if whose == "topic" else _HINTS[whose].format(name=name)
            raise Failure(f"there is no {whose} setting {key!r}", ExitCode.CONFIG, hint)


@topic.command()
@click.argument("name")
@yes_option
@bootstrap_option
def delete(name: str, yes: bool, bootstrap: str) -> None:
    """Delete the topic NAME and all its records.

    \b
    Example:
      segbroker topic delete flights --yes
    """
    if not yes:
        require_terminal("--yes")
    with open_admin(bootstrap) as admin:
        if not yes:
            facts, _ = facts_of(admin, name)
            ask("delete", f"topic {name} with {plural(count_records(facts), 'record')}")
        admin.delete_topic(name)
    note(f"deleted topic {name}")


@topic.command("delete-records", hidden=True)
@click.argument("name")
@click.option(
    "-p", "--partition", required=True, type=click.IntRange(0), metavar="N", help="The partition."
)
@click.option(
    "--before",
    type=click.IntRange(0),
    metavar="OFFSET",
    help="The first offset that is kept.",
)
@click.option("--all", "everything", is_flag=True, help="Delete all records that are there now.")
@yes_option
@bootstrap_option
def delete_records(
    name: str,
    partition: int,
    before: int | None,
    everything: bool,
    yes: bool,
    bootstrap: str,
) -> None:
    """Delete the records of one partition of the topic NAME up to an offset; see `trim`.

    \b
    Examples:
      segbroker topic delete-records flights -p 0 --before 1000
      segbroker topic delete-records flights -p 0 --all --yes
    """
    if everything == (before is not None):
        raise click.UsageError("say either --before OFFSET or --all")
    if not yes:
        what = "all records" if before is None else f"the records before offset {before:,}"
        ask("delete", f"{what} of {name} partition {partition}")
    with open_admin(bootstrap) as admin:
        starts = admin.delete_records({(name, partition): -1 if before is None else before})
    (start,) = starts.values()
    note(f"{name} partition {partition} now begins at offset {start:,}")


def _is_idle(facts: Facts, row: Mapping[str, Any]) -> bool:
    """Whether a setting is one of Kafka's that segbroker lists for tools that ask, and not set."""
    return bool(row["is_default"] and row["key"] in INERT and durability_of(facts))


def echo_table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Set[int]) -> None:
    for line in table_lines(head, rows, numbers=numbers):
        click.echo(line)
