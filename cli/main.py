"""`segbroker`: the table of subcommands, and the entry point.

A subcommand is one leaf here and one module beside this one.
"""

import sys
from typing import ClassVar

import click

from .command import Group, Leaf
from .exit_codes import MEANINGS, ExitCode
from .standard_error import leave
from .standard_output import named

PROGRAM = "segbroker"

EPILOG = f"""\b
Examples:
  segbroker serve --data ./segbroker-data
  echo hello | segbroker produce greetings
  segbroker consume greetings -e

\b
Exit codes:
  {
    '''
  '''.join(f"{code:>3}  {text}" for code, text in MEANINGS.items())
}

Data goes to standard output, everything else to standard error.
"""


class Segbroker(Group):
    leaves: ClassVar = {
        "serve": Leaf("serve", "serve", "Run a broker on a data directory."),
        "produce": Leaf("produce", "produce", "Send lines from standard input to a topic."),
        "consume": Leaf("consume", "consume", "Print the records of a topic."),
        "topic": Leaf("trim", "topic", "Create, list, describe, alter, trim and delete topics."),
        "group": Leaf(
            "group", "group", "List, describe, seek and delete groups; change their settings."
        ),
        "user": Leaf("user", "user", "Create, list and remove users; set passwords."),
        "broker": Leaf(
            "broker", "broker", "Show the state of a running broker; change its settings."
        ),
        "acl": Leaf("acl", "acl", "List, add and remove access rules."),
        "quota": Leaf("quota", "quota", "List, set and remove quotas of clients."),
        "context": Leaf("context", "context", "Store brokers under a name, with TLS and login."),
        "spark": Leaf("spark", "spark", "Pipelines on Spark: export, import, SQL, replay."),
        "verify": Leaf("verify", "verify", "Check a data directory; repair it when asked."),
        "dump": Leaf("dump", "dump", "Show what a file of a data directory holds."),
        "completion": Leaf("completion", "completion", "Print the shell completion script."),
        "version": Leaf("version", "version", "Print the version."),
    }


@click.command(
    cls=Segbroker,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EPILOG,
)
def segbroker() -> None:
    """A durable log broker that speaks the Kafka protocol."""


def main() -> None:
    """The console script."""
    for name, stream in (("input", sys.stdin), ("output", sys.stdout), ("error", sys.stderr)):
        if stream is None:  # `<&-`; a file that is opened now would take its descriptor
            if sys.stderr is not None:
                sys.stderr.write(
                    f"Error: standard {name} is closed; /dev/null can be in its place\n"
                )
            sys.exit(ExitCode.SYSTEM)
    sys.stdout = named(sys.stdout)
    if sys.argv[1:] == ["--version"]:
        sys.argv[1] = "version"
    try:
        segbroker.main(prog_name=PROGRAM)
    finally:
        leave()
